"""What we emit is a request by the official SDKs' own types, whatever was appended."""

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.canonical import Json, canonical_json
from app.core.resolve import Log
from app.formats import FORMATS, VALIDATORS
from tests.compiling import AGENT, HISTORIES, append_items, body_of, compile_for, violations_of
from tests.property.strategies import Step, build, steps
from tests.sdk_types import SDK_CHECKS

providers = pytest.mark.parametrize("name", sorted(SDK_CHECKS))

PNG: Final = "iVBORw0KGgo="
TOOLS: Final = (
    canonical_json(
        {
            "name": "f",
            "description": "does",
            "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}},
        }
    ),
    canonical_json({"name": "sql"}),
)


def user(*parts: Json) -> Json:
    return {"author": "user", "content": {"role": "user", "parts": list(parts)}}


def model(*parts: Json, **fields: Json) -> Json:
    return {"author": AGENT, "content": {"role": "model", "parts": list(parts)}, **fields}


def results(*parts: Json) -> Json:
    return {"author": AGENT, "content": {"role": "user", "parts": list(parts)}}


def signed(provider: str) -> Json:
    return {
        "text": f"thought at {provider}",
        "thought": True,
        "thought_signature": "c2ln",
        "signature_provider": provider,
    }


def inline(mime_type: str, data: str = PNG, **fields: Json) -> Json:
    return {"inline_data": {"mime_type": mime_type, "data": data, **fields}}


def opaque(provider: str, kind: str, raw: Json, **fields: Json) -> Json:
    twin: Json = {"provider": provider, "type": kind, "raw": raw, "text": "told elsewhere"}
    return {"opaque": twin, **fields}


#: One of everything that an event can hold, each provider's own things among them.
GOLDEN: Final[tuple[Json, ...]] = (
    user(
        {"text": "look"},
        inline("image/png"),
        inline("audio/wav"),
        inline("video/mp4"),
        inline("application/pdf", display_name="a report.pdf"),
        inline("application/pdf", display_name="a report.pdf"),
        inline("text/csv", "YSxi"),
        {"file_data": {"file_uri": "https://x.example/a.png", "mime_type": "image/png"}},
        {"file_data": {"file_uri": "https://x.example/a.pdf", "mime_type": "application/pdf"}},
        {"file_data": {"file_uri": "s3://bucket/a.png", "mime_type": "image/png"}},
    ),
    model(
        *(signed(provider) for provider in ("anthropic", "bedrock", "gemini")),
        opaque(
            "openai",
            "reasoning",
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            thought=True,
        ),
        opaque("anthropic", "redacted_thinking", {"type": "redacted_thinking", "data": "x"}),
        {"text": "looking", "openai_item": {"id": "msg_1", "phase": "commentary"}},
        opaque(
            "openai",
            "web_search_call",
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "a"},
            },
        ),
        {
            "function_call": {"id": "fc one", "name": "f", "args": '{"x":  1}'},
            "openai_item": {"id": "fc_1"},
            "thought_signature": "Y2FsbA==",
        },
        {
            "function_call": {"id": "ctc/two", "name": "sql", "args": {"input": "SELECT 1"}},
            "openai_item": {"id": "ctc_1", "type": "custom_tool_call"},
        },
        {"function_call": {"name": "functions.f", "args": {}}},
        response_id="resp_1",
    ),
    results(
        {
            "function_response": {
                "id": "fc one",
                "name": "f",
                "response": {"n": 1},
                "parts": [inline("image/png"), inline("application/pdf", display_name="b.pdf")],
            }
        },
        {"function_response": {"id": "ctc/two", "name": "sql", "response": "", "is_error": True}},
    ),
    user({"text": "and?"}),
    model(
        {"executable_code": {"language": "PYTHON", "code": "1+1"}},
        {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "2"}},
        opaque("openai", "refusal", {"type": "refusal", "refusal": "no"}),
        opaque("gemini", "tool_call", {"tool_call": {"id": "t"}}),
        opaque(
            "anthropic",
            "server_tool_use",
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        ),
        opaque(
            "bedrock",
            "citationsContent",
            {"citationsContent": {"content": [{"text": "so"}], "citations": []}},
        ),
        opaque("openai", "compaction", {"type": "compaction", "encrypted_content": "x"}),
    ),
    user(opaque("bedrock", "guardContent", {"guardContent": {"text": {"text": "safe?"}}})),
    model({"text": "done"}),
    user({"text": "thanks"}),
)


