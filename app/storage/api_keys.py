"""Bearer keys by their hash."""

from collections.abc import Sequence
from typing import Final, LiteralString

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import StorageError
from app.ports import Principal
from app.storage.database import fetch_one


class PgApiKeys:
    """:class:`app.ports.ApiKeys` on Postgres."""

    async def find(self, connection: AsyncConnection, key_hash: bytes) -> Principal | None:
        row = await fetch_one(connection, _FIND, key_hash)
        if row is None:
            return None
        return Principal(row["tenant_id"], str(row["key_id"]), frozenset(row["scopes"]))

    async def create(
        self,
        connection: AsyncConnection,
        *,
        tenant_id: str,
        name: str,
        key_hash: bytes,
        scopes: Sequence[str],
    ) -> str:
        await fetch_one(connection, _MAKE_TENANT, tenant_id)
        row = await fetch_one(connection, _CREATE, tenant_id, name, key_hash, list(scopes))
        if row is None:
            raise StorageError
        return str(row["key_id"])


_FIND: Final[LiteralString] = """
    SELECT tenant_id, key_id, scopes
    FROM api_keys
    WHERE key_hash = $1 AND revoked_at IS NULL
"""

_MAKE_TENANT: Final[LiteralString] = """
    INSERT INTO tenants (tenant_id)
    VALUES ($1)
    ON CONFLICT (tenant_id) DO NOTHING
"""

_CREATE: Final[LiteralString] = """
    INSERT INTO api_keys (tenant_id, name, key_hash, scopes)
    VALUES ($1, $2, $3, $4)
    RETURNING key_id
"""
