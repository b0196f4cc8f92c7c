"""What benchmarks ask of a service and of its database, beside what they measure."""

import asyncio
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx

from tests.benchmarks.http_client import Answer

#: Postgres tells what it counted within ten seconds.
STATISTICS_DELAY_S: Final = 11.0


def checked(answer: Answer | httpx.Response) -> Any:
    """Return the JSON of an answer.

    Raises:
        RuntimeError: it is an error.
    """
    if not answer.is_success:
        raise RuntimeError(f"answered {answer.status_code}: {answer.text}")
    return answer.json()


async def made_database(server_url: str, name: str) -> str:
    """Make a database on a server; return its URL."""
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))


async def tidy_up(url: str) -> None:
    """Have Postgres do now what it would do in the middle of a measurement."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def events_read(url: str) -> int:
    """Return how many rows of the table of events Postgres has fetched so far."""
    await asyncio.sleep(STATISTICS_DELAY_S)
    connection = await asyncpg.connect(url)
    try:
        fetched: int = await connection.fetchval(
            "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables"
            " WHERE relname = 'events'"
        )
        return fetched
    finally:
        await connection.close()