def request_of(log: Log, name: str, **options: Any) -> dict[str, Any]:
    return body_of(compile_for(log, name, **options), name)


def golden(name: str, **options: Any) -> dict[str, Any]:
    log = append_items("native", GOLDEN)
    return request_of(log, name, system="be brief", tools=TOOLS, **options)


@providers
@pytest.mark.parametrize("thinking", ["auto", "strip"])
def test_everything_that_an_event_can_hold_makes_a_request(name: str, thinking: str) -> None:
    body = golden(name, thinking=thinking)
    assert VALIDATORS[name](body, model="") == ()
    for item in body["input"] if name == "openai_responses" else ():
        if item["type"] == "web_search_call":
            # The one thing in which we trust what clients of the provider do over what its types
            # say: without its reasoning a search is found under no id, so it is sent without.
            item.setdefault("id", "ws")
    assert SDK_CHECKS[name](body) == []


@providers
def test_every_provider_is_sent_its_own_signature_and_no_other(name: str) -> None:
    text = canonical_json(golden(name))
    shown = {one for one in ("anthropic", "bedrock", "gemini") if f"thought at {one}" in text}
    assert shown == {name} & {"anthropic", "bedrock", "gemini"}
    assert ("encrypted_content" in text) == (name == "openai_responses")


def test_every_format_of_a_provider_has_a_check() -> None:
    assert SDK_CHECKS.keys() == FORMATS.keys() - {"native"}


@providers
@settings(deadline=None)
@given(
    drawn=steps(),
    system=st.sampled_from(("", "be brief")),
    tools=st.sampled_from((TOOLS, ())),
)
def test_whatever_was_appended_makes_a_request(
    name: str, drawn: list[Step], system: str, tools: tuple[str, ...]
) -> None:
    _, log = build(drawn)
    result = compile_for(log, name, agent="a", system=system, tools=tools)
    if result.rendered:
        assert SDK_CHECKS[name](body_of(result, name)) == []
        assert violations_of(result, name) == ()


# The checks themselves: what is wrong in one place is found.


def _set(*path: str | int, to: Any) -> Callable[[Any], None]:
    def change(body: Any) -> None:
        for key in path[:-1]:
            body = body[key]
        body[path[-1]] = to

    return change


def _drop(*path: str | int) -> Callable[[Any], None]:
    def change(body: Any) -> None:
        for key in path[:-1]:
            body = body[key]
        del body[path[-1]]

    return change


def _find(body: Any, format_name: str, /, **wanted: Any) -> Any:
    """Return the first object of the history that has these members."""
    stack = [body[HISTORIES[format_name]]]
    while stack:
        value = stack.pop(0)
        if isinstance(value, dict) and wanted.items() <= value.items():
            return value
        stack = (
            [*(value.values() if isinstance(value, dict) else value), *stack]
            if isinstance(value, dict | list)
            else stack
        )
    raise LookupError(wanted)


