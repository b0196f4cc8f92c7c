"""The queue: one open job per session and kind, leases and fencing, turns between tenants."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.ports import ClaimLimits, Job, NewJob, SessionKey
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.jobs import PgJobQueue
from tests.log_driver import SESSIONS, new_key, new_session

pytestmark = pytest.mark.commits

QUEUE = PgJobQueue()
ERROR = {"code": "broken", "detail": "it broke"}


@pytest.fixture
def kind() -> str:
    """A kind of the test's own, so that no other test's jobs are claimed."""
    return f"kind-{uuid4().hex}"


def _key(tenant_id: str) -> SessionKey:
    return new_key(tenant_id)


def _job(kind: str, key: SessionKey | None = None, **fields: Any) -> NewJob:
    return NewJob(key=key or new_key(), incarnation=UUID(int=7), kind=kind, **fields)


async def _enqueue(database: PgDatabase, *jobs: NewJob) -> list[UUID]:
    async with database.transaction() as connection:
        return [await QUEUE.enqueue(connection, job) for job in jobs]


async def _claim(database: PgDatabase, kind: str, **limits: Any) -> Sequence[Job]:
    wanted = {"jobs": 10, "per_tenant": 100, "lease_s": 60.0, "attempts": 3, **limits}
    # Another test's claim may be under way; then it is one's turn a moment later.
    for _ in range(20):
        async with database.transaction() as connection:
            jobs = await QUEUE.claim(connection, ClaimLimits(kinds=[kind], **wanted))
        if jobs:
            return jobs
        await asyncio.sleep(0.005)
    return []


async def _get(database: PgDatabase, job_id: UUID, tenant_id: str = "acme") -> Job:
    async with database.connection() as connection:
        job = await QUEUE.get(connection, tenant_id, job_id)
    assert job is not None
    return job


async def _expire(database: PgDatabase, job_id: UUID) -> None:
    async with database.connection() as connection:
        await fetch(
            connection,
            "UPDATE jobs SET lease_until = now() - interval '1 s' WHERE job_id = $1",
            job_id,
        )


async def test_a_session_has_one_open_job_of_a_kind(database: PgDatabase, kind: str) -> None:
    key = new_key()

    first, second = await _enqueue(database, _job(kind, key), _job(kind, key))
    [claimed] = await _claim(database, kind)
    [third] = await _enqueue(database, _job(kind, key))

    assert first == second == third == claimed.id


async def test_a_job_that_ended_makes_room_for_the_next(database: PgDatabase, kind: str) -> None:
    key = new_key()
    [first] = await _enqueue(database, _job(kind, key))
    [claimed] = await _claim(database, kind)

    async with database.transaction() as connection:
        assert await QUEUE.finish(connection, claimed, "done", result={"folded": 1})
        second = await QUEUE.enqueue(connection, _job(kind, key))

    assert second != first
    done = await _get(database, first)
    assert (done.status, done.result, done.is_open) == ("done", {"folded": 1}, False)


async def test_enqueueing_at_once_makes_one_job(database: PgDatabase, kind: str) -> None:
    key = new_key()

    ids = await asyncio.gather(*(_enqueue(database, _job(kind, key)) for _ in range(8)))

    assert len({job_id for [job_id] in ids}) == 1


async def test_a_job_rolled_back_with_its_transaction_was_never_there(
    database: PgDatabase, kind: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with database.transaction() as connection:
            await QUEUE.enqueue(connection, _job(kind))
            raise ZeroDivisionError

    assert not await _claim(database, kind)


async def test_a_claimed_job_is_claimed_by_no_one_else(database: PgDatabase, kind: str) -> None:
    await _enqueue(database, *(_job(kind) for _ in range(12)))

    claims = await asyncio.gather(*(_claim(database, kind, jobs=3) for _ in range(4)))

    ids = [job.id for jobs in claims for job in jobs]
    assert len(ids) == len(set(ids)) == 12


async def test_a_job_waits_for_its_time(database: PgDatabase, kind: str) -> None:
    await _enqueue(database, _job(kind, delay_s=3600))

    assert not await _claim(database, kind)


async def test_a_lease_that_ran_out_is_claimed_again_and_the_old_holder_has_lost(
    database: PgDatabase, kind: str
) -> None:
    await _enqueue(database, _job(kind))
    [old] = await _claim(database, kind)
    await _expire(database, old.id)

    [new] = await _claim(database, kind)

    assert (new.id, new.attempts, new.fencing_token) == (old.id, 2, old.fencing_token + 1)
    async with database.transaction() as connection:
        assert not await QUEUE.hold(connection, old)
        assert not await QUEUE.finish(connection, old, "done")
        assert not await QUEUE.release(connection, old)
        assert await QUEUE.retry(connection, old, delay_s=0, error=ERROR, max_attempts=9) is None
        assert await QUEUE.renew(connection, [old], 60) == frozenset()
        assert await QUEUE.renew(connection, [old, new], 60) == {new.id}
        assert await QUEUE.hold(connection, new)


async def test_a_job_that_takes_its_workers_along_is_dead_in_the_end(
    database: PgDatabase, kind: str
) -> None:
    key = new_key()
    [job_id] = await _enqueue(database, _job(kind, key))
    for _ in range(3):
        [claimed] = await _claim(database, kind, attempts=3)
        await _expire(database, claimed.id)

    assert not await _claim(database, kind, attempts=3)

    job = await _get(database, job_id)
    assert (job.status, job.attempts) == ("dead", 3)
    assert job.error is not None
    assert job.error["code"] == "lease_lost"
    # What is dead is in nobody's way.
    assert await _enqueue(database, _job(kind, key)) != [job_id]


async def test_a_renewed_lease_does_not_run_out(database: PgDatabase, kind: str) -> None:
    await _enqueue(database, _job(kind))
    [job] = await _claim(database, kind, lease_s=0.05)
    async with database.transaction() as connection:
        await QUEUE.renew(connection, [job], 60)
    await asyncio.sleep(0.1)

    assert not await _claim(database, kind)


async def test_a_failed_job_waits_and_is_dead_after_its_attempts(
    database: PgDatabase, kind: str
) -> None:
    [job_id] = await _enqueue(database, _job(kind))
    [job] = await _claim(database, kind)
    async with database.transaction() as connection:
        status = await QUEUE.retry(connection, job, delay_s=0, error=ERROR, max_attempts=2)
    assert status == "ready"
    [job] = await _claim(database, kind)

    async with database.transaction() as connection:
        status = await QUEUE.retry(connection, job, delay_s=0, error=ERROR, max_attempts=2)

    assert status == "dead"
    assert (await _get(database, job_id)).error == ERROR
    assert not await _claim(database, kind)


async def test_a_released_job_has_lost_no_attempt(database: PgDatabase, kind: str) -> None:
    await _enqueue(database, _job(kind))
    [job] = await _claim(database, kind)
    async with database.transaction() as connection:
        assert await QUEUE.release(connection, job)

    [again] = await _claim(database, kind)

    assert (again.attempts, again.fencing_token) == (1, job.fencing_token + 1)


async def test_tenants_take_turns(database: PgDatabase, kind: str) -> None:
    crowd = [_job(kind, _key("crowd")) for _ in range(6)]
    await _enqueue(database, *crowd, _job(kind, _key("lone")))

    first = await _claim(database, kind, jobs=2)
    second = await _claim(database, kind, jobs=2)

    assert Counter(job.key.tenant_id for job in first) == {"crowd": 1, "lone": 1}
    assert Counter(job.key.tenant_id for job in second) == {"crowd": 2}


async def test_a_tenant_has_no_more_running_than_its_share(database: PgDatabase, kind: str) -> None:
    # A tenant of the test's own: what others run counts too.
    tenant_id = f"tenant-{uuid4().hex}"
    await _enqueue(database, *(_job(kind, _key(tenant_id)) for _ in range(9)))

    claims = await asyncio.gather(*(_claim(database, kind, per_tenant=3) for _ in range(4)))

    claimed = [job for jobs in claims for job in jobs]
    assert len(claimed) == 3
    async with database.transaction() as connection:
        await QUEUE.finish(connection, claimed[0], "done")
    assert len(await _claim(database, kind, per_tenant=3)) == 1


async def test_the_oldest_comes_first(database: PgDatabase, kind: str) -> None:
    ids = [(await _enqueue(database, _job(kind)))[0] for _ in range(3)]

    claimed = [(await _claim(database, kind, jobs=1))[0].id for _ in range(3)]

    assert claimed == ids


async def test_a_cancelled_job_is_lost_to_whoever_runs_it(database: PgDatabase, kind: str) -> None:
    [job_id] = await _enqueue(database, _job(kind))
    [job] = await _claim(database, kind)

    async with database.transaction() as connection:
        cancelled = await QUEUE.cancel(connection, "acme", job_id)

    assert cancelled is not None
    assert cancelled.status == "cancelled"
    async with database.transaction() as connection:
        assert not await QUEUE.finish(connection, job, "done")
        # Once more changes nothing.
        assert await QUEUE.cancel(connection, "acme", job_id) == cancelled


async def test_a_job_is_another_tenants_to_neither_see_nor_cancel(
    database: PgDatabase, kind: str
) -> None:
    [job_id] = await _enqueue(database, _job(kind, _key("theirs")))

    async with database.transaction() as connection:
        assert await QUEUE.get(connection, "acme", job_id) is None
        assert await QUEUE.cancel(connection, "acme", job_id) is None

    assert (await _get(database, job_id, "theirs")).status == "ready"


async def test_jobs_go_with_their_session(database: PgDatabase, kind: str) -> None:
    key = await new_session(database)
    [job_id] = await _enqueue(database, _job(kind, key))

    async with database.transaction() as connection:
        await SESSIONS.erase(connection, key, actor="me", reason="test")

    async with database.connection() as connection:
        assert await QUEUE.get(connection, key.tenant_id, job_id) is None


async def test_what_ended_long_ago_is_pruned(database: PgDatabase, kind: str) -> None:
    old_id, open_id = await _enqueue(database, _job(kind), _job(kind))
    async with database.transaction() as connection:
        await QUEUE.cancel(connection, "acme", old_id)
        await fetch(
            connection,
            "UPDATE jobs SET finished_at = finished_at - interval '8 days' WHERE job_id = $1",
            old_id,
        )
        pruned = await QUEUE.prune(connection, older_than_s=7 * 86_400, limit=100)

    assert pruned >= 1
    assert (await _get(database, open_id)).is_open
    async with database.connection() as connection:
        assert await QUEUE.get(connection, "acme", old_id) is None
