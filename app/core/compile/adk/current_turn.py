"""The current turn alone: what ``include_contents: none`` shows (``spec/ADK.md`` B.10).

    1 u | 2 m | 3 u | 4 call(c1) | 5 result(c1)      visible events, oldest first
                3 u | 4 call(c1) | 5 result(c1)      the current turn

A turn starts with what the user or another agent said last. A handover to the reader starts none,
and neither does a result that the user posts for an earlier call: the turn then reaches back to
before that call. The start is sought among live events, so that a fold can hide a turn but never
change where it starts; nothing from before it is shown, summaries included.
"""

from collections.abc import Container, Iterator

from app.core.compile.adk.foreign import is_foreign_event
from app.core.compile.inputs import CompileInput
from app.core.copying import replace
from app.core.events import USER, Event, Events, Fold
from app.core.index import Index
from app.core.lanes import Reader
from app.core.ranges import FOREVER

_TRANSFER_CALL = "transfer_to_agent"


def current_turn(seen: Events, visible: Events, inputs: CompileInput) -> Events:
    """Return the visible events from the start of the current turn on; none without a start.

    Args:
        seen: what stands in lanes that the reader sees, its calls to the client and empty events
            included: a result that the user posts may answer one of these.
        visible: the events among them that the reader reads.
        inputs: for whom.
    """
    start = _start(seen, {event.seq for event in visible}, inputs)
    if start is None:
        return ()
    position = next(at for at, event in enumerate(visible) if event.seq == start.seq)
    return tuple(_from(start.seq, visible[position:], inputs.index))


def _start(seen: Events, visible_seqs: Container[int], inputs: CompileInput) -> Event | None:
    """Return the event that starts the turn."""
    reader, index = inputs.options.reader, inputs.index
    live = {event.seq: at for at, event in enumerate(seen) if index.is_live(event.seq)}
    # The start may stand no later than the call of any posted result that was passed: by position
    # where the call is live, by seq where it is masked and perhaps was not even read.
    last_position, last_seq = len(seen), FOREVER
    for at in range(len(seen) - 1, -1, -1):
        event = seen[at]
        if event.seq not in live or event.marker is not None:
            continue
        if _is_posted_result(event):
            for owner in event.owners:
                if owner is None or not reader.sees(owner.lane):
                    continue
                if owner.seq in live:
                    last_position = min(last_position, live[owner.seq])
                elif index.fold_of(owner.seq) is not None:
                    last_seq = min(last_seq, owner.seq)
        elif (
            at <= last_position
            and event.seq <= last_seq
            and event.seq in visible_seqs
            and _may_start(event, reader)
        ):
            return event
    return None


def _is_posted_result(event: Event) -> bool:
    return event.author == USER and bool(event.responses)


def _may_start(event: Event, reader: Reader) -> bool:
    if event.author != USER and not is_foreign_event(event, reader):
        return False
    return not (event.is_transfer or any(call.name == _TRANSFER_CALL for call in event.calls))


def _from(start_seq: int, events: Events, index: Index) -> Iterator[Event]:
    """Yield the events, folds only with the sections that stand after the start."""
    for event in events:
        if not isinstance(event.marker, Fold):
            yield event
            continue
        shown = {
            section.section_index
            for section in index.sections
            if section.fold_seq == event.seq and section.at_seq > start_seq
        }
        if shown:
            yield replace(event, marker=_only_sections(event.marker, shown))


def _only_sections(fold: Fold, shown: set[int]) -> Fold:
    """Return the fold with its other sections emptied: the index knows sections by their number."""
    return replace(
        fold,
        sections=tuple(
            section if number in shown else replace(section, parts=())
            for number, section in enumerate(fold.sections)
        ),
    )
