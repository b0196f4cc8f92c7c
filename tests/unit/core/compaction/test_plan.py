"""Planning: what is folded, at which moment, and why nothing is."""

from collections import Counter

import pytest

from app.core.compaction.facts import Refusal
from app.core.compaction.plan import RangeRequest, plan_next
from app.core.compaction.planned import Nothing, Plan
from app.core.copying import replace
from app.core.lanes import Lane
from app.core.ranges import contains
from tests.builders import (
    activate,
    call,
    fold,
    model,
    pin,
    response,
    rewind,
    thought,
    undo,
    unpin,
    user,
)
from tests.planning import LONG, Session, covers_of, policy, reason_of, spans, turn

INTERVAL = policy(strategy="interval", compaction_interval=3, overlap_size=1)
NO_OVERLAP = policy(strategy="interval", compaction_interval=2, overlap_size=0)
EVERY = policy(strategy="interval", compaction_interval=1, overlap_size=0)
ROLLING = policy(strategy="threshold", token_threshold=400, event_retention_size=2)


def seqs_of(plan: Plan | Nothing) -> list[int]:
    """Return the covered seqs one by one."""
    return [seq for low, high in covers_of(plan) for seq in range(low, high + 1)]


# Interval


def test_interval_3_overlap_1_folds_1_to_3_then_3_to_6_then_6_to_9() -> None:
    # ADK's documented example.
    session = Session()
    folded: list[tuple[int, list[str]]] = []
    for number in range(1, 10):
        session.append(*turn(number))
        plan = session.plan(INTERVAL, "interval")
        if isinstance(plan, Plan):
            by_seq = {e.seq: e.invocation_id for e in session.log.events if e.marker is None}
            names = sorted({by_seq[seq] for seq in seqs_of(plan) if seq in by_seq})
            folded.append((number, names))
            session.fold(plan)
    assert folded == [
        (3, ["i1", "i2", "i3"]),
        (6, ["i3", "i4", "i5", "i6"]),
        (9, ["i6", "i7", "i8", "i9"]),
    ]


def test_a_window_holds_no_more_new_invocations_than_the_interval() -> None:
    session = Session(*(event for number in range(1, 8) for event in turn(number)))
    assert spans(session.fold_all(NO_OVERLAP)) == [(1, 4), (5, 8), (9, 12)]
    assert reason_of(session.plan(NO_OVERLAP)) == "not_enough_invocations"


def test_an_overlap_is_read_again_and_belongs_to_the_newer_fold() -> None:
    session = Session(*(event for number in range(1, 7) for event in turn(number)))
    first, second = session.fold_all(INTERVAL)
    assert (first.covers, second.covers) == (((1, 6),), ((5, 12),))
    assert second.sections[0].seqs == ((5, 12),)
    assert second.sections[0].seed_fold_seqs == ()
    assert [section.belongs for section in session.log.index.sections] == [((1, 4),), ((5, 12),)]


def test_an_open_invocation_is_not_counted() -> None:
    session = Session(*turn(1), user("next", invocation_id="i2", part_tokens=LONG))
    assert reason_of(session.plan(NO_OVERLAP)) == "open_invocation"
    session.append(model("answer", invocation_id="i2"))
    assert covers_of(session.plan(NO_OVERLAP)) == ((1, 4),)


def test_an_event_of_a_later_invocation_completes_the_earlier_ones() -> None:
    session = Session(*turn(1), user("lost", invocation_id="i2", part_tokens=LONG))
    session.append(user("again", invocation_id="i3"))
    assert covers_of(session.plan(NO_OVERLAP)) == ((1, 3),)


def test_what_an_append_says_completes_an_invocation() -> None:
    session = Session(*turn(1), user("unanswered", invocation_id="i2", part_tokens=LONG))
    events = [
        replace(event, completes_invocation=event.seq == 3) for event in session.facts().events
    ]
    assert covers_of(session.plan(NO_OVERLAP, "interval", events=events)) == ((1, 3),)


def test_messages_without_invocation_ids_are_counted_by_their_user_messages() -> None:
    session = Session()
    for _ in range(2):
        session.append(user("q", part_tokens=LONG), model("a", part_tokens=LONG))
    assert covers_of(session.plan(NO_OVERLAP)) == ((1, 4),)


