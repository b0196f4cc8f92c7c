"""Converse: messages in, requests out, and what the provider refuses."""

import json
from typing import Any

import pytest

from app.core.canonical import Json, canonical_json
from app.core.compile.inputs import HeadMarks, RenderedContent, RenderedPart
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
from app.formats.anthropic import ANTHROPIC
from app.formats.bedrock import BEDROCK, convert_item, validate
from tests.builders import call_part, image, response_part, text
from tests.compiling import append_items, body_of, compile_for, violations_of
from tests.images import png

PNG = "iVBORw0KGgo="
MODEL = "anthropic.claude-opus-5-v1:0"
LLAMA = "us.meta.llama4-maverick-17b-instruct-v1:0"
USER: dict[str, Any] = {"role": "user", "content": [{"text": "go"}]}
THINKING: dict[str, Any] = {
    "reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}
}


def tool_use(call_id: Json = "a", **changes: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": call_id, "name": "f", "input": {"x": 1}, **changes}}


def tool_result(call_id: Json = "a", *content: Any, **changes: Any) -> dict[str, Any]:
    blocks = list(content) or [{"text": "done"}]
    return {"toolResult": {"toolUseId": call_id, "content": blocks, "status": "success", **changes}}


def asked(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def answered(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def document(name: str = "report", **source: Any) -> dict[str, Any]:
    return {
        "document": {"format": "pdf", "name": name, "source": source or {"bytes": "AAAA"}},
    }


SHEET: dict[str, Any] = {
    "document": {"format": "csv", "name": "a", "source": {"bytes": "A" * 6_000_004}}
}
PICTURE: dict[str, Any] = {"image": {"format": "png", "source": {"bytes": PNG}}}


def events_of(message: Json) -> list[dict[str, Any]]:
    events = convert_item(message, agent="bot")
    for event in events:
        parse_event(event)
    return events


def parts_of(message: Json) -> tuple[Part, ...]:
    (event,) = events_of(message)
    return parse_event(event).event.parts


def turn(role: Role, *parts: Part, seq: int | None = None) -> RenderedContent:
    """Render a content as the pipeline does: what the format does not say is left out."""
    placed = tuple(PlacedPart(part, seq) for part in parts if BEDROCK.says(part, role))
    rendered = (RenderedPart(one, BEDROCK.render_part(one.part, role)) for one in placed)
    return RenderedContent(Content(role, placed), tuple(rendered))


def body(*turns: RenderedContent, tools: str = "", model: str = MODEL) -> dict[str, Any]:
    fields = BEDROCK.render_request(turns, system="", tools=tools, model=model)
    return {key: json.loads(field) for key, field in fields.items()}


def messages_of(*turns: RenderedContent, model: str = MODEL) -> Any:
    return body(*turns, model=model)["messages"]


def sent_again(*messages: Json, **options: Any) -> Any:
    """Append the messages, compile the log and return the messages of the request."""
    result = compile_for(append_items("bedrock", messages), "bedrock", **options)
    assert violations_of(result, "bedrock") == ()
    return body_of(result, "bedrock")["messages"]


# Messages in


def test_user_message_is_the_users_event() -> None:
    expected = {"author": "user", "content": {"role": "user", "parts": [{"text": "go"}]}}
    assert events_of(USER) == [expected]
    assert events_of({"role": "user", "content": "go"}) == [expected]


def test_results_are_the_agents_and_the_words_beside_them_the_users() -> None:
    results, words = events_of(asked(tool_result("a"), tool_result("b"), {"text": "go on"}))
    assert (results["author"], words["author"]) == ("bot", "user")
    assert len(results["content"]["parts"]) == 2


def test_tool_use_is_a_call_and_its_result_answers_by_id() -> None:
    assert parts_of(answered(tool_use())) == (call_part("f", id="a", args={"x": 1}),)
    (part,) = parts_of(asked(tool_result("a", {"text": "one"}, {"text": "two"}, status="error")))
    assert isinstance(part, FunctionResponse)
    assert (part.id, part.name, part.response_text) == ("a", "", "one\ntwo")
    assert part.is_error


def test_lone_json_result_stays_an_object_and_others_are_told() -> None:
    (lone,) = parts_of(asked(tool_result("a", {"json": {"n": 1}})))
    assert isinstance(lone, FunctionResponse)
    assert (lone.response, lone.response_text) == ('{"n":1}', None)
    (mixed,) = parts_of(asked(tool_result("a", {"json": {"n": 1}}, {"text": "two"})))
    assert isinstance(mixed, FunctionResponse)
    assert mixed.response_text == '{"n":1}\ntwo'


def test_media_of_a_result_is_kept_beside_its_text() -> None:
    picture = {"image": {"format": "png", "source": {"bytes": PNG}}}
    (part,) = parts_of(asked(tool_result("a", {"text": "look"}, picture)))
    assert isinstance(part, FunctionResponse)
    assert (part.response_text, part.media) == ("look", (image(PNG),))


def test_thinking_keeps_its_signature_for_this_provider() -> None:
    signed, redacted, unsigned = parts_of(
        answered(
            THINKING,
            {"reasoningContent": {"redactedContent": "AAAA"}},
            {"reasoningContent": {"reasoningText": {"text": "hm"}}},
        )
    )
    assert signed == Text(text="hm", thought=True, signature="c2ln", signed_by="bedrock")
    assert redacted == Opaque(
        provider="bedrock",
        type="reasoningContent",
        raw='{"reasoningContent":{"redactedContent":"AAAA"}}',
        thought=True,
    )
    assert unsigned == text("hm", thought=True)
    for part in (signed, redacted):
        assert BEDROCK.says(part, "model")
        assert not ANTHROPIC.says(part, "model")
    assert not BEDROCK.says(unsigned, "model")
    assert not BEDROCK.says(replace(signed, signed_by="anthropic"), "model")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {"image": {"format": "jpeg", "source": {"bytes": "AAAA"}}},
            InlineData(mime_type="image/jpeg", data="AAAA"),
        ),
        (
            document(),
            InlineData(mime_type="application/pdf", data="AAAA", display_name="report"),
        ),
        (
            {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://abc/a.mp4"}}}},
            FileData(file_uri="s3://abc/a.mp4", mime_type="video/mp4"),
        ),
        (
            {"document": {"format": "txt", "name": "n", "source": {"text": "hi"}}},
            InlineData(mime_type="text/plain", data="aGk=", display_name="n"),
        ),
        (
            {"guardContent": {"text": {"text": "safe?"}}},
            Opaque(
                provider="bedrock",
                type="guardContent",
                raw='{"guardContent":{"text":{"text":"safe?"}}}',
                text="safe?",
            ),
        ),
        (
            {"citationsContent": {"content": [{"text": "so"}], "citations": []}},
            Opaque(
                provider="bedrock",
                type="citationsContent",
                raw='{"citationsContent":{"content":[{"text":"so"}],"citations":[]}}',
                text="so",
            ),
        ),
    ],
)
def test_blocks_are_told_apart(block: Json, expected: Part) -> None:
    assert parts_of(asked(block)) == (expected,)


def test_media_that_says_more_is_kept_verbatim() -> None:
    owned = {"uri": "s3://abc/a.png", "bucketOwner": "123456789012"}
    block: dict[str, Any] = {"image": {"format": "png", "source": {"s3Location": owned}}}
    (part,) = parts_of(asked(block))
    assert part == Opaque(
        provider="bedrock", type="image", raw=canonical_json(block), text="[image]"
    )
    assert messages_of(turn("user", part))[0]["content"] == [block]


def cited(name: str = "report", **changes: Any) -> dict[str, Any]:
    inner = document(name)["document"]
    return {"document": {**inner, "citations": {"enabled": True}, "context": "old", **changes}}


def opaque_document(block: Json, twin: str = "") -> Opaque:
    return Opaque(provider="bedrock", type="document", raw=canonical_json(block), text=twin)


def test_verbatim_document_is_sent_with_all_that_it_says_beside_a_text() -> None:
    (message,) = messages_of(turn("user", opaque_document(cited("a.pdf")), seq=3))
    assert message["content"] == [{"text": "[a.pdf]"}, cited("a-pdf 3-0")]
    nameless: dict[str, Any] = {"document": {"source": {"content": [{"text": "so"}]}}}
    (message,) = messages_of(turn("user", opaque_document(nameless, "so")))
    named = {"document": {**nameless["document"], "name": "document 0-0"}}
    assert message["content"] == [{"text": "[document]"}, named]


def test_verbatim_documents_have_names_of_their_own_among_all_others() -> None:
    pdf = InlineData(mime_type="application/pdf", data="AAAA", display_name="report")
    turns = (
        turn("user", opaque_document(cited()), pdf, opaque_document(cited()), seq=1),
        turn("model", text("so")),
        turn("user", text("and?"), opaque_document(cited()), seq=3),
    )
    names = [one["name"] for one in _documents(messages_of(*turns))]
    assert names == ["report 1-0", "report 1-1", "report 1-2", "report 3-1"]
    rest = messages_of(replace(turns[2], parts=turns[2].parts[1:]))
    assert [one["name"] for one in _documents(rest)] == names[-1:]


@pytest.mark.parametrize(
    "block",
    [
        cited(citations="yes"),
        cited(citations={}),
        cited(context=5),
        cited(source={"bytes": ""}),
        cited(format="tiff"),
        cited(source={"bytes": "A" * 6_000_004}),
    ],
    ids=["words", "nothing", "number", "empty", "format", "size"],
)
def test_verbatim_document_that_would_break_a_rule_is_told(block: Json) -> None:
    part = opaque_document(block, "told")
    assert messages_of(turn("user", part)) == [asked({"text": "told"})]
    assert not BEDROCK.says(replace(part, text=""), "user")


def test_verbatim_document_is_not_the_models_and_takes_no_cache_point() -> None:
    part = opaque_document(cited())
    assert not BEDROCK.says(part, "model")
    assert not BEDROCK.takes_marker(part, "user")


def test_verbatim_documents_count_as_documents() -> None:
    blocks = [cited(f"d{number}") for number in range(7)]
    log = append_items("bedrock", [asked({"text": "look"}, *blocks)])
    result = compile_for(log, "bedrock")
    assert violations_of(result, "bedrock") == ()
    assert len(_documents(body_of(result, "bedrock")["messages"])) == 5
    assert [action.action for action in result.budget_actions] == ["stubbed"] * 2


def test_cache_points_are_no_part_of_the_history() -> None:
    assert parts_of(asked({"text": "a"}, {"cachePoint": {"type": "default"}})) == (text("a"),)


def test_tool_that_runs_at_the_provider_is_kept_verbatim_with_its_result() -> None:
    call = tool_use("s", type="server_tool_use")
    result = tool_result("s", type="nova_grounding_result")
    sent = sent_again(USER, answered(call, result, {"text": "so"}), USER)
    assert sent[1]["content"] == [call, result, {"text": "so"}]


def test_whole_answer_says_what_it_cost_and_which_it_is() -> None:
    (event,) = events_of(
        {
            "output": {"message": answered({"text": "hi"})},
            "stopReason": "end_turn",
            "usage": {
                "inputTokens": 10,
                "outputTokens": 5,
                "totalTokens": 115,
                "cacheReadInputTokens": 70,
                "cacheWriteInputTokens": 30,
            },
            "ResponseMetadata": {"RequestId": "r1"},
        }
    )
    assert event["response_id"] == "r1"
    assert event["usage_metadata"] == {
        "prompt_token_count": 110,
        "cached_content_token_count": 70,
        "candidates_token_count": 5,
        "total_token_count": 115,
    }


def test_usage_that_strands_keeps_with_a_message_is_read() -> None:
    message = {**answered({"text": "hi"}), "metadata": {"usage": {"inputTokens": 3}}}
    assert events_of(message)[0]["usage_metadata"] == {"prompt_token_count": 3}


def test_system_message_stays_in_place_and_says_what_it_was() -> None:
    (event,) = events_of({"role": "system", "content": [{"text": "be brief"}]})
    assert event["author"] == event["content"]["role"] == "user"
    assert event["custom_metadata"] == {"source_role": "system"}


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ("hi", ""),
        ({"content": []}, "/role"),
        ({"role": "tool", "content": []}, "/role"),
        ({"role": "user", "content": 3}, "/content"),
        ({"role": "user", "content": ["a"]}, "/content/0"),
        (asked({}), "/content/0"),
        (asked({"text": "a", "image": {}}), "/content/0"),
        (asked({"text": 5}), "/content/0/text"),
        (answered({"toolUse": {"toolUseId": "a"}}), "/content/0/toolUse/name"),
        (answered({"toolUse": {"toolUseId": 1, "name": "f"}}), "/content/0/toolUse/toolUseId"),
        (answered({"toolUse": "f"}), "/content/0/toolUse"),
        (asked({"toolResult": {"content": 5}}), "/content/0/toolResult/content"),
        (asked(tool_result("a", {"text": 5})), "/content/0/toolResult/content/0/text"),
        (asked({"image": {"format": "png"}}), "/content/0/image/source"),
        (asked({"image": {"format": 5, "source": {}}}), "/content/0/image/format"),
        (
            asked({"image": {"format": "png", "source": {"bytes": 5}}}),
            "/content/0/image/source/bytes",
        ),
        (
            answered({"reasoningContent": {"reasoningText": {"text": 5}}}),
            "/content/0/reasoningContent/reasoningText/text",
        ),
        ({"output": {"message": 5}}, "/output/message"),
        ({"output": {"message": answered({"text": 5})}}, "/output/message/content/0/text"),
    ],
)
def test_what_is_no_message_is_refused_at_its_place(message: Json, pointer: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        convert_item(message, agent="bot")
    assert caught.value.pointer == pointer


# Requests out


def test_conversation_with_tools_and_thinking_returns_as_it_was() -> None:
    history: list[Any] = [
        USER,
        answered(THINKING, {"text": "looking"}, tool_use("a"), tool_use("b")),
        asked(tool_result("a", {"json": {"n": 1}}), tool_result("b", status="error")),
        answered({"text": "done"}),
        USER,
    ]
    assert sent_again(*history) == history


def test_system_text_is_a_block() -> None:
    fields = BEDROCK.render_request([], system="be brief", tools="", model=MODEL)
    assert json.loads(fields["system"]) == [{"text": "be brief"}]


def test_results_stand_before_words() -> None:
    (message,) = messages_of(turn("user", text("by the way"), response_part("a")))
    assert [next(iter(block)) for block in message["content"]] == ["toolResult", "text"]


def test_result_is_json_where_it_was_json_and_never_blank() -> None:
    as_text = FunctionResponse(id="a", name="f", response='{"output":"x"}', response_text="x")
    blank = FunctionResponse(id="b", name="f", response='{"output":" "}', response_text=" ")
    as_json = response_part("c", result={"n": 12345678901234567890})
    contents = [
        block["toolResult"]["content"]
        for block in messages_of(turn("user", as_text, blank, as_json))[0]["content"]
    ]
    assert contents == [
        [{"text": "x"}],
        [{"json": {"output": " "}}],
        [{"json": {"n": 12345678901234567890}}],
    ]


def test_failed_result_says_so_in_its_status() -> None:
    failed = replace(response_part("a"), is_error=True)
    (block,) = messages_of(turn("user", failed))[0]["content"]
    assert block["toolResult"]["status"] == "error"


def test_media_of_a_result_stand_in_its_content() -> None:
    video = InlineData(mime_type="video/ogg", data="AAAA", display_name="clip.ogv")
    result = replace(response_part("a", result={}), media=(image(PNG), video))
    (block,) = messages_of(turn("user", result))[0]["content"]
    picture, told = block["toolResult"]["content"]
    assert picture == {"image": {"format": "png", "source": {"bytes": PNG}}}
    assert "clip.ogv left out" in told["text"]


def test_calls_without_tools_get_a_configuration_that_never_changes() -> None:
    once = body(turn("model", call_part("f", id="a")), turn("user", response_part("a")))
    again = body(turn("user", response_part("b", name="g")))
    assert once["toolConfig"] == again["toolConfig"]
    assert validate({**once, "messages": [USER]}) == ()
    assert "toolConfig" not in body(turn("user", text("go")))
    tools = BEDROCK.render_tools(['{"name":"f"}'])
    assert body(turn("user", text("go")), tools=tools)["toolConfig"] == json.loads(tools)


def test_rest_of_a_request_leaves_the_tools_to_what_was_sent_before() -> None:
    rest = [turn("user", response_part("a"))]
    for has_sent, expected in ((True, {"messages"}), (False, {"messages", "toolConfig"})):
        marks = HeadMarks(has_sent_tools=has_sent)
        fields = BEDROCK.render_request(rest, system="", tools="", model=MODEL, marks=marks)
        assert fields.keys() == expected


def test_cache_points_are_blocks_behind_what_they_close() -> None:
    marks = HeadMarks(tools="1h", system="1h")
    said = turn("user", text("go"), response_part("a"))
    marked = replace(said.parts[0], text=BEDROCK.with_marker(said.parts[0].text, "5m"))
    fields = BEDROCK.render_request(
        [replace(said, parts=(marked, said.parts[1]))],
        system="be brief",
        tools=BEDROCK.render_tools(['{"name":"f"}']),
        model=MODEL,
        marks=marks,
    )
    long = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert json.loads(fields["system"])[1:] == [long]
    assert json.loads(fields["toolConfig"])["tools"][1:] == [long]
    assert json.loads(fields["messages"])[0]["content"][1:] == [{"text": "go"}, POINT]


def test_no_cache_point_stands_behind_thinking_or_a_document() -> None:
    pdf = InlineData(mime_type="application/pdf", data="AAAA")
    thought = Text(text="hm", thought=True, signature="c2ln", signed_by="bedrock")
    assert not BEDROCK.takes_marker(thought, "model")
    assert not BEDROCK.takes_marker(pdf, "user")
    assert not BEDROCK.takes_marker(replace(response_part("a"), media=(pdf,)), "user")
    assert BEDROCK.takes_marker(call_part("f", id="a"), "model")


def test_model_that_takes_results_alone_gets_a_word_between() -> None:
    answers = turn("user", response_part("a"), text("and?"))
    results, noted, words = messages_of(answers, model=LLAMA)
    assert [results["role"], noted["role"], words["role"]] == ["user", "assistant", "user"]
    assert len(messages_of(answers)) == 1


def test_document_stands_beside_a_text() -> None:
    pdf = InlineData(mime_type="application/pdf", data="AAAA", display_name="a.pdf")
    (message,) = messages_of(turn("user", pdf, seq=3))
    assert message["content"] == [{"text": "[a.pdf]"}, document("a-pdf 3-0")]


def test_documents_of_one_name_are_told_apart_in_the_whole_request() -> None:
    pdf = InlineData(mime_type="application/pdf", data="AAAA", display_name="report")
    results = [replace(response_part(call_id), media=(pdf, pdf)) for call_id in ("a", "b")]
    turns = (
        turn("user", pdf, pdf, seq=1),
        turn("model", call_part("f", id="a"), call_part("f", id="b"), seq=2),
        turn("user", *results, pdf, seq=3),
    )
    names = [one["name"] for one in _documents(messages_of(*turns))]
    assert len(names) == len(set(names)) == 7
    assert all(name.startswith("report ") for name in names)
    rest = messages_of(replace(turns[2], parts=turns[2].parts[2:]))
    assert [one["name"] for one in _documents(rest)] == [names[-1]]


def test_name_of_a_document_does_not_grow_with_each_return() -> None:
    first = sent_again(asked({"text": "look"}, document("report")))
    again = sent_again(*first)
    (one,), (other,) = _documents(first), _documents(again)
    assert one["name"] == "report 1-1"
    assert other["name"].split(" ")[0] == "report"
    assert other["name"].count(" ") == 1


def _documents(messages: Any) -> list[Any]:
    found = []
    for block in (block for message in messages for block in message["content"]):
        inner = block["toolResult"]["content"] if "toolResult" in block else [block]
        found += [one["document"] for one in inner if "document" in one]
    return found


def test_rest_of_a_delta_is_what_the_whole_ended_with() -> None:
    turns = (
        turn("user", text("go"), seq=1),
        turn("model", call_part("f", id="a"), seq=2),
        turn("user", replace(response_part("a"), media=(image(PNG),)), text("so"), seq=3),
        turn("model", text("done"), seq=4),
        turn("user", text("thanks"), seq=5),
    )
    whole = messages_of(*turns)
    for count in range(len(turns)):
        assert messages_of(*turns[count:]) == whole[count:]


@pytest.mark.parametrize(
    "part",
    [
        text("hm", thought=True),
        text("  \n"),
        image(PNG),
        InlineData(mime_type="application/zip", data="AAAA"),
        InlineData(mime_type="text/plain", data="ICA="),
        FileData(file_uri="https://x.example/a.png", mime_type="image/png"),
        Opaque(provider="anthropic", type="redacted_thinking", raw="{}", thought=True),
        Opaque(provider="openai", type="web_search_call", raw="{}"),
        response_part("a"),
    ],
    ids=repr,
)
def test_what_has_no_place_in_a_model_turn_is_not_said(part: Part) -> None:
    assert not BEDROCK.says(part, "model")


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("text", '{"text":"a"}'),
        ("toolUse", canonical_json(tool_use())),
        ("toolResult", canonical_json(tool_result())),
        ("reasoningContent", canonical_json(THINKING)),
        ("cachePoint", '{"cachePoint":{"type":"default"}}'),
        ("guardContent", '{"guardContent":5}'),
        ("guardContent", '{"searchResult":{}}'),
        ("document", canonical_json(document(bytes=""))),
        ("hologram", '{"hologram":{}}'),
    ],
)
def test_opaque_part_that_would_break_a_rule_is_not_verbatim(kind: str, raw: str) -> None:
    part = Opaque(provider="bedrock", type=kind, raw=raw)
    assert not BEDROCK.says(part, "user")
    assert not BEDROCK.says(replace(part, thought=True), "model")
    told = messages_of(turn("user", replace(part, text="told")))
    assert told == [asked({"text": "told"})]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            FileData(file_uri="s3://abc/a.png"),
            {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://abc/a.png"}}}},
        ),
        (
            InlineData(mime_type="video/3gpp", data="AAAA"),
            {"video": {"format": "three_gp", "source": {"bytes": "AAAA"}}},
        ),
        (
            InlineData(mime_type="audio/mpeg", data="AAAA"),
            {"audio": {"format": "mp3", "source": {"bytes": "AAAA"}}},
        ),
        (ExecutableCode(code="1+1", language="PYTHON"), {"text": "```python\n1+1\n```"}),
        (
            CodeExecutionResult(outcome="OUTCOME_OK", output="2"),
            {"text": "OUTCOME_OK\n```\n2\n```"},
        ),
        (
            Opaque(provider="anthropic", type="search_result", raw="{}", text="told"),
            {"text": "told"},
        ),
    ],
)
def test_part_takes_the_providers_shape(part: Part, expected: Json) -> None:
    assert BEDROCK.says(part, "user")
    assert messages_of(turn("user", part)) == [asked(expected)]


