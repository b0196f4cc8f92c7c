"""What a session costs that was folded often does not follow how often that was."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

import app.core.resolve
import app.storage.facts
import app.storage.markers
from app.core.compaction.facts import plan_facts_of
from app.core.compaction.plan import plan_next
from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.policy import CompactionPolicy
from app.core.compile.estimate import estimate_tokens
from app.core.copying import replace
from app.core.events import Event, Fold, FoldRequest
from app.core.index import resolve
from app.core.resolve import Resolver, needs_of, replay
from app.ports import SessionKey
from app.storage.codec import pack_index, pack_multirange
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.plan_facts import PgCompactionReads
from tests.builders import activate, fold, fold_of, model, pin, section, text, undo, unpin, user
from tests.log_driver import LOG, append, new_event, new_session, no_derive
from tests.planning import policy, turn

READS: Final = PgCompactionReads(LOG, no_derive, estimate_tokens)
ROLLING: Final = policy(strategy="threshold", token_threshold=400, event_retention_size=2)
INTERVAL: Final = policy(strategy="interval", compaction_interval=2, overlap_size=1)


@dataclass(frozen=True)
class Cost:
    """What one more fold takes, counted."""

    covers: int
    shown: int
    #: Characters of what is stored of the index, without the digits of seqs.
    index: int
    #: Markers that planning is given.
    planned: int
    #: Rows read before the lock that are not of the span, and under the lock.
    read_before: int
    read_under_lock: int


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the rows that the facts of a batch are read from."""
    rows: list[int] = []

    async def counted(*arguments: Any) -> Any:
        found = await fetch(*arguments)
        rows.append(len(found))
        return found

    with monkeypatch.context() as patched:
        for module in (app.storage.facts, app.storage.markers):
            patched.setattr(module, "fetch", counted)
        yield rows


async def cost_of(
    database: PgDatabase,
    monkeypatch: pytest.MonkeyPatch,
    key: SessionKey,
    event: Event,
    chosen: CompactionPolicy,
) -> Cost:
    """Append a fold as the worker does, and count."""
    assert isinstance(event.request, FoldRequest)
    span = event.request.to_seq - event.request.from_seq + 1
    async with database.snapshot() as connection:
        read = await READS.read(connection, key, lambda _: chosen)
        session = await LOG.find_session(connection, key)
        assert read is not None
        assert session is not None
        with counting(monkeypatch) as before:
            facts = await LOG.load_facts(connection, key, session, needs_of([event]))
    Resolver(facts).foresee(event.request)
    await append(database, key, user("while a summary is made"))

    def not_all(_: object) -> None:
        raise AssertionError("all markers are resolved under the lock")

    async with database.transaction() as connection:
        locked = await LOG.lock_session(connection, key)
        assert locked is not None
        with counting(monkeypatch) as under_lock, monkeypatch.context() as patched:
            patched.setattr(app.core.resolve, "resolve", not_all)
            await LOG.refresh_facts(connection, key, locked, facts)
            resolved = Resolver(facts).add(event)
        await LOG.append(
            connection, key, [new_event(replace(resolved, id=f"e{resolved.seq}"))], facts
        )
    assert isinstance(resolved.marker, Fold)
    async with database.snapshot() as connection:
        stored = await LOG.find_session(connection, key)
        markers = await LOG.markers(connection, key)
    assert stored is not None
    assert stored.index == facts.index == resolve(markers)
    text = (pack_index(stored.index), *map(pack_multirange, (stored.index.live,)))
    return Cost(
        covers=sum(len(each.covers) for each in resolved.marker.sections),
        shown=len(stored.index.sections),
        index=sum(not character.isdigit() for each in text for character in each),
        planned=len(read.facts.markers),
        read_before=sum(before) - span,
        read_under_lock=sum(under_lock),
    )


