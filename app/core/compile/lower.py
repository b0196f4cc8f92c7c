"""Lower events to contents: the step between the two kinds of pass.

One content per event, in its role: the passes before see to it that calls are the model's, and
results the user's. What the format has no place for is left out and reported; under ``stable`` so
is text that the provider would refuse as blank.
"""

from app.core.compile.adk.opening import opening_content
from app.core.compile.fitting import is_sent
from app.core.compile.inputs import CompileInput, Report
from app.core.contents import (
    Content,
    Contents,
    PlacedPart,
    Role,
    Segment,
)
from app.core.copying import replace
from app.core.events import Event, Events
from app.core.ranges import contains
from app.core.tokens import counted


def lower(events: Events, inputs: CompileInput, report: Report) -> Contents:
    """Return the contents of the events, in order; of an isolation scope, after what opened it."""
    contents = list(_opening(inputs, report)) if inputs.settled.until is None else []
    for event in events:
        _lower_event(event, contents, inputs, report)
    return tuple(contents)


def _opening(inputs: CompileInput, report: Report) -> Contents:
    opening = opening_content(inputs)
    if opening is None:
        return ()
    parts = [p for p in opening.parts if is_sent(p.part, opening.role, p.seq, inputs, report)]
    return (replace(opening, parts=tuple(parts)),) if parts else ()


def _lower_event(
    event: Event, contents: list[Content], inputs: CompileInput, report: Report
) -> None:
    """Add what the event says, if anything of it is sent."""
    segment = event.segment
    pinned = inputs.index.pinned
    if pinned and segment is Segment.HISTORY and contains(pinned, event.seq):
        segment = Segment.PINS
    rule = inputs.rule
    role: Role = "model" if event.has_model_role else "user"
    placed: list[PlacedPart] = []
    for part, tokens in zip(event.parts, event.part_tokens, strict=True):
        if is_sent(part, role, event.seq, inputs, report):
            in_model = tokens if rule is None else counted(part, tokens, rule)
            placed.append(PlacedPart(part, event.seq, segment, tokens=in_model))
    if placed:
        contents.append(_content(role, tuple(placed), event))


def _content(role: Role, parts: tuple[PlacedPart, ...], event: Event) -> Content:
    if role == "user":
        return Content(role, parts)
    response_seq = event.place.response_seq if event.place else None
    return Content(role, parts, response_seq, compiled_fingerprint=event.compiled_fingerprint)
