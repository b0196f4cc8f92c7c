"""See that compaction is due, and leave a job for it.

At an append: in its own transaction, when an invocation became complete. At a compile: by the size
of what was compiled, in a transaction of its own that may fail without harm. Both look at counts
alone; what is folded, if anything, is planned by the worker.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from app.core.canonical import Json
from app.core.compaction.due import due_moment, is_held_back
from app.core.compaction.policy import CompactionPolicy, SummarizerPolicy
from app.core.copying import replace
from app.core.errors import StorageError
from app.core.events import Event
from app.core.final_response import is_final_response
from app.core.invocations import Newest, advance, concerned
from app.core.policy import effective_policy
from app.observability.failures import step_failed
from app.ports import (
    CompactionCounters,
    CompactionStanding,
    Connection,
    Database,
    Job,
    JobQueue,
    LockedSession,
    NewJob,
    SessionKey,
)
from app.services.compaction_jobs import COMPACT, Asked

#: How often a wait for a job looks again: quickly at first, since an extractive summary is quick.
FIRST_POLL_S: Final = 0.01
LONGEST_POLL_S: Final = 0.2

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """Whether compaction is due, and the job that sees to it."""

    is_due: bool
    #: The moment that came: ``interval`` or ``threshold``. Where one would have come, had not the
    #: last try found nothing to fold: why it did not.
    reason: str | None = None
    job_id: str | None = None


NOT_DUE: Final = Scheduled(is_due=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSize:
    """What a compiled request takes, and what one may take."""

    #: Before anything was cut for a budget; 0: nothing was compiled.
    tokens: int = 0
    #: The budget or the model's limit; None: nobody knows.
    window_tokens: int | None = None


NO_REQUEST: Final = RequestSize()


class ScheduleCompaction:
    """Looks whether compaction is due, and waits for jobs."""

    def __init__(
        self,
        *,
        database: Database,
        jobs: JobQueue,
        counters: CompactionCounters,
        default_policy: Json,
        wake: Callable[[], None],
    ) -> None:
        """Take, beside the stores, what tells a worker of this process that there is work."""
        self._database = database
        self._jobs = jobs
        self._counters = counters
        self._default_policy = default_policy
        self.wake: Final = wake

    def policy_of(self, policy: Json, app_policy: Json) -> Mapping[str, Json]:
        """Return the policy that counts: the session's over the app's over the server's."""
        return effective_policy(policy, app_policy, self._default_policy)

    async def after_append(
        self,
        connection: Connection,
        key: SessionKey,
        session: LockedSession,
        events: Sequence[Event],
        *,
        ending: frozenset[str],
    ) -> Scheduled:
        """Leave a job if an invocation became complete and compaction is due.

        Args:
            connection: of the append's transaction, session locked, events inserted.
            key: the session's.
            session: as it was before the append.
            events: that were appended, resolved.
            ending: ids of events that say that their invocation ends.
        """
        before = Newest(
            invocation_id=session.invocation_id, is_complete=session.is_invocation_complete
        )
        ended = frozenset(event.invocation_id for event in events if event.id in ending)
        wanted = concerned(before, events, ended)
        newest = before
        if wanted:
            facts = await self._counters.invocations(connection, key, sorted(wanted))
            newest = advance(before, events, facts, ends=lambda event: event.id in ending)
        if newest == before and not has_nameless_answer(events):
            return NOT_DUE
        standing = await self._counters.advance(
            connection,
            key,
            invocation_id=newest.invocation_id,
            is_complete=newest.is_complete,
            completed=newest.completed,
        )
        if standing is None or not (newest.completed or has_nameless_answer(events)):
            return NOT_DUE
        return await self._schedule(connection, key, standing)

    async def after_compile(
        self,
        key: SessionKey,
        size: RequestSize,
        *,
        standing: CompactionStanding | None = None,
        is_overflow: bool = False,
    ) -> Scheduled:
        """Leave a job if what was compiled is large; never fails for it.

        Args:
            key: the session's.
            size: of the whole request.
            standing: as it was read with what was compiled, if it was; what it does not speak for
                costs nothing then.
            is_overflow: a provider refused it: it is large, whatever the policy takes for large.
        """
        if standing is not None and not self.is_worth_a_look(standing, size):
            return NOT_DUE
        try:
            async with self._database.connection() as connection:
                standing = await self._counters.standing(connection, key)
                if standing is None:
                    return NOT_DUE
                if is_overflow:
                    trigger = self._policy(standing, size).trigger_tokens or 0
                    size = replace(size, tokens=max(size.tokens, trigger))
                scheduled = await self._schedule(connection, key, standing, size)
        except StorageError as error:
            step_failed(log, "compaction_not_scheduled", error)
            return NOT_DUE
        if scheduled.is_due:
            self.wake()
        return scheduled

    async def _schedule(
        self,
        connection: Connection,
        key: SessionKey,
        standing: CompactionStanding,
        size: RequestSize = NO_REQUEST,
    ) -> Scheduled:
        moment = self._due(standing, size)
        if moment is None:
            return await self._held_back(connection, key, standing, size)
        asked = Asked(
            reason=moment,
            projected_tokens=size.tokens or None,
            window_tokens=size.window_tokens,
        )
        job = NewJob(key=key, incarnation=standing.incarnation, kind=COMPACT, payload=asked.payload)
        job_id = await self._jobs.enqueue(connection, job)
        return Scheduled(is_due=True, reason=moment, job_id=str(job_id))

    async def _held_back(
        self,
        connection: Connection,
        key: SessionKey,
        standing: CompactionStanding,
        size: RequestSize,
    ) -> Scheduled:
        """Return why a log that is too large is not folded: what the last try at it found."""
        if not self._is_held_back(standing, size):
            return NOT_DUE
        job = await self._jobs.newest(connection, key, standing.incarnation, (COMPACT,))
        result = (job.result if job is not None else None) or {}
        if job is None or result.get("folded") or "reason" not in result:
            return NOT_DUE
        return Scheduled(is_due=False, reason=str(result["reason"]), job_id=str(job.id))

    def is_worth_a_look(self, standing: CompactionStanding, size: RequestSize = NO_REQUEST) -> bool:
        """Tell whether a job is to be left, or why none is left to be told."""
        return self._due(standing, size) is not None or self._is_held_back(standing, size)

    def _is_held_back(self, standing: CompactionStanding, size: RequestSize) -> bool:
        policy = self._policy(standing, size)
        return is_held_back(policy, standing.counters, projected_tokens=size.tokens)

    def _policy(self, standing: CompactionStanding, size: RequestSize) -> CompactionPolicy:
        effective = self.policy_of(standing.policy, standing.app_policy)
        return CompactionPolicy.of(effective, window_tokens=size.window_tokens)

    def _due(self, standing: CompactionStanding, size: RequestSize) -> str | None:
        """Return the moment that has come, if one has and there is who summarizes."""
        effective = self.policy_of(standing.policy, standing.app_policy)
        policy = self._policy(standing, size)
        moment = due_moment(policy, standing.counters, projected_tokens=size.tokens)
        return None if SummarizerPolicy.of(effective).kind == "none" else moment

    async def wait(self, key: SessionKey, job_id: str, *, wait_ms: int) -> Job | None:
        """Wait until a job has ended or the time is up; holds no connection meanwhile.

        Returns:
            The job as it stands, None if it is gone.
        """
        until_s = time.monotonic() + wait_ms / 1000
        pause_s = FIRST_POLL_S
        while True:
            async with self._database.connection() as connection:
                job = await self._jobs.get(connection, key.tenant_id, UUID(job_id))
            left_s = until_s - time.monotonic()
            if job is None or not job.is_open or left_s <= 0:
                return job
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, LONGEST_POLL_S)


def has_nameless_answer(events: Sequence[Event]) -> bool:
    """Tell whether an answer came outside of all invocations: size is looked at then too."""
    return any(not event.invocation_id and is_final_response(event) for event in events)
