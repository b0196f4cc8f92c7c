"""Run the pipeline for a request: what goes in, what the result takes, and how long it took."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.instruction import system_text
from app.core.compile.pipeline import PassObserver, run_pipeline
from app.core.compile.projection import Counted, Projection, count_result, project
from app.core.compile.render import has_ephemeral, tools_text
from app.core.compile.trace import PassTrace
from app.core.compile.uncounted import uncounted_characters
from app.core.contents import Contents
from app.core.copying import replace
from app.core.errors import BudgetExceededError, InvalidInputError
from app.core.events import Events
from app.ports import LogRead, TokenMemory
from app.services.compile_given import Given
from app.services.compiled import CompileRequest
from app.services.read_for_compile import position_of

#: A budget that a report shows to be too wide is made tighter by so many parts of it at a time.
TIGHTENING_STEPS: Final = 20
#: So many characters are counted in some 4 ms; more of them beside the event loop.
MAX_CHARACTERS_ON_LOOP: Final = 16_384

T = TypeVar("T")


@dataclass(slots=True)
class CompileObserver:
    """Times the passes, and remembers what they gave when an explanation is wanted."""

    trace: PassTrace | None
    timing_ms: dict[str, float] = field(default_factory=dict)
    #: Of going on from what is settled: ``hit``, ``miss`` or ``stale``; None: not tried.
    cache: str | None = None
    #: Events or contents that each pass gave.
    sizes: dict[str, int] = field(default_factory=dict)
    last_s: float = field(default_factory=time.perf_counter)

    def passed(self, name: str, items: Events | Contents) -> None:
        """Take what a pass gave."""
        self.lap(name)
        self.sizes[name] = len(items)
        if self.trace is not None:
            self.trace.passed(name, items)

    @property
    def hidden(self) -> int:
        """Events that the reader may not see, of those that were read."""
        return self.sizes.get("reply_order", 0) - self.sizes.get("visibility", 0)

    def lap(self, name: str) -> None:
        """Note the time since the last lap under a name."""
        now_s = time.perf_counter()
        self.timing_ms[name] = round((now_s - self.last_s) * 1000, 3)
        self.last_s = now_s


class RunCompile:
    """Makes the inputs of a request, runs the pipeline, and counts what came of it."""

    def __init__(
        self, *, tokens: TokenMemory, tail_nudge: bool, call_signature_sentinel: bool
    ) -> None:
        """Take what the server chose.

        Args:
            tokens: most of what is counted here comes with every compile.
            tail_nudge: whether a user text is put where a provider wants one.
            call_signature_sentinel: whether unsigned calls get one.
        """
        self._count, self._known = tokens.count, tokens.known
        self._tail_nudge = tail_nudge
        self._call_signature_sentinel = call_signature_sentinel

    def options(self, request: CompileRequest) -> CompileOptions:
        """Return the options with the server's own."""
        return replace(
            request.options,
            tail_nudge=self._tail_nudge,
            call_signature_sentinel=self._call_signature_sentinel,
        )

    async def inputs(self, request: CompileRequest, read: LogRead, given: Given) -> CompileInput:
        """Return the inputs of a stored session."""
        inputs = CompileInput(
            options=self.options(request),
            format=request.format,
            index=read.index,
            compiled_seq=position_of(request, read),
            state=given.state,
            opening_args=read.opening_args,
            rule=given.rule,
            calibration=given.calibration,
            cache_scope=(read.key.tenant_id, read.key.session_id),
        )
        return await self.counted(inputs, request)

    async def counted(self, inputs: CompileInput, request: CompileRequest) -> CompileInput:
        """Return the inputs with the budget, and what the request takes before any contents."""
        system = system_text(inputs.options, inputs.state)
        tools = tools_text(request.format, inputs.options.tools)
        limit = limit_of(request, inputs)
        return replace(
            inputs,
            budget_tokens=None if limit is None else inputs.calibration.budget(limit),
            count=self._count,
            system_tokens=await self._fixed_tokens(system) if system else 0,
            tools_tokens=await self._fixed_tokens(tools) if tools else 0,
        )

    async def _fixed_tokens(self, text: str) -> int:
        """Count a system text or tools: long, and the same for all sessions of an agent. A turn
        beside the event loop takes longer than all else of a warm compile, so what is known is
        answered without one."""
        tokens = self._known(text)
        return await _run(len(text), partial(self._count, text)) if tokens is None else tokens

    async def __call__(
        self, events: Events, inputs: CompileInput, observer: PassObserver | None = None
    ) -> CompileResult:
        """Run the pipeline; a second time where a report says that more must be cut.

        Raises:
            BudgetExceededError: in the model's tokens.
        """
        characters = uncounted_characters(events, inputs)
        return await _run(characters, partial(self._fitted, events, inputs, observer))

    async def once(
        self, events: Events, inputs: CompileInput, observer: PassObserver | None = None
    ) -> CompileResult:
        """Run the pipeline as it is.

        Raises:
            BudgetExceededError: in our tokens.
        """
        characters = uncounted_characters(events, inputs)
        return await _run(characters, partial(run_pipeline, events, inputs, observer))

    async def then(self, events: Events, inputs: CompileInput) -> CompileResult:
        """Compile an earlier position, for comparison only."""
        try:
            return await self.once(events, inputs)
        except BudgetExceededError:
            return await self.once(events, replace(inputs, budget_tokens=None))

    def _fitted(
        self, events: Events, inputs: CompileInput, observer: PassObserver | None
    ) -> CompileResult:
        try:
            result = run_pipeline(events, inputs, observer)
            if inputs.budget_tokens is None:
                return result
            _, projection = self.project(inputs, result, events)
            tighter = tightened(inputs, projection)
            if tighter is None:
                return result
            return run_pipeline(events, replace(inputs, budget_tokens=tighter), observer)
        except BudgetExceededError as error:
            raise error.converted(inputs.calibration.tokens) from None

    def project(
        self, inputs: CompileInput, result: CompileResult, events: Events
    ) -> tuple[Counted, Projection]:
        """Return our count of a result, and what the provider will count."""
        counted = count_result(
            result,
            self._count,
            system_tokens=inputs.system_tokens,
            tools_tokens=inputs.tools_tokens,
        )
        reader = inputs.options.reader
        calibration = inputs.calibration
        return counted, project(counted, result, events, reader, calibration=calibration)


