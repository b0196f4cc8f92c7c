"""Responses: items in, requests out, and what the provider refuses."""

import json
from typing import Any

import pytest
from openai.types.responses import FunctionToolParam
from openai.types.responses.response_input_param import ResponseInputItemParam

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
from app.formats.adk import parse_event
from app.formats.anthropic import ANTHROPIC
from app.formats.gemini import GEMINI
from app.formats.openai_responses import OPENAI_RESPONSES, convert_item, validate
from tests.builders import call_part, image, response_part, text
from tests.closed_types import mismatches
from tests.compiling import append_items, body_of, compile_for, violations_of

PNG = "iVBORw0KGgo="
MODEL = "gpt-5.6"
REASONING: dict[str, Any] = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Looking."}],
    "encrypted_content": "gAAAAAB",
}
CALL: dict[str, Any] = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "f",
    "arguments": '{"b": 1,  "a": 2}',
}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
ANSWER: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": "Here.", "annotations": []}],
}
USER: dict[str, Any] = {"role": "user", "content": "go"}
SEARCH: dict[str, Any] = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "weather"},
}


def events_of(item: Json) -> list[dict[str, Any]]:
    events = convert_item(item, agent="bot")
    for event in events:
        parse_event(event)
    return events


def convert(item: Json) -> dict[str, Any]:
    (event,) = events_of(item)
    return event


def parts_of(item: Json) -> tuple[Part, ...]:
    return parse_event(convert(item)).event.parts


def turn(role: Role, *parts: Part) -> RenderedContent:
    """Render a content as the pipeline does: what the format does not say is left out."""
    placed = tuple(PlacedPart(part) for part in parts if OPENAI_RESPONSES.says(part, role))
    rendered = (RenderedPart(one, OPENAI_RESPONSES.render_part(one.part, role)) for one in placed)
    return RenderedContent(Content(role, placed), tuple(rendered))


def items_of(*turns: RenderedContent, model: str = MODEL) -> Any:
    body = OPENAI_RESPONSES.render_request(turns, system="", tools="", model=model)
    return json.loads(body["input"])


def sent_again(*items: Json, **options: Any) -> Any:
    """Append the items, compile the log and return the input of the request."""
    result = compile_for(append_items("openai_responses", items), "openai_responses", **options)
    assert violations_of(result, "openai_responses") == ()
    return body_of(result, "openai_responses")["input"]


# Items in


def test_user_message_in_either_form_is_the_users_event() -> None:
    expected = {"author": "user", "content": {"role": "user", "parts": [{"text": "hi"}]}}
    assert convert({"role": "user", "content": "hi"}) == expected
    content: Json = [{"type": "input_text", "text": "hi"}]
    assert convert({"type": "message", "role": "user", "content": content}) == expected


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_message_stays_in_place_and_says_what_it_was(role: str) -> None:
    event = convert({"role": role, "content": "be brief"})
    assert event["author"] == event["content"]["role"] == "user"
    assert event["custom_metadata"] == {"source_role": role}


def test_assistant_message_keeps_what_its_item_is_known_by() -> None:
    event = convert(ANSWER)
    assert event["author"] == "bot"
    assert event["content"] == {
        "role": "model",
        "parts": [
            {"text": "Here.", "openai_item": {"id": "msg_1", "phase": "final_answer"}},
        ],
    }


def test_function_call_keeps_its_arguments_as_text() -> None:
    (part,) = parts_of(CALL)
    assert isinstance(part, FunctionCall)
    assert (part.id, part.name, part.args_text) == ("call_1", "f", '{"b": 1,  "a": 2}')
    assert part.extra == '{"openai_item":{"id":"fc_1"}}'


def test_output_answers_by_id_and_invents_no_name() -> None:
    event = convert(OUTPUT)
    assert event["author"] == "bot"
    assert event["content"] == {
        "role": "user",
        "parts": [{"function_response": {"name": "", "response": "done", "id": "call_1"}}],
    }


