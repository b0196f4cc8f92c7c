"""Protocols that the services need, and the plain values that cross them.

A service opens a transaction, hands its connection to the store's methods, and commits by leaving
the block; the store never commits. ``Connection`` is opaque here: only the storage knows what it
is.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final, Literal, Protocol, TypeAlias
from uuid import UUID

from app.core.calibration import Learnt
from app.core.canonical import Json
from app.core.compaction.due import Counters
from app.core.compaction.facts import PlanFacts
from app.core.compaction.policy import CompactionPolicy
from app.core.compile.breaks import Break
from app.core.compile.explicit_cache import CacheRecord
from app.core.compile.inputs import CompileResult
from app.core.errors import FoldlineError
from app.core.events import Event, Marker
from app.core.index import Index
from app.core.invocations import InvocationFacts
from app.core.lanes import ANYONE, Lane, Reader
from app.core.limits import Quotas, RateLimit, Stored
from app.core.ranges import Ranges
from app.core.resolve import Facts, Needs
from app.core.usage import Usage

Connection: TypeAlias = Any

EventStatus: TypeAlias = Literal["live", "masked", "rewound", "marker"]
JobStatus: TypeAlias = Literal["ready", "running", "done", "failed", "dead", "cancelled"]


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session of a tenant. ``uid`` is uuid5(tenant, session id): computed, never looked up."""

    tenant_id: str
    session_id: str
    uid: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """What a session is created with."""

    app_name: str
    user_id: str
    #: Session-scoped keys only; ``app:`` and ``user:`` keys are split off before.
    state: Mapping[str, Json] = field(default_factory=dict)
    app_state: Mapping[str, Json] = field(default_factory=dict)
    user_state: Mapping[str, Json] = field(default_factory=dict)
    policy: Json = None
    metadata: Mapping[str, Json] = field(default_factory=dict)
    ttl_s: int | None = None
    forked_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session as it stands."""

    key: SessionKey
    incarnation: UUID
    app_name: str
    user_id: str
    head_seq: int
    #: Session-scoped keys, without ``app:`` and ``user:``.
    state: Mapping[str, Json]
    policy: Json
    metadata: Mapping[str, Json]
    ttl_s: int | None
    forked_from: str | None
    created_at: datetime
    updated_at: datetime
    index: Index
    events: int
    tokens_raw: int
    compactions: int
    #: Events that are read, and their tokens: counted when asked for.
    live_events: int = 0
    tokens_live: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedSession:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """What one compile reads, in one statement."""

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
    #: What stands beside the log and was read in the same statement; None: it was not.
    beside: "ReadBeside | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBefore:
    """What an earlier read told of a log; the live events up to a position need no second one."""

    incarnation: UUID
    index: Index
    index_digest: str
    #: No event after this is known.
    after_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBeside:
    """What a compile needs besides the log."""

    #: Of the model that was asked about; None: nothing is.
    learnt: Learnt | None
    #: None: the session is of before it was counted.
    standing: "CompactionStanding | None"


class Database(Protocol):
    """Where connections come from."""

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """One transaction: committed when the block is left, rolled back on an error."""

    def snapshot(self) -> AbstractAsyncContextManager[Connection]:
        """A transaction for reading, whose statements all see the same moment."""

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for single read statements."""


class EventLog(Protocol):
    """The append-only log of a session."""

    async def lock_session(self, connection: Connection, key: SessionKey) -> LockedSession | None:
        """Lock the session row until the transaction ends; None if there is no such session."""

    async def find_session(self, connection: Connection, key: SessionKey) -> LockedSession | None:
        """Return what a lock would show, without locking; None if there is no such session."""

    async def load_facts(
        self, connection: Connection, key: SessionKey, session: LockedSession, needs: Needs
    ) -> Facts:
        """Load what the resolver must know. Loads no more than the needs name."""

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
        """Read every event up to a position: what ``explain`` and the tests compare with.

        The reader is only asked for the arguments that opened its scope.
        """

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


