"""What is decided when an event is appended, and then never again."""

from collections.abc import Sequence

import pytest

from app.core.copying import replace
from app.core.errors import CompactionRangeError, InvalidEventError, RewindTargetError
from app.core.events import (
    Activation,
    Event,
    Fold,
    FoldRequest,
    Pin,
    PolicyChange,
    PolicyRequest,
    Rewind,
    TimedCompactionRequest,
    Undo,
)
from app.core.lanes import Lane
from app.core.ranges import Ranges, of_seqs
from app.core.resolve import Facts, Needs, Resolver, needs_of, replay
from tests.builders import (
    activate,
    call,
    call_part,
    compaction,
    event,
    fold,
    fold_of,
    log,
    model,
    pin,
    response,
    response_part,
    rewind,
    section,
    text,
    undo,
    unpin,
    user,
)


def owners(*events: Event) -> list[tuple[int, int] | None]:
    """Return what the responses of the last event answer: seq and part index of each call."""
    last = log(*events).events[-1]
    return [(item.seq, item.part_index) if item else None for item in last.owners]


def owner(*events: Event) -> int | None:
    """Return the seq of the call that the only response of the last event answers."""
    (found,) = owners(*events)
    return found and found[0]


def places(*events: Event) -> list[tuple[int, int, int] | None]:
    return [
        (place.response_seq, place.after_seq, place.after_any_seq) if place else None
        for place in (item.place for item in log(*events).events)
    ]


def covered(*events: Event) -> Ranges:
    """Return what the fold at the end covers in all its lanes."""
    marker = log(*events).events[-1].marker
    assert isinstance(marker, Fold)
    return of_seqs(
        seq
        for item in marker.sections
        for start, end in item.covers
        for seq in range(start, end + 1)
    )


def calls(*ids: str | None, name: str = "search", **fields: object) -> Event:
    return model(*(call_part(name, id=call_id) for call_id in ids), **fields)


def results(*ids: str | None, name: str = "search") -> Event:
    parts = (response_part(call_id, name=name) for call_id in ids)
    return event(*parts, author="bot", role="user")


# Seqs and lanes


def test_seqs_are_dense_from_1() -> None:
    assert [item.seq for item in log(user("a"), pin(1), model("b")).events] == [1, 2, 3]


def test_seqs_go_on_from_the_head() -> None:
    assert Resolver(Facts(head_seq=41)).add(user("a")).seq == 42


def test_refused_event_takes_no_seq() -> None:
    resolver = Resolver(Facts())
    resolver.add(user("a"))
    with pytest.raises(RewindTargetError):
        resolver.add(rewind("unknown"))

    assert resolver.add(user("b")).seq == 2
    assert resolver.facts.index.live[0][0] == 1


def test_tool_sub_branch_is_one_whose_call_came_before_it() -> None:
    before, call_event, after = log(
        model("a", branch="r.t@c1"), calls("c1"), model("b", branch="r.t@c1")
    ).events

    assert before.lane.tool_names == ()
    assert call_event.lane == Lane()
    assert after.lane.tool_names == ("t",)
    assert before.lane != after.lane


def test_every_tool_on_the_branch_is_named() -> None:
    last = log(calls("c1"), calls("c2"), model("a", branch="t@c1.n@run.u@c2")).events[-1]

    assert last.lane.tool_names == ("t", "u")


def test_call_of_its_own_event_makes_no_tool_sub_branch() -> None:
    only = log(calls("c1", branch="t@c1")).events[0]

    assert only.lane.tool_names == ()


def test_lanes_are_numbered_as_they_come() -> None:
    resolver = Resolver(Facts())
    for item in (user("a"), user("b", branch="r"), user("c"), user("d", scope="s")):
        resolver.add(item)

    assert [(lane.branch, facts.number) for lane, facts in resolver.facts.lanes.items()] == [
        ("", 1),
        ("r", 2),
        ("", 3),
    ]


# Which call a response answers


