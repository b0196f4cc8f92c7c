import json
from collections.abc import Callable

import pytest

from app.core.canonical import Json, canonical_json
from app.core.errors import InvalidInputError
from app.formats import FORMATS, VALIDATORS
from app.formats.tool_names import check_tool_names


def tool(name: str) -> str:
    return canonical_json({"name": name, "description": "", "parameters": {"type": "object"}})


@pytest.mark.parametrize("format_name", sorted(set(FORMATS) - {"native"}))
@pytest.mark.parametrize("name", ["", "two words", "x" * 200, "ä"])
def test_a_name_that_the_provider_refuses_is_named(format_name: str, name: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        check_tool_names(format_name, [tool("find"), tool(name)], pointer="/tools")
    assert raised.value.pointer == "/tools/1/name"


@pytest.mark.parametrize("format_name", sorted(FORMATS))
def test_two_tools_of_one_name_are_refused(format_name: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        check_tool_names(format_name, [tool("find"), tool("get"), tool("find")], pointer="/tools")
    assert raised.value.pointer == "/tools/2/name"


@pytest.mark.parametrize("format_name", sorted(FORMATS))
def test_good_names_pass(format_name: str) -> None:
    check_tool_names(format_name, [tool("find_it"), tool("get-2")], pointer="/tools")


SCHEMAS = (
    ("parameters", lambda schema: {"name": "f", "parameters": schema}),
    ("input_schema", lambda schema: {"name": "f", "input_schema": schema}),
    (
        "function/parameters",
        lambda schema: {"type": "function", "function": {"name": "f", "parameters": schema}},
    ),
    (
        "toolSpec/inputSchema/json",
        lambda schema: {"toolSpec": {"name": "f", "inputSchema": {"json": schema}}},
    ),
    (
        "functionDeclarations/0/parametersJsonSchema",
        lambda schema: {"functionDeclarations": [{"name": "f", "parametersJsonSchema": schema}]},
    ),
    (
        "function_declarations/0/parameters",
        lambda schema: {"function_declarations": [{"name": "f", "parameters": schema}]},
    ),
)


@pytest.mark.parametrize("format_name", sorted(FORMATS))
@pytest.mark.parametrize(("path", "tool_with"), SCHEMAS, ids=[path for path, _ in SCHEMAS])
@pytest.mark.parametrize(
    ("schema", "at"),
    [
        ("x", ""),
        (1, ""),
        ([], ""),
        ("", ""),
        (False, ""),
        ({"type": "string"}, "/type"),
        ({"type": ["object", "null"]}, "/type"),
        ({"type": ""}, "/type"),
    ],
    ids=repr,
)
def test_a_schema_that_is_none_of_an_object_is_named(
    format_name: str, path: str, tool_with: Callable[[Json], Json], schema: Json, at: str
) -> None:
    tools = [tool("find"), canonical_json(tool_with(schema))]
    with pytest.raises(InvalidInputError) as raised:
        check_tool_names(format_name, tools, pointer="/tools")
    assert raised.value.pointer == f"/tools/1/{path}{at}"


@pytest.mark.parametrize("format_name", sorted(FORMATS))
@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, {"properties": {"a": {}}}])
def test_a_schema_of_an_object_is_sent_as_the_provider_takes_it(
    format_name: str, schema: Json
) -> None:
    sent = canonical_json({"name": "f", "parameters": schema})
    check_tool_names(format_name, [sent], pointer="/tools")
    wire = FORMATS[format_name]
    body = wire.render_request((), system="", tools=wire.render_tools([sent]), model="")
    request: Json = {name: json.loads(text) for name, text in body.items()}
    found = {violation.rule for violation in VALIDATORS[format_name](request, model="")}
    assert not any(rule.startswith("tool") for rule in found)


@pytest.mark.parametrize("format_name", sorted(set(FORMATS) - {"native"}))
@pytest.mark.parametrize("key", ["inputSchema", "parametersJsonSchema"])
def test_a_schema_of_another_shape_is_not_lost(format_name: str, key: str) -> None:
    sent = canonical_json({"name": "f", key: {"type": "object"}})
    with pytest.raises(InvalidInputError) as raised:
        check_tool_names(format_name, [sent], pointer="/tools")
    assert raised.value.pointer == "/tools/0"


def test_geminis_own_schema_has_its_types_in_capitals() -> None:
    declaration: Json = {"name": "f", "parameters": {"type": "OBJECT"}}
    sent = canonical_json({"functionDeclarations": [declaration]})
    check_tool_names("gemini", [sent], pointer="/tools")


@pytest.mark.parametrize("format_name", ["anthropic", "openai_responses"])
def test_what_a_providers_own_kind_of_tool_has_is_its_own(format_name: str) -> None:
    sent = canonical_json({"type": "web_search", "name": "f", "parameters": {"type": "fast"}})
    check_tool_names(format_name, [sent], pointer="/tools")
