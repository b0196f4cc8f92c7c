"""Our own format: snake_case parts as events hold them, for callers that render by themselves.

It has a place for everything and refuses nothing, so what it answers is what the compiler made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.canonical import Json, json_string
from app.core.compile.inputs import NO_MARKS, HeadMarks, RenderedContent
from app.core.contents import Opaque, Part, Role
from app.core.errors import InvalidEventError
from app.formats.adk_files import convert_item
from app.formats.fields import json_array, refuse_deep
from app.formats.parts import native_part_text, parse_content
from app.formats.tools import read_tool
from app.formats.violations import Violation

__all__ = ["NATIVE", "Native", "convert_item", "validate"]


@dataclass(frozen=True, slots=True)
class Native:
    """The format without a provider."""

    name: str = "native"
    history_field: str = "contents"
    merges_turns: bool = True
    needs_alternation: bool = False
    refuses_blank_text: bool = False
    refuses_thought_last: bool = False
    needs_ids: bool = False
    limited_media: None = None

    def emit_id(self, call_id: str) -> str:
        """Return the id as it is."""
        return call_id

    def says(self, part: Part, role: Role) -> bool:
        """Tell that there is a place for every part."""
        del part, role
        return True

    def keeps(self, part: Opaque, role: Role) -> bool:
        """Tell that every block is sent as it is."""
        del part, role
        return True

    def render_part(self, part: Part, role: Role) -> str:
        """Return the part's native JSON text."""
        del role
        return native_part_text(part)

    def render_tools(self, tools: Sequence[str]) -> str:
        """Return the tools as they are.

        Raises:
            InvalidInputError: a tool is no object.
        """
        for index, text in enumerate(tools):
            read_tool(text, index)
        return json_array(tools) if tools else ""

    def takes_marker(self, part: Part, role: Role) -> bool:
        """Return False: who reads this has no cache."""
        del part, role
        return False

    def with_marker(self, text: str, ttl: str) -> str:
        """Return the part as it is."""
        del ttl
        return text

    def render_request(
        self,
        contents: Sequence[RenderedContent],
        *,
        system: str,
        tools: str,
        model: str,
        marks: HeadMarks = NO_MARKS,
    ) -> dict[str, str]:
        """Return ``contents``, ``system_instruction`` (a plain text) and ``tools``."""
        del model, marks
        body = {"contents": json_array(_content(content) for content in contents if content.parts)}
        if system:
            body["system_instruction"] = json_string(system)
        if tools not in ("", "[]"):
            body["tools"] = tools
        return body


NATIVE: Final = Native()


def _content(content: RenderedContent) -> str:
    parts = json_array(part.text for part in content.parts)
    return f'{{"role":"{content.role}","parts":{parts}}}'


def validate(request: Json, *, model: str = "") -> tuple[Violation, ...]:
    """Return what in the request is no content of ours.

    Args:
        request: the body, as parsed JSON.
        model: nothing here depends on it.
    """
    del model
    contents = request.get("contents") if isinstance(request, dict) else None
    if not isinstance(contents, list):
        return (Violation("shape", "/contents" if isinstance(request, dict) else ""),)
    return tuple(
        violation
        for index, content in enumerate(contents)
        for violation in _violations(content, f"/contents/{index}")
    )


def _violations(content: Json, path: str) -> Iterator[Violation]:
    try:
        refuse_deep(content, path)
        parsed = parse_content(content, path)
    except InvalidEventError as error:
        yield Violation("shape", error.pointer)
        return
    if parsed.role not in ("user", "model"):
        yield Violation("role_known", f"{path}/role")
    if not parsed.parts:
        yield Violation("content_not_empty", path)