def test_response_answers_the_call_of_its_id() -> None:
    assert owner(calls("c1"), calls("c2"), response("c1")) == 1


def test_owner_says_who_called_what_and_where() -> None:
    found = (
        log(call("look", id="c1", author="other", branch="r"), response("c1", branch="r.x"))
        .events[-1]
        .owners[0]
    )

    assert found is not None
    assert (found.seq, found.author, found.name, found.lane) == (
        1,
        "other",
        "look",
        Lane(branch="r"),
    )


def test_response_without_a_call_is_an_orphan() -> None:
    assert owner(user("a"), response("c1")) is None


def test_response_before_its_call_is_an_orphan_for_ever() -> None:
    first, _ = log(response("c1"), calls("c1")).events

    assert first.owners == (None,)


def test_there_is_no_limit_to_how_far_back_the_call_stands() -> None:
    assert owner(calls("c1"), *(user(f"u{n}") for n in range(300)), response("c1")) == 1


def test_reused_id_means_the_nearest_call() -> None:
    assert owner(calls("c"), response("c"), calls("c"), response("c")) == 3


def test_reused_id_means_an_open_call_before_an_answered_one() -> None:
    # A parallel call of the same response: the newer one is answered already.
    open_one = calls("c", response_id="r")
    answered = calls("c", response_id="r")

    assert owner(open_one, answered, response("c"), response("c")) == 1


def test_second_result_of_the_only_call_answers_it_too() -> None:
    assert owner(calls("c1"), response("c1"), response("c1")) == 1


def test_second_result_of_reused_ids_goes_to_the_nearest() -> None:
    events = [calls("c"), response("c"), calls("c"), response("c"), response("c")]

    assert owner(*events) == 3


def test_call_that_a_later_response_closed_is_not_open() -> None:
    # The call of seq 1 has no result, but its author went on.
    events = [calls("c"), user("u"), model("on"), calls("c"), response("c"), response("c")]

    assert owner(*events) == 4


def test_parallel_calls_of_one_id_are_answered_in_turn() -> None:
    assert owners(calls("c", "c"), results("c", "c")) == [(1, 0), (1, 1)]
    assert owners(calls("c", "c"), response("c"), response("c")) == [(1, 1)]


def test_call_and_result_in_one_event_are_a_pair() -> None:
    both = event(call_part("t", id="c"), response_part("c", name="t"), author="bot", role="model")

    assert owners(both) == [(1, 0)]


def test_result_that_stands_before_the_call_of_its_event_means_an_earlier_one() -> None:
    both = event(response_part("c", name="t"), call_part("t", id="c"), author="bot", role="model")

    assert owners(calls("c"), both) == [(1, 0)]
    assert owners(both) == [None]


def test_own_lane_goes_before_the_lanes_above() -> None:
    own, above = calls("c", branch="r.x"), calls("c", branch="r")

    assert owner(own, above, response("c", branch="r.x")) == 1


def test_nearest_lane_up_the_line_goes_before_one_further_up() -> None:
    assert owner(calls("c", branch="r"), calls("c"), response("c", branch="r.x")) == 1


def test_call_of_another_line_is_taken_when_there_is_no_other() -> None:
    assert owner(calls("c", branch="r.y"), response("c", branch="r.x")) == 1
    assert owner(calls("c", scope="s"), response("c")) == 1


def test_own_lane_goes_before_an_open_call_elsewhere() -> None:
    events = [calls("c"), response("c"), calls("c", branch="r"), response("c")]

    assert owner(*events) == 1


def test_standing_call_goes_before_a_rewound_one() -> None:
    events = [
        calls("c", invocation_id="i1"),
        response("c", invocation_id="i1"),
        calls("c", invocation_id="i2"),
        rewind("i2"),
        response("c"),
    ]

    assert owner(*events) == 1


def test_response_keeps_to_a_rewound_call_when_there_is_no_other() -> None:
    assert owner(calls("c", invocation_id="i1"), rewind("i1"), response("c")) == 1


