"""Where the stores' connections come from, and how a store runs a statement on one."""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, LiteralString, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.storage.pool import ANSWER_GRACE_S, driver_connection, observer_of
from app.storage.transaction import single_statement, snapshot, transaction

#: For what copies or removes a whole session, which may be large.
LONG_STATEMENT_S: Final = 300
_ANSWER_TIMEOUT: Final = "answer_timeout_s"


class Row(Protocol):
    """A row of the driver, or of SQLAlchemy."""

    def __getitem__(self, column: str, /) -> Any: ...  # noqa: ANN401  as the column's type


#: Where a connection keeps the sessions that its transaction appended to.
_APPENDED: Final = "foldline_appended"


class PgDatabase:
    """The connections of an engine; the engine stays the caller's to dispose of."""

    def __init__(
        self, engine: AsyncEngine, *, appended: Callable[[str], None] | None = None
    ) -> None:
        """Take, beside the engine, what is told each session that was appended to, by its uid in
        hexadecimal digits, once that is committed."""
        self._engine = engine
        self._appended = appended

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed when the block is left, rolled back on an error."""
        async with self._telling(transaction(self._engine)) as connection:
            yield connection

    def snapshot(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction for reading, whose statements all see the same moment."""
        return snapshot(self._engine)

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection on which every statement stands for itself."""
        return self._telling(single_statement(self._engine))

    @asynccontextmanager
    async def _telling(
        self, connected: AbstractAsyncContextManager[AsyncConnection]
    ) -> AsyncIterator[AsyncConnection]:
        """Tell what was appended once the block is left without an error."""
        appended: set[UUID] = set()
        async with connected as connection:
            _noted(connection)[_APPENDED] = appended
            yield connection
        if self._appended is not None:
            for uid in appended:
                self._appended(uid.hex)


def note_append(connection: AsyncConnection, session_uid: UUID) -> None:
    """Note that the transaction appended to a session."""
    _noted(connection).setdefault(_APPENDED, set()).add(session_uid)


def _noted(connection: AsyncConnection) -> dict[Any, Any]:
    sync = connection.sync_connection
    assert sync is not None
    return sync.info


async def fetch(
    connection: AsyncConnection,
    sql: LiteralString,
    *args: object,
) -> Sequence[Row]:
    """Run one statement with ``$1``, ``$2``, ... and return its rows.

    The driver runs it directly, which halves the cost of a small statement. Only the first one of a
    transaction goes through SQLAlchemy, which sends BEGIN with it.
    """
    sync = connection.sync_connection
    observer = None if sync is None else observer_of(sync)
    if observer is None:
        return await _fetch(connection, sql, args)
    started_s = time.perf_counter()
    try:
        return await _fetch(connection, sql, args)
    finally:
        observer.query_ran(sql, duration_s=time.perf_counter() - started_s)


async def _fetch(
    connection: AsyncConnection, sql: LiteralString, args: tuple[object, ...]
) -> Sequence[Row]:
    driver = await driver_connection(connection)
    if driver.is_in_transaction() or _is_autocommit(connection):
        return await driver.fetch(sql, *args, timeout=_options(connection).get(_ANSWER_TIMEOUT))
    result = await connection.exec_driver_sql(sql, args)
    return list(result.mappings()) if result.returns_rows else []


def _options(connection: AsyncConnection) -> Mapping[str, Any]:
    sync = connection.sync_connection
    return {} if sync is None else sync.get_execution_options()


def _is_autocommit(connection: AsyncConnection) -> bool:
    return _options(connection).get("isolation_level") == "AUTOCOMMIT"


async def fetch_one(
    connection: AsyncConnection,
    sql: LiteralString,
    *args: object,
) -> Row | None:
    """Run one statement and return its first row, None without one."""
    rows = await fetch(connection, sql, *args)
    return rows[0] if rows else None


_ALLOW_TIME: Final[LiteralString] = "SELECT set_config('statement_timeout', $1, true)"


async def allow_time(connection: AsyncConnection) -> None:
    """Let the statements of this transaction take longer than a request may."""
    await fetch(connection, _ALLOW_TIME, str(LONG_STATEMENT_S * 1000))
    await connection.execution_options(**{_ANSWER_TIMEOUT: LONG_STATEMENT_S + ANSWER_GRACE_S})
