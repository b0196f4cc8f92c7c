"""Messages: messages in, requests out, and what the provider refuses."""

import base64
import json
from typing import Any

import pytest
from anthropic.types import MessageParam, ToolParam

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
from app.formats.anthropic import ANTHROPIC, convert_item, validate
from app.formats.violations import Violation
from tests.builders import call_part, image, response_part, text
from tests.closed_types import mismatches

PNG = "iVBORw0KGgo="


def convert(message: Json) -> list[dict[str, Any]]:
    events = convert_item(message, agent="bot")
    for event in events:
        parse_event(event)
    return events


def parts_of(message: Json) -> tuple[Part, ...]:
    (event,) = convert_item(message, agent="bot")
    return parse_event(event).event.parts


def block_part(block: Json, role: str = "user") -> Part:
    (part,) = parts_of({"role": role, "content": [block]})
    return part


def turn(role: Role, *parts: Part) -> RenderedContent:
    """Render a content as the pipeline does: what the format does not say is left out."""
    placed = tuple(PlacedPart(part) for part in parts if ANTHROPIC.says(part, role))
    rendered = (RenderedPart(one, ANTHROPIC.render_part(one.part, role)) for one in placed)
    return RenderedContent(Content(role, placed), tuple(rendered))


def messages_of(*turns: RenderedContent) -> Any:
    body = ANTHROPIC.render_request(turns, system="", tools="", model="")
    return json.loads(body["messages"])


def rendered(part: Part) -> Any:
    return json.loads(ANTHROPIC.render_part(part, "user"))


# Messages in


def test_user_message_is_the_users_event() -> None:
    assert convert({"role": "user", "content": "hi"}) == [
        {"author": "user", "content": {"role": "user", "parts": [{"text": "hi"}]}}
    ]


def test_assistant_message_is_the_agents_event_and_its_id_names_the_response() -> None:
    content: Json = [{"type": "text", "text": "hello", "citations": None}]
    message: Json = {
        "role": "assistant",
        "id": "msg_1",
        "model": "claude-opus-5",
        "content": content,
    }
    assert convert(message) == [
        {
            "author": "bot",
            "content": {"role": "model", "parts": [{"text": "hello"}]},
            "response_id": "msg_1",
            "model_version": "claude-opus-5",
        }
    ]


def test_system_message_stays_in_place_and_says_what_it_was() -> None:
    (event,) = convert({"role": "system", "content": "from now on be brief"})
    assert event["author"] == event["content"]["role"] == "user"
    assert event["custom_metadata"] == {"source_role": "system"}


def test_results_and_words_of_one_message_are_events_of_their_authors_in_order() -> None:
    content: Json = [
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "tool_result", "tool_use_id": "b", "content": "2"},
        {"type": "text", "text": "go on"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    ]
    events = convert({"role": "user", "content": content})
    assert [event["author"] for event in events] == ["bot", "user"]
    assert {event["content"]["role"] for event in events} == {"user"}
    assert [len(event["content"]["parts"]) for event in events] == [2, 2]


def test_empty_content_is_an_event_without_parts() -> None:
    assert [
        len(event["content"]["parts"]) for event in convert({"role": "user", "content": []})
    ] == [0]
    assert parts_of({"role": "assistant", "content": None}) == ()


def test_signed_thinking_keeps_its_signature_and_its_signer() -> None:
    part = block_part({"type": "thinking", "thinking": "hm", "signature": "c2ln"}, "assistant")
    assert part == Text(text="hm", thought=True, signature="c2ln", signed_by="anthropic")


@pytest.mark.parametrize("signature", ["", None])
def test_unsigned_thinking_is_a_thought_that_nobody_signed(signature: Json) -> None:
    part = block_part({"type": "thinking", "thinking": "hm", "signature": signature}, "assistant")
    assert part == text("hm", thought=True)


def test_redacted_thinking_is_an_opaque_thought() -> None:
    part = block_part({"type": "redacted_thinking", "data": "x"}, "assistant")
    assert part == Opaque(
        provider="anthropic",
        type="redacted_thinking",
        raw='{"type":"redacted_thinking","data":"x"}',
        thought=True,
    )


