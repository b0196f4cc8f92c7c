from typing import Any

from app.core.events import Event
from app.core.lanes import Reader
from tests.builders import call, log, model, response, user
from tests.passing import BOT, through


def order(*events: Event, reader: Reader = BOT, **options: Any) -> list[int]:
    done = through("reply_order", log(*events), reader=reader, **options)
    return [event.seq for event in done.items if isinstance(event, Event)]


def test_reply_is_read_right_after_what_was_compiled_for_it() -> None:
    assert order(user("a"), user("b"), user("c"), model("d", compiled_seq=1)) == [1, 4, 2, 3]


def test_reply_without_compiled_seq_stays_where_it_landed() -> None:
    assert order(user("a"), user("b"), model("c")) == [1, 2, 3]


def test_reply_to_an_empty_log_is_read_first() -> None:
    assert order(user("a"), model("b", compiled_seq=0)) == [2, 1]


def test_overlapping_replies_keep_the_order_in_which_they_landed() -> None:
    assert order(
        user("a"), user("b"), model("c", compiled_seq=2), model("d", compiled_seq=1), user("e")
    ) == [1, 2, 3, 4, 5]


def test_events_of_one_response_stand_together() -> None:
    assert order(
        user("a"),
        call("t", id="c1", compiled_seq=1),
        user("b"),
        call("t", id="c2", compiled_seq=1),
        response("c1"),
    ) == [1, 2, 4, 3, 5]


def test_response_id_alone_keeps_a_response_together() -> None:
    assert order(
        user("a"), model("b", response_id="r"), user("c"), model("d", response_id="r")
    ) == [1, 2, 4, 3]


def test_response_of_another_invocation_is_not_drawn_together() -> None:
    events = [user("a"), model("b", invocation_id="i1"), user("c"), model("d", invocation_id="i1")]

    assert order(*events) == [1, 2, 3, 4]


def test_other_agents_events_stay_where_they_landed() -> None:
    other = model("b", author="other", compiled_seq=0)

    assert order(user("a"), other) == [1, 2]
    assert order(user("a"), other, reader=Reader(agent="other")) == [2, 1]


def test_replies_in_other_lanes_stay_where_they_landed() -> None:
    below = model("b", branch="r", compiled_seq=0)

    assert order(user("a"), below) == [1, 2]
    assert order(user("a"), below, reader=Reader(agent="bot", branch="r")) == [2, 1]


def test_what_a_live_session_said_stays_where_it_landed() -> None:
    assert order(user("a"), model("b", compiled_seq=0, is_live_session=True)) == [1, 2]


def test_for_no_one_in_particular_everyones_reply_is_a_reply() -> None:
    events = [user("a"), user("b"), model("c", author="x", compiled_seq=1)]

    assert order(*events, reader=Reader()) == [1, 3, 2]


def test_for_no_one_in_particular_no_ones_reply_is_overtaken() -> None:
    events = [
        user("a"),
        user("b"),
        model("c", author="x", compiled_seq=2),
        model("d", author="y", compiled_seq=1),
    ]

    assert order(*events, reader=Reader()) == [1, 2, 3, 4]
    assert order(*events, reader=Reader(agent="y")) == [1, 4, 2, 3]


def test_reply_is_placed_by_seq_and_not_by_time() -> None:
    assert order(user("a", timestamp=9.0), model("b", timestamp=3.0), user("c")) == [1, 2, 3]


def test_under_adk_the_order_of_the_log_stays() -> None:
    assert order(user("a"), user("b"), model("c", compiled_seq=1), preset="adk") == [1, 2, 3]


def test_log_in_order_is_left_as_it_is() -> None:
    done = log(user("a"), model("b"))

    assert through("reply_order", done).items is done.events
