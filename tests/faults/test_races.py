"""What happens while a summary is being made: the model is on a real socket, and takes its time.

A gate holds the model's answer back. Meanwhile something else happens to the session; then the
answer comes, and the job either appends what it planned or plans anew.
"""

import asyncio
import statistics
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final
from uuid import uuid4

import asyncpg
import pytest
from pydantic import SecretStr

from tests.api.conftest import Api, call, client_of, response, settings_for, user
from tests.api.test_compactions import ended, turn
from tests.fakes import model_server
from tests.fakes.model_server import ModelServer, Request, Step, fails

pytestmark = pytest.mark.commits

#: Short, so that it is smaller than whatever it stands for.
SUMMARY: Final = "## Facts\n- Orders go to Oslo before Friday. [1]\n## Story\n- They were told. [1]"
POLICY: Final = {"summarizer": {"kind": "openai", "model": "model-1"}}
PATIENCE_S: Final = 60.0


#: Turns whose times are compared.
TURNS_TIMED: Final = 15
#: Jobs that the worker of these tests does at a time.
JOBS_AT_A_TIME: Final = 2


class Gate:
    """Holds a model's answers back until it is opened."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._opened = threading.Event()
        server.writer = self._write

    def _write(self, request: Request) -> str:
        del request
        assert self._opened.wait(PATIENCE_S)
        return SUMMARY

    async def asked(self, times: int = 1) -> None:
        """Wait until the model was asked so often."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self._server.requests) < times:  # noqa: ASYNC110  it is another thread
                await asyncio.sleep(0.01)

    def open(self) -> None:
        """Let everything pass from now on."""
        self._opened.set()

    def close(self) -> None:
        """Hold back what is asked from now on."""
        self._opened.clear()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gate(server: ModelServer) -> Iterator[Gate]:
    gate = Gate(server)
    yield gate
    gate.open()


@pytest.fixture
async def api(own_database_url: str, server: ModelServer) -> AsyncIterator[Api]:
    """The service with a worker whose summaries come from the model."""
    settings = settings_for(
        own_database_url,
        worker="embedded",
        summarizer="openai",
        summarizer_url=server.url("openai"),
        summarizer_model="model-1",
        summarizer_timeout_s=30.0,
        worker_jobs=JOBS_AT_A_TIME,
    )
    async with client_of(settings) as client:
        yield Api(client)


async def _asked_to_fold(api: Api, *, turns: int = 4, **wanted: Any) -> tuple[str, str]:
    """Return the path of a session of so many turns, and the job that folds it."""
    path = await api.session(policy=POLICY)
    await api.append(path, *(e for number in range(1, turns + 1) for e in turn(number)))
    asked = await api.post(f"{path}/compactions", {"mode": "range", **wanted})
    assert asked.status_code == 202, asked.text
    return path, asked.json()["job_id"]


async def _folds(api: Api, path: str) -> list[dict[str, Any]]:
    folds: list[dict[str, Any]] = (await api.get(f"{path}/compactions")).json()["data"]
    return folds


def _seqs(covers: list[list[int]]) -> set[int]:
    return {seq for start, end in covers for seq in range(start, end + 1)}


async def test_what_is_appended_meanwhile_hinders_nothing(
    api: Api, gate: Gate, server: ModelServer
) -> None:
    path, job_id = await _asked_to_fold(api)
    await gate.asked()
    for number in range(5, 25):
        await api.append(path, *turn(number, "Short."))
        compiled = await api.post(f"{path}/compile", {"format": "anthropic"})
        assert compiled.status_code == 200

    gate.open()

    assert (await ended(api, job_id))["status"] == "done"
    [fold] = await _folds(api, path)
    assert (fold["covers"], fold["summarizer"], fold["attempts"]) == ([[1, 8]], "openai", 1)
    assert len(server.requests) == 1


async def test_no_transaction_is_open_while_the_model_is_asked(
    api: Api, gate: Gate, own_database_url: str
) -> None:
    _, job_id = await _asked_to_fold(api)
    await gate.asked()

    watcher = await asyncpg.connect(own_database_url)
    open_transactions = await watcher.fetch(
        """
        SELECT state, query
        FROM pg_stat_activity
        WHERE
            datname = current_database()
            AND pid <> pg_backend_pid()
            AND backend_type = 'client backend'
            AND xact_start < clock_timestamp() - interval '100 milliseconds'
        """
    )
    await watcher.close()
    gate.open()

    assert open_transactions == []
    assert (await ended(api, job_id))["status"] == "done"


