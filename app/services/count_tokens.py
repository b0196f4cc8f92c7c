"""Count tokens of a text, or of contents in a provider's format."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from app.core.calibration import calibration_of
from app.core.canonical import Json
from app.core.contents import Part
from app.core.errors import InvalidEventError
from app.core.model_rules import ModelRule, ModelRules
from app.core.tokens import counted, part_tokens
from app.formats.sources import parse_item
from app.ports import TokenCounter
from app.services.prepare_events import ConvertItem


class CountTokens:
    """The tokenizer of the service, for callers."""

    def __init__(
        self,
        *,
        tokens: TokenCounter,
        method: str,
        converters: Mapping[str, ConvertItem],
        rules: ModelRules,
    ) -> None:
        self.method = method
        self._rules = rules
        self._tokens = tokens
        self._converters = converters

    async def text(self, text: str, *, model: str | None = None) -> int:
        """Return the tokens of a text, as the model's rule assumes that it counts."""
        tokens = await asyncio.to_thread(self._tokens.count, text)
        return self._calibrated(tokens, self._rule(model))

    async def contents(
        self, contents: Sequence[Json], *, source_format: str, model: str | None = None
    ) -> int:
        """Return the tokens of contents: counted as an append counts them, and then by the model's
        rule.

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
        rule = self._rule(model)
        return await asyncio.to_thread(
            lambda: self._calibrated(
                sum(counted(part, part_tokens(part, self._tokens.count), rule) for part in parts),
                rule,
            )
        )

    def _rule(self, model: str | None) -> ModelRule | None:
        return self._rules.find(model) if model else None

    @staticmethod
    def _calibrated(tokens: int, rule: ModelRule | None) -> int:
        return calibration_of(None, rule).tokens(tokens)
