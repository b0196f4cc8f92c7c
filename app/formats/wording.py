"""What the formats say in words for what a provider has no place for, and of whom."""

from itertools import groupby
from typing import TypeAlias

from app.core.canonical import Json
from app.core.compile.inputs import Format, RenderedContent
from app.core.contents import CodeExecutionResult, ExecutableCode, FileData, InlineData
from app.core.copying import replace

JsonObject: TypeAlias = dict[str, Json]


def code_words(part: ExecutableCode | CodeExecutionResult) -> str:
    """Return code that ran at another provider, or what it gave, in a fence."""
    if isinstance(part, ExecutableCode):
        return f"```{part.language.lower()}\n{part.code}\n```"
    return f"{part.outcome}\n```\n{part.output}\n```".lstrip()


def left_out_words(part: InlineData | FileData, mime_type: str | None = None) -> str:
    """Return what stands where media are not taken.

    Args:
        part: the media.
        mime_type: as it was read; None: as the part has it.
    """
    kind = part.mime_type if mime_type is None else mime_type
    label = part.display_name or kind or "a file"
    return f"[{label} left out: this provider does not take it]"


def said(wire: Format, content: RenderedContent) -> RenderedContent:
    """Return the content without parts that the format does not say."""
    parts = tuple(part for part in content.parts if wire.says(part.placed.part, content.role))
    return content if len(parts) == len(content.parts) else replace(content, parts=parts)


def native_event(author: str, role: str, parts: list[Json]) -> JsonObject:
    """Return a native event."""
    return {"author": author, "content": {"role": role, "parts": parts}}


def user_events(parts: list[Json], agent: str) -> list[JsonObject]:
    """Return the events of a user message: one for each run of results, which are the agent's, and
    of words."""
    runs = [
        native_event(agent if are_results else "user", "user", list(run))
        for are_results, run in groupby(parts, key=_is_result)
    ]
    return runs or [native_event("user", "user", [])]


def _is_result(part: Json) -> bool:
    return isinstance(part, dict) and "function_response" in part
