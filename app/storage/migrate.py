"""Bring a database's schema to the newest revision; safe when several processes try at once.

A schema that is newer than this release is left as it is: the release works on it, which is how one
rolls back. The revisions, and how each of them runs, are in `migrations/`. Behind PgBouncer a
session's lock means nothing: give the URL of Postgres itself.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from re import fullmatch
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

import app
from app.core.errors import StorageError, StorageForbiddenError, StorageUnavailableError
from app.storage.errors import checkout_errors, storage_errors
from app.storage.pool import create_engine

#: "foldline" as eight bytes: a key that no other application takes by chance.
ADVISORY_LOCK: Final = int.from_bytes(b"foldline", "big")
#: How long to wait for another process that migrates.
TURN_TIMEOUT_S: Final = 600.0
POLL_S: Final = 0.1
#: For one statement: long enough to build an index, short enough to be noticed.
STATEMENT_TIMEOUT_S: Final = 3600.0
#: A revision gives up quickly when it has to wait for a lock (`env.py`); then it tries again.
ATTEMPTS: Final = 5
RETRY_AFTER_S: Final = 2.0


async def migrate(url: str) -> str | None:
    """Run every revision that the database lacks; each commits on its own.

    Returns:
        The revision that the schema is at: the newest of this release, or a newer one.

    Raises:
        StorageUnavailableError: not reachable, or a lock was not free for several attempts; or not
            allowed, at once.
        StorageError: a revision failed, and those before it stand; or the revision of the schema
            is of no release.
    """
    attempt = 1
    while True:
        try:
            async with migration_connection(url) as connection:
                return await connection.run_sync(_upgrade_to_head)
        except StorageForbiddenError:
            raise
        except StorageUnavailableError:
            if attempt == ATTEMPTS:
                raise
            await asyncio.sleep(RETRY_AFTER_S)
        attempt += 1


@asynccontextmanager
async def migration_connection(url: str) -> AsyncIterator[AsyncConnection]:
    """Open a connection that is alone with the schema; its turn ends with the block.

    The lock is asked for again and again, because a statement that waits holds a snapshot, and an
    index built CONCURRENTLY by the one whose turn it is would wait for that snapshot: a deadlock.
    It is taken before Alembic begins, whose context is one for the whole process.
    """
    engine = create_engine(
        url,
        size=1,
        application_name="foldline-migrate",
        statement_timeout_s=STATEMENT_TIMEOUT_S,
    )
    try:
        with storage_errors():
            async with engine.connect() as connection:
                async with asyncio.timeout(TURN_TIMEOUT_S):
                    while not await _try_lock(connection):  # noqa: ASYNC110  it is another process
                        await asyncio.sleep(POLL_S)
                # Closing the connection gives the lock back, however the block ends.
                yield connection
    finally:
        await engine.dispose()


async def current_revision(engine: AsyncEngine) -> str | None:
    """Return the revision that a database is at, or None when it was never migrated.

    Raises:
        StorageError: as `storage_errors`.
    """
    with storage_errors(), checkout_errors():
        async with engine.connect() as connection:
            return await connection.run_sync(_revision_of)


def head_revision() -> str | None:
    """Return the newest revision that this release knows."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head()


def is_newer(revision: str) -> bool:
    """Tell whether a revision comes after all that this release knows: they are numbered."""
    return fullmatch("[0-9]{4}", revision) is not None and revision > (head_revision() or "")


def older_revisions() -> frozenset[str]:
    """Return the revisions that come before the newest one that this release knows."""
    scripts = ScriptDirectory.from_config(alembic_config())
    known = frozenset(script.revision for script in scripts.walk_revisions())
    return known - {scripts.get_current_head() or ""}


def alembic_config() -> Config:
    """Return Alembic's configuration, whether installed from a wheel or run from a checkout."""
    package = Path(app.__file__).parent
    packaged = package / "_migrations"
    config = Config()
    config.set_main_option(
        "script_location", str(packaged if packaged.exists() else package.parent / "migrations")
    )
    return config


async def _try_lock(connection: AsyncConnection) -> bool:
    taken = await connection.scalar(
        text("SELECT pg_try_advisory_lock(:key)"), {"key": ADVISORY_LOCK}
    )
    await connection.rollback()
    return bool(taken)


def _upgrade_to_head(connection: Connection) -> str | None:
    config = alembic_config()
    config.attributes["connection"] = connection
    revision = _revision_of(connection)
    # What was read opened a transaction; each revision has one of its own.
    connection.rollback()
    if revision is not None and is_newer(revision):
        return revision
    # Alembic would take more for one: `head`, a beginning.
    if revision not in {None, head_revision(), *older_revisions()}:
        raise StorageError(f"the schema cannot be migrated: no release has a revision {revision!r}")
    with _alembic_errors():
        command.upgrade(config, "head")
    return head_revision()


def _revision_of(connection: Connection) -> str | None:
    with _alembic_errors():
        return MigrationContext.configure(connection).get_current_revision()


@contextmanager
def _alembic_errors() -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        raise StorageError(f"the schema cannot be migrated: {error}") from error
