"""A fold that is worked out before the lock is the fold that would be worked out under it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.errors import InvalidInputError
from app.core.events import Event, Fold, FoldRequest
from app.core.resolve import Facts, Resolver, needs_of
from app.ports import SessionKey
from app.storage.database import PgDatabase
from tests.builders import call, fold, fold_of, model, pin, response, section, user
from tests.log_driver import LOG, append, new_session
from tests.property.strategies import Step, build, steps

IN_DATABASE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SECTIONS = (section("root"), section("branch", branch="r"), section("tool", branch="r.t@c1"))


async def foreseen(database: PgDatabase, key: SessionKey, event: Event) -> Facts:
    async with database.snapshot() as connection:
        session = await LOG.find_session(connection, key)
        assert session is not None
        facts = await LOG.load_facts(connection, key, session, needs_of([event]))
    assert isinstance(event.request, FoldRequest)
    Resolver(facts).foresee(event.request)
    return facts


async def check_same(database: PgDatabase, key: SessionKey, event: Event, facts: Facts) -> bool:
    """Append with refreshed and with fresh facts; tell whether what was foreseen was used."""
    async with database.transaction() as connection:
        session = await LOG.lock_session(connection, key)
        assert session is not None
        await LOG.refresh_facts(connection, key, session, facts)
        fresh = await LOG.load_facts(connection, key, session, needs_of([event]))
        known = {seq: facts.calls_by_seq.get(seq) for seq in fresh.calls_by_seq}
        assert known == fresh.calls_by_seq
        assert {seq: facts.headers[seq] for seq in fresh.headers} == fresh.headers
        assert (facts.lanes, facts.lane_count) == (fresh.lanes, fresh.lane_count)
        assert (facts.head_seq, facts.index, facts.markers) == (
            fresh.head_seq,
            fresh.index,
            fresh.markers,
        )
        try:
            expected = Resolver(fresh).add(event)
        except InvalidInputError as error:
            with pytest.raises(type(error)):
                Resolver(facts).add(event)
            return False
        assert Resolver(facts).add(event) == expected
        assert facts.index == fresh.index
        assert (facts.lanes, facts.lane_count) == (fresh.lanes, fresh.lane_count)
    return facts.foreseen is not None and facts.foreseen.fold is facts.markers[-1][1]


@IN_DATABASE
@given(
    drawn=steps(max_size=16),
    before=st.integers(1, 14),
    chosen=st.lists(st.sampled_from(SECTIONS), min_size=1, max_size=3, unique_by=id),
    span=st.tuples(st.integers(1, 8), st.integers(0, 12), st.booleans()),
)
async def test_a_foreseen_fold_is_the_one_that_is_worked_out_under_the_lock(
    database: PgDatabase,
    drawn: list[Step],
    before: int,
    chosen: list[object],
    span: tuple[int, int, bool],
) -> None:
    sent, _ = build(drawn)
    key = await new_session(database)
    await append(database, key, *sent[:before])
    first = min(span[0], before)
    last, staged = first + span[1], span[2]
    event = fold_of(first, last, *chosen, staged=staged)  # type: ignore[arg-type]
    facts = await foreseen(database, key, event)
    for later in sent[before:]:
        try:
            await append(database, key, later)
        except InvalidInputError:
            continue

    await check_same(database, key, event, facts)


async def test_what_was_foreseen_is_used_while_only_ordinary_events_come(
    database: PgDatabase,
) -> None:
    key = await new_session(database)
    await append(database, key, user("a"), call("t", id="c1"), response("c1"), model("b"))
    event = fold(1, 4)
    facts = await foreseen(database, key, event)
    await append(database, key, user("c"), model("d"))

    assert await check_same(database, key, event, facts)


@pytest.mark.parametrize("later", [pin(1), fold(1, 2), response("c1")])
async def test_what_was_foreseen_is_worked_out_anew_where_that_changes_it(
    database: PgDatabase, later: Event
) -> None:
    key = await new_session(database)
    await append(database, key, user("a"), model("b"), user("c"), call("t", id="c1"))
    event = fold(1, 4)
    facts = await foreseen(database, key, event)
    assert facts.foreseen is not None
    await append(database, key, later)

    assert not await check_same(database, key, event, facts)


async def test_what_stands_before_the_lock_is_not_read_under_it(
    database: PgDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await new_session(database)
    await append(database, key, *(user(f"{number}") for number in range(200)))
    event = fold(1, 190)
    facts = await foreseen(database, key, event)
    await append(database, key, model("b"))
    known = set(facts.headers)
    read: list[int] = []
    seen = Resolver._is_wanted  # noqa: SLF001

    def watched(resolver: Resolver, seq: int, request: FoldRequest) -> bool:
        read.append(seq)
        return seen(resolver, seq, request)

    monkeypatch.setattr(Resolver, "_is_wanted", watched)
    async with database.transaction() as connection:
        session = await LOG.lock_session(connection, key)
        assert session is not None
        await LOG.refresh_facts(connection, key, session, facts)
        resolved = Resolver(facts).add(event)

    assert set(facts.headers) - known == {201, 202}
    assert read == []
    assert isinstance(resolved.marker, Fold)
