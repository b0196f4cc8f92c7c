"""Re-checking stored sessions: what is whole passes, and whatever is broken is named."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from app.core.ids import session_uid
from app.services.verify_sessions import SessionReport
from app.storage import tables
from app.storage.embedded_cluster import _installed
from app.storage.migrate import migrate
from app.wiring import build
from tests.api.conftest import Api, call, client_of, model, response, settings_for, user

pytestmark = pytest.mark.commits


@pytest.fixture
async def url(empty_database_url: str) -> str:
    """URL of a migrated database of the test's own."""
    await migrate(empty_database_url)
    return empty_database_url


@pytest.fixture
async def api(url: str) -> AsyncIterator[Api]:
    """The service on it."""
    async with client_of(settings_for(url)) as client:
        yield Api(client)


async def reports(url: str) -> dict[str, SessionReport]:
    """Check every session; return the reports by session id."""
    async with build(settings_for(url)) as services:
        assert await services.verify_sessions.strays() == ()
        return {each.key.session_id: each async for each in services.verify_sessions.all()}


def kinds(report: SessionReport) -> set[str]:
    return {finding.kind for finding in report.findings}


async def reply(api: Api, path: str, text: str, **fields: Any) -> dict[str, Any]:
    """Compile, and append what the model answers to it; what is None is not said."""
    asked = {"agent": "agent", **fields}
    body = {name: value for name, value in asked.items() if value is not None}
    compiled = await api.post(f"{path}/compile", body)
    assert compiled.status_code == 200, compiled.text
    told = compiled.json()
    recorded = {
        "compiled_seq": told["compiled_seq"],
        "compiled_fingerprint": told["fingerprint"],
    }
    await api.append(path, model(text, **recorded))
    return recorded


async def test_an_index_of_an_older_release_is_no_damage(api: Api, url: str) -> None:
    path = await api.session()
    for last in (4, 9):
        await api.append(path, *(user(f"{n} and so on") for n in range(4)))
        body = {"covers": {"from_seq": 1, "to_seq": last}, "content": "in brief"}
        assert (await api.post(f"{path}/summaries", body)).json()["covers"] == [[1, last]]
    connection = await asyncpg.connect(url)
    try:
        # As it was stored: a gap for the marker within, and no counts.
        stored = """[[],[[10,0,[null,"",[],""],[[1,4],[6,9]]]]]"""
        assert await connection.fetchval("SELECT index::text FROM sessions") != stored
        await connection.execute("UPDATE sessions SET index = $1", stored)
        (report,) = (await reports(url)).values()
        assert kinds(report) == set()
        changed = stored.replace("[6,9]", "[6,8]")
        await connection.execute("UPDATE sessions SET index = $1", changed)
        (report,) = (await reports(url)).values()
        assert kinds(report) == {"index"}
    finally:
        await connection.close()
    assert (await api.post(f"{path}/compile", {"format": "openai_chat"})).status_code == 200


