from typing import Any

import pytest

from app.core.compile.inputs import CompileInput, CompileOptions, Instruction, Report
from app.core.compile.passes.merge_turns import merge_turns
from app.core.contents import Content, Contents, PlacedPart, Text
from app.core.events import Event
from app.core.lanes import ANYONE
from app.formats import FORMATS
from tests.builders import call, log, model, response, thought, user
from tests.passing import BOT, Passed, inputs_of, through


def merged(*events: Event, **options: Any) -> Passed:
    return through("merge_turns", log(*events), reader=BOT, **options)


# Merging


def test_neighbours_of_the_user_become_one_turn() -> None:
    done = merged(user("a"), user("b"), model("c"), user("d"))

    assert done.turns == ['user: 1 "a" + 2 "b"', 'model: 3 "c"', 'user: 4 "d"']
    assert done.repairs == []


def test_results_and_the_users_text_become_one_turn() -> None:
    done = merged(user("a"), call("search", id="c1"), response("c1"), user("b"))

    assert done.turns[2] == 'user: 3 result search#c1 {"result":"ok"} + 4 "b"'


def test_parts_are_put_side_by_side_and_never_joined() -> None:
    done = merged(user("a"), user("a"))

    assert [len(item.parts) for item in done.items] == [2]


def test_events_of_one_response_are_one_turn() -> None:
    done = merged(user("a"), model("b", response_id="r"), model("c", response_id="r"), user("d"))

    assert done.turns[1] == 'model: 2 "b" + 3 "c"'


def test_format_without_alternation_keeps_neighbours_apart() -> None:
    done = merged(
        user("a"),
        user("b"),
        model("c", response_id="r"),
        model("d", response_id="r"),
        model("e", response_id="q"),
        format_name="openai_chat",
    )

    assert done.turns == [
        'user: 1 "a"',
        'user: 2 "b"',
        'model: 3 "c" + 4 "d"',
        'model: 5 "e"',
    ]
    assert done.repairs == []


def test_native_merges_and_nudges_nothing() -> None:
    done = merged(user("a"), user("b"), model("c"), format_name="native")

    assert done.turns == ['user: 1 "a" + 2 "b"', 'model: 3 "c"']


# Nudges


NUDGE = 'user: - "Continue."'


def test_separately_produced_turns_get_a_user_text_between_them() -> None:
    done = merged(user("a"), model("b", response_id="r"), model("c", response_id="q"), user("d"))

    assert done.turns == ['user: 1 "a"', 'model: 2 "b"', NUDGE, 'model: 3 "c"', 'user: 4 "d"']
    assert done.repairs == [("tail_nudge", 3)]


def test_turn_of_the_model_at_the_start_gets_a_user_text_before_it() -> None:
    assert merged(model("a"), user("b")).turns == [NUDGE, 'model: 1 "a"', 'user: 2 "b"']


def test_turn_of_the_model_at_the_end_gets_a_user_text_after_it() -> None:
    done = merged(user("a"), model("b"))

    assert done.turns[-1] == NUDGE
    assert done.repairs == [("tail_nudge", 2)]


def test_text_at_the_end_is_the_text_that_will_stand_there() -> None:
    first, second = user("a"), model("b", response_id="r")
    before = merged(first, second).turns
    after = merged(first, second, model("c", response_id="q")).turns

    assert after[: len(before)] == before


@pytest.mark.parametrize("format_name", ["anthropic", "gemini"])
def test_nudge_can_be_switched_off(format_name: str) -> None:
    done = merged(user("a"), model("b"), format_name=format_name, tail_nudge=False)

    assert done.turns == ['user: 1 "a"', 'model: 2 "b"']
    assert done.repairs == []


def test_ephemeral_text_does_not_stand_in_for_a_nudge() -> None:
    # It will be gone in the next request: the nudge stands in this one and in that.
    done = merged(user("a"), model("b"), instruction=Instruction(static="s", dynamic="now"))

    assert done.turns[2].startswith('user: - "Continue." + ')
    assert done.repairs == [("tail_nudge", 2)]


def test_nothing_gets_no_nudge() -> None:
    done = merged()

    assert done.turns == []
    assert done.repairs == []


# Thoughts at the end of a turn


def test_thought_that_ends_a_response_is_left_out_where_the_provider_refuses_it() -> None:
    signed = Text(text="hm", thought=True, signature="c2ln", signed_by="anthropic")
    done = merged(user("a"), model("b", signed, response_id="r"), user("c"))

    assert done.turns == ['user: 1 "a"', 'model: 2 "b"', 'user: 3 "c"']
    assert done.repairs == [("thought_last", 2)]


def test_response_of_nothing_but_a_thought_leaves_no_turn() -> None:
    signed = Text(text="hm", thought=True, signature="c2ln", signed_by="anthropic")
    done = merged(user("a"), model(signed, response_id="r"), model("b", response_id="q"))

    assert done.turns == ['user: 1 "a"', 'model: 3 "b"', NUDGE]


def test_thought_that_something_of_its_response_follows_stays() -> None:
    signed = Text(text="hm", thought=True, signature="c2ln", signed_by="anthropic")
    done = merged(user("a"), model(signed, response_id="r"), model("b", response_id="r"))

    assert len(done.items[1].parts) == 2
    assert ("thought_last", 2) not in done.repairs


# Under adk


def test_under_adk_nothing_is_merged_and_nothing_added() -> None:
    done = merged(user("a"), user("b"), model(thought("hm"), "c"), model("d"), preset="adk")

    assert len(done.items) == 4
    assert done.repairs == []


# At rest


def test_alternating_turns_are_left_as_they_are() -> None:
    contents: Contents = (
        Content("user", (PlacedPart(Text(text="a"), 1),)),
        Content("model", (PlacedPart(Text(text="b"), 2),), response_seq=2),
        Content("user", (PlacedPart(Text(text="c"), 3),)),
    )
    inputs = CompileInput(
        options=CompileOptions(reader=ANYONE),
        format=FORMATS["anthropic"],
        index=inputs_of(log()).index,
        compiled_seq=3,
    )

    assert merge_turns(contents, inputs, Report()) == contents