def limit_of(request: CompileRequest, inputs: CompileInput) -> int | None:
    """Return what the request may take: as asked for or as the model does, never more than it
    turned out to take.

    Raises:
        InvalidInputError: what is to be left for the answer is all of the model's window.
    """
    asked, rule, reserve = request.budget_tokens, inputs.rule, request.reserve_tokens
    if asked is None and rule is not None:
        window_tokens = rule.window_tokens
        if window_tokens is not None and reserve is not None and reserve >= window_tokens:
            detail = f"leaves nothing of the model's window of {window_tokens} tokens"
            raise InvalidInputError(detail, pointer="/budget/reserve_output_tokens")
        asked = rule.budget_tokens(reserve)
    limits = [limit for limit in (asked, inputs.calibration.limit_tokens) if limit is not None]
    return min(limits, default=None)


def window_of(request: CompileRequest, inputs: CompileInput) -> int | None:
    """Return what requests of this model may take; None: nobody knows.

    A budget below that is of this one request: folding for it would change all others.
    """
    rule, learnt = inputs.rule, inputs.calibration.limit_tokens
    own = None if rule is None else rule.budget_tokens(request.reserve_tokens)
    known = [request.budget_tokens, own]
    largest = max((tokens for tokens in known if tokens is not None), default=None)
    return min((tokens for tokens in (largest, learnt) if tokens is not None), default=None)


def tightened(inputs: CompileInput, projection: Projection) -> int | None:
    """Return a tighter budget where the provider counts more than we are calibrated for, else None.

    In steps, so that the cut stays.
    """
    budget = inputs.budget_tokens
    if budget is None or projection.reported is None:
        return None
    limit = inputs.calibration.tokens(budget)
    if projection.total <= limit:
        return None
    steps = -(-projection.total * TIGHTENING_STEPS // limit)
    return budget * TIGHTENING_STEPS // steps


async def _run(characters: int, run: Callable[[], T]) -> T:
    """Run what counts so many characters: beside the event loop where they are many."""
    return run() if characters <= MAX_CHARACTERS_ON_LOOP else await asyncio.to_thread(run)


def base_count_of(result: CompileResult, request: CompileRequest) -> int | None:
    """Return how many parts the caller's base has, None when nothing can be put behind it.

    A base without parts is none: what the caller was answered then had nothing to send. Nor is one
    that has text of its own in its midst, as under ``adk``: elsewhere that stands last, and can be
    taken off.
    """
    if request.base_fingerprint is None:
        return None
    if request.options.preset == "adk" and has_ephemeral(result):
        return None
    try:
        return result.chain.index(request.base_fingerprint) or None
    except ValueError:
        return None
