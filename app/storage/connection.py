"""A connection of the pool while a block has it, and how a store runs a statement on it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString, Protocol
from uuid import UUID

import asyncpg

from app.storage.pool import ANSWER_GRACE_S, DatabaseObserver

#: For what copies or removes a whole session, which may be large.
LONG_STATEMENT_S: Final = 300


class Row(Protocol):
    """A row of the driver."""

    def __getitem__(self, column: str, /) -> Any: ...  # noqa: ANN401  as the column's type


@dataclass(slots=True, eq=False)
class PgConnection:
    """A connection that belongs to one block; `transaction.py` says who commits."""

    driver: "asyncpg.Connection[asyncpg.Record]"
    #: Who is told how long statements take.
    observer: DatabaseObserver | None = None
    #: Where a statement may take longer than the pool's connections wait for one.
    answer_timeout_s: float | None = None
    #: The sessions that were appended to, to be told once that is committed.
    appended: set[UUID] = field(default_factory=set)


async def fetch(connection: PgConnection, sql: LiteralString, *args: object) -> Sequence[Row]:
    """Run one statement with ``$1``, ``$2``, ... and return its rows."""
    observer = connection.observer
    if observer is None:
        return await _fetch(connection, sql, args)
    started_s = time.perf_counter()
    try:
        return await _fetch(connection, sql, args)
    finally:
        observer.query_ran(sql, duration_s=time.perf_counter() - started_s)


async def _fetch(
    connection: PgConnection, sql: LiteralString, args: tuple[object, ...]
) -> Sequence[Row]:
    return await connection.driver.fetch(sql, *args, timeout=connection.answer_timeout_s)


async def fetch_one(connection: PgConnection, sql: LiteralString, *args: object) -> Row | None:
    """Run one statement and return its first row, None without one."""
    rows = await fetch(connection, sql, *args)
    return rows[0] if rows else None


_ALLOW_TIME: Final[LiteralString] = "SELECT set_config('statement_timeout', $1, true)"


async def allow_time(connection: PgConnection) -> None:
    """Let the statements of this transaction take longer than a request may."""
    await fetch(connection, _ALLOW_TIME, str(LONG_STATEMENT_S * 1000))
    connection.answer_timeout_s = LONG_STATEMENT_S + ANSWER_GRACE_S