@pytest.mark.parametrize(
    ("given", "args"),
    [
        ({"a": 1}, '{"a":1}'),
        ({}, "{}"),
        (None, "{}"),
        ('{"a": 1}', '{"a":1}'),
        ([1], '{"_raw":"[1]"}'),
    ],
)
def test_input_of_every_kind_is_taken(given: Json, args: str) -> None:
    part = block_part({"type": "tool_use", "id": "a", "name": "f", "input": given}, "assistant")
    assert isinstance(part, FunctionCall)
    assert (part.id, part.name, part.args) == ("a", "f", args)


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        ("found", "found"),
        ("", ""),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ({"type": "text", "text": "a"}, "a"),
        (
            [{"type": "tool_reference", "tool_name": "f"}],
            '{"type":"tool_reference","tool_name":"f"}',
        ),
    ],
)
def test_result_content_of_every_kind_is_taken(content: Json, sent: str) -> None:
    part = block_part({"type": "tool_result", "tool_use_id": "a", "content": content})
    assert isinstance(part, FunctionResponse)
    assert (part.id, part.name, part.response_text) == ("a", "", sent)


def test_result_keeps_its_error_flag_and_its_media() -> None:
    source: Json = {"type": "base64", "media_type": "image/png", "data": PNG}
    block: Json = {
        "type": "tool_result",
        "tool_use_id": "a",
        "is_error": True,
        "content": [{"type": "text", "text": "seen"}, {"type": "image", "source": source}],
    }
    part = block_part(block)
    assert isinstance(part, FunctionResponse)
    assert part.is_error
    assert part.media == (InlineData(mime_type="image/png", data=PNG),)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "https://x.example/a.webp"}},
            FileData(file_uri="https://x.example/a.webp", mime_type="image/webp"),
        ),
        (
            {
                "type": "document",
                "title": "Report",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
            },
            InlineData(mime_type="application/pdf", data="AAAA", display_name="Report"),
        ),
        (
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "ä"},
            },
            InlineData(mime_type="text/plain", data=base64.b64encode("ä".encode()).decode()),
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://x.example/a"}},
            FileData(file_uri="https://x.example/a", mime_type="application/pdf"),
        ),
        (
            {"type": "image", "source": {"type": "file", "file_id": "f1"}},
            Opaque(
                provider="anthropic",
                type="image",
                raw='{"type":"image","source":{"type":"file","file_id":"f1"}}',
                text="[image]",
            ),
        ),
    ],
)
def test_media_is_told_apart(block: Json, expected: Part) -> None:
    assert block_part(block) == expected


def test_blocks_of_server_tools_are_verbatim_without_cache_markers() -> None:
    block: dict[str, Json] = {
        "type": "web_search_tool_result",
        "tool_use_id": "srv_1",
        "content": [{"type": "web_search_result", "title": "A page", "url": "https://a"}],
        "cache_control": {"type": "ephemeral"},
    }
    part = block_part(block, "assistant")
    assert isinstance(part, Opaque)
    assert (part.type, part.text) == ("web_search_tool_result", "A page")
    assert "cache_control" not in part.raw
    assert json.loads(part.raw)["content"] == block["content"]


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        (["hi"], ""),
        ({"content": "hi"}, "/role"),
        ({"role": "tool", "content": "hi"}, "/role"),
        ({"role": "user", "content": 3}, "/content"),
        ({"role": "user", "content": [None]}, "/content/0"),
        ({"role": "user", "content": [{"text": "a"}]}, "/content/0/type"),
        ({"role": "user", "content": [{"type": "text"}]}, "/content/0/text"),
        ({"role": "user", "content": [{"type": "image"}]}, "/content/0/source"),
        (
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64"}}]},
            "/content/0/source/media_type",
        ),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}, "/content/0/name"),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": 1, "name": "f"}]},
            "/content/0/id",
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "content": [5]}]},
            "/content/0/content/0",
        ),
        ({"role": "assistant", "content": "a", "id": {}}, "/id"),
    ],
)
def test_what_is_no_message_is_refused_at_its_place(message: Json, pointer: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        convert_item(message, agent="bot")
    assert caught.value.pointer == pointer


# Requests out


def test_roles_and_blocks_take_the_providers_names() -> None:
    assert messages_of(turn("user", text("a")), turn("model", text("b"))) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
    ]


def test_system_is_a_string_beside_the_messages() -> None:
    request = ANTHROPIC.render_request([], system='be "brief"', tools="", model="")
    assert request == {"system": '"be \\"brief\\""', "messages": "[]"}