class Sessions(Protocol):
    """Sessions and their state."""

    async def create(self, connection: Connection, key: SessionKey, new: NewSession) -> bool:
        """Create the session; False if it exists."""

    async def get(self, connection: Connection, key: SessionKey) -> SessionRow | None:
        """Return the session with its counts."""

    async def list(
        self,
        connection: Connection,
        tenant_id: str,
        *,
        app_name: str | None,
        user_id: str | None,
        updated_after: datetime | None,
        metadata: Mapping[str, str],
        after: tuple[datetime, str] | None,
        limit: int,
        descending: bool,
    ) -> Sequence[SessionRow]:
        """Return sessions ordered by ``(updated_at, session id)``."""

    async def update(
        self,
        connection: Connection,
        key: SessionKey,
        *,
        policy: Json,
        metadata: Mapping[str, Json],
        ttl_s: int | None,
    ) -> None:
        """Replace policy, metadata and time to live."""

    async def apply_state(
        self,
        connection: Connection,
        key: SessionKey,
        session: LockedSession,
        delta: Mapping[str, Json],
    ) -> None:
        """Merge a delta: ``app:`` and ``user:`` keys into their rows, others into the session's."""

    async def rewind_state(self, connection: Connection, key: SessionKey, index: Index) -> None:
        """Recompute the session's own keys from the base state and the deltas that still stand."""

    async def state(
        self, connection: Connection, tenant_id: str, app_name: str, user_id: str | None = None
    ) -> Mapping[str, Json]:
        """Return raw keys of an app, or of a user of an app."""

    async def fork(
        self,
        connection: Connection,
        key: SessionKey,
        new_key: SessionKey,
        *,
        at_seq: int,
        metadata: Mapping[str, Json],
    ) -> bool:
        """Copy rows 1..at_seq with their seqs and ids in one statement; False if new_key exists."""

    async def erase(
        self, connection: Connection, key: SessionKey, *, actor: str, reason: str
    ) -> bool:
        """Erase the session through the audited function; False if there is none."""

    async def expired(self, connection: Connection, *, limit: int) -> Sequence[UUID]:
        """Return sessions whose time to live has passed, the longest ago first."""

    async def erase_expired(self, connection: Connection, uid: UUID, *, actor: str) -> bool:
        """Erase a session, in a transaction of its own; False if an append has come first."""

    async def app_policy(self, connection: Connection, tenant_id: str, app_name: str) -> Json:
        """Return the app's default policy, None without one."""

    async def set_app_policy(
        self, connection: Connection, tenant_id: str, app_name: str, policy: Json
    ) -> None:
        """Replace the app's default policy."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What a request with an idempotency key was answered."""

    request_hash: bytes
    status: int
    body: str


