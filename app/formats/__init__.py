"""The formats: what the compiler can answer in, and what events can be imported from."""

from collections.abc import Mapping
from typing import Final, Protocol

from app.core.canonical import Json
from app.core.compile.inputs import Format
from app.formats import (
    adk_files,
    anthropic,
    bedrock,
    gemini,
    native,
    openai_chat,
    openai_responses,
)
from app.formats.fields import Notes
from app.formats.violations import Validator


class Converter(Protocol):
    """Turns an imported item into native events."""

    def __call__(
        self, item: Json, *, agent: str, notes: Notes | None = None
    ) -> list[dict[str, Json]]:
        """Return the native events of one item, in order, and note what of it is not read.

        Raises:
            InvalidEventError: the item has no shape that the format knows.
        """


FORMATS: Final[Mapping[str, Format]] = {
    wire.name: wire
    for wire in (
        gemini.GEMINI,
        openai_chat.OPENAI_CHAT,
        openai_responses.OPENAI_RESPONSES,
        anthropic.ANTHROPIC,
        bedrock.BEDROCK,
        native.NATIVE,
    )
}

CONVERTERS: Final[Mapping[str, Converter]] = {
    "adk": adk_files.convert_item,
    "native": adk_files.convert_item,
    "gemini": gemini.convert_item,
    "openai_chat": openai_chat.convert_item,
    "openai_responses": openai_responses.convert_item,
    "anthropic": anthropic.convert_item,
    "bedrock": bedrock.convert_item,
}

VALIDATORS: Final[Mapping[str, Validator]] = {
    "gemini": gemini.validate,
    "openai_chat": openai_chat.validate,
    "openai_responses": openai_responses.validate,
    "anthropic": anthropic.validate,
    "bedrock": bedrock.validate,
    "native": native.validate,
}