@pytest.mark.parametrize(
    ("mime_type", "media_format"),
    [("text/csv", "csv"), ("text/markdown; charset=utf-8", "md"), ("text/x-python", "txt")],
)
def test_files_that_are_text_are_documents(mime_type: str, media_format: str) -> None:
    part = InlineData(mime_type=mime_type, data="YSxi")
    (_, block) = messages_of(turn("user", part))[0]["content"]
    assert block["document"]["format"] == media_format


def test_ids_and_names_are_mapped_into_the_charset() -> None:
    assert BEDROCK.emit_id("tooluse_a-1") == "tooluse_a-1"
    one, other = BEDROCK.emit_id("x" * 70 + "1"), BEDROCK.emit_id("x" * 70 + "2")
    assert len(one) == len(other) == 64
    assert one != other
    (block,) = messages_of(turn("model", call_part("functions.search", id="a")))[0]["content"]
    assert block["toolUse"]["name"].startswith("functions_search_")


def test_arguments_that_are_no_object_are_wrapped() -> None:
    part = FunctionCall(id="a", name="f", args='{"_raw":"[1]"}', args_text="[1]")
    (block,) = messages_of(turn("model", part))[0]["content"]
    assert block["toolUse"]["input"] == {"_raw": "[1]"}


def test_tools_of_ours_and_of_the_provider_are_accepted() -> None:
    schema = {"type": "object", "properties": {}}
    ours = {"name": "f", "description": "does", "parameters": schema}
    theirs = {"toolSpec": {"name": "g", "inputSchema": {"json": schema}}}
    config = json.loads(BEDROCK.render_tools([json.dumps(ours), json.dumps(theirs)]))
    spec = {"name": "f", "description": "does", "inputSchema": {"json": schema}}
    assert config == {"tools": [{"toolSpec": spec}, theirs]}
    assert BEDROCK.render_tools([]) == ""