WRONG: Final[dict[str, list[Callable[[Any], None]]]] = {
    "anthropic": [
        _set("messages", 0, "role", to="model"),
        _set("messages", 0, "name", to="x"),
        _drop("messages", 0, "content"),
        _set("messages", 0, "content", 0, "text", to=5),
        _set("messages", 0, "content", 0, to={"type": "input_text", "text": "a"}),
        _set("messages", 0, "content", 1, "source", "media_type", to="image/tiff"),
        _set("messages", 0, "content", 1, "sources", to={}),
        _set("tools", 0, "parameters", to={}),
        _drop("tools", 0, "input_schema"),
        _set("system", to={"text": "be brief"}),
        _set("input", to=[]),
    ],
    "bedrock": [
        _set("messages", 0, "role", to="model"),
        _set("messages", 0, "name", to="x"),
        _drop("messages", 0, "content"),
        _set("messages", 0, "content", to="go"),
        _set("messages", 0, "content", 0, to={"type": "text", "text": "a"}),
        _set("messages", 0, "content", 0, to={}),
        _set("messages", 0, "content", 1, to={"image": {"format": "tiff", "source": {}}}),
        _set("messages", 0, "content", 1, "image", "source", "bytes", to="not base64!"),
        _set("messages", 0, "content", 1, "image", "source", to={"url": "https://x.example"}),
        _set("toolConfig", "tools", to=[]),
        _set("toolConfig", "tools", 0, "toolSpec", "name", to="a.b"),
        _set("toolConfig", "tools", 0, "toolSpec", "inputSchema", to={"type": "object"}),
        _set("system", to="be brief"),
        _set("system", 0, "text", to=""),
        _set("tools", to=[]),
        lambda body: _find(body, "bedrock", name="f").update(toolUseId="a b"),
        lambda body: _find(body, "bedrock", name="f").update(id="a"),
        lambda body: _find(body, "bedrock", status="success").update(status="ok"),
        lambda body: _find(body, "bedrock", status="success").update(content="x"),
        lambda body: _find(body, "bedrock", format="pdf").pop("name"),
    ],
    "gemini": [
        _set("contents", 0, "name", to="x"),
        _set("contents", 0, "parts", to="go"),
        _set("contents", 0, "parts", 0, "type", to="text"),
        _set("contents", 0, "parts", 0, "text", to=5),
        _set("contents", 0, "parts", 1, "inlineData", "url", to="x"),
        _set("tools", 0, "parameters", to={}),
        _set("system_instruction", to={"text": "be brief"}),
        _set("system", to="be brief"),
    ],
    "openai_chat": [
        _set("messages", 0, "role", to="model"),
        _set("messages", 0, "text", to="x"),
        _drop("messages", 0, "content"),
        _set("messages", 1, "content", 0, "text", to=5),
        _set("messages", 1, "content", 0, to={"type": "input_text", "text": "a"}),
        _set("messages", 1, "content", 1, "image_url", to="https://x.example"),
        _set("tools", 0, to={"type": "function", "name": "f"}),
        _set("input", to=[]),
        lambda body: _find(body, "openai_chat", type="function").pop("id"),
        lambda body: _find(body, "openai_chat", role="tool").update(call_id="a"),
    ],
    "openai_responses": [
        _set("input", 0, "role", to="model"),
        _set("input", 0, "name", to="x"),
        _drop("input", 0, "content"),
        _set("input", 0, "content", 0, "text", to=5),
        _set("input", 0, "content", 0, to={"type": "text", "text": "a"}),
        _set("input", 0, "content", 1, "image_url", to={"url": "https://x.example"}),
        _drop("input", 0, "content", 1, "detail"),
        _set("tools", 0, to={"type": "function", "function": {"name": "f"}}),
        _drop("tools", 0, "strict"),
        _set("instructions", to=[{"type": "text", "text": "a"}]),
        _set("messages", to=[]),
        lambda body: _find(body, "openai_responses", type="reasoning").pop("summary"),
        lambda body: _find(body, "openai_responses", type="function_call").update(arguments={}),
        lambda body: _find(body, "openai_responses", type="function_call").pop("call_id"),
        lambda body: _find(body, "openai_responses", type="custom_tool_call").pop("input"),
        lambda body: _find(body, "openai_responses", type="function_call_output").pop("output"),
        lambda body: _find(body, "openai_responses", type="function_call_output").update(error=1),
        lambda body: _find(body, "openai_responses", type="web_search_call").update(status="ok"),
        lambda body: _find(body, "openai_responses", type="compaction").pop("encrypted_content"),
    ],
}


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, changes in WRONG.items() for number in range(len(changes))],
)
def test_one_wrong_member_is_found(name: str, number: int) -> None:
    body = copy.deepcopy(golden(name))
    WRONG[name][number](body)
    assert SDK_CHECKS[name](body) != []
