"""Which events are another agent's, for the reader."""

from app.core.compile.order import is_foreign
from app.core.contents import Segment
from app.core.events import USER, Event
from app.core.lanes import Reader


def is_foreign_event(event: Event, reader: Reader) -> bool:
    """Tell whether the reader is told of this event instead of reading it as its own.

    In a live session the agent's own events are told too: the provider takes everything after a
    function response for the model's turn, so a model that is handed its own earlier turn would not
    answer. A summary is never told: it speaks to the reader already.
    """
    if event.segment is Segment.SUMMARIES:
        return False
    if event.is_live_session:
        return bool(reader.agent) and event.author != USER
    return is_foreign(event.author, reader)
