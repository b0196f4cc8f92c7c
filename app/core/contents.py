"""Content and Part: the model-ready shape, provider-neutral.

A part keeps JSON values (arguments, results) as their canonical text, so that an unchanged part
travels from the row to the answer without being decoded. Every string here is already clean: no
NUL, no lone surrogate (see :mod:`app.core.canonical`).

What there are thousands of in a compile is a ``Struct``: made in a tenth of the time that a frozen
dataclass takes, which looks every field up by name.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from msgspec import Struct


class PartBase(Struct, frozen=True, kw_only=True):
    """What every kind of part may carry; by name only, so that a kind's own fields stand first."""

    #: The model's thinking, not part of what it said.
    thought: bool = False
    #: Opaque proof of thinking (base64 text as the provider gave it), returned verbatim.
    signature: str | None = None
    #: Which provider signed: ``gemini``, ``anthropic``, ``openai`` or ``bedrock``. Others never see
    #: the signature.
    signed_by: str | None = None
    #: Canonical JSON object of further fields that one provider knows: Gemini's of a part
    #: (``video_metadata``, ...), OpenAI's of an item (``openai_item``), Anthropic's and Bedrock's
    #: of a block; or None.
    extra: str | None = None


class Text(PartBase, frozen=True):
    """A piece of text; may be empty when it only carries a signature."""

    text: str


class FunctionCall(PartBase, frozen=True):
    """The model asks for a tool."""

    #: As the model gave it; None when it gave none. May repeat inside a session.
    id: str | None
    name: str
    #: Canonical JSON text of an object. Arguments that are none are ``{"_raw": "..."}`` here.
    args: str
    #: The arguments exactly as sent, when they were sent as a string (OpenAI's way).
    args_text: str | None = None
    long_running: bool = False


class InlineData(PartBase, frozen=True):
    """Media bytes in base64 (standard alphabet)."""

    mime_type: str
    data: str
    display_name: str | None = None


class FileData(PartBase, frozen=True):
    """Media by reference."""

    file_uri: str
    mime_type: str | None = None
    display_name: str | None = None


class FunctionResponse(PartBase, frozen=True):
    """A tool's result."""

    id: str | None
    name: str
    #: Canonical JSON text of an object; a result that was none is ``{"output": ...}`` here.
    response: str
    #: The result exactly as sent, when it was sent as a string (OpenAI's and Anthropic's way).
    response_text: str | None = None
    is_error: bool = False
    media: tuple[InlineData | FileData, ...] = ()


class ExecutableCode(PartBase, frozen=True):
    """Code that the model runs at the provider."""

    code: str
    language: str


class CodeExecutionResult(PartBase, frozen=True):
    """What that code gave."""

    outcome: str
    output: str


class Opaque(PartBase, frozen=True):
    """A provider's block that must travel verbatim."""

    provider: str
    type: str
    #: The block's own JSON text.
    raw: str
    #: What other providers read in its place; empty: nothing.
    text: str = ""


Part: TypeAlias = (
    Text
    | FunctionCall
    | FunctionResponse
    | InlineData
    | FileData
    | ExecutableCode
    | CodeExecutionResult
    | Opaque
)

#: Calls and results.
TOOL_PARTS: Final = (FunctionCall, FunctionResponse)

Role: TypeAlias = Literal["user", "model"]


class Segment(StrEnum):
    """What a part is to the request: the key of ``tokens.by_segment``."""

    HISTORY = "history"
    SUMMARIES = "summaries"
    PINS = "pins"
    INJECTED = "injected"
    MEMORY = "memory"
    ARTIFACTS = "artifacts"


class PlacedPart(Struct, frozen=True):
    """A part and where it comes from."""

    part: Part
    #: The event it comes from; None when the pipeline made it.
    seq: int | None = None
    segment: Segment = Segment.HISTORY
    #: Sent, but not part of the fingerprint chain and never stored.
    ephemeral: bool = False
    #: Our token count of the part; see :mod:`app.core.tokens`.
    tokens: int = 0
    #: How long the provider is to cache what ends here; None: no marker.
    marker: str | None = None


class Content(Struct, frozen=True):
    """One single-role entry of the emitted contents (a *turn*)."""

    role: Role
    parts: tuple[PlacedPart, ...]
    #: For model contents: which response they belong to (the seq of its first event). Neighbours of
    #: one response are one turn; neighbours of two were produced separately.
    response_seq: int | None = None
    #: The cacheable prefix ends with this content.
    ends_prefix: bool = False
    #: For model contents: what the reply says that it was compiled for.
    compiled_fingerprint: str | None = None


Contents: TypeAlias = tuple[Content, ...]

#: The text of a result that a call never got.
NO_RESULT_TEXT: Final = "no result was recorded"


def calls(parts: Iterable[Part]) -> tuple[FunctionCall, ...]:
    """Return the function calls among the parts, in order."""
    return tuple(part for part in parts if isinstance(part, FunctionCall))


def responses(parts: Iterable[Part]) -> tuple[FunctionResponse, ...]:
    """Return the function responses among the parts, in order."""
    return tuple(part for part in parts if isinstance(part, FunctionResponse))


def is_thinking(part: Part) -> bool:
    """Tell whether the part is the model's thinking, which may be left out. Some logs mark calls
    and results as thoughts as well; what was done stays, with or without the thinking."""
    return part.thought and not isinstance(part, TOOL_PARTS)


def is_blank(part: Part) -> bool:
    """Tell whether the part is text of nothing but white space, without a signature."""
    # Not by `strip`, which would copy it.
    is_white = isinstance(part, Text) and (not part.text or part.text.isspace())
    return is_white and not part.signature
