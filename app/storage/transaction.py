"""Who commits: the transaction and the single statement, both with translated errors.

A transaction is two round trips more than its statements. A read, or an append that is one
statement, takes `single_statement` and is one round trip in all.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.storage.errors import checkout_errors, storage_errors
from app.storage.pool import AUTOCOMMIT_OPTION, observer_of, pool_name_of


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction: committed at the end of the block, rolled back when the block raises.

    Raises:
        StorageError: as `storage_errors`; the commit is inside, so a lost one is reported.
    """
    with storage_errors():
        async with _connected(engine) as connection, _begun(connection):
            yield connection


@asynccontextmanager
async def snapshot(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction whose statements all see the same moment; for reading only.

    Raises:
        StorageError: as `storage_errors`.
    """
    with storage_errors():
        async with _connected(engine) as connection:
            await connection.execution_options(isolation_level="REPEATABLE READ")
            async with _begun(connection):
                yield connection


@asynccontextmanager
async def single_statement(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a connection on which every statement is a transaction of its own.

    Behind PgBouncer it is one transaction after all: there, preparing and running a statement may
    otherwise meet two different servers.

    Raises:
        StorageError: as `storage_errors`.
    """
    if not engine.sync_engine.get_execution_options().get(AUTOCOMMIT_OPTION, True):
        async with transaction(engine) as connection:
            yield connection
        return
    with storage_errors():
        async with _connected(engine) as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection


@asynccontextmanager
async def _connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Take a connection; one that did not answer in time, or broke, is dropped, not given back."""
    async with AsyncExitStack() as stack:
        connection = await _taken(stack, engine)
        try:
            yield connection
        except (TimeoutError, asyncio.CancelledError, asyncpg.InternalClientError):
            await connection.invalidate()
            raise


async def _taken(stack: AsyncExitStack, engine: AsyncEngine) -> AsyncConnection:
    """Take a connection for as long as the stack is open, and tell how long it was waited for."""
    observer = observer_of(engine.sync_engine)
    started_s = time.perf_counter()
    try:
        with checkout_errors():
            return await stack.enter_async_context(engine.connect())
    finally:
        # Also when it was in vain: that wait was the longest.
        if observer is not None:
            observer.pool_waited(pool_name_of(engine), time.perf_counter() - started_s)


@asynccontextmanager
async def _begun(connection: AsyncConnection) -> AsyncIterator[None]:
    """Begin; commit at the end of the block, roll back when it raises."""
    begun = await connection.begin()
    try:
        yield
        await begun.commit()
    except (TimeoutError, asyncio.CancelledError):
        # A rollback would wait behind the statement that nobody answers. The connection is dropped.
        raise
    except BaseException:
        await begun.rollback()
        raise
