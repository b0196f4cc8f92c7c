"""What is kept of compiles for those that come, and for reports of usage."""

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from app.core.calibration import Learnt
from app.ports.base import Connection, SessionKey


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

    async def forget(self, connection: Connection, tenant_id: str, model: str) -> bool:
        """Forget what is known of a model; False when nothing was."""


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
