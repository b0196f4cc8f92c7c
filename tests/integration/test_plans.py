"""How little the hot statements look at, in a large session, whatever the planner believes of it.

Counted are the rows of the log's tables that are looked at, wanted or not. The planner's statistics
are missing, of a time when the tables were small, or of now: the worst plans came from the second.
"""

# The statements are private to their modules; their plans are what is tested here.
# ruff: noqa: SLF001

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Literal, LiteralString

import pytest
import pytest_asyncio

from app.core.events import CacheMetadata
from app.core.lanes import ANYONE, Reader
from app.core.ranges import FOREVER
from app.core.resolve import Facts, Resolver
from app.ports import SessionKey
from app.storage import (
    cache_records,
    cache_uses,
    event_log,
    facts,
    insert_events,
    live_read,
    log_head,
    markers,
    sessions,
    state,
)
from app.storage.codec import DERIVED_VERSION
from app.storage.connection import fetch, fetch_one
from app.storage.database import PgDatabase
from app.storage.migrate import migrate
from app.storage.pool import create_engine
from tests.builders import AGENT, call, fold, model, pin, response, rewind, user
from tests.log_driver import LOG, append, new_event, new_session

pytestmark = pytest.mark.commits

ROOT: Final = Reader(agent=AGENT)
#: Of the last arguments of READ_LIVE: no earlier read, and no model to be told of.
NOTHING_KNOWN: Final = (None, None, 0, "default", "")
MASKED: Final = 5_000
LIVE: Final = 40
HEAD: Final = 2 * MASKED + 1 + LIVE
#: Before Postgres 18 the rows of a scan that runs several times are its average, rounded.
ROUNDING: Final = 3

#: Copies an event into many seqs and a lane, as thousands of appends would have left them.
FILL_EVENTS: LiteralString = """
    INSERT INTO events (
        session_uid, seq, id, kind, lane, author, invocation_id, event_at, tokens, raw,
        source_format, item_part, body_hash, derived, derived_version
    )
    SELECT
        e.session_uid, n, 'filled-' || n, e.kind, $3, e.author, 'filled', e.event_at,
        e.tokens, e.raw, e.source_format, e.item_part, e.body_hash, e.derived, e.derived_version
    FROM events AS e
    CROSS JOIN generate_series($4::bigint, $5::bigint) AS n
    WHERE e.session_uid = $1 AND e.seq = $2
"""
FILL_CALLS: LiteralString = """
    INSERT INTO calls (
        session_uid, seq, part_index, call_id, name, lane, author, response_seq, has_args
    )
    SELECT $1, n, 0, 'filled-' || n, 'filled', 2, 'bot', n, true
    FROM generate_series($2::bigint, $3::bigint) AS n
"""
FILL_ANSWERS: LiteralString = """
    INSERT INTO answers (session_uid, call_seq, call_part, answer_seq)
    SELECT $1, n, 0, n + 1
    FROM generate_series($2::bigint, $3::bigint) AS n
"""
MOVE: LiteralString = """
    UPDATE sessions
    SET head_seq = $2
    WHERE session_uid = $1
"""

Statistics = Literal["none", "of small tables", "of now"]


#: As the service notes it with each append.
NEWEST: Final[LiteralString] = "UPDATE sessions SET invocation_id = $2 WHERE session_uid = $1"


