"""Lower events to contents: the step between the two kinds of pass.

One content per event, or several where an event mixes roles: calls are the model's, results the
user's, whatever role the event was given. What the format has no place for is left out and
reported; under ``stable`` so is text that the provider would refuse as blank.
"""

from app.core.compile.adk.opening import opening_content
from app.core.compile.fitting import is_sent
from app.core.compile.inputs import CompileInput, Report
from app.core.contents import (
    Content,
    Contents,
    FunctionCall,
    FunctionResponse,
    Part,
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
    """Add what the event says: a content for each run of parts of one role."""
    segment = event.segment
    pinned = inputs.index.pinned
    if pinned and segment is Segment.HISTORY and contains(pinned, event.seq):
        segment = Segment.PINS
    rule = inputs.rule
    # google-adk sends each event as one content, in the event's role.
    own_role: Role = "model" if event.has_model_role else "user"
    is_adk = inputs.options.preset == "adk"
    run_role: Role = own_role
    run: list[PlacedPart] = []
    for part, tokens in zip(event.parts, event.part_tokens, strict=True):
        role = own_role if is_adk else _role(part, own_role)
        if not is_sent(part, role, event.seq, inputs, report):
            continue
        if role != run_role:
            if run:
                contents.append(_content(run_role, tuple(run), event))
                run = []
            run_role = role
        in_model = tokens if rule is None else counted(part, tokens, rule)
        run.append(PlacedPart(part, event.seq, segment, tokens=in_model))
    if run:
        contents.append(_content(run_role, tuple(run), event))


def _content(role: Role, parts: tuple[PlacedPart, ...], event: Event) -> Content:
    if role == "user":
        return Content(role, parts)
    response_seq = event.place.response_seq if event.place else None
    return Content(role, parts, response_seq, compiled_fingerprint=event.compiled_fingerprint)


def _role(part: Part, own_role: Role) -> Role:
    if isinstance(part, FunctionCall):
        return "model"
    return "user" if isinstance(part, FunctionResponse) else own_role
