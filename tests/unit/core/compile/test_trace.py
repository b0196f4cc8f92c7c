"""What `explain` says became of every event."""

from typing import Any

from app.core.compile.pipeline import run_pipeline
from app.core.compile.trace import EventTrace, PassTrace, explain
from app.core.contents import Opaque, Text
from app.core.events import Event
from tests.builders import (
    call,
    elide,
    event,
    fold,
    fold_of,
    log,
    model,
    pin,
    response,
    rewind,
    section,
    text,
    undo,
    unpin,
    user,
)
from tests.passing import inputs_of


def explained(*events: Event, **options: Any) -> list[EventTrace]:
    done = log(*events)
    trace = PassTrace()
    inputs = inputs_of(done, **options)
    result = run_pipeline(done.events, inputs, trace)
    return list(explain(done.events, inputs, trace, result))


def told(*events: Event, **options: Any) -> list[tuple[int, str, str | None, int | None]]:
    """Return first seq, action, pass and block of each row."""
    return [
        (row.from_seq, row.action, row.pass_name, row.block)
        for row in explained(*events, **options)
    ]


def test_event_that_stands_alone_is_kept() -> None:
    assert told(user("a"), model("b"), user("c")) == [
        (1, "kept", None, 0),
        (2, "kept", None, 1),
        (3, "kept", None, 2),
    ]


def test_events_that_share_a_turn_are_merged() -> None:
    assert told(user("a"), user("b")) == [
        (1, "merged", "merge_turns", 0),
        (2, "merged", "merge_turns", 0),
    ]


LONG = (
    "a text that is long enough to be worth leaving out of the request, because a stub is shorter"
)


def test_elided_event_is_stubbed_and_names_the_elision() -> None:
    first, second, third, _ = explained(user(LONG), user("short"), user(LONG), elide(1, 2))

    assert (first.action, first.pass_name, first.by_seq) == ("stubbed", "elision", 4)
    assert (second.action, second.by_seq) == ("merged", None)
    assert (third.action, third.by_seq) == ("merged", None)


def test_elided_event_of_another_agent_is_stubbed_before_it_is_narrated() -> None:
    said = model(LONG, author="other")

    assert told(said, elide(1))[0][1:3] == ("stubbed", "elision")
    assert told(said)[0][1:3] == ("narrated", "narration")


def test_rewound_events_name_the_rewind() -> None:
    rows = explained(user("a"), user("b", invocation_id="i2"), rewind("i2"), user("c"))

    assert [(row.action, row.by_seq) for row in rows] == [
        ("merged", None),
        ("rewound", 3),
        ("marker", None),
        ("merged", None),
    ]


def test_of_two_rewinds_the_one_in_effect_is_named() -> None:
    rows = explained(
        user("a", invocation_id="i1"),
        user("b", invocation_id="i2"),
        rewind("i2"),
        user("c"),
        rewind("i1"),
        user("d"),
    )

    assert [(row.from_seq, row.to_seq, row.action, row.by_seq) for row in rows[:2]] == [
        (1, 2, "rewound", 5),
        (3, 3, "marker", None),
    ]


def test_masked_neighbours_are_one_row_that_names_their_fold() -> None:
    rows = explained(*(user(str(n)) for n in range(1, 6)), fold(1, 2), fold(3, 4), user("u"))

    assert [(row.from_seq, row.to_seq, row.action, row.by_seq) for row in rows] == [
        (1, 2, "masked", 6),
        (3, 4, "masked", 7),
        (5, 5, "merged", None),
        (6, 6, "marker", None),
        (7, 7, "marker", None),
        (8, 8, "merged", None),
    ]
    assert rows[0].tokens == 2
    assert rows[0].pass_name == "compaction_mask"


def test_hole_parts_a_masked_span() -> None:
    rows = explained(*(user(str(n)) for n in range(1, 4)), fold(1, 3), pin(2))

    assert [(row.from_seq, row.to_seq, row.action) for row in rows[:3]] == [
        (1, 1, "masked"),
        (2, 2, "merged"),
        (3, 3, "masked"),
    ]


