"""Connections, transactions and what their failures become, on a real Postgres."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy import event, exc
from sqlalchemy.ext.asyncio import AsyncEngine

from app.core.errors import StorageError, StorageUnavailableError
from app.storage import pool
from app.storage.connection import allow_time, fetch, fetch_one
from app.storage.errors import ConstraintViolatedError
from app.storage.pool import create_engine
from app.storage.transaction import single_statement, snapshot, transaction

pytestmark = pytest.mark.commits


@pytest.fixture
def url(empty_database_url: str) -> str:
    asyncio.run(
        _run(empty_database_url, "CREATE TABLE numbers (n int CONSTRAINT numbers_pkey PRIMARY KEY)")
    )
    return empty_database_url


@pytest_asyncio.fixture(params=["none", "pgbouncer"])
async def engine(url: str, request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    """An engine in each mode; what differs is what it sends, which any Postgres understands."""
    engine = create_engine(url, size=2, pooler=request.param)
    yield engine
    await engine.dispose()


@pytest_asyncio.fixture
async def direct_engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(url, size=1, statement_timeout_s=0.2)
    yield engine
    await engine.dispose()


async def _run(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _count(engine: AsyncEngine) -> int:
    async with single_statement(engine) as connection:
        return int(await connection.driver.fetchval("SELECT count(*) FROM numbers"))


async def test_a_transaction_commits_at_its_end(engine: AsyncEngine) -> None:
    async with transaction(engine) as connection:
        await fetch(connection, "INSERT INTO numbers VALUES (1)")

    assert await _count(engine) == 1


async def test_a_transaction_that_raises_leaves_nothing(engine: AsyncEngine) -> None:
    with pytest.raises(LookupError):
        async with transaction(engine) as connection:
            await fetch(connection, "INSERT INTO numbers VALUES (1)")
            raise LookupError

    assert await _count(engine) == 0


async def test_a_transaction_that_goes_on_after_a_refusal_does_not_commit(
    engine: AsyncEngine,
) -> None:
    # Postgres answers its commit with a rollback.
    with pytest.raises(StorageError):
        async with transaction(engine) as connection:
            await fetch(connection, "INSERT INTO numbers VALUES (1)")
            with suppress(asyncpg.PostgresError):
                await fetch(connection, "INSERT INTO numbers VALUES (1)")

    assert await _count(engine) == 0


async def test_a_snapshot_sees_one_moment(engine: AsyncEngine) -> None:
    async with snapshot(engine) as connection:
        first = await fetch_one(connection, "SELECT count(*) AS count FROM numbers")
        async with single_statement(engine) as other:
            await fetch(other, "INSERT INTO numbers VALUES (1)")
        second = await fetch_one(connection, "SELECT count(*) AS count FROM numbers")

    assert first is not None
    assert second is not None
    assert first["count"] == second["count"] == 0
    assert await _count(engine) == 1


async def test_a_single_statement_commits_itself(engine: AsyncEngine) -> None:
    async with single_statement(engine) as connection:
        await fetch(connection, "INSERT INTO numbers VALUES (1)")

    assert await _count(engine) == 1


async def test_a_connection_has_our_settings_in_a_transaction(engine: AsyncEngine) -> None:
    async with transaction(engine) as connection:
        for name, value in {
            "jit": "off",
            "statement_timeout": "5s",
            "idle_in_transaction_session_timeout": "10s",
            "application_name": "foldline",
        }.items():
            assert await connection.driver.fetchval(f"SHOW {name}") == value


async def test_behind_a_pooler_nothing_is_set_for_the_session(url: str) -> None:
    engine = create_engine(url, size=1, pooler="pgbouncer")
    async with engine.connect() as connection:
        await connection.rollback()
        settings = await (await connection.get_raw_connection()).driver_connection.fetchval(  # type: ignore[union-attr]
            "SELECT string_agg(name, ' ') FROM pg_settings WHERE source IN ('client', 'session')"
            " AND name IN ('jit', 'statement_timeout')"
        )
    await engine.dispose()

    assert settings is None


async def test_a_single_statement_is_one_round_trip_on_the_drivers_connection(
    direct_engine: AsyncEngine,
) -> None:
    async with single_statement(direct_engine) as connection:
        assert not connection.driver.is_in_transaction()
        await fetch(connection, "INSERT INTO numbers VALUES (1)")

    assert await _count(direct_engine) == 1


async def test_the_pool_replaces_a_connection_that_the_server_closed(
    direct_engine: AsyncEngine, url: str
) -> None:
    await _count(direct_engine)
    await _run(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    await asyncio.sleep(0.2)

    assert await _count(direct_engine) == 0


async def test_a_constraint_is_named(engine: AsyncEngine) -> None:
    with pytest.raises(ConstraintViolatedError) as caught:
        async with transaction(engine) as connection:
            await fetch(connection, "INSERT INTO numbers VALUES (1), (1)")

    assert caught.value.constraint == "numbers_pkey"


async def test_a_statement_that_takes_too_long_is_unavailable(direct_engine: AsyncEngine) -> None:
    with pytest.raises(StorageUnavailableError):
        async with single_statement(direct_engine) as connection:
            await fetch(connection, "SELECT pg_sleep(5)")


async def test_what_may_take_long_is_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "ANSWER_GRACE_S", 0.1)
    engine = create_engine(url, size=1, statement_timeout_s=0.2)
    async with transaction(engine) as connection:
        await allow_time(connection)
        assert await fetch_one(connection, "SELECT pg_sleep(0.6)")
    # It was for that transaction alone.
    with pytest.raises(StorageUnavailableError):
        async with transaction(engine) as connection:
            await fetch_one(connection, "SELECT 1")
            await fetch_one(connection, "SELECT pg_sleep(0.6)")
    await engine.dispose()


async def test_a_full_pool_is_unavailable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "POOL_TIMEOUT_S", 0.1)
    engine = create_engine(url, size=1)
    async with single_statement(engine):
        with pytest.raises(StorageUnavailableError):
            async with single_statement(engine):
                pass
    await engine.dispose()


async def test_a_connection_lost_in_a_transaction_is_unavailable(
    direct_engine: AsyncEngine, url: str
) -> None:
    with pytest.raises(StorageUnavailableError):
        async with transaction(direct_engine) as connection:
            pid = await connection.driver.fetchval("SELECT pg_backend_pid()")
            await _run(url, f"SELECT pg_terminate_backend({pid}, 1000)")
            await fetch(connection, "INSERT INTO numbers VALUES (1)")

    assert await _count(direct_engine) == 0


async def test_connections_that_are_closed_as_soon_as_they_are_made_are_unavailable(
    direct_engine: AsyncEngine,
) -> None:
    # As of a server that goes down: it takes connections, and ends them.
    @event.listens_for(direct_engine.sync_engine, "checkout")
    def end_it(*_: object) -> None:
        raise exc.DisconnectionError

    with pytest.raises(StorageUnavailableError):
        await _count(direct_engine)


async def test_a_server_that_takes_no_writes_is_unavailable(
    url: str, direct_engine: AsyncEngine
) -> None:
    # As of a leader that became a standby, before the next one is known.
    name = urlsplit(url).path.removeprefix("/")
    await _run(url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')

    with pytest.raises(StorageUnavailableError):
        await _count(direct_engine)


async def test_a_server_that_does_not_answer_is_unavailable(unused_tcp_port: int) -> None:
    engine = create_engine(f"postgresql://u:hunter2@127.0.0.1:{unused_tcp_port}/x", size=1)
    with pytest.raises(StorageUnavailableError) as caught:
        async with transaction(engine):
            pass
    await engine.dispose()

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "refusal", ["password", "role", "no database", "no rights", "no connections", "closed"]
)
async def test_a_database_that_lets_nobody_in_is_unavailable(url: str, refusal: str) -> None:
    parts = urlsplit(url)
    database, role = parts.path[1:], f"role_{uuid4().hex}"
    elsewhere = parts._replace(path="/postgres").geturl()
    await _run(elsewhere, f"CREATE ROLE {role} LOGIN PASSWORD 'right'")
    statements = {
        "no rights": f'REVOKE CONNECT ON DATABASE "{database}" FROM PUBLIC',
        "no connections": f'ALTER DATABASE "{database}" CONNECTION LIMIT 0',
        "closed": f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false',
    }
    if refusal in statements:
        await _run(elsewhere, statements[refusal])
    user = "nobody" if refusal == "role" else role
    password = "wrong" if refusal == "password" else "right"
    refused = parts._replace(
        netloc=f"{user}:{password}@{parts.hostname}:{parts.port}",
        path="/nowhere" if refusal == "no database" else parts.path,
    ).geturl()
    engine = create_engine(refused, size=1)
    try:
        with pytest.raises(StorageUnavailableError):
            await _count(engine)
    finally:
        await engine.dispose()
        await _run(elsewhere, f"DROP ROLE {role}")


@pytest.mark.parametrize(
    "statement",
    ["SELECT 1 FROM nowhere", "SELECT missing FROM numbers", "SELECT missing(n) FROM numbers"],
)
async def test_what_a_schema_that_was_not_migrated_lacks_makes_it_unavailable(
    engine: AsyncEngine, statement: str
) -> None:
    with pytest.raises(StorageUnavailableError):
        async with transaction(engine) as connection:
            await connection.driver.fetch(statement)


async def test_a_wrong_statement_is_a_refusal_that_shows_no_sql(engine: AsyncEngine) -> None:
    with pytest.raises(StorageError) as caught:
        async with transaction(engine) as connection:
            await fetch(connection, "SELECT secret FRM nowhere")

    assert not isinstance(caught.value, StorageUnavailableError)
    assert "nowhere" not in str(caught.value)


async def test_a_url_in_sqlalchemys_spelling_is_understood(url: str) -> None:
    assert urlsplit(url).scheme == "postgresql"
    engine = create_engine(url.replace("postgresql://", "postgresql+asyncpg://"), size=1)
    assert await _count(engine) == 0
    await engine.dispose()


async def test_the_engine_shows_no_password(url: str) -> None:
    engine = create_engine(url, size=1)
    assert urlsplit(url).password
    assert str(urlsplit(url).password) not in repr(engine) + str(engine.url)
    await engine.dispose()
