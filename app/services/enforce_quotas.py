"""What a tenant may store: sessions, events and bytes.

What it stores is counted over its sessions' rows, at most every ten seconds and rarely where
counting takes long, and what this process adds meanwhile is added to the count. So no row is shared
by all appends of a tenant; the price is that several replicas together can go over a quota by what
they store between two counts.
"""

import time
from dataclasses import dataclass, field
from typing import Final

import structlog

from app.core.errors import QuotaExceededError, StorageError
from app.core.limits import Quotas, Stored
from app.observability.failures import step_failed
from app.ports import Database, Tenants

#: A count is believed for so long.
COUNT_S: Final = 10.0
#: Counting may take this part of the time.
LARGEST_SHARE: Final = 0.02
MAX_KNOWN: Final = 10_000
_UNLIMITED: Final = Quotas()

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Known:
    """What is known of a tenant."""

    quotas: Quotas = _UNLIMITED
    counted: Stored = field(default_factory=Stored)
    #: Stored by this process since.
    added: Stored = field(default_factory=Stored)
    until_s: float = 0.0


class EnforceQuotas:
    """Knows what tenants may store, and refuses what would be more."""

    def __init__(self, *, database: Database, tenants: Tenants) -> None:
        self._database = database
        self._tenants = tenants
        self._known: dict[str, _Known] = {}

    def forget(self) -> None:
        """Ask the database again: a quota was changed."""
        self._known.clear()

    async def refresh(self, tenant_id: str) -> None:
        """See to it that a tenant is known; before a transaction is opened.

        A database that does not answer leaves what was known: the transaction will tell.
        """
        known = self._known.get(tenant_id)
        if known is not None and known.until_s > time.monotonic():
            return
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        known = known or _Known()
        # Others do not count at the same time, and what they add meanwhile may be counted twice,
        # never not at all.
        known.until_s = time.monotonic() + COUNT_S
        self._known[tenant_id] = known
        try:
            await self._count(tenant_id, known)
        except StorageError as error:
            step_failed(log, "quota_not_counted", error)

    async def _count(self, tenant_id: str, known: _Known) -> None:
        async with self._database.connection() as connection:
            tenant = await self._tenants.get(connection, tenant_id)
            known.quotas = _UNLIMITED if tenant is None else tenant.quotas
            if known.quotas == _UNLIMITED:
                return
            began_s = time.monotonic()
            known.added = Stored()
            known.counted = await self._tenants.usage(connection, tenant_id)
        took_s = time.monotonic() - began_s
        known.until_s = time.monotonic() + max(COUNT_S, took_s / LARGEST_SHARE)

    def take(self, tenant_id: str, wanted: Stored) -> None:
        """Refuse what would be more than the tenant may store, else count it as stored.

        Raises:
            QuotaExceededError: naming the quota.
        """
        refused = self._refusal(tenant_id, wanted)
        if refused is not None:
            raise refused
        self.count(tenant_id, wanted)

    def has_room(self, tenant_id: str, wanted: Stored) -> bool:
        """Tell whether so much more would not be refused."""
        return self._refusal(tenant_id, wanted) is None

    def count(self, tenant_id: str, stored: Stored) -> None:
        """Count what was stored."""
        known = self._known.get(tenant_id)
        if known is not None and known.quotas != _UNLIMITED:
            known.added = known.added.plus(stored)

    def _refusal(self, tenant_id: str, wanted: Stored) -> QuotaExceededError | None:
        known = self._known.get(tenant_id)
        if known is None or known.quotas == _UNLIMITED:
            return None
        used = known.counted.plus(known.added)
        for name in ("sessions", "events", "bytes"):
            limit, more, has = (
                getattr(known.quotas, name),
                getattr(wanted, name),
                getattr(used, name),
            )
            if limit is not None and more and has + more > limit:
                return QuotaExceededError(quota=name, limit=limit, used=has)
        return None
