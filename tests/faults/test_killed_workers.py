"""Workers that are killed while they work: nothing is lost, and nothing is folded twice.

Where a worker stands is arranged from outside: a lock that it runs into, or a model that does not
answer. No code of ours knows of these tests.
"""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import pytest

from tests.api.test_compactions import turn
from tests.fakes.model_server import ModelServer, Request
from tests.faults.processes import PATIENCE_S, POLL_S, Fleet, Process, fleet

pytestmark = pytest.mark.commits

SUMMARY: Final = "## Facts\n- Orders go to Oslo before Friday. [1]\n## Story\n- They were told. [1]"
POLICY: Final = {
    "compaction": {"strategy": "interval", "compaction_interval": 2, "overlap_size": 0},
    "summarizer": {"kind": "openai", "model": "model-1"},
}

#: Makes whoever ends a job wait for an advisory lock: the fold is inserted then, not committed.
HOLD_THE_END: Final = """
    CREATE FUNCTION wait_at_the_end() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.status = 'done' THEN
            PERFORM pg_advisory_xact_lock(4711);
        END IF;
        RETURN NEW;
    END
    $$;
    CREATE TRIGGER wait_at_the_end BEFORE UPDATE ON jobs
    FOR EACH ROW EXECUTE FUNCTION wait_at_the_end();
"""


