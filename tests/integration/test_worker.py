"""The worker's loop: how many jobs at a time, what becomes of those that fail, and how it stops."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.core.errors import InvalidInputError, LeaseLostError, StorageUnavailableError
from app.core.model_rules import NO_RULES
from app.jobs.retries import retry_delay_s
from app.jobs.worker import Worker, WorkerLimits, running
from app.observability.meter import Meter
from app.observability.metrics import Metrics
from app.ports import Job, NewJob
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.jobs import PgJobQueue
from app.storage.pool import create_engine
from tests.log_driver import new_key

pytestmark = pytest.mark.commits

#: Where no database listens.
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
QUEUE = PgJobQueue()
METRICS = Metrics()
METER = Meter(METRICS, NO_RULES, {})


@pytest.fixture
def kind() -> str:
    """A kind of the test's own, so that no other test's jobs are taken."""
    return f"kind-{uuid4().hex}"


async def _enqueue(database: PgDatabase, kind: str, jobs: int = 1) -> list[UUID]:
    async with database.transaction() as connection:
        new = [NewJob(key=new_key(uuid4().hex), incarnation=UUID(int=7), kind=kind)] * jobs
        if jobs > 1:
            new = [
                NewJob(key=new_key("acme"), incarnation=UUID(int=7), kind=kind) for _ in range(jobs)
            ]
        return [await QUEUE.enqueue(connection, job) for job in new]


def _working(
    database: PgDatabase,
    kind: str,
    handler: Callable[[Job], Awaitable[None]],
    *,
    grace_s: float = 10.0,
    **limits: Any,
) -> AbstractAsyncContextManager[None]:
    worker = Worker(
        database=database,
        queue=QUEUE,
        handlers={kind: handler},
        meter=METER,
        limits=WorkerLimits(**{"per_tenant": 100, **limits}),
    )
    return running(worker, grace_s=grace_s)


async def _job(database: PgDatabase, job_id: UUID) -> Any:
    async with database.connection() as connection:
        [row] = await fetch(
            connection,
            """
            SELECT
                status, attempts, error ->> 'code' AS code, error ->> 'detail' AS detail,
                run_at > statement_timestamp() AS is_waiting
            FROM jobs
            WHERE job_id = $1
            """,
            job_id,
        )
    return row


async def _until(database: PgDatabase, job_id: UUID, *statuses: str) -> Any:
    async with asyncio.timeout(30):
        while True:
            row = await _job(database, job_id)
            if row["status"] in statuses:
                return row
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _started() -> AsyncIterator[tuple[asyncio.Event, Callable[[Job], Awaitable[None]]]]:
    """Give an event that tells when a job runs, and a handler that never ends by itself."""
    began = asyncio.Event()

    async def handler(job: Job) -> None:
        del job
        began.set()
        await asyncio.Event().wait()

    yield began, handler


async def _finish(database: PgDatabase, job: Job) -> None:
    async with database.transaction() as connection:
        await QUEUE.finish(connection, job, "done")


async def test_no_more_jobs_run_at_a_time_than_it_takes_on(database: PgDatabase, kind: str) -> None:
    at_once: list[int] = []
    now = 0

    async def handler(job: Job) -> None:
        nonlocal now
        now += 1
        at_once.append(now)
        await asyncio.sleep(0.02)
        now -= 1
        await _finish(database, job)

    ids = await _enqueue(database, kind, 8)
    async with _working(database, kind, handler, jobs=2):
        for job_id in ids:
            await _until(database, job_id, "done")

    assert max(at_once) == 2
    assert len(at_once) == 8


async def test_what_may_help_to_try_again_is_tried_again_later(
    database: PgDatabase, kind: str
) -> None:
    async def handler(job: Job) -> None:
        del job
        raise StorageUnavailableError

    [job_id] = await _enqueue(database, kind)
    async with _working(database, kind, handler):
        async with asyncio.timeout(30):
            while (await _job(database, job_id))["code"] is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    row = await _job(database, job_id)

    assert (row["status"], row["attempts"], row["is_waiting"]) == ("ready", 1, True)
    assert row["code"] == "unavailable"


async def test_a_bug_is_tried_again_and_tells_no_secrets(database: PgDatabase, kind: str) -> None:
    async def handler(job: Job) -> None:
        del job
        raise ValueError("the key is 1234")

    [job_id] = await _enqueue(database, kind)
    async with _working(database, kind, handler, attempts=1):
        row = await _until(database, job_id, "dead")

    assert (row["code"], row["detail"]) == ("internal", "ValueError")


async def test_what_cannot_be_done_fails_at_once(database: PgDatabase, kind: str) -> None:
    async def handler(job: Job) -> None:
        del job
        raise InvalidInputError("no such thing")

    [job_id] = await _enqueue(database, kind)
    async with _working(database, kind, handler):
        row = await _until(database, job_id, "failed")

    assert (row["attempts"], row["code"]) == (1, "invalid_request")


async def test_a_job_that_was_lost_is_left_alone(database: PgDatabase, kind: str) -> None:
    async def handler(job: Job) -> None:
        async with database.connection() as connection:
            await QUEUE.cancel(connection, job.key.tenant_id, job.id)
        raise LeaseLostError

    [job_id] = await _enqueue(database, kind)
    async with _working(database, kind, handler):
        row = await _until(database, job_id, "cancelled")

    assert row["code"] is None


async def test_the_lease_of_a_long_job_is_renewed(database: PgDatabase, kind: str) -> None:
    runs: list[int] = []

    async def handler(job: Job) -> None:
        runs.append(job.attempts)
        await asyncio.sleep(2.5)
        await _finish(database, job)

    [job_id] = await _enqueue(database, kind)
    async with (
        _working(database, kind, handler, lease_s=1.0),
        _working(database, kind, handler, lease_s=1.0),
    ):
        await _until(database, job_id, "done")

    assert runs == [1]


async def test_a_cancelled_job_is_ended_while_it_runs(database: PgDatabase, kind: str) -> None:
    async with _started() as (began, handler):
        [job_id] = await _enqueue(database, kind)
        async with _working(database, kind, handler, lease_s=0.3, grace_s=30):
            await began.wait()
            async with database.connection() as connection:
                await fetch(
                    connection, "UPDATE jobs SET status = 'cancelled' WHERE job_id = $1", job_id
                )
        # The worker stopped well within the grace: its job did not run on.

    assert (await _job(database, job_id))["status"] == "cancelled"


async def test_what_runs_may_finish_when_it_stops(database: PgDatabase, kind: str) -> None:
    began = asyncio.Event()

    async def handler(job: Job) -> None:
        began.set()
        await asyncio.sleep(0.2)
        await _finish(database, job)

    [job_id] = await _enqueue(database, kind)
    async with _working(database, kind, handler):
        await began.wait()

    assert (await _job(database, job_id))["status"] == "done"


async def test_what_does_not_finish_in_time_is_given_back(database: PgDatabase, kind: str) -> None:
    async with _started() as (began, handler):
        [job_id] = await _enqueue(database, kind)
        async with _working(database, kind, handler, grace_s=0.1):
            await began.wait()

    row = await _job(database, job_id)
    assert (row["status"], row["attempts"], row["is_waiting"]) == ("ready", 0, False)


async def test_while_the_process_drains_nothing_is_claimed(database: PgDatabase, kind: str) -> None:
    async def handler(job: Job) -> None:
        raise AssertionError(job)

    [job_id] = await _enqueue(database, kind)
    worker = Worker(database=database, queue=QUEUE, handlers={kind: handler}, meter=METER)
    async with running(worker, grace_s=1, is_draining=lambda: True):
        worker.wake()
        await asyncio.sleep(0.5)

    assert (await _job(database, job_id))["status"] == "ready"


@pytest.mark.parametrize(("attempts", "least_s", "most_s"), [(1, 1, 2), (3, 4, 8), (99, 150, 300)])
def test_the_delay_doubles_up_to_a_limit(attempts: int, least_s: float, most_s: float) -> None:
    assert retry_delay_s(attempts, ValueError(), 0.0) == least_s
    assert retry_delay_s(attempts, ValueError(), 1.0) == most_s


async def test_a_job_whose_lease_ran_out_here_is_run_by_its_new_claim_alone(
    database: PgDatabase, kind: str
) -> None:
    """As when the loop was too busy to renew: the worker itself claims the job again."""
    (job_id,) = await _enqueue(database, kind)
    started: list[int] = []
    lost, ended = asyncio.Event(), asyncio.Event()

    async def handle(job: Job) -> None:
        started.append(job.attempts)
        if len(started) == 1:
            async with database.transaction() as connection:
                sql = "UPDATE jobs SET lease_until = now() - interval '1 minute' WHERE job_id = $1"
                await fetch(connection, sql, job.id)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                lost.set()
                raise
        # Still ours after the one before has ended.
        await asyncio.wait_for(lost.wait(), 10)
        await asyncio.sleep(0.1)
        async with database.transaction() as connection:
            await QUEUE.finish(connection, job, "done")
        ended.set()

    async with _working(database, kind, handle, lease_s=600, jobs=2):
        await asyncio.wait_for(ended.wait(), 20)

    assert len(started) == 2
    async with database.connection() as connection:
        rows = await fetch(connection, "SELECT status FROM jobs WHERE job_id = $1", job_id)
    assert rows[0]["status"] == "done"


async def test_a_worker_asks_a_database_that_is_away_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away, stop, pauses = PgDatabase(create_engine(NOWHERE, size=1)), asyncio.Event(), list[float]()

    async def wait(_: Worker, pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 7:
            stop.set()

    monkeypatch.setattr(Worker, "_wait", wait)
    worker = Worker(database=away, queue=QUEUE, handlers={}, meter=METER)
    await worker.run(stop, grace_s=0)
    await away.engine.dispose()

    assert pauses == [1, 2, 4, 8, 16, 30, 30]