def test_undo_of_the_rewind_does_not_change_what_was_decided() -> None:
    done = log(
        calls("c", invocation_id="i1"),
        calls("c", invocation_id="i2"),
        rewind("i2"),
        response("c"),
        undo(3),
    )

    assert [found and found.seq for found in done.events[3].owners] == [1]


# Without ids


def test_id_less_response_answers_the_first_open_call_of_that_name() -> None:
    assert owner(calls(None, None), results(None)) == 1
    assert owners(calls(None, None), results(None, None)) == [(1, 0), (1, 1)]


def test_id_less_responses_are_paired_by_name() -> None:
    both = model(call_part("a"), call_part("b"))
    answers = event(
        response_part(None, name="b"), response_part(None, name="a"), author="bot", role="user"
    )

    assert owners(both, answers) == [(1, 1), (1, 0)]


def test_id_less_response_of_another_name_is_an_orphan() -> None:
    assert owner(calls(None), response(None, name="other")) is None


def test_id_less_response_means_a_call_without_id_before_one_with() -> None:
    assert owner(calls("c1"), calls(None), response(None)) == 2
    assert owner(calls("c1"), response(None)) == 1


def test_id_less_response_without_open_call_means_the_nearest() -> None:
    assert owner(calls(None), response(None), calls(None), response(None), response(None)) == 3


def test_response_without_id_and_name_means_a_call_that_waits() -> None:
    assert owner(calls("c1"), response("c1"), calls("c2"), response(None, name="")) == 3
    assert owner(calls("c1"), response("c1"), response(None, name="")) is None


# Where a reply is read


def test_reply_is_read_after_what_stands_before_it() -> None:
    assert places(user("a"), model("b")) == [None, (2, 1, 1)]


def test_reply_is_read_after_what_was_compiled_for_it() -> None:
    assert places(user("a"), user("b"), model("c", compiled_seq=1))[-1] == (3, 1, 1)


def test_reply_is_never_read_before_an_earlier_one_of_its_author() -> None:
    overlapping = places(
        user("a"), user("b"), model("c", compiled_seq=2), model("d", compiled_seq=1)
    )

    assert overlapping[2:] == [(3, 2, 2), (4, 2, 2)]


def test_reader_who_is_no_one_overtakes_no_ones_reply() -> None:
    done = places(
        user("a"),
        user("b"),
        model("c", author="x", compiled_seq=2),
        model("d", author="y", compiled_seq=1),
    )

    assert done[-1] == (4, 1, 2)


def test_replies_of_other_lanes_do_not_count() -> None:
    done = places(
        user("a"), user("b"), model("c", branch="r", compiled_seq=2), model("d", compiled_seq=1)
    )

    assert done[-1] == (4, 1, 1)


def test_tool_lane_of_one_branch_is_the_same_lane_to_a_reply() -> None:
    # The branch names a call that came only after the first reply: the lanes differ, its line not.
    first = model("a", branch="t@c1", compiled_seq=0)
    second = model("b", branch="t@c1", compiled_seq=0)

    assert places(first, calls("c1"), second)[2] == (1, 0, 0)


def test_replies_with_one_compiled_seq_are_one_response() -> None:
    done = places(
        user("a"), calls("c1", compiled_seq=1), response("c1"), calls("c2", compiled_seq=1)
    )

    assert (done[1], done[3]) == ((2, 1, 1), (2, 1, 1))


def test_replies_with_one_response_id_are_one_response() -> None:
    done = places(user("a"), calls("c1", response_id="r"), user("b"), calls("c2", response_id="r"))

    assert done[3] == (2, 1, 1)


def test_response_id_speaks_before_compiled_seq() -> None:
    done = places(
        user("a"),
        model("b", response_id="r", compiled_seq=1),
        model("c", response_id="s", compiled_seq=1),
    )

    assert done[2] == (3, 1, 1)


