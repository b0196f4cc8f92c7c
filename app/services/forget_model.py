"""Forget what reports taught of a model: a wrong one counts for every session of its tenant."""

from app.core.errors import ReportNotFoundError
from app.ports import AuditEntry, AuditLog, Database, Principal, TokenReports


class ForgetModel:
    """Begins anew with a model."""

    def __init__(self, *, database: Database, reports: TokenReports, audit: AuditLog) -> None:
        self._database = database
        self._reports = reports
        self._audit = audit

    async def __call__(self, model: str, *, by: Principal) -> None:
        """Forget how the model counts and how much it takes, for the caller's tenant; audited.

        Raises:
            ReportNotFoundError: nothing was reported of it.
        """
        async with self._database.transaction() as connection:
            if not await self._reports.forget(connection, by.tenant_id, model):
                raise ReportNotFoundError("nothing was reported of this model")
            entry = AuditEntry(
                tenant_id=by.tenant_id, action="forget_model", actor=by.key_id, target=model
            )
            await self._audit.record(connection, entry)
