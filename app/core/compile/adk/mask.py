"""Summaries in place of what they cover, as google-adk reads them (``spec/ADK.md`` B.4, B.5).

    1 u | 2 call(c1) | 3 result(c1) | 4 fold(1-3, "s") | 5 result(c1)      events, oldest first
    s   | 2 call(c1) | 5 result(c1)                                        after

What belongs to which fold is the index's word, as under ``stable``. Here the summary is the model's
own, it stands at the end of the times that it covers, and as soon as there is one everything is
read by time. A call that was masked comes back whole in front of the first live result that answers
it, with the newest masked result of each sibling call that has no live one.
"""

from itertools import repeat

from app.core.compile.inputs import CompileInput
from app.core.contents import Segment
from app.core.copying import replace
from app.core.events import Event, Events, Fold, Section

#: ``(time, seq)``
_Time = tuple[float, int]


def mask(events: Events, inputs: CompileInput) -> Events:
    """Return the live events with the summaries that the reader may see, by time."""
    live = [event for event in events if event.marker is None and inputs.index.is_live(event.seq)]
    summaries = _summaries(events, inputs)
    if not summaries:
        return tuple(live)
    placed = [*summaries, *(((event.timestamp, event.seq), event) for event in live)]
    placed.sort(key=lambda pair: pair[0])
    masked = [event for event in events if not inputs.index.is_live(event.seq)]
    return _with_masked_calls([event for _, event in placed], masked)


def _summaries(events: Events, inputs: CompileInput) -> list[tuple[_Time, Event]]:
    folds = {event.seq: (event, event.marker) for event in events if isinstance(event.marker, Fold)}
    summaries: list[tuple[_Time, Event]] = []
    for shown in inputs.index.sections:
        if shown.fold_seq not in folds or not inputs.options.reader.sees(shown.lane):
            continue
        event, fold = folds[shown.fold_seq]
        section = fold.sections[shown.section_index]
        if section.parts:
            at = event.timestamp if fold.end_timestamp is None else fold.end_timestamp
            # A fold of ours stands where its last event stood, whatever shares its second.
            position = event.seq if fold.start_timestamp is not None else shown.belongs[-1][1]
            summaries.append(((at, position), _summary(event, fold, section, inputs)))
    return summaries


def _summary(event: Event, fold: Fold, section: Section, inputs: CompileInput) -> Event:
    # Only a compaction that came in ADK's shape has a start time, and a role of its own.
    is_adk = fold.start_timestamp is not None
    return replace(
        event,
        author=inputs.options.reader.agent or "model",
        lane=section.lane,
        role=(section.role or "model") if is_adk else "model",
        parts=section.parts,
        part_tokens=(section.tokens, *repeat(0, len(section.parts) - 1)),
        marker=None,
        request=None,
        segment=Segment.SUMMARIES,
    )


#: A call by the seq of its event and its own id.
_CallKey = tuple[int, str]


def _with_masked_calls(live: list[Event], masked: list[Event]) -> Events:
    """Bring masked calls back in front of the first live result that answers them."""
    calls = {event.seq: event for event in masked if event.calls}
    answered = {key for event in live for key in _answers(event)}
    newest: dict[_CallKey, Event] = {}
    for event in masked:
        for key in _answers(event):
            if key not in newest or newest[key].timestamp <= event.timestamp:
                newest[key] = event
    result: list[Event] = []
    brought: set[int] = set()
    for event in live:
        for call_seq, _ in _answers(event):
            if call_seq not in calls or call_seq in brought:
                continue
            result.append(calls[call_seq])
            brought.add(call_seq)
            for call in calls[call_seq].calls:
                sibling = newest.get((call_seq, call.id)) if call.id else None
                if (
                    sibling is not None
                    and (call_seq, call.id) not in answered
                    and sibling.seq not in brought
                ):
                    result.append(sibling)
                    brought.add(sibling.seq)
        result.append(event)
    return tuple(result)


def _answers(event: Event) -> list[_CallKey]:
    """Return the calls that the event's results answer; a result without an id brings none back."""
    return [
        (owner.seq, part.id)
        for part, owner in zip(event.responses, event.owners, strict=False)
        if part.id and owner is not None
    ]
