"""Chat Completions: messages in, requests out, and what the provider refuses."""

import base64
import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

from app.core.canonical import Json
from app.core.compile.inputs import RenderedContent, RenderedPart
from app.core.contents import (
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    PlacedPart,
    Role,
    Text,
)
from app.core.copying import replace
from app.core.errors import InvalidEventError, InvalidInputError
from app.formats.adk import parse_event
from app.formats.openai_chat import OPENAI_CHAT, convert_item, validate
from tests.builders import call_part, image, response_part, text
from tests.closed_types import mismatches

PNG = "iVBORw0KGgo="


def convert(message: Json) -> dict[str, Any]:
    (event,) = convert_item(message, agent="bot")
    parse_event(event)
    return event


def parts_of(message: Json) -> tuple[Part, ...]:
    (event,) = convert_item(message, agent="bot")
    return parse_event(event).event.parts


def turn(role: Role, *parts: Part, response_seq: int | None = None) -> RenderedContent:
    """Render a content as the pipeline does: what the format does not say is left out."""
    placed = tuple(PlacedPart(part) for part in parts if OPENAI_CHAT.says(part, role))
    content = Content(role, placed, response_seq)
    rendered = (RenderedPart(one, OPENAI_CHAT.render_part(one.part, role)) for one in placed)
    return RenderedContent(content, tuple(rendered))


def messages_of(*turns: RenderedContent, system: str = "") -> Any:
    body = OPENAI_CHAT.render_request(turns, system=system, tools="", model="")
    return json.loads(body["messages"])


# Messages in


def test_user_message_is_the_users_event() -> None:
    assert convert({"role": "user", "content": "hi"}) == {
        "author": "user",
        "content": {"role": "user", "parts": [{"text": "hi"}]},
    }


def test_assistant_message_is_the_agents_event_and_its_id_names_the_response() -> None:
    event = convert({"role": "assistant", "content": "hello", "id": "chatcmpl-1"})
    assert event["author"] == "bot"
    assert event["content"] == {"role": "model", "parts": [{"text": "hello"}]}
    assert event["response_id"] == "chatcmpl-1"


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_message_stays_in_place_and_says_what_it_was(role: str) -> None:
    event = convert({"role": role, "content": "be brief"})
    assert event["author"] == event["content"]["role"] == "user"
    assert event["custom_metadata"] == {"source_role": role}


def test_name_of_a_speaker_is_kept() -> None:
    event = convert({"role": "assistant", "content": "hi", "name": "planner"})
    assert event["custom_metadata"] == {"source_name": "planner"}


def test_tool_message_answers_by_id_and_invents_no_name() -> None:
    event = convert({"role": "tool", "tool_call_id": "c1", "content": "[1, 2]"})
    assert event["author"] == "bot"
    assert event["content"]["role"] == "user"
    assert event["content"]["parts"] == [
        {"function_response": {"id": "c1", "name": "", "response": "[1, 2]"}}
    ]


def test_tool_message_without_id_pairs_by_name() -> None:
    (part,) = parts_of({"role": "function", "name": "search", "content": "found"})
    assert isinstance(part, FunctionResponse)
    assert (part.id, part.name, part.response_text) == (None, "search", "found")


def test_null_content_beside_calls_makes_no_text() -> None:
    message: Json = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    }
    assert [type(part) for part in parts_of(message)] == [FunctionCall]


