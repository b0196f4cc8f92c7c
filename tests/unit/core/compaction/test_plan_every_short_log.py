"""Every short log over a small alphabet, against a plain model of the rules.

The model looks at every cut and every set of events, slowly and without cleverness. It knows what
the log says (owners, responses, what waits) and nothing of the planner.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import pytest

from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.policy import CompactionPolicy
from app.core.errors import InvalidInputError
from app.core.events import Event
from app.core.index import resolve
from app.core.ranges import of_seqs
from tests.builders import call, model, pin, response, user
from tests.planning import LONG, Session, policy

#: U a user message that begins an invocation, u one that does not, M a text of the model, C a call,
#: R a result of the oldest call without one, P a pin of the newest event.
ALPHABET: Final = "UuMCRP"

THRESHOLDS: Final = [
    policy(strategy="threshold", token_threshold=1, event_retention_size=size) for size in (1, 2)
]
INTERVALS: Final = [
    policy(strategy="interval", compaction_interval=size, overlap_size=0) for size in (1, 2)
]


def _session(letters: Sequence[str]) -> Session | None:
    session = Session()
    invocation, opened, answered = 0, 0, 0
    for letter in letters:
        invocation += letter == "U" or not invocation
        said: dict[str, Any] = {"invocation_id": f"i{invocation}", "part_tokens": LONG}
        match letter:
            case "U" | "u":
                event = user("u", **said)
            case "M":
                event = model("m", **said)
            case "C":
                opened += 1
                event = call("t", id=f"c{opened}", **said)
            case "R":
                answered += 1
                event = response(f"c{answered}", **said)
            case _:
                event = pin(session.head_seq)
        try:
            session.append(event)
        except InvalidInputError:
            return None
    return session


class Model:
    """The rules, read off the log."""

    def __init__(self, session: Session) -> None:
        log = session.log
        self.events = [event for event in log.events if event.marker is None]
        index = resolve([(e.seq, e.marker) for e in log.events if e.marker is not None])
        pinned = {s for low, high in index.pinned for s in range(low, high + 1)}
        self.waiting = set(session.facts().waiting)
        self.groups = self._groups()
        self.asked = self._asked()
        self.holes = pinned | self.waiting | self.asked

    def _groups(self) -> list[set[int]]:
        groups = [{event.seq} for event in self.events]

        def join(seq: int, other: int) -> None:
            one = next(group for group in groups if seq in group)
            two = next(group for group in groups if other in group)
            if one is not two:
                groups.remove(two)
                one |= two

        for event in self.events:
            for owner in event.owners:
                if owner is not None:
                    join(event.seq, owner.seq)
            if event.place is not None:
                join(event.seq, event.place.response_seq)
        return groups

    def _asked(self) -> set[int]:
        """Return what the user asked last and has no final answer."""
        if not self.events:
            return set()
        newest = [e for e in self.events if e.invocation_id == self.events[-1].invocation_id]
        asked: set[int] = set()
        for position, event in enumerate(newest):
            later = newest[position + 1] if position + 1 < len(newest) else None
            if event.author == "user":
                asked.add(event.seq)
                continue
            ends = not event.calls and not event.responses
            if ends and (later is None or later.author == "user"):
                asked.clear()
        return asked

    @property
    def is_open(self) -> bool:
        """Tell whether the newest invocation goes on."""
        newest = [e for e in self.events if e.invocation_id == self.events[-1].invocation_id]
        last = newest[-1]
        ends = last.author != "user" and not last.calls and not last.responses
        return not ends or any(event.seq in self.waiting for event in newest)

    def foldable(self, low: int, cut: int) -> set[int]:
        """Return the whole groups within a stretch that hold nothing that must stay."""
        return {
            seq
            for group in self.groups
            if all(low <= seq <= cut for seq in group) and not group & self.holes
            for seq in group
        }

    def best(self, low: int, end: int) -> set[int]:
        """Return what the latest good cut folds, or all that is whole when no cut is good."""
        for cut in range(end, low - 1, -1):
            is_split = any(
                min(group) <= cut < max(group) for group in self.groups if not group & self.holes
            )
            if not is_split and self.foldable(low, cut):
                return self.foldable(low, cut)
            if not is_split:
                break
        return self.foldable(low, end)

    def stretches(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield what lies between the things that the user asks now."""
        low = 1
        for asked in sorted(self.asked):
            yield low, min(asked - 1, end)
            low = asked + 1
        yield low, end

    def threshold(self, retention: int) -> set[int]:
        """Return what a fold by size covers."""
        if len(self.events) <= retention:
            return set()
        end = self.events[-retention - 1].seq
        for low, high in self.stretches(end):
            if found := self.best(low, high):
                return found
        return set()

    def interval(self, size: int) -> set[int]:
        """Return what the first fold by interval covers."""
        by_name: dict[str, list[Event]] = {}
        for event in self.events:
            by_name.setdefault(event.invocation_id, []).append(event)
        runs: list[list[list[Event]]] = [[]]
        for position, invocation in enumerate(by_name.values()):
            if position == len(by_name) - 1 and self.is_open:
                continue
            if all(event.seq in self.holes for event in invocation):
                runs.append([])
            else:
                runs[-1].append(invocation)
        for run in runs:
            for count in range(size, len(run) + 1):
                low, end = run[0][0].seq, run[count - 1][-1].seq
                end = min([end, *(asked - 1 for asked in self.asked if asked > low)])
                if found := self.best(low, end):
                    return found
        return set()


def _check(length: int) -> None:
    for letters in product(ALPHABET, repeat=length):
        session = _session(letters)
        if session is None:
            continue
        rules = Model(session)
        for chosen in THRESHOLDS:
            expected = rules.threshold(chosen.event_retention_size)
            _expect(letters, session, chosen, expected)
        for chosen in INTERVALS:
            _expect(letters, session, chosen, rules.interval(chosen.compaction_interval))


def _expect(
    letters: Sequence[str], session: Session, chosen: CompactionPolicy, expected: set[int]
) -> None:
    plan = session.plan(chosen)
    told = f"{''.join(letters)} {chosen.strategy} {chosen.event_retention_size}"
    if isinstance(plan, Nothing):
        assert not expected, f"{told}: {plan}, but {sorted(expected)} could be folded"
        return
    assert plan.covers == of_seqs(expected), told


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_every_short_log_is_folded_by_the_rules(length: int) -> None:
    _check(length)


@pytest.mark.slow
@pytest.mark.parametrize("length", [5, 6])
def test_every_log_of_six_events_is_folded_by_the_rules(length: int) -> None:
    _check(length)


def _ends_smaller(length: int) -> None:
    for letters in product(ALPHABET, repeat=length):
        for chosen in (*THRESHOLDS, *INTERVALS, policy(strategy="window", window_size=1)):
            session = _session(letters)
            if session is None:
                break
            plans = session.fold_all(chosen, most=2 * length)
            covered = [seq for plan in plans for low, high in plan.covers for seq in (low, high)]
            assert all(isinstance(plan, Plan) for plan in plans)
            assert len(covered) == 0 or min(covered) >= 1


@pytest.mark.parametrize("length", [1, 2, 3])
def test_folding_a_short_log_comes_to_an_end(length: int) -> None:
    _ends_smaller(length)


@pytest.mark.slow
def test_folding_a_log_of_five_events_comes_to_an_end() -> None:
    _ends_smaller(5)
