"""Remember what was compiled, for the report that will come; learn from what came with a reply."""

from typing import Final
from uuid import UUID

import structlog

from app.core.compile.inputs import CompileInput, CompileResult
from app.core.compile.projection import Counted, Reported
from app.core.compile.standing import Standing
from app.core.errors import StorageError
from app.ports import CompiledRequest, Connection, Database, LogRead, SessionKey, TokenReports

#: Reports that this process has learnt from already, so that not every compile asks.
MAX_KNOWN_REPORTS: Final = 10_000

log = structlog.get_logger(__name__)


class RememberCompiles:
    """Both are best effort: the compile's answer is as good without."""

    def __init__(self, *, database: Database, reports: TokenReports) -> None:
        self._database = database
        self._reports = reports
        self._known: set[tuple[UUID, str]] = set()

    async def remember(
        self,
        connection: Connection,
        key: SessionKey,
        inputs: CompileInput,
        result: CompileResult,
        *,
        counted: Counted,
        standing: Standing,
    ) -> None:
        """Keep what a report of this request will be compared with."""
        cache = inputs.rule.cache if inputs.rule else None
        cached = standing.tokens(counted)
        is_cached = cache is None or inputs.calibration.tokens(cached) >= cache.min_tokens
        request = CompiledRequest(
            fingerprint=result.fingerprint,
            model=inputs.options.model,
            tokens=counted.total,
            cached_tokens=cached if is_cached else 0,
            base_fingerprint=standing.fingerprint,
            is_broken=standing.found_break is not None,
            ttl_s=cache.ttls_s.get(inputs.options.cache.ttl) if cache else None,
        )
        try:
            await self._reports.remember(connection, key, request)
        except StorageError:
            log.warning("compile_not_remembered", fingerprint=result.fingerprint)

    async def learn(self, read: LogRead, model: str, reported: Reported | None) -> None:
        """Learn from what a provider reported with a reply, once."""
        if reported is None or not model:
            return
        known = (read.incarnation, reported.fingerprint)
        if known in self._known:
            return
        key = read.key
        try:
            async with self._database.transaction() as connection:
                if await self._reports.claim(connection, key, reported.fingerprint):
                    learnt = await self._reports.lock_learnt(connection, key.tenant_id, model)
                    learnt = learnt.report(ours=reported.ours, theirs=reported.theirs)
                    learnt = learnt.accepted(reported.theirs)
                    await self._reports.keep_learnt(connection, key.tenant_id, model, learnt)
        except StorageError:
            log.warning("report_not_learnt", fingerprint=reported.fingerprint)
            return
        if len(self._known) >= MAX_KNOWN_REPORTS:
            self._known.clear()
        self._known.add(known)
