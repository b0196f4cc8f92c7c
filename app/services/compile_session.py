"""Compile a session, see whether compaction is due, and wait for the fold if asked to.

Compiling itself reads no policy and appends nothing; what is here happens around it.
"""

import time
from dataclasses import dataclass
from typing import Final

from app.core.copying import replace
from app.ports import Meter, SessionKey
from app.services.append_events import Append
from app.services.compile_context import CompileContext
from app.services.compile_outcomes import counting_refusals
from app.services.compiled import Compiled, CompileRequest
from app.services.schedule_compaction import NOT_DUE, RequestSize, ScheduleCompaction, Scheduled

#: For so many folds one answer waits at most.
MAX_FOLDS: Final = 20


@dataclass(frozen=True, slots=True)
class CompiledSession:
    """What was compiled, and where compaction stands."""

    compiled: Compiled
    compaction: Scheduled


class CompileSession:
    """Compiles at the head, and minds the size of what comes out."""

    def __init__(
        self, *, compile_context: CompileContext, schedule: ScheduleCompaction, meter: Meter
    ) -> None:
        self._compile = compile_context
        self._schedule = schedule
        self._meter = meter

    async def __call__(
        self,
        key: SessionKey,
        request: CompileRequest,
        *,
        append: Append | None = None,
        compaction_wait_ms: int = 0,
    ) -> CompiledSession:
        """Compile, after appending what came with the request. Raises what compiling does.

        Args:
            key: the session's.
            request: what to compile.
            append: to be appended first.
            compaction_wait_ms: for how long folds that are due may hold up the answer; what is
                compiled then is what stands after them.
        """
        compiled = await self._compiled(key, request, append)
        if request.as_of_seq is not None or compiled.compiled_seq != compiled.head_seq:
            return CompiledSession(compiled, NOT_DUE)
        until_s = time.monotonic() + compaction_wait_ms / 1000
        ended: Scheduled | None = None
        # A long log takes several folds; whatever folds without end has to stop somewhere.
        for _ in range(MAX_FOLDS):
            scheduled = await self._scheduled(key, compiled, has_waited=ended is not None)
            left_ms = int((until_s - time.monotonic()) * 1000)
            if not scheduled.is_due or scheduled.job_id is None or left_ms <= 0:
                return CompiledSession(
                    compiled, scheduled if scheduled.is_due else ended or scheduled
                )
            job = await self._schedule.wait(key, scheduled.job_id, wait_ms=left_ms)
            if job is None or job.is_open:
                return CompiledSession(compiled, scheduled)
            reason = (job.result or job.error or {}).get("reason", scheduled.reason)
            ended = Scheduled(is_due=False, reason=str(reason), job_id=scheduled.job_id)
            # A job that was under way already may have looked before the log had grown so far.
            if (job.result or {}).get("folded"):
                again = await self._compiled(key, request)
                compiled = replace(again, appended=compiled.appended)
        return CompiledSession(compiled, ended or NOT_DUE)

    async def _compiled(
        self, key: SessionKey, request: CompileRequest, append: Append | None = None
    ) -> Compiled:
        with counting_refusals(self._meter):
            return await self._compile(key, request, append=append)

    async def _scheduled(
        self, key: SessionKey, compiled: Compiled, *, has_waited: bool
    ) -> Scheduled:
        appended = compiled.appended
        is_told = appended is not None and appended.compaction.is_due and not appended.is_replayed
        if appended is not None and is_told and not has_waited:
            return appended.compaction
        size = RequestSize(tokens=compiled.uncut_tokens, window_tokens=compiled.window_tokens)
        return await self._schedule.after_compile(key, size, standing=compiled.compaction)
