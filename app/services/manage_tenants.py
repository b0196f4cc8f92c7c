"""Make tenants and set what they may take; every change is audited."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.core.canonical import Json
from app.core.copying import replace
from app.core.errors import TenantExistsError, TenantNotFoundError
from app.core.limits import Quotas, Stored, parse_rate_limit
from app.ports import AuditEntry, AuditLog, Connection, Database, Principal, Tenant, Tenants


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantChange:
    """A merge patch of a tenant; what is not named stays, a named null takes a limit away."""

    tenant_id: str
    #: Of ``rate_limit`` and ``disabled``.
    members: Mapping[str, Json]
    #: Of ``sessions``, ``events`` and ``bytes``.
    quotas: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class TenantView:
    """A tenant and what it stores."""

    tenant: Tenant
    usage: Stored


class ManageTenants:
    """What operators do with tenants."""

    def __init__(
        self,
        *,
        database: Database,
        tenants: Tenants,
        audit: AuditLog,
        forget_limits: Callable[[], None],
    ) -> None:
        """Take, beside the stores, what makes this process ask for every limit anew."""
        self._database = database
        self._tenants = tenants
        self._audit = audit
        self._forget = forget_limits

    async def create(
        self, tenant_id: str, *, rate_limit: str | None, quotas: Quotas, by: Principal
    ) -> Tenant:
        """Make a tenant.

        Raises:
            TenantExistsError: it exists.
            InvalidInputError: the rate limit is none.
        """
        _check_rate(rate_limit)
        async with self._database.transaction() as connection:
            is_new = await self._tenants.create(
                connection, tenant_id, rate_limit=rate_limit, quotas=quotas
            )
            if not is_new:
                raise TenantExistsError
            tenant = await self._tenants.get(connection, tenant_id)
            assert tenant is not None
            await self._record(connection, "create_tenant", tenant, by)
        return tenant

    async def list(self, *, after: str | None, limit: int) -> Sequence[Tenant]:
        """Return tenants by their id."""
        async with self._database.connection() as connection:
            return await self._tenants.list(connection, after=after, limit=limit)

    async def get(self, tenant_id: str) -> TenantView:
        """Return a tenant with what it stores, counted now.

        Raises:
            TenantNotFoundError: it was never made.
        """
        async with self._database.connection() as connection:
            tenant = await self._tenants.get(connection, tenant_id)
            if tenant is None:
                raise TenantNotFoundError
            return TenantView(tenant, await self._tenants.usage(connection, tenant_id))

    async def change(self, change: TenantChange, *, by: Principal) -> Tenant:
        """Apply a merge patch.

        Raises:
            TenantNotFoundError: it was never made.
            InvalidInputError: the rate limit is none.
        """
        async with self._database.transaction() as connection:
            tenant = await self._tenants.lock(connection, change.tenant_id)
            if tenant is None:
                raise TenantNotFoundError
            changed = replace(tenant, quotas=replace(tenant.quotas, **change.quotas))
            if "rate_limit" in change.members:
                rate_limit = change.members["rate_limit"]
                assert rate_limit is None or isinstance(rate_limit, str)
                _check_rate(rate_limit)
                changed = replace(changed, rate_limit=rate_limit)
            if "disabled" in change.members:
                changed = replace(changed, is_disabled=bool(change.members["disabled"]))
            if changed != tenant:
                await self._tenants.update(connection, changed)
                await self._record(connection, "change_tenant", changed, by)
        self._forget()
        return changed

    async def _record(
        self, connection: Connection, action: str, tenant: Tenant, by: Principal
    ) -> None:
        details: dict[str, Json] = {
            "rate_limit": tenant.rate_limit,
            "quotas": {
                "sessions": tenant.quotas.sessions,
                "events": tenant.quotas.events,
                "bytes": tenant.quotas.bytes,
            },
            "disabled": tenant.is_disabled,
        }
        entry = AuditEntry(
            tenant_id=tenant.id,
            action=action,
            actor=by.key_id,
            target=tenant.id,
            details=details,
        )
        await self._audit.record(connection, entry)


def _check_rate(rate_limit: str | None) -> None:
    if rate_limit is not None:
        parse_rate_limit(rate_limit, "/rate_limit")