def test_output_of_parts_keeps_texts_and_media() -> None:
    output: Json = [
        {"type": "input_text", "text": "one"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
        {"type": "output_text", "text": "two"},
    ]
    (part,) = parts_of({**OUTPUT, "output": output})
    assert isinstance(part, FunctionResponse)
    assert (part.response_text, part.media) == ("one\ntwo", (image(PNG),))


def test_reasoning_is_a_thought_that_only_this_provider_reads() -> None:
    (part,) = parts_of(REASONING)
    assert part == Opaque(
        provider="openai", type="reasoning", raw=canonical_json(REASONING), thought=True
    )
    for other in (ANTHROPIC, GEMINI):
        assert not other.says(part, "model")


@pytest.mark.parametrize(
    ("item", "name", "args"),
    [
        (
            {"type": "local_shell_call", "id": "lsh_1", "action": {"command": ["ls"]}},
            "local_shell",
            {"action": {"command": ["ls"]}},
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            "shell",
            {"action": {"commands": ["ls"]}},
        ),
        (
            {"type": "apply_patch_call", "call_id": "c", "operation": {"path": "a"}},
            "apply_patch",
            {"operation": {"path": "a"}},
        ),
        (
            {"type": "computer_call", "call_id": "c", "action": {"type": "click"}},
            "computer",
            {"action": {"type": "click"}},
        ),
    ],
)
def test_whatever_the_client_answers_is_a_call(item: Any, name: str, args: Json) -> None:
    (part,) = parts_of(item)
    assert isinstance(part, FunctionCall)
    assert (part.id, part.name) == (item.get("call_id", item.get("id")), name)
    assert part.args == canonical_json(args)


def test_outputs_of_the_providers_own_tools_are_results() -> None:
    shot: Json = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"},
    }
    (screen,) = parts_of(shot)
    assert isinstance(screen, FunctionResponse)
    assert screen.media == (image(PNG),)
    ran: Json = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a"}]}
    (listed,) = parts_of(ran)
    assert isinstance(listed, FunctionResponse)
    assert listed.response_text == '{"stdout":"a"}'
    (failed,) = parts_of(
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"}
    )
    assert isinstance(failed, FunctionResponse)
    assert failed.is_error
    (local,) = parts_of({"type": "local_shell_call_output", "id": "c", "output": "a"})
    assert isinstance(local, FunctionResponse)
    assert local.id == "c"


def test_what_ran_at_the_provider_is_kept_verbatim_with_a_text_for_others() -> None:
    (part,) = parts_of(SEARCH)
    assert part == Opaque(
        provider="openai",
        type="web_search_call",
        raw=canonical_json(SEARCH),
        text='[web search call] {"action":{"type":"search","query":"weather"}}',
    )


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "input_text", "text": "a"}, text("a")),
        ("a", text("a")),
        (
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
            InlineData(mime_type="image/png", data=PNG),
        ),
        (
            {"type": "input_image", "image_url": "https://x.example/a.JPG"},
            FileData(file_uri="https://x.example/a.JPG", mime_type="image/jpeg"),
        ),
        (
            {"type": "input_image", "file_id": "file_1"},
            Opaque(
                provider="openai",
                type="input_image",
                raw='{"type":"input_image","file_id":"file_1"}',
                text="[image]",
            ),
        ),
        (
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,AAAA",
            },
            InlineData(mime_type="application/pdf", data="AAAA", display_name="a.pdf"),
        ),
        (
            {"type": "input_file", "file_url": "https://x.example/a.pdf"},
            FileData(file_uri="https://x.example/a.pdf", mime_type="application/pdf"),
        ),
        (
            {"type": "refusal", "refusal": "no"},
            Opaque(
                provider="openai",
                type="refusal",
                raw='{"type":"refusal","refusal":"no"}',
                text="no",
            ),
        ),
        (
            {"type": "hologram", "x": 1, "prompt_cache_breakpoint": {"mode": "explicit"}},
            Opaque(provider="openai", type="hologram", raw='{"type":"hologram","x":1}'),
        ),
    ],
)
def test_content_parts_are_told_apart(part: Json, expected: Part) -> None:
    assert parts_of({"role": "user", "content": [part]}) == (expected,)


def test_whole_response_is_one_event_that_says_which_and_at_what_cost() -> None:
    response: Json = {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-5.6-2026-08-01",
        "output": [REASONING, CALL],
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 80},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 15},
            "total_tokens": 120,
        },
    }
    event = convert(response)
    assert event["response_id"] == "resp_1"
    assert event["model_version"] == "gpt-5.6-2026-08-01"
    assert [key for part in event["content"]["parts"] for key in part] == [
        "opaque",
        "thought",
        "function_call",
        "openai_item",
    ]
    assert event["usage_metadata"] == {
        "prompt_token_count": 100,
        "cached_content_token_count": 80,
        "candidates_token_count": 20,
        "thoughts_token_count": 15,
        "total_token_count": 120,
    }


