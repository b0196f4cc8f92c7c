"""Sessions beside their events, and answers that are kept for repeated requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.core.canonical import Json
from app.core.index import Index
from app.ports.base import Connection, SessionKey
from app.ports.log import LockedSession


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

    async def erase_user_state(
        self, connection: Connection, tenant_id: str, app_name: str, user_id: str
    ) -> int:
        """Erase the keys of a user of an app; return how many there were."""

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
