"""Sessions: made, changed, listed, forked and erased, and their state."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, LiteralString

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.canonical import Json
from app.core.copying import replace
from app.core.errors import InvalidInputError, SessionNotFoundError
from app.core.events import Event
from app.core.lanes import ANYONE
from app.core.resolve import Facts, Resolver
from app.ports import KeptAnswer, NewSession, SessionKey, SessionRow
from app.storage.compile_inputs import PgCompileInputs
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.idempotency import PgIdempotencyKeys
from tests.builders import fold, model, pin, rewind, undo, user
from tests.log_driver import LOG, SESSIONS, append, append_within, new_key, new_session
from tests.property.strategies import Step, build, steps


async def _get(database: PgDatabase, key: SessionKey) -> SessionRow:
    async with database.connection() as connection:
        row = await SESSIONS.get(connection, key)
    assert row is not None
    return row


async def _state(database: PgDatabase, key: SessionKey) -> Mapping[str, Json]:
    async with database.connection() as connection:
        read = await LOG.read_live(connection, key, ANYONE)
    assert read is not None
    return read.state


async def test_a_new_session_is_as_it_was_given(database: PgDatabase) -> None:
    key = await new_session(
        database,
        app_name="app",
        user_id="u",
        state={"a": 1, "n": 10**30},
        policy={"pins": {"max_tokens": 5}},
        metadata={"k": "v"},
        ttl_s=60,
    )

    row = await _get(database, key)

    assert row.key == key
    assert (row.app_name, row.user_id, row.head_seq) == ("app", "u", 0)
    assert row.state == {"a": 1, "n": 10**30}
    assert row.policy == {"pins": {"max_tokens": 5}}
    assert row.metadata == {"k": "v"}
    assert row.ttl_s == 60
    assert (row.events, row.tokens_raw, row.live_events, row.tokens_live) == (0, 0, 0, 0)


async def test_a_session_is_created_once(database: PgDatabase) -> None:
    key = await new_session(database, app_name="app", state={"a": 1})
    incarnation = (await _get(database, key)).incarnation

    async with database.transaction() as connection:
        again = NewSession(app_name="other", user_id="u", app_state={"leaked": True})
        assert not await SESSIONS.create(connection, key, again)

    row = await _get(database, key)
    assert (row.app_name, row.state, row.incarnation) == ("app", {"a": 1}, incarnation)
    async with database.connection() as connection:
        assert await SESSIONS.state(connection, key.tenant_id, "other") == {}


async def test_counts_follow_the_log(database: PgDatabase) -> None:
    key = await new_session(database)
    await append(database, key, user("a"), model("b"), user("c"), fold(1, 2), user("d"))

    row = await _get(database, key)

    assert (row.events, row.tokens_raw, row.compactions) == (5, 4, 1)
    assert (row.live_events, row.tokens_live) == (2, 2)


async def test_an_update_replaces_policy_metadata_and_time_to_live(database: PgDatabase) -> None:
    key = await new_session(database, metadata={"old": 1}, ttl_s=5)
    async with database.transaction() as connection:
        await SESSIONS.update(connection, key, policy=None, metadata={"new": 2}, ttl_s=None)

    row = await _get(database, key)

    assert (row.policy, row.metadata, row.ttl_s) == (None, {"new": 2}, None)


async def _expires_in(database: PgDatabase, key: SessionKey) -> timedelta | None:
    sql: LiteralString = """
        SELECT d.expires_at - (
            SELECT max(e.created_at) FROM events AS e WHERE e.session_uid = d.session_uid
        ) AS rest
        FROM session_details AS d
        WHERE d.session_uid = $1
    """
    async with database.connection() as connection:
        rows = await fetch(connection, sql, key.uid)
    rest: timedelta | None = rows[0]["rest"]
    return rest


async def test_time_to_live_counts_from_the_last_append(database: PgDatabase) -> None:
    key = await new_session(database, ttl_s=60)
    await append(database, key, user("hi"))
    assert await _expires_in(database, key) == timedelta(seconds=60)

    async with database.transaction() as connection:
        await SESSIONS.update(connection, key, policy=None, metadata={}, ttl_s=90)
    assert await _expires_in(database, key) == timedelta(seconds=90)


# Listing


async def _listed(database: PgDatabase, tenant_id: str, **filters: Any) -> Sequence[SessionRow]:
    given = {
        "app_name": None,
        "user_id": None,
        "updated_after": None,
        "metadata": {},
        "after": None,
        "limit": 10,
        "descending": False,
        **filters,
    }
    async with database.connection() as connection:
        return await SESSIONS.list(connection, tenant_id, **given)


async def _tenant_of_four(database: PgDatabase) -> tuple[str, list[SessionKey]]:
    tenant_id = new_key().session_id
    keys = [new_key(tenant_id) for _ in range(4)]
    async with database.transaction() as connection:
        for number, key in enumerate(keys):
            new = NewSession(
                app_name=f"app{number % 2}",
                user_id=f"u{number // 2}",
                metadata={"n": number, "even": str(number % 2 == 0)},
            )
            await SESSIONS.create(connection, key, new)
    # The first becomes the newest.
    await append(database, keys[0], user("hi"))
    return tenant_id, keys


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({}, [1, 2, 3, 0]),
        ({"descending": True}, [0, 3, 2, 1]),
        ({"limit": 2}, [1, 2]),
        ({"app_name": "app0"}, [2, 0]),
        ({"app_name": "app0", "user_id": "u0"}, [0]),
        ({"metadata": {"even": "True"}}, [2, 0]),
        ({"metadata": {"n": "3"}}, [3]),
        ({"metadata": {"n": "3", "even": "True"}}, []),
        ({"metadata": {"missing": "x"}}, []),
    ],
)
async def test_listing_keeps_to_the_filter(
    database: PgDatabase, filters: dict[str, Any], numbers: list[int]
) -> None:
    tenant_id, keys = await _tenant_of_four(database)

    listed = await _listed(database, tenant_id, **filters)

    assert [row.key for row in listed] == [keys[number] for number in numbers]


@pytest.mark.parametrize("descending", [False, True])
async def test_pages_join_without_gap_or_overlap(
    database: PgDatabase,
    descending: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    tenant_id, _ = await _tenant_of_four(database)
    whole = await _listed(database, tenant_id, descending=descending)
    pages: list[SessionRow] = []
    after: tuple[datetime, str] | None = None
    while page := await _listed(database, tenant_id, after=after, limit=1, descending=descending):
        pages.extend(page)
        after = (page[-1].updated_at, page[-1].key.session_id)

    assert pages == list(whole)


async def test_listing_shows_what_changed_since(database: PgDatabase) -> None:
    tenant_id, keys = await _tenant_of_four(database)
    newest = await _get(database, keys[0])

    listed = await _listed(
        database, tenant_id, updated_after=newest.updated_at - timedelta(microseconds=1)
    )

    assert [row.key for row in listed] == [keys[0]]


# State


async def test_state_is_merged_by_scope(database: PgDatabase) -> None:
    app_name = new_key().session_id
    key = await new_session(
        database, app_name=app_name, state={"a": 1}, app_state={"x": 1}, user_state={"y": 1}
    )
    other = await new_session(database, app_name=app_name, user_id="someone else")

    await append(
        database,
        key,
        user("hi"),
        state_deltas=[{"a": 2, "b": None, "app:x": 2, "user:z": [10**30], "temp:t": 1}],
    )

    assert await _state(database, key) == {
        "a": 2,
        "b": None,
        "app:x": 2,
        "user:y": 1,
        "user:z": [10**30],
    }
    assert await _state(database, other) == {"app:x": 2}
    async with database.connection() as connection:
        assert await SESSIONS.state(connection, key.tenant_id, app_name) == {"x": 2}
        assert await SESSIONS.state(connection, key.tenant_id, app_name, "user") == {
            "y": 1,
            "z": [10**30],
        }


async def test_a_rewind_takes_state_back_and_its_undo_restores_it(database: PgDatabase) -> None:
    key = await new_session(database, state={"a": 0, "base": True})
    await append(
        database,
        key,
        user("1"),
        user("2"),
        user("3"),
        state_deltas=[{"a": 1}, {"a": 2, "b": 2}, {"app:kept": 1}],
    )

    async def mark(marker: Event) -> None:
        async with database.transaction() as connection:
            facts, _ = await append_within(connection, key, [marker])
            await SESSIONS.rewind_state(connection, key, facts.index)

    await mark(rewind(to_seq=1))
    assert await _state(database, key) == {"a": 1, "base": True, "app:kept": 1}

    await mark(undo(4))
    assert await _state(database, key) == {"a": 2, "b": 2, "base": True, "app:kept": 1}


async def test_a_past_position_has_the_state_of_then(database: PgDatabase) -> None:
    key = await new_session(database, state={"a": 0})
    await append(
        database, key, user("1"), user("2"), user("3"), state_deltas=[{"a": 1}, {"a": 2}, {"a": 3}]
    )
    await append(database, key, rewind(to_seq=1))

    async with database.connection() as connection:
        reads = [await LOG.read_at(connection, key, ANYONE, seq) for seq in range(5)]

    assert [read and read.state for read in reads] == [{"a": n} for n in (0, 1, 2, 3, 1)]


async def test_a_policy_of_an_app_is_replaced(database: PgDatabase) -> None:
    app_name = new_key().session_id
    async with database.transaction() as connection:
        assert await SESSIONS.app_policy(connection, "acme", app_name) is None
        await SESSIONS.set_app_policy(connection, "acme", app_name, {"a": 1})
        await SESSIONS.set_app_policy(connection, "acme", app_name, {"b": 2})
        assert await SESSIONS.app_policy(connection, "acme", app_name) == {"b": 2}
        assert await SESSIONS.app_policy(connection, "other", app_name) is None


# Fork


async def _fork(database: PgDatabase, key: SessionKey, at_seq: int) -> SessionKey:
    new = new_key(key.tenant_id)
    async with database.transaction() as connection:
        assert await SESSIONS.fork(connection, key, new, at_seq=at_seq, metadata={"fork": True})
    return new


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=steps(max_size=14), more=steps(max_size=4), data=st.data())
async def test_a_fork_goes_on_as_the_log_would_have_from_there(
    database: PgDatabase, drawn: list[Step], more: list[Step], data: st.DataObject
) -> None:
    sent, log = build(drawn)
    at_seq = data.draw(st.integers(0, len(sent)))
    expected_sent, expected = build_on(sent[:at_seq], more)
    key = await new_session(database)
    if sent:
        await append(database, key, *sent)

    new = await _fork(database, key, at_seq)
    resolved = await append(database, new, *expected_sent) if expected_sent else []

    assert resolved == list(expected[at_seq:])
    async with database.connection() as connection:
        everything = await LOG.read_all(connection, new)
        before = await LOG.read_all(connection, key)
    assert everything is not None
    assert before is not None
    assert everything.events == tuple(replace(event, request=None) for event in expected)
    assert before.events == tuple(replace(event, request=None) for event in log.events)
    row = await _get(database, new)
    assert row.tokens_raw == sum(sum(e.part_tokens) for e in expected)


def build_on(sent: Sequence[Event], more: Sequence[Step]) -> tuple[list[Event], Sequence[Event]]:
    """Return what more could be sent after a log, and the whole log that it makes."""
    resolver = Resolver(Facts())
    resolved = [resolver.add(event) for event in sent]
    candidates, _ = build(more)
    added: list[Event] = []
    for number, candidate in enumerate(candidates):
        event = replace(candidate, id=f"more{number}", compiled_seq=None)
        try:
            resolved.append(resolver.add(event))
        except InvalidInputError:
            continue
        added.append(event)
    return added, resolved


async def test_a_fork_shares_nothing_afterwards(database: PgDatabase) -> None:
    key = await new_session(
        database, state={"a": 0}, policy={"p": 1}, metadata={"m": 1}, user_id="u"
    )
    await append(database, key, user("1"), user("2"), state_deltas=[{"a": 1}, {"a": 2}])

    new = await _fork(database, key, 1)
    await append(database, key, user("3"))
    await append(database, new, user("other"), state_deltas=[{"b": 1}])

    original, fork = await _get(database, key), await _get(database, new)
    assert (original.head_seq, fork.head_seq) == (3, 2)
    assert (original.state, fork.state) == ({"a": 2}, {"a": 1, "b": 1})
    assert fork.forked_from == key.session_id
    assert fork.incarnation != original.incarnation
    assert (fork.policy, fork.metadata, fork.user_id) == ({"p": 1}, {"fork": True}, "u")
    async with database.transaction() as connection:
        assert await SESSIONS.erase(connection, key, actor="me", reason="asked")
    assert (await _get(database, new)).live_events == 2


async def test_a_fork_needs_a_session_and_a_position_in_it(database: PgDatabase) -> None:
    key = await new_session(database)
    with pytest.raises(InvalidInputError):
        await _fork(database, key, 1)
    with pytest.raises(SessionNotFoundError):
        await _fork(database, new_key(), 0)
    async with database.transaction() as connection:
        assert not await SESSIONS.fork(connection, key, key, at_seq=0, metadata={})


# Erasure


async def test_erasing_leaves_an_audit_row_and_nothing_else(database: PgDatabase) -> None:
    key = await new_session(database, state={"a": 1})
    await append(database, key, user("1"), model("2"), pin(1))
    answers, inputs = PgIdempotencyKeys(), PgCompileInputs()
    async with database.transaction() as connection:
        kept = KeptAnswer(b"hash", 201, "{}")
        await answers.keep(connection, key.tenant_id, "append", key.session_id, kept, key=key)
        await inputs.keep(connection, key.tenant_id, key.session_id, "{}", key=key)

    async with database.transaction() as connection:
        assert await SESSIONS.erase(connection, key, actor="me", reason="asked")

    async with database.connection() as connection:
        left = {
            row["table_name"]: (await fetch(connection, _count_of(row["table_name"]), key.uid))[0][
                "n"
            ]
            for row in await fetch(connection, _TABLES_OF_SESSIONS)
        }
        audit = await fetch(
            connection,
            "SELECT action, actor, reason, events FROM audit_log WHERE session_uid = $1",
            key.uid,
        )
    assert left.pop("audit_log") == 1
    assert "events" in left
    assert set(left.values()) == {0}
    assert dict(audit[0]) == {  # type: ignore[call-overload]
        "action": "erase_session",
        "actor": "me",
        "reason": "asked",
        "events": 3,
    }


_TABLES_OF_SESSIONS: LiteralString = """
    SELECT table_name
    FROM information_schema.columns
    WHERE table_schema = 'public' AND column_name = 'session_uid'
    ORDER BY table_name
"""


def _count_of(table: LiteralString) -> LiteralString:
    return "SELECT count(*) AS n FROM " + table + " WHERE session_uid = $1"  # noqa: S608  a table's name


async def test_a_session_made_again_shares_nothing_with_the_erased_one(
    database: PgDatabase,
) -> None:
    key = await new_session(database, state={"a": 1})
    await append(database, key, user("1"))
    before = await _get(database, key)
    async with database.transaction() as connection:
        assert await SESSIONS.erase(connection, key, actor="me", reason="asked")
        assert not await SESSIONS.erase(connection, key, actor="me", reason="asked")
        await SESSIONS.create(connection, key, NewSession(app_name="app", user_id="user"))

    after = await _get(database, key)

    assert (after.head_seq, after.state) == (0, {})
    assert after.incarnation != before.incarnation
