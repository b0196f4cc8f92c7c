"""The revisions, `schema.sql` and the tables in Python say the same; who may do what."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection

from app.storage.migrate import migrate
from app.storage.pool import create_engine
from app.storage.tables import metadata
from tests.conftest import REPOSITORY, TEST_DATABASE_URL

pytestmark = pytest.mark.commits

ROLE = "foldline_app"

#: Every part of the schema as a line of text. What Postgres 18 counts as constraints besides, NOT
#: NULL, is told with the columns.
TABLES = """
    SELECT format(
        'column %s.%s %s %s default %s identity "%s"',
        c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attnotnull THEN 'not null' ELSE 'null' END,
        coalesce(pg_get_expr(d.adbin, d.adrelid), '-'), a.attidentity
    )
    FROM pg_attribute AS a
    JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind = 'r'
    LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE
        c.relnamespace = 'public'::regnamespace
        AND c.relname <> 'alembic_version'
        AND a.attnum > 0
        AND NOT a.attisdropped
    UNION ALL
    SELECT format(
        'constraint %s on %s %s', k.conname, k.conrelid::regclass, pg_get_constraintdef(k.oid)
    )
    FROM pg_constraint AS k
    WHERE
        k.connamespace = 'public'::regnamespace
        AND k.contype NOT IN ('n', 't')
        AND k.conrelid::regclass::text <> 'alembic_version'
    UNION ALL
    SELECT format('index %s', i.indexdef)
    FROM pg_indexes AS i
    WHERE i.schemaname = 'public' AND i.tablename <> 'alembic_version'
"""
PROGRAMS = r"""
    SELECT format('trigger %s', pg_get_triggerdef(t.oid))
    FROM pg_trigger AS t
    WHERE NOT t.tgisinternal
    UNION ALL
    SELECT format('function %s', regexp_replace(pg_get_functiondef(p.oid), '\s+', ' ', 'g'))
    FROM pg_proc AS p
    WHERE p.pronamespace = 'public'::regnamespace
"""


async def _run(url: str, *statements: str) -> list[list[Any]]:
    connection = await asyncpg.connect(url)
    try:
        return [[row[0] for row in await connection.fetch(sql)] for sql in statements]
    finally:
        await connection.close()


async def _described(url: str, *queries: str) -> list[str]:
    return sorted(line for lines in await _run(url, *queries) for line in lines)


async def test_revisions_make_what_schema_sql_says(
    empty_database_url: str, another_empty_database_url: str
) -> None:
    await migrate(empty_database_url)
    connection = await asyncpg.connect(another_empty_database_url)
    await connection.execute((REPOSITORY / "migrations" / "schema.sql").read_text())
    await connection.close()

    revisions = await _described(empty_database_url, TABLES, PROGRAMS)

    assert revisions
    assert revisions == await _described(another_empty_database_url, TABLES, PROGRAMS)


async def test_revisions_make_the_tables_that_the_code_knows(
    empty_database_url: str, another_empty_database_url: str
) -> None:
    await migrate(empty_database_url)
    engine = create_engine(another_empty_database_url, size=1)
    async with engine.begin() as connection:
        await connection.run_sync(_create_tables)
    await engine.dispose()

    assert await _described(empty_database_url, TABLES) == await _described(
        another_empty_database_url, TABLES
    )


def _create_tables(connection: Connection) -> None:
    metadata.create_all(connection)


# A role of the service's own


@pytest.fixture
def service_role(server_url: str) -> Iterator[str]:
    """The service's role, made before the database so that it goes after it."""
    with suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
        asyncio.run(_run(server_url, f"CREATE ROLE {ROLE}"))
    yield ROLE
    if TEST_DATABASE_URL is None:
        # A server that other processes test on keeps it: they may be in the middle of a migration
        # that has seen it, or of a test as it.
        asyncio.run(_run(server_url, f"DROP ROLE {ROLE}"))


async def _as_service(url: str, statement: str, *args: Any) -> Sequence[asyncpg.Record]:
    connection = await asyncpg.connect(url, server_settings={"role": ROLE})
    try:
        rows: Sequence[asyncpg.Record] = await connection.fetch(statement, *args)
        return rows
    finally:
        await connection.close()


INSERT_SESSION = """
    INSERT INTO sessions (session_uid, tenant_id, session_id, app_name, user_id, head_seq)
    VALUES ('00000000-0000-0000-0000-000000000001', 'acme', 's', 'app', 'user', 1)
"""
INSERT_EVENT = """
    INSERT INTO events (
        session_uid, seq, id, kind, lane, author, invocation_id, event_at, tokens, raw,
        source_format, item_part, body_hash, derived, derived_version
    )
    VALUES (
        '00000000-0000-0000-0000-000000000001', 1, 'e1', 'message', 1, 'user', '', 0, 1, '{}',
        'native', 0, '', '[]', 1
    )
"""
ERASE = "SELECT erase_session('00000000-0000-0000-0000-000000000001', 'me', 'asked') AS is_erased"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events",
        "UPDATE events SET raw = ''",
        "TRUNCATE events",
        "ALTER TABLE events DISABLE TRIGGER ALL",
        "DELETE FROM calls",
        "DELETE FROM answers",
        "DELETE FROM sessions",
        "DELETE FROM audit_log",
        "UPDATE audit_log SET reason = ''",
    ],
)
@pytest.mark.usefixtures("service_role")
async def test_the_service_has_no_right_to_change_the_log(
    empty_database_url: str, statement: str
) -> None:
    await migrate(empty_database_url)

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await _as_service(empty_database_url, statement)


@pytest.mark.usefixtures("service_role")
async def test_the_service_may_append_and_erase_whole_sessions(empty_database_url: str) -> None:
    await migrate(empty_database_url)
    await _as_service(empty_database_url, INSERT_SESSION)
    await _as_service(empty_database_url, INSERT_EVENT)

    erased = await _as_service(empty_database_url, ERASE)

    assert erased[0]["is_erased"]
    assert not await _as_service(empty_database_url, "SELECT seq FROM events")


@pytest.mark.usefixtures("service_role")
async def test_the_service_may_use_every_table(empty_database_url: str) -> None:
    await migrate(empty_database_url)

    for table in metadata.tables:
        await _as_service(empty_database_url, f"SELECT count(*) FROM {table}")  # noqa: S608  ours
    await _as_service(empty_database_url, "SELECT version_num FROM alembic_version")


async def test_nobody_else_may_erase(empty_database_url: str) -> None:
    await migrate(empty_database_url)

    granted = await _run(
        empty_database_url,
        "SELECT has_function_privilege('public', 'erase_session(uuid, text, text)', 'EXECUTE')",
    )

    assert granted == [[False]]
