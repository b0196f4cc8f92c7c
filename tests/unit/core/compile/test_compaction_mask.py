"""Masking under `stable`; `test_adk_pairing` has google-adk's rules."""

from typing import Any

from app.core.contents import Segment
from app.core.events import Event
from app.core.lanes import Reader
from app.core.printing import event_line
from tests.builders import (
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
    section,
    text,
    undo,
    user,
)
from tests.passing import BOT, through


def masked(*events: Event, reader: Reader = BOT, **options: Any) -> list[Event]:
    done = through("compaction_mask", log(*events), reader=reader, **options)
    return [item for item in done.items if isinstance(item, Event)]


def said(*events: Event, reader: Reader = BOT, **options: Any) -> list[str]:
    """Return the first text of each event, or what else it holds."""
    return [
        str(getattr(item.parts[0], "text", "")) or event_line(item).partition(": ")[2]
        for item in masked(*events, reader=reader, **options)
    ]


def calls(*ids: str, **fields: Any) -> Event:
    return model(*(call_part("search", id=call_id) for call_id in ids), **fields)


# Summaries


def test_summary_stands_where_its_first_event_stood_and_is_the_users() -> None:
    events = masked(user("a"), model("b"), user("c"), user("d"), fold(2, 3, "s"), user("e"))

    assert [item.seq for item in events] == [1, 5, 4, 6]
    summary = events[1]
    assert (summary.role, summary.segment, summary.marker) == ("user", Segment.SUMMARIES, None)


def test_summary_of_an_adk_compaction_is_the_users_too() -> None:
    events = masked(user("a"), model("b"), compaction(1, 2, "s", role="model"))

    assert [item.role for item in events] == ["user"]


def test_summary_stands_before_a_reply_that_is_read_in_its_place() -> None:
    # The reply of seq 4 is read after 1, which the fold covers.
    lines = said(
        user("a"), user("b"), user("c"), model("d", compiled_seq=1), fold(1, 1, "s"), user("e")
    )

    assert lines == ["s", "d", "b", "c", "e"]


def test_summaries_of_overlapping_folds_stand_one_after_the_other() -> None:
    lines = said(*(user(str(n)) for n in range(1, 7)), fold(1, 4, "s"), fold(4, 6, "t"), user("u"))

    assert lines == ["s", "t", "u"]


def test_rolling_fold_replaces_the_one_before_it() -> None:
    lines = said(user("a"), user("b"), fold(1, 1, "s"), fold(1, 2, "t"), user("c"))

    assert lines == ["t", "c"]


def test_each_reader_is_shown_the_sections_of_its_own_lanes() -> None:
    events = [
        user("a"),
        user("b", branch="r"),
        user("c", scope="s"),
        fold_of(1, 3, section("root"), section("below", branch="r"), section("task", scope="s")),
        user("d"),
    ]

    assert said(*events) == ["root", "below", "d"]
    assert said(*events, reader=Reader(agent="bot", branch="q")) == ["root", "d"]
    assert said(*events, reader=Reader(agent="bot", isolation_scope="s")) == ["task"]


def test_fold_masks_for_everyone_and_leaves_other_lanes_live() -> None:
    events = [user("a"), user("b", branch="r"), fold(1, 2, "root"), user("c")]

    assert said(*events) == ["root", "b", "c"]
    assert said(*events, reader=Reader(agent="bot", branch="q")) == ["root", "c"]


def test_inside_of_a_tool_call_is_summarised_for_whoever_sees_it() -> None:
    events = [
        calls("c1"),
        model("in", branch="t@c1"),
        response("c1"),
        fold_of(1, 3, section("root"), section("inside", branch="t@c1")),
        user("d"),
    ]

    assert said(*events) == ["root", "d"]
    assert said(*events, reader=Reader(agent="bot", branch="t@c1")) == ["root", "inside", "d"]


def test_tokens_of_a_section_are_counted_once() -> None:
    (summary,) = masked(user("a"), fold(1, 1, "s"))

    assert len(summary.parts) == len(summary.part_tokens)


def test_undone_fold_masks_nothing() -> None:
    assert said(user("a"), user("b"), fold(1, 1), undo(3)) == ["a", "b"]


