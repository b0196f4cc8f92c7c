"""Open, read, change, list, fork and erase sessions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from app.core.canonical import Json
from app.core.errors import (
    ConcurrentAppendError,
    InvalidInputError,
    SessionExistsError,
    SessionNotFoundError,
)
from app.core.events import PolicyRequest
from app.core.limits import Stored
from app.core.policy import merge_patch, validate_policy
from app.core.session_state import merge_state
from app.ports import (
    Connection,
    Database,
    EventLog,
    IdempotencyKeys,
    LockedSession,
    NewSession,
    SessionKey,
    SessionRow,
    Sessions,
)
from app.services import idempotency
from app.services.append_events import AppendStep, check_owner
from app.services.append_marker import AppendMarker, NewMarker
from app.services.enforce_quotas import EnforceQuotas
from app.services.idempotency import IdempotentRequest

#: Raw keys of an app, and of a user of it.
_SharedState: TypeAlias = tuple[Mapping[str, Json], Mapping[str, Json]]


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session with its state as its agents see it."""

    row: SessionRow
    #: Session, ``app:`` and ``user:`` keys merged.
    state: Mapping[str, Json]
    is_new: bool = False
    is_replayed: bool = False
    #: What was asked for when the session was there already, and it has otherwise.
    differing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """A merge patch of a session; what is not named stays."""

    key: SessionKey
    #: Which of the three are named; a named null takes the value away.
    named: frozenset[str]
    policy: Json = None
    metadata: Json = None
    ttl_s: int | None = None
    expected_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions of a tenant to list."""

    tenant_id: str
    app_name: str | None = None
    user_id: str | None = None
    updated_after: datetime | None = None
    metadata: Mapping[str, str]
    after: tuple[datetime, str] | None = None
    limit: int = 100
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A new session that begins with the first events of another."""

    key: SessionKey
    new_key: SessionKey
    #: None: all of them.
    at_seq: int | None
    metadata: Mapping[str, Json]
    idempotent: IdempotentRequest | None = None


