"""Call ids as google-adk sends them (``spec/ADK.md`` B.9)."""

from typing import Final

from app.core.compile.inputs import CompileInput
from app.core.contents import Content, Contents, FunctionCall, FunctionResponse, PlacedPart
from app.core.copying import replace

#: How the ids begin that google-adk gives to calls to which the model gave none.
ADK_ID_PREFIX: Final = "adk-"


def strip_adk_ids(contents: Contents, inputs: CompileInput) -> Contents:
    """Return the contents without the ids that google-adk made up; the model's own stay.

    ``auto`` strips them for Gemini, which pairs by order; others pair by id. ``keep`` and ``strip``
    are the caller's word.
    """
    ids = inputs.options.ids
    if ids == "keep" or (ids == "auto" and inputs.format.name != "gemini"):
        return contents
    return tuple(_stripped(content) for content in contents)


def _stripped(content: Content) -> Content:
    if not any(_has_adk_id(placed) for placed in content.parts):
        return content
    return replace(
        content,
        parts=tuple(
            replace(placed, part=replace(placed.part, id=None))
            if isinstance(placed.part, FunctionCall | FunctionResponse) and _has_adk_id(placed)
            else placed
            for placed in content.parts
        ),
    )


def _has_adk_id(placed: PlacedPart) -> bool:
    part = placed.part
    return isinstance(part, FunctionCall | FunctionResponse) and (part.id or "").startswith(
        ADK_ID_PREFIX
    )
