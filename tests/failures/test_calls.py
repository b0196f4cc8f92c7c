"""Calls and results as they really come: interrupted, orphaned, parallel, failed, late."""

import pytest

from app.core.canonical import Json
from app.core.compile.inputs import CompileResult
from app.core.contents import FileData, calls, responses
from app.core.resolve import Log
from app.formats import FORMATS
from tests.builders import (
    call,
    event,
    fold,
    log,
    model,
    response,
    response_part,
    text,
    user,
)
from tests.compiling import append_items, compile_for
from tests.failures.notation import stored
from tests.passing import turns_of
from tests.requests import request_of

formats = pytest.mark.parametrize("name", sorted(FORMATS))


def compiled(done: Log, name: str = "anthropic") -> CompileResult:
    return compile_for(done, name, agent="bot")


def turns(done: Log, name: str = "anthropic") -> list[str]:
    return turns_of(compiled(done, name))


def repairs(done: Log) -> list[tuple[str, int | None]]:
    return [(item.rule, item.seq) for item in compiled(done).repairs if item.rule != "tail_nudge"]


def answers(done: Log, name: str) -> list[tuple[str | None, bool]]:
    """Return id and error flag of every result that is sent."""
    return [
        (part.id, part.is_error)
        for rendered in compiled(done, name).rendered
        for part in responses(placed.part for placed in rendered.content.parts)
    ]


# Open calls


@formats
def test_log_that_ends_on_an_open_call_goes_on(name: str) -> None:
    # strands#2025, claude-code#4093: a process was killed, and every later request was refused.
    done = stored("U C1 U")

    assert answers(done, name) == [("1", True)]
    assert [call.seq for call in compiled(done, name).pending] == [2]


@formats
def test_open_call_in_the_middle_is_closed_where_it_stands(name: str) -> None:
    # strands#1123
    done = stored("U C1 U A U")

    assert answers(done, name) == [("1", True)]
    assert compiled(done, name).pending == ()


def test_crash_between_call_and_result_is_repaired_at_compile_and_the_log_stays() -> None:
    # openclaw#19048, copilot-cli#3183
    done = stored("U C1 R1 C2 U A U")
    before = done.events

    assert repairs(done) == [("synthetic_result", 4)]
    assert done.events == before
    assert [part.id for item in done.events for part in calls(item.parts)] == ["1", "2"]


def test_call_interrupted_long_ago_does_not_hold_up_a_fold() -> None:
    # adk-python#7236: nothing was ever compacted again, and nobody was told.
    done = log(
        call("search", id="dead", invocation_id="i1"),
        user("b", invocation_id="i2"),
        model("c", invocation_id="i2"),
        user("d", invocation_id="i3"),
        fold(1, 4),
    )

    assert turns(done) == ['user: 5 "summary"']


def test_call_that_still_waits_is_stepped_over_by_a_fold() -> None:
    done = log(call("search", id="open"), user("b"), user("c"), fold(1, 3), user("d"))

    assert [item.name for item in compiled(done).pending] == ["search"]
    assert [event.seq for event in done.events if done.index.is_live(event.seq)] == [1, 5]


# Orphans


@formats
def test_orphan_does_not_poison_the_session(name: str) -> None:
    # adk-python#6582, #4159, #3531: "No function call event found for function responses ids".
    done = log(user("a"), response("orphan-1"), user("b"))

    assert answers(done, name) == []
    assert [item.rule for item in compiled(done, name).repairs] == ["orphan_result"]


def test_text_beside_an_orphan_survives() -> None:
    # strands#4154
    done = stored("U A RU9 A U")

    assert turns(done)[2] == 'user: 3 "user 3"'
    assert repairs(done) == [("orphan_result", 3)]


def test_every_orphan_is_found_not_only_the_first() -> None:
    # langchain#38352: the safe cut-off stopped at any matched call.
    done = stored("U C1,2 R1,2 R3 A U R4")

    assert repairs(done) == [("orphan_result", 4), ("orphan_result", 7)]


def test_log_that_begins_with_an_orphan_is_valid() -> None:
    # claude-code#24670
    assert turns(stored("R1 A U"))[0] == 'user: - "Continue."'


def test_result_in_a_later_invocation_finds_its_call() -> None:
    # adk-python#4159
    done = log(
        user("a", invocation_id="i1"),
        call("ask", id="l", invocation_id="i1", long_running_ids=frozenset({"l"})),
        response("l", name="ask", invocation_id="i2"),
    )

    assert repairs(done) == []
    assert turns(done)[-1] == 'user: 3 result ask#l {"result":"ok"}'


def test_id_of_a_partial_event_is_no_call() -> None:
    # adk-python#4609: the stream said adk-1, the final event adk-2, the result adk-1.
    def part(call_id: str) -> dict[str, Json]:
        return {"function_call": {"id": call_id, "name": "search", "args": {}}}

    done = append_items(
        "adk",
        [
            {
                "author": "bot",
                "partial": True,
                "content": {"role": "model", "parts": [part("adk-1")]},
            },
            {"author": "bot", "content": {"role": "model", "parts": [part("adk-2")]}},
            {
                "author": "bot",
                "content": {
                    "role": "user",
                    "parts": [
                        {"function_response": {"id": "adk-1", "name": "search", "response": {}}}
                    ],
                },
            },
        ],
    )

    assert len(done.events) == 2
    assert repairs(done) == [("synthetic_result", 1), ("orphan_result", 2)]


