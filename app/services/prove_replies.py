"""Prove the fingerprint that a reply recorded: what was compiled for it is compiled again, and must
hash to it.

The options of that compile are not stored. The fingerprint's head tells format and model, and
stands for tools and system text; the rest is tried out: presets, ids, thinking, narration and their
fellows, as far as they make a difference for this log, in all combinations, and then budgets.

A fingerprint that nothing hashes to is no damage yet, for there is always one more thing that a
caller may have asked for. Only a request of which nothing is left open is held against the log: in
the lane without branch and scope, without thinking, which stands on tools and system text; without
summaries, which `expand` opens; and without anything that could be cut for a budget.
"""

import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import product
from typing import Any, Final

from msgspec import Struct

from app.core.compile.inputs import CompileOptions, Format
from app.core.compile.render import chained_parts
from app.core.contents import Segment
from app.core.copying import replace
from app.core.errors import BudgetExceededError, FoldlineError, StorageError
from app.core.fingerprint import Chain, start_of
from app.core.lanes import ROOT_LANE, Reader
from app.core.model_rules import ModelRules
from app.ports import RecordedReply, SessionKey
from app.services.compile_context import CompileContext
from app.services.compiled import Compiled, CompileRequest

#: Other values than the usual that a compile may have been asked for.
_OTHERS: Final[Mapping[str, tuple[Any, ...]]] = {
    "ids": ("keep", "strip"),
    "thinking": ("keep", "strip"),
    "narration": ("name", "none"),
    "foreign_thoughts": (True,),
    "include_contents": ("none",),
    "unanswered_calls": ("close", "drop"),
    "single_turn": (True,),
}
#: Compiles of one reply. Most are proved by the first.
MAX_TRIES: Final = 200
#: Budgets that are tried, as parts of what the request takes uncut.
BUDGETS: Final = 16
_MODEL_DIGITS: Final = 8


class Proof(Enum):
    """What came of trying."""

    PROVED = "proved"
    #: It depends on what is not known.
    NOT_PROVED = "not proved"
    #: Whatever was asked for, this log does not hash to it.
    REFUTED = "refuted"


class _Tried(Struct, frozen=True):
    """One compile."""

    value: str
    compiled: Compiled
    #: What was cut, shown or thought hangs on more than is known.
    is_open: bool


class ProveReplies:
    """Proves replies; remembers nothing of them."""

    def __init__(
        self,
        *,
        compile_context: CompileContext,
        formats: Mapping[str, Format],
        rules: ModelRules,
    ) -> None:
        self._compile = compile_context
        self._formats = formats
        self._by_digits = _by_digits(formats, rules)

    async def __call__(
        self,
        key: SessionKey,
        reply: RecordedReply,
        likely: CompileOptions | None = None,
        *,
        searches: bool = True,
    ) -> tuple[Proof, CompileOptions | None]:
        """Tell what the fingerprint is worth, and under which options it was proved.

        Args:
            key: the session's.
            reply: of that session.
            likely: what another reply of the same reader was proved with.
            searches: try other options than these and the usual ones.
        """
        found = self._by_digits.get(reply.fingerprint[:_MODEL_DIGITS])
        if found is None:
            return Proof.NOT_PROVED, None
        format_name, model = found
        lane = reply.lane
        reader = Reader(
            agent=reply.author, branch=lane.branch, isolation_scope=lane.isolation_scope
        )
        usual = CompileOptions(reader=reader, model=model)
        trial = _Trial(self._compile, key, self._formats[format_name], reply)
        for options in (likely, usual):
            if options is not None and await trial.proves(options):
                return Proof.PROVED, options
        if not searches:
            return Proof.NOT_PROVED, None
        options = await trial.search(usual) or await trial.cut(likely or usual)
        if options is not None:
            return Proof.PROVED, options
        is_whole = reply.lane == ROOT_LANE and not trial.is_open
        return (Proof.REFUTED if is_whole else Proof.NOT_PROVED), None