def test_output_of_a_compaction_is_read_item_by_item() -> None:
    output: Json = [USER, {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}, ANSWER]
    user, made = events_of({"object": "response.compaction", "id": "resp_1", "output": output})
    assert user["author"] == "user"
    assert "response_id" not in user
    assert [next(iter(part)) for part in made["content"]["parts"]] == ["opaque", "text"]


def test_failed_response_says_why() -> None:
    error: Json = {"code": "server_error", "message": "oops"}
    event = convert({"id": "resp_1", "output": [ANSWER], "error": error})
    assert (event["error_code"], event["error_message"]) == ("server_error", "oops")


def test_rollout_line_is_its_item_at_its_time_and_what_is_for_the_screen_is_left_out() -> None:
    line: dict[str, Any] = {"timestamp": "2025-11-17T21:30:45.025Z", "type": "response_item"}
    assert convert({**line, "payload": CALL}) == {**convert(CALL), "timestamp": line["timestamp"]}
    summary = convert({**line, "type": "compacted", "payload": {"message": "so far"}})
    assert summary["content"] == {"role": "user", "parts": [{"text": "so far"}]}
    screen: Json = {"type": "agent_message", "message": "Here."}
    assert events_of({**line, "type": "event_msg", "payload": screen}) == []


@pytest.mark.parametrize(
    ("item", "pointer"),
    [
        ("hi", ""),
        ({"content": "hi"}, "/type"),
        ({"role": "human", "content": "hi"}, "/role"),
        ({"role": "user", "content": 3}, "/content"),
        ({"role": "user", "content": [3]}, "/content/0"),
        ({"role": "user", "content": [{"text": "a"}]}, "/content/0/type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "/content/0/text"),
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": 5}]},
            "/content/0/image_url",
        ),
        ({"type": 5}, "/type"),
        ({"id": None}, "/type"),
        ({"type": "function_call", "call_id": "c"}, "/name"),
        ({"type": "function_call", "name": "f", "call_id": 5}, "/call_id"),
        ({"type": "custom_tool_call", "name": "f", "call_id": "c"}, "/input"),
        ({"type": "function_call_output", "call_id": 5}, "/call_id"),
        ({"output": [5]}, "/output/0"),
        ({"output": [ANSWER], "id": 5}, "/id"),
        ({"type": "response_item", "payload": {"type": "function_call"}}, "/payload/name"),
    ],
)
def test_what_is_no_item_is_refused_at_its_place(item: Json, pointer: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        convert_item(item, agent="bot")
    assert caught.value.pointer == pointer


# Requests out


def test_every_part_is_an_item_and_what_the_user_said_at_once_is_one_message() -> None:
    assert items_of(
        turn("user", text("look"), image(PNG)),
        turn("model", text("looking"), call_part("f", id="a", args={"x": 1})),
        turn("user", response_part("a")),
        turn("model", text("a"), text("b")),
    ) == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {
                    "type": "input_image",
                    "image_url": f"data:image/png;base64,{PNG}",
                    "detail": "auto",
                },
            ],
        },
        {"type": "message", "role": "assistant", "content": "looking"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x":1}'},
        {"type": "function_call_output", "call_id": "a", "output": '{"result":"ok"}'},
        {"type": "message", "role": "assistant", "content": "a"},
        {"type": "message", "role": "assistant", "content": "b"},
    ]


def test_system_text_is_the_instructions() -> None:
    body = OPENAI_RESPONSES.render_request([], system="be brief", tools="", model=MODEL)
    assert body == {"instructions": '"be brief"', "input": "[]"}


def test_conversation_with_reasoning_returns_as_it_was() -> None:
    made: list[Json] = [REASONING, CALL, OUTPUT, {**REASONING, "id": "rs_2"}, ANSWER]
    sent = sent_again(USER, *made, USER)
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
    assert sent == [asked, *made, asked]
    assert mismatches(sent, list[ResponseInputItemParam]) == []


