"""The way to the database fails: cut, delayed, held back, refused; the pool is used up.

Every answer is typed, what was acknowledged is there, and nothing has to be started again.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import httpx
import pytest

from app.core.ids import session_uid
from app.storage.migrate import migrate
from tests.fakes.tcp_proxy import TcpProxy
from tests.faults.processes import fleet
from tests.programs import wait_until

pytestmark = pytest.mark.commits

POOL_SIZE: Final = 2
#: Statement, lock and pool give up after 5 s each; a held connection after little more.
PROMPT_S: Final = 20.0
CUTS: Final = 20
CUT_EVERY_S: Final = 0.15


@pytest.fixture(scope="module")
def database(server_url: str) -> Iterator[str]:
    """URL of a migrated database that only the service here uses."""
    name = f"test_{uuid4().hex}"
    asyncio.run(_execute(server_url, f'CREATE DATABASE "{name}"'))
    url = urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    asyncio.run(migrate(url))
    yield url
    asyncio.run(_execute(server_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture(scope="module")
def proxy(database: str) -> Iterator[TcpProxy]:
    parts = urlsplit(database)
    with TcpProxy(parts.hostname or "", parts.port or 0) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def running(
    database: str, proxy: TcpProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A service that reaches its database through the proxy."""
    parts = urlsplit(database)
    login = f"{parts.username}:{parts.password}"
    through = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{proxy.port}"))
    folder = tmp_path_factory.mktemp("service")
    with fleet(through, folder, DB_POOL_SIZE=str(POOL_SIZE)) as processes:
        process, client = processes.service()
        yield client
        # Nothing here had to start it again, and it still ends as it should.
        assert process.terminate() == 0


@pytest.fixture
def client(running: httpx.Client, proxy: TcpProxy) -> Iterator[httpx.Client]:
    yield running
    proxy.delay_s = 0
    proxy.is_holding = False
    proxy.accept()
    wait_until(lambda: running.get("/readyz").is_success, patience_s=60)


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


class Session:
    """One session, and what was acknowledged of it."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.id = uuid4().hex
        self.path = f"/v1/sessions/{self.id}"
        self.acknowledged: dict[str, int] = {}
        self.refused = 0
        body = {"app_name": "a", "user_id": "u"}
        assert client.put(self.path, json=body).status_code == 201

    def append(self, event_id: str) -> httpx.Response:
        """Append one event; an answer that is no success is a typed one."""
        event = {"id": event_id, "author": "user", "content": f"this is {event_id}"}
        answer = self._client.post(f"{self.path}/events", json={"events": [event]})
        if answer.is_success:
            self.acknowledged[event_id] = answer.json()["appended"][0]["seq"]
        else:
            self.refused += 1
            assert_unavailable(answer)
        return answer

    def until_appended(self, event_id: str) -> None:
        """Append one event, as often as it takes."""
        wait_until(lambda: self.append(event_id).is_success, patience_s=60)

    def check(self) -> None:
        """Check that the log is what was acknowledged, in order, each event once."""
        events = self._client.get(f"{self.path}/events", params={"limit": 1000}).json()["data"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert {event["id"]: event["seq"] for event in events} == self.acknowledged


def assert_unavailable(answer: httpx.Response) -> None:
    """Check that an answer says what it should when there is no database."""
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"] == "1"
    body = answer.json()
    assert (body["code"], body["retry_after_s"]) == ("unavailable", 1)
    assert "Traceback" not in answer.text
    assert "asyncpg" not in answer.text


def test_connections_that_are_cut_lose_nothing(client: httpx.Client, proxy: TcpProxy) -> None:
    session = Session(client)
    cuts, done = itertools.count(1), threading.Event()
    # So that most of them cut something off.
    proxy.delay_s = 0.01

    def cut() -> None:
        while not done.wait(CUT_EVERY_S):
            proxy.cut()
            if next(cuts) >= CUTS:
                done.set()

    cutting = threading.Thread(target=cut)
    cutting.start()
    numbers = itertools.count()
    while not done.is_set():
        session.until_appended(f"e{next(numbers)}")
    cutting.join()

    assert session.refused
    session.check()


def test_a_connection_cut_while_nobody_uses_it_fails_no_request(
    client: httpx.Client, proxy: TcpProxy
) -> None:
    session = Session(client)
    proxy.cut()
    # The service has read the end of the connection by then.
    time.sleep(0.2)
    assert session.append("e1").status_code == 201
    session.check()


def test_a_slow_way_slows_and_fails_nothing(client: httpx.Client, proxy: TcpProxy) -> None:
    session = Session(client)
    proxy.delay_s = 0.05
    for number in range(5):
        assert session.append(f"e{number}").status_code == 201
    assert client.post(f"{session.path}/compile", json={}).status_code == 200
    session.check()


def test_a_database_that_refuses_connections_is_unavailable_until_it_does_not(
    client: httpx.Client, proxy: TcpProxy
) -> None:
    session = Session(client)
    proxy.refuse()

    assert session.append("e1").status_code == 503
    assert_unavailable(client.get(session.path))
    assert_unavailable(client.post(f"{session.path}/compile", json={}))
    assert client.get("/livez").status_code == 200
    # The answer of a moment before may still be remembered.
    wait_until(lambda: client.get("/readyz").status_code == 503)
    assert client.get("/readyz").json()["status"] == "unavailable"

    proxy.accept()
    session.until_appended("e1")
    session.check()


def test_a_network_that_swallows_everything_is_noticed(
    client: httpx.Client, proxy: TcpProxy
) -> None:
    session = Session(client)
    assert session.append("e1").is_success
    proxy.is_holding = True

    began_s = time.monotonic()
    assert session.append("e2").status_code == 503
    assert time.monotonic() - began_s < PROMPT_S
    assert client.get("/livez").status_code == 200

    proxy.is_holding = False
    session.until_appended("e2")
    session.check()


def test_a_used_up_pool_answers_and_recovers(client: httpx.Client, database: str) -> None:
    """Both connections wait for a lock that someone else holds; the third request gets none."""
    held, free = Session(client), Session(client)
    locked, unlock = threading.Event(), threading.Event()

    async def lock() -> None:
        connection = await asyncpg.connect(database)
        try:
            async with connection.transaction():
                uid = session_uid("default", held.id)
                taken = await connection.fetchval(
                    "SELECT 1 FROM sessions WHERE session_uid = $1 FOR UPDATE", uid
                )
                assert taken == 1
                locked.set()
                await asyncio.to_thread(unlock.wait)
        finally:
            await connection.close()

    locking = threading.Thread(target=lambda: asyncio.run(lock()))
    locking.start()
    assert locked.wait(10)
    answers: list[Any] = []
    waiting = [
        threading.Thread(target=lambda n=n: answers.append(held.append(f"e{n}").status_code))
        for n in range(2 * POOL_SIZE + 1)
    ]
    for each in waiting:
        each.start()
    began_s = time.monotonic()
    for each in waiting:
        each.join()
    assert answers == [503] * len(waiting)
    assert time.monotonic() - began_s < PROMPT_S
    unlock.set()
    locking.join()

    free.until_appended("e1")
    held.until_appended("e1")
    free.check()
    held.check()