def test_results_stand_before_words_in_call_order() -> None:
    (message,) = messages_of(
        turn("user", text("by the way"), response_part("a"), image(PNG), response_part("b"))
    )
    kinds = [block["type"] for block in message["content"]]
    assert kinds == ["tool_result", "tool_result", "text", "image"]
    assert [block["tool_use_id"] for block in message["content"][:2]] == ["a", "b"]


def test_call_and_result_are_a_pair() -> None:
    call, result = messages_of(
        turn("model", call_part("f", id="a", args={"x": 1})),
        turn("user", response_part("a", result={"y": 2})),
    )
    assert call["content"] == [{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}]
    assert result["content"] == [{"type": "tool_result", "tool_use_id": "a", "content": '{"y":2}'}]


def test_numbers_in_arguments_keep_their_form() -> None:
    part = FunctionCall(id="a", name="f", args='{"n":123456789012345678901234567890,"x":1.10}')
    assert '"input":{"n":123456789012345678901234567890,"x":1.10}' in ANTHROPIC.render_part(
        part, "model"
    )


def test_failed_result_carries_the_flag() -> None:
    part = FunctionResponse(id="a", name="f", response="{}", response_text="no", is_error=True)
    assert rendered(part) == {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": "no",
        "is_error": True,
    }


@pytest.mark.parametrize("said", ["", "  \n"])
def test_blank_result_has_no_content(said: str) -> None:
    part = FunctionResponse(id="a", name="f", response="{}", response_text=said)
    assert rendered(part) == {"type": "tool_result", "tool_use_id": "a"}


def test_media_of_a_result_stands_inside_it() -> None:
    video = InlineData(mime_type="video/mp4", data="AAAA")
    part = replace(response_part("a"), response_text="seen", media=(image(PNG), video))
    content = rendered(part)["content"]
    assert content[0] == {"type": "text", "text": "seen"}
    assert content[1]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}
    assert "video/mp4 left out" in content[2]["text"]


def test_media_of_a_result_without_words_stands_alone() -> None:
    part = FunctionResponse(
        id="a", name="f", response='{"output":""}', response_text="", media=(image(PNG),)
    )
    assert [block["type"] for block in rendered(part)["content"]] == ["image"]


def test_own_thinking_returns_unmodified() -> None:
    part = Text(text="", thought=True, signature="c2ln", signed_by="anthropic")
    assert ANTHROPIC.says(part, "model")
    assert rendered(part) == {"type": "thinking", "thinking": "", "signature": "c2ln"}


@pytest.mark.parametrize(
    "part",
    [
        text("hm", thought=True),
        Text(text="hm", thought=True, signature="c2ln", signed_by="gemini"),
        text(" "),
        Text(text="", signature="c2ln", signed_by="gemini"),
        InlineData(mime_type="audio/wav", data="AAAA"),
        InlineData(mime_type="text/plain", data="/w=="),
        FileData(file_uri="gs://bucket/a.png", mime_type="image/png"),
        FileData(file_uri="https://x.example/a.mp4", mime_type="video/mp4"),
        Opaque(provider="openai", type="audio", raw="{}"),
        Opaque(provider="gemini", type="tool_call", raw="{}", text="told", thought=True),
    ],
)
@pytest.mark.parametrize("role", ["user", "model"])
def test_what_has_no_place_is_not_said(part: Part, role: Role) -> None:
    assert not ANTHROPIC.says(part, role)


