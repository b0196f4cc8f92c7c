"""The law of bounded requests: what ``auto`` leaves to be read, over random logs that grow.

At rest a request is below the trigger, or it holds no more than what must stay, the share that
summaries may take, and what is too little to be worth a fold.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.compaction.plan_by_size import MIN_FREED_RATIO
from app.core.compaction.planned import Nothing, PlannedSection
from app.core.compaction.policy import (
    FOLD_SHARE,
    RECENT_SHARE,
    SUMMARIES_SHARE,
    CompactionPolicy,
)
from app.core.compaction.view import PlanView
from app.core.copying import replace
from app.core.events import Event
from app.core.lanes import Lane
from tests.builders import call, model, pin, response, user
from tests.planning import Session, policy

#: A window of which one event takes from next to nothing to all.
WINDOW: Final = 2_000
SIZES: Final = (1, 10, 60, 200, 600, 2_500)
LANES: Final = (Lane(), Lane(), Lane(), Lane(branch="r"), Lane(branch="r.t@c1"), Lane("s"))
#: What a summarizer may make of what it is given: all that it may, half of it, one word.
SUMMARY_PARTS: Final = (1.0, 1.0, 0.5, 0.0)


@dataclass(frozen=True)
class Step:
    """What comes next."""

    kind: str
    sizes: tuple[int, int]
    lane: Lane
    #: The invocation goes on.
    goes_on: bool
    ids: tuple[str, ...] = ("c",)
    back: int = 0


step = st.builds(
    Step,
    kind=st.sampled_from(("ask", "ask", "answer", "answer", "turn", "tool", "tool", "open", "pin")),
    sizes=st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES)),
    lane=st.sampled_from(LANES),
    goes_on=st.booleans(),
    back=st.integers(0, 12),
)


def auto(*, recent: int, ratio: float, fanout: int) -> CompactionPolicy:
    """Return a policy of a small window."""
    return policy(
        strategy="auto",
        context_window=WINDOW,
        preserve_recent=recent,
        summary_ratio=ratio,
        fanout=fanout,
    )


policies = st.builds(
    auto,
    recent=st.sampled_from((0, 2, 10)),
    ratio=st.sampled_from((0.1, 0.3, 0.9)),
    fanout=st.sampled_from((2, 8)),
)


class Growing:
    """A session that grows step by step."""

    def __init__(self) -> None:
        self.session = Session()
        self._invocation = 0
        self._calls = 0

    def take(self, step: Step) -> None:
        """Append what the step says."""
        for event in self._events(step):
            self.session.append(event)

    def _events(self, step: Step) -> Iterator[Event]:
        one, two = step.sizes
        self._invocation += step.kind in ("ask", "turn") and not step.goes_on
        fields = {"invocation_id": f"i{self._invocation}", "lane": step.lane}
        match step.kind:
            case "ask":
                yield replace(user("q", part_tokens=(one,)), **fields)
            case "answer":
                yield replace(model("a", part_tokens=(one,)), **fields)
            case "turn":
                yield replace(user("q", part_tokens=(one,)), **fields)
                yield replace(model("a", part_tokens=(two,)), **fields)
            case "tool" | "open":
                self._calls += 1
                name = f"c{self._calls}"
                asked = call("t", id=name, part_tokens=(one,))
                yield replace(asked, **fields)
                if step.kind == "tool":
                    result = response(name, part_tokens=(two,))
                    yield replace(result, **fields)
            case "pin":
                seq = self.session.head_seq - step.back
                event = next((e for e in self.session.log.events if e.seq == seq), None)
                if event is not None and event.marker is None:
                    yield pin(seq)


def folded(
    session: Session,
    chosen: CompactionPolicy,
    size: Callable[[PlannedSection], int],
    overhead_tokens: int,
) -> Nothing:
    """Fold until nothing is due; return why nothing is."""
    for _ in range(60):
        shown = PlanView(session.facts(), chosen).tokens_now
        found = session.plan(chosen, projected_tokens=shown + overhead_tokens)
        if isinstance(found, Nothing):
            # Levels are looked at after size: what size alone says is told.
            by_size = session.plan(chosen, "threshold", projected_tokens=shown + overhead_tokens)
            assert isinstance(by_size, Nothing)
            return by_size
        if session.fold_sized(found, size) is None:
            return Nothing("refused_span", "no summary is smaller")
        after = PlanView(session.facts(), chosen).tokens_now
        assert after < shown, "a fold made it worse"
    raise AssertionError("it does not end")


def most_at_rest(session: Session, chosen: CompactionPolicy) -> float:
    """Return what may be read at most, beside system and tools."""
    view = PlanView(session.facts(), chosen)
    trigger = chosen.trigger_tokens
    assert trigger is not None
    staying = set(view.hole_reasons) | recent(view, chosen)
    bounds = (0, *view.held, math.inf)
    stretches = len(bounds) - 1

    def stretch_of(seq: int) -> int:
        return sum(seq > bound for bound in bounds)

    for event in view.live:
        related = {*view.boundaries.group_of(event.seq), *(o for o in event.owner_seqs if o)}
        if len({stretch_of(seq) for seq in related}) > 1:
            staying.add(event.seq)
    # What belongs together stays together.
    for seq in tuple(staying):
        staying.update(view.boundaries.group_of(seq))
    kept = sum(event.tokens for event in view.live if event.seq in staying)
    shares = SUMMARIES_SHARE + (stretches - 1) * FOLD_SHARE + stretches * MIN_FREED_RATIO
    return kept + shares * trigger


def recent(view: PlanView, chosen: CompactionPolicy) -> set[int]:
    """Return the newest events: so many, as far as they fit into a part of the window."""
    kept: set[int] = set()
    tokens = 0
    newest = view.boundaries.group_of(view.live[-1].seq) if view.live else ()
    for event in view.live[::-1][: chosen.preserve_recent]:
        tokens += event.tokens
        if tokens > RECENT_SHARE * chosen.full_tokens and event.seq not in newest:
            break
        kept.add(event.seq)
    return kept


def check(
    drawn: Sequence[Step], chosen: CompactionPolicy, parts: Sequence[float], overhead_tokens: int
) -> None:
    growing = Growing()
    session = growing.session
    count = 0

    def size(section: PlannedSection) -> int:
        nonlocal count
        count += 1
        return max(1, int(parts[count % len(parts)] * min(section.most_tokens, section.tokens - 1)))

    for step in drawn:
        growing.take(step)
        nothing = folded(session, chosen, size, overhead_tokens)
        tokens = PlanView(session.facts(), chosen).tokens_now
        trigger = chosen.trigger_tokens or 0
        if nothing.reason == "below_threshold":
            assert tokens + overhead_tokens < trigger
            continue
        assert nothing.reason in (
            "no_progress",
            "too_few_events",
            "open_invocation",
            "all_protected",
            "nothing_live",
            "refused_span",
        )
        if nothing.reason != "refused_span":
            assert tokens <= most_at_rest(session, chosen), (nothing, tokens, trigger)


# One lane's summary is no smaller, again and again, and the lane comes to be held.
@example(
    drawn=[
        *(Step("ask", (1, 1), Lane(), goes_on=False) for _ in range(6)),
        Step("ask", (1, 1), Lane(branch="r"), goes_on=False),
        Step("answer", (1, 1), Lane(), goes_on=False),
        Step("open", (60, 1), Lane(branch="r"), goes_on=False),
        *(Step("ask", (2_500, 1), Lane(), goes_on=False) for _ in range(2)),
        *(Step("turn", (1, 600), Lane(), goes_on=False) for _ in range(2)),
    ],
    chosen=auto(recent=0, ratio=0.1, fanout=2),
    parts=[1.0],
    overhead_tokens=300,
)
@given(
    st.lists(step, max_size=30),
    policies,
    st.lists(st.sampled_from(SUMMARY_PARTS), min_size=1, max_size=4),
    st.sampled_from((0, 0, 300, 5_000)),
)
def test_what_auto_leaves_is_bounded(
    drawn: list[Step], chosen: CompactionPolicy, parts: list[float], overhead_tokens: int
) -> None:
    check(drawn, chosen, parts, overhead_tokens)


@pytest.mark.slow
@settings(max_examples=1_500)
@given(
    st.lists(step, min_size=10, max_size=40),
    policies,
    st.lists(st.sampled_from(SUMMARY_PARTS), min_size=1, max_size=4),
    st.sampled_from((0, 0, 300, 5_000)),
)
def test_what_auto_leaves_of_long_logs_is_bounded(
    drawn: list[Step], chosen: CompactionPolicy, parts: list[float], overhead_tokens: int
) -> None:
    check(drawn, chosen, parts, overhead_tokens)