def test_reasoning_without_proof_is_left_out_with_the_ids_of_what_it_led_to() -> None:
    bare = {**REASONING, "encrypted_content": None}
    user, call, output = sent_again(USER, bare, CALL, OUTPUT)
    assert "id" not in call
    assert call["arguments"] == CALL["arguments"]
    assert (user["role"], output["output"]) == ("user", "done")


def test_stripping_thinking_strips_the_ids_of_what_followed_and_keeps_the_rest() -> None:
    sent = sent_again(USER, REASONING, SEARCH, ANSWER, USER, thinking="strip")
    assert [item["type"] for item in sent] == ["message", "web_search_call", "message", "message"]
    assert not [item for item in sent if "id" in item]
    assert sent[2] == {
        "type": "message",
        "role": "assistant",
        "phase": "final_answer",
        "content": "Here.",
    }


def test_what_was_said_before_any_reasoning_has_no_id() -> None:
    early = {**CALL, "id": "fc_0", "call_id": "early"}
    (first, reasoning, second) = items_of(
        turn("model", *parts_of(early), *parts_of(REASONING), *parts_of(CALL))
    )
    assert "id" not in first
    assert (reasoning, second) == (REASONING, CALL)


def test_id_of_a_search_stays_where_nothing_can_be_missing() -> None:
    search = parts_of(SEARCH)
    assert items_of(turn("model", *search), model="gpt-4.1") == [SEARCH]
    assert items_of(turn("model", *parts_of(REASONING), *search)) == [REASONING, SEARCH]
    assert "id" not in items_of(turn("model", *search))[0]


def test_reasoning_that_nothing_of_its_response_follows_is_left_out() -> None:
    assert [item["type"] for item in sent_again(USER, REASONING)] == ["message"]
    sent = sent_again(USER, REASONING, USER, ANSWER)
    assert [item.get("role") for item in sent] == ["user", "user", "assistant"]


def test_null_members_of_an_answer_are_no_part_of_a_request() -> None:
    answered = {**REASONING, "content": None, "status": None}
    assert items_of(turn("model", *parts_of(answered), text("a")))[0] == REASONING


def test_signed_thought_is_reasoning_and_anothers_is_not() -> None:
    own = Text(text="hm", thought=True, signature="gAAA", signed_by="openai")
    assert items_of(turn("model", own, text("a")))[0] == {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gAAA",
    }
    for signer in ("gemini", "anthropic", "bedrock", None):
        assert not OPENAI_RESPONSES.says(replace(own, signed_by=signer), "model")


def test_what_a_delta_holds_of_a_turn_knows_the_reasoning_before_it() -> None:
    whole = turn("model", *parts_of(REASONING), *parts_of(CALL))
    rest = replace(whole, parts=whole.parts[1:])
    assert items_of(rest) == items_of(whole)[1:]
    assert items_of(rest)[0]["id"] == "fc_1"


def test_rest_of_a_delta_is_what_the_whole_ended_with() -> None:
    turns = (
        turn("user", text("go")),
        turn("model", call_part("f", id="a")),
        turn("user", replace(response_part("a"), media=(image(PNG),))),
        turn("model", text("done")),
        turn("user", text("thanks")),
    )
    whole = items_of(*turns)
    for count in range(len(turns)):
        assert items_of(*turns[count:]) == whole[count:]


CUSTOM: dict[str, Any] = {
    "type": "custom_tool_call",
    "call_id": "c",
    "name": "sql",
    "input": "SELECT 1",
}
CUSTOM_OUTPUT: dict[str, Any] = {
    "type": "custom_tool_call_output",
    "call_id": "c",
    "output": "1",
}


def test_custom_tool_call_returns_as_it_was() -> None:
    assert sent_again(USER, CUSTOM, CUSTOM_OUTPUT)[1:] == [CUSTOM, CUSTOM_OUTPUT]


def test_custom_tool_call_without_a_result_is_closed_by_an_item_of_its_kind() -> None:
    _, call, output = sent_again(USER, CUSTOM)
    assert call == CUSTOM
    assert output["type"] == "custom_tool_call_output"


def test_result_that_came_as_another_kind_answers_as_the_call_wants() -> None:
    answered = {**CUSTOM_OUTPUT, "call_id": "call_1"}
    assert sent_again(USER, CALL, answered)[2]["type"] == "function_call_output"
    told = {**OUTPUT, "call_id": "c"}
    assert sent_again(USER, CUSTOM, told)[2]["type"] == "custom_tool_call_output"


