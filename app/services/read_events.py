"""Read the log back: every event as it was sent, with what has become of it."""

from dataclasses import dataclass
from uuid import UUID

from app.core.canonical import canonical_json
from app.core.copying import replace
from app.core.errors import EventNotFoundError, InvalidInputError, SessionNotFoundError
from app.core.events import Fold
from app.core.index import Index, resolve
from app.core.json_text import parse_json
from app.core.lanes import Reader
from app.core.ranges import contains
from app.ports import (
    Connection,
    Database,
    EventFilter,
    EventLog,
    EventStatus,
    LockedSession,
    LoggedEvent,
    SessionKey,
)
from app.services.prepare_events import NATIVE, EventPreparer


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """An event with its status."""

    logged: LoggedEvent
    #: The native body as JSON text; for native events exactly as it was sent.
    body: str
    status: EventStatus
    #: The fold that it belongs to.
    masked_by: int | None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events in the order that was asked for."""

    events: tuple[EventView, ...]
    #: Seq of the last event that was looked at.
    last_seq: int | None
    has_more: bool
    head_seq: int
    #: Of the session that was read.
    incarnation: UUID


class ReadEvents:
    """Lists events and finds single ones."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        preparer: EventPreparer,
    ) -> None:
        self._database = database
        self._log = log
        self._preparer = preparer

    async def page(
        self, key: SessionKey, wanted: EventFilter, *, as_of_seq: int | None = None
    ) -> EventPage:
        """Return a page of events, with their status at a position (none: now).

        Raises:
            SessionNotFoundError: there is no such session.
            InvalidInputError: the position is beyond the head.
        """
        async with self._database.connection() as connection:
            session = await self._session(connection, key)
            index = await self._index(connection, key, session, as_of_seq)
            if as_of_seq is not None:
                before_seq = min(wanted.before_seq or as_of_seq + 1, as_of_seq + 1)
                wanted = replace(wanted, before_seq=before_seq)
            found = list(
                await self._log.list_events(
                    connection, key, replace(wanted, limit=wanted.limit + 1), index
                )
            )
        # The newest of all end the log: what was cut off stands before them.
        has_more = len(found) > wanted.limit
        kept = found[-wanted.limit :] if wanted.last is not None else found[: wanted.limit]
        return EventPage(
            tuple(self.view(event, index) for event in kept if _may_see(wanted.reader, event)),
            kept[-1].seq if kept else None,
            has_more,
            session.head_seq,
            session.incarnation,
        )

    async def one(
        self, key: SessionKey, seq_or_id: int | str, *, reader: Reader | None = None
    ) -> EventView:
        """Return one event, however it is read now.

        Raises:
            EventNotFoundError: there is none, or the reader may not see it.
        """
        async with self._database.connection() as connection:
            session = await self._session(connection, key)
            event = await self._find(connection, key, seq_or_id)
            if event is not None and reader is not None:
                seen = await self._log.list_events(
                    connection,
                    key,
                    EventFilter(
                        after_seq=event.seq - 1, before_seq=event.seq + 1, reader=reader, limit=1
                    ),
                    session.index,
                )
                event = event if seen and _may_see(reader, event) else None
        if event is None:
            raise EventNotFoundError
        return self.view(event, session.index)

    async def _find(
        self, connection: Connection, key: SessionKey, seq_or_id: int | str
    ) -> LoggedEvent | None:
        event = await self._log.get_event(connection, key, seq_or_id)
        if event is None and isinstance(seq_or_id, int):
            # An id of digits alone is an id all the same, where no seq is meant.
            event = await self._log.get_event(connection, key, str(seq_or_id))
        return event

    async def _session(self, connection: Connection, key: SessionKey) -> LockedSession:
        session = await self._log.find_session(connection, key)
        if session is None:
            raise SessionNotFoundError
        return session

    async def _index(
        self,
        connection: Connection,
        key: SessionKey,
        session: LockedSession,
        as_of_seq: int | None,
    ) -> Index:
        if as_of_seq is None:
            return session.index
        if as_of_seq > session.head_seq:
            raise InvalidInputError(
                f"the head is at {session.head_seq}", pointer="/query/as_of_seq"
            )
        return resolve(await self._log.markers(connection, key, as_of_seq))

    def view(self, event: LoggedEvent, index: Index) -> EventView:
        """Return a stored event with its status."""
        return EventView(
            logged=event,
            body=self._body(event),
            status=status_of(event, index),
            masked_by=None if event.marker is not None else index.fold_of(event.seq),
        )

    def _body(self, event: LoggedEvent) -> str:
        if event.source_format == NATIVE:
            return event.raw
        body = self._preparer.source_event(
            raw=parse_json(event.raw),
            source_format=event.source_format,
            item_part=event.item_part,
            author=event.author,
        )
        return canonical_json(body)


def status_of(event: LoggedEvent, index: Index) -> EventStatus:
    """Return what has become of an event."""
    if event.marker is not None:
        return "marker"
    if contains(index.rewound, event.seq):
        return "rewound"
    return "live" if index.is_live(event.seq) else "masked"


def _may_see(reader: Reader | None, event: LoggedEvent) -> bool:
    """Tell whether a reader may see the whole body: a fold tells of every lane that it covers."""
    if reader is None or not isinstance(event.marker, Fold):
        return True
    return all(reader.sees(section.lane) for section in event.marker.sections)
