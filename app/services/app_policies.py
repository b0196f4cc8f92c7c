"""The default policy and the state of an app, and the state of its users."""

from collections.abc import Mapping

from app.core.canonical import Json
from app.core.policy import validate_policy
from app.ports import AuditEntry, AuditLog, Database, Sessions


class ManageApps:
    """What belongs to an app rather than to a session."""

    def __init__(
        self, *, database: Database, sessions: Sessions, audit: AuditLog, default_policy: Json
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._audit = audit
        self._default_policy = default_policy

    async def policy(self, tenant_id: str, app_name: str) -> Json:
        """Return the app's default policy; the server's when it has none."""
        async with self._database.connection() as connection:
            policy = await self._sessions.app_policy(connection, tenant_id, app_name)
        return self._default_policy if policy is None else policy

    async def set_policy(
        self, tenant_id: str, app_name: str, policy: Mapping[str, Json], *, actor: str
    ) -> None:
        """Replace the app's default policy; audited.

        Raises:
            InvalidInputError: it is not a policy.
        """
        validate_policy(dict(policy))
        entry = AuditEntry(
            tenant_id=tenant_id,
            action="set_app_policy",
            actor=actor,
            target=app_name,
            details=_told(policy),
        )
        async with self._database.transaction() as connection:
            await self._sessions.set_app_policy(connection, tenant_id, app_name, dict(policy))
            await self._audit.record(connection, entry)

    async def state(
        self, tenant_id: str, app_name: str, user_id: str | None = None
    ) -> Mapping[str, Json]:
        """Return the raw keys of an app, or of a user of an app."""
        async with self._database.connection() as connection:
            return await self._sessions.state(connection, tenant_id, app_name, user_id)

    async def erase_user_state(
        self, tenant_id: str, app_name: str, user_id: str, *, actor: str
    ) -> None:
        """Erase the keys of a user of an app, if there are any; audited."""
        async with self._database.transaction() as connection:
            erased = await self._sessions.erase_user_state(connection, tenant_id, app_name, user_id)
            if not erased:
                return
            entry = AuditEntry(
                tenant_id=tenant_id,
                action="erase_user_state",
                actor=actor,
                target=user_id,
                details={"app_name": app_name, "keys": erased},
            )
            await self._audit.record(connection, entry)


def _told(policy: Mapping[str, Json]) -> dict[str, Json]:
    """Return what the audit log keeps of a policy: a prompt is content."""
    told = dict(policy)
    summarizer = told.get("summarizer")
    if isinstance(summarizer, dict):
        told["summarizer"] = {name: value for name, value in summarizer.items() if name != "prompt"}
    return told