def test_short_invocations_gather_until_they_are_worth_a_summary() -> None:
    session = Session(*turn(1), *turn(2))
    session.fold_all(NO_OVERLAP, tokens=50)
    for number in range(3, 9):
        session.append(*turn(number, tokens=(5,)))
    # 5 invocations of 10 tokens save as much as the last summary took; the 6th makes it more.
    plan = session.plan(NO_OVERLAP)
    assert isinstance(plan, Plan)
    assert (plan.from_seq, plan.to_seq) == (6, 17)


def test_without_worth_check_short_invocations_fold_at_once() -> None:
    careless = replace(NO_OVERLAP, has_worth_check=False)
    session = Session(*turn(1), *turn(2))
    session.fold_all(careless, tokens=50)
    session.append(*turn(3, tokens=(5,)), *turn(4, tokens=(5,)))
    assert reason_of(session.plan(NO_OVERLAP)) == "not_worth_it"
    assert covers_of(session.plan(careless)) == ((6, 9),)


def test_an_invocation_that_goes_on_after_its_fold_counts_again() -> None:
    session = Session(*turn(1), *turn(2))
    session.fold_all(NO_OVERLAP)
    session.append(*turn(2), *turn(3))
    # As in ADK it is read again whole, which is then more than the first fold, and replaces it.
    assert covers_of(session.plan(NO_OVERLAP)) == ((3, 9),)


def test_an_overlap_reaches_back_over_the_folds_before() -> None:
    chosen = policy(strategy="interval", compaction_interval=1, overlap_size=2)
    session = Session()
    covers = []
    for number in range(1, 6):
        session.append(*turn(number))
        plan = session.plan(chosen, "interval")
        assert isinstance(plan, Plan)
        covers.append(covers_of(plan))
        session.fold(plan)
    # Two events and a fold a turn: each but the first two goes on with the two turns before.
    assert covers == [((1, 2),), ((1, 5),), ((1, 8),), ((4, 11),), ((7, 14),)]


def test_a_rewound_fold_is_made_again() -> None:
    session = Session(*turn(1), *turn(2))
    session.fold_all(NO_OVERLAP)
    session.append(*turn(3), rewind("i3"), *turn(4))
    assert reason_of(session.plan(NO_OVERLAP)) == "not_enough_invocations"
    session.append(rewind("i2"), *turn(5), *turn(6))
    assert covers_of(session.plan(NO_OVERLAP))[0] == (1, 2)


# Threshold


def test_a_threshold_folds_all_but_the_newest_events() -> None:
    session = Session(*turn(1), *turn(2), *turn(3))
    plan = session.plan(ROLLING)
    assert covers_of(plan) == ((1, 4),)
    assert isinstance(plan, Plan)
    assert plan.tokens_before == 400


def test_a_token_count_equal_to_the_threshold_folds() -> None:
    session = Session(*turn(1), *turn(2))
    assert covers_of(session.plan(ROLLING)) == ((1, 2),)
    assert reason_of(session.plan(replace(ROLLING, token_threshold=401))) == "below_threshold"


def test_a_reported_prompt_size_goes_before_our_own_count() -> None:
    session = Session(*turn(1), *turn(2))
    assert reason_of(session.plan(ROLLING, "threshold", projected_tokens=399)) == "below_threshold"
    far = replace(ROLLING, token_threshold=4_000)
    assert covers_of(session.plan(far, "threshold", projected_tokens=4_000)) == ((1, 2),)


def test_a_rolling_fold_goes_on_from_the_last_one_and_replaces_it() -> None:
    session = Session(*turn(1), *turn(2), *turn(3))
    first = session.fold(covers_checked(session, ROLLING, ((1, 4),)))
    session.append(*turn(4))
    plan = session.plan(ROLLING)
    assert isinstance(plan, Plan)
    assert plan.sections[0].seqs == ((5, 6),)
    assert plan.sections[0].covers == ((1, 6),)
    assert plan.sections[0].seed_fold_seqs == (first,)
    second = session.fold(plan)
    assert {section.fold_seq for section in session.log.index.sections} == {second}


def covers_checked(session: Session, chosen: object, covers: object) -> Plan:
    """Plan and check what is covered."""
    plan = session.plan(chosen)  # type: ignore[arg-type]
    assert isinstance(plan, Plan)
    assert plan.covers == covers
    return plan