def test_neighbours_of_one_invocation_are_one_response() -> None:
    done = places(user("a"), model("b", invocation_id="i"), model("c", invocation_id="i"))

    assert done[2] == (2, 1, 1)


@pytest.mark.parametrize(
    "second",
    [
        model("c", invocation_id="other"),
        model("c", invocation_id="i", author="other"),
        model("c", invocation_id="i", branch="r"),
        model("c", invocation_id="i", compiled_seq=2),
        model("c", invocation_id="i", response_id="r"),
    ],
    ids=["invocation", "author", "branch", "compiled_seq", "response_id"],
)
def test_neighbours_that_differ_are_two_responses(second: Event) -> None:
    assert places(user("a"), model("b", invocation_id="i"), second)[2] == (3, 2, 2)


@pytest.mark.parametrize(
    "between",
    [user("x", invocation_id="i"), response("c", invocation_id="i")],
)
def test_what_stands_between_parts_two_responses(between: Event) -> None:
    done = places(calls("c", invocation_id="i"), between, model("b", invocation_id="i"))

    assert done[2] == (3, 2, 2)


def test_what_stands_in_a_lane_that_the_reply_does_not_see_parts_nothing() -> None:
    done = places(
        model("a", invocation_id="i"), user("x", branch="r"), model("b", invocation_id="i")
    )

    assert done[2] == (1, 0, 0)


def test_what_stands_up_the_line_parts_two_responses() -> None:
    done = places(
        model("a", branch="r.x", invocation_id="i"),
        user("x", branch="r"),
        model("b", branch="r.x", invocation_id="i"),
    )

    assert done[2] == (3, 2, 2)


def test_rewind_ends_a_response() -> None:
    done = places(
        model("a", response_id="r", invocation_id="i1"),
        user("b", invocation_id="i2"),
        rewind("i2"),
        model("c", response_id="r"),
    )

    assert done[3] == (4, 3, 3)


def test_user_text_and_result_events_have_no_place() -> None:
    assert places(user("a"), response("c"), pin(1)) == [None, None, None]


def test_what_calls_a_tool_is_the_models_whatever_role_it_says() -> None:
    assert places(event(call_part("t", id="c"), author="bot", role="user")) == [(1, 0, 0)]


@pytest.mark.parametrize("compiled_seq", [2, 3, -1])
def test_compiled_seq_must_lie_before_the_event(compiled_seq: int) -> None:
    with pytest.raises(InvalidEventError) as refused:
        log(user("a"), model("b", compiled_seq=compiled_seq))

    assert refused.value.pointer == "/compiled_seq"


# Folds: what they cover, and their holes


def test_fold_covers_its_span() -> None:
    assert covered(user("a"), model("b"), user("c"), fold(1, 2)) == ((1, 2),)


def test_fold_covers_only_the_lanes_that_it_has_sections_for() -> None:
    events = [user("a"), user("b", branch="r"), user("c")]

    assert covered(*events, fold(1, 3)) == ((1, 1), (3, 3))
    assert covered(*events, fold_of(1, 3, section("s", branch="r"))) == ((2, 2),)


def test_tool_lane_has_a_section_of_its_own() -> None:
    events = [calls("c1"), response("c1"), model("in", branch="t@c1")]
    done = log(*events, fold_of(1, 3, section("s", branch="t@c1")))

    marker = done.events[-1].marker
    assert isinstance(marker, Fold)
    assert [(item.lane.tool_names, item.covers) for item in marker.sections] == [
        (("t",), ((3, 3),))
    ]


def test_fold_of_single_seqs_covers_those() -> None:
    request = FoldRequest(1, 4, (section("s"),), seqs=((1, 1), (4, 4)))
    marker = replay([*(user(str(n)) for n in range(4)), Event(request=request)]).events[-1].marker

    assert isinstance(marker, Fold)
    assert marker.sections[0].covers == ((1, 1), (4, 4))


def test_markers_between_what_is_covered_leave_no_gap() -> None:
    assert covered(user("a"), pin(1), unpin(1), user("b"), fold(1, 4)) == ((1, 4),)


