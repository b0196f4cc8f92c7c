"""Follow a session's log: every event once and in order, from any position on.

The log is the source. A process looks where the heads of the followed sessions are, once for all of
its followers: soon after a hint, and from time to time without one, since hints may be lost. A
follower then reads on from its own position, so that nothing is lost or repeated whatever happened
to hints, replicas or the connection; followers of one session with the same view share what was
read last. Nobody holds a connection to the database while nothing happens, and nobody is read ahead
for: what a slow client has not taken is in the log.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from app.core.errors import (
    InvalidInputError,
    SessionNotFoundError,
    StorageError,
    StreamLimitError,
)
from app.core.lanes import Reader
from app.observability.failures import step_failed
from app.ports import Database, EventFilter, EventLog, Hints, SessionKey
from app.services.read_events import EventPage, EventView, ReadEvents

#: How often heads are looked at where no hint of other processes arrives, and where they do.
POLL_S: Final = 0.25
HINTED_POLL_S: Final = 1.0
#: A page holds about so many bytes and so many events at most; the first is small, in case the
#: events are large.
PAGE_BYTES: Final = 512 * 1024
MAX_PAGE_EVENTS: Final = 100
FIRST_PAGE_EVENTS: Final = 8
#: What the followers of one view share.
SHARED_BYTES: Final = 256 * 1024
#: How long a follower waits after the database did not answer.
UNAVAILABLE_PAUSE_S: Final = 1.0

DRAINING: Final = "draining"
ERASED: Final = "erased"

log = structlog.get_logger(__name__)


class StreamEndedError(Exception):
    """The stream is over; the text is the reason."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Streams at a time in one process."""

    max_streams: int
    tenant_streams: int


class _Feed:
    """One session as one reader sees it, for all who follow it in this process."""

    def __init__(
        self, key: SessionKey, reader: Reader | None, incarnation: UUID, head_seq: int
    ) -> None:
        self.key = key
        self.reader = reader
        self.incarnation = incarnation
        self.head_seq = head_seq
        self.followers = 0
        self.ended: str | None = None
        self.changed = asyncio.Event()
        self.reading = asyncio.Lock()
        # What was read last: every event that the reader sees after `shared_from`, up to `read_to`.
        self.shared: deque[EventView] = deque()
        self.shared_bytes = 0
        self.shared_from = self.read_to = head_seq
        self.page_events = FIRST_PAGE_EVENTS

    def notify(self) -> None:
        """Wake all who wait."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def end(self, reason: str) -> None:
        """End the stream of all who follow."""
        self.ended = self.ended or reason
        self.notify()

    def skip_to(self, position: int) -> None:
        """Go on from where a follower is who came later: nobody needs what was shared before."""
        if position > self.read_to:
            self.shared.clear()
            self.shared_bytes = 0
            self.shared_from = self.read_to = position

    def keep(self, views: Sequence[EventView], read_to: int) -> None:
        """Keep what was read at the end, for the others."""
        self.read_to = read_to
        for view in views:
            self.shared.append(view)
            self.shared_bytes += len(view.body)
        while self.shared_bytes > SHARED_BYTES:
            dropped = self.shared.popleft()
            self.shared_bytes -= len(dropped.body)
            self.shared_from = dropped.logged.seq


class Follower:
    """One who follows a session. To be closed."""

    def __init__(self, streams: "StreamEvents", feed: _Feed, position: int) -> None:
        self._streams = streams
        self._feed = feed
        #: Everything up to here was given.
        self.position = position
        self._is_open = True

    @property
    def head_seq(self) -> int:
        """Where the head is, as far as it is known."""
        return self._feed.head_seq

    async def ended(self) -> None:
        """Wait until the stream is over."""
        while self._feed.ended is None:
            await self._feed.changed.wait()

    async def next(self, timeout_s: float) -> Sequence[EventView]:
        """Return what comes next, in order; nothing when nothing came in time.

        Raises:
            StreamEndedError: the session was erased, or the process is about to stop.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            if self._feed.ended is not None:
                raise StreamEndedError(self._feed.ended)
            changed = self._feed.changed
            if self.position < self._feed.head_seq:
                views = await self._read()
                if views or time.monotonic() >= until_s:
                    return views
                continue
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return ()
            try:
                async with asyncio.timeout(left_s):
                    await changed.wait()
            except TimeoutError:
                return ()

    async def _read(self) -> Sequence[EventView]:
        try:
            views, self.position = await self._streams.read_after(self._feed, self.position)
        except SessionNotFoundError:
            self._feed.end(ERASED)
            return ()
        except StorageError as error:
            step_failed(log, "stream_not_read", error)
            await asyncio.sleep(UNAVAILABLE_PAUSE_S)
            return ()
        return views

    def close(self) -> None:
        """Follow no longer."""
        if self._is_open:
            self._is_open = False
            self._streams.leave(self._feed)