def test_tool_without_a_name_is_refused_at_its_place() -> None:
    with pytest.raises(InvalidInputError) as caught:
        BEDROCK.render_tools(['{"name":"f"}', "{}"])
    assert caught.value.pointer == "/tools/1/name"


# What the provider refuses

CONFIG: dict[str, Any] = {
    "tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]
}
PAIR: list[Any] = [USER, answered(tool_use()), asked(tool_result())]
POINT: dict[str, Any] = {"cachePoint": {"type": "default"}}


def test_valid_requests_break_nothing() -> None:
    messages: list[Json] = [
        asked({"text": "look"}, document(), POINT),
        answered(THINKING, tool_use("a"), tool_use("b.1:c")),
        asked(tool_result("b.1:c"), POINT, tool_result("a", {"json": {}}), {"text": "so"}),
        answered({"text": "done"}),
        asked({"guardContent": {"text": {"text": "a"}}}),
        {"role": "system", "content": [{"text": "be brief"}]},
    ]
    request: Json = {"system": [{"text": "be"}, POINT], "messages": messages, "toolConfig": CONFIG}
    assert validate(request, model=MODEL) == ()


@pytest.mark.parametrize(
    ("messages", "rule", "path"),
    [
        (None, "shape", "/messages"),
        ([], "messages_not_empty", "/messages"),
        (["hi"], "shape", "/messages/0"),
        ([{"role": "tool", "content": []}], "role_known", "/messages/0/role"),
        ([{"role": "user", "content": "go"}], "shape", "/messages/0/content"),
        ([asked()], "content_not_empty", "/messages/0/content"),
        ([asked("a")], "shape", "/messages/0/content/0"),
        ([asked({"text": "a", "image": {}})], "shape", "/messages/0/content/0"),
        ([asked({"hologram": {}})], "block_known", "/messages/0/content/0"),
        ([asked({"image": 5})], "shape", "/messages/0/content/0/image"),
        ([asked({"text": " "})], "text_not_blank", "/messages/0/content/0/text"),
        ([asked({"text": 5})], "shape", "/messages/0/content/0/text"),
        ([asked(tool_use())], "block_fits_role", "/messages/0/content/0"),
        ([USER, answered(tool_result())], "block_fits_role", "/messages/1/content/0"),
        (
            [USER, answered({"image": {"format": "png", "source": {"bytes": "AA=="}}})],
            "block_fits_role",
            "/messages/1/content/0",
        ),
        ([answered({"text": "a"}), USER], "first_role_user", "/messages/0/role"),
        ([USER, USER], "roles_alternate", "/messages/1/role"),
        ([USER, answered({"text": "a"})], "last_role_user", "/messages/1/role"),
        ([USER, answered(THINKING), USER], "thinking_not_last", "/messages/1/content/0"),
        (
            [
                USER,
                answered({"reasoningContent": {"reasoningText": {"text": "a"}}}, {"text": "b"}),
                USER,
            ],
            "thinking_signed",
            "/messages/1/content/0/reasoningContent/reasoningText",
        ),
        (
            [USER, answered({"reasoningContent": {"redactedContent": ""}}, {"text": "b"}), USER],
            "thinking_signed",
            "/messages/1/content/0/reasoningContent/redactedContent",
        ),
        (
            [USER, answered({"reasoningContent": {}}, {"text": "b"}), USER],
            "shape",
            "/messages/1/content/0/reasoningContent",
        ),
        ([asked(document())], "document_has_text", "/messages/0/content/0"),
        (
            [asked({"text": "a"}, document("a.pdf"))],
            "document_name",
            "/messages/0/content/1/document/name",
        ),
        (
            [asked({"text": "a"}, document("a  b"))],
            "document_name",
            "/messages/0/content/1/document/name",
        ),
        (
            [asked({"text": "a"}, document("x" * 201))],
            "document_name",
            "/messages/0/content/1/document/name",
        ),
        (
            [asked({"text": "a"}, document("a"), document("A"))],
            "document_name_unique",
            "/messages/0/content/2/document/name",
        ),
        (
            [asked({"text": "a"}, document("a", bytes=""))],
            "media_accepted",
            "/messages/0/content/1/document/source",
        ),
        (
            [asked({"text": "a"}, *(document(f"d{n}") for n in range(6)))],
            "media_count",
            "/messages/0/content/6/document",
        ),
        (
            [
                USER,
                answered(tool_use()),
                asked(tool_result("a", *[PICTURE] * 20), PICTURE),
            ],
            "media_count",
            "/messages/2/content/1/image",
        ),
        (
            [asked({"text": "a"}, SHEET)],
            "media_size",
            "/messages/0/content/1/document/source/bytes",
        ),
        (
            [asked({"image": {"format": "png", "source": {"bytes": "A" * 5_000_004}}})],
            "media_size",
            "/messages/0/content/0/image/source/bytes",
        ),
        (
            [asked({"image": {"format": "png", "source": {"bytes": png(8_001, 10)}}})],
            "media_size",
            "/messages/0/content/0/image/source/bytes",
        ),
        (
            [asked({"image": {"format": "tiff", "source": {"bytes": "AAAA"}}})],
            "media_accepted",
            "/messages/0/content/0/image/format",
        ),
        (
            [asked({"image": {"format": "png", "source": {"s3Location": {"uri": "https://a"}}}})],
            "media_accepted",
            "/messages/0/content/0/image/source",
        ),
        (
            [USER, answered(tool_use("a b")), asked(tool_result("a b"))],
            "call_id_charset",
            "/messages/1/content/0/toolUse/toolUseId",
        ),
        (
            [USER, answered(tool_use("x" * 65)), asked(tool_result("x" * 65))],
            "call_id_length",
            "/messages/1/content/0/toolUse/toolUseId",
        ),
        (
            [USER, answered(tool_use(name="a.b")), asked(tool_result())],
            "tool_name",
            "/messages/1/content/0/toolUse/name",
        ),
        (
            [USER, answered(tool_use(input="{}")), asked(tool_result())],
            "input_is_object",
            "/messages/1/content/0/toolUse/input",
        ),
        (
            [*PAIR[:2], asked(tool_result(status="failed"))],
            "status_known",
            "/messages/2/content/0/toolResult/status",
        ),
        (
            [*PAIR[:2], asked(tool_result(content="done"))],
            "shape",
            "/messages/2/content/0/toolResult/content",
        ),
        (
            [*PAIR[:2], asked(tool_result("a", {"text": ""}))],
            "text_not_blank",
            "/messages/2/content/0/toolResult/content/0/text",
        ),
        (
            [*PAIR[:2], asked(tool_result("a", {"json": []}))],
            "json_is_object",
            "/messages/2/content/0/toolResult/content/0/json",
        ),
        (
            [*PAIR[:2], asked(tool_result("a", tool_use()))],
            "block_fits_result",
            "/messages/2/content/0/toolResult/content/0",
        ),
        ([*PAIR[:2], USER], "call_answered", "/messages/1/content/0/toolUse"),
        ([USER, answered(tool_use())], "call_answered", "/messages/1/content/0/toolUse"),
        (
            [*PAIR[:2], asked(tool_result(), tool_result())],
            "call_answered_once",
            "/messages/2/content/1/toolResult/toolUseId",
        ),
        (
            [asked(tool_result())],
            "result_has_call",
            "/messages/0/content/0/toolResult/toolUseId",
        ),
        (
            [*PAIR, *PAIR[1:]],
            "call_id_unique",
            "/messages/3/content/0/toolUse/toolUseId",
        ),
        (
            [*PAIR[:2], asked({"text": "so"}, tool_result())],
            "results_first",
            "/messages/2/content/1",
        ),
        (
            [asked({"text": "a"}, *[POINT] * 5)],
            "breakpoint_count",
            "/messages/0/content/5",
        ),
        ([asked(POINT, {"text": "a"})], "breakpoint_place", "/messages/0/content/0"),
        (
            [asked({"text": "a"}, POINT, {"cachePoint": {"type": "default", "ttl": "1h"}})],
            "breakpoint_ttl_order",
            "/messages/0/content/2",
        ),
    ],
)
def test_each_rule_of_the_messages_is_told_at_its_place(
    messages: Json, rule: str, path: str
) -> None:
    request: Json = {"messages": messages, "toolConfig": CONFIG}
    assert (rule, path) in [(one.rule, one.path) for one in validate(request, model=MODEL)]


