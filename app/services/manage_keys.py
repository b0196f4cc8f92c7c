"""Make, list, revoke and rotate bearer keys; every change is audited.

A key is shown once and kept nowhere. Rotating makes a key with the same rights and lets the old one
live on for a while, so that callers can change over without an outage. Another replica believes a
key that was revoked for as long as it remembers keys (``authenticate.CACHE_S``).
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from app.core.canonical import Json
from app.core.errors import (
    ForbiddenError,
    InvalidInputError,
    KeyEndedError,
    KeyNotFoundError,
)
from app.core.limits import parse_rate_limit
from app.ports import (
    ApiKey,
    ApiKeys,
    AuditEntry,
    AuditLog,
    Connection,
    Database,
    NewApiKey,
    Principal,
)
from app.services.authenticate import SCOPES, hash_key

OPERATOR: Final = "operator"
#: Scopes that reach beyond a tenant: what is measured is of all of them.
OPERATORS_OWN: Final = frozenset({OPERATOR, "metrics"})
KEY_PREFIX: Final = "fl_"
#: Bytes of randomness in a key.
KEY_BYTES: Final = 32
#: Who acts at the command line; whoever has the database may do everything.
CLI: Final = Principal(tenant_id="", key_id="cli", scopes=frozenset(SCOPES))


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKey:
    """A key to make."""

    tenant_id: str
    name: str = ""
    scopes: Sequence[str]
    #: As in ``100/s``; None: the server's.
    rate_limit: str | None = None
    #: None: until it is revoked.
    ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key that was just made, with its secret: the only time that it is told."""

    key: ApiKey
    secret: str


class ManageKeys:
    """The keys of a tenant; an operator's reach is every tenant."""

    def __init__(
        self,
        *,
        database: Database,
        keys: ApiKeys,
        audit: AuditLog,
        forget_keys: Callable[[], None],
    ) -> None:
        """Take, beside the stores, what makes this process ask for every key anew."""
        self._database = database
        self._keys = keys
        self._audit = audit
        self._forget = forget_keys

    async def create(self, wanted: WantedKey, *, by: Principal) -> ShownKey:
        """Make a key; its tenant is made if it is new.

        Raises:
            InvalidInputError: a scope is unknown, or the rate limit is none.
            ForbiddenError: another tenant's key, or one that reaches beyond a tenant, is for
                operators to make.
        """
        _check_scopes(wanted.scopes)
        if wanted.rate_limit is not None:
            parse_rate_limit(wanted.rate_limit, "/rate_limit")
        is_beyond = not OPERATORS_OWN.isdisjoint(wanted.scopes)
        is_operators = wanted.tenant_id != by.tenant_id or is_beyond
        if is_operators and OPERATOR not in by.scopes:
            raise ForbiddenError(scope=OPERATOR)
        async with self._database.transaction() as connection:
            shown = await self._make(connection, wanted)
            await self._record(connection, "create_key", shown.key, by)
        return shown

    async def list(
        self, tenant_id: str, *, after: tuple[datetime, UUID] | None, limit: int
    ) -> Sequence[ApiKey]:
        """Return the keys of a tenant, oldest first, ended ones included."""
        async with self._database.connection() as connection:
            return await self._keys.list(connection, tenant_id, after=after, limit=limit)

    async def get(self, key_id: UUID, *, by: Principal) -> ApiKey:
        """Return a key.

        Raises:
            KeyNotFoundError: there is none within the caller's reach.
        """
        async with self._database.transaction() as connection:
            return await self._within_reach(connection, key_id, by)

    async def revoke(self, key_id: UUID, *, by: Principal) -> None:
        """End a key now; ending it again does nothing.

        Raises:
            KeyNotFoundError: there is none within the caller's reach.
            ForbiddenError: a key that reaches beyond a tenant is for operators to end.
        """
        async with self._database.transaction() as connection:
            key = await self._within_reach(connection, key_id, by)
            _check_right(key, by)
            if key.revoked_at is None:
                await self._keys.revoke(connection, key_id)
                await self._record(connection, "revoke_key", key, by)
        self._forget()

    async def rotate(self, key_id: UUID, *, overlap_s: float, by: Principal) -> ShownKey:
        """Make a key with the same rights, and let the old one end in so long.

        Raises:
            KeyNotFoundError: there is none within the caller's reach.
            KeyEndedError: it opens nothing any more, so there is nothing to hand on.
            ForbiddenError: a key that reaches beyond a tenant is for operators to rotate.
        """
        async with self._database.transaction() as connection:
            old = await self._within_reach(connection, key_id, by)
            if not old.is_valid:
                raise KeyEndedError
            _check_right(old, by)
            ttl_s = None
            if old.expires_at is not None:
                ttl_s = (old.expires_at - old.created_at).total_seconds()
            shown = await self._make(
                connection,
                WantedKey(
                    tenant_id=old.tenant_id,
                    name=old.name,
                    scopes=old.scopes,
                    rate_limit=old.rate_limit,
                    ttl_s=ttl_s,
                ),
            )
            await self._keys.expire(connection, key_id, overlap_s)
            details: dict[str, Json] = {"new_key": str(shown.key.id), "overlap_s": overlap_s}
            await self._record(connection, "rotate_key", old, by, details)
        self._forget()
        return shown

    async def _make(self, connection: Connection, wanted: WantedKey) -> ShownKey:
        secret = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
        new = NewApiKey(
            tenant_id=wanted.tenant_id,
            name=wanted.name,
            key_hash=hash_key(secret),
            scopes=wanted.scopes,
            rate_limit=wanted.rate_limit,
            ttl_s=wanted.ttl_s,
        )
        return ShownKey(await self._keys.create(connection, new), secret)

    async def _within_reach(self, connection: Connection, key_id: UUID, by: Principal) -> ApiKey:
        tenant_id = None if OPERATOR in by.scopes else by.tenant_id
        key = await self._keys.get(connection, tenant_id, key_id)
        if key is None:
            raise KeyNotFoundError
        return key

    async def _record(
        self,
        connection: Connection,
        action: str,
        key: ApiKey,
        by: Principal,
        details: dict[str, Json] | None = None,
    ) -> None:
        told: dict[str, Json] = {"name": key.name, "scopes": list(key.scopes), **(details or {})}
        entry = AuditEntry(
            tenant_id=key.tenant_id,
            action=action,
            actor=by.key_id,
            target=str(key.id),
            details=told,
        )
        await self._audit.record(connection, entry)


def _check_right(key: ApiKey, by: Principal) -> None:
    if not OPERATORS_OWN.isdisjoint(key.scopes) and OPERATOR not in by.scopes:
        raise ForbiddenError(scope=OPERATOR)


def _check_scopes(scopes: Sequence[str]) -> None:
    if not scopes:
        raise InvalidInputError("a key needs a scope", pointer="/scopes")
    for number, scope in enumerate(scopes):
        if scope not in SCOPES:
            raise InvalidInputError(
                f"unknown scope {scope!r}; known are {', '.join(SCOPES)}",
                pointer=f"/scopes/{number}",
            )


def reachable_tenant(by: Principal, tenant_id: str | None) -> str:
    """Return the tenant that is asked for, the caller's own when none is.

    Raises:
        ForbiddenError: another tenant is for operators.
    """
    if tenant_id in (None, by.tenant_id):
        return by.tenant_id
    if OPERATOR not in by.scopes:
        raise ForbiddenError(scope=OPERATOR)
    assert tenant_id is not None
    return tenant_id
