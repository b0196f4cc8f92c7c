"""Who commits: the transaction and the single statement, both with translated errors.

A transaction is two round trips more than its statements. A read, or an append that is one
statement, takes `single_statement` and is one round trip in all.

Of SQLAlchemy only the pool is used here. Its own connection costs three times as much to take and
give back, more than a small statement does, and our statements go to the driver as they are.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from sqlalchemy import PoolProxiedConnection
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

from app.core.errors import StorageError
from app.storage.connection import PgConnection
from app.storage.errors import checkout_errors, storage_errors
from app.storage.pool import begins_with, observer_of, pool_name_of


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[PgConnection]:
    """Open a transaction: committed at the end of the block, rolled back when the block raises.

    Raises:
        StorageError: as `storage_errors`; the commit is inside, so a lost one is reported.
    """
    with storage_errors():
        async with _connected(engine) as connection, _begun(engine, connection):
            yield connection


@asynccontextmanager
async def snapshot(engine: AsyncEngine) -> AsyncIterator[PgConnection]:
    """Open a transaction whose statements all see the same moment; for reading only.

    Raises:
        StorageError: as `storage_errors`.
    """
    with storage_errors():
        async with (
            _connected(engine) as connection,
            _begun(engine, connection, begin="BEGIN ISOLATION LEVEL REPEATABLE READ"),
        ):
            yield connection


@asynccontextmanager
async def single_statement(engine: AsyncEngine) -> AsyncIterator[PgConnection]:
    """Open a connection on which every statement is a transaction of its own.

    Behind PgBouncer it is one transaction after all: there, preparing and running a statement may
    otherwise meet two different servers.

    Raises:
        StorageError: as `storage_errors`.
    """
    if begins_with(engine) is not None:
        async with transaction(engine) as connection:
            yield connection
        return
    with storage_errors():
        async with _connected(engine) as connection:
            yield connection


@asynccontextmanager
async def _connected(engine: AsyncEngine) -> AsyncIterator[PgConnection]:
    """Take a connection; one that did not answer in time, or broke, is dropped, not given back."""
    pooled = await _taken(engine)
    try:
        yield PgConnection(_driver_of(pooled), observer_of(engine))
    except (TimeoutError, asyncio.CancelledError, asyncpg.InternalClientError):
        await greenlet_spawn(pooled.invalidate)
        raise
    finally:
        await greenlet_spawn(pooled.close)


async def _taken(engine: AsyncEngine) -> PoolProxiedConnection:
    """Take a connection, and tell how long it was waited for."""
    observer = observer_of(engine)
    started_s = time.perf_counter()
    try:
        with checkout_errors():
            return await engine.raw_connection()
    finally:
        # Also when it was in vain: that wait was the longest.
        if observer is not None:
            observer.pool_waited(pool_name_of(engine), time.perf_counter() - started_s)


def _driver_of(pooled: PoolProxiedConnection) -> "asyncpg.Connection[asyncpg.Record]":
    driver = pooled.driver_connection
    if not isinstance(driver, asyncpg.Connection):
        raise TypeError("the pool is not on asyncpg")
    return driver


@asynccontextmanager
async def _begun(
    engine: AsyncEngine, connection: PgConnection, *, begin: str = "BEGIN"
) -> AsyncIterator[None]:
    """Begin; commit at the end of the block, roll back when it raises."""
    driver, settings = connection.driver, begins_with(engine)
    # Not by the driver's own transactions: one that could not begin would leave its mark on a
    # connection that goes back to the pool.
    await driver.execute(begin if settings is None else f"{begin}; {settings}")
    try:
        yield
    except (TimeoutError, asyncio.CancelledError):
        # A rollback would wait behind the statement that nobody answers. The connection is dropped.
        raise
    except BaseException:
        await driver.execute("ROLLBACK")
        raise
    if await driver.execute("COMMIT") != "COMMIT":
        # A statement had failed, and the block went on.
        raise StorageError
