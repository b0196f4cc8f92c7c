"""A model that one tenant may ask only so much a day.

    count prompt and longest answer, in a transaction that holds the job
    ask, no transaction open
    take back what was counted too much

What is asked is counted before it is sent, so workers that race, and workers that are killed, never
pass the limit together. A request that may have been charged for without an answer stays counted.
"""

from datetime import date
from typing import Final

import structlog

from app.core.compaction.ledger import CountTokens
from app.core.errors import LeaseLostError, ProviderError, SpendLimitError, StorageError
from app.observability.failures import step_failed
from app.ports import (
    Database,
    Job,
    JobQueue,
    SummaryAnswer,
    SummaryPrompt,
    SummaryProvider,
    SummarySpend,
)

log = structlog.get_logger(__name__)


#: So long a day's count is kept, for whoever looks into what a month has cost.
KEEP_DAYS: Final = 62
#: So many at a time, and the rest with the next look.
FORGET_AT_ONCE: Final = 1_000


class BoundedSpend:
    """Bounds what is spent on summaries."""

    def __init__(
        self,
        *,
        database: Database,
        jobs: JobQueue,
        spend: SummarySpend,
        count: CountTokens,
        most_tokens: int,
    ) -> None:
        """Take the stores, the offline tokenizer, and what a tenant may spend a day."""
        self._database = database
        self._jobs = jobs
        self._spend = spend
        self._count = count
        self._most_tokens = most_tokens

    def of(self, provider: SummaryProvider | None, job: Job) -> SummaryProvider | None:
        """Return the model for a job, so that it spends no more than its tenant may."""
        return None if provider is None else _Bounded(self, provider, job)

    async def ask(
        self, provider: SummaryProvider, job: Job, prompt: SummaryPrompt
    ) -> SummaryAnswer:
        """Ask, if there is room for it.

        Raises:
            SpendLimitError: there is none today.
            LeaseLostError: the job is someone else's, who asks for himself.
            ProviderError: there is no answer.
        """
        tokens = self._most(prompt)
        async with self._database.transaction() as connection:
            if not await self._jobs.hold(connection, job):
                raise LeaseLostError
            day = await self._spend.reserve(
                connection, job.key.tenant_id, tokens=tokens, most_tokens=self._most_tokens
            )
        if day is None:
            raise SpendLimitError
        try:
            answer = await provider.complete(prompt)
        except ProviderError as error:
            if not error.may_have_cost:
                await self._correct(job, day, -tokens)
            raise
        # Some servers do not tell what they took.
        if used := answer.input_tokens + answer.output_tokens:
            await self._correct(job, day, used - tokens)
        return answer

    async def forget_old_days(self) -> int:
        """Forget what nobody asks for any more; run now and then by every worker.

        Raises:
            StorageError: the database does not do it now.
        """
        async with self._database.transaction() as connection:
            return await self._spend.forget(
                connection, older_than_days=KEEP_DAYS, limit=FORGET_AT_ONCE
            )

    async def _correct(self, job: Job, day: date, tokens: int) -> None:
        try:
            async with self._database.transaction() as connection:
                await self._spend.correct(connection, job.key.tenant_id, day, tokens=tokens)
        except StorageError as error:
            # Too much stays counted; the answer is worth more than that.
            step_failed(log, "spend_not_corrected", error)

    def _most(self, prompt: SummaryPrompt) -> int:
        return self._count(prompt.system) + self._count(prompt.user) + prompt.max_output_tokens


class _Bounded:
    """A :class:`app.ports.SummaryProvider`."""

    def __init__(self, spend: BoundedSpend, provider: SummaryProvider, job: Job) -> None:
        self._spend = spend
        self._provider = provider
        self._job = job

    async def complete(self, prompt: SummaryPrompt) -> SummaryAnswer:
        """Ask once, within the tenant's limit."""
        return await self._spend.ask(self._provider, self._job, prompt)