def test_custom_tool_call_is_a_call_with_one_input_for_others() -> None:
    (part,) = parts_of(CUSTOM)
    assert isinstance(part, FunctionCall)
    assert json.loads(ANTHROPIC.render_part(part, "model"))["input"] == {"input": "SELECT 1"}
    assert json.loads(GEMINI.render_part(part, "model")) == {
        "functionCall": {"id": "c", "name": "sql", "args": {"input": "SELECT 1"}}
    }


def test_compaction_item_travels_verbatim_wherever_it_stands() -> None:
    item: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    assert sent_again(USER, item, USER)[1] == item
    (part,) = parts_of(item)
    assert items_of(turn("user", part, text("a")))[0] == item


def test_what_asks_for_something_once_is_not_sent_again() -> None:
    assert [item["type"] for item in sent_again(USER, {"type": "compaction_trigger"})] == [
        "message"
    ]


def test_item_that_the_api_does_not_know_is_told_or_left_out() -> None:
    unknown = Opaque(provider="openai", type="ghost_snapshot", raw='{"type":"ghost_snapshot"}')
    assert not OPENAI_RESPONSES.says(unknown, "model")
    told = replace(unknown, text="told")
    assert items_of(turn("user", told))[0]["content"] == [{"type": "input_text", "text": "told"}]


@pytest.mark.parametrize(
    "part",
    [
        Opaque(provider="openai", type="web_search_call", raw='{"type":"message","role":"user"}'),
        Opaque(provider="openai", type="compaction", raw='{"type":"compaction"}'),
        Opaque(
            provider="openai",
            type="reasoning",
            raw='{"type":"reasoning","summary":"x","encrypted_content":"y"}',
            thought=True,
        ),
        Opaque(provider="anthropic", type="web_search_call", raw=canonical_json(SEARCH)),
        Opaque(provider="openai", type="function_call", raw=canonical_json(CALL)),
    ],
    ids=lambda part: f"{part.provider} {part.type}",
)
def test_opaque_part_that_would_break_a_rule_is_not_verbatim(part: Part) -> None:
    assert not OPENAI_RESPONSES.says(part, "model")


@pytest.mark.parametrize(
    "arguments",
    ['{"b": 1,  "a": 2}', '{"n": 123456789012345678901234567890}', '{"a":1,"a":2}', "[1]", "null"],
)
def test_arguments_that_are_json_travel_byte_for_byte(arguments: str) -> None:
    part = FunctionCall(id="a", name="f", args="{}", args_text=arguments)
    assert items_of(turn("model", part))[0]["arguments"] == arguments


@pytest.mark.parametrize("arguments", ["{not json", "", '{"a":NaN}'])
def test_arguments_that_are_no_json_are_wrapped(arguments: str) -> None:
    part = FunctionCall(id="a", name="f", args='{"_raw":"x"}', args_text=arguments)
    assert items_of(turn("model", part))[0]["arguments"] == '{"_raw":"x"}'


def test_failed_result_says_so_in_its_output() -> None:
    sent = FunctionResponse(
        id="a", name="f", response="{}", response_text="no such file", is_error=True
    )
    structured = FunctionResponse(id="b", name="f", response='{"status":404}', is_error=True)
    outputs = [json.loads(one["output"]) for one in items_of(turn("user", sent, structured))]
    assert outputs == [{"error": "no such file"}, {"error": {"status": 404}}]


def test_media_of_a_result_stand_in_its_output() -> None:
    video = InlineData(mime_type="video/mp4", data="AAAA", display_name="clip.mp4")
    (item,) = items_of(turn("user", replace(response_part("a"), media=(image(PNG), video))))
    assert [part["type"] for part in item["output"]] == ["input_text", "input_image", "input_text"]
    assert "clip.mp4 left out" in item["output"][2]["text"]
    (bare,) = items_of(turn("user", replace(response_part("a", result={}), media=(image(PNG),))))
    assert [part["type"] for part in bare["output"]] == ["input_image"]


