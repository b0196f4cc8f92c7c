"""The default policy and the state of an app, and the state of its users."""

from collections.abc import Mapping

from app.core.canonical import Json
from app.core.policy import validate_policy
from app.ports import Database, Sessions


class ManageApps:
    """What belongs to an app rather than to a session."""

    def __init__(self, *, database: Database, sessions: Sessions, default_policy: Json) -> None:
        self._database = database
        self._sessions = sessions
        self._default_policy = default_policy

    async def policy(self, tenant_id: str, app_name: str) -> Json:
        """Return the app's default policy; the server's when it has none."""
        async with self._database.connection() as connection:
            policy = await self._sessions.app_policy(connection, tenant_id, app_name)
        return self._default_policy if policy is None else policy

    async def set_policy(self, tenant_id: str, app_name: str, policy: Json) -> None:
        """Replace the app's default policy.

        Raises:
            InvalidInputError: it is not a policy.
        """
        validate_policy(policy)
        async with self._database.transaction() as connection:
            await self._sessions.set_app_policy(connection, tenant_id, app_name, policy)

    async def state(
        self, tenant_id: str, app_name: str, user_id: str | None = None
    ) -> Mapping[str, Json]:
        """Return the raw keys of an app, or of a user of an app."""
        async with self._database.connection() as connection:
            return await self._sessions.state(connection, tenant_id, app_name, user_id)
