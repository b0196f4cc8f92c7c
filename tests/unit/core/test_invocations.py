"""When an invocation is complete, and which began last."""

from collections.abc import Iterable
from typing import Any

from app.core.events import Event
from app.core.invocations import InvocationFacts, Newest, advance, concerned
from tests.builders import call, fold, log, model, response, rewind, user

OF_I1 = Newest(invocation_id="i1")


def _never(event: Event) -> bool:
    del event
    return False


def _facts(events: Iterable[Event], *, has_open_calls: bool = False) -> dict[str, InvocationFacts]:
    facts: dict[str, InvocationFacts] = {}
    for event in events:
        if event.invocation_id and event.marker is None:
            begun = InvocationFacts(
                first_seq=event.seq,
                isolation_scope=event.lane.isolation_scope,
                branch=event.lane.branch,
                has_open_calls=has_open_calls,
            )
            facts.setdefault(event.invocation_id, begun)
    return facts


def _after(
    *events: Event, newest: Newest | None = None, ends_at: int = 0, **facts: Any
) -> tuple[str, bool, int]:
    appended = log(*events).events
    stands = advance(
        newest or Newest(),
        appended,
        _facts(appended, **facts),
        ends=lambda event: event.seq == ends_at,
    )
    return stands.invocation_id, stands.is_complete, stands.completed


def test_an_invocation_begins_with_its_first_event() -> None:
    assert _after(user("hi", invocation_id="i1")) == ("i1", False, 0)


def test_a_final_response_completes_it() -> None:
    assert _after(user("hi", invocation_id="i1"), model("ho", invocation_id="i1")) == (
        "i1",
        True,
        1,
    )


def test_it_is_completed_once() -> None:
    answers = [model("ho", invocation_id="i1")] * 3

    assert _after(user("hi", invocation_id="i1"), *answers) == ("i1", True, 1)


def test_a_call_is_no_final_response() -> None:
    events = (
        user("hi", invocation_id="i1"),
        call("f", id="c", invocation_id="i1"),
        response("c", invocation_id="i1"),
    )

    assert _after(*events) == ("i1", False, 0)


def test_an_open_call_keeps_it_incomplete() -> None:
    events = (user("hi", invocation_id="i1"), model("ho", invocation_id="i1"))

    assert _after(*events, has_open_calls=True) == ("i1", False, 0)


def test_a_final_response_in_another_lane_completes_nothing() -> None:
    events = (user("hi", invocation_id="i1"), model("ho", invocation_id="i1", branch="a"))

    assert _after(*events) == ("i1", False, 0)


def test_an_event_of_a_later_invocation_completes_it() -> None:
    events = (user("hi", invocation_id="i1"), user("again", invocation_id="i2"))

    assert _after(*events) == ("i2", False, 1)


def test_an_event_that_says_so_completes_it() -> None:
    events = (user("hi", invocation_id="i1"), call("f", id="c", invocation_id="i1"))

    assert _after(*events, ends_at=2, has_open_calls=True) == ("i1", True, 1)


def test_an_earlier_invocation_that_goes_on_changes_nothing() -> None:
    begun = log(user("hi", invocation_id="i1"), user("again", invocation_id="i2")).events
    late = log(*begun, model("late", invocation_id="i1")).events[2:]

    stands = advance(Newest(invocation_id="i2"), late, _facts([*begun, *late]), ends=_never)

    assert stands == Newest(invocation_id="i2")


def test_many_invocations_of_one_batch_are_all_counted() -> None:
    events = [
        event
        for number in range(5)
        for event in (
            user("hi", invocation_id=f"i{number}"),
            model("ho", invocation_id=f"i{number}"),
        )
    ]

    assert _after(*events) == ("i4", True, 5)


def test_markers_and_events_without_an_invocation_change_nothing() -> None:
    events = log(user("hi", invocation_id="i1"), user("x"), fold(1, 2), rewind("i1")).events

    stands = advance(OF_I1, events[1:], _facts(events), ends=_never)

    assert stands == OF_I1


def test_within_an_invocation_the_log_need_not_be_asked() -> None:
    events = log(
        user("hi", invocation_id="i1"),
        call("f", id="c", invocation_id="i1"),
        response("c", invocation_id="i1"),
        user("x"),
    ).events

    assert not concerned(OF_I1, events, frozenset())
    assert concerned(OF_I1, events, frozenset({"i1"})) == {"i1"}
    assert concerned(Newest(), events, frozenset()) == {"i1"}