def test_thinking_and_calls_are_the_models_and_results_and_media_the_users() -> None:
    thinking = Text(text="hm", thought=True, signature="c2ln", signed_by="anthropic")
    for part in (thinking, call_part("f", id="a")):
        assert ANTHROPIC.says(part, "model")
        assert not ANTHROPIC.says(part, "user")
    for shown in (response_part("a"), image(PNG)):
        assert ANTHROPIC.says(shown, "user")
        assert not ANTHROPIC.says(shown, "model")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            InlineData(mime_type="application/pdf", data="AAAA", display_name="Report"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
                "title": "Report",
            },
        ),
        (
            InlineData(mime_type="text/markdown", data=base64.b64encode(b"# a").decode()),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "# a"},
            },
        ),
        (
            FileData(file_uri="https://x.example/a.png"),
            {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
        ),
        (
            FileData(file_uri="https://x.example/a", mime_type="application/pdf"),
            {"type": "document", "source": {"type": "url", "url": "https://x.example/a"}},
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
            Opaque(provider="gemini", type="tool_call", raw="{}", text="told"),
            {"type": "text", "text": "told"},
        ),
        (
            Opaque(provider="anthropic", type="compaction", raw='{"type":"compaction","x":1}'),
            {"type": "compaction", "x": 1},
        ),
    ],
)
def test_part_takes_the_providers_shape(part: Part, expected: Json) -> None:
    assert ANTHROPIC.says(part, "user")
    assert rendered(part) == expected


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("tool_use", '{"type":"tool_use","id":"a","name":"f","input":{}}'),
        ("note", '{"type":"tool_use","id":"a","name":"f","input":{}}'),
        ("thinking", '{"type":"thinking","thinking":"hm","signature":"forged"}'),
        ("redacted_thinking", '{"type":"redacted_thinking"}'),
        ("image", '{"type":"image","source":{"type":"url","url":"gs://a"}}'),
        ("note", "5"),
    ],
)
def test_opaque_block_that_would_break_a_rule_is_not_verbatim(kind: str, raw: str) -> None:
    part = Opaque(provider="anthropic", type=kind, raw=raw)
    assert not ANTHROPIC.says(part, "model")
    assert messages_of(turn("model", replace(part, text="told"))) == [
        {"role": "assistant", "content": [{"type": "text", "text": "told"}]}
    ]


def test_opaque_blocks_stand_where_the_provider_takes_them_and_mark_no_cache() -> None:
    raw = '{"type":"server_tool_use","id":"s","name":"n","input":{},"cache_control":{"type":"x"}}'
    server = Opaque(provider="anthropic", type="server_tool_use", raw=raw)
    assert not ANTHROPIC.says(server, "user")
    assert "cache_control" not in ANTHROPIC.render_part(server, "model")


def test_what_is_not_said_is_left_out_of_the_request_even_when_it_was_rendered() -> None:
    parts = (text("hm", thought=True), text("said"), InlineData(mime_type="video/mp4", data="A"))
    placed = tuple(PlacedPart(part) for part in parts)
    forced = tuple(RenderedPart(one, ANTHROPIC.render_part(one.part, "model")) for one in placed)
    (message,) = messages_of(RenderedContent(Content("model", placed), forced))
    assert message["content"] == [{"type": "text", "text": "said"}]


@pytest.mark.parametrize("call_id", ["toolu_01AbC-9", "call_PbWErNIge3YTrli3fiVvmIid", "0"])
def test_id_that_fits_is_emitted_as_it_is(call_id: str) -> None:
    assert ANTHROPIC.emit_id(call_id) == call_id


@pytest.mark.parametrize(
    ("one", "other"),
    [("functions.f:0", "functions_f_0"), ("ä", "ö"), ("x" * 70 + "1", "x" * 70 + "2"), ("", " ")],
)
def test_ids_that_do_not_fit_are_mapped_apart(one: str, other: str) -> None:
    emitted = {ANTHROPIC.emit_id(one), ANTHROPIC.emit_id(other)}
    assert len(emitted) == 2
    for call_id in emitted:
        called: Json = {"type": "tool_use", "id": call_id, "name": "f", "input": {}}
        answered: Json = {"type": "tool_result", "tool_use_id": call_id}
        messages: list[Json] = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [called]},
            {"role": "user", "content": [answered]},
        ]
        assert validate({"messages": messages}) == ()


def test_name_outside_the_charset_is_mapped() -> None:
    name = json.loads(ANTHROPIC.render_part(call_part("a.b", id="a"), "model"))["name"]
    assert name.startswith("a_b_")


def test_tools_of_ours_and_of_the_provider_are_accepted() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    ours = {"name": "f", "description": "does", "parameters": schema}
    theirs = {"name": "g", "input_schema": schema}
    server = {"type": "web_search_20250305", "name": "web_search"}
    texts = [json.dumps(tool) for tool in (ours, theirs, server, {"name": "h"})]
    tools = json.loads(ANTHROPIC.render_tools(texts))
    assert tools[:3] == [
        {"name": "f", "description": "does", "input_schema": schema},
        theirs,
        server,
    ]
    assert tools[3]["input_schema"]["type"] == "object"
    assert mismatches([tools[0], tools[1], tools[3]], list[ToolParam]) == []


