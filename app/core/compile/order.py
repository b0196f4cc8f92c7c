"""Where an event is read: log order, except that a reply is read after what was compiled for it."""

from typing import TypeAlias

from app.core.events import Event
from app.core.index import Index
from app.core.lanes import Reader

ReadKey: TypeAlias = tuple[int, int, int]


def is_reply(event: Event, reader: Reader) -> bool:
    """Tell whether this is a model event by the reader's agent in the reader's own lane."""
    return (
        event.place is not None
        and reader.owns(event.lane)
        and reader.agent in ("", event.author)
        and not event.is_live_session
    )


def is_foreign(author: str, reader: Reader) -> bool:
    """Tell whether another agent is the author. Nothing is foreign to no one in particular."""
    return bool(reader.agent) and author not in (reader.agent, "user")


def read_key(event: Event, reader: Reader, index: Index) -> ReadKey:
    """Return the event's position: by seq, a reply directly after what it was compiled at.

    What is left of a response whose beginning is folded is read where it landed, after the summary.
    """
    place = event.place
    if place is None or not is_reply(event, reader):
        return (event.seq, 0, 0)
    if place.response_seq != event.seq and index.fold_of(place.response_seq) is not None:
        return (event.seq - 1, 1, event.seq)
    return (place.after_seq if reader.agent else place.after_any_seq, 1, event.seq)
