"""Tells what is true of the whole database: of all workers, the one that has the lease does.

    every few seconds: take or renew the lease -> mine: look, and tell
                                               -> another's: tell nothing

Whoever has it and stops gives it back, so that another tells at its next look; of one that was
killed the lease runs out, and what it said last with it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

import structlog

from app.core.copying import replace
from app.core.errors import StorageError
from app.observability.failures import step_failed
from app.ports import Database, DatabaseFacts, DatabaseFactsReads, DatabaseMeter, Written

LEASE: Final = "database_watch"
INTERVAL_S: Final = 5.0
#: Two looks may fail before another takes over, and before what was told counts no more.
LEASE_S: Final = 3 * INTERVAL_S

log = structlog.get_logger(__name__)


class DatabaseWatch:
    """Looks at intervals."""

    def __init__(
        self,
        *,
        database: Database,
        facts: DatabaseFactsReads,
        meter: DatabaseMeter,
        kinds: tuple[str, ...],
        replica: Database | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """Take, beside the stores, the kinds of jobs that compact, and the read replica."""
        self._database = database
        self._replica = replica
        self._facts = facts
        self._meter = meter
        self._kinds = kinds
        self._interval_s = interval_s
        self._lease_s = interval_s * LEASE_S / INTERVAL_S
        self._holder = uuid4()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look while the block runs."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._stop()

    async def _watch(self) -> None:
        while True:
            facts = await self._look()
            if facts is None:
                self._meter.database_unseen()
            else:
                self._meter.database_seen(facts, valid_s=self._lease_s)
            await asyncio.sleep(self._interval_s)

    async def _look(self) -> DatabaseFacts | None:
        """Return what there is to tell, None when it is another's to tell, or not known."""
        try:
            async with self._database.connection() as connection:
                # First, so that a replica may lack what we write ourselves.
                written = await self._facts.written(connection)
                is_ours = await self._facts.take_lease(
                    connection, LEASE, self._holder, self._lease_s
                )
                if not is_ours:
                    return None
                facts = await self._facts.read(connection, self._kinds)
        except StorageError as error:
            step_failed(log, "database_not_watched", error)
            return None
        return replace(facts, replica_lag_s=await self._replica_lag_s(written))

    async def _replica_lag_s(self, written: Written) -> Mapping[str, float]:
        if self._replica is None:
            return {}
        try:
            async with self._replica.connection() as connection:
                return await self._facts.replica_lag_s(connection, written)
        except StorageError as error:
            step_failed(log, "replica_not_watched", error)
            return {}

    async def _stop(self) -> None:
        self._meter.database_unseen()
        try:
            async with self._database.connection() as connection:
                await self._facts.give_back(connection, LEASE, self._holder)
        except StorageError as error:
            # It runs out.
            step_failed(log, "lease_not_returned", error)
