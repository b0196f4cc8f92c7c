"""A release runs on the schema of the next one: revisions only add, and older code shows it.

While a deployment is rolled, and whenever it is rolled back, older replicas meet a newer schema.
"""

import asyncio
import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

import asyncpg
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from app.storage.migrate import alembic_config, migrate, migration_connection
from tests.conftest import REPOSITORY
from tests.faults.processes import fleet
from tests.programs import wait_until

pytestmark = pytest.mark.commits

Parts: TypeAlias = dict[tuple[str, ...], tuple[Any, ...]]

#: By kind: name of each part of the schema, and what it is.
CATALOGUE: Final = {
    "column": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            a.atthasdef OR a.attidentity <> ''
        FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind = 'r'
        WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
    """,
    # What may refuse a row. Postgres 18 counts NOT NULL as one, which is told with the column.
    "rule": """
        SELECT c.relname, k.conname, pg_get_constraintdef(k.oid)
        FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
        WHERE k.connamespace = 'public'::regnamespace AND k.contype <> 'n'
        UNION ALL
        SELECT t.relname, c.relname, pg_get_indexdef(i.indexrelid)
        FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = i.indexrelid
        JOIN pg_class AS t ON t.oid = i.indrelid
        WHERE c.relnamespace = 'public'::regnamespace AND i.indisunique
        UNION ALL
        SELECT c.relname, t.tgname, pg_get_triggerdef(t.oid)
        FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE NOT t.tgisinternal AND c.relnamespace = 'public'::regnamespace
    """,
    "function": """
        SELECT p.proname, pg_get_function_identity_arguments(p.oid),
            pg_get_function_result(p.oid)
        FROM pg_proc AS p
        WHERE p.pronamespace = 'public'::regnamespace
    """,
}
#: Rules that refuse something to older code on purpose, and why it minds none of them.
ALLOWED: Final = {
    ("audit_log", "audit_log_append_only"): "no release changes what was done",
    ("audit_log", "audit_log_no_truncate"): "no release empties what was done",
}


async def _catalogue(url: str) -> dict[str, Parts]:
    connection = await asyncpg.connect(url)
    try:
        return {
            kind: {tuple(row)[:2]: tuple(row)[2:] for row in await connection.fetch(sql)}
            for kind, sql in CATALOGUE.items()
        }
    finally:
        await connection.close()


def _refusals(before: dict[str, Parts], after: dict[str, Parts]) -> list[str]:
    """Return what code that knows the schema of before would stumble over."""
    tables = {table for table, _ in before["column"]}
    wrong = [
        f"{kind} {'.'.join(name)} is gone"
        for kind in ("column", "function")
        for name in before[kind]
        if name not in after[kind]
    ]
    for name, (kind, is_needed, has_default) in after["column"].items():
        if name not in before["column"]:
            if name[0] in tables and is_needed and not has_default:
                wrong.append(f"column {'.'.join(name)} is new and needed")
            continue
        kind_before, was_needed, had_default = before["column"][name]
        if kind != kind_before:
            wrong.append(f"column {'.'.join(name)} was {kind_before} and is {kind}")
        if (is_needed and not was_needed) or (had_default and not has_default):
            wrong.append(f"column {'.'.join(name)} is needed now")
    wrong += [
        f"function {'.'.join(name)} answers otherwise"
        for name, result in before["function"].items()
        if after["function"].get(name, result) != result
    ]
    wrong += [
        f"rule {'.'.join(name)} is new"
        for name, rule in after["rule"].items()
        if name[0] in tables and before["rule"].get(name) != rule and name not in ALLOWED
    ]
    return wrong


async def _upgrade(url: str, revision: str) -> None:
    def upgrade(connection: Connection) -> None:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)

    async with migration_connection(url) as connection:
        await connection.run_sync(upgrade)


def _revisions() -> list[str]:
    scripts = ScriptDirectory.from_config(alembic_config())
    return [script.revision for script in scripts.walk_revisions()][::-1]


async def test_every_revision_leaves_what_older_code_uses(empty_database_url: str) -> None:
    first, *later = _revisions()
    await _upgrade(empty_database_url, first)
    before = await _catalogue(empty_database_url)
    assert all(before.values())
    for revision in later:
        await _upgrade(empty_database_url, revision)
        after = await _catalogue(empty_database_url)
        assert _refusals(before, after) == [], revision
        before = after


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("ALTER TABLE sessions DROP COLUMN live", "column sessions.live is gone"),
        ("ALTER TABLE jobs RENAME TO tasks", "column jobs.job_id is gone"),
        ("ALTER TABLE jobs RENAME COLUMN kind TO queue", "column jobs.kind is gone"),
        ("ALTER TABLE events ADD COLUMN z int NOT NULL", "column events.z is new and needed"),
        ("ALTER TABLE events ALTER COLUMN seq TYPE numeric", "column events.seq was bigint"),
        (
            "ALTER TABLE tenants ALTER COLUMN rate_limit SET NOT NULL",
            "column tenants.rate_limit is needed now",
        ),
        (
            "ALTER TABLE sessions ALTER COLUMN bytes_raw DROP DEFAULT",
            "column sessions.bytes_raw is needed now",
        ),
        ("ALTER TABLE events ADD CONSTRAINT z CHECK (seq < 9)", "rule events.z is new"),
        ("CREATE UNIQUE INDEX z ON jobs (kind)", "rule jobs.z is new"),
        (
            "CREATE TRIGGER z BEFORE INSERT ON jobs EXECUTE FUNCTION refuse_audit_change()",
            "rule jobs.z is new",
        ),
        ("DROP FUNCTION erase_session", "function erase_session"),
    ],
)
async def test_a_revision_that_takes_something_away_is_seen(
    empty_database_url: str, statement: str, refusal: str
) -> None:
    await migrate(empty_database_url)
    before = await _catalogue(empty_database_url)
    connection = await asyncpg.connect(empty_database_url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
    found = _refusals(before, await _catalogue(empty_database_url))
    assert any(each.startswith(refusal) for each in found), found


# Older code itself


def _git(*arguments: str) -> bytes:
    ran = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, check=False)
    if ran.returncode != 0:
        pytest.skip(f"no history: {ran.stderr.decode(errors='replace').strip()}")
    return ran.stdout


@pytest.fixture
def older_source(tmp_path: Path) -> Path:
    """The code as it was when the newest revision but two of the schema was new."""
    # That of the newest but one wrote an index that no release did, and none reads.
    revisions = sorted((REPOSITORY / "migrations" / "versions").glob("*.py"))
    last, _, newest = (str(each.relative_to(REPOSITORY)) for each in revisions[-3:])
    added = _git("log", "--diff-filter=A", "--format=%H", "--", last).decode().split()
    if not added:
        pytest.skip(f"{last} is not committed yet")
    archive = _git("archive", added[-1], "app", "migrations")
    folder = tmp_path / "older"
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    assert not (folder / newest).exists()
    return folder


def test_older_code_serves_on_the_newest_schema(
    empty_database_url: str, older_source: Path, tmp_path: Path
) -> None:
    asyncio.run(migrate(empty_database_url))
    with fleet(empty_database_url, tmp_path, WORKER="embedded") as now:
        _, newer = now.service()
        now.source = older_source
        process, older = now.service(WORKER="embedded")
        # It is the older code that runs.
        assert f'schema="{_revisions()[-1]}"' not in older.get("/metrics").text
        assert re.search(r'build_info{[^}]*schema="\w+"', older.get("/metrics").text)
        path = f"/v1/sessions/{uuid4().hex}"
        policy = {"strategy": "interval", "compaction_interval": 2, "overlap_size": 0}
        body: dict[str, Any] = {"app_name": "a", "user_id": "u"}
        body["policy"] = {"compaction": {**policy, "worth_check": False}}
        assert older.put(path, json=body).status_code == 201
        for number in range(6):
            # By turns, as while a deployment is rolled.
            client = (older, newer)[number % 2]
            said: list[dict[str, Any]] = [{"author": "user", "content": "Where is it? " * 30}]
            said += [{"author": "a", "content": {"role": "model", "parts": [{"text": "There."}]}}]
            events = [{**event, "invocation_id": f"i{number}"} for event in said]
            answer = client.post(f"{path}/events", json={"events": events})
            assert answer.status_code == 201, answer.text

        def is_folded() -> bool:
            return bool(older.get(f"{path}/compactions").json()["data"])

        wait_until(is_folded, patience_s=60)
        # Up to here: another fold may land meanwhile.
        seq = older.get(path).json()["head_seq"]
        listed = f"{path}/events?before_seq={seq + 1}"
        log = [client.get(listed).json()["data"] for client in (older, newer)]
        assert [event["id"] for event in log[0]] == [event["id"] for event in log[1]]
        assert log[1][-1]["seq"] == seq
        asked = {"agent": "a", "format": "anthropic", "as_of_seq": seq}
        answers = [client.post(f"{path}/compile", json=asked).json() for client in (older, newer)]
        assert answers[0]["compiled_seq"] == answers[1]["compiled_seq"] == seq
        assert answers[0]["request"]["messages"]
        assert older.delete(path).status_code == 204
        assert process.terminate() == 0
