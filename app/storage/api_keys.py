"""Bearer keys by their hash. Whether one is still valid is said by the database's clock."""

# Statements that share a piece are put together from constants, as LiteralString proves.
# ruff: noqa: S608

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from app.core.errors import StorageError
from app.core.limits import RateLimit, parse_rate_limit
from app.ports import ApiKey, NewApiKey, Principal
from app.storage.connection import PgConnection, Row, fetch, fetch_one


class PgApiKeys:
    """:class:`app.ports.ApiKeys` on Postgres."""

    async def find(self, connection: PgConnection, key_hash: bytes) -> Principal | None:
        row = await fetch_one(connection, _FIND, key_hash)
        if row is None:
            return None
        return Principal(
            row["tenant_id"],
            str(row["key_id"]),
            frozenset(row["scopes"]),
            rate_limit=_rate_limit(row["rate_limit"]),
            tenant_rate_limit=_rate_limit(row["tenant_rate_limit"]),
            valid_s=row["valid_s"],
            is_tenant_disabled=row["is_disabled"],
        )

    async def create(self, connection: PgConnection, new: NewApiKey) -> ApiKey:
        await fetch_one(connection, _MAKE_TENANT, new.tenant_id)
        row = await fetch_one(
            connection,
            _CREATE,
            new.tenant_id,
            new.name,
            new.key_hash,
            list(new.scopes),
            new.rate_limit,
            new.ttl_s,
        )
        if row is None:
            raise StorageError
        return _api_key(row)

    async def get(
        self, connection: PgConnection, tenant_id: str | None, key_id: UUID
    ) -> ApiKey | None:
        row = await fetch_one(connection, _GET, key_id, tenant_id)
        return None if row is None else _api_key(row)

    async def list(
        self,
        connection: PgConnection,
        tenant_id: str,
        *,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> Sequence[ApiKey]:
        rows = await fetch(connection, _LIST, tenant_id, *(after or (None, None)), limit)
        return [_api_key(row) for row in rows]

    async def revoke(self, connection: PgConnection, key_id: UUID) -> None:
        await fetch(connection, _REVOKE, key_id)

    async def expire(self, connection: PgConnection, key_id: UUID, after_s: float) -> None:
        await fetch(connection, _EXPIRE, key_id, after_s)


def _rate_limit(text: str | None) -> RateLimit | None:
    return None if text is None else parse_rate_limit(text)


def _api_key(row: Row) -> ApiKey:
    return ApiKey(
        id=row["key_id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        scopes=row["scopes"],
        rate_limit=row["rate_limit"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        is_valid=row["is_valid"],
    )


# The index finds the whole hash or nothing, so how long it takes tells nothing of a key.
_FIND: Final[LiteralString] = """
    SELECT
        k.tenant_id, k.key_id, k.scopes, k.rate_limit, t.rate_limit AS tenant_rate_limit,
        t.disabled_at IS NOT NULL AS is_disabled,
        extract(EPOCH FROM k.expires_at - statement_timestamp())::float8 AS valid_s
    FROM api_keys AS k
    JOIN tenants AS t ON t.tenant_id = k.tenant_id
    WHERE
        k.key_hash = $1
        AND k.revoked_at IS NULL
        AND (k.expires_at IS NULL OR k.expires_at > statement_timestamp())
"""

_MAKE_TENANT: Final[LiteralString] = """
    INSERT INTO tenants (tenant_id)
    VALUES ($1)
    ON CONFLICT (tenant_id) DO NOTHING
"""

_SHOWN: Final[LiteralString] = """
        key_id, tenant_id, name, scopes, rate_limit, created_at, expires_at, revoked_at,
        revoked_at IS NULL AND (expires_at IS NULL OR expires_at > statement_timestamp())
            AS is_valid
"""

_CREATE: Final[LiteralString] = (
    """
    INSERT INTO api_keys (tenant_id, name, key_hash, scopes, rate_limit, expires_at)
    VALUES ($1, $2, $3, $4, $5, statement_timestamp() + $6::float8 * interval '1 second')
    RETURNING
"""
    + _SHOWN
)

_GET: Final[LiteralString] = (
    "SELECT"
    + _SHOWN
    + """
    FROM api_keys
    WHERE key_id = $1 AND ($2::text IS NULL OR tenant_id = $2)
    FOR NO KEY UPDATE
"""
)

_LIST: Final[LiteralString] = (
    "SELECT"
    + _SHOWN
    + """
    FROM api_keys
    WHERE
        tenant_id = $1
        AND ($2::timestamptz IS NULL OR (created_at, key_id) > ($2, $3::uuid))
    ORDER BY created_at, key_id
    LIMIT $4
"""
)

_REVOKE: Final[LiteralString] = """
    UPDATE api_keys
    SET revoked_at = statement_timestamp()
    WHERE key_id = $1 AND revoked_at IS NULL
"""

_EXPIRE: Final[LiteralString] = """
    UPDATE api_keys
    SET expires_at = least(
        expires_at, statement_timestamp() + $2::float8 * interval '1 second'
    )
    WHERE key_id = $1
"""