def test_staged_fold_masks_nothing() -> None:
    assert said(user("a"), fold_of(1, 1, section("s"), staged=True)) == ["a"]


def test_pinned_event_stands_where_it_stood() -> None:
    lines = said(*(user(str(n)) for n in (1, 2, 3)), fold(1, 3, "s"), pin(2), user("4"))

    assert lines == ["s", "2", "4"]


def test_pin_of_the_first_event_moves_the_summary_behind_it() -> None:
    lines = said(*(user(str(n)) for n in (1, 2, 3)), fold(1, 3, "s"), pin(1), user("4"))

    assert lines == ["1", "s", "4"]


def test_without_the_masked_events_the_outcome_is_the_same() -> None:
    done = log(user("a"), model("b"), fold(1, 2, "s"), user("c"))
    live = [item for item in done.events if item.seq > 2]

    read = through("compaction_mask", type(done)(tuple(live), done.index))
    assert read.events == through("compaction_mask", done).events


# Masked calls


def test_masked_call_comes_back_for_a_live_result_without_the_rest_of_its_event() -> None:
    events = [
        user("a"),
        model("thinking aloud", call_part("search", id="c1"), call_part("search", id="c2")),
        response("c1"),
        response("c2"),
        fold(1, 4, "s"),
        response("c2", result={"n": 2}),
    ]

    assert said(*events) == ["s", "call search#c2 {}", 'result search#c2 {"n":2}']
    restored = masked(*events)[1]
    assert restored.kept_parts == (2,)
    assert len(restored.part_tokens) == 1


def test_masked_call_comes_back_once_for_several_results() -> None:
    events = [
        user("a"),
        calls("c1", "c2"),
        event(response_part("c1"), response_part("c2"), author="bot", role="user"),
        fold(1, 3, "s"),
        response("c1"),
        response("c2"),
        response("c1"),
    ]

    assert [item.seq for item in masked(*events)] == [4, 2, 5, 6, 7]
    assert masked(*events)[1].kept_parts == (0, 1)


def test_two_masked_calls_come_back_in_their_order_for_one_event() -> None:
    both = event(response_part("c2"), response_part("c1"), author="bot", role="user")
    events = [calls("c1"), response("c1"), user("a"), calls("c2"), response("c2"), fold(1, 5, "s")]

    assert [item.seq for item in masked(*events, both)] == [6, 1, 4, 7]


def test_masked_call_does_not_come_back_for_a_late_result() -> None:
    events = [calls("c1"), response("c1"), fold(1, 2, "s"), model("on"), response("c1")]

    assert [item.seq for item in masked(*events)] == [3, 4, 5]


def test_masked_call_does_not_come_back_for_a_masked_result() -> None:
    events = [user("a"), calls("c1"), response("c1"), fold(1, 3, "s"), user("b")]

    assert said(*events) == ["s", "b"]


def test_masked_call_of_another_agent_does_not_come_back() -> None:
    events = [
        calls("c1", author="other"),
        response("c1", author="other"),
        fold(1, 2, "s"),
        response("c1", author="other"),
    ]

    assert [item.seq for item in masked(*events)] == [3, 4]


def test_masked_call_that_the_reader_does_not_see_does_not_come_back() -> None:
    events = [
        calls("c1", branch="r"),
        response("c1", branch="r"),
        fold_of(1, 2, section("s", branch="r")),
        response("c1"),
    ]

    assert [item.seq for item in masked(*events, reader=Reader(agent="bot", branch="q"))] == [4]


def test_pinned_call_needs_no_coming_back() -> None:
    events = [user("a"), calls("c1"), response("c1"), fold(1, 3, "s"), pin(2), response("c1")]

    assert [item.seq for item in masked(*events)] == [4, 2, 3, 6]


# At rest


def test_without_folds_the_events_are_left_as_they_are() -> None:
    done = log(user("a"), model("b"), pin(1))

    assert through("compaction_mask", done).events == through("visibility", done).events


def test_text_of_a_summary_of_several_parts_stays_several_parts() -> None:
    several = section("one")
    two = type(several)(None, "", (text("one"), text("two")))

    (summary,) = masked(user("a"), fold_of(1, 1, two))
    assert list(summary.parts) == [text("one"), text("two")]
