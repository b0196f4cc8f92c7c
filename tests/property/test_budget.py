"""The budget law: every compile fits, or says what does not; never a silently oversized answer."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.passes.fit_budget import LEFT_OUT_TEXT, STEPS
from app.core.compile.pipeline import run_pipeline
from app.core.compile.verify import verify
from app.core.contents import Segment
from app.core.copying import replace
from app.core.errors import BudgetExceededError, InvalidInputError
from app.core.events import Event
from app.core.index import Index, resolve
from app.core.lanes import Reader
from app.core.resolve import Log
from app.formats import FORMATS, VALIDATORS
from tests.builders import call, call_part, image, log, model, pin, response, user
from tests.property.strategies import Step, build, steps
from tests.requests import request_of

READER = Reader(agent="a")
BOT = Reader(agent="bot")
formats = st.sampled_from(sorted(FORMATS))


def within(
    events: tuple[Event, ...],
    index: Index,
    budget_tokens: int,
    *,
    format_name: str = "anthropic",
    reader: Reader = READER,
    system_tokens: int = 0,
    tools_tokens: int = 0,
) -> CompileResult:
    inputs = CompileInput(
        options=CompileOptions(reader=reader),
        format=FORMATS[format_name],
        index=index,
        compiled_seq=len(events),
        budget_tokens=budget_tokens,
        system_tokens=system_tokens,
        tools_tokens=tools_tokens,
    )
    return run_pipeline(events, inputs)


def tokens_of(result: CompileResult) -> int:
    return sum(placed.tokens for content in result.contents for placed in content.parts)


def fits_and_is_valid(result: CompileResult, format_name: str, budget_tokens: int) -> None:
    assert tokens_of(result) <= budget_tokens
    assert verify(result.rendered, FORMATS[format_name]) == ()
    if result.rendered:
        request = request_of(result, FORMATS[format_name])
        assert VALIDATORS[format_name](request, model="") == ()


def weighted(drawn: Log, weights: list[int]) -> tuple[Event, ...]:
    """Give the parts these many tokens, over and over."""
    return tuple(
        replace(
            event,
            part_tokens=tuple(
                weights[(event.seq + number) % len(weights)] for number in range(len(event.parts))
            ),
        )
        for event in drawn.events
    )


@given(
    steps(max_size=20),
    formats,
    st.lists(st.sampled_from((1, 5, 40, 300, 2_000)), min_size=1, max_size=5),
    st.sampled_from((30, 100, 400, 2_000, 10_000)),
)
def test_every_compile_fits_its_budget_or_is_refused(
    drawn: list[Step], format_name: str, weights: list[int], budget_tokens: int
) -> None:
    _, drawn_log = build(drawn)
    events = weighted(drawn_log, weights)
    try:
        result = within(events, drawn_log.index, budget_tokens, format_name=format_name)
    except BudgetExceededError as error:
        refused = error
        result = None
    if result is None:
        assert sum(refused.by_segment.values()) == refused.required_tokens > 0
        return
    fits_and_is_valid(result, format_name, budget_tokens)


@given(steps(max_size=20), formats)
def test_what_fits_as_it_is_is_not_cut(drawn: list[Step], format_name: str) -> None:
    _, drawn_log = build(drawn)
    events = weighted(drawn_log, [40])
    whole = within(events, drawn_log.index, 10**9, format_name=format_name)
    if any(repair.rule == "thought_last" for repair in whole.repairs):
        # Left out after it was counted.
        return
    exact = within(events, drawn_log.index, tokens_of(whole), format_name=format_name)
    assert exact.budget_actions == ()


@given(
    steps(max_size=20),
    st.lists(st.sampled_from((1, 40, 300)), min_size=1, max_size=5),
    st.sampled_from((100, 400)),
)
def test_pins_summaries_and_the_newest_user_message_are_never_cut(
    drawn: list[Step], weights: list[int], budget_tokens: int
) -> None:
    _, drawn_log = build(drawn)
    events = weighted(drawn_log, weights)
    whole = within(events, drawn_log.index, 10**9)
    try:
        cut = within(events, drawn_log.index, budget_tokens)
    except BudgetExceededError:
        return
    kept = {(placed.seq, placed.part) for content in cut.contents for placed in content.parts}
    for content in whole.contents:
        for placed in content.parts:
            if placed.segment in (Segment.PINS, Segment.SUMMARIES):
                assert (placed.seq, placed.part) in kept


#: Of parallel calls, results that come one by one, pins, and what the user and the agent say.
_called_and_pinned = st.lists(
    st.tuples(
        st.sampled_from(("call", "call", "result", "result", "pin", "say", "ask", "ask")),
        st.integers(1, 3),
    ),
    min_size=4,
    max_size=14,
)


def _with_pins(drawn: Sequence[tuple[str, int]]) -> Log:
    events: list[Event] = []
    open_calls: list[str] = []
    for kind, number in drawn:
        seq = len(events) + 1
        match kind:
            case "call":
                names = [f"c{seq}-{count}" for count in range(number)]
                events.append(model(*(call_part("t", id=name) for name in names)))
                open_calls += names
            case "result" if open_calls:
                name = open_calls.pop(min(number, len(open_calls)) - 1)
                events.append(response(name, name="t"))
            case "pin" if seq > number:
                events.append(pin(seq - number))
            case "say":
                events.append(model("said"))
            case _:
                events.append(user("asked"))
    return log(*events, user("now?"))


@example(
    drawn=[("ask", 1), ("call", 1), ("pin", 1), ("result", 1), ("ask", 1), ("ask", 1)],
    format_name="openai_chat",
    budget_tokens=100,
)
@example(
    # What opens the request then is the agent's, and takes a text of the user's before it.
    drawn=[("ask", 1), ("say", 1), ("pin", 1), ("ask", 1), ("say", 1)],
    format_name="gemini",
    budget_tokens=101,
)
@given(_called_and_pinned, formats, st.integers(60, 240))
def test_no_cut_parts_a_call_from_its_result_or_leaves_too_much(
    drawn: list[tuple[str, int]], format_name: str, budget_tokens: int
) -> None:
    try:
        made = _with_pins(drawn)
        events = weighted(made, [40])
        result = within(events, made.index, budget_tokens, format_name=format_name, reader=BOT)
    except (BudgetExceededError, InvalidInputError):
        return
    fits_and_is_valid(result, format_name, budget_tokens)


def _chat(
    turns: int, tokens: int, *, result_tokens: int | None = None
) -> tuple[tuple[Event, ...], Index]:
    events = []
    for number in range(turns):
        events += [
            user(f"question {number}", part_tokens=(tokens,)),
            call("t", id=f"c{number}", part_tokens=(tokens,)),
            response(f"c{number}", name="t", part_tokens=(result_tokens or 10 * tokens,)),
            model(f"answer {number}", part_tokens=(tokens,)),
        ]
    made = log(*events, user("now", part_tokens=(tokens,)))
    return made.events, made.index


def test_what_fits_is_left_alone() -> None:
    events, index = _chat(3, 10)
    assert within(events, index, 10_000, reader=BOT).budget_actions == ()


def test_results_go_before_invocations_and_the_oldest_first() -> None:
    events, index = _chat(10, 10)
    result = within(events, index, 1_200, reader=BOT)
    assert {action.action for action in result.budget_actions} == {"stubbed"}
    assert [action.seq for action in result.budget_actions] == [3, 7]


def test_one_cut_serves_many_calls() -> None:
    # A turn has 80 tokens and a stub saves some 24, so without steps every turn would cut anew.
    budget_tokens, grown_by = 4_600, 20
    cuts: list[tuple[int | None, ...]] = []
    for turns in range(60, 60 + grown_by):
        events, index = _chat(turns, 10, result_tokens=50)
        result = within(events, index, budget_tokens, reader=BOT)
        cuts.append(tuple(action.seq for action in result.budget_actions))
    most = -(-grown_by * 80 // (budget_tokens // STEPS)) + 1
    assert 2 <= len(set(cuts)) <= most
    for cut, longer in pairwise(cuts):
        assert longer[: len(cut)] == cut


def test_small_growth_within_a_step_cuts_the_same() -> None:
    base, index = _chat(10, 10)
    first = within(base, index, 1_250, reader=BOT).budget_actions
    longer = log(*(replace(e, place=None, owners=()) for e in base), model("ok", part_tokens=(5,)))
    second = within(longer.events, longer.index, 1_250, reader=BOT).budget_actions
    assert first == second


def test_the_oldest_invocations_go_whole_when_stubs_are_not_enough() -> None:
    events, index = _chat(20, 30)
    result = within(events, index, 1_000, reader=BOT)
    assert "dropped" in {action.action for action in result.budget_actions}
    assert LEFT_OUT_TEXT in result.rendered[0].parts[0].text
    assert tokens_of(result) <= 1_000


def test_a_giant_newest_result_is_stubbed_rather_than_the_question() -> None:
    made = log(
        user("what is in the file?", part_tokens=(10,)),
        call("read", id="c", part_tokens=(10,)),
        response("c", name="read", part_tokens=(900_000,)),
    )
    result = within(made.events, made.index, 1_000, reader=BOT)
    assert [(action.action, action.seq) for action in result.budget_actions] == [("stubbed", 3)]


def test_a_giant_question_is_refused_and_named() -> None:
    made = log(user("x", part_tokens=(5_000,)))
    with pytest.raises(BudgetExceededError) as caught:
        within(made.events, made.index, 1_000, reader=BOT)
    assert caught.value.segment == "history"
    assert caught.value.members()["required_tokens"] == 5_000


def test_pins_alone_over_the_budget_are_refused_and_named() -> None:
    made = log(user("rule", part_tokens=(5_000,)), model("ok"), pin(1), user("hi"))
    with pytest.raises(BudgetExceededError) as caught:
        within(made.events, made.index, 1_000, reader=BOT)
    assert caught.value.segment == "pins"


def test_a_pinned_call_keeps_the_result_that_came_after_the_pin() -> None:
    made = log(
        user("q", part_tokens=(500,)),
        model(call_part("read", id="c1"), "let me see", part_tokens=(10, 10)),
        pin(2),
        response("c1", name="read", part_tokens=(10,)),
        user("more", part_tokens=(500,)),
        model("done", part_tokens=(10,)),
        user("and now?", part_tokens=(10,)),
    )
    result = within(made.events, made.index, 300, reader=BOT)
    assert [action.action for action in result.budget_actions] == ["dropped"]
    # A turn in front, the pinned call, its result, the note of what was left out, the question.
    placed = [[part.placed.seq for part in content.parts] for content in result.rendered]
    assert placed == [[None], [2, 2], [4, None, 7]]
    assert verify(result.rendered, FORMATS["anthropic"]) == ()


@pytest.mark.parametrize("segment", ["system", "tools"])
def test_system_and_tools_count(segment: str) -> None:
    made = log(user("hi", part_tokens=(10,)))

    def with_head(tokens: int) -> CompileResult:
        system, tools = (tokens, 0) if segment == "system" else (0, tokens)
        return within(
            made.events, made.index, 1_000, reader=BOT, system_tokens=system, tools_tokens=tools
        )

    assert with_head(990).rendered
    with pytest.raises(BudgetExceededError) as caught:
        with_head(991)
    assert caught.value.segment == segment
    assert caught.value.required_tokens == 1_001
    assert caught.value.by_segment == {segment: 991, "history": 10}


def test_media_is_stubbed_oldest_first() -> None:
    images = [
        part
        for number in range(500)
        for part in (
            user("look", part_tokens=(1,)),
            user(image(data=f"AAA{number % 10}"), part_tokens=(1_000,)),
            model("seen", part_tokens=(1,)),
        )
    ]
    made = log(*images, user("and now?", part_tokens=(5,)))
    result = within(made.events, made.index, 20_000, reader=BOT)
    assert tokens_of(result) <= 20_000
    assert {action.action for action in result.budget_actions} == {"stubbed"}


def test_a_million_tokens_fit_four_thousand() -> None:
    events, index = _chat(2_500, 32)
    result = within(events, index, 4_000, reader=BOT)
    assert tokens_of(result) <= 4_000
    assert resolve([]) == index
