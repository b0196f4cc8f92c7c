"""How much of an earlier request still stands at the beginning of this one.

That is what the provider should have in its cache. The earlier request is the one that the newest
reply answered, or the base that the caller names.
"""

from msgspec import Struct

from app.core.compile.breaks import Break, fingerprint_before, first_difference, is_lost
from app.core.compile.inputs import CompileResult
from app.core.compile.projection import Counted
from app.core.events import Event
from app.core.fingerprint import head_difference


class Standing(Struct, frozen=True):
    """The beginning that two requests share."""

    #: Chained parts; None: not even tools and system text are the same.
    parts: int | None
    #: Of the earlier request.
    fingerprint: str | None = None
    #: Why not all of it stands; None when it does.
    found_break: Break | None = None

    def tokens(self, counted: Counted) -> int:
        """Return our count of what stands."""
        return 0 if self.parts is None else counted.up_to[self.parts]


NOTHING_STANDS = Standing(None)


def broken_reply(reply: Event | None, result: CompileResult, *, gone: Event | None) -> Event | None:
    """Return the reply that does not stand on what it was compiled for, None where all do.

    Args:
        reply: the newest one that is shown and says what it was compiled for, if there is any.
        result: the compile at hand.
        gone: the newest reply, if it is not shown any more, or does not say what it was compiled
            for and was changed under. Without saying so it counts where no other is left.
    """
    if is_lost(gone, result) or (reply is None and gone and not gone.compiled_fingerprint):
        return gone
    if reply is not None and fingerprint_before(reply, result) != reply.compiled_fingerprint:
        return reply
    return None


def whole_standing(
    reply: Event | None,
    result: CompileResult,
    *,
    gone: Event | None,
    base_fingerprint: str | None,
) -> Standing:
    """Return what stands where :func:`broken_reply` finds none.

    Args:
        reply: as there.
        result: as there.
        gone: as there.
        base_fingerprint: of a request that the caller has sent.
    """
    replies = (each.compiled_fingerprint for each in (reply, gone) if each is not None)
    found = [
        (result.chain.index(fingerprint), fingerprint)
        for fingerprint in (base_fingerprint, *replies)
        if fingerprint in result.chain
    ]
    return Standing(*max(found)) if found else NOTHING_STANDS


def broken_standing(
    reply: Event, now: CompileResult, then: CompileResult, found: Break | None
) -> Standing:
    """Return what is left of the request that a reply answered.

    Args:
        reply: the newest reply; it does not stand.
        now: the compile at hand.
        then: what the log compiled to when the reply was compiled.
        found: why it does not stand.
    """
    recorded = reply.compiled_fingerprint or ""
    if head_difference(recorded, now.fingerprint) is not None or then.fingerprint != recorded:
        # What was sent then is not known any more.
        return Standing(None, recorded, found)
    difference = first_difference(then, now)
    shared = len(then.chain) - 1 if difference is None else difference.shared_count
    return Standing(shared, recorded, found)
