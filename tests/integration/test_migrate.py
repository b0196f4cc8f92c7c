"""Migrating under concurrency, with a lock in the way, twice, and where a newer release was."""

import asyncio
import json
import os
import subprocess
import sys
from typing import Final

import asyncpg
import pytest
from alembic.script import ScriptDirectory

from app.core.errors import StorageError
from app.storage import migrate as migrate_module
from app.storage.migrate import alembic_config, current_revision, head_revision, migrate
from app.storage.pool import create_engine

pytestmark = pytest.mark.commits

#: What `alembic_version` may hold that no release put there.
GARBAGE: Final = [("",), ("head",), ("0000",), ("9",), ("abc123",), ("0007", "0008")]


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


# A newer release was here


def _set_revisions(url: str, *revisions: str) -> None:
    async def set_them() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("DELETE FROM alembic_version")
            rows = [(revision,) for revision in revisions]
            await connection.executemany("INSERT INTO alembic_version VALUES ($1)", rows)
        finally:
            await connection.close()

    asyncio.run(set_them())


def _command(url: str, name: str) -> subprocess.Popen[str]:
    settings = {
        "FOLDLINE_DATABASE_URL": url,
        "FOLDLINE_MIGRATE_ON_START": "true",
        "FOLDLINE_PORT": "0",
        "FOLDLINE_LOG_FORMAT": "json",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", name],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_revisions_are_numbered_so_that_a_newer_one_is_known() -> None:
    scripts = ScriptDirectory.from_config(alembic_config())
    revisions = [script.revision for script in scripts.walk_revisions()][::-1]
    assert revisions == [f"{number:04}" for number in range(1, len(revisions) + 1)]


def test_a_newer_schema_is_left_as_it_is(own_database_url: str) -> None:
    _set_revisions(own_database_url, "9999")

    process = _command(own_database_url, "migrate")
    output, errors = process.communicate()

    assert (process.returncode, errors) == (0, "")
    known = head_revision()
    assert output == f"the schema is at 9999, newer than this release, which knows {known}\n"


@pytest.mark.parametrize("name", ["serve", "worker"])
def test_a_service_starts_on_a_newer_schema(own_database_url: str, name: str) -> None:
    _set_revisions(own_database_url, "9999")
    process = _command(own_database_url, name)
    assert process.stdout is not None
    try:
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    finally:
        process.kill()
        process.communicate()
    assert [line["event"] for line in lines] == [
        "migration_skipped",
        "serving_started" if name == "serve" else "worker_started",
    ]
    assert (lines[0]["schema"], lines[0]["newest_known"]) == ("9999", head_revision())


@pytest.mark.parametrize("revisions", GARBAGE, ids=" ".join)
def test_a_revision_of_no_release_is_refused_in_one_line(
    own_database_url: str, revisions: tuple[str, ...]
) -> None:
    _set_revisions(own_database_url, *revisions)

    process = _command(own_database_url, "migrate")
    output, errors = process.communicate()

    assert (process.returncode, output) == (1, "")
    assert errors.startswith("foldline migrate: the schema cannot be migrated: ")
    assert errors.count("\n") == 1


async def test_a_schema_of_two_revisions_has_none_that_could_be_told(own_database_url: str) -> None:
    await asyncio.to_thread(_set_revisions, own_database_url, "0007", "0008")
    with pytest.raises(StorageError):
        await _revision(own_database_url)