def test_legacy_function_call_has_no_id() -> None:
    message: Json = {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a": 1}'}}
    (part,) = parts_of(message)
    assert part == FunctionCall(id=None, name="f", args='{"a":1}', args_text='{"a": 1}')


@pytest.mark.parametrize(
    ("arguments", "args", "args_text"),
    [
        ('{"a": 1}', '{"a":1}', '{"a": 1}'),
        ({"a": 1}, '{"a":1}', None),
        ({}, "{}", None),
        (None, "{}", None),
        ("", "{}", ""),
        ("{not json", '{"_raw":"{not json"}', "{not json"),
    ],
)
def test_arguments_of_every_kind_are_taken(
    arguments: Json, args: str, args_text: str | None
) -> None:
    call: Json = {"id": "c1", "function": {"name": "f", "arguments": arguments}}
    (part,) = parts_of({"role": "assistant", "tool_calls": [call]})
    assert isinstance(part, FunctionCall)
    assert (part.args, part.args_text) == (args, args_text)


def test_custom_tool_call_is_a_call_with_one_input() -> None:
    call: Json = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    (part,) = parts_of({"role": "assistant", "tool_calls": [call]})
    assert part == FunctionCall(id="c1", name="sql", args='{"input":"SELECT 1"}')


def test_reasoning_of_compatible_apis_is_a_thought_before_the_text() -> None:
    parts = parts_of({"role": "assistant", "reasoning_content": "hm", "content": "hi"})
    assert parts == (text("hm", thought=True), text("hi"))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "a"}, text("a")),
        ("a", text("a")),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            InlineData(mime_type="image/png", data=PNG),
        ),
        (
            {"type": "image_url", "image_url": "https://x.example/a.JPG?size=1"},
            FileData(file_uri="https://x.example/a.JPG?size=1", mime_type="image/jpeg"),
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://x.example/a"}},
            FileData(file_uri="https://x.example/a", mime_type="image/*"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
            InlineData(mime_type="audio/mpeg", data="AAAA"),
        ),
        (
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
            },
            InlineData(mime_type="application/pdf", data="AAAA", display_name="a.pdf"),
        ),
    ],
)
def test_content_parts_are_told_apart(part: Json, expected: Part) -> None:
    assert parts_of({"role": "user", "content": [part]}) == (expected,)


def test_content_that_is_one_part_is_taken_as_a_list_of_one() -> None:
    assert parts_of({"role": "user", "content": {"type": "text", "text": "a"}}) == (text("a"),)


def test_data_url_that_is_no_base64_becomes_base64() -> None:
    url = "data:text/plain,two%20words"
    (part,) = parts_of(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    )
    assert isinstance(part, InlineData)
    assert base64.b64decode(part.data) == b"two words"


def test_refusal_is_kept_verbatim_with_its_text_for_others() -> None:
    (part,) = parts_of({"role": "assistant", "content": None, "refusal": "no"})
    raw = '{"type":"refusal","refusal":"no"}'
    assert part == Opaque(provider="openai", type="refusal", raw=raw, text="no")


def test_unknown_part_is_kept_verbatim_without_cache_markers() -> None:
    block: Json = {"type": "hologram", "x": 1, "prompt_cache_breakpoint": {"mode": "explicit"}}
    (part,) = parts_of({"role": "user", "content": [block]})
    assert part == Opaque(provider="openai", type="hologram", raw='{"type":"hologram","x":1}')


def test_tool_message_of_parts_keeps_texts_and_media() -> None:
    content: Json = [
        {"type": "text", "text": "one"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "text", "text": "two"},
    ]
    (part,) = parts_of({"role": "tool", "tool_call_id": "c1", "content": content})
    assert isinstance(part, FunctionResponse)
    assert part.response_text == "one\ntwo"
    assert part.media == (InlineData(mime_type="image/png", data=PNG),)


