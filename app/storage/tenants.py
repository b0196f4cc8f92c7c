"""Tenants: what they may take, and what they store."""

from collections.abc import Sequence
from typing import Final, LiteralString

from app.core.limits import Quotas, Stored
from app.ports import Tenant
from app.storage.connection import PgConnection, Row, fetch, fetch_one


class PgTenants:
    """:class:`app.ports.Tenants` on Postgres."""

    async def create(
        self, connection: PgConnection, tenant_id: str, *, rate_limit: str | None, quotas: Quotas
    ) -> bool:
        row = await fetch_one(
            connection,
            _CREATE,
            tenant_id,
            rate_limit,
            quotas.sessions,
            quotas.events,
            quotas.bytes,
        )
        return row is not None

    async def get(self, connection: PgConnection, tenant_id: str) -> Tenant | None:
        row = await fetch_one(connection, _GET, tenant_id)
        return None if row is None else _tenant(row)

    async def list(
        self, connection: PgConnection, *, after: str | None, limit: int
    ) -> Sequence[Tenant]:
        return [_tenant(row) for row in await fetch(connection, _LIST, after, limit)]

    async def lock(self, connection: PgConnection, tenant_id: str) -> Tenant | None:
        row = await fetch_one(connection, _LOCK, tenant_id)
        return None if row is None else _tenant(row)

    async def update(self, connection: PgConnection, tenant: Tenant) -> None:
        await fetch(
            connection,
            _UPDATE,
            tenant.id,
            tenant.rate_limit,
            tenant.quotas.sessions,
            tenant.quotas.events,
            tenant.quotas.bytes,
            tenant.is_disabled,
        )

    async def usage(self, connection: PgConnection, tenant_id: str) -> Stored:
        row = await fetch_one(connection, _USAGE, tenant_id)
        assert row is not None
        return Stored(sessions=row["sessions"], events=row["events"], bytes=row["bytes"])


def _tenant(row: Row) -> Tenant:
    return Tenant(
        id=row["tenant_id"],
        rate_limit=row["rate_limit"],
        quotas=Quotas(
            sessions=row["max_sessions"], events=row["max_events"], bytes=row["max_bytes"]
        ),
        created_at=row["created_at"],
        is_disabled=row["disabled_at"] is not None,
    )


_CREATE: Final[LiteralString] = """
    INSERT INTO tenants (tenant_id, rate_limit, max_sessions, max_events, max_bytes)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (tenant_id) DO NOTHING
    RETURNING tenant_id
"""

_GET: Final[LiteralString] = """
    SELECT tenant_id, rate_limit, max_sessions, max_events, max_bytes, created_at, disabled_at
    FROM tenants
    WHERE tenant_id = $1
"""

_LOCK: Final[LiteralString] = """
    SELECT tenant_id, rate_limit, max_sessions, max_events, max_bytes, created_at, disabled_at
    FROM tenants
    WHERE tenant_id = $1
    FOR NO KEY UPDATE
"""

_LIST: Final[LiteralString] = """
    SELECT tenant_id, rate_limit, max_sessions, max_events, max_bytes, created_at, disabled_at
    FROM tenants
    WHERE $1::text IS NULL OR tenant_id > $1
    ORDER BY tenant_id
    LIMIT $2
"""

_UPDATE: Final[LiteralString] = """
    UPDATE tenants
    SET
        rate_limit = $2,
        max_sessions = $3,
        max_events = $4,
        max_bytes = $5,
        disabled_at = CASE WHEN $6::boolean THEN coalesce(disabled_at, statement_timestamp()) END
    WHERE tenant_id = $1
"""

# Seqs are dense: the head is the number of events. Bytes that a release did not count, which knew
# nothing of them, are counted here.
_USAGE: Final[LiteralString] = """
    SELECT
        count(*) AS sessions,
        coalesce(sum(s.head_seq), 0)::bigint AS events,
        coalesce(
            sum(
                CASE
                    WHEN s.bytes_at_seq = s.head_seq THEN s.bytes_raw
                    ELSE (
                        SELECT coalesce(sum(octet_length(e.raw)), 0)
                        FROM events AS e
                        WHERE e.session_uid = s.session_uid
                    )
                END
            ),
            0
        )::bigint AS bytes
    FROM sessions AS s
    WHERE s.tenant_id = $1
"""