def test_markers_at_the_ends_of_what_is_covered_are_not_covered() -> None:
    assert covered(user("a"), unpin(1), user("b"), unpin(1), fold(2, 4)) == ((3, 3),)


def test_older_fold_in_the_span_is_no_hole() -> None:
    assert covered(user("a"), user("b"), fold(1, 2), user("c"), fold(1, 4)) == ((1, 4),)


def test_rewound_events_are_holes() -> None:
    events = [user("a"), user("b", invocation_id="i2"), rewind("i2"), user("c")]

    assert covered(*events, fold(1, 4)) == ((1, 1), (4, 4))


def test_pinned_events_are_holes() -> None:
    assert covered(user("a"), user("b"), user("c"), pin(2), fold(1, 3)) == ((1, 1), (3, 3))


def test_open_call_is_a_hole() -> None:
    assert covered(user("a"), calls("c1"), user("b"), fold(1, 3)) == ((1, 1), (3, 3))


def test_open_call_keeps_its_whole_group_out() -> None:
    events = [user("a"), calls("c1", "c2"), response("c1"), user("b")]

    assert covered(*events, fold(1, 4)) == ((1, 1), (4, 4))


def test_call_that_its_author_went_on_from_is_no_longer_open() -> None:
    assert covered(user("a"), calls("c1"), user("b"), model("c"), fold(1, 4)) == ((1, 4),)


def test_call_of_another_agent_stays_open_until_that_agent_goes_on() -> None:
    mine, other = calls("c1"), model("x", author="other")

    assert covered(mine, other, fold(1, 2)) == ((2, 2),)


def test_answered_call_is_folded_with_its_answers() -> None:
    assert covered(user("a"), calls("c1"), response("c1"), fold(1, 3)) == ((1, 3),)


def test_response_whose_call_the_fold_does_not_cover_is_a_hole() -> None:
    events = [calls("c1"), response("c1"), user("a")]

    assert covered(*events, fold(2, 3)) == ((3, 3),)


def test_call_may_be_covered_without_its_responses() -> None:
    events = [user("a"), calls("c1"), response("c1"), model("b")]

    assert covered(*events, fold(1, 2)) == ((1, 2),)


def test_uncovered_owner_is_looked_for_again_and_again() -> None:
    # 3 answers 1, which is not covered; 3 calls c2 itself, so that 4 must stay out with it.
    chained = event(response_part("c1"), call_part("search", id="c2"), author="bot", role="model")
    events = [calls("c1"), user("a"), chained, response("c2"), user("b"), model("c")]

    assert covered(*events, fold(2, 6)) == ((2, 2), (5, 6))


def test_response_whose_call_is_rewound_may_be_folded() -> None:
    events = [calls("c1", invocation_id="i1"), rewind("i1"), response("c1"), user("a")]

    assert covered(*events, fold(3, 4)) == ((3, 4),)


def test_orphan_may_be_folded() -> None:
    assert covered(response("nobody"), user("a"), fold(1, 2)) == ((1, 2),)


# adk-python#4740
CONFIRMATION: Sequence[Event] = (
    user("do it"),
    calls("c1"),
    call("adk_request_confirmation", id="q1", long_running_ids=frozenset({"q1"})),
    response("c1", requested_ids=frozenset({"c1"})),
    user("meanwhile"),
)


def test_unanswered_confirmation_is_a_hole_with_its_call_and_placeholder() -> None:
    assert covered(*CONFIRMATION, fold(1, 5)) == ((1, 1), (5, 5))


def test_confirmation_that_was_given_still_waits_for_the_real_result() -> None:
    given = response("q1", name="adk_request_confirmation", author="user")

    assert covered(*CONFIRMATION, given, fold(1, 6)) == ((1, 1), (3, 3), (5, 6))


