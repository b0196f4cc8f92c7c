"""The worker: claims jobs, runs them side by side, renews their leases, stops without losing one.

    claim what is due -> a task for each -> the handler ends its job itself
                                         -> or fails: tried again later, in the end dead
    one heartbeat for all of them; whoever has lost its job is cancelled

Told to stop it claims nothing more, lets what runs finish within the grace, and gives back the
rest. Killed, it leaves leases that run out; other workers take the jobs then.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

import structlog
from structlog.contextvars import bound_contextvars

from app.core.canonical import Json
from app.core.errors import FoldlineError, LeaseLostError, StorageError
from app.jobs.retries import retry_delay_s
from app.observability.failures import step_failed
from app.observability.tracing import trace_of_job
from app.ports import ClaimLimits, Database, Job, JobQueue, Meter

#: Does one job and ends it; raises when it cannot.
Handler: TypeAlias = Callable[[Job], Awaitable[None]]

#: How long an idle worker waits before it looks again: soon after work, rarely after none.
SHORTEST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 2.0
PAUSE_GROWTH: Final = 1.5
#: So that workers that were started together do not ask together.
PAUSE_JITTER: Final = 0.2
#: While the database cannot be reached: soon after the first time, then doubled.
UNAVAILABLE_PAUSE_S: Final = 1.0
LONGEST_UNAVAILABLE_PAUSE_S: Final = 30.0
#: Renewals within the time of a lease: two may be lost.
RENEWALS_PER_LEASE: Final = 3
#: Jobs that ended are kept so long, for whoever asks what became of them.
KEEP_ENDED_S: Final = 7 * 86_400
PRUNE_EVERY_S: Final = 3_600
PRUNE_LIMIT: Final = 1_000
#: How late a session may be erased after its time to live.
SWEEP_EVERY_S: Final = 30

#: Spreads what would otherwise happen at once; nothing secret.
_RANDOM: Final = random.Random()  # noqa: S311

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """How much a worker takes on."""

    #: At a time, in this process.
    jobs: int = 4
    #: At a time for one tenant, over all workers.
    per_tenant: int = 8
    lease_s: float = 30.0
    #: After so many claims a job is dead.
    attempts: int = 8


class Worker:
    """Runs jobs until it is told to stop."""

    def __init__(
        self,
        *,
        database: Database,
        queue: JobQueue,
        handlers: Mapping[str, Handler],
        meter: Meter,
        sweeps: Sequence[Callable[[], Awaitable[int]]] = (),
        limits: WorkerLimits | None = None,
    ) -> None:
        """Take, beside what jobs need, what takes away now and then what nobody needs any more."""
        self._database = database
        self._queue = queue
        self._handlers = handlers
        self._meter = meter
        self._limits = limits or WorkerLimits()
        self._running: dict[UUID, tuple[Job, asyncio.Task[None]]] = {}
        self._signal = asyncio.Event()
        self._stopping = False
        self._prune_at_s = time.monotonic() + _RANDOM.uniform(0, PRUNE_EVERY_S)
        self._sweeps = sweeps
        self._sweep_at_s = time.monotonic() + _RANDOM.uniform(0, SWEEP_EVERY_S)

    def wake(self) -> None:
        """Look for work now; for whoever left some, on the worker's own loop."""
        self._signal.set()

    async def run(
        self,
        stop: asyncio.Event,
        *,
        grace_s: float,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        """Work until ``stop`` is set, then finish what can be within the grace; give back the rest.

        Args:
            stop: followed by a :meth:`wake`.
            grace_s: for what runs when it is set.
            is_draining: tells that the process is about to stop: then the worker stops beside what
                else is draining, so that both have the same grace.
        """
        heartbeat = asyncio.create_task(self._beat())
        try:
            pause_s, unavailable_pause_s = SHORTEST_PAUSE_S, UNAVAILABLE_PAUSE_S
            while not (stop.is_set() or is_draining()):
                claimed = await self._claim()
                if claimed is None:
                    await self._wait(unavailable_pause_s)
                    unavailable_pause_s = min(2 * unavailable_pause_s, LONGEST_UNAVAILABLE_PAUSE_S)
                    continue
                unavailable_pause_s = UNAVAILABLE_PAUSE_S
                if claimed:
                    pause_s = SHORTEST_PAUSE_S
                await self._prune_sometimes()
                await self._sweep_sometimes()
                await self._wait(pause_s)
                pause_s = min(pause_s * PAUSE_GROWTH, LONGEST_PAUSE_S)
            await self._stop(grace_s)
        finally:
            heartbeat.cancel()
            await asyncio.gather(heartbeat, return_exceptions=True)

    # Claiming

    async def _claim(self) -> int | None:
        """Start what can be had and return how much; None when the database is not there."""
        free = self._limits.jobs - len(self._running)
        if free <= 0:
            return 0
        limits = ClaimLimits(
            kinds=tuple(self._handlers),
            jobs=free,
            per_tenant=self._limits.per_tenant,
            lease_s=self._limits.lease_s,
            attempts=self._limits.attempts,
        )
        try:
            async with self._database.transaction() as connection:
                jobs = await self._queue.claim(connection, limits)
        except StorageError as error:
            step_failed(log, "jobs_not_claimed", error)
            return None
        for job in jobs:
            overtaken = self._running.get(job.id)
            if overtaken is not None:
                # Its lease ran out while it ran, here where the loop was too busy to renew it.
                log.warning("job_lost", attempt=overtaken[0].attempts, **_names(job))
                overtaken[1].cancel()
            self._running[job.id] = (job, asyncio.create_task(self._run(job)))
        return len(jobs)

    async def _wait(self, pause_s: float) -> None:
        jittered_s = pause_s * _RANDOM.uniform(1 - PAUSE_JITTER, 1 + PAUSE_JITTER)
        try:
            async with asyncio.timeout(jittered_s):
                await self._signal.wait()
        except TimeoutError:
            return
        finally:
            self._signal.clear()

    # Running

    async def _run(self, job: Job) -> None:
        with bound_contextvars(
            **_names(job), tenant_id=job.key.tenant_id, session_id=job.key.session_id
        ):
            outcome = "done"
            started_s = time.monotonic()
            try:
                await self._handlers[job.kind](job)
            except asyncio.CancelledError:
                outcome = "released" if self._stopping else "lost"
                if self._stopping:
                    await self._give_back(job)
            except LeaseLostError:
                outcome = "lost"
                log.warning("job_lost", attempt=job.attempts)
            except Exception as error:  # noqa: BLE001  the loop must outlive every job
                outcome = await self._failed(job, error)
            finally:
                self._meter.job_ended(
                    job.kind,
                    outcome,
                    waited_s=job.waited_s,
                    ran_s=time.monotonic() - started_s,
                )
                running = self._running.get(job.id)
                if running is not None and running[0] is job:
                    del self._running[job.id]
                self.wake()

    async def _failed(self, job: Job, error: Exception) -> str:
        """Return the job to the queue, or end it; return what became of it."""
        is_final = isinstance(error, FoldlineError) and not error.retryable
        is_final = is_final and not isinstance(error, StorageError)
        step_failed(log, "job_failed", error, attempt=job.attempts, is_final=is_final)
        try:
            async with self._database.transaction() as connection:
                if is_final:
                    await self._queue.finish(connection, job, "failed", error=_told(error))
                    return "failed"
                status = await self._queue.retry(
                    connection,
                    job,
                    delay_s=retry_delay_s(job.attempts, error, _RANDOM.random()),
                    error=_told(error),
                    max_attempts=self._limits.attempts,
                )
        except StorageError as refusal:
            # The lease runs out, and someone takes the job again.
            step_failed(log, "job_not_returned", refusal)
            return "lost"
        return {"ready": "retried", "dead": "dead"}.get(status or "", "lost")

    async def _give_back(self, job: Job) -> None:
        try:
            async with self._database.transaction() as connection:
                await self._queue.release(connection, job)
        except StorageError as error:
            step_failed(log, "job_not_returned", error)

    # Leases

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._limits.lease_s / RENEWALS_PER_LEASE)
            jobs = [job for job, _ in self._running.values()]
            if not jobs:
                continue
            try:
                async with self._database.connection() as connection:
                    held = await self._queue.renew(connection, jobs, self._limits.lease_s)
            except StorageError as error:
                step_failed(log, "leases_not_renewed", error, jobs=len(jobs))
                continue
            for job in jobs:
                running = self._running.get(job.id)
                # A job that ended meanwhile is not held either.
                if job.id not in held and running is not None and running[0] is job:
                    log.warning("job_lost", attempt=job.attempts, **_names(job))
                    running[1].cancel()

    # Stopping, tidying

    async def _stop(self, grace_s: float) -> None:
        tasks = [task for _, task in self._running.values()]
        if not tasks:
            return
        log.info("worker_draining", jobs=len(tasks))
        await asyncio.wait(tasks, timeout=grace_s)
        self._stopping = True
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _prune_sometimes(self) -> None:
        if time.monotonic() < self._prune_at_s:
            return
        self._prune_at_s = time.monotonic() + PRUNE_EVERY_S
        try:
            async with self._database.transaction() as connection:
                pruned = await self._queue.prune(
                    connection, older_than_s=KEEP_ENDED_S, limit=PRUNE_LIMIT
                )
        except StorageError as error:
            step_failed(log, "jobs_not_pruned", error)
            return
        if pruned:
            log.info("jobs_pruned", jobs=pruned)

    async def _sweep_sometimes(self) -> None:
        if time.monotonic() < self._sweep_at_s:
            return
        self._sweep_at_s = time.monotonic() + SWEEP_EVERY_S
        for sweep in self._sweeps:
            try:
                await sweep()
            except StorageError as error:
                step_failed(log, "sweep_failed", error)


def _names(job: Job) -> dict[str, str]:
    """Return what every line of the log about a job tells it by."""
    return {"job_id": str(job.id), "trace_id": trace_of_job(job.id)}


def _told(error: Exception) -> dict[str, Json]:
    """Return what is kept of an error: ours may be told, anyone else's only by its name."""
    if isinstance(error, FoldlineError):
        return {"code": error.code, "detail": error.detail}
    return {"code": "internal", "detail": type(error).__name__}


@asynccontextmanager
async def running(
    worker: Worker, *, grace_s: float, is_draining: Callable[[], bool] = lambda: False
) -> AsyncIterator[None]:
    """Let a worker run beside the block."""
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop, grace_s=grace_s, is_draining=is_draining))
    try:
        yield
    finally:
        stop.set()
        worker.wake()
        await task