def test_retention_counts_events_and_moves_before_a_split_pair() -> None:
    chosen = replace(ROLLING, event_retention_size=4, token_threshold=1)
    session = Session(*turn(1), *turn(2, call("t", id="c"), response("c")), *turn(3))
    # The cut would fall between the call and its result.
    assert covers_of(session.plan(chosen)) == ((1, 3),)


def test_the_question_being_answered_is_held_back() -> None:
    chosen = replace(ROLLING, event_retention_size=1, token_threshold=1)
    session = Session(*turn(1), user("now", invocation_id="i2", part_tokens=LONG))
    session.append(call("t", id="c", invocation_id="i2"), response("c", invocation_id="i2"))
    session.append(call("t", id="d", invocation_id="i2"), response("d", invocation_id="i2"))
    # Before the question first, then what happened since: never across it.
    assert spans(session.fold_all(chosen)) == [(1, 2), (4, 5)]


def test_what_was_folded_has_no_say_in_what_is_open() -> None:
    """The newest question was folded by hand; whoever still knows its header plans like others."""
    session = Session(
        user("first", invocation_id="i1"),
        user("second", invocation_id="i1"),
        user("third", invocation_id="i2"),
    )
    session.append(fold(3, 3))
    chosen = policy(strategy="threshold", token_threshold=1, event_retention_size=1)
    facts = session.facts()

    assert {event.seq for event in facts.events} == {1, 2, 3}
    live = [event for event in facts.events if event.seq != 3]
    assert plan_next(facts, chosen) == plan_next(replace(facts, events=live), chosen)


def test_a_question_that_is_pinned_too_still_parts_the_spans() -> None:
    chosen = replace(ROLLING, event_retention_size=1, token_threshold=1)
    session = Session(*turn(1), user("now", invocation_id="i2", part_tokens=LONG), pin(3))
    for number in range(2):
        session.append(call("t", id=f"c{number}", invocation_id="i2"))
        session.append(response(f"c{number}", invocation_id="i2"))
    assert spans(session.fold_all(chosen)) == [(1, 2), (5, 6)]


def test_a_complete_invocation_folds_whole_and_takes_both_sides_together() -> None:
    chosen = replace(ROLLING, event_retention_size=1, token_threshold=1)
    session = Session(*turn(1), user("now", invocation_id="i2", part_tokens=LONG))
    for number in range(4):
        session.append(
            call("t", id=f"c{number}", invocation_id="i2", part_tokens=LONG),
            response(f"c{number}", invocation_id="i2", part_tokens=LONG),
        )
    before, since = session.fold_all(chosen)
    session.append(model("answer", invocation_id="i2", part_tokens=LONG), *turn(3))
    plan = session.plan(chosen)
    assert isinstance(plan, Plan)
    assert plan.from_seq == before.from_seq
    assert contains(plan.covers, 3)
    assert len(plan.sections[0].seed_fold_seqs) == 2
    assert since.from_seq > 3


def test_a_log_over_the_threshold_that_frees_little_is_left_alone() -> None:
    # openai/codex#40213: dozens of compactions within the hour, and the prompt stays too large.
    session = Session(user("U", invocation_id="i1", part_tokens=(1_800_000,)))
    chosen = policy(strategy="threshold", token_threshold=258_000, event_retention_size=1)
    for number in range(4):
        session.append(call("t", id=f"c{number}", invocation_id="i1"))
        session.append(response(f"c{number}", invocation_id="i1"))
        assert reason_of(session.plan(chosen)) in ("no_progress", "all_protected", "too_few_events")


def test_a_tool_loop_of_one_invocation_folds_by_threshold_and_not_by_interval() -> None:
    # adk-python#4675: U (C R)x100.
    session = Session(user("go", invocation_id="i1", part_tokens=LONG))
    for number in range(100):
        session.append(
            call("t", id=f"c{number}", invocation_id="i1", part_tokens=(10,)),
            response(f"c{number}", invocation_id="i1", part_tokens=(10,)),
        )
    assert reason_of(session.plan(INTERVAL)) == "not_enough_invocations"
    chosen = policy(strategy="threshold", token_threshold=1_000, event_retention_size=10)
    assert covers_of(session.plan(chosen)) == ((2, 191),)


