"""Probes: each tells what it is asked for, and nothing that the one that asks could not act on."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import httpx
import pytest

from app.main import create_app
from app.services.check_health import CheckHealth
from app.storage.migrate import head_revision
from tests.api.conftest import ADMIN_KEY, settings_for

KEY = {"Authorization": f"Bearer {ADMIN_KEY}"}


class Probed:
    """A running application, and a client of it."""

    def __init__(self, url: str) -> None:
        self.app = create_app(settings_for(url))

    async def get(self, path: str, **options: dict[str, str]) -> tuple[int, dict[str, object]]:
        async with self._client() as client:
            answer = await client.get(path, **options)  # type: ignore[arg-type]
        return answer.status_code, answer.json()

    async def head(self, path: str) -> int:
        async with self._client() as client:
            return (await client.head(path)).status_code

    def _client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://test")


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Probed]:
    probed = Probed(url)
    async with probed.app.router.lifespan_context(probed.app):
        yield probed


async def _set_revision(url: str, revision: str | None) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DELETE FROM alembic_version")
        if revision is not None:
            await connection.execute("INSERT INTO alembic_version VALUES ($1)", revision)
    finally:
        await connection.close()


@pytest.fixture
async def own_url(empty_database_url: str) -> str:
    """A database whose revision the test may change."""
    connection = await asyncpg.connect(empty_database_url)
    await connection.execute("CREATE TABLE alembic_version (version_num text PRIMARY KEY)")
    await connection.close()
    await _set_revision(empty_database_url, head_revision())
    return empty_database_url


async def test_a_healthy_process_lives_is_ready_and_has_started(own_url: str) -> None:
    async with running(own_url) as probed:
        for path in ("/livez", "/readyz", "/startupz"):
            status, body = await probed.get(path)
            assert (status, body["status"]) == (200, "ok")
            assert "details" not in body


async def test_a_process_that_drains_lives_but_takes_no_traffic(own_url: str) -> None:
    async with running(own_url) as probed:
        probed.app.state.draining = True
        assert (await probed.get("/readyz"))[0] == 503
        assert (await probed.get("/livez"))[0] == 200


async def test_a_load_balancer_may_ask_for_the_head_alone(own_url: str) -> None:
    async with running(own_url) as probed:
        assert [await probed.head(path) for path in ("/livez", "/readyz", "/startupz")] == [200] * 3
        probed.app.state.draining = True
        assert await probed.head("/readyz") == 503


async def test_an_older_schema_is_not_ready_and_a_newer_one_is(own_url: str) -> None:
    async with running(own_url) as probed:
        await _set_revision(own_url, "0001")
        status, body = await probed.get("/readyz")
        assert (status, body["checks"]) == (
            503,
            {
                "database": "ok",
                "schema": f"is at 0001, {head_revision()} is expected: run `foldline migrate`",
            },
        )
        assert (await probed.get("/startupz"))[0] == 503
        # The release after this one has migrated, and this one serves until it is replaced.
        await _set_revision(own_url, "9999")
        await asyncio.sleep(1.1)
        assert (await probed.get("/readyz"))[0] == 200
        await _set_revision(own_url, None)
        await asyncio.sleep(1.1)
        assert (await probed.get("/readyz"))[0] == 503


async def test_a_start_is_over_once_and_for_all(own_url: str) -> None:
    async with running(own_url) as probed:
        await _set_revision(own_url, "0001")
        assert (await probed.get("/startupz"))[0] == 503
        await _set_revision(own_url, head_revision())
        await asyncio.sleep(1.1)
        assert (await probed.get("/startupz"))[0] == 200
        await _set_revision(own_url, "0001")
        await asyncio.sleep(1.1)
        assert (await probed.get("/startupz"))[0] == 200
        assert (await probed.get("/readyz"))[0] == 503


async def test_an_event_loop_that_is_blocked_is_no_life(own_url: str) -> None:
    async with running(own_url) as probed:
        await asyncio.sleep(0.3)
        assert (await probed.get("/livez"))[0] == 200
        time.sleep(5.3)  # noqa: ASYNC251  this is what is tested
        status, body = await probed.get("/livez")
        assert status == 503
        assert "late" in str(body["checks"])
        await asyncio.sleep(0.6)
        assert (await probed.get("/livez"))[0] == 200


async def test_details_need_a_key(own_url: str) -> None:
    async with running(own_url) as probed:
        assert (await probed.get("/readyz?verbose=1"))[0] == 401
        status, body = await probed.get("/readyz?verbose=1", headers=KEY)
        assert status == 200
        details = body["details"]
        assert isinstance(details, dict)
        assert details["schema_revision"] == details["expected_revision"] == head_revision()
        assert details["is_draining"] is False
        assert (await probed.get("/livez?verbose=perhaps"))[0] == 422


async def test_probes_that_come_together_ask_the_database_once_a_second() -> None:
    asked = 0

    async def read_revision() -> str:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.05)
        return "0001"

    check = CheckHealth(read_revision=read_revision, expected_revision="0001")
    assert all(health.is_ready for health in await asyncio.gather(*(check() for _ in range(50))))
    assert asked == 1


async def test_a_database_that_hangs_is_given_up_after_a_second() -> None:
    async def read_revision() -> str:
        await asyncio.sleep(60)
        return "0001"

    began = time.monotonic()
    health = await CheckHealth(read_revision=read_revision, expected_revision="0001")()
    assert health.checks == {"database": "does not answer"}
    assert 0.9 < time.monotonic() - began < 3
