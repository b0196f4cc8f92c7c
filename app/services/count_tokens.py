"""Count tokens of a text, or of contents in a provider's format."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from app.core.canonical import Json
from app.core.contents import Part
from app.core.errors import InvalidEventError
from app.core.tokens import part_tokens
from app.formats.sources import parse_item
from app.ports import TokenCounter
from app.services.prepare_events import ConvertItem


class CountTokens:
    """The tokenizer of the service, for callers."""

    def __init__(
        self, *, tokens: TokenCounter, method: str, converters: Mapping[str, ConvertItem]
    ) -> None:
        self.method = method
        self._tokens = tokens
        self._converters = converters

    async def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return await asyncio.to_thread(self._tokens.count, text)

    async def contents(self, contents: Sequence[Json], *, source_format: str) -> int:
        """Return the tokens of contents, counted as an append counts them.

        Raises:
            InvalidEventError: a content is none of the format, with a pointer to it.
        """
        convert = partial(self._converters[source_format], agent="agent")
        parts: list[Part] = []
        for number, content in enumerate(contents):
            try:
                for parsed in parse_item(content, convert):
                    parts.extend(parsed.event.parts)
            except InvalidEventError as error:
                error.pointer = f"/contents/{number}{error.pointer}"
                raise
        return await asyncio.to_thread(
            lambda: sum(part_tokens(part, self._tokens.count) for part in parts)
        )
