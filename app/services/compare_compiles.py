"""Compare two compiles of one session: where they part, and which event is the cause."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.core.compile.breaks import Difference, cause_between, first_difference
from app.core.compile.inputs import CompileResult, RenderedContent, RenderedPart
from app.core.fingerprint import head_difference
from app.core.index import resolve
from app.ports import Database, EventLog, SessionKey
from app.services.compile_context import CompileContext, Compiled, CompileRequest

#: The most of a part that is shown.
EXCERPT_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Cause:
    """Why two compiles differ."""

    reason: str
    #: The event, where one is the cause.
    seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two compiles side by side."""

    is_same: bool
    #: Index of the content where they part; None when the difference is before the contents.
    first_block: int | None
    cause: Cause | None
    #: What differs, for a person: a line of `a` behind a minus, one of `b` behind a plus.
    text: str
    tokens_a: int
    tokens_b: int


class CompareCompiles:
    """Compiles twice and compares."""

    def __init__(
        self, *, database: Database, log: EventLog, compile_context: CompileContext
    ) -> None:
        self._database = database
        self._log = log
        self._compile = compile_context

    async def __call__(self, key: SessionKey, a: CompileRequest, b: CompileRequest) -> Comparison:
        """Compile with each request and say where the answers part."""
        a, b = replace(a, is_sent=False), replace(b, is_sent=False)
        first, second = await self._compile(key, a), await self._compile(key, b)
        tokens_a, tokens_b = first.tokens.total, second.tokens.total
        head = head_difference(first.result.fingerprint, second.result.fingerprint)
        difference = first_difference(first.result, second.result)
        if head is None and difference is None:
            return Comparison(
                is_same=True,
                first_block=None,
                cause=None,
                text="the two are the same",
                tokens_a=tokens_a,
                tokens_b=tokens_b,
            )
        if head is not None:
            cause: Cause = Cause(head, None)
            text = f"the {head} differs, and with it everything after it"
            block = None
        else:
            assert difference is not None
            cause = await self._cause(key, (a, first), (b, second), difference)
            block = _block(first.result, second.result, difference.shared_count)
            text = f"- {_excerpt(difference.first)}\n+ {_excerpt(difference.second)}"
        return Comparison(
            is_same=False,
            first_block=block,
            cause=cause,
            text=text,
            tokens_a=tokens_a,
            tokens_b=tokens_b,
        )

    async def _cause(
        self,
        key: SessionKey,
        a: tuple[CompileRequest, Compiled],
        b: tuple[CompileRequest, Compiled],
        difference: Difference,
    ) -> Cause:
        if a[0].options != b[0].options:
            return Cause("option", None)
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


def _excerpt(part: RenderedPart | None) -> str:
    if part is None:
        return "nothing"
    if len(part.text) <= EXCERPT_CHARACTERS:
        return part.text
    return part.text[:EXCERPT_CHARACTERS] + "..."