def test_event_of_another_lane_is_hidden() -> None:
    assert told(user("a"), user("b", scope="s"))[1] == (2, "hidden", "visibility", None)


def test_event_of_another_lane_is_hidden_also_where_it_is_folded() -> None:
    rows = told(user("a"), user("b", scope="s"), fold_of(2, 2, section("sum", scope="s")))

    assert rows[1] == (2, "hidden", "visibility", None)


def test_empty_event_is_hidden() -> None:
    assert told(user("a"), user(""))[1][1:3] == ("hidden", "visibility")


def test_event_of_another_agent_is_narrated() -> None:
    rows = told(user("a"), model("b", author="other"), model("c"))

    assert rows[1] == (2, "narrated", "narration", 0)


def test_event_of_another_agent_that_is_not_narrated_is_dropped_by_narration() -> None:
    rows = told(user("a"), model("b", author="other"), narration="none")

    assert rows[1] == (2, "dropped", "narration", None)


def test_orphan_is_dropped_by_pairing() -> None:
    assert told(user("a"), response("c1"))[1] == (2, "dropped", "tool_pairing", None)


def test_closed_call_and_late_result_are_repaired() -> None:
    rows = told(call("search", id="c1"), user("u"), model("on"), response("c1"))

    assert [row[:3] for row in rows] == [
        (1, "repaired", "tool_pairing"),
        (2, "merged", "merge_turns"),
        (3, "kept", None),
        (4, "repaired", "tool_pairing"),
    ]


def test_replaced_result_is_dropped_by_pairing() -> None:
    rows = told(call("search", id="c1"), response("c1"), response("c1"))

    assert [row[1:3] for row in rows] == [
        ("kept", None),
        ("dropped", "tool_pairing"),
        ("kept", None),
    ]


def test_event_that_lost_a_part_is_repaired_by_whoever_took_it() -> None:
    block = Opaque(provider="another", type="block", raw="{}")
    signed = Text(text="hm", thought=True, signature="c2ln", signed_by="anthropic")

    assert told(user("a"), user("b", block), format_name="openai_chat")[1][1:3] == (
        "repaired",
        "lower",
    )
    assert told(user("a"), model("b", signed), user("c"))[1][1:3] == ("repaired", "merge_turns")


def test_user_text_that_the_provider_needs_is_no_repair_of_its_neighbour() -> None:
    assert told(user("a"), model("b"))[1] == (2, "kept", None, 1)


def test_blank_event_that_the_format_refuses_is_dropped() -> None:
    assert told(user("a"), user("  "))[1][1] == "dropped"


def test_markers_are_markers_whatever_they_do() -> None:
    rows = told(user("a"), pin(1), unpin(1), fold(1, 1), undo(4), user("u"), rewind(to_seq=5))

    assert [row[1] for row in rows[1:5]] == ["marker"] * 4
    assert rows[6][1] == "marker"


def test_every_event_has_exactly_one_row() -> None:
    events = [
        user("a"),
        model("b", author="other"),
        event(text(""), author="bot"),
        call("search", id="c1"),
        response("c9"),
        user("c", scope="s"),
        user("d", invocation_id="i4"),
        rewind("i4"),
        fold(1, 2),
        model("e"),
    ]
    rows = explained(*events)

    covered = [seq for row in rows for seq in range(row.from_seq, row.to_seq + 1)]
    assert covered == list(range(1, len(events) + 1))


def test_rows_carry_id_and_tokens() -> None:
    (row,) = explained(user("a", "b", id="e1"))

    assert (row.id, row.tokens) == ("e1", 2)


def test_reordered_reply_is_kept_where_it_is_read() -> None:
    rows = told(user("a"), user("b"), model("c", compiled_seq=1))

    assert [row[0] for row in rows] == [1, 2, 3]
    assert [row[3] for row in rows] == [0, 2, 1]


def test_empty_log_has_no_rows() -> None:
    assert explained() == []
