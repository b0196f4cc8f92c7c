"""Tenants, their keys and limits, and the audit log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.core.canonical import Json
from app.core.limits import Quotas, RateLimit, Stored
from app.ports.base import Connection


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