async def test_a_rolling_session_costs_the_same_after_ten_times_as_many_folds(
    database: PgDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await new_session(database)
    await append(database, key, user("the rule"), model("noted"), pin(1))
    costs: list[Cost] = []
    head = 3
    for _ in range(40):
        await append(database, key, user("u"), model("m"))
        head += 2
        event = fold_of(1, head, section("s"))
        costs.append(await cost_of(database, monkeypatch, key, event, ROLLING))
        head += 2
    assert costs[4] == costs[-1]
    assert (costs[-1].covers, costs[-1].shown) == (1, 1)
    # The fold before, and the pin.
    assert costs[-1].planned == 2


async def test_folds_of_folds_cost_what_is_shown(
    database: PgDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await new_session(database)
    costs: list[Cost] = []
    head, start = 0, 1
    for number in range(1, 41):
        await append(database, key, user("u"), model("m"))
        event = fold_of(head + 1, head + 2, section("s"))
        costs.append(await cost_of(database, monkeypatch, key, event, INTERVAL))
        head += 4
        if number % 8 == 0:
            await append(database, key, fold(start, head - 2))
            head += 1
            start = head - 2
    groups = [costs[at : at + 8] for at in range(0, 40, 8)]
    # One more of the second level each time, and nothing else.
    assert [cost.shown for cost in groups[-1]] == [cost.shown + 3 for cost in groups[1]]
    assert {cost.covers for cost in costs} == {1}
    assert [cost.read_under_lock for cost in groups[-1]] == [
        cost.read_under_lock for cost in groups[1]
    ]
    assert costs[-1].planned <= costs[-1].shown + 3


class Both:
    """A log that is stored, and as it was sent."""

    def __init__(self, database: PgDatabase, key: SessionKey) -> None:
        self._database = database
        self._key = key
        self._sent: list[Event] = []

    async def append(self, *events: Event) -> None:
        """Append to both."""
        timed = [
            replace(event, timestamp=float(len(self._sent) + number))
            for number, event in enumerate(events, start=1)
        ]
        self._sent.extend(timed)
        await append(self._database, self._key, *timed)

    async def plan(self, chosen: CompactionPolicy) -> Plan | Nothing:
        """Plan from what is read for it; see that all of the log gives the same."""
        async with self._database.snapshot() as connection:
            read = await READS.read(connection, self._key, lambda _: chosen)
        assert read is not None
        found = plan_next(read.facts, chosen)
        assert found == plan_next(plan_facts_of(replay(self._sent)), chosen)
        return found

    async def fold(self, plan: Plan) -> int:
        """Append what was planned; return its seq."""
        summaries = {section.lane: (text("s"),) for section in plan.sections}
        await self.append(Event(author="user", request=plan.fold_request(summaries)))
        return len(self._sent)


@pytest.mark.parametrize("activated_every", [None, 1, 2])
@pytest.mark.parametrize(("fanout", "overlap"), [(2, 1), (3, 2), (8, 3)])
async def test_planning_from_what_is_read_is_planning_from_the_whole_log(
    database: PgDatabase, activated_every: int | None, fanout: int, overlap: int
) -> None:
    chosen = policy(
        strategy="interval",
        compaction_interval=2,
        overlap_size=overlap,
        fanout=fanout,
        activation="immediate" if activated_every is None else "staged",
        worth_check=False,
    )
    both = Both(database, await new_session(database))
    folds: list[int] = []
    reached_back = 0
    for number in range(1, 13):
        await both.append(*turn(number))
        while isinstance(plan := await both.plan(chosen), Plan):
            reached_back += plan.moment == "interval" and bool(folds) and plan.from_seq < folds[-1]
            folds.append(await both.fold(plan))
            if activated_every is not None and len(folds) % activated_every == 0:
                await both.append(activate(folds[-1]))
    assert len(folds) > 5
    assert reached_back > 2
    # What was undone is not folded again until it has grown.
    await both.append(undo(folds[-1]))
    assert isinstance(await both.plan(chosen), Nothing)
    for number in range(13, 17):
        await both.append(*turn(number))
        if isinstance(plan := await both.plan(chosen), Plan):
            await both.fold(plan)


@pytest.mark.parametrize(
    ("older", "newer", "left"),
    [
        # The marker at 4 stands before the newer fold, that at 8 after it.
        ((1, 6), (5, 12), (1, 3)),
        ((5, 11), (1, 7), (9, 11)),
    ],
)
async def test_what_a_newer_fold_leaves_of_an_older_ends_with_an_event(
    database: PgDatabase, older: tuple[int, int], newer: tuple[int, int], left: tuple[int, int]
) -> None:
    key = await new_session(database)
    said = [user(str(number)) for number in range(10)]
    await append(database, key, *said[:3], unpin(1), *said[3:6], unpin(1), *said[6:])
    await append(database, key, fold(*older))
    await append(database, key, fold(*newer))
    async with database.snapshot() as connection:
        session = await LOG.find_session(connection, key)
        markers = await LOG.markers(connection, key)
    assert session is not None
    assert session.index == resolve(markers)
    assert (left,) in [section.belongs for section in session.index.sections]
