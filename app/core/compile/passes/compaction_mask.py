"""Replace masked ranges with their summaries.

    1 u | 2 m | 3 u | 4 m | 5 fold(1-2, "s") | 6 u      events, oldest first
    s   |           3 u | 4 m |              | 6 u      after the pass

What belongs to which fold is the index's word. Each section that the reader's lanes may see is read
where the first event that belongs to it stood, in role user. A masked call comes back, without the
rest of its event, when a live result answers it in time:

    1 u | 2 call(c1) | 3 m | 4 fold(1-3, "s") | 5 result(c1)
    s   |                                     | call(c1) | 5 result(c1)

Runs after ``visibility``, so that a hidden event takes no place, and before ``narration`` and
``tool_pairing``, which must see what is left. Under ``adk`` the rules are ADK's (``spec/ADK.md``
B.4, B.5).
"""

from app.core.compile.adk.mask import mask as adk_mask
from app.core.compile.inputs import CompileInput, Report
from app.core.compile.order import ReadKey, is_foreign, is_reply, read_key
from app.core.contents import Segment
from app.core.copying import replace
from app.core.events import Event, Events, Fold


def compaction_mask(events: Events, inputs: CompileInput, report: Report) -> Events:  # noqa: ARG001
    """Return the live events, with summaries in place of what is masked."""
    if not inputs.index.sections:
        return events
    if inputs.options.preset == "adk":
        return adk_mask(events, inputs)
    reader = inputs.options.reader
    live = [event for event in events if inputs.index.is_live(event.seq)]
    placed: list[tuple[ReadKey, Event]] = [
        (read_key(event, reader, inputs.index), event) for event in live
    ]
    placed += _summaries(events, inputs)
    placed.sort(key=lambda pair: pair[0])
    masked = {event.seq: event for event in events if not inputs.index.is_live(event.seq)}
    return _with_masked_calls([event for _, event in placed], masked, inputs)


def _summaries(events: Events, inputs: CompileInput) -> list[tuple[ReadKey, Event]]:
    """Return a summary event for each section that the reader may see, with its position."""
    options = inputs.options
    folds = {event.seq: event for event in events if isinstance(event.marker, Fold)}
    summaries: list[tuple[ReadKey, Event]] = []
    for shown in inputs.index.sections:
        if not options.reader.sees(shown.lane) or shown.fold_seq not in folds:
            continue
        event = folds[shown.fold_seq]
        assert isinstance(event.marker, Fold)
        section = event.marker.sections[shown.section_index]
        if not section.parts:
            # Emptied by `visibility`: it stands before the current turn, which is all that is read.
            continue
        summary = Event(
            seq=event.seq,
            id=event.id,
            author=options.reader.agent or "user",
            invocation_id=event.invocation_id,
            timestamp=event.timestamp,
            lane=shown.lane,
            role="user",
            parts=section.parts,
            part_tokens=_spread(section.tokens, len(section.parts)),
            segment=Segment.SUMMARIES,
        )
        summaries.append(((shown.at_seq, -1, shown.fold_seq), summary))
    return summaries


def _spread(tokens: int, count: int) -> tuple[int, ...]:
    """Return the tokens of a section as one figure a part: all on the first."""
    return (tokens,) + (0,) * (count - 1) if count else ()


def _with_masked_calls(
    events: list[Event], masked: dict[int, Event], inputs: CompileInput
) -> Events:
    """Bring a masked call back in front of the first live result that answers it in time."""
    reader = inputs.options.reader
    replies = [
        (read_key(event, reader, inputs.index), event.place.response_seq)
        for event in events
        if event.place is not None and is_reply(event, reader) and event.segment is Segment.HISTORY
    ]
    wanted: dict[int, list[int]] = {}
    first_result: dict[int, int] = {}
    for event in events:
        for owner in event.owners:
            if owner is None or owner.seq not in masked or is_foreign(owner.author, reader):
                continue
            if not _is_late(event, masked[owner.seq], replies, inputs):
                wanted.setdefault(owner.seq, []).append(owner.part_index)
                first_result.setdefault(owner.seq, event.seq)
    if not wanted:
        return tuple(events)
    restored: dict[int, list[Event]] = {}
    for call_seq, part_indexes in wanted.items():
        call_event = _only_parts(masked[call_seq], sorted(set(part_indexes)))
        restored.setdefault(first_result[call_seq], []).append(call_event)
    result: list[Event] = []
    for event in events:
        result.extend(sorted(restored.pop(event.seq, ()), key=lambda item: item.seq))
        result.append(event)
    return tuple(result)


def _is_late(
    event: Event, call_event: Event, replies: list[tuple[ReadKey, int]], inputs: CompileInput
) -> bool:
    """Tell whether a shown reply of another response stands between a masked call and its
    result."""
    response_seq = call_event.place.response_seq if call_event.place else call_event.seq
    reader, index = inputs.options.reader, inputs.index
    since, until = read_key(call_event, reader, index), read_key(event, reader, index)
    # The newest replies are the likeliest to stand in between, and most often the very newest does.
    for key, other_response_seq in reversed(replies):
        if key <= since:
            return False
        if key < until and other_response_seq != response_seq:
            return True
    return False


def _only_parts(event: Event, part_indexes: list[int]) -> Event:
    return replace(
        event,
        parts=tuple(event.parts[number] for number in part_indexes),
        part_tokens=tuple(event.part_tokens[number] for number in part_indexes),
        kept_parts=tuple(part_indexes),
    )
