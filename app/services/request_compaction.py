"""Fold on request: look whether there is anything to fold, leave a job, wait for it a while."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

from app.core.canonical import Json
from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.policy import CompactionPolicy, SummarizerPolicy
from app.core.errors import CompactionUnderWayError, SessionNotFoundError
from app.ports import (
    CompactionReads,
    CompactionStanding,
    Database,
    IdempotencyKeys,
    Job,
    JobQueue,
    NewJob,
    SessionKey,
)
from app.services import idempotency
from app.services.compaction_jobs import COMPACT_ASKED, Asked
from app.services.fold_events import FoldEvents, FoldView
from app.services.idempotency import IdempotentRequest
from app.services.schedule_compaction import ScheduleCompaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What became of the request so far."""

    #: None when there was nothing to leave a job for.
    job_id: str | None = None
    #: The fold, when it is there.
    fold: FoldView | None = None
    #: Why nothing was folded, when that is certain.
    reason: str | None = None
    detail: str = ""
    is_replayed: bool = False


class RequestCompaction:
    """Takes a caller's wish to fold."""

    def __init__(
        self,
        *,
        database: Database,
        reads: CompactionReads,
        jobs: JobQueue,
        keys: IdempotencyKeys,
        schedule: ScheduleCompaction,
        fold_events: FoldEvents,
    ) -> None:
        self._database = database
        self._reads = reads
        self._jobs = jobs
        self._keys = keys
        self._schedule = schedule
        self._fold_events = fold_events

    async def __call__(
        self,
        key: SessionKey,
        asked: Asked,
        *,
        wait_ms: int,
        idempotent: IdempotentRequest | None = None,
    ) -> Requested:
        """Leave a job, unless there is nothing to fold, and wait for it at most so long.

        Raises:
            SessionNotFoundError: there is no such session.
            CompactionUnderWayError: something else was asked for before, and is not done yet.
        """
        job_id = await self._kept(idempotent)
        is_replayed = job_id is not None
        if job_id is None:
            found = await self._look(key, asked)
            if isinstance(found, Requested):
                return found
            job_id, is_replayed = await self._enqueue(key, found, asked, idempotent)
            self._schedule.wake()
        job = await self._schedule.wait(key, job_id, wait_ms=wait_ms)
        return await self._outcome(key, job_id, job, is_replayed=is_replayed)

    async def _kept(self, idempotent: IdempotentRequest | None) -> str | None:
        if idempotent is None:
            return None
        async with self._database.transaction() as connection:
            kept = await idempotency.claim(self._keys, connection, idempotent)
        return None if kept is None else str(kept["job_id"])

    async def _look(self, key: SessionKey, asked: Asked) -> Requested | UUID:
        """Return why there is nothing to fold, or the incarnation of the session that has some."""
        async with self._database.snapshot() as connection:
            read = await self._reads.read(connection, key, self._policy)
        if read is None:
            raise SessionNotFoundError
        if self._summarizer(read.standing, asked).kind == "none":
            return Requested(reason="no_summarizer", detail="the policy has no summarizer")
        found: Plan | Nothing = await asyncio.to_thread(
            asked.plan, read.facts, self._policy(read.standing)
        )
        if isinstance(found, Nothing):
            return Requested(reason=found.reason, detail=found.detail)
        return read.session.incarnation

    def _policy(self, standing: CompactionStanding) -> CompactionPolicy:
        return CompactionPolicy.of(self._schedule.policy_of(standing.policy, standing.app_policy))

    def _summarizer(self, standing: CompactionStanding, asked: Asked) -> SummarizerPolicy:
        if asked.summarizer is not None:
            return SummarizerPolicy.of({"summarizer": dict(asked.summarizer)})
        return SummarizerPolicy.of(self._schedule.policy_of(standing.policy, standing.app_policy))

    async def _enqueue(
        self,
        key: SessionKey,
        incarnation: UUID,
        asked: Asked,
        idempotent: IdempotentRequest | None,
    ) -> tuple[str, bool]:
        """Leave the job; return its id, and whether this very request had left it before."""
        payload = asked.payload
        async with self._database.transaction() as connection:
            kept = await idempotency.claim(self._keys, connection, idempotent)
            if kept is not None:
                return str(kept["job_id"]), True
            new = NewJob(key=key, incarnation=incarnation, kind=COMPACT_ASKED, payload=payload)
            job_id = await self._jobs.enqueue(connection, new)
            job = await self._jobs.get(connection, key.tenant_id, job_id)
            if job is not None and dict(job.payload) != payload:
                raise CompactionUnderWayError(job_id=str(job_id))
            answer: dict[str, Json] = {"job_id": str(job_id)}
            await idempotency.keep(self._keys, connection, idempotent, answer, key=key)
        return str(job_id), False

    async def _outcome(
        self, key: SessionKey, job_id: str, job: Job | None, *, is_replayed: bool
    ) -> Requested:
        if job is not None and job.is_open:
            return Requested(job_id=job_id, is_replayed=is_replayed)
        result = (job.result if job is not None else None) or {}
        seq = result.get("seq")
        if isinstance(seq, int):
            fold = await self._fold_events.one(key, seq)
            return Requested(job_id=job_id, fold=fold, is_replayed=is_replayed)
        # A job that is gone went with its session, or long ago.
        error = (job.error if job is not None else None) or {}
        status = "not_found" if job is None else job.status
        return Requested(
            job_id=job_id,
            reason=str(result.get("reason") or error.get("code") or status),
            detail=str(result.get("detail") or error.get("detail") or ""),
            is_replayed=is_replayed,
        )
