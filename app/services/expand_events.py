"""Expand: open summaries, or a span, down to the original events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.errors import EventNotFoundError, SessionNotFoundError
from app.core.events import Fold
from app.core.lanes import Reader
from app.core.ranges import FOREVER, Ranges, intersect, of_seqs, subtract, union
from app.ports import (
    Connection,
    Database,
    EventFilter,
    EventLog,
    LockedSession,
    LoggedEvent,
    Meter,
    SessionKey,
)
from app.services.read_events import EventView, ReadEvents
from app.services.recall_events import Recall, RecallEvents

#: Tokens of originals that are answered when the caller does not say.
DEFAULT_MAX_TOKENS: Final = 20_000
#: Events of one answer.
MAX_EVENTS: Final = 1_000
#: Events that are read at a time: most answers end by their tokens long before.
PAGE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """What to open."""

    key: SessionKey
    #: Folds, at any level; None: the span.
    summary_seqs: Sequence[int] | None = None
    #: Both included; with summaries, only what of them lies within.
    from_seq: int | None = None
    to_seq: int | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    #: Only events that hold these words.
    query: str | None = None
    #: Whose view; None: an operator's.
    reader: Reader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """Originals in log order."""

    events: tuple[EventView, ...]
    #: More are left than the answer may hold; they begin at ``next_seq``.
    is_truncated: bool
    next_seq: int | None
    head_seq: int


class ExpandEvents:
    """Reads originals. What a fold covers are originals, however many levels it stands above."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        read_events: ReadEvents,
        recall_events: RecallEvents,
        meter: Meter,
    ) -> None:
        self._database = database
        self._log = log
        self._read = read_events
        self._recall = recall_events
        self._meter = meter

    async def __call__(self, wanted: Expansion) -> Expanded:
        """Return originals, at least one if there is any.

        Raises:
            SessionNotFoundError: there is no such session.
            EventNotFoundError: a summary is none, or tells nothing that the reader may see.
        """
        async with self._database.snapshot() as connection:
            session = await self._log.find_session(connection, wanted.key)
            if session is None:
                raise SessionNotFoundError
            ranges = await self._ranges(connection, wanted, session)
            if wanted.query is not None:
                ranges = await self._matching(connection, wanted, ranges)
            events, next_seq = await self._fill(connection, wanted, session, ranges)
        found = "ok" if events else "empty"
        self._meter.recalled(
            "expand",
            found if next_seq is None else "partial",
            tokens=sum(event.tokens for event in events),
        )
        return Expanded(
            events=tuple(self._read.view(event, session.index) for event in events),
            is_truncated=next_seq is not None,
            next_seq=next_seq,
            head_seq=session.head_seq,
        )

    async def _ranges(
        self, connection: Connection, wanted: Expansion, session: LockedSession
    ) -> Ranges:
        first = wanted.from_seq or 1
        last = min(session.head_seq, FOREVER if wanted.to_seq is None else wanted.to_seq)
        span = union([(first, last)])
        if wanted.summary_seqs is None:
            # What was undone is only shown where a summary tells of it.
            return subtract(span, session.index.rewound)
        folds = dict(await self._log.markers(connection, wanted.key))
        covers: Ranges = ()
        for seq in wanted.summary_seqs:
            told = _covers(folds.get(seq), wanted.reader)
            if not told:
                raise EventNotFoundError(f"there is no compaction at seq {seq}")
            covers = union((*covers, *told))
        return intersect(covers, span)

    async def _matching(self, connection: Connection, wanted: Expansion, ranges: Ranges) -> Ranges:
        recall = Recall(
            key=wanted.key, query=wanted.query or "", limit=MAX_EVENTS, reader=wanted.reader
        )
        found = await self._recall.search(connection, recall, ranges)
        return of_seqs(hit.seq for hit in found.hits)

    async def _fill(
        self,
        connection: Connection,
        wanted: Expansion,
        session: LockedSession,
        ranges: Ranges,
    ) -> tuple[list[LoggedEvent], int | None]:
        """Return events up to the token limit, and where the rest begins."""
        events: list[LoggedEvent] = []
        tokens = 0
        after_seq, has_more = 0, True
        while has_more:
            seqs = subtract(ranges, ((1, after_seq),))
            wanted_page = EventFilter(seqs=seqs, reader=wanted.reader, limit=PAGE)
            page = await self._log.list_events(connection, wanted.key, wanted_page, session.index)
            for event in (event for event in page if event.marker is None):
                tokens += event.tokens
                if events and (tokens > wanted.max_tokens or len(events) == MAX_EVENTS):
                    return events, event.seq
                events.append(event)
            has_more = len(page) == PAGE
            after_seq = page[-1].seq if page else after_seq
        return events, None


def _covers(marker: object, reader: Reader | None) -> Ranges:
    """Return the originals that a fold stands for, in the lanes that the reader sees."""
    if not isinstance(marker, Fold):
        return ()
    return union(
        pair
        for section in marker.sections
        if reader is None or reader.sees(section.lane)
        for pair in section.covers
    )