def test_tool_without_a_name_is_refused_at_its_place() -> None:
    with pytest.raises(InvalidInputError) as caught:
        ANTHROPIC.render_tools(['{"name":"f"}', '{"name":""}'])
    assert caught.value.pointer == "/tools/1/name"


# Golden contents against the SDK's own types


def golden_turns() -> list[RenderedContent]:
    pdf = InlineData(mime_type="application/pdf", data="AAAA", display_name="Report")
    note = InlineData(mime_type="text/plain", data=base64.b64encode(b"note").decode())
    signed = Text(text="hm", thought=True, signature="c2ln", signed_by="anthropic")
    redacted = Opaque(
        provider="anthropic",
        type="redacted_thinking",
        raw='{"type":"redacted_thinking","data":"x"}',
        thought=True,
    )
    seen = replace(response_part("a"), media=(image(PNG), pdf))
    failed = replace(response_part("b"), is_error=True)
    return [
        turn("user", text("look"), image(PNG), pdf, note),
        turn(
            "model",
            signed,
            redacted,
            text("looking"),
            call_part("look", id="a", args={"x": 1}),
            call_part("f", id="b"),
        ),
        turn("user", text("quick"), seen, failed),
        turn("model", text("unsigned", thought=True), text("done")),
        turn("user", FileData(file_uri="https://x.example/a.png", mime_type="image/png")),
    ]


def test_golden_request_has_the_sdks_shape_and_breaks_no_rule() -> None:
    messages = messages_of(*golden_turns())
    assert mismatches(messages, list[MessageParam]) == []
    assert validate({"messages": messages}, model="claude-opus-5") == ()


def test_closed_types_notice_a_misspelt_key() -> None:
    wrong = [{"role": "user", "content": [{"type": "text", "text": "a", "cache": {}}]}]
    assert mismatches(wrong, list[MessageParam]) == ["/0/content/0/cache: unknown key"]


# What the provider refuses


def words(said: str = "go") -> dict[str, Any]:
    return {"type": "text", "text": said}


def called(call_id: str = "a", **changes: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}, **changes}


def answered(call_id: str = "a", **changes: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "1", **changes}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks or (words(),))}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks or (words("ok"),))}


def system(content: Any = "be brief") -> dict[str, Any]:
    return {"role": "system", "content": content}


def marked(ttl: str = "5m", **changes: Any) -> dict[str, Any]:
    return {**words(), "cache_control": {"type": "ephemeral", "ttl": ttl}, **changes}


def pictured(source: Any, kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "source": source}


