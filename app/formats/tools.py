"""What the formats read alike in declared tools: ours are ``name``, ``description``, ``parameters``
(a JSON schema); what is in a provider's own shape goes to it as it is."""

import json
from collections.abc import Sequence
from typing import Final

from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.formats.wording import JsonObject

_DECLARATIONS: Final = ("functionDeclarations", "function_declarations")
_JSON_SCHEMAS: Final = ("parametersJsonSchema", "parameters_json_schema")
#: Where Gemini's own shape has its functions, or the schema, and where the others' (MCP's among
#: them) have theirs.
_GEMINIS_KEYS: Final = frozenset({*_DECLARATIONS, *_JSON_SCHEMAS})
_OTHERS_KEYS: Final = frozenset({"function", "inputSchema", "input_schema", "toolSpec"})
#: Where a tool has the schema of what it takes: ours, Anthropic's, OpenAI's, Bedrock's.
_SCHEMAS: Final = (
    ("parameters",),
    ("input_schema",),
    ("function", "parameters"),
    ("toolSpec", "inputSchema", "json"),
)
_NO_PARAMETERS: Final[JsonObject] = {"type": "object", "properties": {}}


def read_tool(text: str, index: int) -> JsonObject:
    """Return a tool.

    Args:
        text: its JSON.
        index: its number in the list, for the error.

    Raises:
        InvalidInputError: it is no object, or the schema of what it takes is none of an object.
    """
    tool = json.loads(text)
    pointer = f"/tools/{index}"
    if not isinstance(tool, dict):
        raise InvalidInputError("a tool must be an object", pointer=pointer)
    # What a provider's own kind of tool has under these names is not for us to know.
    if tool.get("type") in (None, "custom", "function"):
        for path in _SCHEMAS:
            _check_schema(tool, path, pointer)
    for key in _DECLARATIONS:
        declarations = tool.get(key)
        for number, one in enumerate(declarations if isinstance(declarations, list) else ()):
            for name in ("parameters", *_JSON_SCHEMAS):
                # Only this one is Gemini's own kind of schema, whose types are in capitals.
                _check_schema(
                    one, (name,), f"{pointer}/{key}/{number}", any_case=name == "parameters"
                )
    return tool


def _check_schema(
    holder: Json, path: Sequence[str], pointer: str, *, any_case: bool = False
) -> None:
    """Refuse a schema that is there and is none of an object."""
    value = holder
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            return
        pointer = f"{pointer}/{key}"
        if not isinstance(value, dict):
            raise InvalidInputError("must be an object", pointer=pointer)
    assert isinstance(value, dict)
    kind = value.get("type")
    told = kind.lower() if any_case and isinstance(kind, str) else kind
    if told not in (None, "object"):
        detail = "what a tool takes is an object: its schema is of type object"
        raise InvalidInputError(detail, pointer=f"{pointer}/type")


def tool_name(tool: JsonObject, index: int) -> str:
    """Return the name of a tool of ours.

    Raises:
        InvalidInputError: it has none, or is in the shape of a provider.
    """
    others = (_GEMINIS_KEYS | _OTHERS_KEYS) & tool.keys()
    if others or tool.get("type") not in (None, "function"):
        raise _of_another(min(others, default="type"), index)
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInputError("a tool needs a name", pointer=f"/tools/{index}/name")
    return name


def check_is_geminis(tool: JsonObject, index: int) -> None:
    """Refuse a tool that is plainly of another provider. Gemini's have a key for each kind of tool,
    and new ones are not for us to know.

    Raises:
        InvalidInputError: it is of another.
    """
    if others := others_keys(tool):
        raise _of_another(min(others), index)


def others_keys(tool: JsonObject) -> frozenset[str]:
    """Return the keys of a tool that no tool of Gemini's has, and every one of another's has."""
    return (_OTHERS_KEYS | {"type"}) & tool.keys()


def _of_another(key: str, index: int) -> InvalidInputError:
    detail = f"{key!r} is of another format's tools; ours have name, description and parameters"
    return InvalidInputError(detail, pointer=f"/tools/{index}")


def named_and_described(tool: JsonObject, index: int) -> JsonObject:
    """Return name and description of a tool of ours, the latter only where there is one.

    Raises:
        InvalidInputError: it has no name, or is in the shape of a provider.
    """
    named: JsonObject = {"name": tool_name(tool, index)}
    if tool.get("description"):
        named["description"] = tool["description"]
    return named


def parameters_of(tool: JsonObject) -> Json:
    """Return the schema of a tool of ours, which says that it is of an object; of one that takes
    nothing, the schema that says so."""
    schema = tool.get("parameters") or _NO_PARAMETERS
    assert isinstance(schema, dict)
    return schema if schema.get("type") else {"type": "object", **schema}


def openai_parameters_of(tool: JsonObject) -> Json:
    """Return the schema as OpenAI takes it: one of an object says its properties, if it has none
    too ("object schema missing properties", https://github.com/langchain-ai/langchain-mcp-adapters/issues/137,
    2026-12-01)."""
    schema = parameters_of(tool)
    assert isinstance(schema, dict)
    if schema["type"] != "object" or "properties" in schema:
        return schema
    return {**schema, "properties": {}}
