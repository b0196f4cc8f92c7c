"""Folds, pins and rewinds as other systems lost something over them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events import Event
from app.core.resolve import Log
from tests.builders import (
    call,
    fold,
    fold_of,
    log,
    model,
    pin,
    response,
    rewind,
    section,
    undo,
    user,
)
from tests.compiling import compile_for
from tests.failures.notation import sent, stored
from tests.passing import BOT, turns_of
from tests.property.compiling import compiled, live_part, parts_of


def turns(done: Log, name: str = "anthropic", **options: Any) -> list[str]:
    return turns_of(compile_for(done, name, agent="bot", **options))


def live(done: Log) -> list[int]:
    return [event.seq for event in done.events if done.index.is_live(event.seq)]


# Folds


@given(st.lists(st.sampled_from(["user", "model"]), min_size=3, max_size=10), st.data())
def test_compiling_with_a_fold_differs_only_inside_its_span(
    kinds: list[str], data: st.DataObject
) -> None:
    # adk-python#4667
    events: list[Event] = [
        user(f"u{n}") if kind == "user" else model(f"m{n}", response_id=f"r{n}")
        for n, kind in enumerate(kinds, start=1)
    ]
    start = data.draw(st.integers(1, len(events)))
    end = data.draw(st.integers(start, len(events)))
    plain, folded = log(*events), log(*events, fold(start, end))

    without = parts_of(compiled(plain.events, plain.index, BOT, "native"))
    with_fold = parts_of(compiled(folded.events, folded.index, BOT, "native"))
    summary = [part for part in with_fold if "summary" in part[1]]
    assert len(summary) == 1
    assert with_fold == [*without[: start - 1], *summary, *without[end:]]


def test_new_summary_takes_the_place_of_the_old_one() -> None:
    # langmem#118: both stood in the request, and the model called its tools again.
    events = [*sent("(U C# R# A)x3"), fold(1, 4, "first"), fold(1, 8, "second")]

    assert turns(log(*events))[0] == 'user: 14 "second" + 9 "user 9"'
    assert "first" not in str(turns(log(*events)))


def test_stored_fold_is_replayed_and_never_made_again() -> None:
    # strands#4270: every process summarised again, and the preview had grown back.
    done = stored("U C1 R1:18180 A U A", fold(1, 4, "short"))

    again = Log(tuple(done.events), done.index)
    assert turns(again) == turns(done)
    assert sum(len(line) for line in turns(done)) < 500


def test_tool_loop_that_spans_the_whole_view_can_be_cut() -> None:
    # software-agent-sdk#2255
    events = sent("U (K C# R#)x60")
    done = log(*events, fold(1, 100))

    assert turns(done)[0] == 'user: 182 "summary"'
    assert max(live(done)) == 181


def test_history_without_the_users_text_still_begins_with_the_user() -> None:
    # langchain#39261: a placeholder took the place of the history, and no model was called.
    done = log(*sent("U (C# R#:30)x10"), fold(1, 11))

    assert turns(done)[0].startswith("user: 22")


def test_summary_and_the_text_after_it_are_one_turn() -> None:
    # strands: two users in a row after summarizing.
    assert turns(stored("U A U A U A U A", fold(1, 4)))[0] == 'user: 9 "summary" + 5 "user 5"'


def test_fold_in_the_middle_of_a_turn_makes_no_writer_stale() -> None:
    # adk-python#6691: the summary was appended through a copy, and the answer was lost.
    done = log(
        user("a", branch="wf", invocation_id="i1"),
        model("b", branch="wf.a1", author="a1", invocation_id="i1"),
        fold_of(1, 1, section("s", branch="wf")),
        model("c", branch="wf.a2", author="a2", invocation_id="i1", compiled_seq=2),
    )

    assert live(done) == [2, 4]


def test_cost_of_a_folded_session_is_that_of_what_is_left() -> None:
    # adk-python#4673: 70 s for 4,800 events, although they were compacted.
    events = [*(user(f"u{n}") for n in range(2000)), fold(1, 1980), user("now")]
    done = log(*events)

    read = live_part(done, BOT)
    assert len(read) == 22
    everything = compiled(done.events, done.index, BOT)
    assert compiled(read, done.index, BOT).chain == everything.chain


# Pins


def test_pin_set_after_the_event_was_stored_is_kept() -> None:
    # strands#4088: pins beyond the head vanished on restore.
    done = stored("U A U A U A U A", pin(3), fold(1, 6))

    assert turns(done)[0] == 'user: 10 "summary" + 3 "user 3" + 7 "user 7"'


def test_pinned_result_keeps_its_call() -> None:
    # strands: the pair fallback left the assistant first, kept pins broke alternation.
    done = log(*sent("U C1 R1 C2 R2 C3 R3 C4 R4"), pin(5), fold(1, 9))

    assert turns(done) == [
        'user: 11 "summary"',
        "model: 4 call search#2 {}",
        'user: 5 result search#2 {"result":"xx"}',
    ]


def test_pinned_turns_keep_their_order_around_the_summary() -> None:
    # strands#4087
    done = stored("U^ A^ U A U A U A", fold(3, 6))

    assert turns(done) == [
        'user: 1 "user 1"',
        'model: 2 "model 2"',
        'user: 10 "summary" + 7 "user 7"',
        'model: 8 "model 8"',
        'user: - "Continue."',
    ]


# Rewinds


def test_what_was_rewound_is_no_longer_read() -> None:
    # adk-python#4959
    done = log(
        user("u1", invocation_id="i1"),
        model("m1", invocation_id="i1"),
        user("u2", invocation_id="i2"),
        model("m2", invocation_id="i2"),
        rewind("i2"),
        user("u3", invocation_id="i3"),
    )

    assert live(done) == [1, 2, 6]
    assert "u2" not in str(turns(done))


def test_rewound_call_can_be_made_again_with_the_same_id() -> None:
    done = log(
        user("u1", invocation_id="i1"),
        call("search", id="c1", invocation_id="i2"),
        rewind("i2"),
        call("search", id="c1", invocation_id="i3"),
        response("c1", invocation_id="i3"),
    )

    assert turns(done)[1:] == [
        "model: 4 call search#c1 {}",
        'user: 5 result search#c1 {"result":"ok"}',
    ]


@pytest.mark.parametrize("preset", ["stable", "adk"])
def test_undone_fold_leaves_no_trace(preset: str) -> None:
    events = sent("U A U A U")
    plain, undone = log(*events), log(*events, fold(1, 2), undo(6))

    assert turns(undone, preset=preset) == turns(plain, preset=preset)
