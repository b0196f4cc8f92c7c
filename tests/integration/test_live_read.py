"""The live read: what it returns."""

# Statements are put together from constants here.
# ruff: noqa: S608

import json
from collections.abc import Sequence
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.copying import replace
from app.core.events import Event
from app.core.index import Index, resolve
from app.core.lanes import ANYONE, Lane, Reader
from app.core.ranges import contains
from app.ports import SessionKey
from app.storage import live_read
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from tests.builders import call, fold, response, user
from tests.log_driver import LOG, append, new_session
from tests.property.strategies import Step, build, steps

IN_DATABASE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

READERS = st.builds(
    Reader,
    agent=st.sampled_from(("a", "b", "t", "")),
    branch=st.sampled_from(("", "r", "r.x", "r.t@c1", "rr")),
    isolation_scope=st.sampled_from((None, None, "s", "c1")),
    node_path=st.sampled_from(("", "n")),
)


def expected_seqs(events: Sequence[Event], index: Index, reader: Reader) -> set[int]:
    """Return what the reader needs: live and visible, visible folds, masked calls and answers."""

    def is_masked(seq: int) -> bool:
        return not index.is_live(seq) and not contains(index.rewound, seq)

    def is_seen(event: Event) -> bool:
        return event.marker is None and reader.sees(event.lane)

    live = [event for event in events if index.is_live(event.seq) and is_seen(event)]
    folds = {shown.fold_seq for shown in index.sections if reader.sees(shown.lane)}
    owners = {o.seq for event in live for o in event.owners if o is not None and is_masked(o.seq)}
    answers = {
        event.seq
        for event in events
        if is_masked(event.seq) and any(o is not None and o.seq in owners for o in event.owners)
    }
    called = {event.seq for event in events if event.seq in owners | answers and is_seen(event)}
    return {event.seq for event in live} | folds | called


async def stored(database: PgDatabase, events: Sequence[Event]) -> SessionKey:
    key = await new_session(database)
    if events:
        await append(database, key, *events)
    return key


async def test_a_masked_call_is_never_of_another_session_of_the_name(database: PgDatabase) -> None:
    key = await new_session(database)
    await append(database, key, user("find"), call("f", id="c"), response("c"), fold(1, 2))

    async with database.connection() as connection:
        read = await LOG.read_live(connection, key, ANYONE)
        assert read is not None
        assert 2 in {event.seq for event in read.events}
        results = tuple(event for event in read.events if event.owners)
        # As when the session was erased and made again between the two statements.
        other = replace(read, events=results, incarnation=uuid4())
        again = await live_read._with_masked(  # noqa: SLF001
            connection, ANYONE, other, lambda *_: results[0], as_of_seq=read.head_seq
        )

    assert again.events == results


@IN_DATABASE
@given(drawn=steps(max_size=16), readers=st.lists(READERS, min_size=3, max_size=3))
async def test_live_read_returns_what_the_reader_needs_and_nothing_else(
    database: PgDatabase, drawn: list[Step], readers: list[Reader]
) -> None:
    sent, log = build(drawn)
    key = await stored(database, sent)

    async with database.connection() as connection:
        everything = await LOG.read_all(connection, key)
        assert everything is not None
        events = {event.seq: event for event in everything.events}
        for reader in readers:
            read = await LOG.read_live(connection, key, reader)

            assert read is not None
            wanted = expected_seqs(log.events, log.index, reader)
            assert read.events == tuple(events[seq] for seq in sorted(wanted))
            assert read.index == log.index
            assert read.head_seq == len(log.events)


@IN_DATABASE
@given(drawn=steps(max_size=12), reader=READERS, data=st.data())
async def test_reading_at_a_position_returns_what_the_reader_saw_there(
    database: PgDatabase, drawn: list[Step], reader: Reader, data: st.DataObject
) -> None:
    sent, log = build(drawn)
    key = await stored(database, sent)
    as_of_seq = data.draw(st.integers(0, len(log.events)))
    then = log.events[:as_of_seq]
    index = resolve([(event.seq, event.marker) for event in then if event.marker is not None])

    async with database.connection() as connection:
        read = await LOG.read_at(connection, key, reader, as_of_seq)
        everything = await LOG.read_all(connection, key, as_of_seq, reader=reader)

    assert read is not None
    assert everything is not None
    assert read.index == everything.index == index
    assert [event.seq for event in everything.events] == [event.seq for event in then]
    assert {event.seq for event in read.events} == expected_seqs(then, index, reader)
    assert read.opening_args == everything.opening_args


@IN_DATABASE
@given(
    lanes=st.lists(
        st.builds(
            Lane,
            isolation_scope=st.sampled_from((None, "s", "")),
            branch=st.sampled_from(("", "r", "r.x", "r.x.y", "rr", "r.x@1", "r_", "r%")),
            tool_names=st.sampled_from(((), ("t",), ("t", "t"), ("a", "t"))),
            node_path=st.sampled_from(("", "n", "n/m")),
        ),
        max_size=8,
    ),
    reader=st.builds(
        Reader,
        agent=st.sampled_from(("", "a", "t")),
        branch=st.sampled_from(("", "r", "r.x", "r.x.y.z", "rr", "r_.x", "r%.x")),
        isolation_scope=st.sampled_from((None, "s", "")),
        node_path=st.sampled_from(("", "n", "n/m")),
    ),
)
async def test_visible_lanes_in_sql_are_those_that_the_reader_sees(
    database: PgDatabase, lanes: list[Lane], reader: Reader
) -> None:
    statement = (
        """
        SELECT l.number
        FROM jsonb_to_recordset($1::text::jsonb)
            AS l (
                number integer, isolation_scope text, branch text, tool_names text[], node_path text
            )
        WHERE """
        + live_read.VISIBLE_LANES
    )
    rows = [
        {
            "number": number,
            "isolation_scope": lane.isolation_scope,
            "branch": lane.branch,
            "tool_names": lane.tool_names,
            "node_path": lane.node_path,
        }
        for number, lane in enumerate(lanes)
    ]

    async with database.connection() as connection:
        found = await fetch(
            connection, statement, json.dumps(rows), *live_read.reader_values(reader)
        )

    assert {row["number"] for row in found} == {
        number for number, lane in enumerate(lanes) if reader.sees(lane)
    }
