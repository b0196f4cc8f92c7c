"""What the formats read alike in declared tools: ours are ``name``, ``description``, ``parameters``
(a JSON schema); what is in a provider's own shape goes to it as it is."""

import json
from typing import Final

from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.formats.wording import JsonObject

#: Where Gemini's own shape has its functions, and where the others' have theirs, or the schema.
_GEMINIS_KEYS: Final = frozenset({"functionDeclarations", "function_declarations"})
_OTHERS_KEYS: Final = frozenset({"function", "input_schema", "toolSpec"})
_NO_PARAMETERS: Final[JsonObject] = {"type": "object", "properties": {}}


def read_tool(text: str, index: int) -> JsonObject:
    """Return a tool.

    Args:
        text: its JSON.
        index: its number in the list, for the error.

    Raises:
        InvalidInputError: it is no object.
    """
    tool = json.loads(text)
    if not isinstance(tool, dict):
        raise InvalidInputError("a tool must be an object", pointer=f"/tools/{index}")
    return tool


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
    """Return the schema of a tool of ours; of one that takes nothing, the schema that says so."""
    return tool.get("parameters") or _NO_PARAMETERS