# Both


def test_with_both_the_threshold_goes_first() -> None:
    chosen = policy(
        strategy="both",
        compaction_interval=2,
        overlap_size=0,
        token_threshold=400,
        event_retention_size=1,
    )
    session = Session(*turn(1), *turn(2))
    plan = session.plan(chosen)
    assert isinstance(plan, Plan)
    assert (plan.moment, plan.covers) == ("threshold", ((1, 3),))
    small = Session(*turn(1, tokens=(50,)), *turn(2, tokens=(50,)))
    plan = small.plan(chosen)
    assert isinstance(plan, Plan)
    assert (plan.moment, plan.covers) == ("interval", ((1, 4),))


# Window


def test_a_window_bounds_the_live_events_inside_a_tool_loop_too() -> None:
    # strands#465 and #578: (U C R A)x20 never holds more than the window once it is applied.
    chosen = policy(strategy="window", window_size=12)
    session = Session()
    for number in range(20):
        name = f"i{number}"
        events = (
            user("U", invocation_id=name, part_tokens=LONG),
            call("t", id=f"c{number}", invocation_id=name, part_tokens=LONG),
            response(f"c{number}", invocation_id=name, part_tokens=LONG),
            model("A", invocation_id=name, part_tokens=LONG),
        )
        for event in events:
            session.append(event)
            session.fold_all(chosen)
            live = [e for e in session.facts().events if session.log.index.is_live(e.seq)]
            assert len(live) <= 12 or events.index(event) == 1, "a call waits for its result"


def test_a_window_never_folds_the_newest_result() -> None:
    chosen = policy(strategy="window", window_size=5)
    session = Session(user("U", invocation_id="i1", part_tokens=LONG))
    for number in range(6):
        session.append(call("t", id=f"c{number}", invocation_id="i1", part_tokens=LONG))
        session.append(response(f"c{number}", invocation_id="i1", part_tokens=LONG))
        session.fold_all(chosen)
        assert session.log.index.is_live(1)
        assert session.log.index.is_live(session.facts().events[-1].seq)
    live = [e for e in session.facts().events if session.log.index.is_live(e.seq)]
    assert len(live) <= 5


# Auto and levels


def test_auto_does_nothing_below_its_part_of_the_window() -> None:
    chosen = policy(strategy="auto", context_window=1_000, preserve_recent=2)
    session = Session(*turn(1), *turn(2), *turn(3), *turn(4))
    assert reason_of(session.plan(chosen)) == "below_threshold"
    session.append(user("one more", part_tokens=(50,), invocation_id="i5"))
    assert isinstance(session.plan(chosen), Plan)


def test_auto_folds_by_tokens_and_not_by_the_number_of_events() -> None:
    # OpenHands/software-agent-sdk#1172: a book in one event.
    chosen = policy(strategy="auto", context_window=1_000, preserve_recent=2)
    session = Session(
        *turn(1, call("t", id="c"), response("c", part_tokens=(5_000,)), tokens=(1,)),
        *turn(2, tokens=(1,)),
        *turn(3, tokens=(1,)),
    )
    assert covers_of(session.plan(chosen)) == ((1, 3),)


def test_auto_folds_stand_side_by_side_and_become_one_of_the_next_level() -> None:
    chosen = policy(strategy="auto", context_window=1_000, preserve_recent=2, fanout=3)
    session = Session()
    levels: list[int] = []
    for number in range(60):
        session.append(*turn(number))
        levels.extend(plan.level for plan in session.fold_all(chosen, tokens=20))
        live = [e for e in session.facts().events if session.log.index.is_live(e.seq)]
        assert sum(e.tokens for e in live) + 20 * len(session.log.index.sections) < 1_000
    assert max(levels) >= 3
    assert len(session.log.index.sections) <= 2 * max(levels)


@pytest.mark.parametrize("branches", [2, 3])
def test_branches_that_take_turns_have_few_summaries_each(branches: int) -> None:
    chosen = replace(EVERY, fanout=branches)
    session = Session()
    levels: list[int] = []
    for number in range(60):
        said = {"branch": f"r.{number % branches}", "invocation_id": f"i{number}"}
        session.append(user("q", part_tokens=LONG, **said), model("a", part_tokens=LONG, **said))
        plans = session.fold_all(chosen, tokens=20)
        levels.extend(plan.level for plan in plans)
        # What makes a fold of folds has something to say that they do not.
        assert all(any(not each.is_carried for each in plan.sections) for plan in plans)
    assert max(levels) >= 3
    by_lane = Counter(section.lane for section in session.log.index.sections)
    assert len(by_lane) == branches
    assert max(by_lane.values()) <= (branches - 1) * max(levels)