@pytest.mark.parametrize(
    "part",
    [
        text("hm", thought=True),
        text("  \n"),
        image(PNG),
        InlineData(mime_type="video/mp4", data="AAAA"),
        FileData(file_uri="gs://bucket/a.png", mime_type="image/png"),
        Opaque(provider="gemini", type="tool_call", raw="{}"),
        response_part("a"),
    ],
    ids=repr,
)
def test_what_has_no_place_in_a_model_turn_is_not_said(part: Part) -> None:
    assert not OPENAI_RESPONSES.says(part, "model")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            FileData(file_uri="https://x.example/a.png"),
            {"type": "input_image", "image_url": "https://x.example/a.png", "detail": "auto"},
        ),
        (
            FileData(file_uri="https://x.example/a.pdf"),
            {"type": "input_file", "file_url": "https://x.example/a.pdf"},
        ),
        (
            InlineData(mime_type="application/pdf", data="AAAA"),
            {
                "type": "input_file",
                "filename": "document.pdf",
                "file_data": "data:application/pdf;base64,AAAA",
            },
        ),
        (InlineData(mime_type="text/csv", data="YSxi"), {"type": "input_text", "text": "a,b"}),
        (
            ExecutableCode(code="1+1", language="PYTHON"),
            {"type": "input_text", "text": "```python\n1+1\n```"},
        ),
        (
            CodeExecutionResult(outcome="OUTCOME_OK", output="2"),
            {"type": "input_text", "text": "OUTCOME_OK\n```\n2\n```"},
        ),
        (
            Opaque(
                provider="openai",
                type="input_file",
                raw='{"type":"input_file","file_id":"file_1"}',
            ),
            {"type": "input_file", "file_id": "file_1"},
        ),
        (
            Opaque(
                provider="openai",
                type="input_image",
                raw='{"type":"input_image","file_id":"file_1"}',
            ),
            {"detail": "auto", "type": "input_image", "file_id": "file_1"},
        ),
    ],
)
def test_part_takes_the_providers_shape(part: Part, expected: Json) -> None:
    assert OPENAI_RESPONSES.says(part, "user")
    (message,) = items_of(turn("user", part))
    assert message["content"] == [expected]
    assert mismatches([message], list[ResponseInputItemParam]) == []


def test_refusal_returns_beside_its_reasoning_and_is_told_without() -> None:
    content: Json = [{"type": "refusal", "refusal": "no"}]
    refused = {**ANSWER, "content": content}
    assert sent_again(USER, REASONING, refused)[2] == refused
    assert sent_again(USER, refused)[1]["content"] == "no"


def test_id_that_fits_is_emitted_as_it_is_and_long_ones_stay_apart() -> None:
    assert OPENAI_RESPONSES.emit_id("call 1:ä") == "call 1:ä"
    one, other = OPENAI_RESPONSES.emit_id("x" * 70 + "1"), OPENAI_RESPONSES.emit_id("x" * 70 + "2")
    assert len(one) == len(other) == 64
    assert one != other


def test_id_of_another_kind_is_not_sent() -> None:
    moved = {**CALL, "id": "call_1"}
    assert "id" not in sent_again(USER, REASONING, moved, OUTPUT)[2]


def test_tools_of_ours_and_of_the_provider_are_accepted() -> None:
    ours = {"name": "f", "description": "does", "parameters": {"type": "object", "properties": {}}}
    theirs = {"type": "function", "name": "g", "parameters": {}, "strict": True}
    tools = json.loads(OPENAI_RESPONSES.render_tools([json.dumps(ours), json.dumps(theirs)]))
    assert tools == [{"type": "function", **ours, "strict": False}, theirs]
    assert mismatches(tools, list[FunctionToolParam]) == []


@pytest.mark.parametrize("schema", [{"type": "object"}, {}, {"additionalProperties": False}])
def test_a_schema_of_an_object_says_its_properties(schema: Json) -> None:
    (tool,) = json.loads(
        OPENAI_RESPONSES.render_tools([json.dumps({"name": "f", "parameters": schema})])
    )
    assert tool["parameters"]["type"] == "object"
    assert tool["parameters"]["properties"] == {}


