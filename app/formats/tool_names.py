"""Whether a provider takes the names of the tools: they come from the caller and go as they are."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.formats import FORMATS, VALIDATORS

#: How the formats call it.
NAME_RULES: Final = ("tool_name", "function_name")
#: Requests of one agent have the same tools.
REMEMBERED: Final = 256


def check_tool_names(format_name: str, tools: Sequence[str], *, pointer: str) -> None:
    """Refuse tools whose names the provider would refuse.

    Args:
        format_name: of the request.
        tools: canonical JSON of each, in our shape or the provider's.
        pointer: of the list.

    Raises:
        InvalidInputError: a tool has no name, or one with characters or a length that the provider
            does not take, or two tools of ours have the same.
    """
    names: set[str] = set()
    for number, tool in enumerate(tools):
        try:
            is_taken = _takes(format_name, tool)
        except InvalidInputError as error:
            at = (error.pointer or "").removeprefix("/tools/0")
            raise InvalidInputError(str(error), pointer=f"{pointer}/{number}{at}") from None
        if not is_taken:
            detail = f"{format_name} does not take a tool of this name"
            raise InvalidInputError(detail, pointer=f"{pointer}/{number}/name")
        name = _name(tool)
        if name is not None and name in names:
            detail = f"there is another tool {name!r} before it"
            raise InvalidInputError(detail, pointer=f"{pointer}/{number}/name")
        if name is not None:
            names.add(name)


@lru_cache(REMEMBERED)
def _takes(format_name: str, tool: str) -> bool:
    wire = FORMATS[format_name]
    body = wire.render_request((), system="", tools=wire.render_tools([tool]), model="")
    request: Json = {name: json.loads(text) for name, text in body.items()}
    return all(found.rule not in NAME_RULES for found in VALIDATORS[format_name](request, model=""))


@lru_cache(REMEMBERED)
def _name(tool: str) -> str | None:
    value = json.loads(tool)
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None