def test_a_staged_fold_leaves_to_later_ones_what_an_active_one_does() -> None:
    # An invocation that goes on long after its beginning was folded.
    late = (user("late", invocation_id="i1", part_tokens=LONG), *turn(9))
    covers = []
    for chosen in (EVERY, replace(EVERY, is_staged=True)):
        session = Session(*(event for number in range(1, 7) for event in turn(number)))
        session.fold_all(chosen)
        session.append(*late)
        covers.append([plan.covers for plan in session.fold_all(chosen)])
    active, staged = covers
    assert active == staged


def test_a_fold_of_folds_reads_their_summaries_and_what_stayed_between() -> None:
    chosen = replace(NO_OVERLAP, fanout=2)
    session = Session(*turn(1), user("kept", invocation_id="i2", part_tokens=LONG))
    session.append(pin(3), model("a", invocation_id="i2", part_tokens=LONG))
    session.append(*turn(3), *turn(4))
    session.fold(first := covers_checked(session, chosen, ((1, 2), (5, 5))))
    session.append(unpin(3))
    session.fold(covers_checked(session, chosen, ((6, 9),)))
    plan = session.plan(chosen)
    assert isinstance(plan, Plan)
    assert (plan.moment, plan.level, plan.from_seq) == ("fanout", 2, first.from_seq)
    assert plan.sections[0].seqs == ((3, 3),)
    assert plan.sections[0].covers == ((1, 9),)
    assert len(plan.sections[0].seed_fold_seqs) == 2
    seq = session.fold(plan)
    assert {section.fold_seq for section in session.log.index.sections} == {seq}


def test_the_next_level_waits_for_the_running_invocation() -> None:
    chosen = policy(strategy="threshold", token_threshold=1, event_retention_size=1, fanout=2)
    session = Session(*turn(1), user("now", invocation_id="i2", part_tokens=LONG))
    for number in range(3):
        session.append(call("t", id=f"c{number}", invocation_id="i2", part_tokens=LONG))
        session.append(response(f"c{number}", invocation_id="i2", part_tokens=LONG))
    session.fold_all(chosen)
    assert len(session.log.index.sections) == 2
    assert reason_of(session.plan(chosen, "fanout")) == "open_invocation"


# Holes


def test_a_pinned_event_stays_with_its_whole_call_group() -> None:
    session = Session(*turn(1, call("t", id="c"), response("c")), *turn(2), pin(3))
    assert covers_of(session.plan(NO_OVERLAP)) == ((1, 1), (4, 6))


def test_the_first_events_of_a_session_can_be_kept() -> None:
    # strands#4087: pin_first 2.
    chosen = replace(NO_OVERLAP, pin_first=2)
    session = Session(*turn(1), *turn(2), *turn(3))
    assert covers_of(session.plan(chosen)) == ((3, 6),)


def test_the_first_events_kept_are_those_that_were_not_rewound() -> None:
    chosen = replace(EVERY, pin_first=2)
    session = Session(*turn(1), rewind("i1"), *turn(2), *turn(3))
    assert covers_of(session.plan(chosen)) == ((6, 7),)


def test_an_open_call_stays_and_what_follows_is_folded() -> None:
    session = Session(*turn(1), *turn(2)[:1], call("t", id="c", invocation_id="i2"))
    session.append(*turn(3))
    # The call waits until a reply of its author lands: only then is it dead.
    assert covers_of(session.plan(EVERY)) == ((1, 2),)


def test_a_dead_call_does_not_stop_compaction() -> None:
    # adk-python#7236: a call whose answer never came heads every later window.
    session = Session(call("t", id="dead", invocation_id="i1", part_tokens=LONG))
    session.append(*turn(2), *turn(3))
    assert covers_of(session.plan(NO_OVERLAP)) == ((1, 3),)
    waiting = Session(call("t", id="dead", invocation_id="i1", author="other", part_tokens=LONG))
    waiting.append(*turn(2), *turn(3))
    assert covers_of(waiting.plan(NO_OVERLAP)) == ((2, 5),)