@pytest.mark.parametrize(
    ("fields", "rule", "path"),
    [
        ({"system": "be brief"}, "shape", "/system"),
        ({"system": [{"text": ""}]}, "text_not_blank", "/system/0/text"),
        ({"system": [tool_use()]}, "block_fits_role", "/system/0"),
        ({"messages": PAIR}, "tool_config_present", "/messages/1/content/0"),
        ({"toolConfig": {}}, "shape", "/toolConfig/tools"),
        ({"toolConfig": {"tools": []}}, "tools_not_empty", "/toolConfig/tools"),
        ({"toolConfig": {"tools": [{"name": "f"}]}}, "shape", "/toolConfig/tools/0"),
        (
            {"toolConfig": {"tools": [CONFIG["tools"][0]] * 2}},
            "tool_name_unique",
            "/toolConfig/tools/1/toolSpec/name",
        ),
        (
            {"toolConfig": {"tools": [{"systemTool": {"name": "a.b"}}]}},
            "tool_name",
            "/toolConfig/tools/0/systemTool/name",
        ),
        (
            {"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {}}}}]}},
            "tool_schema",
            "/toolConfig/tools/0/toolSpec/inputSchema",
        ),
        (
            {
                "toolConfig": {
                    "tools": [{"toolSpec": {**CONFIG["tools"][0]["toolSpec"], "description": ""}}]
                }
            },
            "text_not_blank",
            "/toolConfig/tools/0/toolSpec/description",
        ),
    ],
)
def test_each_rule_of_the_request_is_told_at_its_place(
    fields: dict[str, Any], rule: str, path: str
) -> None:
    request: Json = {"messages": [USER], **fields}
    assert [(one.rule, one.path) for one in validate(request, model=MODEL)] == [(rule, path)]


def test_words_beside_results_are_refused_by_some_models_only() -> None:
    request: Json = {
        "messages": [*PAIR[:2], asked(tool_result(), {"text": "so"})],
        "toolConfig": CONFIG,
    }
    assert validate(request, model=MODEL) == ()
    assert [one.rule for one in validate(request, model=LLAMA)] == ["results_alone"]


@pytest.mark.parametrize("request_body", [None, [], "hi", 5])
def test_what_is_no_request_is_told(request_body: Json) -> None:
    assert [one.rule for one in validate(request_body)] == ["shape"]
