"""Inputs of compiles, kept under their digest so that a caller may pass them back by it."""

from typing import Final, LiteralString
from uuid import UUID

from app.ports import SessionKey
from app.storage.connection import PgConnection, fetch, fetch_one

#: Stands for no session: it is part of the primary key.
NO_SESSION: Final = UUID(int=0)


class PgCompileInputs:
    """:class:`app.ports.CompileInputs` on Postgres."""

    async def keep(
        self,
        connection: PgConnection,
        tenant_id: str,
        digest: str,
        body: str,
        *,
        key: SessionKey | None,
    ) -> None:
        uid = NO_SESSION if key is None else key.uid
        await fetch(connection, _KEEP, tenant_id, digest, uid, body)

    async def find(self, connection: PgConnection, tenant_id: str, digest: str) -> str | None:
        row = await fetch_one(connection, _FIND, tenant_id, digest)
        return None if row is None else row["body"]


# Two sessions may have fetched the same: each keeps its own, to be erased with it.
_KEEP: Final[LiteralString] = """
    INSERT INTO compile_inputs (tenant_id, digest, session_uid, body)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant_id, digest, session_uid) DO NOTHING
"""

_FIND: Final[LiteralString] = """
    SELECT body
    FROM compile_inputs
    WHERE tenant_id = $1 AND digest = $2
    ORDER BY session_uid
    LIMIT 1
"""