def test_an_open_confirmation_stays_and_so_does_its_call() -> None:
    # adk-python#4740.
    asked = response("c1", invocation_id="i2", requested_ids=frozenset({"c1"}))
    session = Session(
        user("q", invocation_id="i1", part_tokens=LONG),
        call("t", id="c1", invocation_id="i2"),
        call(
            "adk_request_confirmation",
            id="q1",
            invocation_id="i2",
            long_running_ids=frozenset({"q1"}),
        ),
        asked,
        user("meanwhile", invocation_id="i3", part_tokens=LONG),
    )
    assert covers_of(session.plan(EVERY)) == ((1, 1),)
    session.append(response("q1", invocation_id="i4"), response("c1", invocation_id="i4"))
    session.append(model("done", invocation_id="i4"), *turn(5))
    # The groups reach over several invocations: what takes their folds together takes them too.
    folded = session.fold_all(replace(EVERY, fanout=3))
    covered = {seq for plan in folded for seq in seqs_of(plan)}
    assert {2, 3, 4, 6, 7} <= covered


def test_a_call_and_a_result_that_is_not_old_enough_stay_together() -> None:
    session = Session(*turn(1), *turn(2, call("slow", id="c")), *turn(3), response("c"))
    chosen = policy(strategy="threshold", token_threshold=1, event_retention_size=1)
    plan = session.plan(chosen)
    for seq in seqs_of(plan):
        assert seq not in (4, 8)


def test_a_result_of_a_folded_call_waits_for_a_fold_of_both() -> None:
    # adk-python#5602: the placeholder closes the call, the pair is folded, the result comes late.
    session = Session(
        *turn(1, call("long", id="l"), response("l")),
        *turn(2),
    )
    session.fold_all(EVERY)
    session.append(response("l", invocation_id="i3"), model("ok", invocation_id="i3"), *turn(4))
    plan = session.plan(NO_OVERLAP)
    assert isinstance(plan, Plan)
    late = session.log.events[-4].seq
    assert late not in seqs_of(plan)
    session.fold(plan)
    merged = session.plan(replace(NO_OVERLAP, fanout=3), "fanout")
    assert late in seqs_of(merged)


def test_the_events_of_one_response_are_folded_together() -> None:
    chosen = policy(strategy="threshold", token_threshold=1, event_retention_size=1)
    session = Session(*turn(1), user("q", invocation_id="i2"))
    session.append(
        model("one", invocation_id="i2", response_id="r"),
        model("two", invocation_id="i2", response_id="r"),
    )
    assert covers_of(session.plan(chosen)) == ((1, 3),)


def test_a_loop_that_began_with_thinking_is_not_cut() -> None:
    chosen = policy(strategy="threshold", token_threshold=1, event_retention_size=3)
    looping = [
        model(thought("hm"), call("t", id="a").parts[0], part_tokens=(1, 1)),
        response("a"),
        call("t", id="b"),
        response("b"),
    ]
    session = Session(*turn(1), *turn(2, *looping))
    assert covers_of(session.plan(chosen)) == ((1, 3),)
    plain = [call("t", id="a"), response("a"), call("t", id="b"), response("b")]
    assert covers_of(Session(*turn(1), *turn(2, *plain)).plan(chosen)) == ((1, 5),)


def test_a_thinking_loop_that_is_all_there_is_is_cut_between_pairs() -> None:
    # OpenHands/software-agent-sdk#2255: U (K C R)x60.
    session = Session(user("go", invocation_id="i1", part_tokens=LONG))
    for number in range(60):
        session.append(
            model(
                thought("hm"),
                *call("t", id=f"c{number}").parts,
                invocation_id="i1",
                part_tokens=(50, 50),
            ),
            response(f"c{number}", invocation_id="i1", part_tokens=LONG),
        )
    chosen = policy(strategy="threshold", token_threshold=1_000, event_retention_size=11)
    assert covers_of(session.plan(chosen)) == ((2, 109),)


# Lanes


