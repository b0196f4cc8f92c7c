"""Shrink to the token budget, step by step; only when the request is over it.

    [u: q1] [m: call] [u: result, 9,000] [m] [u: q2] [m] [u: q3]      before, budget 5,000
    [u: q1] [m: call] [u: result left out] [m] [u: q2] [m] [u: q3]    after

First results and media from before the newest user message give way to a stub, oldest first; then
the oldest invocations go whole; then results and media of the current turn. Pins, summaries and the
newest user message never do, and no call loses its result. What is cut is a multiple of a tenth of
the budget, so that one cut serves many calls: until the log has grown by another tenth, every
compile cuts the same and keeps the provider's cache.

Runs before ``merge_turns``, because what is left may stand beside a neighbour of its own role.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from app.core.compile.estimate import estimate_tokens
from app.core.compile.inputs import BudgetAction, CompileInput, Report
from app.core.compile.nudge import NUDGE_TOKENS, count_nudges, is_ephemeral
from app.core.compile.questions import is_question, newest_question
from app.core.contents import (
    Content,
    Contents,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    PlacedPart,
    Segment,
    Text,
)
from app.core.copying import replace
from app.core.errors import BudgetExceededError
from app.core.tokens import CountTokens, part_tokens

#: Part of the budget that one step cuts.
STEPS: Final = 10
#: Stands where invocations were left out.
LEFT_OUT_TEXT: Final = "Earlier parts of this conversation were left out to fit the context window."


def fit_budget(contents: Contents, inputs: CompileInput, report: Report) -> Contents:
    """Return the contents cut to the budget, themselves when they fit.

    Raises:
        BudgetExceededError: what may not be cut does not fit.
    """
    budget = inputs.budget_tokens
    allowance = nudge_allowance(contents, inputs)
    report.budgeted_tokens = _settled_tokens(inputs) + _tokens(contents) + allowance
    if budget is None or report.budgeted_tokens <= budget:
        return contents
    if inputs.settled.until is not None:
        # What is settled cannot be cut: whoever went on from it starts over.
        raise _exceeded(contents, inputs, budget)
    cutter = _Cutter(contents, budget, inputs, report)
    for cut in (cutter.stub_history, cutter.drop_invocations, cutter.stub_current_turn):
        cut()
        if cutter.excess <= 0:
            return cutter.contents
    raise _exceeded(cutter.contents, inputs, budget)


def _settled_tokens(inputs: CompileInput) -> int:
    """Return at most how many tokens stand before the contents, the head's among them."""
    settled = inputs.settled
    return inputs.fixed_tokens if settled.until is None else settled.budgeted_tokens


def nudge_allowance(contents: Contents, inputs: CompileInput) -> int:
    """Return how many tokens ``merge_turns`` will add; fewer where what stands last is left out."""
    if not _is_nudged(inputs):
        return 0
    previous = inputs.settled.last_content
    lasting = (content for content in reversed(contents) if not is_ephemeral(content))
    last = next(lasting, previous)
    is_before_reply = last is not None and last.role == "model"
    return NUDGE_TOKENS * (count_nudges(contents, previous) + is_before_reply)


def _is_nudged(inputs: CompileInput) -> bool:
    options = inputs.options
    return options.tail_nudge and options.preset != "adk" and inputs.format.needs_alternation


def _nudge_tokens(
    contents: Iterable[Content], inputs: CompileInput, *, after: Content | None
) -> int:
    """Return how many tokens are put before and between contents that stand after another."""
    return NUDGE_TOKENS * count_nudges(contents, after) if _is_nudged(inputs) else 0


