"""How many tokens a request will take: what the provider last said, and our count of the rest.

    [system tools u1 m2 u3] m4 u5      m4's provider reported 1,310 tokens for what is in brackets
    1,310 + our count of m4 and u5, calibrated

A report counts as long as the reply that brought it stands on the very chain that it was compiled
for. Without one everything is our count, calibrated. Text that is no part of the chain is counted
with what came after.
"""

from collections.abc import Mapping
from itertools import accumulate

from msgspec import Struct

from app.core.calibration import Calibration
from app.core.compile.inputs import CompileResult
from app.core.compile.order import is_reply
from app.core.compile.render import chained_parts
from app.core.contents import Segment
from app.core.events import Event, Events
from app.core.lanes import Reader
from app.core.tokens import CountTokens, part_tokens


class Counted(Struct, frozen=True, kw_only=True):
    """Our own count of a request."""

    by_segment: Mapping[str, int]
    #: Tokens up to after so many chained parts; the first is of tools and system text alone.
    up_to: tuple[int, ...]

    @property
    def total(self) -> int:
        """All segments together."""
        return sum(self.by_segment.values())


class Reported(Struct, frozen=True, kw_only=True):
    """What a provider said of a request that this one begins with."""

    fingerprint: str
    #: Our count of it, and the provider's.
    ours: int
    theirs: int


class Projection(Struct, frozen=True, kw_only=True):
    """What the request will take."""

    total: int
    #: By how much that may be off.
    error_bound: int
    #: The report it starts from; None: all of it is our count.
    reported: Reported | None = None


def count_result(
    result: CompileResult, count: CountTokens, *, system_tokens: int, tools_tokens: int
) -> Counted:
    """Return our count of a compile.

    Args:
        result: the compile.
        count: for parts that the pipeline made and nobody counted.
        system_tokens: of the system text.
        tools_tokens: of the tools.
    """
    by_segment: dict[str, int] = {"system": system_tokens, "tools": tools_tokens}
    by_segment |= dict.fromkeys(map(str, Segment), 0)
    by_segment |= result.settled.by_segment
    history_tokens = 0
    for content in result.contents:
        for placed in content.parts:
            tokens = placed.tokens or part_tokens(placed.part, count)
            # Nearly always, and an enumeration's member is hashed by Python code.
            if placed.segment is Segment.HISTORY:
                history_tokens += tokens
            else:
                by_segment[placed.segment] += tokens
    by_segment[Segment.HISTORY] += history_tokens
    before = result.settled.up_to or (system_tokens + tools_tokens,)
    chained = [
        part.placed.tokens or part_tokens(part.placed.part, count)
        for _, part in chained_parts(result.rendered)
    ]
    return Counted(
        by_segment=by_segment, up_to=(*before[:-1], *accumulate(chained, initial=before[-1]))
    )


def project(
    counted: Counted,
    result: CompileResult,
    events: Events,
    reader: Reader,
    *,
    calibration: Calibration,
) -> Projection:
    """Return what a request will take.

    Args:
        counted: our count of it.
        result: the compile.
        events: that were compiled.
        reader: whose replies count.
        calibration: of the model.
    """
    found = newest_report(result, events, reader)
    if found is None:
        total = calibration.tokens(counted.total)
        return Projection(total=total, error_bound=calibration.error(total))
    reply, at = found
    reported = Reported(
        fingerprint=result.chain[at], ours=counted.up_to[at], theirs=reply.prompt_tokens or 0
    )
    later = calibration.tokens(counted.total - reported.ours)
    return Projection(
        total=reported.theirs + later, error_bound=calibration.error(later), reported=reported
    )


def newest_report(
    result: CompileResult, events: Events, reader: Reader
) -> tuple[Event, int] | None:
    """Return the newest reply with a report that stands, and the chained parts it tells of."""
    for event in reversed(events):
        if not event.prompt_tokens or event.compiled_fingerprint is None:
            continue
        if event.compiled_fingerprint in result.chain and is_reply(event, reader):
            return event, result.chain.index(event.compiled_fingerprint)
    settled = result.settled
    return None if settled.report is None else (settled.report, settled.report_at)


def scaled(by_segment: Mapping[str, int], total: int) -> dict[str, int]:
    """Return the counts scaled so that they sum up to a total; the largest takes the rounding."""
    ours = sum(by_segment.values())
    if not ours or ours == total:
        return dict(by_segment)
    result = {name: tokens * total // ours for name, tokens in by_segment.items()}
    largest = max(result, key=result.__getitem__)
    result[largest] += total - sum(result.values())
    return result