def test_every_lane_has_a_section_of_its_own() -> None:
    side = Lane(branch="root.a")
    session = Session(
        *turn(1, model("aside", lane=side, author="a", part_tokens=LONG)),
        *turn(2, model("aside", lane=side, author="a", part_tokens=LONG)),
    )
    plan = session.plan(NO_OVERLAP)
    assert isinstance(plan, Plan)
    assert [(section.lane, section.covers) for section in plan.sections] == [
        (Lane(), ((1, 1), (3, 4), (6, 6))),
        (side, ((2, 2), (5, 5))),
    ]


def test_a_lane_whose_call_is_answered_folds_whole() -> None:
    task = Lane(isolation_scope="c1")
    session = Session(
        user("q", invocation_id="i1", part_tokens=LONG),
        call("delegate", id="c1", invocation_id="i1"),
        user("task", lane=task, invocation_id="i1", part_tokens=LONG),
        model("working", lane=task, invocation_id="i1", part_tokens=LONG),
        response("c1", invocation_id="i1", part_tokens=LONG),
        call("t", id="c2", invocation_id="i1"),
        response("c2", invocation_id="i1"),
    )
    chosen = policy(strategy="threshold", token_threshold=1, event_retention_size=2)
    # The user's question stays, the task's is done with.
    assert covers_of(session.plan(chosen)) == ((2, 5),)
    cut_within = replace(chosen, event_retention_size=4)
    assert reason_of(session.plan(cut_within)) == "all_protected"


def test_a_lane_named_after_a_call_that_came_later_is_folded_as_it_stands() -> None:
    early = Lane(branch="root.t@c9")
    session = Session(
        *turn(1, model("aside", lane=early, author="t")), call("t", id="c9"), response("c9")
    )
    session.append(*turn(2, model("aside", lane=early, author="t")))
    for plan in session.fold_all(replace(EVERY, fanout=100)):
        assert plan.sections
    assert {section.lane.tool_names for section in session.log.index.sections} == {(), ("t",)}


# Undone, refused, staged


def test_an_undone_span_is_not_folded_again_until_it_has_grown_by_an_interval() -> None:
    session = Session(*turn(1), *turn(2))
    seq = session.fold(covers_checked(session, NO_OVERLAP, ((1, 4),)))
    session.append(undo(seq))
    assert reason_of(session.plan(NO_OVERLAP)) == "undone_span"
    session.append(*turn(3))
    assert reason_of(session.plan(NO_OVERLAP)) == "undone_span"
    session.append(*turn(4))
    assert covers_of(session.plan(NO_OVERLAP)) == ((1, 4),)


def test_an_undone_fold_of_folds_is_not_made_again_at_once() -> None:
    chosen = replace(NO_OVERLAP, fanout=2)
    session = Session(*turn(1), *turn(2), *turn(3), *turn(4))
    session.fold_all(chosen)
    assert session.last_fold.level == 2
    session.append(undo(session.head_seq))
    assert reason_of(session.plan(chosen, "fanout")) == "undone_span"


def test_a_caller_may_fold_an_undone_span() -> None:
    session = Session(*turn(1), *turn(2))
    session.append(undo(session.fold(covers_checked(session, NO_OVERLAP, ((1, 4),)))))
    assert covers_of(session.plan(NO_OVERLAP, "interval", is_asked=True)) == ((1, 4),)
    assert covers_of(session.plan(NO_OVERLAP, "range")) == ((1, 4),)


def test_a_refused_span_is_not_tried_again_until_it_has_grown() -> None:
    session = Session(*turn(1), *turn(2))
    refusals = [Refusal(((1, 4),), since_seq=4)]
    assert reason_of(session.plan(NO_OVERLAP, "interval", refusals=refusals)) == "refused_span"
    session.append(*turn(3), *turn(4))
    assert covers_of(session.plan(NO_OVERLAP, "interval", refusals=refusals)) == ((1, 4),)


def test_what_follows_a_refused_span_is_folded() -> None:
    session = Session(*turn(1), *turn(2), *turn(3))
    refusals = [Refusal(((1, 2),), since_seq=6)]
    assert covers_of(session.plan(EVERY, "interval", refusals=refusals)) == ((3, 4),)


def test_a_staged_fold_counts_as_active() -> None:
    staged = replace(NO_OVERLAP, is_staged=True)
    session = Session(*turn(1), *turn(2))
    plan = covers_checked(session, staged, ((1, 4),))
    assert plan.is_staged
    seq = session.fold(plan)
    assert isinstance(session.plan(staged), Nothing)
    session.append(activate(seq))
    assert isinstance(session.plan(staged), Nothing)


