"""Leave out media beyond what the provider takes: too large ones, and the oldest of too many.

    [u: 5 images]         [m] [u: 17 images]     before, where a request may hold 20
    [u: 4 texts, 1 image] [m] [u: 17 images]     after: two had to, and four gave way

A text says what stood there. Which is too large depends on nothing else, so it never comes back and
the prefix stands. Too many are cut like a budget is: first from before the newest user message,
oldest first, then from the current turn, pins last; and before the current turn in steps of a fifth
of what the provider takes, so that one cut serves several calls (``break_reason: budget``).

Runs after everything that adds media, and before ``fit_budget``, which counts what is left.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.canonical import canonical_json
from app.core.compile.estimate import estimate_tokens
from app.core.compile.inputs import BudgetAction, CompileInput, Report
from app.core.compile.media import (
    LimitedMedia,
    MediaKind,
    MediaLimits,
    is_part_too_large,
    media_in,
)
from app.core.compile.questions import newest_question
from app.core.contents import (
    Contents,
    FileData,
    FunctionResponse,
    InlineData,
    Part,
    PlacedPart,
    Segment,
    Text,
)
from app.core.copying import replace
from app.core.tokens import media_tokens

#: Of what the provider takes, the part that one step cuts.
STEPS: Final = 5


@dataclass(frozen=True, slots=True)
class _Medium:
    """One piece of media among the contents."""

    kind: MediaKind
    #: Index of the content, of the part in it, and of the medium in that.
    content: int
    part: int
    number: int
    #: What is cut first is of the lowest rank.
    rank: int


def media_limits(contents: Contents, inputs: CompileInput, report: Report) -> Contents:
    """Return the contents with no more media, and no larger ones, than the provider takes."""
    limited = inputs.format.limited_media
    limits = limited.limits_of(inputs.options.model) if limited else {}
    if limited is None or not limits:
        return contents
    said = inputs.format.name
    too_large: dict[_Medium, str] = {}
    left: dict[MediaKind, list[_Medium]] = {kind: [] for kind in limits}
    for medium in _media(contents, limited):
        part = media_in(contents[medium.content].parts[medium.part].part)[medium.number]
        if is_part_too_large(part, limits[medium.kind]):
            too_large[medium] = f"larger than {said} takes"
        else:
            left[medium.kind].append(medium)
    too_many = {
        medium: f"{said} takes {limits[kind].most} {kind}s in a request"
        for kind, media in left.items()
        for medium in _cut(media, limits, kind)
    }
    for medium, why in too_large.items():
        placed = contents[medium.content].parts[medium.part]
        report.repair("media_too_large", placed.seq, f"{medium.kind} left out: {why}")
    return _without(contents, too_large, too_many, report)


def _media(contents: Contents, limited: LimitedMedia) -> Iterator[_Medium]:
    current = newest_question(contents)
    for number, content in enumerate(contents):
        for index, placed in enumerate(content.parts):
            for inner, part in enumerate(media_in(placed.part)):
                kind = limited.kind_of(part)
                if kind is not None:
                    is_fixed = placed.segment is not Segment.HISTORY or placed.seq is None
                    rank = 2 if is_fixed else int(number >= current)
                    yield _Medium(kind, number, index, inner, rank)


def _cut(media: Sequence[_Medium], limits: MediaLimits, kind: MediaKind) -> list[_Medium]:
    """Return what is to give way, of media of one kind in order."""
    most = limits[kind].most
    excess = len(media) - most
    if excess <= 0:
        return []
    step = max(1, most // STEPS)
    old = sum(medium.rank == 0 for medium in media)
    wanted = max(excess, min(-(-excess // step) * step, old))
    return sorted(media, key=lambda medium: medium.rank)[:wanted]


def _without(
    contents: Contents,
    too_large: dict[_Medium, str],
    too_many: dict[_Medium, str],
    report: Report,
) -> Contents:
    gone = too_large | too_many
    if not gone:
        return contents
    by_part: dict[tuple[int, int], dict[int, str]] = {}
    for medium, why in gone.items():
        by_part.setdefault((medium.content, medium.part), {})[medium.number] = why
    counted = {(medium.content, medium.part) for medium in too_many}
    result = list(contents)
    for (number, index), why_by_number in sorted(by_part.items()):
        content = result[number]
        placed = content.parts[index]
        stub = _stub(placed, why_by_number)
        if (number, index) in counted:
            saved = max(0, placed.tokens - stub.tokens)
            report.budget_actions.append(BudgetAction("stubbed", placed.seq, saved))
        parts = (*content.parts[:index], stub, *content.parts[index + 1 :])
        result[number] = replace(content, parts=parts)
    return tuple(result)


def _stub(placed: PlacedPart, why_by_number: dict[int, str]) -> PlacedPart:
    part = placed.part
    media = media_in(part)
    notes = [_note(media[number], why) for number, why in sorted(why_by_number.items())]
    text = "\n".join(notes)
    if not isinstance(part, FunctionResponse):
        return replace(placed, part=Text(text=text), tokens=estimate_tokens(text))
    gone = [each for number, each in enumerate(part.media) if number in why_by_number]
    saved = sum(map(media_tokens, gone)) - estimate_tokens(text)
    return replace(
        placed, part=_told(part, why_by_number, notes), tokens=max(1, placed.tokens - saved)
    )


def _told(part: FunctionResponse, gone: dict[int, str], notes: list[str]) -> FunctionResponse:
    """Return the result without the media, which it names instead."""
    media = tuple(each for number, each in enumerate(part.media) if number not in gone)
    if part.response_text is None:
        told = canonical_json({**json.loads(part.response), "left_out": [*notes]})
        return replace(part, media=media, response=told)
    text = "\n".join([part.response_text, *notes]).lstrip("\n")
    return replace(part, media=media, response=canonical_json({"output": text}), response_text=text)


def _note(part: Part, why: str) -> str:
    named = isinstance(part, InlineData | FileData) and (part.display_name or part.mime_type)
    return f"[{named or 'media'} left out: {why}]"