class IdempotencyKeys(Protocol):
    """Answers kept for 24 hours, per tenant and route."""

    async def claim(
        self, connection: Connection, tenant_id: str, route: str, idempotency_key: str
    ) -> KeptAnswer | None:
        """Take the key for this transaction, or return the answer it already has.

        Raises:
            IdempotencyInProgressError: another transaction holds it.
        """

    async def keep(
        self,
        connection: Connection,
        tenant_id: str,
        route: str,
        idempotency_key: str,
        answer: KeptAnswer,
        *,
        key: SessionKey | None,
    ) -> None:
        """Keep the answer, in the transaction that did the work; erased with its session."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking."""

    tenant_id: str
    key_id: str
    scopes: frozenset[str]
    #: Of the key; None: the server's.
    rate_limit: RateLimit | None = None
    #: Of all keys of the tenant together; None: no limit.
    tenant_rate_limit: RateLimit | None = None
    #: How long the key is valid still; None: until it is revoked.
    valid_s: float | None = None
    is_tenant_disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A bearer key, without the key."""

    id: UUID
    tenant_id: str
    name: str
    scopes: Sequence[str]
    rate_limit: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    #: It opens something now, by the database's clock.
    is_valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey:
    """A key to store."""

    tenant_id: str
    name: str
    key_hash: bytes
    scopes: Sequence[str]
    rate_limit: str | None = None
    #: From now on; None: until it is revoked.
    ttl_s: float | None = None


class ApiKeys(Protocol):
    """Bearer keys, hashed at rest."""

    async def find(self, connection: Connection, key_hash: bytes) -> Principal | None:
        """Return whom a key stands for, None if it is unknown, revoked or no longer valid."""

    async def create(self, connection: Connection, new: NewApiKey) -> ApiKey:
        """Store a new key; the tenant is made if it is new."""

    async def get(
        self, connection: Connection, tenant_id: str | None, key_id: UUID
    ) -> ApiKey | None:
        """Return a key of a tenant, of any tenant without one; locked until the end."""

    async def list(
        self,
        connection: Connection,
        tenant_id: str,
        *,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> Sequence[ApiKey]:
        """Return the keys of a tenant, oldest first."""

    async def revoke(self, connection: Connection, key_id: UUID) -> None:
        """End a key now; one that has ended stays as it was."""

    async def expire(self, connection: Connection, key_id: UUID, after_s: float) -> None:
        """Let a key end in so long, or when it would have ended anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant and what it may take."""

    id: str
    rate_limit: str | None
    quotas: Quotas
    created_at: datetime
    is_disabled: bool


class Tenants(Protocol):
    """Tenants, their limits, and what they store."""

    async def create(
        self, connection: Connection, tenant_id: str, *, rate_limit: str | None, quotas: Quotas
    ) -> bool:
        """Make a tenant; False if it exists."""

    async def get(self, connection: Connection, tenant_id: str) -> Tenant | None:
        """Return a tenant; None if it was never made."""

    async def list(
        self, connection: Connection, *, after: str | None, limit: int
    ) -> Sequence[Tenant]:
        """Return tenants by their id."""

    async def lock(self, connection: Connection, tenant_id: str) -> Tenant | None:
        """Return a tenant, locked until the transaction ends."""

    async def update(self, connection: Connection, tenant: Tenant) -> None:
        """Replace what a tenant may take."""

    async def usage(self, connection: Connection, tenant_id: str) -> Stored:
        """Count what a tenant stores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What was done, without content."""

    tenant_id: str
    action: str
    #: Id of the key that did it, ``admin`` for the one of the settings, ``cli``.
    actor: str
    target: str = ""
    reason: str = ""
    details: Json = None
    #: Of an erased session.
    session_uid: UUID | None = None
    events: int | None = None
    #: Set when it is read back.
    id: int = 0
    created_at: datetime | None = None


class AuditLog(Protocol):
    """What administrators did, and what was erased. Nobody changes it."""

    async def record(self, connection: Connection, entry: AuditEntry) -> None:
        """Add a row, in the transaction of what it tells of."""

    async def list(
        self,
        connection: Connection,
        tenant_id: str | None,
        *,
        action: str | None,
        session_uid: UUID | None,
        before_id: int | None,
        limit: int,
    ) -> Sequence[AuditEntry]:
        """Return rows of a tenant, of all without one; newest first."""


@dataclass(frozen=True, slots=True)
class TakenRequest:
    """A request that was asked of a bucket."""

    is_allowed: bool
    #: Whole requests that are left.
    remaining: int
    #: Until the bucket is full again.
    reset_s: float
    #: Until there is one request in it; 0 when there is.
    retry_after_s: float


class RateLimits(Protocol):
    """Token buckets by name."""

    async def take(self, bucket: str, limit: RateLimit) -> TakenRequest:
        """Take a request out of a bucket, if there is one. Never fails, and takes little time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong with a stored session."""

    #: A slug, such as ``gap``, ``derived`` or ``index``.
    kind: str
    #: Where, if it is one event's.
    seq: int | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReply:
    """A reply that says what it was compiled for."""

    seq: int
    author: str
    lane: Lane
    compiled_seq: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCheck:
    """What a check of a session found."""

    findings: tuple[Finding, ...]
    events: int
    #: Some of its replies that say what they were compiled for, in order.
    replies: tuple[RecordedReply, ...]


class LogChecks(Protocol):
    """Compares what is stored of a session with what it should be."""

    async def sessions(
        self, connection: Connection, *, tenant_id: str | None, after: UUID | None, limit: int
    ) -> Sequence[SessionKey]:
        """Return sessions by their uid, of a tenant or of all."""

    async def check(self, connection: Connection, key: SessionKey) -> LogCheck | None:
        """Check a session, on a snapshot; None if there is no such session."""

    async def strays(self, connection: Connection) -> Sequence[Finding]:
        """Return rows of sessions that are not there; reads the whole log."""


class Hints(Protocol):
    """Tells, here and in other processes, that there is something new. Hints may be lost or come
    twice: whoever waits for one looks for itself from time to time."""

    @property
    def is_connected(self) -> bool:
        """Whether hints of other processes arrive."""

    def tell(self, topic: str) -> None:
        """Give a hint. Never waits and never fails."""

    def listen(self, callback: Callable[[str | None], None]) -> Callable[[], None]:
        """Have every hint given to a function, on the event loop; return what ends that.

        None in place of a topic: some may have been lost.
        """


#: The topic of jobs that are due.
JOBS_TOPIC: Final = "jobs"


class CompileInputs(Protocol):
    """Inputs of earlier compiles, by digest."""

    async def keep(
        self,
        connection: Connection,
        tenant_id: str,
        digest: str,
        body: str,
        *,
        key: SessionKey | None,
    ) -> None:
        """Keep the inputs; keeping them again does nothing. Erased with their session, if any."""

    async def find(self, connection: Connection, tenant_id: str, digest: str) -> str | None:
        """Return the inputs of a digest, None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRequest:
    """What a report of usage has to be compared with."""

    fingerprint: str
    #: Empty: the caller named none.
    model: str
    #: Our count, not calibrated: of the whole request, and of what the provider should find cached.
    tokens: int
    cached_tokens: int
    #: Of the request whose cache this one reads; None for none.
    base_fingerprint: str | None = None
    #: The newest reply no longer stood on the request that it answered.
    is_broken: bool = False
    #: How long the cache lives after its last use; None: not known.
    ttl_s: int | None = None
    #: Seconds since the base was compiled; None without one. Only when read back.
    since_base_s: float | None = None


