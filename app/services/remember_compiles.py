"""Remember what was compiled, for the report that will come; learn from what came with a reply.

A report comes after the model has answered, so what it will be compared with is written behind the
compile's answer, some at a time: a compile that is only read costs no write of its own.
"""

import asyncio
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from app.core.calibration import calibration_of
from app.core.compile.explicit_cache import Lifecycle
from app.core.compile.inputs import CompileInput, CompileResult
from app.core.compile.projection import Counted, Reported
from app.core.compile.standing import Standing
from app.core.errors import StorageError
from app.observability.failures import step_failed
from app.ports import CompiledRequest, Database, LogRead, Meter, SessionKey, TokenReports

#: Reports that this process has learnt from already, so that not every compile asks.
MAX_KNOWN_REPORTS: Final = 10_000
#: How long what was compiled waits to be written with what is compiled meanwhile.
WRITE_AFTER_S: Final = 0.05
#: The oldest that wait are forgotten beyond this: the database does not keep up.
MAX_WAITING: Final = 10_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    key: SessionKey
    incarnation: UUID
    request: CompiledRequest


class RememberCompiles:
    """Both are best effort: the compile's answer is as good without."""

    def __init__(self, *, database: Database, reports: TokenReports, meter: Meter) -> None:
        self._database = database
        self._reports = reports
        self._meter = meter
        self._known: set[tuple[UUID, str]] = set()
        self._waiting: dict[tuple[UUID, str], _Waiting] = {}
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def remember(
        self,
        read: LogRead,
        inputs: CompileInput,
        result: CompileResult,
        *,
        counted: Counted,
        standing: Standing,
        lifecycle: Lifecycle | None,
    ) -> None:
        """Keep what a report of this request will be compared with; written soon."""
        cache = inputs.rule.cache if inputs.rule else None
        cached = standing.tokens(counted)
        is_cached = cache is None or inputs.calibration.tokens(cached) >= cache.min_tokens
        ttl_s = cache.ttls_s.get(inputs.options.cache.ttl) if cache else None
        if lifecycle is not None and lifecycle.is_split:
            # What it goes on from is in its cache whatever the last reply stands on.
            cached, is_cached = lifecycle.tokens, True
            ttl_s = lifecycle.ttl_s
        request = CompiledRequest(
            fingerprint=result.fingerprint,
            model=inputs.options.model,
            tokens=counted.total,
            cached_tokens=cached if is_cached else 0,
            base_fingerprint=standing.fingerprint,
            is_broken=standing.found_break is not None,
            ttl_s=ttl_s,
        )
        waiting = _Waiting(read.key, read.incarnation, request)
        self._waiting[read.key.uid, request.fingerprint] = waiting
        if len(self._waiting) > MAX_WAITING:
            self._waiting.pop(next(iter(self._waiting)))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        await asyncio.sleep(WRITE_AFTER_S)
        await self.write()

    async def close(self) -> None:
        """Write what waits now, and nothing later."""
        if self._task is not None:
            self._task.cancel()
        await self.write()

    async def write(self) -> None:
        """Write what waits; whoever looks for a request does so first."""
        # One after the other, so that what waited when this was called is written when it returns.
        async with self._writing:
            waiting, self._waiting = self._waiting, {}
            if not waiting:
                return
            try:
                async with self._database.transaction() as connection:
                    await self._reports.forgive_loss(connection)
                    for each in waiting.values():
                        await self._reports.remember(
                            connection, each.key, each.incarnation, each.request
                        )
            except StorageError as error:
                step_failed(log, "compiles_not_remembered", error, compiles=len(waiting))

    async def learn(self, read: LogRead, model: str, reported: Reported | None) -> None:
        """Learn from what a provider reported with a reply, once."""
        if reported is None or not model:
            return
        known = (read.incarnation, reported.fingerprint)
        if known in self._known:
            return
        key = read.key
        await self.write()
        try:
            async with self._database.transaction() as connection:
                if await self._reports.claim(connection, key, reported.fingerprint):
                    learnt = await self._reports.lock_learnt(connection, key.tenant_id, model)
                    if learnt.reports:
                        estimate = calibration_of(learnt, None).tokens(reported.ours)
                        self._meter.tokens_estimated(model, ours=estimate, theirs=reported.theirs)
                    learnt = learnt.report(ours=reported.ours, theirs=reported.theirs)
                    learnt = learnt.accepted(reported.theirs)
                    await self._reports.keep_learnt(connection, key.tenant_id, model, learnt)
        except StorageError as error:
            step_failed(log, "report_not_learnt", error, fingerprint=reported.fingerprint)
            return
        if len(self._known) >= MAX_KNOWN_REPORTS:
            self._known.clear()
        self._known.add(known)
