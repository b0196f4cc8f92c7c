"""Summarize a lane's events: by a model if there is one that answers well, else by code.

No transaction is open here, and nothing is stored. Whatever the model does, a summary comes back
that holds what the ledger must hold, or a typed refusal: the range stays as it is.

    one chunk at a time: ask -> read the answer -> ask once more -> fall back to code for this chunk
    each chunk's record is the seed of the next; after every chunk the ledger is checked
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from app.core.compaction.extractive import carried_section, extract_section
from app.core.compaction.ledger import CountTokens, SectionText, print_section
from app.core.compaction.policy import SummarizerPolicy
from app.core.compaction.prompt import PROMPT_VERSION, repeated_request, system_text, user_text
from app.core.compaction.said import spoken_words
from app.core.compaction.section_budget import MAX_SECTION_TOKENS, Budget, section_budget
from app.core.compaction.statements import words
from app.core.compaction.summary import SectionSummary, held_to_ledger, read_answer
from app.core.compaction.transcript import chunks
from app.core.copying import replace
from app.core.errors import (
    ProviderError,
    ProviderTimeoutError,
    SpendLimitError,
    SummaryRefusedError,
)
from app.core.events import Events
from app.core.lanes import Lane
from app.core.tokens import PART_OVERHEAD, text_size
from app.ports import SummaryAnswer, SummaryPrompt, SummaryProvider, TokenCounter

#: Tokens of transcript in one request, when the policy does not say.
DEFAULT_INPUT_TOKENS: Final = 48_000
#: Below this the transcript would hold no conversation.
MIN_INPUT_TOKENS: Final = 500
#: How often one chunk's answer is asked for before code takes over.
MAX_ATTEMPTS: Final = 2
#: Answers may be this much longer than the section that is made of them: the rest is cut by code.
ANSWER_SLACK: Final = 1.5
#: Models that think count their thinking too.
MIN_ANSWER_TOKENS: Final = 2_048
#: What sections that become one may take, as a part of what they took apart.
MERGED_SHARE: Final = 0.5
#: What a section aims at of what it may take at most: the rest is for rules.
AIMED_SHARE: Final = 0.5
#: Below this many characters the picking takes a few milliseconds; above, it runs beside the loop.
MAX_CHARACTERS_ON_LOOP: Final = 16_384


async def summarize_events(
    events: Events,
    *,
    seed: str | None,
    lane: Lane,
    policy: SummarizerPolicy,
    provider: SummaryProvider | None,
    counter: TokenCounter,
    deadline: float | None = None,
    most_tokens: int | None = None,
    tokens_before: int | None = None,
) -> SectionSummary:
    """Return the section of these events, with fewer tokens than what it takes the place of.

    Args:
        events: of one lane, oldest first, with their tokens. None where only earlier sections
            are made into one.
        seed: the text of the section that this one supersedes.
        lane: whose section it is.
        policy: which summarizer, and its limits.
        provider: of the policy's kind; None where the server has none.
        counter: the offline tokenizer.
        deadline: in the event loop's time; from then on no model is asked.
        most_tokens: what the section may take, rules included; None: what its source allows.
        tokens_before: what is read now in its place; None: the events and the seed.

    Raises:
        SummaryRefusedError: nothing shorter can stand for the events, or nothing of them found
            room; the range stays as it is.
    """
    # One lane's words in another's section would be shown to readers who may not see them.
    assert all(event.lane == lane for event in events)
    if not seed and not any(event.parts or event.input_transcription for event in events):
        raise SummaryRefusedError("there is nothing to read", reason="nothing_to_summarize")
    covered = sum(sum(event.part_tokens) for event in events)
    seed_tokens = counter.count(seed) if seed else 0
    source = covered + (seed_tokens + PART_OVERHEAD if seed else 0)
    before = source if tokens_before is None else min(source, tokens_before)
    budget = _within(
        _budget(covered, seed_tokens, policy.max_output_tokens),
        most_tokens,
        # Who says how long a summary may be means it.
        aim=1.0 if policy.max_output_tokens is not None else AIMED_SHARE,
    )
    if before < source:
        # Some is read again that no request holds: what is made of it has the room of the rest.
        budget = _within(budget, before - 1 - PART_OVERHEAD, aim=1.0)
    job = _Job(policy=policy, count=counter.count, budget=budget, deadline=deadline)
    least = _tokens(job, SectionText())
    if least >= before:
        raise _not_smaller(least, before)
    summary = await _summarize(job, events, seed, provider)
    if summary.tokens >= before and summary.method != "extractive":
        summary = replace(await _by_code(job, events, seed), fallback_reason="not_smaller")
    if summary.tokens >= before:
        raise _not_smaller(summary.tokens, before)
    if summary.tokens <= least:
        raise _untold(events, seed)
    return summary


def _not_smaller(tokens: int, before: int) -> SummaryRefusedError:
    detail = f"a summary of {tokens} tokens in place of {before}"
    return SummaryRefusedError(detail, reason="not_smaller")


def _untold(events: Events, seed: str | None) -> SummaryRefusedError:
    """Return why a section would say nothing: it would hide what it covers, and tell nobody."""
    if seed or spoken_words(events).strip():
        detail = "not one line of a summary has room in place of what it would cover"
        return SummaryRefusedError(detail, reason="no_room")
    return SummaryRefusedError("there is nothing to tell", reason="nothing_to_summarize")


def _budget(covered: int, seed_tokens: int, max_output_tokens: int | None) -> Budget:
    if covered or max_output_tokens is not None:
        return section_budget(covered, seed_tokens, max_output_tokens)
    tokens = min(MAX_SECTION_TOKENS, int(seed_tokens * MERGED_SHARE))
    # Rules may take all that makes it smaller at all.
    return Budget(tokens=tokens, most_tokens=max(tokens, min(MAX_SECTION_TOKENS, seed_tokens - 1)))


def _within(budget: Budget, most_tokens: int | None, *, aim: float) -> Budget:
    if most_tokens is None:
        return budget
    return Budget(
        tokens=min(budget.tokens, max(1, int(most_tokens * aim))),
        most_tokens=min(budget.most_tokens, most_tokens),
    )


@dataclass(frozen=True, slots=True)
class _Job:
    policy: SummarizerPolicy
    count: CountTokens
    budget: Budget
    deadline: float | None


async def _summarize(
    job: _Job, events: Events, seed: str | None, provider: SummaryProvider | None
) -> SectionSummary:
    if job.policy.kind == "extractive":
        return await _by_code(job, events, seed)
    if provider is None:
        return replace(await _by_code(job, events, seed), fallback_reason="not_configured")
    return await _by_model(job, events, seed, provider)


async def _by_code(job: _Job, events: Events, seed: str | None) -> SectionSummary:
    section = await _extract(job, events, seed)
    return _summary(job, section)


async def _extract(job: _Job, events: Events, seed: str | None) -> SectionText:
    def extract() -> SectionText:
        return extract_section(events, seed, budget=job.budget, count=job.count)

    size = sum(text_size(event.parts) for event in events)
    return extract() if size <= MAX_CHARACTERS_ON_LOOP else await asyncio.to_thread(extract)


def _summary(job: _Job, section: SectionText) -> SectionSummary:
    return SectionSummary(
        text=print_section(section),
        ledger=section.ledger,
        tokens=_tokens(job, section),
        method="extractive",
    )


def _tokens(job: _Job, section: SectionText) -> int:
    """Return the tokens of a section as it is stored: of the part that holds it."""
    return job.count(print_section(section)) + PART_OVERHEAD


# By a model


@dataclass(slots=True)
class _Usage:
    """What the model cost, over all requests."""

    attempts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    model: str | None = None
    #: Why the last chunk that code had to take over was not the model's.
    fallback_reason: str | None = None
    chunks_by_model: int = 0


async def _by_model(
    job: _Job, events: Events, seed: str | None, provider: SummaryProvider
) -> SectionSummary:
    asking = _Asking(job, provider)
    max_tokens = job.policy.max_input_tokens or DEFAULT_INPUT_TOKENS
    record = max(job.budget.tokens, job.count(seed) if seed else 0)
    if record >= max_tokens:
        return replace(await _by_code(job, events, seed), fallback_reason="input_limit")
    room = max(MIN_INPUT_TOKENS, max_tokens - record)
    section = SectionText()
    text = seed
    for chunk, lines in chunks(events, room, job.count) or (((), ()),):
        section = await asking.section_of(_Stretch(chunk, lines, text))
        text = print_section(section)
    assert text is not None
    usage = asking.usage
    return SectionSummary(
        text=text,
        ledger=section.ledger,
        tokens=_tokens(job, section),
        method=job.policy.kind if usage.chunks_by_model else "extractive",
        model=usage.model if usage.chunks_by_model else None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        attempts=usage.attempts,
        fallback_reason=usage.fallback_reason,
        prompt_version=PROMPT_VERSION,
    )


@dataclass(frozen=True, slots=True)
class _Stretch:
    """As much as one request takes."""

    events: Events
    lines: tuple[str, ...]
    #: The record up to here.
    seed: str | None

    def source_words(self) -> frozenset[str]:
        return words(f"{spoken_words(self.events)}\n{self.seed or ''}")

    def tokens(self, count: CountTokens) -> int:
        return sum(count(line) for line in self.lines) + (count(self.seed) if self.seed else 0)


class _Asking:
    """Asks one model, stretch by stretch, and counts what it costs."""

    def __init__(self, job: _Job, provider: SummaryProvider) -> None:
        self._job = job
        self._provider = provider
        self.usage = _Usage()

    async def section_of(self, stretch: _Stretch) -> SectionText:
        """Return the section of the stretch: the model's, held to the ledger, else the code's."""
        by_code = await _extract(self._job, stretch.events, stretch.seed)
        # Events that leave no line, as those of credentials, are no reason to ask.
        is_worth_asking = stretch.lines or not stretch.events
        answer = await self._answer(stretch) if is_worth_asking else None
        if answer is None:
            return by_code
        self.usage.chunks_by_model += 1
        carried = carried_section(stretch.seed)
        return held_to_ledger(
            answer,
            expected=by_code.ledger,
            carried=carried.ledger if carried is not None else (),
            events=stretch.events,
            max_tokens=self._job.budget.most_tokens,
            count=self._job.count,
        )

    async def _answer(self, stretch: _Stretch) -> SectionText | None:
        """Return the model's section, None when it gave none that could be used."""
        reason: str | None = None
        for _ in range(MAX_ATTEMPTS):
            try:
                answer = await self._ask(_prompt(self._job, stretch, reason))
            except ProviderError as error:
                # The adapter has tried again already where that may help.
                self.usage.fallback_reason = error.code
                return None
            section = read_answer(answer.text, answer.finish_reason, stretch.source_words)
            if isinstance(section, SectionText):
                count = self._job.count
                if count(print_section(section)) < stretch.tokens(count):
                    return section
                section = "not_smaller"
            reason = section
        self.usage.fallback_reason = reason
        return None

    async def _ask(self, prompt: SummaryPrompt) -> SummaryAnswer:
        deadline = self._job.deadline
        if deadline is not None and asyncio.get_running_loop().time() >= deadline:
            raise ProviderTimeoutError
        self.usage.attempts += 1
        try:
            async with asyncio.timeout_at(deadline):
                answer = await self._provider.complete(prompt)
        except TimeoutError as error:
            raise ProviderTimeoutError from error
        except SpendLimitError:
            # Nobody was asked.
            self.usage.attempts -= 1
            raise
        self.usage.input_tokens += answer.input_tokens
        self.usage.output_tokens += answer.output_tokens
        self.usage.model = answer.model
        return answer


def _prompt(job: _Job, stretch: _Stretch, reason: str | None) -> SummaryPrompt:
    tokens = job.budget.tokens
    user = user_text(stretch.lines, stretch.seed, max_tokens=tokens)
    if reason is not None:
        user = f"{user}\n{repeated_request(reason)}"
    return SummaryPrompt(
        system=system_text(job.policy.prompt),
        user=user,
        model=job.policy.model,
        temperature=job.policy.temperature,
        max_output_tokens=job.policy.max_output_tokens
        or max(MIN_ANSWER_TOKENS, int(tokens * ANSWER_SLACK)),
        timeout_s=job.policy.timeout_s,
    )
