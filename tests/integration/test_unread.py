"""What a compile did not read is told as if it had been."""

from typing import Any

from hypothesis import given

from app.core.compile.inputs import CompileInput, CompileOptions
from app.core.compile.pipeline import run_pipeline
from app.core.compile.trace import EventTrace, PassTrace, explain
from app.core.lanes import Reader
from app.formats import FORMATS
from app.ports import LogRead, SessionKey
from app.storage.database import PgDatabase
from tests.builders import fold, model, rewind, user
from tests.integration.test_live_read import IN_DATABASE, READERS, stored
from tests.log_driver import LOG
from tests.property.strategies import Step, build, steps


def explained(read: LogRead, reader: Reader, unread: Any = ()) -> tuple[EventTrace, ...]:
    inputs = CompileInput(
        options=CompileOptions(reader=reader),
        format=FORMATS["native"],
        index=read.index,
        compiled_seq=read.head_seq,
        opening_args=read.opening_args,
    )
    trace = PassTrace()
    result = run_pipeline(read.events, inputs, trace)
    return explain(read.events, inputs, trace, result, unread=unread)


async def both(
    database: PgDatabase, key: SessionKey, reader: Reader
) -> tuple[tuple[EventTrace, ...], tuple[EventTrace, ...], LogRead]:
    """Return the explanation of what is live and beside it, and of everything."""
    async with database.connection() as connection:
        everything = await LOG.read_all(connection, key, reader=reader)
        live = await LOG.read_live(connection, key, reader)
        assert everything is not None
        assert live is not None
        beside = await LOG.read_unread(connection, key, reader, live, up_to_seq=live.head_seq)
    return explained(live, reader, beside), explained(everything, reader), live


@IN_DATABASE
@given(drawn=steps(max_size=16), reader=READERS)
async def test_what_is_not_read_is_explained_as_if_it_were(
    database: PgDatabase, drawn: list[Step], reader: Reader
) -> None:
    sent, log = build(drawn)
    key = await stored(database, sent)

    told, wanted, live = await both(database, key, reader)

    if len(live.events) < len(log.events):
        assert told == wanted


async def test_a_long_log_is_told_in_few_rows(database: PgDatabase) -> None:
    sent = [user(str(n)) for n in range(1, 200)]
    other = [model("theirs", branch="root.b") for _ in range(20)]
    undone = [user("oops", invocation_id="i9"), *(model("yes") for _ in range(30)), rewind("i9")]
    key = await stored(database, [*sent, fold(1, 190), *other, *undone, user("on")])

    told, wanted, live = await both(database, key, Reader(branch="root.a"))

    assert told == wanted
    assert len(live.events) == 11
    spans = [(row.from_seq, row.to_seq, row.action, row.by_seq) for row in told]
    assert (1, 190, "masked", 200) in spans
    assert (201, 220, "hidden", None) in spans
    assert (221, 251, "rewound", 252) in spans
    assert len(spans) == 9 + 1 + 3 + 2
