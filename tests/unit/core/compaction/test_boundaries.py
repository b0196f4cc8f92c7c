"""Groups, loops and cuts."""

from app.core.compaction.boundaries import Boundaries
from app.core.compaction.facts import plan_event
from app.core.events import Event
from app.core.lanes import Lane
from tests.builders import call, call_part, log, model, response, thought, user

TASK = Lane(isolation_scope="c1")


def boundaries(*events: Event, holes: tuple[int, ...] = (), closed: bool = False) -> Boundaries:
    """Return the boundaries of a log; lanes with a scope are closed if asked."""
    return Boundaries(
        [plan_event(event) for event in log(*events).events],
        is_closed=lambda lane: closed and lane.isolation_scope is not None,
        is_hole=holes.__contains__,
    )


def cuts(found: Boundaries, last: int, *, may_split_loops: bool = False) -> list[int]:
    """Return every cut that splits nothing."""
    return [
        cut
        for cut in range(1, last + 1)
        if found.latest_cut(cut, may_split_loops=may_split_loops) == cut
    ]


def test_a_cut_does_not_part_a_call_from_its_result() -> None:
    found = boundaries(user("q"), call("t", id="a"), response("a"), model("m"))
    assert cuts(found, 4) == [1, 3, 4]
    assert (found.latest_cut(2), found.earliest_cut(2)) == (1, 3)


def test_parallel_calls_and_all_their_results_are_one_group() -> None:
    both = model(call_part("t", id="a"), call_part("t", id="b"))
    found = boundaries(user("q"), both, response("a"), user("meanwhile"), response("b"), model("m"))
    assert cuts(found, 6) == [1, 5, 6]
    assert found.group_of(3) == (2, 3, 5)
    assert found.group_of(4) == (4,)


def test_the_events_of_a_response_are_one_group() -> None:
    found = boundaries(user("q"), model("one", response_id="r"), model("two", response_id="r"))
    assert cuts(found, 3) == [1, 3]


def test_an_orphan_and_a_call_without_result_stand_alone() -> None:
    found = boundaries(response("gone"), call("t", id="a"), user("next"))
    assert cuts(found, 3) == [1, 2, 3]


def test_a_group_with_a_hole_hinders_no_cut() -> None:
    found = boundaries(
        user("q"), call("t", id="a"), user("meanwhile"), response("a"), model("m"), holes=(2, 4)
    )
    assert cuts(found, 5) == [1, 2, 3, 4, 5]


def test_a_closed_lane_is_one_group() -> None:
    lane = [user("task", lane=TASK), model("working", lane=TASK), model("done", lane=TASK)]
    assert cuts(boundaries(user("q"), *lane), 4) != [1, 4]
    assert cuts(boundaries(user("q"), *lane, closed=True), 4) == [1, 4]


def _loop(*, thinking: bool) -> list[Event]:
    first = (thought("hm"), call_part("t", id="a")) if thinking else (call_part("t", id="a"),)
    return [
        user("q"),
        model(*first),
        response("a"),
        call("t", id="b"),
        response("b"),
        model("answer"),
    ]


def test_a_loop_that_began_with_thinking_is_cut_only_at_need() -> None:
    found = boundaries(*_loop(thinking=True))
    assert cuts(found, 6) == [1, 5, 6]
    assert cuts(found, 6, may_split_loops=True) == [1, 3, 5, 6]


def test_a_loop_without_thinking_is_cut_between_its_pairs() -> None:
    assert cuts(boundaries(*_loop(thinking=False)), 6) == [1, 3, 5, 6]


def test_thinking_may_be_an_event_of_its_own() -> None:
    looping = [
        model(thought("hm"), response_id="r"),
        call("t", id="a", response_id="r"),
        response("a"),
        call("t", id="b"),
        response("b"),
    ]
    assert cuts(boundaries(user("q"), *looping), 6) == [1, 6]


def test_a_user_message_ends_a_loop() -> None:
    events = _loop(thinking=True)
    events.insert(3, user("wait"))
    assert cuts(boundaries(*events), 7) == [1, 3, 4, 6, 7]


def test_a_loop_is_of_one_lane() -> None:
    side = Lane(branch="root.b")
    events = _loop(thinking=True)
    events.insert(3, user("elsewhere", lane=side))
    assert cuts(boundaries(*events), 7) == [1, 6, 7]
