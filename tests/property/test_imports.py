"""Whatever JSON is sent as an item or a request: an event or a clear refusal, never a crash."""

import copy
import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.canonical import Json
from app.core.errors import InvalidEventError
from app.formats import CONVERTERS, VALIDATORS
from app.formats.adk import parse_event
from tests.compiling import HISTORIES, append, compile_for, violations_of

_IMAGE: Final = "data:image/png;base64,iVBORw0KGgo="
_MESSAGES: Final[dict[str, list[Any]]] = {
    "openai_chat": [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": _IMAGE}}]},
        {
            "role": "user",
            "content": [{"type": "file", "file": {"file_data": "AA", "filename": "a"}}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ],
    "anthropic": [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {
            "role": "assistant",
            "id": "m",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "server_tool_use", "id": "s", "name": "n", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [
                        {"type": "image", "source": {"type": "url", "url": "https://x.example"}},
                        {"type": "document", "source": {"type": "text", "data": "a"}},
                    ],
                }
            ],
        },
    ],
    "openai_responses": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": _IMAGE}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "b", "name": "f", "input": "a"},
        {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "1"},
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_file", "file_data": "AA", "filename": "a"}],
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "a"},
                {"type": "refusal", "refusal": "no"},
            ],
        },
        {"id": "resp_1", "output": [{"type": "compaction", "encrypted_content": "x"}]},
        {"type": "response_item", "payload": {"role": "user", "content": "a"}},
    ],
    "bedrock": [
        {
            "role": "user",
            "content": [
                {"text": "a"},
                {"document": {"format": "pdf", "name": "a", "source": {"bytes": "AAAA"}}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
                {"reasoningContent": {"redactedContent": "AAAA"}},
                {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "a",
                        "status": "error",
                        "content": [
                            {"json": {"a": 1}},
                            {"image": {"format": "png", "source": {"bytes": "AAAA"}}},
                        ],
                    }
                },
                {"guardContent": {"text": {"text": "a"}}},
            ],
        },
        {"output": {"message": {"role": "assistant", "content": [{"text": "a"}]}}},
    ],
}
_VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(
        ("text", "user", "assistant", "tool", "tool_use", "tool_result", "https://a")
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("role", "content", "type", "text", "id", "source", "function", "toolUse", "json")
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
formats = pytest.mark.parametrize("name", sorted(_MESSAGES))


@formats
@given(data=st.data())
def test_changed_messages_are_appended_or_refused_and_what_is_appended_compiles(
    name: str, data: st.DataObject
) -> None:
    messages = data.draw(_changed(_MESSAGES[name]))
    parsed = []
    for message in messages if isinstance(messages, list) else [messages]:
        try:
            parsed += [parse_event(event) for event in CONVERTERS[name](message, agent="agent")]
        except InvalidEventError:
            continue
    log = append(parsed)
    for target in VALIDATORS:
        result = compile_for(log, target)
        if result.rendered:
            assert violations_of(result, target) == ()


@formats
@given(data=st.data())
def test_any_changed_request_is_validated_without_an_exception(
    name: str, data: st.DataObject
) -> None:
    request: Json = {
        HISTORIES[name]: _MESSAGES[name],
        "system": [],
        "tools": [{"name": "f"}],
        "toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]},
    }
    for violation in VALIDATORS[name](data.draw(_changed(request)), model=""):
        assert violation.rule
        assert violation.path == "" or violation.path.startswith("/")


@st.composite
def _changed(draw: st.DrawFn, value: Any) -> Any:
    """Draw the value with some of its nodes replaced by others or left out."""
    holder = {"": copy.deepcopy(value)}
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(holder))
        place, key = draw(st.sampled_from(places))
        if draw(st.booleans()) or place is holder:
            place[key] = draw(_VALUES)
        else:
            del place[key]
    return json.loads(json.dumps(holder[""]))


def _places(value: Any) -> Any:
    """Yield each node as the object or list that holds it, and its key there."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield value, key
            yield from _places(item)
