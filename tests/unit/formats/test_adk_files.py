"""Items of ADK's files become native events."""

import json
from pathlib import Path

import pytest

from app.core.canonical import Json
from app.core.errors import InvalidEventError
from app.formats.adk import convert_item, parse_event


def said(item: Json) -> list[tuple[str, list[str]]]:
    """Return author and part kinds of each event."""
    events = [parse_event(event).event for event in convert_item(item, agent="bot")]
    return [(event.author, [type(part).__name__ for part in event.parts]) for event in events]


def test_event_is_its_own_item() -> None:
    event: Json = {"author": "user", "content": "hi"}
    assert convert_item(event, agent="bot") == [event]


def test_session_gives_its_events() -> None:
    events: list[Json] = [{"author": "user", "content": "hi"}, {"author": "a", "content": "ho"}]
    assert convert_item({"id": "s", "appName": "x", "events": events}, agent="bot") == events


def test_evaluated_invocation_gives_question_calls_results_and_answer() -> None:
    invocation: Json = {
        "invocationId": "i",
        "userContent": {"parts": [{"text": "q"}]},
        "intermediateData": {
            "toolUses": [{"name": "f", "args": {}}, {"name": "g", "id": None, "args": None}],
            "toolResponses": [{"name": "f", "response": {}}],
            "intermediateResponses": [["helper", [{"text": "on it"}]]],
        },
        "finalResponse": {"role": "model", "parts": [{"text": "a"}]},
    }
    item: Json = {"evalCases": [{"evalId": "e", "conversation": [invocation]}]}
    assert said(item) == [
        ("user", ["Text"]),
        ("bot", ["FunctionCall", "FunctionCall"]),
        ("bot", ["FunctionResponse"]),
        ("helper", ["Text"]),
        ("bot", ["Text"]),
    ]
    assert {event["invocation_id"] for event in convert_item(item, agent="bot")} == {"i"}


def test_invocation_events_are_taken_as_they_are() -> None:
    steps: Json = [{"author": "a", "content": {"role": "model", "parts": [{"text": "x"}]}}]
    item: Json = {
        "user_content": {"parts": [{"text": "q"}]},
        "intermediate_data": {"invocation_events": steps},
    }
    assert said(item) == [("user", ["Text"]), ("a", ["Text"])]


def test_first_form_gives_question_calls_and_answer() -> None:
    turn: Json = {
        "query": "q",
        "expected_tool_use": [{"tool_name": "f", "tool_input": {"a": 1}}],
        "expected_intermediate_agent_responses": [{"author": "helper", "text": "on it"}],
        "reference": "a",
    }
    expected = [
        ("user", ["Text"]),
        ("bot", ["FunctionCall"]),
        ("helper", ["Text"]),
        ("bot", ["Text"]),
    ]
    assert said(turn) == expected
    assert said({"name": "set", "data": [turn]}) == expected


@pytest.mark.parametrize(
    ("item", "pointer"),
    [
        ([], ""),
        ({"events": {}}, "/events"),
        ({"events": ["x"]}, "/events/0"),
        ({"evalCases": [{"conversation": [{"query": "q", "expected_tool_use": [3]}]}]}, None),
    ],
)
def test_wrong_item_is_named(item: Json, pointer: str | None) -> None:
    with pytest.raises(InvalidEventError) as caught:
        convert_item(item, agent="bot")
    nested = "/evalCases/0/conversation/0/expected_tool_use/0"
    assert caught.value.pointer == (nested if pointer is None else pointer)


def test_real_files_are_read_without_loss(shared_data: Path) -> None:
    for path in sorted((shared_data / "adk").glob("*.json")):
        content = json.loads(path.read_text())
        for item in content if isinstance(content, list) else [content]:
            events = convert_item(item, agent="bot")
            assert events, path.name
            for event in events:
                parsed = parse_event(event).event
                sent = event.get("content")
                parts = sent.get("parts") or [] if isinstance(sent, dict) else []
                assert isinstance(parts, list)
                assert len(parsed.parts) == len(parts), path.name
