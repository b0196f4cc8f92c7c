"""The log could be spread over machines by `session_uid`, as Citus spreads tables.

Citus cannot be installed where this runs. What it asks for is read from the catalogue and from the
statements instead: keys of spread tables hold the column, nothing refers from a spread table to one
that is not, and every statement that names a spread table says which session it means, so that it
goes to one machine.
"""

import asyncio
import re
from typing import Any, Final

import asyncpg
import pytest

from app.storage.query_names import query_names
from app.storage.tables import metadata

KEY: Final = "session_uid"
#: Everything of a session that its requests read and write; the key says on which machine.
SPREAD: Final = frozenset(
    {"answers", "calls", "compiled_requests", "events", "lanes", "session_details", "sessions"}
)
#: What stays in one place, and why.
WHOLE: Final = {
    "api_keys": "a tenant's; small, read by every machine",
    "app_policies": "a tenant's; small",
    "app_states": "a tenant's; small",
    "audit_log": "written rarely, read by operators",
    "calibrations": "a tenant's; small",
    "compile_inputs": "found by digest, also without a session",
    "idempotency_keys": "found by the request's own key, before its session is known",
    "jobs": "claimed fairly over all sessions, which no machine could do alone",
    "leases": "one row for each task of the whole service",
    "summary_spend": "a tenant's; small",
    "tenants": "small, read by every machine",
    "user_states": "a user's, over all sessions",
}
#: Statements that look at many sessions on purpose; none of them is on the way of a request that
#: appends or compiles.
OVER_ALL_SESSIONS: Final = {
    "sessions.counted": "the head of what lists a tenant's sessions",
    "sessions.page": "lists a tenant's sessions",
    "sessions.list_newest": "lists a tenant's sessions",
    "sessions.list_oldest": "lists a tenant's sessions",
    "sessions.expired": "finds the sessions whose time to live has passed, for a worker",
    "event_log.heads": "where the heads of the sessions are that a process streams",
    "log_checks.sessions": "lists the sessions that are to be checked",
    "log_checks.stray_events": "finds rows of no session, for an operator",
    "log_checks.stray_details": "finds rows of no session, for an operator",
    "tenants.usage": "what a tenant has in all, asked for at most now and then for its quota",
}
#: The beginning of statements that say it further on.
PIECES: Final = frozenset({"facts.header"})

_NAMES: Final = "|".join(sorted(SPREAD, key=len, reverse=True))
_STATEMENT: Final = re.compile(r"^\s*(WITH|SELECT|INSERT|UPDATE|DELETE)\b")
_NAMED: Final = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE)\s+({_NAMES})\b(?:\s+AS\s+(\w+))?")
#: Where a session comes in: compared with a parameter, or inserted; or from a list of sessions.
_ROOT: Final = re.compile(
    rf"\b{KEY}\s*=\s*(ANY\s*\()?\$\d|INSERT\s+INTO\s+\w+(\s+AS\s+\w+)?\s*\([^)]*{KEY}"
    rf"|\(\s*{KEY}\b[^)]*\)\s*(ON|WHERE|SELECT)"
)


@pytest.fixture(scope="module")
def catalogue(database_url: str) -> "Catalogue":
    return Catalogue(database_url)


class Catalogue:
    """What Postgres says of the migrated schema."""

    def __init__(self, url: str) -> None:
        self._url = url

    def rows(self, sql: str) -> list[Any]:
        """Return the rows of a statement, which may name `$1`, the spread tables."""

        async def read() -> list[Any]:
            connection = await asyncpg.connect(self._url)
            try:
                return list(await connection.fetch(sql, sorted(SPREAD)))
            finally:
                await connection.close()

        return asyncio.run(read())


def test_every_table_is_spread_or_stays_whole_for_a_reason() -> None:
    assert {table.name for table in metadata.tables.values()} == SPREAD | set(WHOLE)
    for name in SPREAD:
        assert not metadata.tables[name].columns[KEY].nullable


def test_unique_keys_of_spread_tables_hold_the_session(catalogue: Catalogue) -> None:
    rows = catalogue.rows("""
        SELECT c.relname AS name, array_agg(a.attname::text) AS columns
        FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = i.indexrelid
        JOIN pg_class AS t ON t.oid = i.indrelid
        JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum = ANY (i.indkey)
        WHERE i.indisunique AND t.relname = ANY ($1::text[])
        GROUP BY c.relname
    """)
    assert len(rows) >= len(SPREAD)
    assert [row["name"] for row in rows if KEY not in row["columns"]] == []