class StreamEvents:
    """The streams of this process."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        read_events: ReadEvents,
        hints: Hints,
        limits: StreamLimits,
    ) -> None:
        self._database = database
        self._log = log
        self._read_events = read_events
        self._hints = hints
        self._limits = limits
        self._feeds: dict[tuple[UUID, Reader | None], _Feed] = {}
        self._by_tenant: Counter[str] = Counter()
        #: Sessions of which a hint came; None: any.
        self._hinted: set[UUID | None] = set()
        self._woken = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        #: Tells that the process is about to stop; set by whoever knows.
        self.is_draining: Callable[[], bool] = lambda: False
        hints.listen(self._hear)

    @property
    def count(self) -> int:
        """Streams that are open."""
        return self._by_tenant.total()

    async def open(
        self, key: SessionKey, *, reader: Reader | None, after_seq: int | None, pointer: str = ""
    ) -> Follower:
        """Follow a session from after a position; without one, from its head on.

        Args:
            key: the session's.
            reader: whose view; None: an operator's.
            after_seq: the position.
            pointer: where the position stands in the request.

        Raises:
            SessionNotFoundError: there is no such session.
            InvalidInputError: the position is beyond the head.
            StreamLimitError: too many follow already.
        """
        async with self._database.connection() as connection:
            session = await self._log.find_session(connection, key)
        if session is None:
            raise SessionNotFoundError
        if after_seq is not None and after_seq > session.head_seq:
            raise InvalidInputError(f"the head is at {session.head_seq}", pointer=pointer)
        # Nothing is waited for from here on: what is counted is what is entered.
        self._check_limits(key.tenant_id)
        feed = self._feeds.get((key.uid, reader))
        if feed is None or feed.ended is not None or feed.incarnation != session.incarnation:
            feed = _Feed(key, reader, session.incarnation, session.head_seq)
            self._feeds[key.uid, reader] = feed
        feed.head_seq = max(feed.head_seq, session.head_seq)
        feed.followers += 1
        self._by_tenant[key.tenant_id] += 1
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watching())
        return Follower(self, feed, session.head_seq if after_seq is None else after_seq)

    def _check_limits(self, tenant_id: str) -> None:
        limits = self._limits
        if self.count >= limits.max_streams:
            raise StreamLimitError(limit_name="max_streams", limit=limits.max_streams)
        if self._by_tenant[tenant_id] >= limits.tenant_streams:
            raise StreamLimitError(limit_name="tenant_streams", limit=limits.tenant_streams)

    def leave(self, feed: _Feed) -> None:
        """Let a follower go; with the last one the feed goes too."""
        feed.followers -= 1
        self._by_tenant[feed.key.tenant_id] -= 1
        self._by_tenant += Counter()  # drops tenants without a stream
        if feed.followers == 0 and self._feeds.get((feed.key.uid, feed.reader)) is feed:
            del self._feeds[feed.key.uid, feed.reader]
            self._woken.set()

    async def close(self) -> None:
        """End every stream, and what watches for them."""
        for feed in list(self._feeds.values()):
            feed.end(DRAINING)
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    # Reading

    async def read_after(self, feed: _Feed, position: int) -> tuple[Sequence[EventView], int]:
        """Return what the feed's reader sees next after a position, and the position after it."""
        if position < feed.read_to:
            if position >= feed.shared_from:
                return [v for v in feed.shared if v.logged.seq > position], feed.read_to
            # Far behind: what it reads is of use to nobody else.
            return await self._page(feed, position)
        async with feed.reading:
            if position < feed.read_to:
                # Another read it while we waited for our turn.
                return await self.read_after(feed, position)
            feed.skip_to(position)
            views, read_to = await self._page(feed, position)
            feed.keep(views, read_to)
            return views, read_to

    async def _page(self, feed: _Feed, position: int) -> tuple[Sequence[EventView], int]:
        wanted = EventFilter(after_seq=position, reader=feed.reader, limit=feed.page_events)
        page: EventPage = await self._read_events.page(feed.key, wanted)
        if page.incarnation != feed.incarnation:
            raise SessionNotFoundError
        feed.head_seq = max(feed.head_seq, page.head_seq)
        if page.events:
            each_bytes = sum(len(view.body) for view in page.events) // len(page.events)
            feed.page_events = max(1, min(MAX_PAGE_EVENTS, PAGE_BYTES // max(1, each_bytes)))
        last_seq = page.last_seq or position
        return page.events, last_seq if page.has_more else max(last_seq, page.head_seq)

    # Watching

    def _hear(self, topic: str | None) -> None:
        if not self._feeds:
            return
        uid: UUID | None = None
        if topic is not None:
            try:
                uid = UUID(hex=topic)
            except ValueError:
                # A hint of something else.
                return
        self._hinted.add(uid)
        self._woken.set()

    async def _watching(self) -> None:
        """Look where the heads are, while anyone follows."""
        while self._feeds:
            poll_s = HINTED_POLL_S if self._hints.is_connected else POLL_S
            try:
                async with asyncio.timeout(poll_s):
                    await self._woken.wait()
            except TimeoutError:
                self._hinted.add(None)
            self._woken.clear()
            if self.is_draining():
                for feed in list(self._feeds.values()):
                    feed.end(DRAINING)
            hinted, self._hinted = self._hinted, set()
            followed = {uid for uid, _ in self._feeds}
            uids = followed if None in hinted else followed & hinted
            if uids:
                await self._look(sorted(uid for uid in uids if uid is not None))

    async def _look(self, uids: Sequence[UUID]) -> None:
        try:
            async with self._database.connection() as connection:
                heads = await self._log.heads(connection, uids)
        except StorageError as error:
            step_failed(log, "heads_not_read", error)
            return
        for (uid, _), feed in list(self._feeds.items()):
            if uid not in uids:
                continue
            incarnation, head_seq = heads.get(uid, (None, 0))
            if incarnation != feed.incarnation:
                feed.end(ERASED)
            elif head_seq > feed.head_seq:
                feed.head_seq = head_seq
                feed.notify()
            elif feed.read_to < feed.head_seq:
                feed.notify()