def test_shapes_of_frameworks_are_read() -> None:
    image_url = f"data:image/png;base64,{PNG}"
    autogen: Json = {
        "role": "tool",
        "content": "1\n\n2",
        "tool_responses": [
            {"tool_call_id": "a", "role": "tool", "content": "1"},
            {"tool_call_id": "b", "role": "tool", "content": "2"},
        ],
    }
    swe_agent: Json = {"role": "tool", "content": "1", "tool_call_ids": ["a"]}
    inspect_call: Json = {"id": "a", "function": "go", "arguments": {"x": 1}}
    inspect_result: Json = {
        "role": "tool",
        "tool_call_id": "a",
        "function": "go",
        "content": [{"type": "image", "image": image_url}],
        "error": {"type": "timeout", "message": "too slow"},
    }
    one, two = parts_of(autogen)
    assert isinstance(one, FunctionResponse)
    assert isinstance(two, FunctionResponse)
    assert (one.id, one.response_text, two.id, two.response_text) == ("a", "1", "b", "2")
    (listed,) = parts_of(swe_agent)
    assert isinstance(listed, FunctionResponse)
    assert listed.id == "a"
    assert parts_of({"role": "assistant", "content": "", "tool_calls": [inspect_call]}) == (
        text(""),
        call_part("go", id="a", args={"x": 1}),
    )
    (failed,) = parts_of(inspect_result)
    assert isinstance(failed, FunctionResponse)
    assert (failed.name, failed.is_error, failed.media) == ("go", True, (image(PNG),))


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ("hi", ""),
        ({"content": "hi"}, "/role"),
        ({"role": "human", "content": "hi"}, "/role"),
        ({"role": "user", "content": 3}, "/content"),
        ({"role": "user", "content": [3]}, "/content/0"),
        ({"role": "user", "content": [{"text": "a"}]}, "/content/0/type"),
        ({"role": "user", "content": [{"type": "text"}]}, "/content/0/text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "/content/0/image_url"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "/content/0/input_audio"),
        ({"role": "assistant", "tool_calls": {}}, "/tool_calls"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "/tool_calls/0/function"),
        ({"role": "assistant", "tool_calls": [{"id": 1, "function": {}}]}, "/tool_calls/0/id"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]},
            "/tool_calls/0/function/name",
        ),
        ({"role": "assistant", "content": "a", "id": 5}, "/id"),
        ({"role": "tool", "tool_call_id": 5, "content": ""}, "/tool_call_id"),
    ],
)
def test_what_is_no_message_is_refused_at_its_place(message: Json, pointer: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        convert_item(message, agent="bot")
    assert caught.value.pointer == pointer


def test_message_nested_beyond_reason_is_refused() -> None:
    deep: Json = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidEventError, match="nested"):
        convert_item({"role": "user", "content": deep}, agent="bot")


# Requests out


def test_lone_text_is_a_string_and_several_are_parts() -> None:
    assert messages_of(turn("user", text("a")), turn("user", text("b"), text("c"))) == [
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
    ]


def test_system_text_is_the_first_message() -> None:
    sent = messages_of(turn("user", text("a")), system="be brief")
    assert sent[0] == {"role": "system", "content": "be brief"}


def test_nothing_to_send_is_an_empty_list_without_tools() -> None:
    request = OPENAI_CHAT.render_request([], system="", tools="", model="")
    assert request == {"messages": "[]"}


def test_calls_of_one_response_are_one_message_answered_one_by_one() -> None:
    sent = messages_of(
        turn("model", text("looking"), call_part("f", id="a"), response_seq=2),
        turn("model", call_part("g", id="b"), response_seq=2),
        turn("user", response_part("a", result={"x": 1})),
        turn("user", response_part("b", result={"y": 2})),
    )
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool"]
    assert [one["id"] for one in sent[0]["tool_calls"]] == ["a", "b"]
    assert sent[0]["content"] == "looking"
    assert [one["tool_call_id"] for one in sent[1:]] == ["a", "b"]


def test_two_responses_stay_two_messages() -> None:
    sent = messages_of(
        turn("model", text("a"), response_seq=1), turn("model", text("b"), response_seq=2)
    )
    assert [message["content"] for message in sent] == ["a", "b"]


