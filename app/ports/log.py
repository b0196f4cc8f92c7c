"""The event log, and what is read from it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeAlias
from uuid import UUID

from msgspec import Struct

from app.core.calibration import Learnt
from app.core.canonical import Json
from app.core.compaction.due import Counters
from app.core.compile.explicit_cache import CacheRecord
from app.core.compile.trace import EventTrace
from app.core.events import Event, Marker
from app.core.index import Index
from app.core.invocations import InvocationFacts, Newest
from app.core.lanes import ANYONE, Lane, Reader
from app.core.ranges import Ranges
from app.core.resolve import CallFacts, Facts, LaneFacts, Needs
from app.ports.base import Connection, SessionKey

EventStatus: TypeAlias = Literal["live", "masked", "rewound", "marker"]


class LockedSession(Struct, frozen=True, kw_only=True):
    """What an append sees under the session row's lock."""

    incarnation: UUID
    app_name: str
    user_id: str
    head_seq: int
    index: Index
    policy: Json
    #: Seq of the newest rewind, 0 without one.
    last_rewind_seq: int = 0
    #: The invocation that began last, and whether it is complete.
    invocation_id: str = ""
    is_invocation_complete: bool = False


class NewEvent(Struct, frozen=True, kw_only=True):
    """An event ready to be inserted."""

    #: Resolved: it has its seq, lane, owners, place and marker.
    event: Event
    #: The JSON text as it was sent (of the item, for imported ones).
    raw: str
    #: ``native`` (ADK's shape in either case) or the format of ``items[]``.
    source_format: str
    #: Number of the event among those of its item, from 0.
    item_part: int
    #: SHA-256 of the body after key-case normalisation, without what the server added.
    body_hash: bytes
    state_delta: Mapping[str, Json]

    @property
    def size_bytes(self) -> int:
        """Bytes of the body as it was sent."""
        return len(self.raw) if self.raw.isascii() else len(self.raw.encode())