# Parallel calls


@formats
def test_caller_is_found_however_many_results_there_are(name: str) -> None:
    # langchain#34184: looked back only five tool messages.
    done = stored("U A U C1,2,3,4,5,6,7,8 R1,2,3,4,5,6,7,8 A")

    assert [call_id for call_id, _ in answers(done, name)] == list("12345678")
    assert all(not is_error for _, is_error in answers(done, name))


@formats
def test_parallel_calls_are_answered_in_their_order(name: str) -> None:
    # langmem#126
    done = stored("U C1,2,3 R3 R1,2 A U")

    assert [call_id for call_id, _ in answers(done, name)] == ["1", "2", "3"]


def test_fold_that_ends_between_calls_and_results_splits_no_pair() -> None:
    # langmem#126: the results were kept, their calls were cut.
    done = stored("U C1,2,3 R1 R2,3 A U", fold(1, 3))

    assert turns(done) == [
        'user: 7 "summary"',
        "model: 2 call search#2 {} + 2 call search#3 {}",
        'user: 4 result search#2 {"result":"xx"} + 4 result search#3 {"result":"xx"}',
        'model: 5 "model 5"',
        'user: 6 "user 6"',
    ]
    assert repairs(done) == []


def test_failed_results_are_results() -> None:
    # software-agent-sdk#432
    done = stored("U C1 R1! A U")

    assert answers(done, "anthropic") == [("1", True)]
    assert repairs(done) == []


# What results hold


def test_results_keep_their_structure() -> None:
    # strands#95: results flattened into prose taught the model to invent calls.
    done = stored("U C1 R1:27j A U C2 R2:27j")
    bodies = request_of(compiled(done, "gemini"), FORMATS["gemini"])["contents"]

    rows = {"rows": [{"id": 0}, {"id": 1}, {"id": 2}]}
    assert str(bodies).count(str(rows)) == 2


def test_document_by_reference_keeps_its_location() -> None:
    # strands#4017: "0 bytes" took its place.
    done = stored("U C1 R1d A")
    (sent,) = [
        part
        for rendered in compiled(done, "native").rendered
        for part in responses(placed.part for placed in rendered.content.parts)
    ]

    assert sent.media == (FileData(file_uri="s3://bucket/report.pdf", mime_type="application/pdf"),)
    assert "s3://bucket/report.pdf" in str(request_of(compiled(done, "native"), FORMATS["native"]))


@pytest.mark.parametrize("name", ["gemini", "anthropic", "native"])
def test_event_of_results_alone_is_shown(name: str) -> None:
    # adk-python#2216
    done = stored("U C1 R1")

    assert len(compiled(done, name).rendered) == 3


# Long-running calls


def test_placeholder_and_final_result_are_one_answer() -> None:
    done = log(
        user("a"),
        call("ask", id="l", long_running_ids=frozenset({"l"})),
        response("l", name="ask", result={"status": "pending"}),
        response("l", name="ask", result={"status": "done"}),
    )

    assert turns(done)[-1] == 'user: 4 result ask#l {"status":"done"}'
    assert repairs(done) == [("replaced", 3)]


def test_call_is_restored_in_front_of_the_result_that_a_fold_left_alone() -> None:
    # adk-python#5602: the placeholder closed the call, and both were summarised away.
    done = log(
        user("a"),
        call("ask", id="l", long_running_ids=frozenset({"l"})),
        response("l", name="ask", result={"status": "pending"}),
        model("asked"),
        fold(1, 4),
        response("l", name="ask", result={"status": "done"}),
    )

    assert turns(done) == [
        'user: 5 "summary"',
        "model: 2 call ask#l {}",
        'user: 6 result ask#l {"status":"done"}',
    ]
    assert repairs(done) == []


def test_open_confirmation_stays_out_of_a_fold_and_is_answered_afterwards() -> None:
    # adk-python#4740
    ask = call("adk_request_confirmation", id="q1", invocation_id="i2")
    done = log(
        user("a", invocation_id="i1"),
        call("pay", id="c1", invocation_id="i2"),
        ask,
        response("c1", name="pay", requested_ids=frozenset({"c1"}), invocation_id="i2"),
        user("meanwhile", invocation_id="i3"),
        fold(1, 5),
        response("q1", name="adk_request_confirmation", author="user", invocation_id="i4"),
        response("c1", name="pay", result={"paid": True}, invocation_id="i4"),
    )

    live = [item.seq for item in done.events if done.index.is_live(item.seq)]
    assert live == [2, 3, 4, 7, 8]
    assert turns(done) == [
        'user: 6 "summary"',
        "model: 2 call pay#c1 {}",
        'user: 8 result pay#c1 {"paid":true}',
    ]


def test_text_of_the_user_beside_a_result_is_no_result() -> None:
    both = event(response_part("1"), text("and also"), author="user", role="user")
    done = log(user("a"), call("search", id="1"), both)

    assert turns(done)[-1] == 'user: 3 result search#1 {"result":"ok"} + 3 "and also"'