@pytest.mark.parametrize(
    "arguments",
    ['{"b": 1,  "a": 2}', '{"n": 123456789012345678901234567890}', '{"a":1,"a":2}', "[1]", "null"],
)
def test_arguments_that_are_json_travel_byte_for_byte(arguments: str) -> None:
    part = FunctionCall(id="a", name="f", args="{}", args_text=arguments)
    (message,) = messages_of(turn("model", part))
    assert message["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.parametrize("arguments", ["{not json", "", '{"a":NaN}', "[" * 100_000])
def test_arguments_that_are_no_json_are_wrapped(arguments: str) -> None:
    part = FunctionCall(id="a", name="f", args='{"_raw":"x"}', args_text=arguments)
    (message,) = messages_of(turn("model", part))
    assert message["tool_calls"][0]["function"]["arguments"] == '{"_raw":"x"}'


def test_result_sent_as_text_travels_as_it_was() -> None:
    part = FunctionResponse(
        id="a", name="f", response='{"output":" 1 "}', response_text='{"a" : 1}'
    )
    assert messages_of(turn("user", part))[0]["content"] == '{"a" : 1}'


def test_failed_result_says_so_in_its_content() -> None:
    sent = FunctionResponse(
        id="a", name="f", response="{}", response_text="no such file", is_error=True
    )
    structured = FunctionResponse(id="b", name="f", response='{"status":404}', is_error=True)
    contents = [json.loads(one["content"]) for one in messages_of(turn("user", sent, structured))]
    assert contents == [{"error": "no such file"}, {"error": {"status": 404}}]


def test_media_and_words_wait_for_the_last_result_of_the_run() -> None:
    first = replace(response_part("a", name="look"), media=(image(PNG),))
    sent = messages_of(
        turn("model", call_part("look", id="a"), call_part("f", id="b"), response_seq=1),
        turn("user", first, text("by the way")),
        turn("user", response_part("b")),
        turn("user", text("next")),
    )
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "user"]
    shown = sent[3]["content"]
    assert [part["type"] for part in shown] == ["text", "image_url", "text"]
    assert shown[0]["text"] == "[attached to the result of look]"
    assert shown[1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    assert shown[2]["text"] == "by the way"


def test_media_of_a_result_that_has_no_place_is_told() -> None:
    video = InlineData(mime_type="video/mp4", data="AAAA", display_name="clip.mp4")
    sent = messages_of(turn("user", replace(response_part("a"), media=(video,))))
    assert "clip.mp4 left out" in sent[1]["content"][1]["text"]


def test_rest_of_a_delta_is_what_the_whole_ended_with() -> None:
    turns = (
        turn("user", text("go")),
        turn("model", call_part("f", id="a"), response_seq=2),
        turn("user", replace(response_part("a"), media=(image(PNG),))),
        turn("model", text("done"), response_seq=4),
        turn("user", text("thanks")),
    )
    whole = messages_of(*turns)
    assert whole[-2:] == messages_of(*turns[3:])


@pytest.mark.parametrize(
    "part",
    [
        text("hm", thought=True),
        text("  \n"),
        Text(text="", signature="AAAA", signed_by="gemini"),
        InlineData(mime_type="video/mp4", data="AAAA"),
        InlineData(mime_type="image/tiff", data="AAAA"),
        FileData(file_uri="gs://bucket/a.png", mime_type="image/png"),
        FileData(file_uri="https://x.example/a.pdf", mime_type="application/pdf"),
        Opaque(provider="anthropic", type="redacted_thinking", raw="{}", thought=True),
        Opaque(provider="gemini", type="tool_call", raw="{}"),
        response_part("a"),
    ],
)
def test_what_has_no_place_in_a_model_turn_is_not_said(part: Part) -> None:
    assert not OPENAI_CHAT.says(part, "model")


def test_model_made_media_is_not_said_and_the_users_is() -> None:
    assert not OPENAI_CHAT.says(image(PNG), "model")
    assert OPENAI_CHAT.says(image(PNG), "user")


def test_call_is_said_even_when_it_is_marked_as_a_thought() -> None:
    assert OPENAI_CHAT.says(replace(call_part("f", id="a"), thought=True), "model")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (image(PNG), {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}),
        (
            FileData(file_uri="https://x.example/a.png"),
            {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        ),
        (
            InlineData(mime_type="audio/x-wav", data="AAAA"),
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ),
        (
            InlineData(mime_type="application/pdf", data="AAAA"),
            {
                "type": "file",
                "file": {
                    "file_data": "data:application/pdf;base64,AAAA",
                    "filename": "document.pdf",
                },
            },
        ),
        (
            InlineData(mime_type="text/csv; charset=utf-8", data=base64.b64encode(b"a,b").decode()),
            {"type": "text", "text": "a,b"},
        ),
        (
            ExecutableCode(code="1+1", language="PYTHON"),
            {"type": "text", "text": "```python\n1+1\n```"},
        ),
        (
            CodeExecutionResult(outcome="OUTCOME_OK", output="2"),
            {"type": "text", "text": "OUTCOME_OK\n```\n2\n```"},
        ),
        (
            Opaque(provider="anthropic", type="search_result", raw="{}", text="told"),
            {"type": "text", "text": "told"},
        ),
        (
            Opaque(provider="openai", type="file", raw='{"type":"file","file":{"file_id":"f"}}'),
            {"type": "file", "file": {"file_id": "f"}},
        ),
    ],
)
def test_part_takes_the_providers_shape(part: Part, expected: Json) -> None:
    assert OPENAI_CHAT.says(part, "user")
    assert json.loads(OPENAI_CHAT.render_part(part, "user")) == expected


def test_refusal_returns_to_the_assistant_verbatim() -> None:
    part = Opaque(
        provider="openai", type="refusal", raw='{"type":"refusal","refusal":"no"}', text="no"
    )
    (message,) = messages_of(turn("model", part))
    assert message == {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    (told,) = messages_of(turn("user", part))
    assert told == {"role": "user", "content": "no"}


@pytest.mark.parametrize(
    "raw",
    ["5", '{"type":"text","text":"a"}', '{"type":"file","file":{}}', '{"type":"file"}'],
)
def test_opaque_part_that_would_break_a_rule_is_not_verbatim(raw: str) -> None:
    part = Opaque(provider="openai", type="file", raw=raw)
    assert not OPENAI_CHAT.says(part, "user")
    assert messages_of(turn("user", replace(part, text="told"))) == [
        {"role": "user", "content": "told"}
    ]


def test_what_is_not_said_is_left_out_of_the_request_even_when_it_was_rendered() -> None:
    parts = (text("hm", thought=True), text("said"), InlineData(mime_type="video/mp4", data="A"))
    placed = tuple(PlacedPart(part) for part in parts)
    forced = tuple(RenderedPart(one, OPENAI_CHAT.render_part(one.part, "model")) for one in placed)
    assert messages_of(RenderedContent(Content("model", placed), forced)) == [
        {"role": "assistant", "content": "said"}
    ]


def test_id_that_fits_is_emitted_as_it_is_and_long_ones_stay_apart() -> None:
    assert OPENAI_CHAT.emit_id("call 1:ä") == "call 1:ä"
    one, other = OPENAI_CHAT.emit_id("x" * 50 + "1"), OPENAI_CHAT.emit_id("x" * 50 + "2")
    assert len(one) == len(other) == 40
    assert one != other
    assert OPENAI_CHAT.emit_id("")


def test_name_outside_the_charset_is_mapped() -> None:
    (message,) = messages_of(turn("model", call_part("functions.search", id="a")))
    name = message["tool_calls"][0]["function"]["name"]
    assert name.startswith("functions_search_")
    assert name != "functions_search_"


def test_tools_of_ours_and_of_the_provider_are_accepted() -> None:
    ours = {"name": "f", "description": "does", "parameters": {"type": "object", "properties": {}}}
    theirs = {"type": "function", "function": {"name": "g", "strict": True}}
    tools = json.loads(OPENAI_CHAT.render_tools([json.dumps(ours), json.dumps(theirs)]))
    assert tools == [{"type": "function", "function": ours}, theirs]
    assert mismatches(tools, list[ChatCompletionFunctionToolParam]) == []


@pytest.mark.parametrize("schema", [{"type": "object"}, {}, {"additionalProperties": False}])
def test_a_schema_of_an_object_says_its_properties(schema: Json) -> None:
    (tool,) = json.loads(
        OPENAI_CHAT.render_tools([json.dumps({"name": "f", "parameters": schema})])
    )
    assert tool["function"]["parameters"]["type"] == "object"
    assert tool["function"]["parameters"]["properties"] == {}


def test_tools_stand_beside_the_messages() -> None:
    tools = OPENAI_CHAT.render_tools(['{"name":"f"}'])
    request = OPENAI_CHAT.render_request([], system="", tools=tools, model="")
    assert json.loads(request["tools"])[0]["function"]["name"] == "f"


def test_tool_without_a_name_is_refused_at_its_place() -> None:
    with pytest.raises(InvalidInputError) as caught:
        OPENAI_CHAT.render_tools(['{"name":"f"}', "{}"])
    assert caught.value.pointer == "/tools/1/name"


# Every golden content against the SDK's own types


def golden_turns() -> list[RenderedContent]:
    return [
        turn("user", text("look"), image(PNG), InlineData(mime_type="audio/wav", data="AAAA")),
        turn(
            "model",
            text("hm", thought=True),
            call_part("look", id="a", args={"x": 1}),
            call_part("f", id="b"),
            response_seq=2,
        ),
        turn("user", replace(response_part("a"), media=(image(PNG),))),
        turn("user", replace(response_part("b"), is_error=True)),
        turn("model", text("done"), text("really"), response_seq=5),
        turn("user", InlineData(mime_type="application/pdf", data="AAAA"), text("and this?")),
        turn(
            "model",
            Opaque(
                provider="openai",
                type="refusal",
                raw='{"type":"refusal","refusal":"no"}',
                text="no",
            ),
            response_seq=7,
        ),
        turn("user", FileData(file_uri="https://x.example/a.png", mime_type="image/png")),
    ]


def test_golden_request_has_the_sdks_shape_and_breaks_no_rule() -> None:
    messages = messages_of(*golden_turns(), system="be brief")
    assert mismatches(messages, list[ChatCompletionMessageParam]) == []
    assert validate({"messages": messages}, model="gpt-5") == ()


def test_closed_types_notice_a_misspelt_key() -> None:
    wrong = [{"role": "tool", "tool_call_id": "a", "content": "x", "tool_name": "f"}]
    assert mismatches(wrong, list[ChatCompletionMessageParam]) == ["/0/tool_name: unknown key"]


# What the provider refuses

ASSISTANT: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ],
}
RESULT_A: dict[str, Any] = {"role": "tool", "tool_call_id": "a", "content": "1"}
RESULT_B: dict[str, Any] = {"role": "tool", "tool_call_id": "b", "content": ""}
USER: dict[str, Any] = {"role": "user", "content": "go"}


def called(**changes: Any) -> dict[str, Any]:
    """Return an assistant message with one call, some of its fields changed."""
    function = {"name": "f", "arguments": "{}"}
    function.update({key: changes.pop(key) for key in ("name", "arguments") if key in changes})
    call = {"id": "a", "type": "function", "function": function, **changes}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def said(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


def marked(count: int, role: str = "user") -> dict[str, Any]:
    breakpoint_ = {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}
    return said(*[breakpoint_] * count, role=role)


def test_valid_requests_break_nothing() -> None:
    legacy: Json = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    messages: list[Json] = [
        {"role": "developer", "content": "be brief"},
        USER,
        USER,
        ASSISTANT,
        RESULT_B,
        RESULT_A,
        USER,
        legacy,
        {"role": "function", "name": "f", "content": "1"},
        marked(4),
        {"role": "assistant", "content": "end"},
    ]
    tools: list[Json] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert validate({"messages": messages, "tools": tools}) == ()


@pytest.mark.parametrize(
    ("messages", "rule", "path"),
    [
        (None, "shape", "/messages"),
        ([], "messages_not_empty", "/messages"),
        (["hi"], "shape", "/messages/0"),
        ([{"role": "model", "content": "a"}], "role_known", "/messages/0/role"),
        ([{"role": "user"}], "content_present", "/messages/0/content"),
        ([{"role": "assistant"}], "content_present", "/messages/0/content"),
        ([{"role": "user", "content": []}], "content_present", "/messages/0/content"),
        ([{"role": "user", "content": {}}], "shape", "/messages/0/content"),
        ([{"role": "user", "content": ""}], "text_not_empty", "/messages/0/content"),
        (
            [said({"type": "text", "text": ""})],
            "text_not_empty",
            "/messages/0/content/0/text",
        ),
        ([said({"type": "text"})], "shape", "/messages/0/content/0/text"),
        ([said("a")], "shape", "/messages/0/content/0"),
        ([said({"type": "refusal", "refusal": "a"})], "part_fits_role", "/messages/0/content/0"),
        (
            [said({"type": "image_url", "image_url": {"url": "https://a"}}, role="assistant")],
            "part_fits_role",
            "/messages/0/content/0",
        ),
        (
            [called(), {**RESULT_A, "content": [{"type": "image_url"}]}],
            "part_fits_role",
            "/messages/1/content/0",
        ),
        (
            [said({"type": "image_url", "image_url": {"url": "gs://a"}})],
            "media_accepted",
            "/messages/0/content/0/image_url/url",
        ),
        (
            [said({"type": "image_url", "image_url": {"url": "data:image/tiff;base64,AAAA"}})],
            "media_accepted",
            "/messages/0/content/0/image_url/url",
        ),
        (
            [said({"type": "image_url", "image_url": "https://a"})],
            "shape",
            "/messages/0/content/0/image_url",
        ),
        (
            [said({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "ogg"}})],
            "media_accepted",
            "/messages/0/content/0/input_audio",
        ),
        ([said({"type": "file", "file": {}})], "media_accepted", "/messages/0/content/0/file"),
        ([{**USER, "tool_calls": []}], "calls_by_assistant", "/messages/0/tool_calls"),
        (
            [{"role": "assistant", "content": "a", "tool_calls": []}],
            "calls_not_empty",
            "/messages/0/tool_calls",
        ),
        ([called(id=""), USER], "call_id_present", "/messages/0/tool_calls/0/id"),
        (
            [called(id="x" * 41), {**RESULT_A, "tool_call_id": "x" * 41}],
            "call_id_length",
            "/messages/0/tool_calls/0/id",
        ),
        (
            [{**ASSISTANT, "tool_calls": ASSISTANT["tool_calls"][:1] * 2}, RESULT_A],
            "call_id_unique",
            "/messages/0/tool_calls/1/id",
        ),
        (
            [called(name="a.b"), RESULT_A],
            "function_name",
            "/messages/0/tool_calls/0/function/name",
        ),
        (
            [called(arguments="{"), RESULT_A],
            "arguments_are_json_text",
            "/messages/0/tool_calls/0/function/arguments",
        ),
        (
            [called(arguments={}), RESULT_A],
            "arguments_are_json_text",
            "/messages/0/tool_calls/0/function/arguments",
        ),
        ([called(type="mystery"), RESULT_A], "shape", "/messages/0/tool_calls/0"),
        ([ASSISTANT, RESULT_A], "call_answered", "/messages/0/tool_calls/1"),
        ([ASSISTANT, RESULT_A, USER, RESULT_B], "call_answered", "/messages/0/tool_calls/1"),
        ([ASSISTANT, RESULT_A, USER, RESULT_B], "result_has_call", "/messages/3/tool_call_id"),
        ([USER, RESULT_A], "result_has_call", "/messages/1/tool_call_id"),
        (
            [ASSISTANT, RESULT_A, RESULT_A, RESULT_B],
            "call_answered_once",
            "/messages/2/tool_call_id",
        ),
        ([USER, {"role": "function", "name": "f"}], "result_has_call", "/messages/1"),
        (
            [marked(5)],
            "breakpoint_count",
            "/messages/0/content/4/prompt_cache_breakpoint",
        ),
        (
            [marked(1, role="assistant")],
            "breakpoint_place",
            "/messages/0/content/0/prompt_cache_breakpoint",
        ),
    ],
)
def test_wrong_request_breaks_its_rule(messages: Json, rule: str, path: str) -> None:
    violations = validate({"messages": messages}, model="gpt-5")
    assert (rule, path) in [(one.rule, one.path) for one in violations]


@pytest.mark.parametrize(
    ("tools", "rule", "path"),
    [
        ([], "tools_not_empty", "/tools"),
        (["f"], "shape", "/tools/0"),
        ([{"name": "f"}], "shape", "/tools/0"),
        ([{"type": "function", "function": {"name": "a b"}}], "function_name", None),
        (
            [{"type": "function", "function": {"name": "f", "parameters": []}}],
            "tool_schema",
            "/tools/0/function/parameters",
        ),
        (
            [{"type": "function", "function": {"name": "f"}}] * 2,
            "tool_name_unique",
            "/tools/1/function/name",
        ),
    ],
)
def test_wrong_tools_break_their_rule(tools: Json, rule: str, path: str | None) -> None:
    (violation,) = validate({"messages": [USER], "tools": tools})
    assert violation.rule == rule
    assert path in (None, violation.path)


@pytest.mark.parametrize("request_", [None, [], "x", {}, {"messages": {"role": "user"}}])
def test_what_is_no_request_is_told_and_never_raises(request_: Json) -> None:
    assert [one.rule for one in validate(request_)] == ["shape"]