@pytest.mark.parametrize(
    "options",
    [
        {"narration": "name"},
        {"narration": "none"},
        {"foreign_thoughts": True},
        {"include_contents": "none"},
        {"agent": None},
        {"agent": None, "preset": "adk"},
        {"preset": "adk", "narration": "name", "foreign_thoughts": True},
    ],
)
async def test_options_that_the_head_does_not_show_are_no_damage(
    api: Api, url: str, options: dict[str, Any]
) -> None:
    path = await api.session()
    await api.append(path, user("Where is it?", invocation_id="i1"))
    await reply(api, path, "Which one?", **options)
    thought = {"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "Noted."}]}
    await api.append(path, user("58-1140"), {"author": "other", "content": thought})
    await reply(api, path, "It is held.", **options)
    await api.append(path, user("Thank you."))
    await reply(api, path, "You are welcome.", **options)

    (report,) = (await reports(url)).values()

    assert (kinds(report), report.replies_proved) == (set(), 3)


#: Signed, as Gemini 3 gives it; the call has an id as ADK makes them.
SIGNED: Final = {
    "role": "model",
    "parts": [
        {"text": "Which order?", "thought": True},
        {"text": "I look.", "thought_signature": "c2ln"},
        {"function_call": {"id": "adk-1", "name": "track", "args": {}}},
    ],
}


@pytest.mark.parametrize(
    "options",
    [{"preset": "adk"}, {"ids": "strip"}, {"preset": "adk", "thinking": "strip"}, {"ids": "keep"}],
)
async def test_what_makes_a_difference_only_later_is_no_damage(
    api: Api, url: str, options: dict[str, Any]
) -> None:
    path = await api.session()
    await api.append(path, user("Where is my order?"))
    asked = {"agent": "agent", "format": "gemini", **options}
    told = (await api.post(f"{path}/compile", asked)).json()
    recorded = {
        "compiled_seq": told["compiled_seq"],
        "compiled_fingerprint": told["fingerprint"],
    }
    await api.append(
        path,
        {"author": "agent", "content": SIGNED, **recorded},
        response("track", "adk-1", {"state": "held"}),
    )
    await reply(api, path, "done", format="gemini", **options)

    (report,) = (await reports(url)).values()

    assert (kinds(report), report.replies_proved, report.replies_not_proved) == (set(), 2, 0)


@pytest.mark.parametrize("budget", [60, 90, 130])
async def test_a_budget_of_the_caller_s_own_is_no_damage(api: Api, url: str, budget: int) -> None:
    path = await api.session()
    for number in range(8):
        await api.append(path, user(f"What of order {number}? " + "Please. " * 10))
        await reply(api, path, f"Order {number} is held.", budget={"max_input_tokens": budget})

    (report,) = (await reports(url)).values()

    assert kinds(report) == set()
    assert report.replies_proved > 0


async def test_a_summary_that_was_opened_is_no_damage(api: Api, url: str) -> None:
    path = await api.session()
    await api.append(path, user("The price is 100."))
    await reply(api, path, "Noted.")
    await api.append(path, user("Add 5."))
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "100 was noted."}
    assert (await api.post(f"{path}/summaries", body)).status_code == 201
    await reply(api, path, "It is 105.", expand=[4])

    (report,) = (await reports(url)).values()

    assert (kinds(report), report.replies_not_proved) == (set(), 1)


async def eventful(api: Api) -> str:
    """A session in which everything happened once."""
    path = await api.session(user_id="one-with-state", state={"k": 1, "user:n": 2})
    await api.append(path, user("Where is my order?", id="e1", invocation_id="i1"))
    await reply(api, path, "Which one?", tools=[{"name": "track"}], system="Help.")
    await api.append(
        path,
        user("58-1140 \u4e2d\u6587 h\u00e9llo"),
        call("track", "c1", {"order": "58-1140"}),
        response("track", "c1", {"state": "held " * 20}),
        {**model("scoped"), "branch": "root.a", "isolation_scope": "s"},
        {**user("state"), "actions": {"state_delta": {"k": 2, "app:x": 1}}},
    )
    await reply(api, path, "It is held.", tools=[{"name": "track"}], system="Help.")
    for where, body in [
        (
            "summaries",
            {"covers": {"from_seq": 1, "to_seq": 2}, "content": "An order is asked."},
        ),
        ("pins", {"seqs": [3]}),
        ("elisions", {"seqs": [5]}),
    ]:
        assert (await api.post(f"{path}/{where}", body)).status_code == 201
    await api.append(path, user("wrong"), user("turn"))
    head = await api.head_seq(path)
    assert (await api.post(f"{path}/rewind", {"to_seq": head - 1})).status_code == 201
    await api.append(path, user("Send it on."))
    await reply(api, path, "It is on its way.", tools=[{"name": "track"}], system="Help.")
    return path


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


