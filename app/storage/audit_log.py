"""The audit log: rows are added, and read newest first. A trigger refuses every change."""

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

from app.core.canonical import canonical_json
from app.ports import AuditEntry
from app.storage.codec import unpack_json
from app.storage.connection import PgConnection, Row, fetch


class PgAuditLog:
    """:class:`app.ports.AuditLog` on Postgres."""

    async def record(self, connection: PgConnection, entry: AuditEntry) -> None:
        await fetch(
            connection,
            _RECORD,
            entry.tenant_id,
            entry.action,
            entry.actor,
            entry.target,
            entry.reason,
            None if entry.details is None else canonical_json(entry.details),
        )

    async def list(
        self,
        connection: PgConnection,
        tenant_id: str | None,
        *,
        action: str | None,
        session_uid: UUID | None,
        before_id: int | None,
        limit: int,
    ) -> Sequence[AuditEntry]:
        rows = await fetch(connection, _LIST, tenant_id, action, session_uid, before_id, limit)
        return [_entry(row) for row in rows]


def _entry(row: Row) -> AuditEntry:
    return AuditEntry(
        id=row["audit_id"],
        tenant_id=row["tenant_id"],
        action=row["action"],
        actor=row["actor"],
        target=row["target"],
        reason=row["reason"],
        details=unpack_json(row["details"]),
        session_uid=row["session_uid"],
        events=row["events"],
        created_at=row["created_at"],
    )


_RECORD: Final[LiteralString] = """
    INSERT INTO audit_log (tenant_id, action, actor, target, reason, details)
    VALUES ($1, $2, $3, $4, $5, $6::text::json)
"""

_LIST: Final[LiteralString] = """
    SELECT
        audit_id, tenant_id, session_uid, action, actor, target, reason, details::text AS details,
        events, created_at
    FROM audit_log
    WHERE
        ($1::text IS NULL OR tenant_id = $1)
        AND ($2::text IS NULL OR action = $2)
        AND ($3::uuid IS NULL OR session_uid = $3)
        AND ($4::bigint IS NULL OR audit_id < $4)
    ORDER BY audit_id DESC
    LIMIT $5
"""
