"""What is true of the whole database is told by one worker, and by another when that one stops."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from app.core.model_rules import NO_RULES
from app.jobs.database_watch import LEASE, DatabaseWatch
from app.observability.meter import Meter
from app.observability.metrics import Metrics
from app.ports import NewJob
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.database_facts import PgDatabaseFacts
from app.storage.jobs import PgJobQueue
from app.storage.migrate import migrate
from app.storage.pool import create_engine
from tests.log_driver import new_key

pytestmark = pytest.mark.commits

INTERVAL_S = 0.1


@pytest_asyncio.fixture
async def own_database(empty_database_url: str) -> AsyncIterator[PgDatabase]:
    """A database of the test's own: what is counted is all there is."""
    await migrate(empty_database_url)
    engine = create_engine(empty_database_url, size=4)
    yield PgDatabase(engine)
    await engine.dispose()


class Worker:
    """The watch of one process, and what a scrape of it says."""

    def __init__(self, database: PgDatabase, interval_s: float = INTERVAL_S) -> None:
        self._metrics = Metrics()
        self.watch = DatabaseWatch(
            database=database,
            facts=PgDatabaseFacts(),
            meter=Meter(self._metrics, NO_RULES, {}),
            kinds=("compact",),
            interval_s=interval_s,
        )

    def told(self) -> dict[str, float]:
        """Return what it says of the whole database, by name and labels."""
        lines = self._metrics.scrape()[0].decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        names = ("foldline_jobs{", "foldline_compaction_lag", "foldline_db_oldest")
        return {name: float(value) for name, _, value in pairs if name.startswith(names)}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110  it is told by nobody
            await asyncio.sleep(0.02)


async def enqueue(database: PgDatabase, kind: str, *, due_since_s: float = 0) -> None:
    async with database.transaction() as connection:
        job = NewJob(key=new_key(uuid4().hex), incarnation=UUID(int=7), kind=kind)
        job_id = await PgJobQueue().enqueue(connection, job)
        await fetch(
            connection,
            "UPDATE jobs SET run_at = run_at - $2::float8 * interval '1 s' WHERE job_id = $1",
            job_id,
            due_since_s,
        )


async def test_jobs_are_told_by_kind_and_state_and_the_lag_is_of_the_oldest(
    own_database: PgDatabase,
) -> None:
    await enqueue(own_database, "compact", due_since_s=100)
    await enqueue(own_database, "compact")
    await enqueue(own_database, "compact_asked", due_since_s=500)
    worker = Worker(own_database)
    async with worker.watch.watching():
        await until(lambda: bool(worker.told()))
        told = worker.told()
    assert told['foldline_jobs{queue="compact",state="ready"}'] == 2
    assert told['foldline_jobs{queue="compact_asked",state="ready"}'] == 1
    assert told['foldline_jobs{queue="compact",state="dead"}'] == 0
    assert 100 <= told["foldline_compaction_lag_seconds"] < 130


async def test_an_open_transaction_is_told_with_its_age(own_database: PgDatabase) -> None:
    worker = Worker(own_database)
    async with own_database.transaction() as connection:
        await fetch(connection, "SELECT 1")
        await asyncio.sleep(0.5)
        async with worker.watch.watching():
            await until(lambda: bool(worker.told()))
            assert worker.told()["foldline_db_oldest_transaction_seconds"] >= 0.5


async def test_one_of_several_tells_and_another_goes_on_when_it_stops(
    own_database: PgDatabase,
) -> None:
    workers = [Worker(own_database) for _ in range(3)]
    async with workers[1].watch.watching(), workers[2].watch.watching():
        async with workers[0].watch.watching():
            for _ in range(20):
                assert sum(bool(worker.told()) for worker in workers) <= 1
                await asyncio.sleep(0.05)
            [first] = [worker for worker in workers if worker.told()]
        await until(lambda: sum(bool(worker.told()) for worker in workers[1:]) == 1)
        assert not workers[0].told()
    assert not any(worker.told() for worker in (first, *workers))


async def test_another_takes_over_when_the_lease_of_a_killed_worker_has_run_out(
    own_database: PgDatabase,
) -> None:
    async with own_database.connection() as connection:
        # As a worker that was killed leaves it.
        assert await PgDatabaseFacts().take_lease(connection, LEASE, UUID(int=1), 1.0)
    began = time.monotonic()
    other = Worker(own_database)
    async with other.watch.watching():
        await until(lambda: bool(other.told()))
    assert 0.9 <= time.monotonic() - began < 10