async def test_sessions_that_are_whole_pass(api: Api, url: str) -> None:
    path = await eventful(api)
    await api.session()
    fork = await api.post(f"{path}/fork", {"new_id": "fork", "at_seq": 9})
    assert fork.status_code == 201
    imported = await api.session()
    for source_format, item in [
        ("openai_chat", {"role": "assistant", "content": "hi", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
        ("openai_chat", {"role": "tool", "tool_call_id": "c", "content": "done"}),
        ("anthropic", {"role": "user", "content": [{"type": "text", "text": "a"}]}),
        ("gemini", {"role": "model", "parts": [{"text": "b"}]}),
    ]:  # fmt: skip
        body = {"format": source_format, "items": [item]}
        assert (await api.post(f"{imported}/events", body)).status_code == 201

    found = await reports(url)

    assert len(found) == 4
    assert {name: report.findings for name, report in found.items()} == dict.fromkeys(found, ())
    assert found[name_of(path)].events == await api.head_seq(path)
    # All that it replied to is proved, though nobody kept tools and system text.
    assert found[name_of(path)].replies_proved == 3
    assert found[name_of(path)].replies_not_proved == 0


async def test_replies_with_options_that_are_not_known_are_no_finding(api: Api, url: str) -> None:
    path = await api.session()
    await api.append(path, user("a"))
    await reply(api, path, "b", format="openai_chat", model="a-model-of-no-rule")
    await api.append(path, user("c"))
    await reply(api, path, "d", preset="adk", format="anthropic")
    report = (await reports(url))[name_of(path)]
    assert report.findings == ()
    assert report.replies_proved + report.replies_not_proved == 2


#: What is done to the session, and the kind of what is found. ``$1`` is its uid.
DAMAGES: Final = [
    ("DELETE FROM events WHERE session_uid = $1 AND seq = 3", "gap"),
    ("UPDATE sessions SET head_seq = head_seq + 1 WHERE session_uid = $1", "head"),
    (
        """
        UPDATE events SET raw = replace(raw, '58', '59')
        WHERE session_uid = $1 AND seq = 3
        """,
        "body_hash",
    ),
    (
        """
        UPDATE events SET derived = replace(derived, '58', '59')
        WHERE session_uid = $1 AND seq = 3
        """,
        "derived",
    ),
    ("UPDATE events SET raw = '{' WHERE session_uid = $1 AND seq = 3", "unreadable"),
    ("UPDATE events SET tokens = tokens + 1 WHERE session_uid = $1 AND seq = 3", "tokens"),
    ("UPDATE events SET kind = 'pin' WHERE session_uid = $1 AND seq = 3", "kind"),
    ("UPDATE events SET owner_seqs = '{3}' WHERE session_uid = $1 AND seq = 5", "owners"),
    ("DELETE FROM calls WHERE session_uid = $1", "calls"),
    ("UPDATE calls SET call_id = 'c2' WHERE session_uid = $1", "calls"),
    ("DELETE FROM answers WHERE session_uid = $1", "answers"),
    ("INSERT INTO answers VALUES ($1, 4, 0, 7)", "answers"),
    ("DELETE FROM lanes WHERE session_uid = $1 AND branch = 'root.a'", "lane"),
    ("UPDATE lanes SET last_seq = 1 WHERE session_uid = $1 AND branch = ''", "lane"),
    ("UPDATE sessions SET live = '{[1,)}' WHERE session_uid = $1", "index"),
    ("UPDATE sessions SET rewound = '{}' WHERE session_uid = $1", "index"),
    ("UPDATE sessions SET fold_seqs = '{}' WHERE session_uid = $1", "index"),
    ("UPDATE sessions SET fold_lanes = '{7}' WHERE session_uid = $1", "index"),
    ("UPDATE sessions SET last_rewind_seq = 0 WHERE session_uid = $1", "index"),
    ("UPDATE sessions SET index = '[[],[]]' WHERE session_uid = $1", "index"),
    ("UPDATE sessions SET tokens_raw = tokens_raw + 1 WHERE session_uid = $1", "counters"),
    ("UPDATE sessions SET compactions = 5 WHERE session_uid = $1", "counters"),
    ("UPDATE sessions SET live_events = 0 WHERE session_uid = $1", "counters"),
    ("UPDATE sessions SET tokens_live = 0 WHERE session_uid = $1", "counters"),
    ("UPDATE sessions SET bytes_raw = 0 WHERE session_uid = $1", "counters"),
    ("DELETE FROM session_details WHERE session_uid = $1", "details"),
]


async def damage(url: str, path: str, statement: str) -> None:
    """Change what is stored behind the back of the triggers."""
    connection = await asyncpg.connect(url, server_settings={"session_replication_role": "replica"})
    try:
        uid = await connection.fetchval(
            "SELECT session_uid FROM sessions WHERE session_id = $1", name_of(path)
        )
        changed = await connection.execute(statement, uid)
        assert not changed.endswith(" 0"), statement
    finally:
        await connection.close()


async def test_every_kind_of_damage_is_named(api: Api, url: str) -> None:
    damaged = [(await eventful(api), statement, kind) for statement, kind in DAMAGES]
    whole = await eventful(api)
    for path, statement, _ in damaged:
        await damage(url, path, statement)

    found = await reports(url)

    missed = [
        (statement, kinds(found[name_of(path)]))
        for path, statement, kind in damaged
        if kind not in kinds(found[name_of(path)])
    ]
    assert missed == []
    assert found[name_of(whole)].findings == ()


async def thorough(api: Api) -> str:
    """An eventful session that also has what is rarely there."""
    path = await eventful(api)
    asked = {"requested_tool_confirmations": {"c2": {"hint": "sure?"}}}
    cache = {"fingerprint": "f", "contents_count": 2}
    await api.append(
        path,
        user("then", timestamp="2026-11-30T12:00:00Z"),
        call("refund", "c2", {"order": "58-1140"}),
        {**response("refund", "c2", {}), "actions": asked},
        {**model("in a tool"), "branch": "refund@c2"},
        {**model("cached"), "cache_metadata": cache},
    )
    items = [
        {"role": "user", "content": [{"type": "text", "text": "imported"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "imported too"}]},
    ]
    body = {"format": "anthropic", "items": items}
    assert (await api.post(f"{path}/events", body)).status_code == 201
    assert (await api.patch(path, {"policy": {"pins": {"max_tokens": 9}}, "ttl_s": 99})).is_success
    return path


#: By table and column: what it is changed to, and in which row. Of the tables of a session, every
#: column is here or below.
COLUMNS: Final = {
    "events": {
        "seq": ("99", "seq = 23"),
        "id": ("'e0'", "seq = 1"),
        "kind": ("'pin'", "seq = 3"),
        "lane": ("2", "seq = 3"),
        "author": ("'ada'", "seq = 3"),
        "invocation_id": ("'i2'", "seq = 1"),
        "event_at": ("0", "seq = 17"),
        "tokens": ("0", "seq = 3"),
        "raw": ("replace(raw, '58', '59')", "seq = 3"),
        "source_format": ("'gemini'", "seq = 22"),
        "item_part": ("1", "seq = 3"),
        "body_hash": ("decode('00', 'hex')", "seq = 3"),
        "derived": ("replace(derived, '58', '59')", "seq = 3"),
        "resolved": ("replace(resolved, '[[2,1,1]', '[[2,0,1]')", "seq = 2"),
        "owner_seqs": ("'{3}'", "seq = 5"),
        "requested_ids": ("NULL", "seq = 19"),
        "marker": ("replace(marker, 'An order', 'No order')", "seq = 9"),
        "section_lanes": ("'{2}'", "seq = 9"),
        "state_delta": ("""'{"k":3}'""", "seq = 7"),
        "cache_record": ("NULL", "seq = 21"),
        "schema_version": ("9", "seq = 3"),
    },
    "calls": {
        "seq": ("3", "seq = 4"),
        "part_index": ("1", "seq = 4"),
        "call_id": ("'c9'", "seq = 4"),
        "name": ("'find'", "seq = 4"),
        "lane": ("2", "seq = 4"),
        "author": ("'other'", "seq = 4"),
        "response_seq": ("2", "seq = 4"),
        "has_args": ("false", "seq = 4"),
    },
    "answers": {
        "call_seq": ("2", "call_seq = 4"),
        "call_part": ("1", "call_seq = 4"),
        "answer_seq": ("6", "call_seq = 4"),
    },
    "lanes": {
        "lane": ("9", "branch = 'root.a'"),
        "isolation_scope": ("'t'", "branch = 'root.a'"),
        "branch": ("'root.b'", "branch = 'root.a'"),
        "tool_names": ("'{}'", "branch = 'refund@c2'"),
        "node_path": ("'n'", "branch = 'root.a'"),
        "first_seq": ("1", "branch = 'root.a'"),
        "last_seq": ("1", "branch = ''"),
        "replies": ("'{}'", "branch = ''"),
    },
    "sessions": {
        "tenant_id": ("'other'", ""),
        "session_id": ("session_id || '2'", ""),
        "head_seq": ("head_seq + 1", ""),
        "live": ("'{[1,)}'", ""),
        "rewound": ("'{}'", ""),
        "fold_seqs": ("'{}'", ""),
        "fold_lanes": ("'{7}'", ""),
        "index": ("'[[],[]]'", ""),
        "last_rewind_seq": ("0", ""),
        "tokens_raw": ("tokens_raw + 1", ""),
        "compactions": ("5", ""),
        "policy": ("NULL", ""),
        "schema_version": ("9", ""),
        "live_events": ("0", ""),
        "tokens_live": ("0", ""),
        "invocation_id": ("'i9'", ""),
        "bytes_raw": ("0", ""),
        "bytes_at_seq": ("head_seq + 1", ""),
    },
    "session_details": {
        "base_state": ("""'{"j":1}'""", ""),
        "state": ("""'{"k":7}'""", ""),
        "ttl_s": ("NULL", ""),
        "expires_at": ("NULL", ""),
        "schema_version": ("9", ""),
    },
}
#: By table and column: why nothing can be compared with it.
NOT_COMPARED: Final = {
    "events": {
        "derived_version": "says which release derived; another one's row is derived again",
        "created_at": "the server's time",
    },
    "sessions": {
        "app_name": "the caller's",
        "user_id": "the caller's",
        "incarnation": "random",
        "updated_at": "the server's time",
        "is_invocation_complete": "what the planner remembers",
        "invocations_new": "what the planner remembers",
        "tokens_tried": "what the planner remembers",
    },
    "session_details": {
        "metadata": "the caller's",
        "forked_from": "the caller's",
        "created_at": "the server's time",
    },
}


def test_every_column_of_a_session_is_compared_or_said_not_to_be() -> None:
    for name, columns in COLUMNS.items():
        known = {column.name for column in tables.metadata.tables[name].columns}
        named = [*columns, *NOT_COMPARED.get(name, {})]
        # What a row is a session's by is compared with the sessions: `strays`.
        assert sorted([*named, "session_uid"]) == sorted(known), name


def _change(table: str, column: str, value: str, where: str) -> str:
    return f"UPDATE {table} SET {column} = {value} WHERE session_uid = $1{where}"  # noqa: S608


async def test_a_change_of_any_column_is_found(api: Api, url: str) -> None:
    changed = {
        f"{table}.{column}": (await thorough(api), table, column, value, which)
        for table, columns in COLUMNS.items()
        for column, (value, which) in columns.items()
    }
    whole = await thorough(api)
    before = await reports(url)
    assert {name: each.findings for name, each in before.items() if each.findings} == {}
    for path, table, column, value, which in changed.values():
        where = f" AND {which}" if which else ""
        await damage(url, path, _change(table, column, value, where))

    found = {each.key.uid: each for each in (await reports(url)).values()}

    missed = [
        name
        for name, (path, *_) in changed.items()
        if not found[session_uid("default", name_of(path))].findings
    ]
    assert missed == []
    assert found[session_uid("default", name_of(whole))].findings == ()


async def test_what_a_row_says_of_its_event_is_named_by_its_column(api: Api, url: str) -> None:
    named = ("author", "invocation_id", "event_at", "item_part", "state_delta", "requested_ids")
    paths = {column: await thorough(api) for column in named}
    for column, path in paths.items():
        value, which = COLUMNS["events"][column]
        await damage(url, path, _change("events", column, value, f" AND {which}"))

    found = await reports(url)

    assert all(column in kinds(found[name_of(path)]) for column, path in paths.items())


async def test_a_call_and_its_result_may_be_of_one_event(api: Api, url: str) -> None:
    path = await api.session()
    both = call("track", "c1", {})
    both["content"]["parts"] += response("track", "c1", {})["content"]["parts"]
    await api.append(path, user("Where is it?"), both)

    (report,) = (await reports(url)).values()

    assert report.findings == ()


async def test_a_log_that_was_rewritten_consistently_breaks_the_chain(api: Api, url: str) -> None:
    path = await api.session()
    await api.append(path, user("The price is 100."))
    await reply(api, path, "Noted.", system="Help.")
    await api.append(path, user("Add 5."))
    await reply(api, path, "It is 105.", system="Help.")
    other = await api.session()
    await api.append(other, user("The price is 100."), user("Add 6."))
    # The other event's row has a body, a hash and all that follows from it.
    connection = await asyncpg.connect(url, server_settings={"session_replication_role": "replica"})
    await connection.execute(
        """
        UPDATE events AS e
        SET raw = o.raw, body_hash = o.body_hash, derived = o.derived, tokens = o.tokens
        FROM events AS o, sessions AS s, sessions AS t
        WHERE
            s.session_id = $1 AND e.session_uid = s.session_uid AND e.seq = 3
            AND t.session_id = $2 AND o.session_uid = t.session_uid AND o.seq = 2
        """,
        name_of(path),
        name_of(other),
    )
    await connection.close()

    report = (await reports(url))[name_of(path)]

    assert [(finding.kind, finding.seq) for finding in report.findings] == [("chain", 4)]
    assert (report.replies_proved, report.replies_not_proved) == (1, 1)


async def test_rows_of_no_session_are_named(api: Api, url: str) -> None:
    path = await eventful(api)
    await damage(url, path, "DELETE FROM sessions WHERE session_uid = $1")
    async with build(settings_for(url)) as services:
        strays = await services.verify_sessions.strays()
    assert [finding.kind for finding in strays] == ["stray", "stray"]


async def test_a_session_is_checked_over_http(api: Api, url: str) -> None:
    path = await eventful(api)
    where = path.replace("/v1/", "/v1/admin/") + "/verify"
    for answer in (await api.get(where), await api.post(where)):
        assert answer.status_code == 200
        body = answer.json()
        assert (body["ok"], body["findings"], body["replies_proved"]) == (True, [], 3)
    await damage(url, path, "UPDATE sessions SET tokens_raw = 0 WHERE session_uid = $1")
    body = (await api.post(where)).json()
    assert body["ok"] is False
    assert [finding["kind"] for finding in body["findings"]] == ["counters"]
    missing = await api.get("/v1/admin/sessions/none/verify")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_what_was_not_looked_at_is_counted(api: Api) -> None:
    path = await api.session()
    for number in range(9):
        await api.append(path, user(f"question {number}"))
        await reply(api, path, f"answer {number}")
    body = (await api.get(path.replace("/v1/", "/v1/admin/") + "/verify")).json()
    assert (body["replies_proved"], body["replies_not_proved"]) == (6, 0)
    assert body["replies_skipped"] == 3


# A restore


def program(name: str, url: str) -> str:
    """Return a program of the version of the server of a URL."""

    async def version() -> int:
        connection = await asyncpg.connect(url)
        try:
            return connection.get_server_version().major
        finally:
            await connection.close()

    major = asyncio.run(version())
    for binaries in _installed():
        path = binaries.folder / name
        if binaries.major == major and path.exists():
            return str(path)
    pytest.fail(f"no {name} of Postgres {major}")


def verify(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "app.cli", "verify", *arguments],
        env={**os.environ, "FOLDLINE_DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_a_backup_brings_back_passes_and_what_is_broken_in_it_does_not(
    empty_database_url: str, server_url: str, tmp_path: Path
) -> None:
    asyncio.run(migrate(empty_database_url))
    paths = asyncio.run(_filled(empty_database_url))
    dump = tmp_path / "dump"
    subprocess.run(
        [program("pg_dump", server_url), "--format=custom", f"--file={dump}", empty_database_url],
        check=True,
    )
    name = f"restored_{uuid4().hex}"
    restored = urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    asyncio.run(_execute(server_url, f'CREATE DATABASE "{name}"'))
    try:
        subprocess.run(
            [program("pg_restore", server_url), "--exit-on-error", f"--dbname={restored}", dump],
            check=True,
        )
        passed = verify(restored)
        assert passed.returncode == 0, passed.stderr
        assert passed.stdout.startswith(f"{len(paths)} sessions, ")
        assert "0 findings; fingerprints proved 6" in passed.stdout

        asyncio.run(
            damage(restored, paths[1], "DELETE FROM events WHERE session_uid = $1 AND seq = 3")
        )
        broken = verify(restored)
        assert broken.returncode == 1
        assert f"default/{name_of(paths[1])} seq 3: gap: " in broken.stderr
        assert name_of(paths[0]) not in broken.stderr
        assert verify(restored, "--session", name_of(paths[0])).returncode == 0
        assert verify(restored, "--session", name_of(paths[1])).returncode == 1
        unknown = verify(restored, "--session", "nobody")
        assert unknown.returncode == 1
        assert "no session nobody" in unknown.stderr

        read_only = f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
        asyncio.run(_execute(server_url, read_only))
        assert verify(restored).stdout == broken.stdout
    finally:
        asyncio.run(_execute(server_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


async def _filled(url: str) -> list[str]:
    async with client_of(settings_for(url)) as client:
        return [await eventful(Api(client)) for _ in range(2)]


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