async def test_a_model_that_does_not_answer_slows_nobody(
    api: Api, gate: Gate, server: ModelServer
) -> None:
    path = await api.session(policy=POLICY)
    await _seconds_of_a_turn(api, path)
    before_s = [await _seconds_of_a_turn(api, path) for _ in range(TURNS_TIMED)]
    # As many as a worker does at a time, and one that waits.
    waiting = [await _asked_to_fold(api) for _ in range(JOBS_AT_A_TIME + 1)]
    await gate.asked(JOBS_AT_A_TIME)

    # With the session that is being folded too; whoever locked it would keep this waiting for ever.
    async with asyncio.timeout(PATIENCE_S):
        await _seconds_of_a_turn(api, waiting[0][0])
        during_s = [await _seconds_of_a_turn(api, path) for _ in range(TURNS_TIMED)]

    assert len(server.requests) == JOBS_AT_A_TIME
    assert statistics.median(during_s) < 3 * statistics.median(before_s) + 0.05
    gate.open()
    for _, job_id in waiting:
        assert (await ended(api, job_id))["status"] == "done"


async def _seconds_of_a_turn(api: Api, path: str) -> float:
    """Append a question and compile, and return how long it took."""
    started_s = time.perf_counter()
    await api.append(path, user("What now?", id=uuid4().hex))
    assert (await api.post(f"{path}/compile", {})).status_code == 200
    return time.perf_counter() - started_s


async def test_a_rewind_makes_it_plan_anew(api: Api, gate: Gate, server: ModelServer) -> None:
    path, job_id = await _asked_to_fold(api)
    await gate.asked()
    await api.post(f"{path}/rewind", {"to_seq": 6})

    gate.open()

    assert (await ended(api, job_id))["status"] == "done"
    [fold] = await _folds(api, path)
    assert fold["covers"] == [[1, 6]]
    assert len(server.requests) == 2


async def test_a_rewind_of_what_comes_after_the_span_changes_nothing(
    api: Api, gate: Gate, server: ModelServer
) -> None:
    path, job_id = await _asked_to_fold(api, to_seq=4)
    await gate.asked()
    await api.post(f"{path}/rewind", {"to_seq": 6})

    gate.open()

    assert (await ended(api, job_id))["status"] == "done"
    assert [fold["covers"] for fold in await _folds(api, path)] == [[[1, 4]]]
    assert len(server.requests) == 1


async def test_a_pin_makes_it_plan_anew(api: Api, gate: Gate, server: ModelServer) -> None:
    path, job_id = await _asked_to_fold(api)
    await gate.asked()
    await api.post(f"{path}/pins", {"seqs": [3]})

    gate.open()

    assert (await ended(api, job_id))["status"] == "done"
    [fold] = await _folds(api, path)
    assert _seqs(fold["covers"]) == {1, 2, 4, 5, 6, 7, 8}
    assert len(server.requests) == 2


async def test_another_summary_makes_it_plan_anew(
    api: Api, gate: Gate, server: ModelServer
) -> None:
    path, job_id = await _asked_to_fold(api)
    await gate.asked()
    own = {"covers": {"from_seq": 1, "to_seq": 4}, "content": "The first two turns."}
    assert (await api.post(f"{path}/summaries", own)).status_code == 201

    gate.open()

    assert (await ended(api, job_id))["status"] == "done"
    first, second = await _folds(api, path)
    assert (first["summarizer"], first["covers"]) == (None, [[1, 4]])
    # What was summarized there is carried on, and shown no more.
    assert (first["status"], second["status"]) == ("superseded", "active")
    assert second["covers"] == [[1, 8]]
    assert len(server.requests) == 2
    assert "The first two turns." in server.requests[1].texts[1]


async def test_a_staged_summary_makes_it_plan_anew(
    api: Api, gate: Gate, server: ModelServer
) -> None:
    path, job_id = await _asked_to_fold(api)
    await gate.asked()
    own = {
        "covers": {"from_seq": 1, "to_seq": 4},
        "content": "The first two turns.",
        "activation": "staged",
    }
    assert (await api.post(f"{path}/summaries", own)).status_code == 201

    gate.open()

    assert (await ended(api, job_id))["status"] == "done"
    assert len(await _folds(api, path)) == 2
    assert len(server.requests) == 2
    assert "The first two turns." in server.requests[1].texts[1]


async def test_the_undo_of_a_fold_that_it_builds_on_makes_it_plan_anew(
    api: Api, gate: Gate, server: ModelServer
) -> None:
    gate.open()
    path, job_id = await _asked_to_fold(api)
    await ended(api, job_id)
    [first] = await _folds(api, path)
    gate.close()
    await api.append(path, *(e for number in range(5, 8) for e in turn(number)))
    asked = await api.post(f"{path}/compactions", {"mode": "range"})
    await gate.asked(2)
    assert "They were told." in server.requests[1].texts[1]
    await api.post(f"{path}/compactions/{first['seq']}/undo")

    gate.open()

    assert (await ended(api, asked.json()["job_id"]))["status"] == "done"
    assert len(server.requests) == 3
    assert "They were told." not in server.requests[2].texts[1]
    _, second = await _folds(api, path)
    # Over the first fold, which stands at 9.
    assert second["covers"] == [[1, 15]]


