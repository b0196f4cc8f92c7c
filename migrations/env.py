"""How revisions run: with timeouts, each in its own transaction, one process at a time.

`foldline migrate` hands over a connection that holds the advisory lock. For the `alembic` command
(making a revision, printing the SQL) the database is FOLDLINE_DATABASE_URL.
"""

import asyncio
import os
from typing import Final

from alembic import context
from sqlalchemy import Connection

from app.storage.migrate import migration_connection

# A revision that waits for a lock makes everyone wait who comes after it.
LOCK_TIMEOUT: Final = "3s"


def run(connection: Connection) -> None:
    """Run the revisions on a connection whose turn it is."""
    connection.exec_driver_sql(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
    # A revision may look at many rows between two statements.
    connection.exec_driver_sql("SET idle_in_transaction_session_timeout = 0")
    connection.commit()
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def run_alone() -> None:
    """Run for the `alembic` command, which brings no connection."""
    async with migration_connection(os.environ["FOLDLINE_DATABASE_URL"]) as connection:
        await connection.run_sync(run)


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
elif (given := context.config.attributes.get("connection")) is not None:
    run(given)
else:
    asyncio.run(run_alone())