@pytest.mark.parametrize(
    ("tool", "pointer"),
    [("{}", "/tools/1/name"), ('{"type":"function","function":{"name":"f"}}', "/tools/1")],
)
def test_tool_without_a_name_is_refused_at_its_place(tool: str, pointer: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        OPENAI_RESPONSES.render_tools(['{"name":"f"}', tool])
    assert caught.value.pointer == pointer


# What the provider refuses


def said(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


def marked(count: int, role: str = "user") -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    breakpoint_ = {"type": kind, "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}
    return said(*[breakpoint_] * count, role=role)


def test_valid_requests_break_nothing() -> None:
    items: list[Json] = [
        {"role": "developer", "content": "be brief"},
        USER,
        REASONING,
        CALL,
        {**CUSTOM, "call_id": "d"},
        USER,
        {**CUSTOM_OUTPUT, "call_id": "d"},
        OUTPUT,
        {**REASONING, "id": "rs_2"},
        {**REASONING, "id": "rs_3"},
        SEARCH,
        ANSWER,
        {"type": "local_shell_call", "call_id": "s", "action": {}},
        {
            "type": "function_call_output",
            "call_id": "s",
            "output": [{"type": "input_text", "text": "a"}],
        },
        marked(4),
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "compaction_trigger"},
    ]
    tools: list[Json] = [{"type": "function", "name": "f", "parameters": {}}, {"type": "mcp"}]
    assert validate({"input": items, "tools": tools, "store": False}, model=MODEL) == ()
    assert validate({"input": "hi"}) == ()
    assert validate({"input": [OUTPUT], "previous_response_id": "resp_1"}) == ()


@pytest.mark.parametrize(
    ("items", "rule", "path"),
    [
        (None, "shape", "/input"),
        ("", "text_not_empty", "/input"),
        ([], "input_not_empty", "/input"),
        (["hi"], "shape", "/input/0"),
        ([{"type": "ghost_snapshot"}], "item_known", "/input/0/type"),
        ([{"content": "a"}], "item_known", "/input/0/type"),
        ([{"role": "model", "content": "a"}], "role_known", "/input/0/role"),
        ([{"role": "user"}], "shape", "/input/0/content"),
        ([{"role": "user", "content": []}], "content_not_empty", "/input/0/content"),
        ([{"role": "user", "content": ""}], "text_not_empty", "/input/0/content"),
        ([said("a")], "shape", "/input/0/content/0"),
        ([said({"type": "input_text"})], "shape", "/input/0/content/0/text"),
        (
            [said({"type": "input_text", "text": ""})],
            "text_not_empty",
            "/input/0/content/0/text",
        ),
        (
            [said({"type": "output_text", "text": "a"})],
            "part_fits_role",
            "/input/0/content/0",
        ),
        (
            [said({"type": "input_text", "text": "a"}, role="assistant")],
            "part_fits_role",
            "/input/0/content/0",
        ),
        (
            [said({"type": "input_image", "image_url": "data:image/tiff;base64,AAAA"})],
            "media_accepted",
            "/input/0/content/0",
        ),
        (
            [said({"type": "input_image", "image_url": "gs://a"})],
            "media_accepted",
            "/input/0/content/0",
        ),
        (
            [said({"type": "input_file", "file_data": "AAAA"})],
            "media_accepted",
            "/input/0/content/0",
        ),
        ([{**ANSWER, "id": "x"}], "item_id_fits_type", "/input/0/id"),
        ([{**CALL, "id": "call_1"}, OUTPUT], "item_id_fits_type", "/input/0/id"),
        ([{**REASONING, "summary": None}, ANSWER], "shape", "/input/0/summary"),
        ([{**REASONING, "content": "a"}, ANSWER], "shape", "/input/0/content"),
        (
            [{"type": "reasoning", "summary": []}, ANSWER],
            "reasoning_identified",
            "/input/0",
        ),
        ([REASONING], "reasoning_followed", "/input/0"),
        ([REASONING, USER], "reasoning_followed", "/input/0"),
        ([USER, ANSWER], "reasoning_kept", "/input/1/id"),
        ([CALL, OUTPUT], "reasoning_kept", "/input/0/id"),
        ([{"type": "compaction"}], "shape", "/input/0/encrypted_content"),
        ([{"type": "item_reference"}], "shape", "/input/0/id"),
        ([{"type": "compaction_trigger"}, USER], "trigger_last", "/input/0"),
        ([{**CALL, "id": None, "name": "a b"}, OUTPUT], "function_name", "/input/0/name"),
        (
            [{**CALL, "id": None, "arguments": "{a"}, OUTPUT],
            "arguments_are_json_text",
            "/input/0/arguments",
        ),
        (
            [{**CALL, "id": None, "arguments": {}}, OUTPUT],
            "arguments_are_json_text",
            "/input/0/arguments",
        ),
        ([{**CUSTOM, "input": {}}, CUSTOM_OUTPUT], "shape", "/input/0/input"),
        ([{**CALL, "id": None, "call_id": ""}], "call_id_present", "/input/0/call_id"),
        ([{"type": "shell_call"}], "call_id_present", "/input/0/call_id"),
        (
            [{**CUSTOM, "call_id": "x" * 65}, {**CUSTOM_OUTPUT, "call_id": "x" * 65}],
            "call_id_length",
            "/input/0/call_id",
        ),
        ([CUSTOM], "call_answered", "/input/0"),
        ([CUSTOM_OUTPUT, CUSTOM], "call_answered", "/input/1"),
        ([CUSTOM_OUTPUT], "result_has_call", "/input/0/call_id"),
        ([CUSTOM, CUSTOM, CUSTOM_OUTPUT], "call_id_unique", "/input/1/call_id"),
        ([CUSTOM, CUSTOM_OUTPUT, CUSTOM_OUTPUT], "call_answered_once", "/input/2/call_id"),
        ([CUSTOM, {**OUTPUT, "call_id": "c"}], "output_fits_call", "/input/1/type"),
        ([CUSTOM, {**CUSTOM_OUTPUT, "output": None}], "shape", "/input/1/output"),
        (
            [CUSTOM, {**CUSTOM_OUTPUT, "output": [{"type": "output_text", "text": "a"}]}],
            "part_fits_role",
            "/input/1/output/0",
        ),
        ([marked(5)], "breakpoint_count", "/input/0/content/4/prompt_cache_breakpoint"),
        (
            [USER, marked(1, role="assistant")],
            "breakpoint_place",
            "/input/1/content/0/prompt_cache_breakpoint",
        ),
    ],
)
def test_each_rule_of_the_input_is_told_at_its_place(items: Json, rule: str, path: str) -> None:
    found = [(one.rule, one.path) for one in validate({"input": items}, model=MODEL)]
    assert (rule, path) in found


@pytest.mark.parametrize(
    ("fields", "model", "rule", "path"),
    [
        ({"instructions": 5}, MODEL, "shape", "/instructions"),
        (
            {"previous_response_id": "r", "conversation": "c"},
            MODEL,
            "one_conversation",
            "/conversation",
        ),
        ({"temperature": 0}, "gpt-6.2-astra", "sampling_left_to_model", "/temperature"),
        ({"top_p": 0.5}, "gpt-6.2-sol", "sampling_left_to_model", "/top_p"),
        ({"reasoning": {"effort": "none"}}, "gpt-6.2-sol", "effort_accepted", "/reasoning/effort"),
        (
            {"store": False, "input": [{"type": "item_reference", "id": "msg_1"}]},
            MODEL,
            "item_in_request",
            "/input/0",
        ),
        (
            {"store": False, "input": [{**REASONING, "encrypted_content": None}, ANSWER]},
            MODEL,
            "item_in_request",
            "/input/0",
        ),
        ({"tools": {}}, MODEL, "shape", "/tools"),
        ({"tools": [{"name": "f"}]}, MODEL, "shape", "/tools/0"),
        ({"tools": [{"type": "function", "name": "a b"}]}, MODEL, "function_name", "/tools/0/name"),
        (
            {"tools": [{"type": "function", "name": "f", "parameters": []}]},
            MODEL,
            "tool_schema",
            "/tools/0/parameters",
        ),
        (
            {"tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "f"}]},
            MODEL,
            "tool_name_unique",
            "/tools/1/name",
        ),
    ],
)
def test_each_rule_of_the_request_is_told_at_its_place(
    fields: dict[str, Any], model: str, rule: str, path: str
) -> None:
    request: Json = {"input": "hi", **fields}
    assert [(one.rule, one.path) for one in validate(request, model=model)] == [(rule, path)]


def test_what_only_newer_models_refuse_is_accepted_by_older_ones() -> None:
    request: Json = {"input": [USER, ANSWER], "temperature": 0}
    assert validate(request, model="gpt-4.1") == ()
    assert validate(request) == ()


@pytest.mark.parametrize("request_body", [None, [], "hi", 5])
def test_what_is_no_request_is_told(request_body: Json) -> None:
    assert [one.rule for one in validate(request_body)] == ["shape"]