def test_foreign_keys_stay_on_one_machine(catalogue: Catalogue) -> None:
    rows = catalogue.rows("""
        SELECT k.conname AS name, own.relname AS own, other.relname AS other,
            (
                SELECT array_agg(a.attname::text)
                FROM pg_attribute AS a
                WHERE a.attrelid = own.oid AND a.attnum = ANY (k.conkey)
            ) AS columns
        FROM pg_constraint AS k
        JOIN pg_class AS own ON own.oid = k.conrelid
        JOIN pg_class AS other ON other.oid = k.confrelid
        WHERE k.contype = 'f'
            AND (own.relname = ANY ($1::text[]) OR other.relname = ANY ($1::text[]))
    """)
    for row in rows:
        assert row["own"] in SPREAD, row["name"]
        assert row["other"] in SPREAD, row["name"]
        assert KEY in row["columns"], row["name"]


def test_no_number_is_drawn_for_all_machines(catalogue: Catalogue) -> None:
    rows = catalogue.rows("""
        SELECT table_name, column_name
        FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name = ANY ($1::text[])
            AND (is_identity = 'YES' OR column_default LIKE 'nextval%')
    """)
    assert rows == []


def vague_names(sql: str) -> list[str]:
    """Return the spread tables of a statement of which it does not say whose rows it means."""
    if _NAMED.search(sql) and not _ROOT.search(sql):
        # Joined to one another on the key, perhaps, but to no session.
        return [table for _, table, _ in _NAMED.findall(sql)]
    vague = []
    for verb, table, alias in _NAMED.findall(sql):
        if verb == "INTO":
            columns = re.search(rf"INTO\s+{table}(?:\s+AS\s+\w+)?\s*\(([^)]*)\)", sql)
            says = columns is not None and KEY in columns[1]
        elif alias:
            says = re.search(rf"\b{alias}\.{KEY}\s*=|=\s*{alias}\.{KEY}\b", sql) is not None
        else:
            says = re.search(rf"(?<!\.)\b{KEY}\s*=\s*(\$|\w+\.{KEY})", sql) is not None
        if not says and f"USING ({KEY}" not in sql:
            vague.append(table)
    return vague


def test_every_statement_says_which_session_it_means() -> None:
    statements = {name: sql for sql, name in query_names().items() if _STATEMENT.match(sql)}
    assert len(statements) > 80
    naming = {name for name, sql in statements.items() if _NAMED.search(sql)} - PIECES
    assert len(naming) > 40
    vague = {name for name in naming if vague_names(statements[name])}
    assert vague == set(OVER_ALL_SESSIONS)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1 FROM events WHERE session_uid = $1", []),
        ("SELECT 1 FROM events JOIN calls USING (session_uid) WHERE session_uid = $1", []),
        ("SELECT 1 FROM events JOIN calls USING (session_uid)", ["calls", "events"]),
        ("SELECT 1 FROM events WHERE author = $1", ["events"]),
        ("SELECT 1 FROM sessions AS s WHERE s.tenant_id = $1", ["sessions"]),
        ("INSERT INTO events (session_uid, seq) VALUES ($1, $2)", []),
        ("INSERT INTO events (seq) VALUES ($1)", ["events"]),
        ("UPDATE sessions AS s SET head_seq = 1 WHERE s.session_uid = $1", []),
        ("UPDATE sessions SET head_seq = 1", ["sessions"]),
    ],
)  # fmt: skip
def test_what_is_vague_is_found(sql: str, tables: list[str]) -> None:
    assert sorted(vague_names(sql)) == tables


def test_functions_of_the_database_say_it_too(catalogue: Catalogue) -> None:
    rows = catalogue.rows("""
        SELECT p.proname AS name, p.prosrc AS body
        FROM pg_proc AS p
        JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = 'public' AND $1::text[] IS NOT NULL
    """)
    assert "erase_session" in {row["name"] for row in rows}
    for row in rows:
        for statement in re.split(r";", row["body"]):
            for table in re.findall(rf"(?:DELETE\s+FROM|UPDATE)\s+({_NAMES})\b", statement):
                assert KEY in statement, f"{row['name']}: {table}"
