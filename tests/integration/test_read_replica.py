"""Compiles on a streaming replica: as far as it has come, and never further back than asked."""

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from app.storage.migrate import migrate
from tests.faults.processes import fleet
from tests.programs import wait_until
from tests.servers import Server, primary_and_standby

pytestmark = pytest.mark.commits


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    with primary_and_standby() as servers:
        asyncio.run(migrate(servers[0].url))
        yield servers


@pytest.fixture(scope="module")
def client(
    servers: tuple[Server, Server], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    primary, standby = servers
    folder = tmp_path_factory.mktemp("service")
    with fleet(primary.url, folder, DATABASE_RO_URL=standby.url) as processes:
        process, client = processes.service(WORKER="embedded")
        yield client
        assert process.terminate() == 0


@pytest.fixture
def session(client: httpx.Client) -> str:
    path = f"/v1/sessions/{uuid4().hex}"
    client.put(path, json={"app_name": "a", "user_id": "u"}).raise_for_status()
    _append(client, path, "one", "two")
    return path


def _append(client: httpx.Client, path: str, *texts: str) -> None:
    events = [{"author": "user", "content": text} for text in texts]
    client.post(f"{path}/events", json={"events": events}).raise_for_status()


def _ask(url: str, sql: str) -> Any:
    async def ask() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(ask())


def _uses_replica(client: httpx.Client, session: str, body: dict[str, Any]) -> bool:
    """Tell from the service's own counts whether a compile was read on the replica."""

    def waits() -> float:
        lines = client.get("/metrics").text.splitlines()
        name = 'foldline_db_pool_wait_seconds_count{pool="ro"} '
        return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    before = waits()
    client.post(f"{session}/compile", json=body).raise_for_status()
    return waits() > before


def _caught_up(primary: Server, standby: Server) -> None:
    wanted = _ask(primary.url, "SELECT pg_current_wal_lsn()::text")
    wait_until(
        lambda: bool(_ask(standby.url, f"SELECT pg_last_wal_replay_lsn() >= '{wanted}'::pg_lsn"))
    )


def test_only_a_request_that_names_a_position_is_read_on_the_replica(
    client: httpx.Client, session: str, servers: tuple[Server, Server]
) -> None:
    _caught_up(*servers)
    assert not _uses_replica(client, session, {})
    assert _uses_replica(client, session, {"min_seq": 2})
    assert _uses_replica(client, session, {"as_of_seq": 1})


def test_the_replica_gives_the_same_bytes(
    client: httpx.Client, session: str, servers: tuple[Server, Server]
) -> None:
    _caught_up(*servers)
    for name in ("gemini", "anthropic", "openai_chat"):
        own = client.post(f"{session}/compile", json={"format": name}).json()
        replicated = client.post(f"{session}/compile", json={"format": name, "min_seq": 2}).json()
        for member in ("request", "fingerprint", "compiled_seq", "head_seq"):
            assert own[member] == replicated[member]


def test_a_replica_that_lags_is_not_asked_for_what_it_lacks(
    client: httpx.Client, session: str, servers: tuple[Server, Server]
) -> None:
    primary, standby = servers
    _caught_up(primary, standby)
    _ask(standby.url, "SELECT pg_wal_replay_pause()")
    wait_until(lambda: _ask(standby.url, "SELECT pg_get_wal_replay_pause_state()") == "paused")
    try:
        _append(client, session, "three")

        newest = client.post(f"{session}/compile", json={"min_seq": 3}).json()
        assert newest["compiled_seq"] == 3
        assert "three" in str(newest["request"])
        # What it has is enough for whoever asked for no more.
        older = client.post(f"{session}/compile", json={"min_seq": 2}).json()
        assert older["compiled_seq"] == 2
        past = client.post(f"{session}/compile", json={"as_of_seq": 3}).json()
        assert past["request"] == newest["request"]
        # Nobody has it: the primary says so.
        assert client.post(f"{session}/compile", json={"min_seq": 4}).status_code == 409
        assert client.post(f"{session}/compile", json={"as_of_seq": 4}).status_code == 422
        # A session of which the replica has never heard.
        unknown = f"/v1/sessions/{uuid4().hex}"
        client.put(unknown, json={"app_name": "a", "user_id": "u"}).raise_for_status()
        _append(client, unknown, "one")
        answer = client.post(f"{unknown}/compile", json={"min_seq": 1})
        assert answer.json()["compiled_seq"] == 1
    finally:
        _ask(standby.url, "SELECT pg_wal_replay_resume()")


def _lag_s(client: httpx.Client) -> float | None:
    """Return what is told of the replica's lag; None when nothing is."""
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("foldline_db_replica_lag_seconds{"):
            name, _, value = line.rpartition(" ")
            assert re.fullmatch(r'.*\{replica="127\.0\.0\.1:\d+"\}', name), name
            return float(value)
    return None


def test_how_far_back_the_replica_is_is_told(
    client: httpx.Client, session: str, servers: tuple[Server, Server]
) -> None:
    """By the worker that looks at the database; the service of this test has one."""
    primary, standby = servers
    _caught_up(primary, standby)
    wait_until(lambda: _lag_s(client) == 0, patience_s=60)
    _ask(standby.url, "SELECT pg_wal_replay_pause()")
    try:
        wait_until(lambda: _ask(standby.url, "SELECT pg_get_wal_replay_pause_state()") == "paused")
        _append(client, session, "three")
        began_s = time.monotonic()
        wait_until(lambda: (_lag_s(client) or 0) > 3, patience_s=60)
        first = _lag_s(client)
        # It grows with the time, and no faster.
        wait_until(lambda: _lag_s(client) != first, patience_s=60)
        assert (_lag_s(client) or 0) < time.monotonic() - began_s + 10
    finally:
        _ask(standby.url, "SELECT pg_wal_replay_resume()")
    wait_until(lambda: _lag_s(client) == 0, patience_s=60)
    standby.stop()
    try:
        wait_until(lambda: _lag_s(client) is None, patience_s=60)
    finally:
        standby.start()


def test_inputs_of_a_compile_on_the_replica_can_be_passed_back(
    client: httpx.Client, session: str, servers: tuple[Server, Server]
) -> None:
    _caught_up(*servers)
    body = {"format": "anthropic", "model": "claude-sonnet-5", "min_seq": 2}
    first = client.post(f"{session}/compile", json=body).json()
    again = client.post(f"{session}/compile", json={**body, "inputs": first["inputs"]["digest"]})
    assert again.status_code == 200, again.text
    assert again.json()["fingerprint"] == first["fingerprint"]


def test_without_its_replica_the_primary_answers(
    client: httpx.Client, session: str, servers: tuple[Server, Server]
) -> None:
    _, standby = servers
    standby.stop()
    try:
        answer = client.post(f"{session}/compile", json={"min_seq": 2})
        assert answer.status_code == 200, answer.text
        assert answer.json()["compiled_seq"] == 2
        assert client.get("/readyz").is_success
    finally:
        standby.start()
