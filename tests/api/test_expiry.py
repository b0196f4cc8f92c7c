"""Sessions whose time to live has passed are erased, and only those."""

from typing import Any

import asyncpg

from app.services.expire_sessions import ExpireSessions
from app.storage.database import PgDatabase
from app.storage.pool import create_engine
from app.storage.sessions import PgSessions
from tests.api.conftest import Api, user


async def expire(url: str) -> int:
    engine = create_engine(url, size=1)
    try:
        return await ExpireSessions(database=PgDatabase(engine), sessions=PgSessions())()
    finally:
        await engine.dispose()


async def audited(url: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT actor, reason FROM audit WHERE actor = 'ttl'")
        return [tuple(row) for row in rows]
    finally:
        await connection.close()


async def test_a_session_goes_when_its_time_has_passed_since_the_last_append(
    api: Api, database_url: str
) -> None:
    short, long, endless = (
        await api.session(ttl_s=1),
        await api.session(ttl_s=1000),
        await api.session(),
    )
    for path in (short, long, endless):
        await api.append(path, user("hi"))
    connection = await asyncpg.connect(database_url)
    await connection.execute("SELECT pg_sleep(1.1)")
    await connection.close()

    assert await expire(database_url) >= 1

    assert (await api.get(short)).status_code == 404
    assert (await api.get(long)).status_code == 200
    assert (await api.get(endless)).status_code == 200


async def test_an_append_gives_a_session_its_time_again(api: Api, database_url: str) -> None:
    path = await api.session(ttl_s=2)
    await api.append(path, user("hi"))
    connection = await asyncpg.connect(database_url)
    await connection.execute("SELECT pg_sleep(1.2)")
    await api.append(path, user("still here"))
    await connection.execute("SELECT pg_sleep(1.2)")
    await connection.close()

    await expire(database_url)

    assert (await api.get(path)).status_code == 200
