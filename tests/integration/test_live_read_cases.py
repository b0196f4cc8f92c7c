"""The live read by example: what a random log seldom holds."""

from collections.abc import Sequence

import pytest

from app.core.events import Event
from app.core.lanes import Reader
from app.storage.database import PgDatabase
from tests.builders import (
    call,
    call_part,
    fold,
    fold_of,
    model,
    pin,
    response,
    rewind,
    section,
    timed,
    undo,
    user,
)
from tests.log_driver import LOG, append, new_session

BOT = Reader(agent="bot")


async def seqs(
    database: PgDatabase, events: Sequence[Event], reader: Reader, *, as_of_seq: int | None = None
) -> list[int]:
    key = await new_session(database)
    await append(database, key, *timed(events))
    async with database.connection() as connection:
        if as_of_seq is None:
            read = await LOG.read_live(connection, key, reader)
        else:
            read = await LOG.read_at(connection, key, reader, as_of_seq)
    assert read is not None
    return [event.seq for event in read.events]


TWO_CALLS = (
    user("a"),
    model(call_part("search", id="c1"), call_part("search", id="c2")),
    response("c1"),
    response("c2"),
    fold(1, 4),
    response("c1"),
)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((user("a"), model("b"), user("c")), [1, 2, 3]),
        ((user("a"), model("b"), fold(1, 2), user("c")), [3, 4]),
        # The masked call of a live result, and what else answers its event.
        (TWO_CALLS, [2, 3, 4, 5, 6]),
        ((*TWO_CALLS, undo(5)), [1, 2, 3, 4, 6]),
        # A rewound call is gone for good, whatever answers it.
        (
            (user("a"), call("search", id="c1", invocation_id="i2"), rewind("i2"), response("c1")),
            [1, 4],
        ),
        (
            (
                call("search", id="c1"),
                response("c1", invocation_id="i2"),
                rewind("i2"),
                fold(1, 1),
                response("c1"),
            ),
            [1, 4, 5],
        ),
        # Holes.
        ((*(user(str(n)) for n in range(4)), fold(1, 4), pin(2)), [2, 5]),
        # A fold that another one covers, and one that is undone, are not read.
        ((user("a"), user("b"), fold(1, 1), fold(1, 2)), [4]),
        ((user("a"), fold(1, 1), undo(2)), [1]),
        ((user("a"), fold_of(1, 1, section("s"), staged=True)), [1]),
    ],
)
async def test_live_read_at_the_head(
    database: PgDatabase, events: Sequence[Event], expected: list[int]
) -> None:
    assert await seqs(database, events, BOT) == expected


@pytest.mark.parametrize(
    ("as_of_seq", "expected"), [(0, []), (4, [1, 2, 3, 4]), (5, [5]), (6, [2, 3, 4, 5, 6])]
)
async def test_live_read_at_a_position(
    database: PgDatabase, as_of_seq: int, expected: list[int]
) -> None:
    assert await seqs(database, TWO_CALLS, BOT, as_of_seq=as_of_seq) == expected


LANES = (
    user("root"),
    model("below", branch="r.x"),
    model("beside", branch="r.xy"),
    user("apart", scope="s"),
    user("over", branch="r"),
    fold_of(2, 4, section("x", branch="r.x"), section("s", scope="s")),
    user("again", branch="r.x"),
)


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        (BOT, [1, 3, 5, 6, 7]),
        (Reader(agent="bot", branch="r.x"), [1, 5, 6, 7]),
        (Reader(agent="bot", branch="r.xy"), [1, 3, 5]),
        (Reader(agent="bot", branch="r"), [1, 5]),
        (Reader(agent="bot", isolation_scope="s"), [6]),
        (Reader(agent="bot", isolation_scope="t"), []),
    ],
)
async def test_live_read_of_a_reader(
    database: PgDatabase, reader: Reader, expected: list[int]
) -> None:
    assert await seqs(database, LANES, reader) == expected


async def test_masked_call_in_a_lane_that_the_reader_does_not_see_is_not_read(
    database: PgDatabase,
) -> None:
    events = (
        call("search", id="c1", branch="r"),
        response("c1", branch="r"),
        fold_of(1, 2, section("s", branch="r")),
        response("c1"),
    )

    assert await seqs(database, events, Reader(agent="bot", branch="q")) == [4]
    assert await seqs(database, events, BOT) == [1, 2, 3, 4]
