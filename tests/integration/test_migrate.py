"""Migrating under concurrency, with a lock in the way, and twice."""

import asyncio

import pytest

from app.storage import migrate as migrate_module
from app.storage.migrate import current_revision, head_revision, migrate
from app.storage.pool import create_engine

pytestmark = pytest.mark.commits


async def _revision(url: str) -> str | None:
    engine = create_engine(url, size=1)
    try:
        return await current_revision(engine)
    finally:
        await engine.dispose()


async def test_concurrent_migrations_take_turns(empty_database_url: str) -> None:
    await asyncio.gather(*(migrate(empty_database_url) for _ in range(4)))

    assert await _revision(empty_database_url) == head_revision()


async def test_migrating_again_changes_nothing(database_url: str) -> None:
    await migrate(database_url)

    assert await _revision(database_url) == head_revision()


async def test_a_database_without_schema_has_no_revision(empty_database_url: str) -> None:
    assert await _revision(empty_database_url) is None


async def test_migration_waits_for_another_to_finish(empty_database_url: str) -> None:
    async with migrate_module.migration_connection(empty_database_url):
        waiting = asyncio.create_task(migrate(empty_database_url))
        await asyncio.sleep(0.5)
        assert not waiting.done()

    await waiting
    assert await _revision(empty_database_url) == head_revision()


async def test_a_failed_migration_leaves_the_lock(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    with monkeypatch.context() as patch:
        patch.setattr("alembic.command.upgrade", fail)
        with pytest.raises(LookupError):
            await migrate(empty_database_url)

    await migrate(empty_database_url)
