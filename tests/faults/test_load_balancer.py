"""Three replicas behind HAProxy and two workers, killed and rolled, on one Postgres and Redis.

Whatever was acknowledged is there afterwards, once and in its place; a rolling restart fails no
request; and every replica compiles every position to the same bytes.
"""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.storage.migrate import migrate
from tests.faults.balancer import balanced
from tests.faults.processes import ADMIN_KEY, PATIENCE_S, Fleet, Process, fleet, limited_key
from tests.programs import free_ports
from tests.redis_server import RedisServer

pytestmark = pytest.mark.commits

REPLICAS: Final = 3
WORKERS: Final = 2
AT_ONCE: Final = 8
#: After each turn of the short form, so that the replicas have time to start.
PAUSE_S: Final = 0.1
#: Answers of a balancer or a service that cannot serve now; whoever gets one asks again.
TRY_AGAIN: Final = frozenset({502, 503, 504})
RETRY_S: Final = 0.05
POLICY: Final = {
    "compaction": {
        "strategy": "interval",
        "compaction_interval": 2,
        "overlap_size": 0,
        "worth_check": False,
    }
}


@dataclass
class Load:
    """Writers of many sessions: each appends, compiles, and appends the reply; all are checked."""

    client: httpx.AsyncClient
    sessions: list[str]
    #: After each turn, for each writer.
    pause_s: float = 0.0
    #: By session, by id: the seq that was answered.
    acknowledged: dict[str, dict[str, int]] = field(default_factory=dict)
    #: By session and position: what was compiled there.
    compiled: dict[tuple[str, int], str] = field(default_factory=dict)
    #: Requests that succeeded.
    operations: int = 0
    #: What came instead of an answer, by kind.
    failures: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)

    async def run(self, operations: int, meanwhile: Coroutine[Any, Any, None]) -> None:
        """Write until there were so many operations, and at least while ``meanwhile`` runs."""
        target = self.operations + operations
        disturbing = asyncio.create_task(meanwhile)
        queue = asyncio.Queue[str]()
        for session in self.sessions:
            queue.put_nowait(session)

        async def write() -> None:
            while self.operations < target or not disturbing.done():
                session = await queue.get()
                await self._turn(session)
                queue.put_nowait(session)
                await asyncio.sleep(self.pause_s)

        await asyncio.gather(*[write() for _ in range(AT_ONCE)])
        await disturbing

    async def _turn(self, session: str) -> None:
        self.turns[session] += 1
        name = f"t{self.turns[session]}"
        said = {"author": "user", "content": f"{name} of {session}: " + "where is it? " * 20}
        await self._append(session, {"id": f"{name}-u", "invocation_id": name, **said})
        answer = await self._ask("POST", session, "/compile", {"agent": "a", "format": "anthropic"})
        seq = answer["compiled_seq"]
        text = json.dumps(answer["request"])
        assert self.compiled.setdefault((session, seq), text) == text
        reply = {"author": "a", "content": {"role": "model", "parts": [{"text": "there " * 20}]}}
        made_for = {"compiled_seq": seq, "compiled_fingerprint": answer["fingerprint"]}
        identity = {"id": f"{name}-a", "invocation_id": name}
        await self._append(session, {**identity, **reply, **made_for})

    async def _append(self, session: str, event: dict[str, Any]) -> None:
        answer = await self._ask("POST", session, "/events", {"events": [event]})
        (entry,) = answer["appended"]
        assert entry["id"] == event["id"]
        self.acknowledged.setdefault(session, {})[entry["id"]] = entry["seq"]

    async def create(self) -> None:
        """Make the sessions."""
        body = {"app_name": "shop", "user_id": "ada", "policy": POLICY}
        await asyncio.gather(*[self._ask("PUT", session, "", body) for session in self.sessions])

    async def _ask(self, method: str, session: str, path: str, body: dict[str, Any]) -> Any:
        """Ask until there is an answer; the ids in the body make that safe."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    answer = await self.client.request(
                        method, f"/v1/sessions/{session}{path}", json=body
                    )
                except httpx.TransportError as error:
                    self.failures[type(error).__name__] += 1
                else:
                    if answer.is_success:
                        self.operations += 1
                        return answer.json()
                    assert answer.status_code in TRY_AGAIN, answer.text
                    self.failures[str(answer.status_code)] += 1
                await asyncio.sleep(RETRY_S)


class Site:
    """The replicas, each on its port for good, and the workers."""

    def __init__(self, processes: Fleet, redis: RedisServer) -> None:
        self._processes = processes
        self._redis = redis
        self.ports = free_ports(REPLICAS)
        self.replicas = {port: self._serve(port) for port in self.ports}
        self.workers = [processes.worker() for _ in range(WORKERS)]
        self._kills = itertools.cycle(self.ports)

    def _serve(self, port: int) -> Process:
        process, client = self._processes.service(PORT=str(port))
        until_ready(client)
        return process

    def client(self, port: int) -> httpx.Client:
        """Return a client of one replica."""
        return httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {ADMIN_KEY}"},
            timeout=PATIENCE_S,
        )

    async def kill(self, times: int) -> None:
        """Kill a replica, start it again, and so on; the workers beside the first, and Redis."""
        await asyncio.to_thread(self._redis.kill)
        for number in range(times):
            port = next(self._kills)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(self.replicas[port].kill)
            if number < WORKERS:
                await asyncio.to_thread(self.workers[number].kill)
                self.workers[number] = await asyncio.to_thread(self._processes.worker)
            self.replicas[port] = await asyncio.to_thread(self._serve, port)
        await asyncio.to_thread(self._redis.start)

    async def roll(self) -> None:
        """End and start one replica after another, as an operator does."""
        for port in self.ports:
            assert await asyncio.to_thread(self.replicas[port].terminate) == 0
            self.replicas[port] = await asyncio.to_thread(self._serve, port)
            # Until the balancer has seen it twice.
            await asyncio.sleep(1)


def until_ready(client: httpx.Client) -> None:
    """Wait until a replica wants traffic."""
    while not client.get("/readyz").is_success:
        pass


@pytest.fixture
def site(empty_database_url: str, redis_server: RedisServer, tmp_path: Path) -> Iterator[Site]:
    asyncio.run(migrate(empty_database_url))
    with fleet(empty_database_url, tmp_path, REDIS_URL=redis_server.url) as processes:
        yield Site(processes, redis_server)


@asynccontextmanager
async def writing(
    site: Site, folder: Path, *, sessions: int, pause_s: float
) -> AsyncIterator[Load]:
    """Give the load on new sessions, through the balancer."""
    with site.client(site.ports[0]) as admin:
        # A rate that nobody reaches: Redis is asked for every request.
        headers = {"Authorization": f"Bearer {limited_key(admin)}"}
    with balanced(site.ports, folder) as url:
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
            load = Load(client, [f"s{number}" for number in range(sessions)], pause_s)
            await load.create()
            yield load


def _log(client: httpx.Client, session: str) -> list[Any]:
    events: list[Any] = []
    while True:
        page = client.get(
            f"/v1/sessions/{session}/events", params={"limit": 1000, "after_seq": len(events)}
        ).json()
        events += page["data"]
        if not page["has_more"]:
            return events


def check(site: Site, load: Load, *, positions: int) -> None:
    """Check what the log holds, and that all replicas compile alike."""
    clients = [site.client(port) for port in site.ports]
    folds = 0
    for session in load.sessions:
        log = _log(clients[0], session)
        assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
        seqs = {event["id"]: event["seq"] for event in log}
        assert len(seqs) == len(log)
        assert seqs.items() >= load.acknowledged[session].items()
        made = {event["id"] for event in log if event["status"] == "marker"}
        folds += len(made)
        assert set(seqs) == set(load.acknowledged[session]) | made
    assert folds > len(load.sessions)
    known = sorted(load.compiled)
    for session, seq in known[:: max(1, len(known) // positions)]:
        body = {"agent": "a", "format": "anthropic", "as_of_seq": seq}
        for client in clients:
            answer = client.post(f"/v1/sessions/{session}/compile", json=body)
            assert json.dumps(answer.json()["request"]) == load.compiled[session, seq]
    for client in clients:
        client.close()


async def _put_to_the_test(
    site: Site, folder: Path, *, sessions: int, operations: int, kills: int, pause_s: float
) -> Counter[str]:
    """Kill, then roll, under load; return what the kills made fail."""
    async with writing(site, folder, sessions=sessions, pause_s=pause_s) as load:
        await load.run(operations // 2, site.kill(kills))
        failures = load.failures
        load.failures = Counter()
        await load.run(operations // 2, site.roll())
        assert load.failures == Counter()
        assert load.operations >= operations
    await asyncio.to_thread(check, site, load, positions=2 * sessions)
    return failures


async def test_what_the_balancer_answers_itself_is_an_error_as_any(tmp_path: Path) -> None:
    # As while the database is away: no replica is ready.
    with balanced(free_ports(2), tmp_path) as url:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
            away = await client.get('/v1/sessions/a"b%2F')
    body = away.json()
    assert (away.status_code, away.headers["content-type"]) == (503, "application/problem+json")
    assert (body["type"], body["status"], body["code"]) == ("about:blank", 503, "unavailable")
    assert (body["instance"], body["errors"]) == ("/v1/sessions/a%22b%2F", [])
    assert away.headers["retry-after"] == str(body["retry_after_s"]) == "1"


async def test_kills_lose_nothing_and_a_rolling_restart_fails_nothing(
    site: Site, tmp_path: Path
) -> None:
    await _put_to_the_test(site, tmp_path, sessions=8, operations=200, kills=1, pause_s=PAUSE_S)


@pytest.mark.slow
async def test_ten_thousand_operations_on_a_hundred_sessions(site: Site, tmp_path: Path) -> None:
    failures = await _put_to_the_test(
        site, tmp_path, sessions=100, operations=10_000, kills=20, pause_s=0
    )
    # Killed with requests in hand: whoever waited was told, and asked again.
    assert failures