class _Trial:
    """What was tried for one reply."""

    def __init__(
        self, compile_context: CompileContext, key: SessionKey, wire: Format, reply: RecordedReply
    ) -> None:
        self._compile = compile_context
        self._key = key
        self._wire = wire
        self._reply = reply
        self._tries = 0
        #: Something that is not known may explain the fingerprint.
        self.is_open = False

    async def proves(self, options: CompileOptions, *, budget_tokens: int | None = None) -> bool:
        """Tell whether a compile with these options hashes to the fingerprint."""
        tried = await self._try(options, budget_tokens=budget_tokens)
        return tried is not None and tried.value == self._reply.fingerprint

    async def search(self, usual: CompileOptions) -> CompileOptions | None:
        """Return options that hash to the fingerprint, beginning with the usual ones."""
        # To no one in particular nothing is foreign: of whoever named no agent.
        for agent, preset in product((usual.reader.agent, ""), ("stable", "adk")):
            base = replace(usual, reader=replace(usual.reader, agent=agent), preset=preset)
            tried = await self._try(base)
            if tried is None:
                continue
            values: dict[str, list[Any]] = {}
            for name, others in _OTHERS.items():
                for other in others:
                    changed = await self._try(replace(base, **{name: other}))
                    if changed is not None and changed.value == self._reply.fingerprint:
                        return replace(base, **{name: other})
                    if changed is not None and changed.value != tried.value:
                        values.setdefault(name, []).append(other)
            if tried.value == self._reply.fingerprint:
                return base
            for options in _combined(base, values):
                if await self.proves(options):
                    return options
        return None

    async def cut(self, options: CompileOptions) -> CompileOptions | None:
        """Return the options if some budget explains the fingerprint."""
        tried = await self._try(options)
        if tried is None:
            return None
        tokens = tried.compiled.calibration.tokens(tried.compiled.result.budgeted_tokens)
        if not await self._is_cuttable(options, tokens):
            return None
        self.is_open = True
        for part in range(1, BUDGETS):
            if await self.proves(options, budget_tokens=max(1, tokens * part // BUDGETS)):
                return options
        return None

    async def _is_cuttable(self, options: CompileOptions, tokens: int) -> bool:
        """Tell whether anything could be left out for a budget: one that is missed by a token."""
        try:
            await self._compile(self._key, self._request(options, max(1, tokens - 1)))
        except BudgetExceededError:
            return False
        except StorageError:
            raise
        except FoldlineError:
            return True
        return True

    async def _try(
        self, options: CompileOptions, *, budget_tokens: int | None = None
    ) -> _Tried | None:
        """Compile; None where that is not to be had."""
        self._tries += 1
        if self._tries > MAX_TRIES:
            self.is_open = True
            return None
        try:
            compiled = await self._compile(self._key, self._request(options, budget_tokens))
        except StorageError:
            raise
        except FoldlineError:
            self.is_open = True
            return None
        chain = Chain(start_of(self._reply.fingerprint))
        for role, part in chained_parts(compiled.result.rendered):
            chain.add(role, part.text)
        tried = _Tried(chain.value, compiled, _is_open(compiled))
        self.is_open = self.is_open or tried.is_open
        return tried

    def _request(self, options: CompileOptions, budget_tokens: int | None) -> CompileRequest:
        return CompileRequest(
            options=options,
            format=self._wire,
            as_of_seq=self._reply.compiled_seq,
            budget_tokens=budget_tokens,
            is_sent=False,
        )


def _combined(base: CompileOptions, values: Mapping[str, list[Any]]) -> Iterator[CompileOptions]:
    """Yield the options with two or more of the values that make a difference."""
    choices = [
        [(name, None), *((name, other) for other in others)] for name, others in values.items()
    ]
    for chosen in product(*choices):
        changes = {name: other for name, other in chosen if other is not None}
        if len(changes) > 1:
            yield replace(base, **changes)


def _is_open(compiled: Compiled) -> bool:
    result = compiled.result
    counts = result.reasoning
    return bool(
        result.budget_actions or counts.kept or counts.stripped or counts.invalidated
    ) or any(
        part.placed.segment is Segment.SUMMARIES
        for content in result.rendered
        for part in content.parts
    )


def _by_digits(formats: Mapping[str, Format], rules: ModelRules) -> dict[str, tuple[str, str]]:
    """Return format and model by the digits with which a fingerprint begins."""
    models = ["", *(name for rule in rules.rules for name in rule.match)]
    return {
        hashlib.sha256(f"{name}\0{model}".encode()).hexdigest()[:_MODEL_DIGITS]: (name, model)
        for name in formats
        for model in models
    }
