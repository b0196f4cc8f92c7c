import pytest

from app.core.compile.inputs import CompileInput, CompileOptions, Preset, Report
from app.core.compile.passes.compaction_mask import compaction_mask
from app.core.compile.passes.visibility import visibility
from app.core.contents import Opaque, Text
from app.core.copying import replace
from app.core.events import Events, Fold
from app.core.lanes import Lane, Reader
from app.core.resolve import Log
from app.formats import FORMATS
from tests.builders import (
    call,
    call_part,
    compaction,
    event,
    file,
    fold,
    fold_of,
    image,
    log,
    model,
    response,
    section,
    text,
    thought,
    user,
)

BOT = Reader(agent="bot")
presets = pytest.mark.parametrize("preset", ["stable", "adk"])


def inputs_for(done: Log, options: CompileOptions) -> CompileInput:
    return CompileInput(
        options=options,
        format=FORMATS["native"],
        index=done.index,
        compiled_seq=len(done.events),
    )


def visible(done: Log, reader: Reader = BOT, **options: object) -> Events:
    chosen = replace(CompileOptions(reader=reader), **options)
    return visibility(done.events, inputs_for(done, chosen), Report())


def seqs(done: Log, reader: Reader = BOT, **options: object) -> list[int]:
    return [item.seq for item in visible(done, reader, **options)]


# Lanes


def test_scope_sees_only_itself() -> None:
    done = log(user("a"), user("b", scope="s"), user("c", scope="t"))

    assert seqs(done) == [1]
    assert seqs(done, Reader(agent="bot", isolation_scope="s")) == [2]


def test_branch_is_seen_from_below_and_not_from_above() -> None:
    done = log(user("a"), model("b", branch="r"), model("c", branch="r.x"))

    assert seqs(done, Reader(agent="bot", branch="r.x")) == [1, 2, 3]
    assert seqs(done, Reader(agent="bot", branch="r")) == [1, 2]


def test_branches_are_compared_by_whole_segments() -> None:
    done = log(model("a", branch="root.agent_1"))

    assert seqs(done, Reader(agent="bot", branch="root.agent_10")) == []


def test_reader_without_branch_sees_every_branch() -> None:
    done = log(model("a", branch="r"), model("b", branch="r.x"))

    assert seqs(done) == [1, 2]


def test_messages_inside_a_tool_call_are_hidden_from_the_root() -> None:
    done = log(
        call("t", id="c1"),
        model("progress", branch="t@c1"),
        model("deep", branch="r.t@c1.n@5"),
        model("a run, not a call", branch="n@5"),
    )

    assert seqs(done) == [1, 4]


def test_agent_run_as_a_tool_sees_its_own_branch() -> None:
    done = log(call("bot", id="c1"), model("mine", branch="bot@c1"))

    assert seqs(done) == [1, 2]
    assert seqs(done, Reader(agent="bot", branch="bot@c1")) == [1, 2]


def test_message_to_a_node_is_seen_by_that_node_alone() -> None:
    done = log(user("for n", lane=Lane(node_path="wf/n")), user("for all"))

    assert seqs(done, Reader(agent="bot", node_path="wf/n")) == [1, 2]
    assert seqs(done, Reader(agent="bot", node_path="wf")) == [2]


# Single-turn nodes


def test_single_turn_reads_its_node_what_is_below_and_what_is_above() -> None:
    done = log(
        model("own", node_path="wf/n"),
        model("below", node_path="wf/n/m"),
        model("above", node_path="wf"),
        model("beside", node_path="wf/n10"),
        model("nowhere"),
    )
    reader = Reader(agent="bot", node_path="wf/n")

    assert seqs(done, reader, single_turn=True) == [1, 2, 3, 5]
    assert seqs(done, reader) == [1, 2, 3, 4, 5]


def test_what_is_above_the_node_is_no_part_of_its_current_turn() -> None:
    done = log(
        user("question"),
        model("above", node_path="wf", author="other"),
        model("own", node_path="wf/n"),
    )
    reader = Reader(agent="bot", node_path="wf/n")

    assert seqs(done, reader, single_turn=True, include_contents="none") == [1, 3]


# Emptiness


@pytest.mark.parametrize(
    "part",
    [
        text("hi"),
        text("  "),
        image(),
        file(),
        call_part("t"),
        Text(text="", signature="AAAA"),
        Text(text="hm", thought=True, signature="AAAA"),
        replace(call_part("t"), thought=True),
        Opaque(provider="gemini", type="tool_call", raw="{}"),
    ],
)
def test_part_that_a_model_can_read_keeps_its_event(part: Text) -> None:
    assert seqs(log(model(part))) == [1]


@pytest.mark.parametrize("part", [text(""), thought("hm"), replace(image(), thought=True)])
def test_event_of_nothing_but_empty_parts_and_thoughts_is_dropped(part: Text) -> None:
    assert seqs(log(model(part))) == []


def test_empty_parts_of_a_visible_event_stay() -> None:
    (only,) = visible(log(model(thought("hm"), "", "hi")))

    assert len(only.parts) == 3


def test_event_without_content_or_role_is_dropped() -> None:
    assert seqs(log(event(author="bot", role=None), model("hi", role=""))) == []