def test_confirmation_that_was_carried_out_is_folded_whole() -> None:
    given = response("q1", name="adk_request_confirmation", author="user")

    assert covered(*CONFIRMATION, given, response("c1"), fold(1, 7)) == ((1, 7),)


@pytest.mark.parametrize("name", ["adk_request_credential", "adk_request_input"])
def test_unanswered_request_to_the_client_is_a_hole_even_when_the_agent_goes_on(name: str) -> None:
    assert covered(user("a"), call(name, id="q1"), model("b"), fold(1, 3)) == ((1, 1), (3, 3))


def test_fold_strictly_inside_an_active_one_covers_only_what_is_live() -> None:
    events = [*(user(str(n)) for n in range(6)), fold(1, 5), pin(3), unpin(3)]

    assert covered(*events, fold(2, 4)) == ((3, 3),)


def test_fold_of_the_same_span_may_cover_what_is_masked() -> None:
    events = [*(user(str(n)) for n in range(4)), fold(1, 4)]

    assert covered(*events, fold(1, 4)) == ((1, 4),)


def test_fold_inside_an_undone_one_covers_its_span() -> None:
    events = [*(user(str(n)) for n in range(6)), fold(1, 5), undo(7)]

    assert covered(*events, fold(2, 4)) == ((2, 4),)


def test_fold_keeps_the_time_of_the_last_event_that_it_covers() -> None:
    marker = (
        log(user("a"), user("b", timestamp=7.5), user("c"), pin(3), fold(1, 3)).events[-1].marker
    )

    assert isinstance(marker, Fold)
    assert marker.end_timestamp == 7.5
    assert marker.start_timestamp is None


@pytest.mark.parametrize(
    "refused",
    [
        (user("a"), fold(1, 2)),
        (user("a"), fold(0, 1)),
        (user("a"), user("b"), fold(2, 1)),
        (user("a"), pin(1), fold(1, 1)),
        (user("a"), fold(1, 1), fold(2, 2)),
        (calls("c1"), fold(1, 1)),
        (user("a"), fold_of(1, 1, section("s", branch="elsewhere"))),
        (user("a"), fold_of(1, 1, section("s"), section("t"))),
        (user("a"), user("b", scope="s"), fold_of(1, 2, section("x"), section("y", scope="t"))),
        (*(user(str(n)) for n in range(4)), fold(1, 4), fold(2, 3)),
    ],
    ids=[
        "beyond the head",
        "below 1",
        "backwards",
        "all pinned",
        "only a marker",
        "only an open call",
        "no such lane",
        "two sections for one lane",
        "one section of nothing",
        "inside an active fold",
    ],
)
def test_fold_of_nothing_is_refused(refused: Sequence[Event]) -> None:
    with pytest.raises(CompactionRangeError):
        log(*refused)


def test_refusal_names_the_section() -> None:
    with pytest.raises(CompactionRangeError) as refused:
        log(user("a"), fold_of(1, 1, section("s"), section("t", branch="none")))

    assert refused.value.pointer == "/sections/1"


# ADK's compactions


def test_times_are_included_at_both_ends() -> None:
    assert covered(*(user(str(n)) for n in range(5)), compaction(2, 4)) == ((2, 4),)


def test_compaction_covers_its_own_branch_and_scope_only() -> None:
    events = [user("a"), user("b", branch="r"), user("c", scope="s"), user("d")]

    assert covered(*events, compaction(1, 9)) == ((1, 1), (4, 4))
    assert covered(*events, compaction(1, 9, branch="r")) == ((2, 2),)
    assert covered(*events, compaction(1, 9, scope="s")) == ((3, 3),)


def test_compaction_goes_by_time_and_not_by_position() -> None:
    events = [user("a", timestamp=5.0), user("b", timestamp=9.0), user("c", timestamp=6.0)]

    assert covered(*events, compaction(5, 6)) == ((1, 1), (3, 3))


def test_compaction_covers_only_what_stands_before_it() -> None:
    done = log(user("a"), compaction(1, 9), user("late", timestamp=2.0))

    assert done.index.is_live(3)


