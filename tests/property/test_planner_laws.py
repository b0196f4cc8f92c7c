"""The laws of planning, over random logs that are folded as planned."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from app.core.compaction.facts import PlanFacts, read_again, read_again_folds, wanted_folds
from app.core.compaction.plan import plan_next
from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.policy import CompactionPolicy
from app.core.compaction.view import PlanView
from app.core.compile.verify import verify
from app.core.contents import Content, Segment
from app.core.copying import replace
from app.core.events import Activation, Event, Fold, Marker, markers_of
from app.core.index import Index
from app.core.lanes import Lane, Reader
from app.core.ranges import Ranges, contains, intersect, of_seqs, subtract, union
from app.core.resolve import Log
from app.formats import FORMATS, VALIDATORS
from tests.planning import Session, policy
from tests.property.compiling import compiled, is_rewound, live_part, parts_of
from tests.property.strategies import Step, build, steps
from tests.property.test_laws import formats, readers
from tests.requests import request_of

#: Every event is of so many tokens, every summary of one: what is folded is worth it.
EVENT_TOKENS: Final = 10

policies = st.one_of(
    st.builds(
        lambda interval, overlap, **shared: policy(
            strategy="interval", compaction_interval=interval, overlap_size=overlap, **shared
        ),
        interval=st.integers(1, 2),
        overlap=st.integers(0, 2),
        fanout=st.integers(2, 3),
        pin_first=st.integers(0, 1),
    ),
    st.builds(
        lambda retention, **shared: policy(
            strategy="threshold", token_threshold=1, event_retention_size=retention, **shared
        ),
        retention=st.integers(1, 3),
        fanout=st.integers(2, 3),
    ),
    st.builds(
        lambda retention, interval: policy(
            strategy="both",
            token_threshold=60,
            event_retention_size=retention,
            compaction_interval=interval,
            overlap_size=1,
        ),
        retention=st.integers(1, 3),
        interval=st.integers(1, 2),
    ),
    st.builds(lambda size: policy(strategy="window", window_size=size), size=st.integers(1, 4)),
    st.builds(
        lambda recent, ratio: policy(
            strategy="auto",
            context_window=40,
            preserve_recent=recent,
            summary_ratio=ratio,
            fanout=2,
        ),
        recent=st.integers(0, 3),
        ratio=st.sampled_from((0.2, 0.6)),
    ),
)


def session_of(drawn: Sequence[Step]) -> Session:
    """Append the steps, each event of the same size, and each summary of a token."""
    sent, _ = build(drawn)
    session = Session()
    for event in sent:
        session.append(_sized(event))
        if isinstance(session.log.events[-1].marker, Fold):
            session.size_fold(dict.fromkeys((each.lane for each in session.last_fold.sections), 1))
    return session


def _sized(event: Event) -> Event:
    if not event.parts:
        return event
    first = EVENT_TOKENS - len(event.parts) + 1
    return replace(event, part_tokens=(first, *(1,) * (len(event.parts) - 1)))


def folding(session: Session, chosen: CompactionPolicy) -> Iterator[tuple[Log, Plan, PlanFacts]]:
    """Fold until nothing is due; yield the log before each fold, its plan and what it saw."""
    for _ in range(200):
        facts, before = session.facts(), session.log
        plan = session.plan(chosen)
        if isinstance(plan, Nothing):
            return
        session.fold(plan)
        yield before, plan, facts
    raise AssertionError("it does not end")


def shown_tokens(log: Log, index: Index) -> int:
    """Return the tokens of what is read, for everyone together."""
    folds = {event.seq: event.marker for event in log.events if isinstance(event.marker, Fold)}
    live = sum(
        sum(event.part_tokens)
        for event in log.events
        if event.marker is None and index.is_live(event.seq)
    )
    return live + sum(
        folds[section.fold_seq].sections[section.section_index].tokens for section in index.sections
    )


@given(steps(max_size=18), policies)
# Three summaries, each alone in its lane: taken together they would be three again.
@example(
    [
        Step("user"),
        Step("user", lane=Lane(branch="r.t@c1")),
        Step("user", lane=Lane(branch="r")),
        Step("fold"),
        Step("user"),
        Step("call", ids=("c1",)),
        Step("fold", second=1),
        Step("user"),
        Step("result", ids=("c1",)),
    ],
    policy(strategy="auto", context_window=40, preserve_recent=0, summary_ratio=0.2, fanout=2),
)
def test_a_fold_covers_what_was_planned_and_every_fold_makes_the_log_smaller(
    drawn: list[Step], chosen: CompactionPolicy
) -> None:
    session = session_of(drawn)
    for before, plan, _ in folding(session, chosen):
        made = {section.lane: section.covers for section in session.last_fold.sections}
        assert made == {section.lane: section.covers for section in plan.sections}
        assert shown_tokens(session.log, session.log.index) < shown_tokens(before, before.index)
        assert plan.tokens_before > 0


@given(steps(max_size=18), policies)
def test_what_must_stay_stays(drawn: list[Step], chosen: CompactionPolicy) -> None:
    session = session_of(drawn)
    for before, plan, facts in folding(session, chosen):
        view = PlanView(facts, chosen)
        for seq in (*view.held, *facts.waiting):
            assert not contains(plan.covers, seq)
        assert not intersect(plan.covers, before.index.pinned)
        # A range may run over markers, and a marker may be rewound.
        markers = of_seqs(seq for seq, _ in markers_of(before.events))
        assert not intersect(plan.covers, subtract(before.index.rewound, markers))
        # Wholly before or wholly after what the user asked and is not answered yet.
        assert not any(plan.from_seq <= seq <= plan.to_seq for seq in view.held)


@given(steps(max_size=18), policies)
def test_a_call_and_its_results_are_folded_together(
    drawn: list[Step], chosen: CompactionPolicy
) -> None:
    session = session_of(drawn)
    for before, plan, facts in folding(session, chosen):
        # What a staged fold covers is as good as folded.
        index = PlanView(facts, chosen).index
        for event in before.events:
            for owner in event.owners:
                if owner is None or is_rewound(before, owner.seq) or is_rewound(before, event.seq):
                    continue
                if index.is_live(owner.seq) and index.is_live(event.seq):
                    assert contains(plan.covers, owner.seq) == contains(plan.covers, event.seq)


@given(steps(max_size=18), policies)
def test_planning_again_gives_the_same_and_needs_no_more_than_it_says(
    drawn: list[Step], chosen: CompactionPolicy
) -> None:
    session = session_of(drawn)
    for _, plan, facts in folding(session, chosen):
        index = PlanView(facts, chosen).actual
        needed = union((*index.live, *read_again(facts.markers, chosen)))
        known = [event for event in reversed(facts.events) if contains(needed, event.seq)]
        needed_markers = with_a_say(facts, chosen)
        assert plan_next(replace(facts, events=known, markers=needed_markers), chosen) == plan


def with_a_say(facts: PlanFacts, chosen: CompactionPolicy) -> list[tuple[int, Marker]]:
    """Return the markers that are read for planning, as the storage chooses them."""
    others = [pair for pair in facts.markers if not isinstance(pair[1], Fold | Activation)]
    seqs = set(wanted_folds(facts.index, others))
    first_level = [
        seq
        for seq, marker in reversed(facts.markers)
        if isinstance(marker, Fold)
        and marker.level == 1
        and seq not in seqs
        and not contains(facts.index.rewound, seq)
    ]
    seqs.update(first_level[: read_again_folds(chosen)])
    return [pair for pair in facts.markers if pair in others or pair[0] in seqs]


@given(steps(max_size=18), policies)
def test_staged_folds_are_planned_as_if_they_were_active(
    drawn: list[Step], chosen: CompactionPolicy
) -> None:
    active, staged = session_of(drawn), session_of(drawn)
    plans = [plan for _, plan, _ in folding(active, chosen)]
    later = [plan for _, plan, _ in folding(staged, replace(chosen, is_staged=True))]
    assert [plan.covers for plan in later] == [plan.covers for plan in plans]
    assert shown_tokens(staged.log, staged.log.index) >= shown_tokens(active.log, active.log.index)


@given(steps(max_size=18), policies, readers, formats)
def test_a_folded_log_is_valid_and_only_its_live_part_is_read(
    drawn: list[Step], chosen: CompactionPolicy, reader: Reader, format_name: str
) -> None:
    session = session_of(drawn)
    for _ in folding(session, chosen):
        log = session.log
        result = compiled(log.events, log.index, reader, format_name)
        assert verify(result.rendered, FORMATS[format_name]) == ()
        if format_name in VALIDATORS and result.rendered:
            request = request_of(result, FORMATS[format_name])
            assert VALIDATORS[format_name](request, model="") == ()
        live = compiled(live_part(log, reader), log.index, reader, format_name)
        assert parts_of(live) == parts_of(result)


@given(steps(max_size=18), policies, readers)
def test_a_fold_leaves_what_is_read_before_its_span_byte_for_byte(
    drawn: list[Step], chosen: CompactionPolicy, reader: Reader
) -> None:
    session = session_of(drawn)
    for before, plan, _ in folding(session, chosen):
        old = compiled(before.events, before.index, reader)
        new = compiled(session.log.events, session.log.index, reader)
        untouched = _leading(old.contents, plan.from_seq)
        assert _texts(new.contents)[: len(untouched)] == untouched


def _leading(contents: Sequence[Content], from_seq: int) -> list[tuple[str, object]]:
    leading: list[tuple[str, object]] = []
    for content in contents:
        for placed in content.parts:
            if placed.seq is None or placed.seq >= from_seq:
                return leading
            leading.append((content.role, placed.part))
    return leading


def _texts(contents: Sequence[Content]) -> list[tuple[str, object]]:
    return [(content.role, placed.part) for content in contents for placed in content.parts]


@given(steps(max_size=18), policies, readers)
def test_with_and_without_its_folds_a_log_differs_only_in_what_they_cover(
    drawn: list[Step], chosen: CompactionPolicy, reader: Reader
) -> None:
    # adk-python#4667. A result is late only while a reply between it and its call is shown, so a
    # pair that reaches over what is folded may be read as a pair again.
    session = session_of(drawn)
    before = session.log
    covered: Ranges = ()
    for _, plan, _ in folding(session, chosen):
        covered = union((*covered, *plan.covers))
    covered = union((*covered, *_reaching_over(before, covered)))
    plain = _by_seq(compiled(before.events, before.index, reader).contents, covered)
    folded = _by_seq(compiled(session.log.events, session.log.index, reader).contents, covered)
    assert folded == plain


def _reaching_over(log: Log, covered: Ranges) -> Iterator[tuple[int, int]]:
    for event in log.events:
        for owner in event.owners:
            if owner is not None and intersect(covered, ((owner.seq, event.seq),)):
                yield event.seq, event.seq
                yield owner.seq, owner.seq


def _by_seq(contents: Sequence[Content], covered: Ranges) -> Mapping[int, list[object]]:
    """Return what is read of each event that no fold covers."""
    read: dict[int, list[object]] = {}
    for content in contents:
        for placed in content.parts:
            is_event = placed.seq is not None and placed.segment is not Segment.SUMMARIES
            if is_event and not contains(covered, placed.seq or 0):
                read.setdefault(placed.seq or 0, []).append((content.role, placed.part))
    return read
