"""A log in memory that is folded as planned, with summaries of a given size."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from app.core.canonical import Json
from app.core.compaction.facts import PlanFacts, facts_known
from app.core.compaction.plan import RangeRequest, plan_compaction, plan_next
from app.core.compaction.planned import Nothing, Plan, PlannedSection
from app.core.compaction.policy import CompactionPolicy, Moment
from app.core.contents import Part, Text
from app.core.copying import replace
from app.core.events import Event, Fold
from app.core.lanes import Lane
from app.core.ranges import Ranges
from app.core.resolve import Facts, Log, Resolver
from tests.builders import model, user

#: Tokens of an event that is worth folding.
LONG: Final = (100,)


class Session:
    """Appends events and folds."""

    def __init__(self, *events: Event) -> None:
        self._resolver = Resolver(Facts())
        self._events: list[Event] = []
        self.append(*events)

    @property
    def log(self) -> Log:
        """The log so far."""
        return Log(tuple(self._events), self._resolver.facts.index)

    @property
    def head_seq(self) -> int:
        """Seq of the newest event."""
        return self._resolver.facts.head_seq

    def append(self, *events: Event) -> None:
        """Append events; one without a time is of the second of its position."""
        for event in events:
            timestamp = event.timestamp or float(self.head_seq + 1)
            self._events.append(self._resolver.add(replace(event, timestamp=timestamp)))

    def facts(self, **known: object) -> PlanFacts:
        """Return what the planner knows."""
        return replace(facts_known(self._resolver, self._events), **known)

    def plan(
        self,
        policy: CompactionPolicy,
        moment: Moment | None = None,
        *,
        wanted: RangeRequest | None = None,
        is_asked: bool = False,
        **known: object,
    ) -> Plan | Nothing:
        """Plan at a moment; at any moment of the policy without one."""
        facts = self.facts(**known)
        if moment is None:
            return plan_next(facts, policy)
        return plan_compaction(facts, policy, moment=moment, wanted=wanted, is_asked=is_asked)

    def fold(self, plan: Plan, *, tokens: int = 1, said: str = "sum") -> int:
        """Append the fold, each section that is made of so many tokens; return its seq."""
        summaries: Mapping[Lane, tuple[Part, ...]] = {
            section.lane: (Text(text=f"{said} {section.covers}"),) for section in plan.sections
        }
        self.append(Event(author="user", request=plan.fold_request(summaries)))
        self.size_fold(
            {each.lane: each.tokens if each.is_kept else tokens for each in plan.sections}
        )
        return self.head_seq

    def fold_all(self, policy: CompactionPolicy, *, tokens: int = 1, most: int = 100) -> list[Plan]:
        """Fold until nothing is due, and return the plans."""
        plans: list[Plan] = []
        while isinstance(plan := self.plan(policy), Plan):
            assert len(plans) < most, "it does not end"
            self.fold(plan, tokens=tokens)
            plans.append(plan)
        return plans

    def fold_sized(self, plan: Plan, size: Callable[[PlannedSection], int]) -> int | None:
        """Append the fold, each section of the size that is told for it, without those that would
        be no smaller; return its seq, None when no section is left."""
        sizes = {section.lane: size(section) for section in plan.sections}
        for each in plan.sections:
            if each.is_carried:
                size_then = each.tokens if each.is_kept else sizes[each.lane]
                sizes[each.lane] = min(size_then, each.tokens)
        left = plan.kept(
            [
                each.lane
                for each in plan.sections
                if each.is_carried or sizes[each.lane] < each.tokens
            ]
        )
        if sum(sizes[each.lane] for each in left) >= sum(each.tokens_before for each in left):
            return None
        seq = self.fold(replace(plan, sections=tuple(left)))
        self.size_fold(sizes)
        return seq

    def size_fold(self, tokens: Mapping[Lane, int]) -> None:
        """Give the newest fold's sections their tokens, as an append does."""
        event = self._events[-1]
        assert isinstance(event.marker, Fold)
        sections = tuple(
            replace(section, tokens=tokens[section.lane]) for section in event.marker.sections
        )
        marker = replace(event.marker, sections=sections)
        self._events[-1] = replace(event, marker=marker)
        self._resolver.facts.markers[-1] = (event.seq, marker)

    @property
    def last_fold(self) -> Fold:
        """The newest event, which is a fold."""
        marker = self._events[-1].marker
        assert isinstance(marker, Fold)
        return marker


def policy(**compaction: Json) -> CompactionPolicy:
    """Return a compaction policy as its JSON would give it."""
    return CompactionPolicy.of({"compaction": dict(compaction)})


def covers_of(plan: Plan | Nothing) -> Ranges:
    """Return what a plan covers."""
    assert isinstance(plan, Plan), plan
    return plan.covers


def reason_of(plan: Plan | Nothing) -> str:
    """Return why there is no plan."""
    assert isinstance(plan, Nothing), plan
    return plan.reason


def spans(plans: Iterable[Plan]) -> list[tuple[int, int]]:
    """Return where the plans begin and end."""
    return [(plan.from_seq, plan.to_seq) for plan in plans]


def turn(number: int, *between: Event, tokens: tuple[int, ...] = LONG) -> tuple[Event, ...]:
    """Return an invocation: a question, whatever comes between, and the answer."""
    name = f"i{number}"
    return (
        user("question", invocation_id=name, part_tokens=tokens),
        *(replace(event, invocation_id=name) for event in between),
        model("answer", invocation_id=name, part_tokens=tokens),
    )
