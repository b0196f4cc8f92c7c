"""Drop the events that this reader may not see, and those with nothing to read.

    1 u | 2 m(branch=a) | 3 m(branch=b) | 4 m("")      events, oldest first
    1 u | 2 m(branch=a)                                after the pass, for a reader on branch a

Which lanes a reader sees is :meth:`app.core.lanes.Reader.sees`'s word: isolation scope exactly,
branch upward in whole segments, messages inside a tool call never, a message to one workflow node
only there. Within them an event is dropped when it is empty (no part that a model could read, and
no transcription) or belongs to the framework: one call or response of its own drops the whole event
(``spec/ADK.md`` B.2, B.3). With ``include_contents: none`` only the current turn is left.

Active folds pass: their sections are chosen by lane in ``compaction_mask``. Masked events are
judged like live ones, and nothing here depends on whether they were read.
"""

from typing import Final

from app.core.compile.adk.current_turn import current_turn
from app.core.compile.adk.foreign import is_foreign_event
from app.core.compile.inputs import CompileInput, CompileOptions, Report
from app.core.contents import TOOL_PARTS, Opaque, Part, Text
from app.core.events import Event, Events
from app.core.lanes import Lane

#: Calls between the framework and its client, which no model made.
FRAMEWORK_CALLS: Final = frozenset(
    {"adk_framework", "adk_request_credential", "adk_request_confirmation"}
)


def visibility(events: Events, inputs: CompileInput, report: Report) -> Events:  # noqa: ARG001
    """Return the events that the reader may see, in the order given, and the active folds."""
    options = inputs.options
    seen = _seen(events, options)
    visible = tuple(
        [event for event in seen if event.marker is not None or _is_read(event, options)]
    )
    return current_turn(seen, visible, inputs) if options.include_contents == "none" else visible


def _seen(events: Events, options: CompileOptions) -> Events:
    """Return the events that stand where the reader looks."""
    seen: list[Event] = []
    lane: Lane | None = None
    is_lane_seen = False
    for event in events:
        if event.marker is not None:
            seen.append(event)
            continue
        # Neighbours are nearly always of one lane.
        if event.lane is not lane:
            lane = event.lane
            is_lane_seen = options.reader.sees(lane)
        if is_lane_seen and (not options.single_turn or _is_of_node(event.node_path, options)):
            seen.append(event)
    return tuple(seen)


def _is_read(event: Event, options: CompileOptions) -> bool:
    """Tell whether there is something in the event for a model to read, and nothing of the
    framework's."""
    is_read = event.input_transcription is not None or event.output_transcription is not None
    if not is_read and not event.role:
        return False
    for part in event.parts:
        if isinstance(part, TOOL_PARTS):
            if part.name in FRAMEWORK_CALLS:
                return False
            is_read = True
        elif not is_read:
            is_read = _is_readable(part, event, options)
    return is_read


def _is_of_node(node_path: str, options: CompileOptions) -> bool:
    """Tell whether an event is of the reader's node, of one below or of no node.

    What happened in the nodes above belongs to the history, and is no part of the current turn.
    """
    own_path = options.reader.node_path
    if not own_path or not node_path:
        return True
    if f"{node_path}/".startswith(f"{own_path}/"):
        return True
    return options.include_contents != "none" and own_path.startswith(f"{node_path}/")


def _is_readable(part: Part, event: Event, options: CompileOptions) -> bool:
    """Tell whether a part that is neither call nor result is something to read."""
    if part.signature or isinstance(part, Opaque):
        return True
    if isinstance(part, Text) and not part.text:
        return False
    return not part.thought or (
        options.foreign_thoughts
        and options.include_contents != "none"
        and is_foreign_event(event, options.reader)
    )
