"""Compare two compiles of one session: where they part, why, and what either costs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.canonical import Json
from app.core.compile.breaks import Difference, cause_between, first_difference
from app.core.compile.comparison import (
    Cause,
    Side,
    changed_options,
    cost_words,
    difference_words,
    head_words,
)
from app.core.compile.inputs import CompileResult, RenderedContent
from app.core.copying import replace
from app.core.errors import InvalidInputError
from app.core.fingerprint import head_difference
from app.core.index import resolve
from app.core.prices import input_price
from app.ports import Database, EventLog, SessionKey
from app.services.compile_context import CompileContext
from app.services.compiled import Compiled, CompileRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePair:
    """What the input of each costs; None: no price is known of its model."""

    a: float | None
    b: float | None
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two compiles side by side."""

    is_same: bool
    #: Index of the content where they part; None when the difference is before the contents.
    first_block: int | None
    cause: Cause | None
    #: What differs, why and at which cost, for a person.
    text: str
    tokens_a: int
    tokens_b: int
    prices: PricePair


class CompareCompiles:
    """Compiles twice and compares."""

    def __init__(
        self, *, database: Database, log: EventLog, compile_context: CompileContext, currency: str
    ) -> None:
        self._database = database
        self._log = log
        self._compile = compile_context
        self._currency = currency

    async def __call__(self, key: SessionKey, a: CompileRequest, b: CompileRequest) -> Comparison:
        """Compile with each request and say where the answers part.

        Raises:
            InvalidInputError: a side cannot be compiled; the pointer names it.
        """
        first = await self._compiled(key, a, "/a")
        second = await self._compiled(key, b, "/b")
        side_a, side_b = _side(a, first), _side(b, second)
        costs = cost_words(side_a, side_b, self._currency)
        head = head_difference(first.result.fingerprint, second.result.fingerprint)
        difference = first_difference(first.result, second.result)
        block: int | None = None
        cause: Cause | None = None
        if head is not None:
            cause, text = head_words(side_a, side_b, head)
        elif difference is not None:
            cause = await self._cause(key, (a, first), (b, second), difference)
            block = _block(first.result, second.result, difference.shared_count)
            changed = changed_options(a.options, b.options)
            text = difference_words(difference, cause, block, changed)
        else:
            text = "The two send the same."
        return Comparison(
            is_same=cause is None,
            first_block=block,
            cause=cause,
            text=f"{text} {costs}",
            tokens_a=side_a.tokens,
            tokens_b=side_b.tokens,
            prices=PricePair(a=side_a.price, b=side_b.price, currency=self._currency),
        )

    async def _compiled(self, key: SessionKey, request: CompileRequest, pointer: str) -> Compiled:
        try:
            return await self._compile(key, replace(request, is_sent=False))
        except InvalidInputError as error:
            error.pointer = f"{pointer}{error.pointer}"
            raise

    async def _cause(
        self,
        key: SessionKey,
        a: tuple[CompileRequest, Compiled],
        b: tuple[CompileRequest, Compiled],
        difference: Difference,
    ) -> Cause:
        if a[0].options != b[0].options:
            return Cause("option")
        older, newer = sorted((a[1], b[1]), key=lambda compiled: compiled.compiled_seq)
        async with self._database.connection() as connection:
            markers = await self._log.markers(connection, key, newer.compiled_seq)
        found = cause_between(
            older.result,
            newer.result,
            index=resolve(markers),
            markers=markers,
            since_seq=older.compiled_seq,
        )
        if found is not None:
            return Cause(found.reason, found.seq)
        parts = (difference.first, difference.second)
        seqs = [part.placed.seq for part in parts if part is not None]
        later = [seq for seq in seqs if seq is not None and seq > older.compiled_seq]
        return Cause("append", min(later, default=None))


def _side(request: CompileRequest, compiled: Compiled) -> Side:
    return Side(
        options=request.options,
        format_name=request.format.name,
        system=compiled.result.system,
        tool_names=tuple(_tool_name(json.loads(text)) for text in request.options.tools),
        tokens=compiled.tokens.total,
        price=_price(request, compiled),
    )


def _tool_name(tool: Mapping[str, Json]) -> str:
    """Return a tool's name, in our shape or Chat Completions'; else its kind, which is its key."""
    function = tool.get("function")
    name = tool.get("name") or (function.get("name") if isinstance(function, dict) else None)
    return str(name or next(iter(tool), "an empty one"))


def _price(request: CompileRequest, compiled: Compiled) -> float | None:
    if compiled.rule is None:
        return None
    cached = compiled.shared_prefix_tokens
    if compiled.lifecycle is not None and compiled.lifecycle.action == "use":
        cached = max(cached, compiled.calibration.tokens(compiled.lifecycle.tokens))
    return input_price(
        compiled.rule,
        compiled.tokens.total,
        cached_tokens=cached,
        ttl=request.options.cache.ttl,
    )


def _block(first: CompileResult, second: CompileResult, shared_count: int) -> int:
    """Return the index of the content that holds the first part that is not shared."""
    longer = max(first.rendered, second.rendered, key=_part_count)
    return _content_at(longer, shared_count)


def _part_count(rendered: Sequence[RenderedContent]) -> int:
    return sum(not part.placed.ephemeral for content in rendered for part in content.parts)


def _content_at(rendered: Sequence[RenderedContent], count: int) -> int:
    seen = 0
    for number, content in enumerate(rendered):
        seen += sum(not part.placed.ephemeral for part in content.parts)
        if seen > count:
            return number
    return len(rendered)