class ManageSessions:
    """What can be done with a session as a whole."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        sessions: Sessions,
        keys: IdempotencyKeys,
        append_marker: AppendMarker,
        quotas: EnforceQuotas,
    ) -> None:
        self._database = database
        self._quotas = quotas
        self._log = log
        self._sessions = sessions
        self._keys = keys
        self._append_marker = append_marker

    async def open(self, key: SessionKey, new: NewSession, *, must_be_new: bool) -> SessionView:
        """Return the session, making it if there is none.

        Raises:
            SessionExistsError: it exists and had to be new, or belongs to another app or user.
            QuotaExceededError: the tenant may have no more sessions.
        """
        validate_policy_of(new.policy)
        await self._quotas.refresh(key.tenant_id)
        async with self._database.transaction() as connection:
            is_new = await self._sessions.create(connection, key, new)
            if is_new:
                self._quotas.take(key.tenant_id, Stored(sessions=1))
            view = await self._view(connection, key)
        if not is_new:
            if must_be_new:
                raise SessionExistsError
            check_owner(view.row, new)
        differing = () if is_new else tuple(_differing(view, new))
        return SessionView(view.row, view.state, is_new=is_new, differing=differing)

    async def get(self, key: SessionKey) -> SessionView:
        """Return the session.

        Raises:
            SessionNotFoundError: there is none.
        """
        async with self._database.connection() as connection:
            return await self._view(connection, key)

    async def change(self, change: SessionChange) -> SessionView:
        """Apply a merge patch. A policy that changes is an event of the log.

        Raises:
            ConcurrentAppendError: the head is not where it is expected.
            InvalidInputError: the policy that results is not valid.
        """
        step: AppendStep | None = None
        async with self._database.transaction() as connection:
            session = await self._locked(connection, change.key, change.expected_seq)
            row = await self._row(connection, change.key)
            policy = _patched(row.policy, change, "policy")
            if "policy" in change.named:
                # What is stored may be of a release that took more.
                validate_policy_of(policy)
            metadata = _patched(dict(row.metadata), change, "metadata")
            await self._sessions.update(
                connection,
                change.key,
                policy=policy,
                metadata=metadata if isinstance(metadata, dict) else {},
                ttl_s=change.ttl_s if "ttl_s" in change.named else row.ttl_s,
            )
            if policy != row.policy:
                actions: dict[str, Json] = {"policy": policy if policy is not None else {}}
                marker = NewMarker(key=change.key, request=PolicyRequest(), actions=actions)
                foreseen = await self._append_marker.foresee(marker)
                step = await self._append_marker.insert(connection, session, foreseen)
            view = await self._view(connection, change.key)
        if step is not None:
            self._append_marker.count(step, source="api")
        return view

    async def _locked(
        self, connection: Connection, key: SessionKey, expected_seq: int | None
    ) -> LockedSession:
        session = await self._log.lock_session(connection, key)
        if session is None:
            raise SessionNotFoundError
        if expected_seq is not None and expected_seq != session.head_seq:
            raise ConcurrentAppendError(expected_seq=expected_seq, actual_seq=session.head_seq)
        return session

    async def erase(self, key: SessionKey, *, actor: str, expected_seq: int | None = None) -> None:
        """Erase the session with everything that was made from it; audited.

        Raises:
            SessionNotFoundError: there is none.
            ConcurrentAppendError: the head is not where it is expected.
        """
        async with self._database.transaction() as connection:
            if expected_seq is not None:
                await self._locked(connection, key, expected_seq)
            if not await self._sessions.erase(connection, key, actor=actor, reason="api"):
                raise SessionNotFoundError

    async def list_sessions(self, wanted: SessionFilter) -> Sequence[SessionView]:
        """Return sessions in the order of their last change; at most ``limit``."""
        async with self._database.connection() as connection:
            # Sessions of one user share the state of app and user.
            shared: dict[tuple[str, str], _SharedState] = {}
            rows = await self._sessions.list(
                connection,
                wanted.tenant_id,
                app_name=wanted.app_name,
                user_id=wanted.user_id,
                updated_after=wanted.updated_after,
                metadata=wanted.metadata,
                after=wanted.after,
                limit=wanted.limit,
                descending=wanted.descending,
            )
            return [await self._merged(connection, row, shared) for row in rows]

    async def fork(self, fork: Fork) -> SessionView:
        """Make a session of another's first events.

        Raises:
            SessionExistsError: the new id is taken.
            InvalidInputError: the position is beyond the head.
            QuotaExceededError: the tenant may not store so much.
        """
        await self._quotas.refresh(fork.key.tenant_id)
        async with self._database.transaction() as connection:
            kept = await idempotency.claim(self._keys, connection, fork.idempotent)
            if kept is None:
                await self._fork(connection, fork)
                answer: dict[str, Any] = {}
                await idempotency.keep(
                    self._keys, connection, fork.idempotent, answer, key=fork.new_key
                )
            view = await self._view(connection, fork.new_key)
        return SessionView(view.row, view.state, is_new=True, is_replayed=kept is not None)

    async def _fork(self, connection: Connection, fork: Fork) -> None:
        session = await self._log.find_session(connection, fork.key)
        if session is None:
            raise SessionNotFoundError
        at_seq = session.head_seq if fork.at_seq is None else fork.at_seq
        if at_seq > session.head_seq:
            raise InvalidInputError(f"the head is at {session.head_seq}", pointer="/at_seq")
        is_new = await self._sessions.fork(
            connection, fork.key, fork.new_key, at_seq=at_seq, metadata=fork.metadata
        )
        if not is_new:
            raise SessionExistsError
        # Its bytes are counted with the next count.
        self._quotas.take(fork.key.tenant_id, Stored(sessions=1, events=at_seq))

    async def _row(self, connection: Connection, key: SessionKey) -> SessionRow:
        row = await self._sessions.get(connection, key)
        if row is None:
            raise SessionNotFoundError
        return row

    async def _view(self, connection: Connection, key: SessionKey) -> SessionView:
        return await self._merged(connection, await self._row(connection, key))

    async def _merged(
        self,
        connection: Connection,
        row: SessionRow,
        shared: dict[tuple[str, str], _SharedState] | None = None,
    ) -> SessionView:
        owner = (row.app_name, row.user_id)
        found = (shared or {}).get(owner)
        if found is None:
            tenant_id = row.key.tenant_id
            found = (
                await self._sessions.state(connection, tenant_id, row.app_name),
                await self._sessions.state(connection, tenant_id, row.app_name, row.user_id),
            )
        if shared is not None:
            shared[owner] = found
        app, user = found
        return SessionView(row, merge_state(row.state, app=app, user=user))


def _differing(view: SessionView, new: NewSession) -> Iterator[str]:
    """Yield the fields that a session was asked for with, and has otherwise; not naming one asks
    for nothing."""
    row = view.row
    state = merge_state(new.state, app=new.app_state, user=new.user_state)
    if any(key not in view.state or view.state[key] != value for key, value in state.items()):
        yield "state"
    if new.policy is not None and new.policy != row.policy:
        yield "policy"
    if new.metadata and dict(new.metadata) != dict(row.metadata):
        yield "metadata"
    if new.ttl_s is not None and new.ttl_s != row.ttl_s:
        yield "ttl_s"


def validate_policy_of(policy: Json) -> None:
    """Refuse a policy of a request that is not one; no policy is fine.

    Raises:
        InvalidInputError: with a pointer to the key.
    """
    if policy is not None:
        validate_policy(policy, "/policy")


def _patched(current: Json, change: SessionChange, name: str) -> Json:
    if name not in change.named:
        return current
    patch: Json = getattr(change, name)
    return None if patch is None else merge_patch(current, patch)
