"""Streams of two replicas on one database, killed and drained, with Redis and without."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest

from tests.faults.processes import ADMIN_KEY, PATIENCE_S, Fleet, Process, fleet
from tests.redis_server import RedisServer

pytestmark = pytest.mark.commits

WRITERS: Final = 3
FOLLOWERS: Final = 3
#: Events acknowledged before the end; replicas are killed on the way.
EVENTS: Final = 150
KILLS: Final = 2
#: What all of it may take: it outlives the kills, each of which may take as long as anything may.
ALTOGETHER_S: Final = 5 * PATIENCE_S


class Replicas:
    """Two services; each can be killed, and another takes its place."""

    def __init__(self, made: Fleet) -> None:
        self._fleet = made
        self._lock = threading.Lock()
        self.running = [made.service() for _ in range(2)]

    def base_url(self, number: int) -> str:
        """Where the replica of a number is now."""
        with self._lock:
            return str(self.running[number % 2][1].base_url)

    def kill_one(self, number: int) -> None:
        """Kill a replica and start another in its place."""
        self.running[number % 2][0].kill()
        started = self._fleet.service()
        with self._lock:
            self.running[number % 2] = started


class Writer(threading.Thread):
    """Appends events until enough are acknowledged by all, by way of either replica."""

    def __init__(self, replicas: Replicas, path: str, acknowledged: list[str]) -> None:
        super().__init__(daemon=True)
        self._replicas = replicas
        self._path = path
        self._acknowledged = acknowledged

    def run(self) -> None:
        """Append, and append again what has no answer."""
        turn = 0
        while len(self._acknowledged) < EVENTS:
            event_id = uuid4().hex
            body = {"events": [{"id": event_id, "author": "user", "content": "x" * 200}]}
            while True:
                turn += 1
                url = self._replicas.base_url(turn) + self._path + "/events"
                try:
                    answer = httpx.post(url, json=body, headers=HEADERS, timeout=PATIENCE_S)
                except httpx.TransportError:
                    time.sleep(0.05)
                    continue
                if answer.status_code == 201:
                    self._acknowledged.append(event_id)
                    break
                assert answer.status_code == 503, answer.text
                time.sleep(0.05)
            # Slow enough for kills to come in between.
            time.sleep(0.02)


HEADERS: Final = {"Authorization": f"Bearer {ADMIN_KEY}"}


def blocks(answer: httpx.Response) -> Iterator[dict[str, str]]:
    """Yield what a stream sends, block by block."""
    block: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            block[name] = block.get(name, "") + value
        elif block:
            yield block
            block = {}


class Listener(threading.Thread):
    """Follows a session, and connects to the other replica whenever it is cut off."""

    def __init__(self, replicas: Replicas, path: str, number: int) -> None:
        super().__init__(daemon=True)
        self._replicas = replicas
        self._path = path
        self._turn = number
        self.events: list[tuple[int, str]] = []
        self.connections = 0
        self.wants = -1
        self.latencies_s: list[float] = []

    @property
    def is_done(self) -> bool:
        """Whether it has all that there is."""
        return self.wants >= 0 and len(self.events) >= self.wants

    def run(self) -> None:
        """Listen until it has all."""
        until_s = time.monotonic() + ALTOGETHER_S
        while not self.is_done and time.monotonic() < until_s:
            self._turn += 1
            url = self._replicas.base_url(self._turn) + self._path + "/events/stream?after_seq=0"
            headers = dict(HEADERS)
            if self.events:
                headers["Last-Event-ID"] = str(self.events[-1][0])
            try:
                with httpx.stream("GET", url, headers=headers, timeout=5) as answer:
                    assert answer.status_code in (200, 503)
                    self.connections += 1
                    self._listen(answer)
            except httpx.TransportError:
                time.sleep(0.05)

    def _listen(self, answer: httpx.Response) -> None:
        for block in blocks(answer):
            if block.get("event") == "append":
                event = json.loads(block["data"])
                assert int(block["id"]) == event["seq"]
                self.events.append((event["seq"], event["id"]))
            if block.get("event") == "bye" or self.is_done:
                return


@pytest.fixture(params=["without Redis", "with a Redis that dies"])
def redis(request: pytest.FixtureRequest) -> RedisServer | None:
    """By which hints travel, for a time."""
    if request.param == "without Redis":
        return None
    server: RedisServer = request.getfixturevalue("redis_server")
    return server


def test_a_listener_that_reconnects_loses_and_repeats_nothing(
    database_url: str, tmp_path: Path, redis: RedisServer | None
) -> None:
    settings = {} if redis is None else {"REDIS_URL": redis.url}
    with fleet(database_url, tmp_path, **settings) as made:
        replicas = Replicas(made)
        path = f"/v1/sessions/{uuid4().hex}"
        new = {"app_name": "app", "user_id": "user"}
        assert replicas.running[0][1].put(path, json=new).status_code == 201
        acknowledged: list[str] = []
        listeners = [Listener(replicas, path, number) for number in range(FOLLOWERS)]
        writers = [Writer(replicas, path, acknowledged) for _ in range(WRITERS)]
        for thread in (*listeners, *writers):
            thread.start()
        for number in range(KILLS):
            _wait(lambda least=EVENTS * (number + 1) // (KILLS + 1): len(acknowledged) >= least)
            replicas.kill_one(number)
            if redis is not None and number == 1:
                redis.kill()
        # One that still wrote would move the head that everybody is held to.
        for writer in writers:
            writer.join(ALTOGETHER_S)
            assert not writer.is_alive()
        head_seq = replicas.running[0][1].get(path).json()["head_seq"]
        # Those that have all of them wait for more: one more tells them.
        for listener in listeners:
            listener.wants = head_seq + 1
        last = {"events": [{"id": "last", "author": "user", "content": "end"}]}
        assert replicas.running[0][1].post(f"{path}/events", json=last).status_code == 201
        for listener in listeners:
            listener.join(ALTOGETHER_S)

    for listener in listeners:
        assert [seq for seq, _ in listener.events] == list(range(1, head_seq + 2))
        assert {event_id for _, event_id in listener.events} >= {*acknowledged, "last"}
    assert sum(listener.connections for listener in listeners) > FOLLOWERS


def _wait(holds: Any) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def _first_block(client: httpx.Client, path: str, found: list[dict[str, str]]) -> None:
    with client.stream("GET", f"{path}/events/stream", timeout=PATIENCE_S) as answer:
        found.extend(blocks(answer))


def test_a_process_that_is_told_to_stop_says_goodbye_and_ends(
    database_url: str, tmp_path: Path
) -> None:
    with fleet(database_url, tmp_path) as made:
        process, client = made.service()
        path = f"/v1/sessions/{uuid4().hex}"
        client.put(path, json={"app_name": "app", "user_id": "user"})
        found: list[list[dict[str, str]]] = [[] for _ in range(10)]
        listening = [
            threading.Thread(target=_first_block, args=(client, path, each)) for each in found
        ]
        for thread in listening:
            thread.start()
        _wait(lambda: all(found) or _is_listening(found))
        time.sleep(0.5)
        began_s = time.monotonic()
        assert process.terminate() == 0
        took_s = time.monotonic() - began_s
        for thread in listening:
            thread.join(PATIENCE_S)

    for each in found:
        assert each[-1]["event"] == "bye"
        assert json.loads(each[-1]["data"]) == {"reason": "draining"}
        assert int(each[-1]["retry"]) > 0
    # Not after the grace of 25 s: nobody waits for a stream.
    assert took_s < 15


def _is_listening(found: list[list[dict[str, str]]]) -> bool:
    return all(each and "retry" in each[0] for each in found)


def test_a_client_that_is_gone_is_let_go(database_url: str, tmp_path: Path) -> None:
    with fleet(database_url, tmp_path, TENANT_STREAMS="5") as made:
        process, client = made.service()
        path = f"/v1/sessions/{uuid4().hex}"
        client.put(path, json={"app_name": "app", "user_id": "user"})
        for _ in range(6):
            with ExitStack() as opened:
                for _ in range(5):
                    _wait(lambda: _listens(client, path, until=opened))
                refused = client.get(f"{path}/events/stream")
                assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
                assert int(refused.headers["Retry-After"]) > 0
        assert _open_files(process) < 60


def _listens(client: httpx.Client, path: str, *, until: ExitStack) -> bool:
    """Open a stream that stays open until the end of the stack; one that is refused does not."""
    with ExitStack() as opening:
        answer = opening.enter_context(client.stream("GET", f"{path}/events/stream"))
        if answer.status_code == 200:
            until.push(opening.pop_all())
        return answer.status_code == 200


def _open_files(process: Process) -> int:
    return len(list(Path(f"/proc/{process.process.pid}/fd").iterdir()))


def test_a_hint_through_redis_is_quicker_than_looking(
    database_url: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    with fleet(database_url, tmp_path, REDIS_URL=redis_server.url) as made:
        (_, near), (_, far) = made.service(), made.service()
        path = f"/v1/sessions/{uuid4().hex}"
        near.put(path, json={"app_name": "app", "user_id": "user"})
        latencies_s: list[float] = []
        with far.stream("GET", f"{path}/events/stream") as answer:
            told = blocks(answer)
            assert "retry" in next(told)
            # The replica may still be connecting to Redis.
            time.sleep(2)
            for number in range(20):
                began_s = time.monotonic()
                near.post(f"{path}/events", json={"events": [{"author": "user"}]})
                while next(told).get("id") != str(number + 1):
                    pass
                latencies_s.append(time.monotonic() - began_s)
    # Where hints arrive it looks once a second: half a second on average without them.
    assert sorted(latencies_s)[10] < 0.35