def test_excluded_events_are_holes() -> None:
    request = TimedCompactionRequest(
        1.0, 3.0, (text("s"),), "model", excluded=(("i2", 2.0), ("i1", 3.0))
    )
    events = [user(str(n), invocation_id=f"i{n}", timestamp=float(n)) for n in (1, 2, 3)]

    marker = replay([*events, Event(request=request)]).events[-1].marker
    assert isinstance(marker, Fold)
    assert marker.sections[0].covers == ((1, 1), (3, 3))


def test_compaction_spans_from_the_first_to_the_last_that_it_covers() -> None:
    marker = log(*(user(str(n)) for n in range(4)), compaction(2, 3)).events[-1].marker

    assert isinstance(marker, Fold)
    assert (marker.from_seq, marker.to_seq) == (2, 3)


def test_compaction_that_covers_nothing_is_kept_and_shows_nothing() -> None:
    done = log(user("a"), compaction(7, 9))

    marker = done.events[-1].marker
    assert isinstance(marker, Fold)
    assert marker.sections == ()
    assert done.index.sections == ()


def test_compaction_keeps_its_times_and_role() -> None:
    marker = log(user("a"), compaction(1, 1.5, role="user")).events[-1].marker

    assert isinstance(marker, Fold)
    assert (marker.start_timestamp, marker.end_timestamp) == (1, 1.5)
    assert marker.sections[0].role == "user"


def test_compaction_obeys_the_holes_of_every_fold() -> None:
    assert covered(*CONFIRMATION, compaction(1, 9)) == ((1, 1), (5, 5))


# Pins


def test_pin_takes_call_and_answers_from_either_side() -> None:
    events = [user("a"), calls("c1", "c2"), response("c1"), user("b"), response("c2")]

    for named in (2, 3, 5):
        marker = log(*events, pin(named)).events[-1].marker
        assert marker == Pin(((2, 3), (5, 5)))


def test_pin_of_an_event_that_answers_several_calls_takes_all_of_them() -> None:
    events = [calls("c1"), calls("c2"), results("c1", "c2"), user("a")]

    assert log(*events, pin(3)).events[-1].marker == Pin(((1, 3),))


def test_pin_of_an_orphan_takes_it_alone() -> None:
    assert log(user("a"), response("c"), pin(2)).events[-1].marker == Pin(((2, 2),))


@pytest.mark.parametrize("marker", [pin(2), unpin(9), pin(0), pin(1, 3)])
def test_only_events_of_the_log_can_be_pinned(marker: Event) -> None:
    with pytest.raises(InvalidEventError) as refused:
        log(user("a"), pin(1), marker)

    assert refused.value.pointer == "/seqs"


# Rewinds


def test_rewind_goes_to_the_first_event_of_the_invocation() -> None:
    events = [user("a", invocation_id="i1"), user("b", invocation_id="i2")]

    assert log(*events, *events, rewind("i2")).events[-1].marker == Rewind(2)


def test_rewind_to_a_seq_starts_after_it() -> None:
    events = [user("a"), user("b"), user("c")]

    assert log(*events, rewind(to_seq=1)).events[-1].marker == Rewind(2)
    assert log(*events, rewind(to_seq=0)).events[-1].marker == Rewind(1)


@pytest.mark.parametrize(
    "marker", [rewind("never"), rewind(""), rewind(to_seq=1), rewind(to_seq=-1), rewind(to_seq=9)]
)
def test_rewind_to_nothing_is_refused(marker: Event) -> None:
    with pytest.raises(RewindTargetError):
        log(user("a", invocation_id="i1"), marker)


def test_rewind_of_an_empty_log_is_refused() -> None:
    with pytest.raises(RewindTargetError):
        log(rewind(to_seq=0))


# Undo and activation


def test_undo_and_activation_name_their_marker() -> None:
    done = log(user("a"), fold_of(1, 1, section("s"), staged=True), activate(2), undo(3))

    assert [item.marker for item in done.events[2:]] == [Activation(2), Undo(3)]