class SlowModel:
    """A model that answers when it is let."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.opened = threading.Event()
        server.writer = self._write

    def _write(self, request: Request) -> str:
        del request
        assert self.opened.wait(PATIENCE_S)
        return SUMMARY


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def slow(model_server: ModelServer) -> Iterator[SlowModel]:
    slow = SlowModel(model_server)
    yield slow
    slow.opened.set()


@pytest.fixture
def processes(own_database_url: str, tmp_path: Path, model_server: ModelServer) -> Iterator[Fleet]:
    settings = {
        "SUMMARIZER": "openai",
        "SUMMARIZER_URL": model_server.url("openai"),
        "SUMMARIZER_MODEL": "model-1",
        # On a busy machine a process may stand still for longer than a second; a lease that ran out
        # without anyone being killed would be another test.
        "JOB_LEASE_S": "4",
    }
    with fleet(own_database_url, tmp_path, **settings) as made:
        yield made


@asynccontextmanager
async def _connected(url: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def _wait_for(url: str, condition: str) -> None:
    """Wait until a condition of the database holds."""
    async with _connected(url) as connection, asyncio.timeout(PATIENCE_S):
        while not await connection.fetchval(f"SELECT {condition}"):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


#: Of workers, while they work on 40 folds.
KILLS: Final = 8
RUNNING: Final = "EXISTS (SELECT FROM jobs WHERE status = 'running')"
BLOCKED: Final = """EXISTS (
    SELECT FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
)"""
ALL_ENDED: Final = "NOT EXISTS (SELECT FROM jobs WHERE status IN ('ready', 'running'))"


def _fill(client: httpx.Client, session_id: str, turns: int) -> str:
    path = f"/v1/sessions/{session_id}"
    body = {"app_name": "app", "user_id": "user", "policy": POLICY}
    assert client.put(path, json=body).status_code == 201
    for number in range(1, turns + 1):
        answer = client.post(f"{path}/events", json={"events": turn(number)})
        assert answer.status_code == 201, answer.text
    return path


def _folds(client: httpx.Client, path: str) -> list[dict[str, Any]]:
    folds: list[dict[str, Any]] = client.get(f"{path}/compactions").json()["data"]
    return folds


def _assert_folded_once(client: httpx.Client, path: str, turns: int) -> None:
    """See that every turn is in one fold, and that each fold holds an interval."""
    said: list[int] = []
    folds = _folds(client, path)
    for fold in folds:
        assert fold["status"] == "active"
        said += [seq for start, end in fold["covers"] for seq in range(start, end + 1)]
    # A range may run over folds that were made meanwhile.
    said = [seq for seq in said if seq not in {fold["seq"] for fold in folds}]
    assert len(said) == len(set(said)) == turns * 2
    assert len(folds) == turns // 2


async def _killed_at_a_lock(url: str, processes: Fleet, lock: str) -> None:
    """Let a worker run into a lock, and kill it there."""
    async with _connected(url) as holder:
        holding = holder.transaction()
        await holding.start()
        await holder.execute(lock)
        worker = processes.worker()
        await _wait_for(url, RUNNING)
        await _wait_for(url, BLOCKED)
        worker.kill()
        await holding.rollback()
    assert worker.process.returncode == -9


@pytest.mark.parametrize(
    ("step", "lock"),
    [
        # What is read first of a log is its markers.
        pytest.param(
            "after the claim",
            "LOCK TABLE events IN ACCESS EXCLUSIVE MODE",
            id="claimed",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "after the call",
            "SELECT head_seq FROM sessions FOR UPDATE",
            id="summarized",
            marks=pytest.mark.slow,
        ),
        pytest.param("before the commit", "SELECT pg_advisory_xact_lock(4711)", id="inserted"),
    ],
)
async def test_a_worker_killed_at_any_step_loses_nothing(
    own_database_url: str, processes: Fleet, slow: SlowModel, step: str, lock: str
) -> None:
    slow.opened.set()
    async with _connected(own_database_url) as connection:
        await connection.execute(HOLD_THE_END)
    _, client = processes.service()
    path = await asyncio.to_thread(_fill, client, "s", 2)

    await _killed_at_a_lock(own_database_url, processes, lock)

    assert _folds(client, path) == [], step
    processes.worker()
    await _wait_for(own_database_url, ALL_ENDED)
    _assert_folded_once(client, path, 2)
    [job] = await _jobs(own_database_url)
    assert (job["status"], job["attempts"]) == ("done", 2)


async def _jobs(url: str) -> list[Any]:
    async with _connected(url) as connection:
        rows: list[Any] = await connection.fetch("SELECT status, attempts FROM jobs")
        return rows


async def test_a_worker_killed_while_the_model_is_asked_loses_nothing(
    own_database_url: str, processes: Fleet, slow: SlowModel
) -> None:
    _, client = processes.service()
    path = await asyncio.to_thread(_fill, client, "s", 2)
    worker = processes.worker()
    async with asyncio.timeout(PATIENCE_S):
        while not slow.server.requests:  # noqa: ASYNC110  it is another thread
            await asyncio.sleep(POLL_S)

    worker.kill()
    assert client.post(f"{path}/events", json={"events": turn(3)}).status_code == 201
    assert client.post(f"{path}/compile", json={}).status_code == 200
    slow.opened.set()
    processes.worker()

    await _wait_for(own_database_url, ALL_ENDED)
    assert [fold["covers"] for fold in _folds(client, path)] == [[[1, 4]]]


async def test_a_worker_that_is_told_to_stop_gives_its_job_back(
    own_database_url: str, tmp_path: Path, model_server: ModelServer, slow: SlowModel
) -> None:
    settings = {
        "SUMMARIZER": "openai",
        "SUMMARIZER_URL": model_server.url("openai"),
        "SUMMARIZER_MODEL": "model-1",
        "SHUTDOWN_GRACE_S": "0.5",
        "JOB_LEASE_S": "600",
    }
    with fleet(own_database_url, tmp_path, **settings) as processes:
        _, client = processes.service()
        path = await asyncio.to_thread(_fill, client, "s", 2)
        worker = processes.worker()
        async with asyncio.timeout(PATIENCE_S):
            while not slow.server.requests:  # noqa: ASYNC110  it is another thread
                await asyncio.sleep(POLL_S)

        assert await asyncio.to_thread(worker.terminate) == 0

        [job] = await _jobs(own_database_url)
        assert (job["status"], job["attempts"]) == ("ready", 0)
        slow.opened.set()
        processes.worker()
        await _wait_for(own_database_url, ALL_ENDED)
        _assert_folded_once(client, path, 2)


@pytest.mark.slow
def test_workers_that_are_killed_again_and_again_fold_each_range_once(
    own_database_url: str, processes: Fleet, model_server: ModelServer
) -> None:
    """4 workers and 3 services on one database; while they work, one worker after another dies."""
    chance = random.Random(7)  # noqa: S311

    def write(request: Request) -> str:
        del request
        time.sleep(chance.uniform(0.0, 0.4))
        return SUMMARY

    model_server.writer = write
    clients = [processes.service()[1] for _ in range(3)]
    workers = [processes.worker() for _ in range(4)]
    sessions, turns = 8, 10
    failures: list[str] = []

    def talk(number: int) -> None:
        client = clients[number % len(clients)]
        try:
            path = _fill(client, f"s{number}", turns)
            for _ in range(5):
                assert client.post(f"{path}/compile", json={}).status_code == 200
        except Exception as error:  # noqa: BLE001  told in the main thread
            failures.append(repr(error))

    talkers = [threading.Thread(target=talk, args=(number,)) for number in range(sessions)]
    for talker in talkers:
        talker.start()
    kills = 0
    # By what the workers do and not by the clock: on a busy machine they are slow to begin.
    while kills < KILLS and not _is_over(talkers, own_database_url):
        if asyncio.run(_holds(own_database_url, RUNNING)):
            time.sleep(chance.uniform(0.0, 0.3))
            killed = chance.randrange(len(workers))
            workers[killed].kill()
            workers[killed] = processes.worker()
            kills += 1
        time.sleep(POLL_S)
    for talker in talkers:
        talker.join()

    asyncio.run(_wait_for(own_database_url, ALL_ENDED))
    assert kills > KILLS // 2
    assert failures == []
    for number in range(sessions):
        _assert_folded_once(clients[0], f"/v1/sessions/s{number}", turns)
    assert all(_is_alive(worker) for worker in workers)
    dead = asyncio.run(_count(own_database_url, "SELECT count(*) FROM jobs WHERE status = 'dead'"))
    assert dead == 0


def _is_over(talkers: list[threading.Thread], url: str) -> bool:
    if any(talker.is_alive() for talker in talkers):
        return False
    return asyncio.run(_holds(url, ALL_ENDED))


async def _holds(url: str, condition: str) -> bool:
    async with _connected(url) as connection:
        holds: bool = await connection.fetchval(f"SELECT {condition}")
        return holds


def _is_alive(process: Process) -> bool:
    return process.process.poll() is None


async def _count(url: str, query: str) -> int:
    async with _connected(url) as connection:
        counted: int = await connection.fetchval(query)
        return counted