BASE64_PNG = {"type": "base64", "media_type": "image/png", "data": PNG}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def test_valid_requests_break_nothing() -> None:
    messages: list[Json] = [
        {"role": "user", "content": "go"},
        assistant(THINKING, words(), called("a"), called("b")),
        user(answered("b", content=[words(), pictured(BASE64_PNG)]), answered("a"), marked("1h")),
        system(),
        assistant(
            {"type": "redacted_thinking", "data": "x"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            words(),
        ),
        user(
            pictured({"type": "file", "file_id": "f"}),
            pictured({"type": "url", "url": "https://a"}),
        ),
    ]
    request: Json = {
        "system": [words()],
        "messages": messages,
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "cache_control": {"type": "ephemeral"},
    }
    assert validate(request, model="claude-opus-5") == ()


@pytest.mark.parametrize(
    ("messages", "rule", "path"),
    [
        (None, "shape", "/messages"),
        ([], "messages_not_empty", "/messages"),
        (["hi"], "shape", "/messages/0"),
        ([{"role": "model", "content": "a"}], "role_known", "/messages/0/role"),
        ([{"role": "user"}], "shape", "/messages/0/content"),
        ([{"role": "user", "content": []}], "content_not_empty", "/messages/0/content"),
        ([{"role": "user", "content": " "}], "text_not_blank", "/messages/0/content"),
        ([user(words("\n"))], "text_not_blank", "/messages/0/content/0/text"),
        ([user({"type": "text"})], "shape", "/messages/0/content/0/text"),
        ([user("a")], "shape", "/messages/0/content/0"),
        ([assistant(), user()], "first_role_user", "/messages/0/role"),
        ([user(), user()], "roles_alternate", "/messages/1/role"),
        ([user(), assistant(), assistant(), user()], "roles_alternate", "/messages/2/role"),
        ([user(), assistant()], "last_role_user", "/messages/1/role"),
        ([user(), assistant(THINKING), user()], "thinking_not_last", "/messages/1/content/0"),
        (
            [user(), assistant({**THINKING, "signature": ""}, words()), user()],
            "thinking_signed",
            "/messages/1/content/0",
        ),
        (
            [user(), assistant({"type": "redacted_thinking"}, words()), user()],
            "thinking_signed",
            "/messages/1/content/0",
        ),
        (
            [user(), assistant({"type": "thinking", "signature": "a"}, words()), user()],
            "shape",
            "/messages/1/content/0/thinking",
        ),
        ([user(THINKING)], "thinking_by_assistant", "/messages/0/content/0"),
        ([user(called())], "call_by_assistant", "/messages/0/content/0"),
        ([user(), assistant(answered()), user()], "result_by_user", "/messages/1/content/0"),
        (
            [user({"type": "server_tool_use", "id": "s", "name": "n", "input": {}})],
            "server_tool_by_assistant",
            "/messages/0/content/0",
        ),
        (
            [user(), assistant(pictured(BASE64_PNG)), user()],
            "media_by_user",
            "/messages/1/content/0",
        ),
        (
            [user(), assistant(called("a.b")), user(answered("a.b"))],
            "call_id_charset",
            "/messages/1/content/0/id",
        ),
        (
            [user(), assistant(called("x" * 65)), user(answered("x" * 65))],
            "call_id_length",
            "/messages/1/content/0/id",
        ),
        (
            [user(), assistant(called(name="a.b")), user(answered())],
            "tool_name",
            "/messages/1/content/0/name",
        ),
        (
            [user(), assistant(called(input="{}")), user(answered())],
            "input_is_object",
            "/messages/1/content/0/input",
        ),
        (
            [user(), assistant(called("a"), called("b")), user(answered("a"))],
            "call_answered",
            "/messages/1/content/1",
        ),
        ([user(), assistant(called())], "call_answered", "/messages/1/content/0"),
        (
            [user(), assistant(called()), user(), assistant(), user(answered())],
            "result_has_call",
            "/messages/4/content/0/tool_use_id",
        ),
        ([user(answered())], "result_has_call", "/messages/0/content/0/tool_use_id"),
        (
            [user(), assistant(called()), user(answered(), answered())],
            "call_answered_once",
            "/messages/2/content/1/tool_use_id",
        ),
        (
            [user(), assistant(called()), user(words(), answered())],
            "results_first",
            "/messages/2/content/1",
        ),
        (
            [user(), assistant(called()), user(answered()), assistant(called()), user(answered())],
            "call_id_unique",
            "/messages/3/content/0/id",
        ),
        (
            [user(), assistant(called()), user(answered(content=5))],
            "shape",
            "/messages/2/content/0/content",
        ),
        (
            [user(), assistant(called()), user(answered(content=[words("")]))],
            "text_not_blank",
            "/messages/2/content/0/content/0/text",
        ),
        (
            [user(), assistant(called()), user(answered(content=[called()]))],
            "block_fits_result",
            "/messages/2/content/0/content/0",
        ),
        ([user(pictured(None))], "shape", "/messages/0/content/0/source"),
        (
            [user(pictured({**BASE64_PNG, "media_type": "image/tiff"}))],
            "media_accepted",
            "/messages/0/content/0/source",
        ),
        (
            [user(pictured({**BASE64_PNG, "data": ""}))],
            "media_accepted",
            "/messages/0/content/0/source",
        ),
        (
            [user(pictured({"type": "url", "url": "gs://a"}))],
            "media_accepted",
            "/messages/0/content/0/source",
        ),
        (
            [user(pictured(BASE64_PNG, "document"))],
            "media_accepted",
            "/messages/0/content/0/source",
        ),
        ([system(), user()], "system_place", "/messages/0/role"),
        ([user(), system(), user()], "system_place", "/messages/1/role"),
        ([user(), system([pictured(BASE64_PNG)])], "system_is_text", "/messages/1/content/0"),
        ([user(*[marked()] * 5)], "breakpoint_count", "/messages/0/content/4/cache_control"),
        (
            [user(marked("5m"), marked("1h"))],
            "breakpoint_ttl_order",
            "/messages/0/content/1/cache_control",
        ),
        ([user(marked(text=""))], "breakpoint_place", "/messages/0/content/0/cache_control"),
        (
            [user(), assistant({**THINKING, "cache_control": {}}, words()), user()],
            "breakpoint_place",
            "/messages/1/content/0/cache_control",
        ),
        (
            [user(), assistant(called()), user(answered(content=[marked()] * 5))],
            "breakpoint_count",
            "/messages/2/content/0/content/4/cache_control",
        ),
    ],
)
def test_wrong_request_breaks_its_rule(messages: Json, rule: str, path: str) -> None:
    violations = validate({"messages": messages}, model="claude-opus-5")
    assert (rule, path) in [(one.rule, one.path) for one in violations]


@pytest.mark.parametrize(
    ("field", "value", "rule", "path"),
    [
        ("system", "", "text_not_blank", "/system"),
        ("system", 5, "shape", "/system"),
        ("system", [{"type": "image"}], "system_is_text", "/system/0"),
        ("tools", {}, "shape", "/tools"),
        ("tools", ["f"], "shape", "/tools/0"),
        ("tools", [{"name": "f"}], "tool_schema", "/tools/0/input_schema"),
        ("tools", [{"name": "f", "input_schema": {}}], "tool_schema", "/tools/0/input_schema"),
        (
            "tools",
            [{"name": "f.g", "input_schema": {"type": "object"}}],
            "tool_name",
            "/tools/0/name",
        ),
        (
            "tools",
            [{"name": "f", "input_schema": {"type": "object"}}] * 2,
            "tool_name_unique",
            "/tools/1/name",
        ),
    ],
)
def test_wrong_system_or_tools_break_their_rule(
    field: str, value: Json, rule: str, path: str
) -> None:
    (violation,) = validate({"messages": [user()], field: value})
    assert (violation.rule, violation.path) == (rule, path)


@pytest.mark.parametrize(
    ("model", "is_accepted"),
    [
        ("claude-3-5-sonnet-20241022", True),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-opus-4-20250514", True),
        ("anthropic.claude-opus-4-1-20250805-v1:0", True),
        ("claude-opus-4-6", False),
        ("claude-sonnet-4-6-20260101", False),
        ("claude-opus-5", False),
        ("", False),
    ],
)
def test_prefill_is_accepted_by_old_models_only(model: str, is_accepted: bool) -> None:  # noqa: FBT001
    violations = validate({"messages": [user(), assistant()]}, model=model)
    assert (violations == ()) is is_accepted


def test_prefill_may_not_end_in_white_space() -> None:
    request: Json = {"messages": [user(), assistant(words("so "))]}
    (violation,) = validate(request, model="claude-3-opus-20240229")
    assert violation.rule == "last_text_trimmed"


@pytest.mark.parametrize("request_", [None, [], "x", {}, {"messages": {"role": "user"}}])
def test_what_is_no_request_is_told_and_never_raises(request_: Json) -> None:
    assert [one.rule for one in validate(request_)] == ["shape"]


@pytest.mark.parametrize(
    ("ttl", "marker"),
    [("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})],
)
def test_marker_says_how_long_only_where_it_is_not_the_usual(ttl: str, marker: Any) -> None:
    block = json.loads(ANTHROPIC.with_marker('{"type":"text","text":"a"}', ttl))
    assert block == {"type": "text", "text": "a", "cache_control": marker}


def test_no_marker_stands_behind_thinking_or_what_is_sent_verbatim() -> None:
    signed = Text(text="hm", thought=True, signature="c2ln", signed_by="anthropic")
    assert ANTHROPIC.says(signed, "model")
    assert not ANTHROPIC.takes_marker(signed, "model")
    raw = '{"type":"search_result","title":"a"}'
    verbatim = Opaque(provider="anthropic", type="search_result", raw=raw)
    assert ANTHROPIC.says(verbatim, "user")
    assert not ANTHROPIC.takes_marker(verbatim, "user")
    assert not ANTHROPIC.takes_marker(Text(text=" "), "user")
    assert ANTHROPIC.takes_marker(Text(text="a"), "user")


def test_automatic_marker_takes_one_of_the_four() -> None:
    request: dict[str, Any] = {"messages": [user(*[marked()] * 4)]}
    assert validate(request) == ()
    automatic = {**request, "cache_control": {"type": "ephemeral"}}
    assert validate(automatic) == (Violation("breakpoint_count", "/cache_control"),)