async def test_the_end_of_the_session_is_the_end_of_the_job(api: Api, gate: Gate) -> None:
    path, job_id = await _asked_to_fold(api)
    await gate.asked()
    assert (await api.delete(path)).status_code == 204
    sid = path.rpartition("/")[2]
    await api.put(path, {"app_name": "app", "user_id": "user"})
    await api.append(path, *turn(1), *turn(2))

    gate.open()
    await asyncio.sleep(1.0)

    assert (await api.get(f"/v1/jobs/{job_id}")).status_code == 404
    assert await _folds(api, path) == []
    assert await api.head_seq(f"/v1/sessions/{sid}") == 4


async def test_a_cancelled_job_appends_nothing(api: Api, gate: Gate) -> None:
    path, job_id = await _asked_to_fold(api)
    await gate.asked()
    await api.post(f"/v1/jobs/{job_id}/cancel")

    gate.open()
    again = await api.post(f"{path}/compactions", {"mode": "range", "wait_ms": 30_000})

    assert again.status_code == 201
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["status"] == "cancelled"
    assert len(await _folds(api, path)) == 1


async def test_a_late_result_stays_outside_of_a_fold_that_holds_its_call(
    api: Api, gate: Gate
) -> None:
    path = await api.session(policy=POLICY)
    await api.append(path, *turn(1), call("search", "c1"), *turn(2), *turn(3))
    asked = await api.post(f"{path}/compactions", {"mode": "range"})
    await gate.asked()
    await api.append(path, response("search", "c1"))

    gate.open()

    assert (await ended(api, asked.json()["job_id"]))["status"] == "done"
    [fold] = await _folds(api, path)
    assert 8 not in _seqs(fold["covers"])
    compiled = await api.post(f"{path}/compile", {"format": "anthropic"})
    checked = await api.post(
        "/v1/validate", {"format": "anthropic", "request": compiled.json()["request"]}
    )
    assert checked.json()["violations"] == []


async def test_work_left_while_a_job_runs_is_not_forgotten(api: Api, gate: Gate) -> None:
    one = {"strategy": "interval", "compaction_interval": 1, "overlap_size": 0}
    path = await api.session(policy={**POLICY, "compaction": one})
    first = (await api.append(path, *turn(1)))["compaction"]["job_id"]
    await gate.asked()
    # These two find the first job open.
    for number in (2, 3):
        assert (await api.append(path, *turn(number)))["compaction"]["job_id"] == first

    gate.open()

    async with asyncio.timeout(PATIENCE_S):
        while len(await _folds(api, path)) < 3:  # noqa: ASYNC110  it is over HTTP
            await asyncio.sleep(0.05)
    covered = [_seqs(fold["covers"]) for fold in await _folds(api, path)]
    assert covered == [{1, 2}, {3, 4}, {5, 6}]


MISBEHAVIOUR: Final[dict[str, tuple[Step, str]]] = {
    "limits": (fails(429, retry_after="0"), "provider_rate_limited"),
    "refuses": (fails(400), "provider_rejected"),
    "is_down": (fails(503, retry_after="0"), "provider_unavailable"),
    "hangs": (model_server.HANGS, "provider_timeout"),
    "breaks_off": (model_server.HALF, "provider_unavailable"),
    "garbles": (model_server.GARBAGE, "provider_rejected"),
    "says_nothing": (model_server.EMPTY, "empty"),
    "is_cut_off": (model_server.TRUNCATED, "truncated"),
    "apologises": (model_server.APOLOGY, "apology"),
    "answers_an_error": (model_server.ERROR_TEXT, "error_text"),
}


@pytest.mark.parametrize("misbehaviour", MISBEHAVIOUR)
async def test_whatever_the_model_does_the_session_is_folded(
    own_database_url: str, server: ModelServer, misbehaviour: str
) -> None:
    step, reason = MISBEHAVIOUR[misbehaviour]
    server.script(step)
    settings = settings_for(
        own_database_url,
        worker="embedded",
        summarizer="openai",
        summarizer_url=server.url("openai"),
        summarizer_model="model-1",
        summarizer_api_key=SecretStr("key-of-the-model"),
        # Long enough for the adapter to try again, but where nothing ever comes.
        summarizer_timeout_s=1.0 if step.hangs else 20.0,
    )
    async with client_of(settings) as client:
        api = Api(client)
        path, job_id = await _asked_to_fold(api)
        await api.append(path, user("still here", id=uuid4().hex))
        assert (await api.post(f"{path}/compile", {})).status_code == 200
        job = await ended(api, job_id)
        [fold] = await _folds(api, path)

    assert job["status"] == "done"
    assert fold["covers"] == [[1, 8]]
    assert (fold["summarizer"], fold["fallback_reason"]) == ("extractive", reason)
    assert fold["attempts"] >= 1
