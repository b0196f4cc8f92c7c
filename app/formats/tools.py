"""What the formats read alike in declared tools: ours are ``name``, ``description``, ``parameters``
(a JSON schema); what is in a provider's own shape goes to it as it is."""

import json
from typing import Final

from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.formats.wording import JsonObject

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
        InvalidInputError: it has none.
    """
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInputError("a tool needs a name", pointer=f"/tools/{index}/name")
    return name


def named_and_described(tool: JsonObject, index: int) -> JsonObject:
    """Return name and description of a tool of ours, the latter only where there is one.

    Raises:
        InvalidInputError: it has no name.
    """
    named: JsonObject = {"name": tool_name(tool, index)}
    if tool.get("description"):
        named["description"] = tool["description"]
    return named


def parameters_of(tool: JsonObject) -> Json:
    """Return the schema of a tool of ours; of one that takes nothing, the schema that says so."""
    return tool.get("parameters") or _NO_PARAMETERS
