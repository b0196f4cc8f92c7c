"""The native format: everything has a place, and what is answered can be read back."""

import json

import pytest

from app.core.canonical import Json
from app.core.compile.inputs import RenderedContent, RenderedPart
from app.core.contents import (
    Content,
    FileData,
    FunctionCall,
    FunctionResponse,
    Opaque,
    Part,
    PlacedPart,
    Role,
    Text,
)
from app.core.errors import InvalidInputError
from app.formats import FORMATS, VALIDATORS
from app.formats.native import NATIVE, validate
from app.formats.parts import parse_part
from app.formats.violations import Violation

PARTS: list[Part] = [
    Text(text=""),
    Text(text="hi", thought=True, signature="c2ln", signed_by="anthropic"),
    FunctionCall(id="c1", name="f", args='{"a":1}', args_text='{"a": 1}', long_running=True),
    FunctionResponse(
        id="c1",
        name="f",
        response='{"output":"x"}',
        response_text="x",
        is_error=True,
        media=(FileData(file_uri="gs://a"),),
    ),
    Opaque(provider="anthropic", type="compaction", raw="{ }", text="twin"),
]


def turn(role: Role, *parts: Part) -> RenderedContent:
    placed = tuple(PlacedPart(part) for part in parts)
    rendered = (RenderedPart(one, NATIVE.render_part(one.part, role)) for one in placed)
    return RenderedContent(Content(role, placed), tuple(rendered))


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_every_part_is_said_and_read_back(part: Part) -> None:
    assert NATIVE.says(part, "user")
    assert parse_part(json.loads(NATIVE.render_part(part, "user"))) == (part,)


def test_request_has_contents_system_and_tools() -> None:
    turns = [turn("user", Text(text="hi")), turn("model", Text(text="ho"))]
    tools = NATIVE.render_tools(['{"name":"f"}'])
    body = NATIVE.render_request(turns, system="be kind", tools=tools, model="m")
    assert {key: json.loads(text) for key, text in body.items()} == {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "ho"}]},
        ],
        "system_instruction": "be kind",
        "tools": [{"name": "f"}],
    }


def test_request_leaves_out_what_is_not_there() -> None:
    body = NATIVE.render_request([], system="", tools=NATIVE.render_tools([]), model="")
    assert body == {"contents": "[]"}


def test_tool_that_is_no_object_is_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        NATIVE.render_tools(['{"name":"f"}', '"g"'])
    assert caught.value.pointer == "/tools/1"


@pytest.mark.parametrize(
    ("request_", "violation"),
    [
        ([], Violation("shape", "")),
        ({}, Violation("shape", "/contents")),
        ({"contents": ["hi"]}, Violation("shape", "/contents/0")),
        (
            {"contents": [{"role": "user", "parts": [{"text": 1}]}]},
            Violation("shape", "/contents/0/parts/0/text"),
        ),
        (
            {"contents": [{"role": "tool", "parts": [{"text": "x"}]}]},
            Violation("role_known", "/contents/0/role"),
        ),
        (
            {"contents": [{"role": "user", "parts": []}]},
            Violation("content_not_empty", "/contents/0"),
        ),
    ],
)
def test_wrong_request_is_named(request_: Json, violation: Violation) -> None:
    assert validate(request_, model="m") == (violation,)


def test_formats_are_registered_by_name() -> None:
    providers = {"anthropic", "bedrock", "gemini", "openai_chat", "openai_responses"}
    assert set(FORMATS) == set(VALIDATORS) == {*providers, "native"}
    assert all(name == wire.name for name, wire in FORMATS.items())
