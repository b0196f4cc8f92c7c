"""Erase sessions whose time to live has passed since their last append."""

from typing import Final

import structlog

from app.ports import Database, Sessions

#: So many at a time: each is a transaction of its own.
AT_ONCE: Final = 100
#: Who the audit says it was.
ACTOR: Final = "ttl"

log = structlog.get_logger(__name__)


class ExpireSessions:
    """Run now and then by every worker; several at once erase each session once."""

    def __init__(self, *, database: Database, sessions: Sessions) -> None:
        self._database = database
        self._sessions = sessions

    async def __call__(self) -> int:
        """Erase what has expired, at most some; return how many there were.

        Raises:
            StorageError: the database does not do it now.
        """
        async with self._database.connection() as connection:
            expired = await self._sessions.expired(connection, limit=AT_ONCE)
        erased = 0
        for uid in expired:
            async with self._database.transaction() as connection:
                erased += await self._sessions.erase_expired(connection, uid, actor=ACTOR)
        if erased:
            log.info("sessions_expired", sessions=erased)
        return erased
