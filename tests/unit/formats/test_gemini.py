"""Gemini: contents and responses in, requests out, and what the provider refuses."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from app.core.canonical import Json, canonical_json
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
from app.core.events import Event
from app.formats.adk import parse_event, parse_part
from app.formats.gemini import GEMINI, convert_item, validate
from tests.compiling import append_items, compile_for, violations_of

CALL = FunctionCall(id=None, name="f", args='{"a":1}')
RESPONSE = FunctionResponse(id=None, name="f", response='{"output":"x"}')


def events_of(item: Json) -> list[Event]:
    return [parse_event(event).event for event in convert_item(item, agent="bot")]


def rendered(part: Part, role: Role = "model") -> Any:
    return json.loads(GEMINI.render_part(part, role))


def turn(role: Role, *parts: Part) -> RenderedContent:
    placed = tuple(PlacedPart(part) for part in parts)
    texts = (RenderedPart(one, GEMINI.render_part(one.part, role)) for one in placed)
    return RenderedContent(Content(role, placed), tuple(texts))


# Contents and responses in


def test_content_of_the_user_is_the_users_event() -> None:
    (event,) = events_of({"role": "user", "parts": [{"text": "hi"}]})
    assert (event.author, event.role, event.parts) == ("user", "user", (Text(text="hi"),))


def test_content_of_the_model_is_the_agents_event() -> None:
    (event,) = events_of({"role": "model", "parts": [{"functionCall": {"name": "f"}}]})
    assert (event.author, event.role) == ("bot", "model")


@pytest.mark.parametrize("role", ["user", "function"])
def test_results_are_authored_by_the_agent(role: str) -> None:
    part: Json = {"functionResponse": {"name": "f", "response": {}}}
    (event,) = events_of({"role": role, "parts": [part]})
    assert (event.author, event.role) == ("bot", "user")


def test_content_that_mixes_results_with_words_is_one_event_for_each_run() -> None:
    part: Json = {"functionResponse": {"name": "f", "response": {}}}
    events = events_of({"role": "user", "parts": [part, part, {"text": "and?"}]})
    assert [(event.author, len(event.parts)) for event in events] == [("bot", 2), ("user", 1)]


def test_content_without_role_is_the_users() -> None:
    assert [event.author for event in events_of({"parts": [{"text": "hi"}]})] == ["user"]


def test_contents_of_a_request_are_its_events() -> None:
    contents: Json = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"text": "ho"}]},
    ]
    assert [event.author for event in events_of({"contents": contents})] == ["user", "bot"]


def chunk(*parts: Json, **fields: Json) -> dict[str, Json]:
    candidate: Json = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate], **fields}


def test_response_is_one_event_with_what_it_reports() -> None:
    item = chunk(
        {"text": "ho"}, usageMetadata={"promptTokenCount": 3}, responseId="r1", modelVersion="g"
    )
    (native,) = convert_item(item, agent="bot")
    assert native["usage_metadata"] == {"promptTokenCount": 3}
    assert native["model_version"] == "g"
    event = parse_event(native).event
    assert (event.author, event.role, event.response_id) == ("bot", "model", "r1")


def test_chunks_of_a_stream_are_one_event_with_joined_text() -> None:
    thought: Json = {"text": "hm", "thought": True}
    chunks: list[Json] = [
        chunk(thought),
        chunk({"text": "\n", "thought": True}),
        chunk({"text": "I will"}, usageMetadata={"promptTokenCount": 1}),
        chunk({"text": " go"}, usageMetadata={"promptTokenCount": 2}),
    ]
    recorded: Json = {"method": "generateContentStream", "response": chunks}
    items: list[Json] = [chunks, recorded]
    for item in items:
        (event,) = events_of(item)
        assert event.parts == (Text(text="hm\n", thought=True), Text(text="I will go"))
        assert convert_item(item, agent="bot")[0]["usage_metadata"] == {"promptTokenCount": 2}


def test_signed_pieces_of_a_stream_are_not_joined() -> None:
    signed: Json = {"text": " go", "thoughtSignature": "c2ln"}
    (event,) = events_of([chunk({"text": "I"}), chunk(signed), chunk({"text": "!"})])
    assert [part.signature for part in event.parts] == [None, "c2ln", None]


def test_pieces_within_one_chunk_stay_apart() -> None:
    (event,) = events_of(chunk({"text": "a"}, {"text": "b"}))
    assert event.parts == (Text(text="a"), Text(text="b"))


def test_response_without_content_keeps_why() -> None:
    stopped: Json = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}
    blocked: Json = {"promptFeedback": {"blockReason": "SAFETY"}}
    assert [event.error_code for event in events_of(stopped)] == ["MALFORMED_FUNCTION_CALL"]
    assert [event.error_code for event in events_of(blocked)] == ["SAFETY"]
    assert [event.role for event in events_of(stopped)] == [None]


def test_joining_leaves_the_item_untouched() -> None:
    item: list[Json] = [chunk({"text": "a"}), chunk({"text": "b"})]
    before = deepcopy(item)
    convert_item(item, agent="bot")
    assert item == before


@pytest.mark.parametrize(
    ("item", "pointer"),
    [
        ("hi", ""),
        (None, ""),
        ({"role": "assistant", "parts": []}, "/role"),
        ({"role": "user", "parts": {}}, "/parts"),
        ({"role": "user", "parts": [], "content": "x"}, "/content"),
        ({"contents": [{"role": "user"}, 3]}, "/contents/1"),
        ({"candidates": {}}, "/candidates"),
        ({"candidates": ["x"]}, "/candidates/0"),
        ({"response": [{}, {"candidates": [{"content": []}]}]}, None),
    ],
)
def test_wrong_item_is_named(item: Json, pointer: str | None) -> None:
    with pytest.raises(InvalidEventError) as caught:
        convert_item(item, agent="bot")
    nested = "/response/1/candidates/0/content"
    assert caught.value.pointer == (nested if pointer is None else pointer)


def test_real_streams_are_read_without_loss(shared_data: Path) -> None:
    for path in sorted((shared_data / "gemini-api-stream").glob("*.responses")):
        for line in path.read_text().splitlines():
            (event,) = events_of(json.loads(line))
            signed = sum(part.signature is not None for part in event.parts)
            assert signed == line.count('"thoughtSignature"'), path.name
            assert len(event.calls) == line.count('"functionCall"'), path.name
            assert event.parts or event.error_code or "STOP" in line, path.name


# Requests out

SHAPES: list[tuple[Part, Json]] = [
    (Text(text="hi"), {"text": "hi"}),
    (Text(text="hm", thought=True), {"text": "hm", "thought": True}),
    (
        Text(text="", signature="a_b-", signed_by="gemini"),
        {"text": "", "thoughtSignature": "a_b-"},
    ),
    (
        FunctionCall(id="c1", name="f", args='{"a":1}', signature="c2ln", signed_by="gemini"),
        {
            "functionCall": {"id": "c1", "name": "f", "args": {"a": 1}},
            "thoughtSignature": "c2ln",
        },
    ),
    (CALL, {"functionCall": {"name": "f", "args": {"a": 1}}}),
    (RESPONSE, {"functionResponse": {"name": "f", "response": {"output": "x"}}}),
    (
        FunctionResponse(
            id="c1",
            name="f",
            response="{}",
            media=(InlineData(mime_type="image/png", data="AAAA", display_name="a.png"),),
        ),
        {
            "functionResponse": {
                "id": "c1",
                "name": "f",
                "response": {},
                "parts": [
                    {
                        "inlineData": {
                            "mimeType": "image/png",
                            "data": "AAAA",
                            "displayName": "a.png",
                        }
                    }
                ],
            }
        },
    ),
    (
        InlineData(mime_type="image/png", data="AAAA", display_name="a.png"),
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
    ),
    (
        FileData(file_uri="gs://a/b", mime_type="video/mp4"),
        {"fileData": {"fileUri": "gs://a/b", "mimeType": "video/mp4"}},
    ),
    (
        ExecutableCode(code="1", language="PYTHON"),
        {"executableCode": {"language": "PYTHON", "code": "1"}},
    ),
    (
        CodeExecutionResult(outcome="OUTCOME_OK", output="1"),
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
    ),
    (
        Text(text="v", extra='{"video_metadata":{"start_offset":"1s"},"part_metadata":{"a_b":1}}'),
        {"text": "v", "videoMetadata": {"startOffset": "1s"}, "partMetadata": {"a_b": 1}},
    ),
]


@pytest.mark.parametrize(("part", "shape"), SHAPES, ids=repr)
def test_part_has_the_providers_shape(part: Part, shape: Json) -> None:
    assert rendered(part) == shape
    types.Part.model_validate(shape)


@pytest.mark.parametrize("shape", [shape for _, shape in SHAPES], ids=repr)
def test_providers_part_comes_back_as_it_was(shape: Json) -> None:
    (read,) = parse_part(shape)
    assert rendered(read) == shape


def test_server_side_tool_is_echoed() -> None:
    shape: Json = {"toolCall": {"id": "t", "args": {"q": 1}}, "thoughtSignature": "c2ln"}
    (part,) = parse_part(shape)
    assert GEMINI.says(part, "model")
    assert rendered(part) == shape


def test_signature_of_another_provider_is_not_sent() -> None:
    part = Text(text="hi", signature="c2ln", signed_by="anthropic")
    assert rendered(part) == {"text": "hi"}
    call = FunctionCall(id=None, name="f", args="{}", signature="c2ln", signed_by="anthropic")
    assert rendered(call) == {"functionCall": {"name": "f", "args": {}}}


def test_thinking_signed_by_another_provider_is_left_out() -> None:
    assert not GEMINI.says(
        Text(text="hm", thought=True, signature="s", signed_by="anthropic"), "model"
    )
    assert GEMINI.says(Text(text="hm", thought=True), "model")


def test_block_of_another_provider_is_its_text_twin() -> None:
    block = Opaque(provider="anthropic", type="compaction", raw='{"type":"compaction"}', text="so")
    assert rendered(block) == {"text": "so"}
    assert GEMINI.says(block, "user")
    assert not GEMINI.says(Opaque(provider="anthropic", type="x", raw="{}"), "user")


def test_block_of_ours_that_is_no_part_is_its_text_twin() -> None:
    block = Opaque(provider="gemini", type="x", raw='{"a":1}', text="so")
    assert rendered(block) == {"text": "so"}
    other = Opaque(provider="gemini", type="x", raw='{"toolCall":{}}', text="so")
    assert rendered(other) == {"text": "so"}


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("functionCall", {"functionCall": {"name": "f"}}),
        ("function_call", {"function_call": {"name": "f"}}),
        ("functionResponse", {"functionResponse": {"name": "f", "response": {}}}),
        ("text", {"text": "a"}),
        ("text", {"text": ""}),
        ("inlineData", {"inlineData": {"mimeType": "image/png", "data": "!!"}}),
        ("fileData", {"fileData": {"fileUri": "artifact://a"}}),
        ("toolCall", {"toolCall": 5}),
        ("toolCall", {"toolCall": {}, "toolResponse": {}}),
        ("toolCall", {"toolCall": {}, "thoughtSignature": "abc!"}),
        ("toolCall", {"toolCall": {}, "thought": "yes"}),
        ("toolCall", {"toolResponse": {}}),
        ("hologram", {"hologram": {}}),
    ],
)
def test_block_of_ours_that_would_break_a_rule_is_not_verbatim(kind: str, raw: Json) -> None:
    part = Opaque(provider="gemini", type=kind, raw=canonical_json(raw))
    roles: tuple[Role, ...] = ("user", "model")
    for role in roles:
        assert not GEMINI.says(part, role)
        assert rendered(replace(part, text="told"), role) == {"text": "told"}


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("toolCall", {"toolCall": {"id": "t"}}),
        ("toolResponse", {"toolResponse": {"id": "t"}, "thoughtSignature": "c2ln"}),
        ("executable_code", {"executable_code": {"language": "PYTHON", "code": "1", "id": "e"}}),
        ("inlineData", {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "new": 1}),
    ],
)
def test_block_of_ours_that_is_fit_is_sent_as_it_is(kind: str, raw: Json) -> None:
    part = Opaque(provider="gemini", type=kind, raw=canonical_json(raw))
    assert GEMINI.says(part, "model")
    assert rendered(part) == raw


@pytest.mark.parametrize("author", ["user", "agent"])
def test_call_in_an_opaque_part_is_reported_not_sent(author: str) -> None:
    block: Json = {
        "provider": "gemini",
        "type": "functionCall",
        "raw": {"functionCall": {"name": "f"}},
    }
    parts: list[Json] = [{"text": "a"}, {"opaque": block}]
    role = "user" if author == "user" else "model"
    said: Json = {"author": author, "content": {"role": role, "parts": parts}}
    log = append_items("native", [{"author": "user", "content": "go"}, said])
    result = compile_for(log, "gemini")
    assert violations_of(result, "gemini") == ()
    assert ("unsupported_part", 2) in [(each.rule, each.seq) for each in result.repairs]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ('{"output":"bad"}', {"error": "bad"}),
        ('{"error":"bad"}', {"error": "bad"}),
        ('{"code":1}', {"error": {"code": 1}}),
    ],
)
def test_failed_result_is_an_error(response: str, expected: Json) -> None:
    part = FunctionResponse(id=None, name="f", response=response, is_error=True)
    assert rendered(part, "user") == {"functionResponse": {"name": "f", "response": expected}}


@pytest.mark.parametrize(
    "part",
    [
        InlineData(mime_type="image/png", data=""),
        InlineData(mime_type="application/zip", data="AAAA"),
        InlineData(mime_type="image/svg+xml", data="AAAA"),
        FileData(file_uri="artifact://a"),
        FileData(file_uri="https://a/b.zip", mime_type="application/zip"),
        Text(text=""),
    ],
    ids=repr,
)
def test_what_the_provider_cannot_read_is_left_out(part: Part) -> None:
    assert not GEMINI.says(part, "user")


def test_call_and_result_have_their_roles() -> None:
    assert (GEMINI.says(CALL, "model"), GEMINI.says(CALL, "user")) == (True, False)
    assert (GEMINI.says(RESPONSE, "user"), GEMINI.says(RESPONSE, "model")) == (True, False)


@pytest.mark.parametrize("name", ["a b", "9lives", "x" * 65, "Suche ü"])
def test_name_that_is_refused_is_fitted_alike_in_call_and_result(name: str) -> None:
    call = rendered(FunctionCall(id=None, name=name, args="{}"))["functionCall"]["name"]
    result = rendered(FunctionResponse(id=None, name=name, response="{}"))
    assert result["functionResponse"]["name"] == call
    body: Json = {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": call}}]},
            {"role": "user", "parts": [result]},
        ]
    }
    assert validate(body, model="m") == ()


def test_tools_of_ours_are_the_declarations_of_one_tool() -> None:
    schema: Json = {"type": "object", "properties": {}}
    tools = [
        json.dumps({"name": "f", "description": "d", "parameters": schema}),
        json.dumps({"name": "g"}),
        json.dumps({"googleSearch": {}}),
        json.dumps({"functionDeclarations": [{"name": "h"}]}),
    ]
    sent = json.loads(GEMINI.render_tools(tools))
    assert sent == [
        {
            "functionDeclarations": [
                {"name": "f", "description": "d", "parametersJsonSchema": schema},
                {"name": "g"},
            ]
        },
        {"googleSearch": {}},
        {"functionDeclarations": [{"name": "h"}]},
    ]
    for tool in sent:
        types.Tool.model_validate(tool)


@pytest.mark.parametrize(
    ("tool", "pointer"),
    [
        ("3", "/tools/0"),
        ("{}", "/tools/0/name"),
        ('{"description":"d"}', "/tools/0/name"),
        ('{"type":"function","function":{"name":"f"}}', "/tools/0"),
        ('{"name":"f","input_schema":{"type":"object"}}', "/tools/0"),
        ('{"input_schema":{"type":"object"}}', "/tools/0"),
        ('{"toolSpec":{"name":"f"}}', "/tools/0"),
        ('{"type":"web_search"}', "/tools/0"),
        ('{"type":"web_search_20250305","name":"web_search"}', "/tools/0"),
    ],
)
def test_wrong_tool_is_named(tool: str, pointer: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        GEMINI.render_tools([tool])
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("key", ["googleSearch", "code_execution", "urlContext", "whatIsNewNext"])
def test_tools_of_geminis_own_pass_whatever_their_kind(key: str) -> None:
    assert json.loads(GEMINI.render_tools([json.dumps({key: {}})])) == [{key: {}}]
    assert validate({**VALID, "tools": [{key: {}}]}, model="m") == ()


def test_request_has_contents_system_and_tools() -> None:
    turns = [turn("user", Text(text="hi")), turn("model"), turn("model", CALL)]
    tools = GEMINI.render_tools(['{"name":"f"}'])
    body = GEMINI.render_request(turns, system="be kind", tools=tools, model="m")
    assert {key: json.loads(text) for key, text in body.items()} == {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]},
        ],
        "system_instruction": {"parts": [{"text": "be kind"}]},
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
    }


def test_request_leaves_out_what_is_not_there() -> None:
    body = GEMINI.render_request([], system="", tools=GEMINI.render_tools([]), model="")
    assert body == {"contents": "[]"}


# What the provider refuses


def user(*parts: Json) -> dict[str, Json]:
    return {"role": "user", "parts": list(parts or ({"text": "hi"},))}


def model(*parts: Json) -> dict[str, Json]:
    return {"role": "model", "parts": list(parts or ({"text": "ho"},))}


def call(name: str = "f", **fields: Json) -> dict[str, Json]:
    return {"functionCall": {"name": name, "args": {}, **fields}}


def result(name: str = "f", **fields: Json) -> dict[str, Json]:
    return {"functionResponse": {"name": name, "response": {}, **fields}}


def body_of(*contents: Json) -> dict[str, Json]:
    return {"contents": list(contents)}


VALID: dict[str, Json] = {
    "contents": [
        user(),
        model({"text": "hm", "thought": True}, {**call(id="1"), "thoughtSignature": "c2ln"}),
        user(result(id="1"), {"text": "and?"}),
        model(call("f"), call("g")),
        {"role": "function", "parts": [result("f"), result("g")]},
        model({"text": "", "thoughtSignature": "c2ln"}),
        user(
            {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
            {"file_data": {"file_uri": "gs://a/b", "mime_type": "application/pdf"}},
        ),
    ],
    "systemInstruction": {"parts": [{"text": "be kind"}]},
    "tools": [{"functionDeclarations": [{"name": "f", "parameters": {}}]}, {"googleSearch": {}}],
}


def test_valid_request_breaks_no_rule() -> None:
    assert validate(VALID, model="m") == ()


WRONG: list[tuple[str, str, Json]] = [
    ("shape", "", []),
    ("shape", "/contents", {}),
    ("contents_not_empty", "/contents", body_of()),
    ("shape", "/contents/0", body_of("hi")),
    ("shape", "/contents/0", body_of({"role": "user"})),
    ("role_known", "/contents/0/role", body_of({"role": "system", "parts": [{"text": "x"}]})),
    ("content_not_empty", "/contents/0", body_of({"role": "user", "parts": []})),
    ("part_not_empty", "/contents/0/parts/0", body_of(user({}))),
    ("part_not_empty", "/contents/0/parts/0", body_of(user("hi"))),
    (
        "part_has_one_kind",
        "/contents/1/parts/0",
        body_of(user(), model({"text": "a", **call()}), user(result())),
    ),
    (
        "signed_part_unmerged",
        "/contents/1/parts/0",
        body_of(user(), model({"text": "a", **call(), "thoughtSignature": "c2ln"}), user()),
    ),
    (
        "signature_is_base64",
        "/contents/0/parts/0",
        body_of(user({"text": "a", "thought_signature": "%"})),
    ),
    ("text_not_empty", "/contents/0/parts/0/text", body_of(user({"text": ""}))),
    ("shape", "/contents/0/parts/0/text", body_of(user({"text": 1}))),
    ("shape", "/contents/0/parts/0/thought", body_of(user({"text": "a", "thought": 1}))),
    ("shape", "/contents/0/parts/0", body_of(user({"executableCode": "1"}))),
    ("text_can_be_sent", "", body_of(user({"text": "a\x00"}))),
    ("media_accepted", "/contents/0/parts/0", body_of(user({"inlineData": {"data": "AAAA"}}))),
    (
        "media_accepted",
        "/contents/0/parts/0",
        body_of(user({"inlineData": {"mimeType": "image/png", "data": ""}})),
    ),
    (
        "media_accepted",
        "/contents/0/parts/0",
        body_of(user({"inlineData": {"mimeType": "application/zip", "data": "AAAA"}})),
    ),
    ("media_accepted", "/contents/0/parts/0", body_of(user({"fileData": {"fileUri": "a"}}))),
    (
        "media_accepted",
        "/contents/2/parts/0/parts/0",
        body_of(user(), model(call()), user(result(parts=[{"text": "x"}]))),
    ),
    ("call_by_model", "/contents/0/parts/0", body_of(user(call()), model(), user(result()))),
    (
        "function_name",
        "/contents/1/parts/0",
        body_of(user(), model(call("a b")), user(result("a b"))),
    ),
    (
        "args_are_object",
        "/contents/1/parts/0",
        body_of(user(), model(call(args="{}")), user(result())),
    ),
    (
        "response_is_object",
        "/contents/2/parts/0",
        body_of(user(), model(call()), user(result(response="x"))),
    ),
    ("response_by_user", "/contents/2/parts/0", body_of(user(), model(call()), model(result()))),
    ("first_role_user", "/contents/0", body_of(model(), user())),
    ("last_role_user", "/contents/1", body_of(user(), model())),
    ("roles_alternate", "/contents/1", body_of(user(), user())),
    (
        "call_after_user",
        "/contents/2",
        body_of(user(), model(), model(call()), user(result())),
    ),
    ("call_after_user", "/contents/0", body_of(model(call()), user(result()))),
    ("call_answered", "/contents/2", body_of(user(), model(call()), user())),
    ("call_answered", "/contents/1", body_of(user(), model(call()))),
    ("response_after_call", "/contents/0", body_of(user(result()))),
    (
        "response_after_call",
        "/contents/4",
        body_of(user(), model(call()), user(result()), model(), user(result())),
    ),
    (
        "response_count",
        "/contents/2",
        body_of(user(), model(call("f"), call("g")), user(result("f"))),
    ),
    (
        "responses_in_call_order",
        "/contents/2/parts/0",
        body_of(user(), model(call("f"), call("g")), user(result("g"), result("f"))),
    ),
    (
        "responses_in_call_order",
        "/contents/2/parts/0",
        body_of(user(), model(call(id="1")), user(result(id="2"))),
    ),
    (
        "responses_first",
        "/contents/2",
        body_of(user(), model(call()), user({"text": "so"}, result())),
    ),
    ("system_is_text", "/systemInstruction", {**VALID, "systemInstruction": "be kind"}),
    ("system_is_text", "/system_instruction", {"contents": [user()], "system_instruction": {}}),
    ("shape", "/tools", {**VALID, "tools": {}}),
    ("tool_shape", "/tools/0", {**VALID, "tools": [{"type": "function", "function": {}}]}),
    ("tool_shape", "/tools/0", {**VALID, "tools": [{"name": "f", "input_schema": {}}]}),
    ("tool_shape", "/tools/1", {**VALID, "tools": [{"newTool": {}}, {"toolSpec": {}}]}),
    (
        "tools_not_empty",
        "/tools/0/functionDeclarations",
        {**VALID, "tools": [{"functionDeclarations": []}]},
    ),
    (
        "tool_name",
        "/tools/0/functionDeclarations/0",
        {**VALID, "tools": [{"function_declarations": [{"name": "a b"}]}]},
    ),
    (
        "tool_name_unique",
        "/tools/0/functionDeclarations/1",
        {**VALID, "tools": [{"functionDeclarations": [{"name": "f"}, {"name": "f"}]}]},
    ),
    (
        "tool_schema",
        "/tools/0/functionDeclarations/0",
        {**VALID, "tools": [{"functionDeclarations": [{"name": "f", "parameters": "x"}]}]},
    ),
]


@pytest.mark.parametrize(
    ("rule", "path", "request_"), WRONG, ids=[f"{i}-{wrong[0]}" for i, wrong in enumerate(WRONG)]
)
def test_broken_rule_is_named(rule: str, path: str, request_: Json) -> None:
    violations = {(one.rule, one.path) for one in validate(request_, model="m")}
    assert (rule, path) in violations


KEYS = [
    "contents",
    "role",
    "parts",
    "text",
    "functionCall",
    "functionResponse",
    "name",
    "args",
    "inlineData",
    "mimeType",
    "data",
    "tools",
    "functionDeclarations",
    "systemInstruction",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(json_values, st.lists(json_values, max_size=3))
def test_any_json_is_checked_without_an_exception(value: Json, contents: list[Json]) -> None:
    validate(value, model="m")
    validate({"contents": contents, "tools": value}, model="m")
    validate({"contents": [{"role": "model", "parts": contents}]}, model="m")


# What depends on the model, and on a cache


def test_the_first_call_of_each_step_of_the_current_turn_is_signed() -> None:
    signed = {**call(), "thoughtSignature": "c2ln"}
    steps = [user(), model(call()), user(result()), model(), user()]
    steps += [model(signed, call()), user(result(), result())]
    steps += [model(call()), user(result()), model({**signed, "thoughtSignature": None}, signed)]
    body = body_of(*steps, user(result(), result()))
    found = [("call_signed", f"/contents/{number}/parts/0") for number in (9, 7)]
    for name in ("gemini-3.1-pro", "models/gemini-10-flash"):
        assert [(one.rule, one.path) for one in validate(body, model=name)] == found
    assert validate(body, model="gemini-2.5-pro") == ()


def test_what_follows_a_cache_goes_on_from_it() -> None:
    rest = body_of(user(result()), model(call("g")), user(result("g")))
    assert validate({**rest, "cached_content": "cachedContents/a"}) == ()
    assert "response_after_call" in {one.rule for one in validate(rest)}
    begins_with_call = body_of(model(call("g")), user(result("g")))
    assert validate({**begins_with_call, "cachedContent": "cachedContents/a"}) == ()


@pytest.mark.parametrize(
    ("rule", "path", "more"),
    [
        ("cached_head_alone", "/tools", {"tools": [{"googleSearch": {}}]}),
        (
            "cached_head_alone",
            "/systemInstruction",
            {"systemInstruction": {"parts": [{"text": "a"}]}},
        ),
        ("cached_head_alone", "/tool_config", {"tool_config": {}}),
        ("shape", "/cachedContent", {"cachedContent": ""}),
        ("contents_not_empty", "/contents", {"contents": []}),
        ("call_answered", "/contents/1", {"contents": [user(), model(call())]}),
    ],
)
def test_a_cache_holds_the_head_of_the_request(rule: str, path: str, more: Any) -> None:
    body = {**body_of(user()), "cachedContent": "cachedContents/a", **more}
    assert (rule, path) in {(one.rule, one.path) for one in validate(body)}