class TokenReports(Protocol):
    """What was compiled lately, and what providers' reports of it taught."""

    async def forgive_loss(self, connection: Connection) -> None:
        """Let the transaction be reported as committed before it is safe from a crash."""

    async def remember(
        self,
        connection: Connection,
        key: SessionKey,
        incarnation: UUID,
        request: CompiledRequest,
    ) -> None:
        """Keep a request for a day, to be erased with its session; not if that is gone already."""

    async def find(
        self, connection: Connection, key: SessionKey, fingerprint: str
    ) -> CompiledRequest | None:
        """Return a request, None when it is not known or no longer so."""

    async def claim(self, connection: Connection, key: SessionKey, fingerprint: str) -> bool:
        """Take the right to learn from a request's report; False when it was learnt from before."""

    async def learnt(self, connection: Connection, tenant_id: str, model: str) -> Learnt | None:
        """Return what is known of a model, None when nothing was reported."""

    async def lock_learnt(self, connection: Connection, tenant_id: str, model: str) -> Learnt:
        """Return what is known of a model, locked until the transaction ends."""

    async def keep_learnt(
        self, connection: Connection, tenant_id: str, model: str, learnt: Learnt
    ) -> None:
        """Replace what is known of a model; the caller holds its lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStanding:
    """What decides, beside the log, whether a session is to be compacted."""

    incarnation: UUID
    #: The session's own and its app's; the first that says something of compaction counts.
    policy: Json
    app_policy: Json
    counters: Counters


class CompactionCounters(Protocol):
    """The counts by which compaction is seen to be due. Kept on the session's row."""

    async def invocations(
        self, connection: Connection, key: SessionKey, invocation_ids: Sequence[str]
    ) -> Mapping[str, InvocationFacts]:
        """Return what stands of these invocations, of those that have events."""

    async def advance(
        self,
        connection: Connection,
        key: SessionKey,
        *,
        invocation_id: str,
        is_complete: bool,
        completed: int,
    ) -> CompactionStanding | None:
        """Note where the newest invocation stands, and that so many more are complete."""

    async def standing(self, connection: Connection, key: SessionKey) -> CompactionStanding | None:
        """Return what stands; None if there is no such session."""

    async def recount(self, connection: Connection, key: SessionKey, section_tokens: int) -> None:
        """Count the live events anew, after a marker; what was refused may be tried again.

        Args:
            section_tokens: of the summaries that are shown now.
        """

    async def settle(
        self, connection: Connection, key: SessionKey, *, invocations_new: int, tokens_tried: int
    ) -> None:
        """Set what a planner found; the caller holds the session's lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRead:
    """What a compaction starts from, all of one moment."""

    session: LockedSession
    standing: CompactionStanding
    facts: PlanFacts
    #: The bodies of the facts' events, by seq.
    events: Mapping[int, Event]


class CompactionReads(Protocol):
    """Reads a log for the planner and the summarizer."""

    async def read(
        self,
        connection: Connection,
        key: SessionKey,
        choose: Callable[[CompactionStanding], CompactionPolicy],
        *,
        projected_tokens: int | None = None,
    ) -> CompactionRead | None:
        """Read a session; None if there is none.

        Args:
            connection: of a snapshot.
            key: the session's.
            choose: returns the policy of a session, which decides what has to be read.
            projected_tokens: of a whole request, where one was compiled.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """Work for later."""

    key: SessionKey
    incarnation: UUID
    kind: str
    payload: Mapping[str, Json] = field(default_factory=dict)
    #: Not before so long from now.
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stands."""

    id: UUID
    key: SessionKey
    incarnation: UUID
    kind: str
    payload: Mapping[str, Json]
    status: JobStatus
    #: Claims so far, the running one included.
    attempts: int
    #: Of the newest claim.
    fencing_token: int
    created_at: datetime
    run_at: datetime
    #: How long it was due before it was claimed; only of one that was claimed just now.
    waited_s: float = 0.0
    finished_at: datetime | None = None
    result: Mapping[str, Json] | None = None
    #: ``code`` and ``detail`` of the newest failure.
    error: Mapping[str, Json] | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether there is still something to do."""
        return self.status in ("ready", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLimits:
    """What a claim may take."""

    kinds: Sequence[str]
    jobs: int
    #: Running at a time for one tenant, over all workers.
    per_tenant: int
    lease_s: float
    #: After so many claims, a job whose lease ran out is dead.
    attempts: int


class JobQueue(Protocol):
    """Jobs with leases. All times are the database's."""

    async def enqueue(self, connection: Connection, job: NewJob) -> UUID:
        """Insert the job, or return the one of the session and kind that is open already."""

    async def claim(self, connection: Connection, limits: ClaimLimits) -> Sequence[Job]:
        """Take due jobs, in a transaction of the caller's: fair between tenants, oldest first.

        Leases that ran out are taken back first. Empty when another claim is under way.
        """

    async def renew(
        self, connection: Connection, jobs: Sequence[Job], lease_s: float
    ) -> frozenset[UUID]:
        """Prolong the leases; return the ids of the jobs that are still held."""

    async def hold(self, connection: Connection, job: Job) -> bool:
        """Lock the row of a job until the transaction ends; False if the claim was lost."""

    async def finish(
        self,
        connection: Connection,
        job: Job,
        status: Literal["done", "failed", "cancelled"],
        *,
        result: Mapping[str, Json] | None = None,
        error: Mapping[str, Json] | None = None,
    ) -> bool:
        """End a job that is held; False if the claim was lost."""

    async def retry(
        self,
        connection: Connection,
        job: Job,
        *,
        delay_s: float,
        error: Mapping[str, Json],
        max_attempts: int,
    ) -> JobStatus | None:
        """Let a job that failed be tried again, or be dead; None if the claim was lost."""

    async def release(self, connection: Connection, job: Job) -> bool:
        """Give a job back as if it had not been claimed; False if the claim was lost."""

    async def newest(
        self, connection: Connection, key: SessionKey, incarnation: UUID, kinds: Sequence[str]
    ) -> Job | None:
        """Return the session's job of these kinds that was done last; None where none is kept."""

    async def get(self, connection: Connection, tenant_id: str, job_id: UUID) -> Job | None:
        """Return a job of the tenant."""

    async def cancel(self, connection: Connection, tenant_id: str, job_id: UUID) -> Job | None:
        """Cancel a job of the tenant if it is open, and return it as it stands."""

    async def prune(self, connection: Connection, *, older_than_s: float, limit: int) -> int:
        """Delete jobs that ended so long ago, and return how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """What is true of the whole database."""

    #: By kind and status: jobs that are open or did not end well.
    jobs: Mapping[tuple[str, ...], int]
    #: Since when the oldest compaction is due that nobody does.
    compaction_lag_s: float
    oldest_transaction_s: float


class DatabaseFactsReads(Protocol):
    """Reads them, and sees to it that one process alone does."""

    async def take_lease(
        self, connection: Connection, name: str, holder: UUID, lease_s: float
    ) -> bool:
        """Take or renew a lease; False when it is another's."""

    async def give_back(self, connection: Connection, name: str, holder: UUID) -> None:
        """Give a lease back, if it is the holder's."""

    async def read(self, connection: Connection, kinds: tuple[str, ...]) -> DatabaseFacts:
        """Return what is true now; of lag, for jobs of these kinds."""


class DatabaseMeter(Protocol):
    """Is told what is true of the whole database by the one process that looks."""

    def database_seen(self, facts: DatabaseFacts, *, valid_s: float) -> None:
        """Take what was seen; it counts for so long."""

    def database_unseen(self) -> None:
        """Say nothing from now on: another process does, or nobody knows."""


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """Return the time, aware, in UTC."""


class Meter(Protocol):
    """Is told what happened, and counts it. Costs microseconds, never raises, never waits.

    What the values of the words may be is in the table of ``app/observability/metrics.py``.
    """

    def lock_waited(self, op: str, wait_s: float) -> None:
        """Take how long the lock of a session was waited for, and for what."""

    def appended(self, count_by_kind: Mapping[str, int], *, source: str, repeated: int) -> None:
        """Take a batch that is stored: how many of which kind, and how many were there before."""

    def request_repeated(self) -> None:
        """Take a request whose idempotency key had been used for the same one."""

    def append_refused(self, error: FoldlineError) -> None:
        """Take why an append was refused; only conflicts are counted."""

    def compiled(
        self,
        result: CompileResult,
        *,
        wire_format: str,
        cache: str | None,
        timing_ms: Mapping[str, float],
        scanned: int,
        hidden: int,
        index: Index,
        tokens_by_segment: Mapping[str, int],
        shared_tokens: int | None,
        found_break: Break | None,
        is_unchanged: bool,
    ) -> None:
        """Take a compile.

        Args:
            result: what came out.
            wire_format: the provider's.
            cache: what became of going on from an earlier compile: ``hit``, ``miss`` or ``stale``;
                None where it was not tried.
            timing_ms: by stage, in the order in which they ran without a pause.
            scanned: events that were read.
            hidden: of those, events that the reader may not see.
            index: that was compiled with.
            tokens_by_segment: of the request.
            shared_tokens: that the request before begins with; None when there is none before.
            found_break: why the newest reply's prefix does not stand.
            is_unchanged: the caller has all of it.
        """

    def compile_refused(self, outcome: str) -> None:
        """Take a compile without an answer."""

    def usage_reported(
        self, model: str, usage: Usage, *, ttl: str | None, expected: int, miss: str | None
    ) -> None:
        """Take what a provider counted.

        Args:
            model: as the caller names it.
            usage: the provider's count.
            ttl: how long what was written to the cache is kept: ``5m`` or ``1h``; None: unknown.
            expected: tokens that the cache should have had.
            miss: why it had fewer; None when it had them.
        """

    def tokens_estimated(self, model: str, *, ours: int, theirs: int) -> None:
        """Take our estimate of a request and the provider's count of it."""

    def overflowed(self, model: str) -> None:
        """Take a request that was too long for its provider."""

    def compaction_ended(self, *, trigger: str, method: str, outcome: str) -> None:
        """Take the end of a compaction."""

    def folded(
        self, *, method: str, duration_s: float, tokens_before: int, tokens_after: int
    ) -> None:
        """Take a fold: how long its summaries took, and what they save."""

    def summarized(
        self,
        provider: str,
        model: str,
        error: BaseException | None,
        *,
        duration_s: float,
        input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        """Take a request to a model for a summary, and the error that it ended with, if any."""

    def job_ended(self, queue: str, outcome: str, *, waited_s: float, ran_s: float) -> None:
        """Take a job that this worker is done with, whatever becomes of it."""

    def recalled(self, tool: str, outcome: str, *, tokens: int) -> None:
        """Take a search for originals, or an opening of a fold."""


class TokenCounter(Protocol):
    """The offline tokenizer."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPrompt:
    """What a model is asked for a summary."""

    #: Our instructions; never holds text of the conversation.
    system: str
    #: The conversation, quoted.
    user: str
    #: None: the server's.
    model: str | None = None
    #: None: the provider's.
    temperature: float | None = None
    max_output_tokens: int
    #: Of the whole request, retries included. None: the server's.
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAnswer:
    """What the model answered."""

    text: str
    #: ``stop``, ``length`` (cut off), ``filtered``, or as the provider put it.
    finish_reason: str
    input_tokens: int
    output_tokens: int
    model: str


class SummaryProvider(Protocol):
    """A model that writes summaries."""

    async def complete(self, prompt: SummaryPrompt) -> SummaryAnswer:
        """Ask once; the adapter may send the request a bounded number of times.

        Raises:
            ProviderError: there is no answer.
        """


class SummarySpend(Protocol):
    """What models have read and written for a tenant's summaries, by day in UTC."""

    async def reserve(
        self, connection: Connection, tenant_id: str, *, tokens: int, most_tokens: int
    ) -> date | None:
        """Count tokens that are about to be spent, and return the day that they count for.

        None, and nothing counted, where they would pass the most that a day may have.
        """

    async def correct(
        self, connection: Connection, tenant_id: str, day: date, *, tokens: int
    ) -> None:
        """Add what was counted too little to a day; negative for too much."""

    async def spent(self, connection: Connection, tenant_id: str) -> int:
        """Return what is counted for today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """When the provider last read a request of a session."""

    #: Seconds since then.
    idle_s: float
    #: How long an entry lives after its last use; None where no rule of a model says it.
    ttl_s: int | None


class CacheUses(Protocol):
    """What is known of a session in providers' caches."""

    async def last(self, connection: Connection, key: SessionKey) -> CacheUse | None:
        """Return the newest use, None when nothing was ever compiled or replied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What to look for, and where."""

    #: Seqs to look at.
    ranges: Ranges
    #: Whose view; None: an operator's.
    reader: Reader | None
    limit: int
    #: The query as it stands.
    text: str
    #: Words, of which an event must hold so many at least; empty: the text is a pattern.
    terms: Sequence[str] = ()
    least_matches: int = 1
    #: Characters of a snippet, and how many of them stand before what was found.
    snippet_characters: int = 240
    snippet_lead: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """An event that holds what was looked for."""

    seq: int
    #: Kind of the part that holds it, as in ``text`` or ``function_response``.
    kind: str
    snippet: str
    #: From 0 to 1.
    score: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best hits of what was looked at."""

    #: Best first; of equal ones the newest first.
    hits: tuple[SearchHit, ...]
    #: Everything from here on was looked at; 1 or less: all there is.
    searched_from_seq: int
    #: Nothing was left out for want of time.
    is_complete: bool


class EventSearch(Protocol):
    """Looks for text in the originals, newest first, for a limited time."""

    async def search(
        self, connection: Connection, key: SessionKey, query: SearchQuery, *, timeout_s: float
    ) -> SearchResult:
        """Return hits. The connection must be a transaction's.

        Raises:
            InvalidInputError: the pattern cannot be read, or takes too long to be of use.
        """