def test_what_a_staged_fold_saves_is_taken_off_the_reported_size() -> None:
    staged = replace(ROLLING, is_staged=True)
    session = Session(*turn(1), *turn(2), *turn(3))
    session.fold(covers_checked(session, staged, ((1, 4),)), tokens=10)
    # 600 were sent; with the staged fold in use it will be 210.
    assert reason_of(session.plan(staged, "threshold", projected_tokens=600)) == "below_threshold"


# A caller's range


def test_a_range_is_folded_whatever_the_strategy() -> None:
    session = Session(*turn(1), *turn(2), *turn(3))
    wanted = RangeRequest(from_seq=3, to_seq=5)
    assert covers_of(session.plan(policy(strategy="none"), "range", wanted=wanted)) == ((3, 5),)
    assert reason_of(session.plan(policy(strategy="none"))) == "nothing_due"


def test_a_range_may_keep_the_newest_events() -> None:
    session = Session(*turn(1), *turn(2), *turn(3))
    assert covers_of(session.plan(ROLLING, "range", wanted=RangeRequest(keep_last=3))) == ((1, 3),)


def test_a_range_may_be_of_one_branch() -> None:
    side = Lane(branch="root.a")
    session = Session(*turn(1, model("aside", lane=side, author="a")), *turn(2))
    wanted = RangeRequest(branch="root.a")
    assert covers_of(session.plan(ROLLING, "range", wanted=wanted)) == ((2, 2),)


def test_a_range_replaces_the_folds_inside_it() -> None:
    session = Session(*turn(1), *turn(2), *turn(3))
    session.fold_all(EVERY)
    session.append(*turn(4))
    plan = session.plan(EVERY, "range")
    assert isinstance(plan, Plan)
    assert len(plan.sections[0].seed_fold_seqs) == 3
    session.fold(plan)
    assert len(session.log.index.sections) == 1


def test_a_range_strictly_inside_a_fold_takes_only_what_is_live_there() -> None:
    session = Session(*turn(1), *turn(2), *turn(3), pin(3))
    session.append(fold(1, 6), unpin(3))
    plan = session.plan(EVERY, "range", wanted=RangeRequest(from_seq=2, to_seq=5))
    assert covers_of(plan) == ((3, 3),)


def test_an_overlap_that_ends_up_inside_a_fold_is_not_read_again() -> None:
    session = Session(
        user("q", invocation_id="i1"),
        user("q", invocation_id="i2"),
        user("aside", invocation_id="i1", lane=Lane(branch="root.a"), part_tokens=LONG),
        call("t", id="c", invocation_id="i1"),
        fold(1, 4),
    )
    assert covers_of(session.plan(EVERY)) == ((3, 3),)
    session.fold_all(EVERY)


@pytest.mark.parametrize("strategy", ["interval", "threshold", "both", "window", "auto"])
def test_an_empty_log_gives_a_reason(strategy: str) -> None:
    pairs: dict[str, object] = {}
    if strategy in ("interval", "both"):
        pairs |= {"compaction_interval": 1, "overlap_size": 0}
    if strategy in ("threshold", "both"):
        pairs |= {"token_threshold": 1, "event_retention_size": 1}
    if strategy == "window":
        pairs |= {"window_size": 1}
    plan = Session().plan(policy(strategy=strategy, **pairs))  # type: ignore[arg-type]
    assert isinstance(plan, Nothing)
    assert plan.detail


# What is folded of a plan


def test_a_fold_spans_no_lane_that_has_no_summary() -> None:
    session = Session(
        replace(user("q", part_tokens=LONG), lane=Lane(branch="r"), invocation_id="i1"),
        *(event for number in range(2, 4) for event in turn(number)),
        user("now", invocation_id="i4"),
    )
    plan = session.plan(EVERY, is_asked=True, moment="range", wanted=RangeRequest())
    assert isinstance(plan, Plan)
    request = plan.fold_request({Lane(): ()})
    assert (plan.from_seq, request.from_seq, request.to_seq) == (1, 2, plan.to_seq)
    assert request.seqs == ((2, 5),)
