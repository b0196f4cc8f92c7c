"""Many requests: memory stays flat, and nothing is left open when the service has ended.

The bounded form runs with every change; the long one is as many requests as a busy hour has.
"""

import asyncio
import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import psutil
import pytest

from app.storage.migrate import migrate
from tests.api.conftest import ADMIN_KEY, client_of, settings_for
from tests.faults.processes import Fleet, Process, fleet

pytestmark = pytest.mark.commits

#: Turns of one round; each appends twice and compiles once.
ROUND: Final = 500
ROUNDS: Final = 12
#: After these the caches are full, and what is imported is imported.
WARM_ROUNDS: Final = 4
#: What memory may grow by over all later rounds together; the allocator's own breath.
GROWTH_BYTES: Final = 24 * 1024 * 1024
#: How often the application is started and ended again.
MORE_TIMES: Final = 3
POLICY: Final = {
    "compaction": {
        "strategy": "interval",
        "compaction_interval": 2,
        "overlap_size": 0,
        "worth_check": False,
    }
}


@pytest.fixture
def processes(empty_database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    asyncio.run(migrate(empty_database_url))
    with fleet(empty_database_url, tmp_path, COMPILE_CACHE_BYTES=str(4 * 1024 * 1024)) as made:
        yield made


def _round(client: httpx.Client, turns: int) -> None:
    """Hold conversations of ten turns, each in a session of its own that is erased at its end."""
    for _ in range(turns // 10):
        path = f"/v1/sessions/{uuid4().hex}"
        body: dict[str, Any] = {"app_name": "a", "user_id": "u", "policy": POLICY}
        client.put(path, json=body).raise_for_status()
        for turn in range(10):
            said = {"author": "user", "content": f"{turn} " * 200, "invocation_id": f"i{turn}"}
            _post(client, f"{path}/events", {"events": [said]})
            compiled = _post(client, f"{path}/compile", {"agent": "a", "format": "anthropic"})
            reply = {
                "author": "a",
                "content": {"role": "model", "parts": [{"text": "so it is " * 50}]},
                "invocation_id": f"i{turn}",
                "compiled_seq": compiled["compiled_seq"],
                "compiled_fingerprint": compiled["fingerprint"],
            }
            _post(client, f"{path}/events", {"events": [reply]})
        client.delete(path).raise_for_status()


def _post(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _resident_bytes(process: Process) -> int:
    return int(psutil.Process(process.process.pid).memory_info().rss)


def _open_files(process: Process) -> int:
    return int(psutil.Process(process.process.pid).num_fds())


@pytest.mark.slow
def test_memory_stays_flat_over_many_requests(processes: Fleet) -> None:
    worker = processes.worker()
    service, client = processes.service()
    sizes: list[int] = []
    files: list[int] = []
    for _ in range(ROUNDS):
        _round(client, ROUND)
        sizes.append(_resident_bytes(service) + _resident_bytes(worker))
        files.append(_open_files(service) + _open_files(worker))

    told = [f"{size / 2**20:.0f} MiB" for size in sizes]
    assert sizes[-1] - sizes[WARM_ROUNDS - 1] < GROWTH_BYTES, told
    # One connection more or less, of the pools.
    assert files[-1] <= max(files[:WARM_ROUNDS]) + 2
    assert service.terminate() == 0
    assert worker.terminate() == 0


async def test_nothing_is_left_when_the_application_has_ended(database_url: str) -> None:
    """Tasks, connections and files: after the lifespan everything is as it was before."""
    process = psutil.Process(os.getpid())

    async def serve_once() -> None:
        async with client_of(settings_for(database_url, worker="embedded")) as client:
            client.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
            path = f"/v1/sessions/{uuid4().hex}"
            await client.put(path, json={"app_name": "a", "user_id": "u", "policy": POLICY})
            events = [{"author": "user", "content": str(n)} for n in range(5)]
            answers = await asyncio.gather(
                *[client.post(f"{path}/events", json={"events": events}) for _ in range(10)],
                *[client.post(f"{path}/compile", json={"min_seq": 0}) for _ in range(10)],
            )
            assert all(answer.is_success for answer in answers)

    # What the first time imports and opens for good.
    await serve_once()
    before = {task.get_name() for task in asyncio.all_tasks()}
    files = process.num_fds()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(MORE_TIMES):
            await serve_once()
        gc.collect()

    assert {task.get_name() for task in asyncio.all_tasks()} == before
    # Something else in this process may open a file meanwhile, but not one each time.
    assert process.num_fds() < files + MORE_TIMES
    assert [str(each.message) for each in caught if each.category is ResourceWarning] == []