class LoggedEvent(Struct, frozen=True, kw_only=True):
    """An event as it was stored, for reading back."""

    seq: int
    id: str
    author: str
    branch: str
    invocation_id: str
    timestamp: float
    kind: str
    raw: str
    source_format: str
    item_part: int
    tokens: int
    marker: Marker | None
    created_at: datetime


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events of a session to list. Bounds on seq are exclusive, ``after_time`` is not."""

    #: Only these seqs.
    seqs: Ranges | None = None
    after_seq: int | None = None
    before_seq: int | None = None
    after_time: float | None = None
    #: The newest so many, in log order.
    last: int | None = None
    author: str | None = None
    branch: str | None = None
    invocation_id: str | None = None
    kind: str | None = None
    status: EventStatus | None = None
    reader: Reader | None = None
    limit: int = 100
    descending: bool = False


class LogRead(Struct, frozen=True, kw_only=True):
    """What one compile reads: of one moment."""

    key: SessionKey
    incarnation: UUID
    app_name: str
    user_id: str
    head_seq: int
    #: The index up to the position that was read.
    index: Index
    #: By seq: the live events that the reader sees, the active folds, and the masked owners and
    #: sibling answers that live responses need.
    events: tuple[Event, ...]
    #: Session, ``app:`` and ``user:`` keys merged, with prefixes.
    state: Mapping[str, Json]
    #: Canonical JSON of the arguments of the call that opened the reader's isolation scope.
    opening_args: str | None
    #: Equal digests are equal indexes.
    index_digest: str = ""
    #: Only what follows a position was read: of what is before, an earlier read told.
    is_rest: bool = False
    #: The newest reply of the reader, if it was folded or rewound away. Of an earlier position only
    #: where nothing newer has come.
    gone_reply: Event | None = None
    #: What stands beside the log and was read in the same statement; None: it was not.
    beside: "ReadBeside | None" = None


class ReadBefore(Struct, frozen=True, kw_only=True):
    """What an earlier read told of a log; the live events up to a position need no second one."""

    incarnation: UUID
    index: Index
    index_digest: str
    #: No event after this is known.
    after_seq: int


class CompactionStanding(Struct, frozen=True, kw_only=True):
    """What decides, beside the log, whether a session is to be compacted."""

    incarnation: UUID
    #: The session's own and its app's; the first that says something of compaction counts.
    policy: Json
    app_policy: Json
    counters: Counters


class ReadBeside(Struct, frozen=True, kw_only=True):
    """What a compile needs besides the log."""

    #: Of the model that was asked about; None: nothing is.
    learnt: Learnt | None
    #: None: the session is of before it was counted.
    standing: CompactionStanding | None


class LogHead(Struct, frozen=True, kw_only=True):
    """Where a log stands, as far as events that look no further back have to know.

    Read, or worked out, without a lock. :meth:`EventLog.append_at` compares all of it that can
    change under the lock, so it may be older than that without harm.
    """

    head_seq: int
    index: Index
    last_rewind_seq: int
    #: Those that stand on the lines upward of ``standings``.
    lanes: Mapping[Lane, LaneFacts]
    lane_count: int
    #: ``(isolation_scope, branch)`` of events that can be resolved with these lanes.
    standings: frozenset[tuple[str | None, str]]
    #: The invocation that began last, and what the log says of it; None: none began.
    newest: Newest
    begun: InvocationFacts | None
    #: ``(seq, part_index)`` of its calls that nothing answers.
    open_calls: frozenset[tuple[int, int]]
    #: The newest calls that nothing answers: all from after some seq, whatever their invocation.
    waiting: tuple[CallFacts, ...] = ()
    #: With the incarnation.
    standing: CompactionStanding
    #: Of the session and of its app, as they are stored.
    policy_text: str | None
    app_policy_text: str | None


class EventLog(Protocol):
    """The append-only log of a session."""

    async def lock_session(self, connection: Connection, key: SessionKey) -> LockedSession | None:
        """Lock the session row until the transaction ends; None if there is no such session."""

    async def find_session(self, connection: Connection, key: SessionKey) -> LockedSession | None:
        """Return what a lock would show, without locking; None if there is no such session."""

    async def has_only_folds_after(self, connection: Connection, key: SessionKey, seq: int) -> bool:
        """Tell whether nothing but folds and their activations stands after a seq."""

    async def load_facts(
        self,
        connection: Connection,
        key: SessionKey,
        session: LockedSession | LogHead,
        needs: Needs,
    ) -> Facts:
        """Load what the resolver must know. Loads no more than the needs name.

        Without a lock what is loaded stands as long as the head does.
        """

    async def refresh_facts(
        self, connection: Connection, key: SessionKey, session: LockedSession, facts: Facts
    ) -> None:
        """Bring facts of a batch with a fold, loaded before the lock, up to the locked head.

        Takes as long as what was appended since, however long the history is.
        """

    async def find_events(
        self, connection: Connection, key: SessionKey, ids: Sequence[str]
    ) -> Mapping[str, tuple[int, bytes, int]]:
        """Return ``(seq, body_hash, tokens)`` of those ids that exist."""

    async def append(
        self, connection: Connection, key: SessionKey, rows: Sequence[NewEvent], facts: Facts
    ) -> None:
        """Insert the events, their calls, answers and lanes, and move the head.

        ``facts`` are the facts after the batch: the index is written only if the batch holds a
        marker. The caller holds the session's lock.
        """

    async def read_head(
        self,
        connection: Connection,
        key: SessionKey,
        standings: Collection[tuple[str | None, str]],
    ) -> LogHead | None:
        """Read where a log stands, in one statement and without a lock.

        Returns:
            None if there is no such session, or one of before it was counted.
        """

    async def append_at(
        self,
        connection: Connection,
        key: SessionKey,
        rows: Sequence[NewEvent],
        facts: Facts,
        *,
        head: LogHead,
        then: LogHead,
        ids: Sequence[str],
    ) -> bool:
        """Lock, compare, insert and move the head in one statement, a transaction of its own.

        Args:
            connection: on which every statement stands for itself.
            key: the session's.
            rows: ordinary events, resolved at ``head``.
            facts: after the batch.
            head: what is compared under the lock.
            then: as the session is to stand afterwards.
            ids: of the batch that no event of the log may have.

        Returns:
            Whether the log still stood there, and had none of the ids nor an event of the
            invocations that begin here. If not, nothing was done.
        """

    async def read_live(
        self,
        connection: Connection,
        key: SessionKey,
        reader: Reader,
        *,
        model: str = "",
        before: ReadBefore | None = None,
    ) -> LogRead | None:
        """Read what the reader sees now, in one statement; None if there is no such session.

        Args:
            connection: any.
            key: the session's.
            reader: whose lanes.
            model: what is known of it is read beside.
            before: what is known of the log already: if its index is still the one, only the live
                events after it are read.
        """

    async def read_at(
        self, connection: Connection, key: SessionKey, reader: Reader, as_of_seq: int
    ) -> LogRead | None:
        """Read what the reader saw when the head was at ``as_of_seq``. At most a few statements."""

    async def read_all(
        self,
        connection: Connection,
        key: SessionKey,
        as_of_seq: int | None = None,
        *,
        reader: Reader = ANYONE,
    ) -> LogRead | None:
        """Read every event up to a position: what expanding and the tests compare with.

        The reader is only asked for the arguments that opened its scope.
        """

    async def read_unread(
        self,
        connection: Connection,
        key: SessionKey,
        reader: Reader,
        read: LogRead,
        *,
        up_to_seq: int,
    ) -> Sequence[EventTrace]:
        """Return what became of the events up to a seq that a read left out, and of all markers,
        without reading them: neighbours that are gone alike in one row, in any order."""

    async def heads(
        self, connection: Connection, uids: Sequence[UUID]
    ) -> Mapping[UUID, tuple[UUID, int]]:
        """Return the incarnation and the head of those sessions that exist, in one statement."""

    async def list_events(
        self, connection: Connection, key: SessionKey, wanted: EventFilter, index: Index
    ) -> Sequence[LoggedEvent]:
        """Return events that match, ``limit`` at most, ordered by seq."""

    async def get_event(
        self, connection: Connection, key: SessionKey, seq_or_id: int | str
    ) -> LoggedEvent | None:
        """Return one event, however it is read now."""

    async def count_tokens(self, connection: Connection, key: SessionKey, ranges: Ranges) -> int:
        """Return the tokens of the events at these seqs, however they are read now."""

    async def markers(
        self,
        connection: Connection,
        key: SessionKey,
        up_to_seq: int | None = None,
        *,
        after_seq: int = 0,
    ) -> Sequence[tuple[int, Marker]]:
        """Return the markers up to a seq and after another with their seqs, oldest first."""

    async def cache_records(
        self, connection: Connection, key: SessionKey, reader: Reader, up_to_seq: int
    ) -> Sequence[CacheRecord]:
        """Return the newest records of explicit caches in the reader's own lane up to a seq, newest
        first."""

    async def event_seqs(
        self, connection: Connection, key: SessionKey, invocation_id: str
    ) -> Sequence[int]:
        """Return the seqs of an invocation's events, in order."""