async def _large_session(database: PgDatabase) -> SessionKey:
    """Make a log of a masked span, events of a hidden scope, and a few live events.

    Seq 1 is of the hidden scope, 2 to MASKED are masked but for 3, a pinned call; then come MASKED
    events of the hidden scope, the markers, and the live ones.
    """
    key = await new_session(database)
    await append(database, key, user("hi", scope="hidden"), user("hi"), call("early", id="c0"))
    async with database.transaction() as connection:
        await fetch(connection, FILL_EVENTS, key.uid, 2, 2, 4, MASKED)
        await fetch(connection, FILL_EVENTS, key.uid, 2, 1, MASKED + 1, 2 * MASKED - 1)
        await fetch(connection, FILL_CALLS, key.uid, 4, MASKED - 1)
        await fetch(connection, FILL_ANSWERS, key.uid, 4, MASKED - 1)
        await fetch(connection, MOVE, key.uid, 2 * MASKED - 1)
    await append(database, key, pin(3), fold(2, MASKED))
    for turn in range(LIVE // 4):
        await append(
            database,
            key,
            user("find", invocation_id=f"i{turn}"),
            call("search", id=f"c{turn}"),
            response(f"c{turn}"),
            model("found"),
        )
    return key


@pytest_asyncio.fixture(params=["none", "of small tables", "of now"])
async def large(
    empty_database_url: str, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[PgDatabase, SessionKey]]:
    """A database with a large session, and statistics of some time."""
    statistics: Statistics = request.param
    await migrate(empty_database_url)
    engine = create_engine(empty_database_url, size=2, statement_timeout_s=60)
    database = PgDatabase(engine)
    for number in range(20):
        key = await new_session(database)
        turn = [user("hi"), call("search", id="c1"), response("c1"), fold(1, 1), pin(2)]
        await append(database, key, *turn[: 1 + number % 5])
    if statistics == "of small tables":
        await _analyze(database)
    key = await _large_session(database)
    if statistics == "of now":
        await _analyze(database)
    yield database, key
    await engine.dispose()


async def _analyze(database: PgDatabase) -> None:
    async with database.connection() as connection:
        await fetch(connection, "ANALYZE")


async def _plan(database: PgDatabase, sql: LiteralString, *args: object) -> Mapping[str, Any]:
    async with database.connection() as connection:
        # What the planner settles on once it has seen a statement a few times.
        await fetch(connection, "SET plan_cache_mode = force_generic_plan")
        row = await fetch_one(connection, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, *args)
        await fetch(connection, "RESET plan_cache_mode")
    assert row is not None
    plan = row["QUERY PLAN"]
    root: Mapping[str, Any] = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    return root


def _nodes(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [plan] + [node for child in plan.get("Plans", ()) for node in _nodes(child)]


def _rows(plan: Mapping[str, Any], *tables: str) -> int:
    """Return how many rows of the tables were looked at."""
    looked_at = 0.0
    for node in _nodes(plan):
        if node.get("Relation Name") in tables:
            removed = node.get("Rows Removed by Filter", 0)
            removed += node.get("Rows Removed by Index Recheck", 0)
            looked_at += (node["Actual Rows"] + removed) * node["Actual Loops"]
    return round(looked_at)


def _buffers(plan: Mapping[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


Large = tuple[PgDatabase, SessionKey]


async def test_live_read_looks_at_no_masked_event_and_no_hidden_lane(large: Large) -> None:
    database, key = large

    plan = await _plan(
        database,
        live_read.READ_LIVE,
        key.uid,
        *live_read.reader_values(ROOT),
        DERIVED_VERSION,
        *NOTHING_KNOWN,
    )

    # The live events, the pinned one and the fold; not one row of the thousands beside them.
    assert _rows(plan, "events", "calls") == pytest.approx(LIVE + 2, abs=ROUNDING)
    assert _buffers(plan) < 150


async def test_live_read_looks_at_no_rewound_event(large: Large) -> None:
    database, key = large
    await append(database, key, rewind(to_seq=HEAD - 8))

    plan = await _plan(
        database,
        live_read.READ_LIVE,
        key.uid,
        *live_read.reader_values(ROOT),
        DERIVED_VERSION,
        *NOTHING_KNOWN,
    )

    assert _rows(plan, "events", "calls") == pytest.approx(LIVE + 2 - 8, abs=ROUNDING)


async def test_live_read_of_a_scope_finds_its_opening_call_at_once(large: Large) -> None:
    database, key = large
    reader = Reader(agent=AGENT, isolation_scope=f"filled-{MASKED - 1}")

    plan = await _plan(
        database,
        live_read.READ_LIVE,
        key.uid,
        *live_read.reader_values(reader),
        DERIVED_VERSION,
        *NOTHING_KNOWN,
    )

    assert _rows(plan, "events", "calls") == 2


async def test_masked_calls_are_read_with_their_answers_alone(large: Large) -> None:
    database, key = large
    async with database.connection() as connection:
        read = await LOG.read_live(connection, key, ROOT)
    assert read is not None

    plan = await _plan(
        database,
        live_read._READ_MASKED,
        key.uid,
        *live_read.reader_values(ROOT),
        DERIVED_VERSION,
        [MASKED - 3, MASKED - 2],
        HEAD,
        read.incarnation,
    )

    # Each answer of the filled ones is the event behind its call.
    assert _rows(plan, "events", "answers") == pytest.approx(2 + 3, abs=ROUNDING)
    assert _buffers(plan) < 60


async def test_facts_of_a_response_are_its_calls_only(large: Large) -> None:
    database, key = large

    plan = await _plan(
        database, facts._CALLS, key.uid, ["c9", f"filled-{MASKED - 1}"], ["early"], [], 0, HEAD
    )

    # Each call is found by what names it, and looked at once more with its event's other calls.
    assert _rows(plan, "calls", "answers") == pytest.approx(2 * 3 + 2, abs=ROUNDING)


async def test_facts_of_markers_are_what_they_name(large: Large) -> None:
    database, key = large

    first = await _plan(database, facts._FIRST_SEQS, key.uid, ["filled", "i3"], HEAD)
    by_seq = await _plan(database, facts._HEADERS_BY_SEQ, key.uid, [5, HEAD])
    in_span = await _plan(database, facts._HEADERS_IN_SPAN, key.uid, HEAD - 2, HEAD)

    assert _rows(first, "events") == 2
    assert _rows(by_seq, "events") == 2
    assert _rows(in_span, "events") == 3


async def test_markers_and_deltas_are_found_among_the_events(large: Large) -> None:
    database, key = large

    marked = await _plan(database, markers._MARKERS, key.uid, FOREVER, 0)
    since = await _plan(database, markers._MARKERS, key.uid, FOREVER, HEAD - 1)
    changed = await _plan(database, state._STATE_SOURCES, key.uid, FOREVER, "{}")

    assert _rows(marked, "events") == 2
    assert _rows(since, "events") <= 2
    assert _rows(changed, "events") == 0


async def test_what_replies_say_of_caches_is_found_among_the_events(large: Large) -> None:
    database, key = large
    record = CacheMetadata(fingerprint="f", contents_count=2)
    await append(database, key, model("a", cache_metadata=record))

    plan = await _plan(database, cache_records._NEWEST, key.uid, FOREVER, None, "", AGENT, 8)

    assert _rows(plan, "events") == 1
    assert _buffers(plan) < 20


async def test_an_event_is_looked_up_alone(large: Large) -> None:
    database, key = large

    for plan in [
        await _plan(database, event_log._FIND_EVENTS, key.uid, ["filled-7"]),
        await _plan(database, event_log._GET_BY_SEQ, key.uid, 7),
        await _plan(database, event_log._GET_BY_ID, key.uid, "filled-7"),
        await _plan(database, event_log._EVENT_SEQS, key.uid, "i3"),
    ]:
        assert _rows(plan, "events") == 1


async def test_the_events_of_an_invocation_are_listed_without_those_beside(large: Large) -> None:
    database, key = large
    wanted = ("{[1,)}", None, False, None, None, "i3", None, None, 100)

    for newest_first in (False, True):
        statement = event_log._listing(is_newest_first=newest_first, of_invocation=True)
        plan = await _plan(database, statement, key.uid, *live_read.reader_values(ANYONE), *wanted)
        assert _rows(plan, "events") == pytest.approx(4, abs=ROUNDING)


async def test_an_open_call_is_sought_from_the_newest_backwards(large: Large) -> None:
    database, key = large
    await append(database, key, call("search", id="open"))

    plan = await _plan(database, facts._CALLS, key.uid, [], [], [], 1, HEAD + 1)

    assert _rows(plan, "calls", "answers") == 2


async def test_where_a_log_stands_is_read_without_the_log(large: Large) -> None:
    database, key = large
    last = {"invocation_id": "last"}
    turn = [user("find", **last), call("search", id="c", **last), response("c", **last)]
    await append(database, key, *turn, model("found", **last))
    async with database.transaction() as connection:
        await fetch(connection, NEWEST, key.uid, "last")

    plan = await _plan(database, log_head._READ_HEAD, key.uid, [None], [""])

    # Of the newest invocation the first event, and each for the calls that it may hold.
    assert _rows(plan, "events") == pytest.approx(1 + 4, abs=ROUNDING)
    assert _rows(plan, "calls", "answers") <= 2 + ROUNDING
    assert _buffers(plan) < 60


async def test_what_a_session_looks_up_by_position_is_one_row(large: Large) -> None:
    database, key = large

    for plan in (
        await _plan(database, cache_uses._LAST, key.uid),
        await _plan(database, sessions._UPDATE, key.uid, "{}", "{}", 60),
    ):
        assert _rows(plan, "events") <= 1
        assert _buffers(plan) < 60


async def test_an_append_that_follows_the_head_looks_at_no_event(
    large: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, key = large
    async with database.connection() as connection:
        head = await LOG.read_head(connection, key, [(None, "")])
        assert head is not None
        known = Facts(head_seq=head.head_seq, lanes=dict(head.lanes), lane_count=head.lane_count)
        event = Resolver(known).add(user("hi", id="new", invocation_id="new"))
        asked: list[Any] = []

        async def note(_: object, *statement: Any) -> None:
            asked.extend(statement)

        monkeypatch.setattr(insert_events, "fetch_one", note)
        await LOG.append_at(
            connection, key, [new_event(event)], known, head=head, then=head, ids=["new"]
        )

    plan = await _plan(database, asked[0], *asked[1:])

    assert _rows(plan, "events", "calls", "answers") == 0
    assert _buffers(plan) < 150
    async with database.connection() as connection:
        moved = await LOG.find_session(connection, key)
    assert moved is not None
    assert moved.head_seq == head.head_seq + 1