def test_transcription_keeps_an_event_even_without_words() -> None:
    done = log(event(author="user", role=None, input_transcription=""))

    assert seqs(done) == [1]


def test_thoughts_of_others_are_shown_on_request() -> None:
    done = log(user("hi"), model(thought("theirs"), author="other"), model(thought("own")))

    assert seqs(done) == [1]
    assert seqs(done, foreign_thoughts=True) == [1, 2]
    assert seqs(done, foreign_thoughts=True, include_contents="none") == [1]


# Framework calls


def test_one_call_of_the_framework_drops_the_whole_event() -> None:
    done = log(
        model("may I?", call_part("adk_request_confirmation", id="q")),
        response("q", name="adk_request_confirmation", author="user"),
        call("adk_request_credential", id="q2"),
        call("adk_framework"),
        call("adk_request_input", id="q3"),
    )

    assert seqs(done) == [5]


# Folds


def test_active_folds_pass() -> None:
    done = log(user("a"), model("b"), fold(1, 2), user("c"))

    assert seqs(done) == [1, 2, 3, 4]


# The current turn


@presets
def test_current_turn_starts_at_the_last_user_message(preset: Preset) -> None:
    done = log(user("a"), model("b"), user("c"), call("t", id="c1"), response("c1"))

    assert seqs(done, include_contents="none", preset=preset) == [3, 4, 5]


@presets
def test_current_turn_starts_at_a_newer_message_of_another_agent(preset: Preset) -> None:
    done = log(user("a"), model("b", author="other"), model("c"))

    assert seqs(done, include_contents="none", preset=preset) == [2, 3]


@presets
def test_handover_does_not_start_a_turn(preset: Preset) -> None:
    done = log(
        user("a"),
        call("transfer_to_agent", id="c1", author="other"),
        response("c1", name="transfer_to_agent", author="other", is_transfer=True),
    )

    assert seqs(done, include_contents="none", preset=preset) == [1, 2, 3]


@presets
def test_posted_result_takes_the_turn_back_to_before_its_call(preset: Preset) -> None:
    done = log(
        user("old"),
        model("old answer"),
        user("start it"),
        call("t", id="c1"),
        user("meanwhile"),
        model("yes?"),
        response("c1", author="user"),
    )

    assert seqs(done, include_contents="none", preset=preset) == [3, 4, 5, 6, 7]


@presets
def test_posted_result_of_no_call_takes_the_turn_nowhere(preset: Preset) -> None:
    done = log(user("old"), model("answer"), user("new"), response("c9", author="user"))

    assert seqs(done, include_contents="none", preset=preset) == [3, 4]


@presets
def test_posted_answer_to_the_framework_takes_the_turn_back_too(preset: Preset) -> None:
    done = log(
        user("do it"),
        call("adk_request_confirmation", id="q"),
        model("theirs", author="other"),
        response("q", name="adk_request_confirmation", author="user"),
    )

    assert seqs(done, include_contents="none", preset=preset) == [1, 3]


@presets
def test_without_a_start_the_current_turn_is_empty(preset: Preset) -> None:
    assert seqs(log(model("a"), model("b")), include_contents="none", preset=preset) == []
    assert seqs(log(), include_contents="none", preset=preset) == []


@presets
def test_masked_message_starts_no_turn(preset: Preset) -> None:
    done = log(user("a"), model("b"), user("c"), fold(3, 3), model("d"))

    assert seqs(done, include_contents="none", preset=preset) == [1, 2, 3, 4, 5]


def masked(done: Log, preset: Preset, events: Events | None = None) -> list[str]:
    options = CompileOptions(reader=BOT, include_contents="none", preset=preset)
    inputs = inputs_for(done, options)
    left = visibility(done.events if events is None else events, inputs, Report())
    return [
        part.text
        for item in compaction_mask(left, inputs, Report())
        for part in item.parts
        if isinstance(part, Text)
    ]


@presets
def test_summary_from_before_the_turn_is_not_shown(preset: Preset) -> None:
    done = log(user("a"), model("b"), user("c"), fold(1, 2, "old"), model("d"))

    assert masked(done, preset) == ["c", "d"]


@presets
def test_summary_from_within_the_turn_is_shown(preset: Preset) -> None:
    done = log(user("a"), call("t", id="c1"), response("c1"), fold(2, 3, "work"), model("d"))

    assert masked(done, preset) == ["a", "work", "d"]


@presets
def test_of_one_fold_only_the_sections_within_the_turn_are_shown(preset: Preset) -> None:
    done = log(
        model("a", branch="r"),
        user("b", branch="r.y"),
        call("t", id="c1"),
        response("c1"),
        fold_of(1, 4, section("before", branch="r"), section("within")),
        model("d"),
    )

    assert masked(done, preset) == ["b", "within", "d"]


@presets
def test_the_turn_is_the_same_when_only_live_events_are_read(preset: Preset) -> None:
    done = log(
        user("start it"),
        call("t", id="c1"),
        response("c1"),
        compaction(2, 3, "work"),
        user("meanwhile"),
        response("c1", author="user"),
    )
    assert isinstance(done.events[3].marker, Fold)
    live = tuple(item for item in done.events if item.seq in (1, 4, 5, 6))

    assert masked(done, preset) == masked(done, preset, live) == ["start it", "work", "meanwhile"]
