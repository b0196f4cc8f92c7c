"""Read the audit log."""

from collections.abc import Sequence
from uuid import UUID

from app.ports import AuditEntry, AuditLog, Database


class ReadAudit:
    """Lists what administrators did and what was erased."""

    def __init__(self, *, database: Database, audit: AuditLog) -> None:
        self._database = database
        self._audit = audit

    async def __call__(
        self,
        tenant_id: str | None,
        *,
        action: str | None = None,
        session_uid: UUID | None = None,
        before_id: int | None = None,
        limit: int = 100,
    ) -> Sequence[AuditEntry]:
        """Return rows of a tenant, of all without one; newest first."""
        async with self._database.connection() as connection:
            return await self._audit.list(
                connection,
                tenant_id,
                action=action,
                session_uid=session_uid,
                before_id=before_id,
                limit=limit,
            )
