"""Appending: what is resolved and stored, and what is read back."""

import asyncio
from collections.abc import Sequence
from typing import LiteralString

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.copying import replace
from app.core.errors import StorageError, StorageUnavailableError
from app.core.events import Event, Fold
from app.core.index import UNTOUCHED, Index, resolve
from app.core.lanes import ANYONE, Reader
from app.core.resolve import Resolver, needs_of
from app.ports import EventFilter, SessionKey
from app.storage import event_log
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.errors import ConstraintViolatedError
from app.storage.event_log import PgEventLog
from app.storage.pool import create_engine
from tests.builders import (
    call,
    fold,
    fold_of,
    model,
    response,
    rewind,
    section,
    timed,
    user,
)
from tests.log_driver import (
    LOG,
    SESSIONS,
    append,
    append_within,
    new_event,
    new_key,
    new_session,
)
from tests.property.strategies import Step, build, steps

#: Few examples, since each talks to the database a dozen times; more of them were run by hand.
IN_DATABASE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


async def stored(database: PgDatabase, key: SessionKey) -> tuple[Event, ...]:
    async with database.connection() as connection:
        read = await LOG.read_all(connection, key)
    assert read is not None
    return read.events


def as_read(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return the events without what only matters before they are stored."""
    return tuple(replace(event, request=None, notes=()) for event in events)


async def append_in_batches(
    database: PgDatabase, key: SessionKey, events: Sequence[Event], sizes: Sequence[int]
) -> list[Event]:
    resolved: list[Event] = []
    rest = list(events)
    for size in [*sizes, len(rest)]:
        batch, rest = rest[:size], rest[size:]
        if batch:
            resolved += await append(database, key, *batch)
    return resolved


@IN_DATABASE
@given(drawn=steps(max_size=16), sizes=st.lists(st.integers(1, 4), max_size=12))
async def test_resolving_with_loaded_facts_equals_resolving_with_all_facts(
    database: PgDatabase, drawn: list[Step], sizes: list[int]
) -> None:
    sent, expected = build(drawn)
    key = await new_session(database)

    resolved = await append_in_batches(database, key, sent, sizes)

    assert resolved == list(expected.events)
    assert await stored(database, key) == as_read(expected.events)


async def test_a_section_of_a_tools_lane_is_folded_though_the_call_stands_before_the_span(
    database: PgDatabase,
) -> None:
    key = await new_session(database)
    await append(database, key, call("t", id="c1"), model("inside", branch="r.t@c1"))

    resolved = await append(database, key, fold_of(2, 2, section("it worked", branch="r.t@c1")))

    assert isinstance(resolved[0].marker, Fold)
    assert resolved[0].marker.sections[0].covers == ((2, 2),)


async def test_an_append_loads_the_lanes_of_its_line_and_of_its_calls(
    database: PgDatabase,
) -> None:
    key = await new_session(database)
    branches = ["", "r", "r.x", "other", *(f"r.t@{number}" for number in range(5))]
    await append(database, key, *(model("hi", branch=branch) for branch in branches))
    await append(database, key, call("far", id="c1", branch="far", scope="s"))

    async with database.transaction() as connection:
        plain, _ = await append_within(connection, key, [user("hi", branch="r.x")])
        answering, _ = await append_within(connection, key, [response("c1", branch="r")])
        new, resolved = await append_within(connection, key, [user("hi", branch="new")])

    assert {lane.branch for lane in plain.lanes} == {"", "r", "r.x"}
    assert {lane.branch for lane in answering.lanes} == {"", "r", "far"}
    assert new.lanes[resolved[0].lane].number == len(branches) + 2


@pytest.mark.commits
async def test_concurrent_writers_get_dense_seqs(database_url: str) -> None:
    engine = create_engine(database_url, size=10)
    database = PgDatabase(engine)
    key = await new_session(database)

    async def write(writer: int) -> None:
        for turn in range(3):
            await append(
                database, key, user("hi", id=f"{writer}-{turn}-a"), model(id=f"{writer}-{turn}-b")
            )

    await asyncio.gather(*(write(writer) for writer in range(50)))

    events = await stored(database, key)
    await engine.dispose()
    assert [event.seq for event in events] == list(range(1, 301))
    assert len({event.id for event in events}) == 300
    # A batch stays together.
    assert [e.id[:-1] for e in events[::2]] == [e.id[:-1] for e in events[1::2]]


async def test_an_append_that_fails_leaves_nothing(database: PgDatabase) -> None:
    key = await new_session(database)
    await append(database, key, user("hi", id="taken"))

    with pytest.raises(ConstraintViolatedError) as error:
        await append(database, key, user("again"), user("again", id="taken"))

    assert error.value.constraint == "events_id_key"
    assert [event.id for event in await stored(database, key)] == ["taken"]


async def test_a_row_beyond_a_head_that_moved_is_refused(database: PgDatabase) -> None:
    key = await new_session(database)
    async with database.transaction() as connection:
        facts, resolved = await append_within(connection, key, [user("hi")])
        with pytest.raises(StorageError):
            await LOG.append(
                connection, key, [new_event(replace(resolved[0], seq=3, id="late"))], facts
            )


async def test_a_session_that_does_not_exist_cannot_be_locked(database: PgDatabase) -> None:
    async with database.transaction() as connection:
        assert await LOG.lock_session(connection, new_key()) is None


async def test_waiting_for_the_lock_ends(
    database: PgDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await new_session(database)
    async with database.transaction() as holder:
        await LOG.lock_session(holder, key)
        sooner = event_log._LOCK_SESSION.replace("4s", "50ms")  # noqa: SLF001  to wait for less
        monkeypatch.setattr(event_log, "_LOCK_SESSION", sooner)
        with pytest.raises(StorageUnavailableError):
            async with database.transaction() as waiting:
                await LOG.lock_session(waiting, key)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET raw = '{}' WHERE session_uid = $1",
        "DELETE FROM events WHERE session_uid = $1",
        "UPDATE calls SET name = 'other' WHERE session_uid = $1",
        "DELETE FROM calls WHERE session_uid = $1",
        "UPDATE answers SET answer_seq = 9 WHERE session_uid = $1",
        "DELETE FROM answers WHERE session_uid = $1",
        "TRUNCATE events",
        "TRUNCATE calls",
        "TRUNCATE answers",
    ],
)
async def test_rows_of_the_log_are_never_changed_or_deleted(
    database: PgDatabase, statement: LiteralString
) -> None:
    key = await new_session(database)
    await append(database, key, call("search", id="c1"), response("c1"))

    with pytest.raises(ConstraintViolatedError):
        async with database.connection() as connection:
            await fetch(connection, statement, *((key.uid,) if "$1" in statement else ()))

    assert len(await stored(database, key)) == 2


async def test_erasing_one_session_does_not_open_another(database: PgDatabase) -> None:
    erased, kept = await new_session(database), await new_session(database)
    await append(database, erased, user("hi"))
    await append(database, kept, user("hi"))

    with pytest.raises(ConstraintViolatedError):
        async with database.transaction() as connection:
            await SESSIONS.erase(connection, erased, actor="me", reason="asked")
            await fetch(connection, "DELETE FROM events WHERE session_uid = $1", kept.uid)

    assert len(await stored(database, kept)) == 1
    assert len(await stored(database, erased)) == 1


# Reading back


async def _some_log(database: PgDatabase) -> tuple[SessionKey, Index]:
    """1 u, 2 m, 3 u at r, 4 m at r (by b), 5 fold(1-2), 6 u, 7 u, 8 rewind (to 6), 9 u."""
    key = await new_session(database)
    await append(
        database,
        key,
        *timed(
            [
                user("1", invocation_id="i1"),
                model("2", invocation_id="i1"),
                user("3", branch="r", invocation_id="i2"),
                model("4", branch="r", author="b", invocation_id="i2"),
                fold(1, 2),
                user("6"),
                user("7"),
                rewind(to_seq=6),
                user("9"),
            ]
        ),
    )
    async with database.connection() as connection:
        session = await SESSIONS.get(connection, key)
    assert session is not None
    return key, session.index


@pytest.mark.parametrize(
    ("wanted", "seqs"),
    [
        (EventFilter(), [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (EventFilter(limit=2), [1, 2]),
        (EventFilter(limit=2, descending=True), [9, 8]),
        (EventFilter(last=3), [7, 8, 9]),
        (EventFilter(last=3, limit=2), [7, 8]),
        (EventFilter(last=3, descending=True), [9, 8, 7]),
        (EventFilter(after_seq=2, before_seq=5), [3, 4]),
        (EventFilter(after_seq=9), []),
        (EventFilter(before_seq=1), []),
        (EventFilter(after_time=8.0), [8, 9]),
        (EventFilter(author="b"), [4]),
        (EventFilter(branch="r"), [3, 4]),
        (EventFilter(branch=""), [1, 2, 5, 6, 7, 8, 9]),
        (EventFilter(invocation_id="i1"), [1, 2]),
        (EventFilter(kind="compaction"), [5]),
        (EventFilter(kind="message", last=1), [9]),
        (EventFilter(status="live"), [3, 4, 6, 9]),
        (EventFilter(status="live", limit=2, descending=True), [9, 6]),
        (EventFilter(status="masked"), [1, 2]),
        (EventFilter(status="rewound"), [7]),
        (EventFilter(status="marker"), [5, 8]),
        (EventFilter(status="masked", after_seq=1), [2]),
        (EventFilter(reader=Reader(branch="other")), [1, 2, 5, 6, 7, 8, 9]),
        (EventFilter(reader=Reader(branch="r"), branch="r"), [3, 4]),
        (EventFilter(reader=Reader(isolation_scope="s")), []),
    ],
)
async def test_listing_keeps_to_the_filter(
    database: PgDatabase, wanted: EventFilter, seqs: list[int]
) -> None:
    key, index = await _some_log(database)

    async with database.connection() as connection:
        listed = await LOG.list_events(connection, key, wanted, index)

    assert [event.seq for event in listed] == seqs


async def test_a_reader_is_not_shown_a_fold_that_tells_of_a_lane_it_does_not_see(
    database: PgDatabase,
) -> None:
    key = await new_session(database)
    await append(database, key, user("mine"), user("theirs", scope="s"))
    await append(database, key, fold_of(1, 2, section("mine"), section("theirs", scope="s")))

    async with database.connection() as connection:
        mine = await LOG.list_events(connection, key, EventFilter(reader=ANYONE), UNTOUCHED)
        everyone = await LOG.list_events(connection, key, EventFilter(), UNTOUCHED)

    assert [event.seq for event in mine] == [1]
    assert [event.seq for event in everyone] == [1, 2, 3]


async def test_an_event_is_found_by_seq_and_by_id_however_it_is_read(database: PgDatabase) -> None:
    key, _ = await _some_log(database)

    async with database.connection() as connection:
        by_seq = await LOG.get_event(connection, key, 7)
        by_id = await LOG.get_event(connection, key, "e7")
        beyond = [await LOG.get_event(connection, key, at) for at in (0, 10, 2**70, "e10")]

    assert by_seq == by_id
    assert by_seq is not None
    assert (by_seq.seq, by_seq.raw, by_seq.kind) == (7, '{"seq": 7}', "message")
    assert beyond == [None] * 4


async def test_ids_that_exist_are_found(database: PgDatabase) -> None:
    key, _ = await _some_log(database)

    async with database.connection() as connection:
        found = await LOG.find_events(connection, key, ["e2", "nothing", "e6"])

    assert found == {
        "e2": (2, (2).to_bytes(32, "big"), 1),
        "e6": (6, (6).to_bytes(32, "big"), 1),
    }


async def test_markers_and_invocations_are_found(database: PgDatabase) -> None:
    key, index = await _some_log(database)

    async with database.connection() as connection:
        markers = await LOG.markers(connection, key)
        earlier = await LOG.markers(connection, key, 7)
        seqs = await LOG.event_seqs(connection, key, "i2")
        tokens = await LOG.count_tokens(connection, key, index.live)

    assert resolve(markers) == index
    assert [seq for seq, _ in earlier] == [5]
    assert seqs == [3, 4]
    assert tokens == 4


async def test_text_survives_as_it_was_sent(database: PgDatabase) -> None:
    raw = '{"content": "a\\u0000b \\ud83d", "n": 123456789012345678901234567890, "n": 1.50, "é": 1}'
    key = await new_session(database)
    async with database.transaction() as connection:
        session = await LOG.lock_session(connection, key)
        assert session is not None
        facts = await LOG.load_facts(connection, key, session, needs_of([]))
        event = Resolver(facts).add(user("a\ufffdb", id="e1"))
        await LOG.append(connection, key, [replace(new_event(event), raw=raw)], facts)

    async with database.connection() as connection:
        logged = await LOG.get_event(connection, key, 1)

    assert logged is not None
    assert logged.raw == raw


async def test_an_older_row_is_derived_again_from_its_raw_text(
    database: PgDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await new_session(database)
    with monkeypatch.context() as patch:
        patch.setattr("app.storage.insert_events.DERIVED_VERSION", 0)
        resolved = await append(database, key, call("search", id="c1"), response("c1"))
    seen: list[str] = []

    def derive(raw: str, source_format: str, item_part: int) -> Event:
        seen.append(raw)
        assert (source_format, item_part) == ("native", 0)
        return user("derived again", author="someone")

    async with database.connection() as connection:
        read = await PgEventLog(derive).read_live(connection, key, ANYONE)

    assert read is not None
    assert sorted(seen) == ['{"seq": 1}', '{"seq": 2}']
    assert [event.parts for event in read.events] == [user("derived again").parts] * 2
    # What was decided at the append stays decided.
    assert [event.owners for event in read.events] == [event.owners for event in resolved]
    assert [event.place for event in read.events] == [event.place for event in resolved]
    assert [event.author for event in read.events] == [event.author for event in resolved]