@pytest.mark.parametrize("marker", [undo(1), undo(9), undo(3), activate(1), activate(2)])
def test_undo_and_activation_of_anything_else_are_refused(marker: Event) -> None:
    with pytest.raises(InvalidEventError):
        log(user("a"), fold(1, 1), marker)


def test_policy_change_cannot_be_undone() -> None:
    changed = Event(request=PolicyRequest())

    assert log(changed).events[0].marker == PolicyChange()
    with pytest.raises(InvalidEventError):
        log(changed, undo(1))


def test_undo_may_name_an_undo_a_pin_and_a_rewind() -> None:
    done = log(user("a"), user("b"), pin(1), undo(3), undo(4), rewind(to_seq=1), undo(6))

    assert [item.marker for item in done.events if isinstance(item.marker, Undo)] == [
        Undo(3),
        Undo(4),
        Undo(6),
    ]


# What a batch must know


def test_plain_events_need_only_the_head_and_their_lanes() -> None:
    plain = [user("a"), model("b", branch="r"), calls("c1", scope="s")]

    assert needs_of(plain) == Needs(standings=frozenset({(None, ""), (None, "r"), ("s", "")}))
    assert needs_of([user("a")]).is_light


def test_responses_need_their_calls_by_id_or_by_name() -> None:
    needs = needs_of([results("c1", None, name="look")])

    assert (set(needs.call_ids), set(needs.call_names)) == ({"c1"}, {"look"})
    assert not needs.is_light


def test_branches_need_the_calls_that_they_name() -> None:
    assert needs_of([model("a", branch="r.t@c1.n@7")]).call_ids == {"c1", "7"}


def test_folds_need_the_calls_that_their_sections_branches_name() -> None:
    needs = needs_of([fold_of(1, 2, section("s", branch="r.t@c1"))])

    assert needs.call_ids == {"c1"}


def test_markers_need_what_they_may_reach() -> None:
    needs = needs_of(
        [rewind("i1"), pin(3, 4), unpin(5), fold(2, 9), compaction(1.0, 2.5, branch="r", scope="s")]
    )

    assert needs.has_markers
    assert needs.invocation_ids == {"i1"}
    assert needs.pinned_seqs == {3, 4, 5}
    assert needs.spans == ((2, 9),)
    assert needs.times == (("s", "r", 1.0, 2.5),)
    assert not needs_of([undo(1)]).is_light


def test_resolving_in_two_batches_is_resolving_in_one() -> None:
    events = [
        user("a", invocation_id="i1"),
        calls("c1", invocation_id="i1"),
        response("c1"),
        fold(1, 3),
        model("b", compiled_seq=1),
        rewind("i1"),
        response("c1"),
    ]
    whole = log(*events).events

    for cut in range(len(events)):
        first = Resolver(Facts())
        timed = [replace(item, timestamp=float(n)) for n, item in enumerate(events, start=1)]
        parts = [first.add(item) for item in timed[:cut]]
        second = Resolver(first.facts)
        assert (*parts, *(second.add(item) for item in timed[cut:])) == whole


def test_a_result_that_was_folded_apart_from_its_call_goes_on_to_a_newer_fold() -> None:
    events = [
        user("u"),
        call("t", id="c"),
        response("c", branch="b"),
        model("m"),
        fold_of(1, 4, section("root"), section("b", branch="b")),
        user("v"),
        model("n"),
        # Now the call belongs to this one, and its result still to the first.
        fold_of(1, 7, section("larger")),
        user("w", branch="b"),
    ]
    done = log(*events, fold_of(3, 9, section("b again", branch="b")))

    assert [(item.fold_seq, item.lane.branch, item.belongs) for item in done.index.sections] == [
        (8, "", ((1, 2), (4, 7))),
        # Not the fold at 5, for the sake of this one event.
        (10, "b", ((3, 3), (9, 9))),
    ]