class _Cutter:
    """The contents while they are cut. Every cut makes them smaller, or does nothing."""

    def __init__(
        self, contents: Contents, budget: int, inputs: CompileInput, report: Report
    ) -> None:
        self.contents = contents
        self._budget = budget
        self._inputs = inputs
        self._report = report

    @property
    def excess(self) -> int:
        """Tokens over the budget; none or fewer: it fits."""
        tokens = _tokens(self.contents) + nudge_allowance(self.contents, self._inputs)
        return self._inputs.fixed_tokens + tokens - self._budget

    def stub_history(self) -> None:
        """Stub results and media from before the newest user message."""
        self._stub(range(newest_question(self.contents)))

    def stub_current_turn(self) -> None:
        """Stub results and media of the current turn; the question itself stays."""
        self._stub(range(newest_question(self.contents), len(self.contents)))

    def drop_invocations(self) -> None:
        """Leave the oldest invocations out, whole, up to the newest user message."""
        wanted = self._wanted()
        starts = [n for n, content in enumerate(self.contents) if is_question(content)]
        protected = _protected(self.contents)
        kept: list[Content] = []
        done = saved = 0
        for start in starts[1:]:
            left = [content for content in protected[done:start] if content.parts]
            # Pinned answers whose questions go may stand alone then.
            saved += self._cost(self.contents[done:start], after=None)
            saved -= self._cost(left, after=kept[-1] if kept else None)
            kept += left
            done = start
            dropped = saved - estimate_tokens(LEFT_OUT_TEXT)
            if dropped >= wanted or start == starts[-1]:
                if dropped > 0:
                    self._drop_before(start, kept, dropped)
                return

    def _cost(self, contents: Sequence[Content], *, after: Content | None) -> int:
        """Return the tokens of contents, and of what is put before and between them."""
        return _tokens(contents) + _nudge_tokens(contents, self._inputs, after=after)

    def _drop_before(self, start: int, kept: Sequence[Content], dropped: int) -> None:
        stays = {id(placed) for content in kept for placed in content.parts}
        parts = [placed for content in self.contents[:start] for placed in content.parts]
        newest = max((p.seq or 0 for p in parts if id(p) not in stays), default=0)
        note = Content(
            "user", (PlacedPart(Text(text=LEFT_OUT_TEXT), tokens=estimate_tokens(LEFT_OUT_TEXT)),)
        )
        self._report.budget_actions.append(BudgetAction("dropped", newest, dropped))
        self.contents = (*kept, note, *self.contents[start:])

    def _wanted(self) -> int:
        """Return how many tokens this cut is to save: the excess, rounded up to whole steps."""
        step = max(1, self._budget // STEPS)
        return -(-self.excess // step) * step

    def _stub(self, numbers: Iterable[int]) -> None:
        wanted = self._wanted()
        contents = list(self.contents)
        for number in numbers:
            parts: list[PlacedPart] = []
            for placed in contents[number].parts:
                stub = _stub_of(placed, self._inputs.count) if wanted > 0 else None
                if stub is not None:
                    wanted -= placed.tokens - stub.tokens
                    saved = placed.tokens - stub.tokens
                    self._report.budget_actions.append(BudgetAction("stubbed", placed.seq, saved))
                parts.append(stub or placed)
            contents[number] = replace(contents[number], parts=tuple(parts))
        self.contents = tuple(contents)


def _tokens(contents: Iterable[Content]) -> int:
    return sum([placed.tokens for content in contents for placed in content.parts])


def _protected(contents: Contents) -> list[Content]:
    """Return what stays of each content if it is left out: pins, summaries, what is not of the log,
    and what belongs to these. A call is pinned with the results that it has by then; one that came
    later stays with it.

    Every call has its result behind it, in the order of the calls.
    """
    stays: set[int] = set()
    waiting: deque[PlacedPart] = deque()
    for content in contents:
        for placed in content.parts:
            if _is_protected(placed):
                stays.add(id(placed))
            if isinstance(placed.part, FunctionCall):
                waiting.append(placed)
            elif isinstance(placed.part, FunctionResponse) and waiting:
                pair = {id(waiting.popleft()), id(placed)}
                if not stays.isdisjoint(pair):
                    stays |= pair
    return [
        replace(content, parts=tuple([each for each in content.parts if id(each) in stays]))
        for content in contents
    ]


def _is_protected(placed: PlacedPart) -> bool:
    return placed.segment is not Segment.HISTORY or placed.seq is None


def _stub_of(placed: PlacedPart, count: CountTokens) -> PlacedPart | None:
    """Return a stub for a result or a piece of media, None where there is nothing to save."""
    part = placed.part
    if _is_protected(placed):
        return None
    said = f"left out to fit the context window: {placed.tokens} tokens, seq {placed.seq}"
    if isinstance(part, FunctionResponse):
        stub: Text | FunctionResponse = replace(
            part, response=f'{{"output":"result {said}"}}', response_text=f"result {said}", media=()
        )
    elif isinstance(part, InlineData | FileData):
        stub = Text(text=f"[{part.mime_type or 'file'} {said}]")
    else:
        return None
    # With the name of its tool, which may be of any length.
    tokens = part_tokens(stub, count)
    return replace(placed, part=stub, tokens=tokens) if tokens < placed.tokens else None


def _exceeded(contents: Contents, inputs: CompileInput, budget: int) -> BudgetExceededError:
    """Return the error: which segment alone is too large, or else that together they are."""
    budget -= nudge_allowance(contents, inputs)
    by_segment: dict[str, int] = {"system": inputs.system_tokens, "tools": inputs.tools_tokens}
    for content in contents:
        for placed in content.parts:
            name = str(placed.segment)
            by_segment[name] = by_segment.get(name, 0) + placed.tokens
    return BudgetExceededError(
        budget_tokens=budget,
        required_tokens=sum(by_segment.values()),
        segment=max(by_segment, key=by_segment.__getitem__),
        by_segment={name: tokens for name, tokens in by_segment.items() if tokens},
    )
