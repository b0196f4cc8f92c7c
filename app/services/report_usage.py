"""Take what a provider reported of a request: usage, or an error.

A report names the request by the fingerprint that its compile answered. It teaches how the provider
counts and how much it takes; it says whether the cache was hit as expected; and a request that was
refused for its size makes compaction due.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import structlog

from app.core.calibration import LEAST_WINDOW, calibration_of, is_believable, limit_after_overflow
from app.core.copying import replace
from app.core.errors import SessionNotFoundError
from app.core.model_rules import ModelRule, ModelRules
from app.core.overflow import ErrorReading, is_truncated
from app.core.usage import Usage
from app.ports import (
    CompiledRequest,
    Connection,
    Database,
    EventLog,
    Meter,
    SessionKey,
    TokenReports,
)
from app.services.remember_compiles import RememberCompiles
from app.services.schedule_compaction import NOT_DUE, RequestSize, ScheduleCompaction, Scheduled

Verdict: TypeAlias = Literal["hit", "ttl_expired", "prefix_changed", "unknown"]
Miss: TypeAlias = Literal["ttl", "prefix", "routing"]

#: So much of what was expected has to come from the cache. Providers round down to steps and to
#: their markers, so it is never all.
HIT_RATIO: Final = 0.8
#: How providers call what their caches keep so long.
_TTL_NAMES: Final[Mapping[int | None, str]] = {300: "5m", 3600: "1h"}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """Whether the request was too long."""

    is_detected: bool = False
    #: Tokens that the provider takes, as it says or as was learnt from its silence.
    limit_tokens: int | None = None
    #: Tokens that the request had, as it says.
    actual_tokens: int | None = None
    #: What the input may take from now on.
    budget_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """What a report comes to."""

    #: What the provider should have had in its cache, by the model's count.
    expected_cached_tokens: int = 0
    #: Of that, what it had; None when that is not known.
    hit_ratio: float | None = None
    verdict: Verdict = "unknown"
    overflow: Overflow = Overflow()
    #: ``overflow``, ``malformed_history`` or ``other``; None without an error.
    error_kind: str | None = None
    compaction: Scheduled = NOT_DUE


class ReportUsage:
    """Learns from reports."""

    def __init__(
        self,
        *,
        database: Database,
        event_log: EventLog,
        reports: TokenReports,
        compiles: RememberCompiles,
        rules: ModelRules,
        schedule: ScheduleCompaction,
        meter: Meter,
    ) -> None:
        self._database = database
        self._log = event_log
        self._reports = reports
        self._compiles = compiles
        self._rules = rules
        self._schedule = schedule
        self._meter = meter

    async def of_usage(self, key: SessionKey, fingerprint: str, usage: Usage) -> UsageReport:
        """Take the usage of a request.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        await self._compiles.write()
        async with self._database.transaction() as connection:
            request = await self._request(connection, key, fingerprint)
            if request is None:
                return UsageReport()
            report = await self._learn(connection, key, request, usage)
        tokens = usage.input_tokens
        if tokens is None:
            return report
        if report.overflow.is_detected or not is_believable(None, tokens, ours=request.tokens):
            tokens = request.tokens
        return await self._with_compaction(key, report, request, tokens)

    async def of_error(
        self, key: SessionKey, fingerprint: str, reading: ErrorReading
    ) -> UsageReport:
        """Take the error that a request was answered with.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        if reading.kind == "malformed_history":
            log.warning("history_refused", session_id=key.session_id, row=reading.row)
        await self._compiles.write()
        async with self._database.transaction() as connection:
            request = await self._request(connection, key, fingerprint)
            overflow = Overflow()
            if reading.is_overflow:
                overflow = await self._refused(connection, key, request, reading)
        report = UsageReport(overflow=overflow, error_kind=reading.kind)
        is_believed = request is None or overflow.budget_tokens is not None
        if not (reading.is_overflow and is_believed):
            return report
        self._meter.overflowed(request.model if request else "")
        actual = reading.input_tokens or (request.tokens if request else 0)
        return await self._with_compaction(key, report, request, actual)

    async def _request(
        self, connection: Connection, key: SessionKey, fingerprint: str
    ) -> CompiledRequest | None:
        request = await self._reports.find(connection, key, fingerprint)
        if request is None and await self._log.find_session(connection, key) is None:
            raise SessionNotFoundError
        return request

    async def _learn(
        self, connection: Connection, key: SessionKey, request: CompiledRequest, usage: Usage
    ) -> UsageReport:
        model = request.model
        learnt = await self._reports.lock_learnt(connection, key.tenant_id, model)
        calibration = calibration_of(learnt, self._rules.find(model))
        overflow = Overflow()
        theirs = usage.input_tokens
        if theirs is not None:
            ours = calibration.tokens(request.tokens)
            is_first = await self._reports.claim(connection, key, request.fingerprint)
            if is_first:
                self._count(
                    request, usage, ours=ours, expected=calibration.tokens(request.cached_tokens)
                )
            if not self._is_cut(model, ours, theirs):
                # What went through also tells when it was refused before, and how often it is told
                # makes no difference. Nothing else lifts a limit: what is compiled is held to it.
                learnt = learnt.accepted(theirs)
            elif is_first:
                self._meter.overflowed(model)
                learnt = learnt.refused(theirs)
                overflow = Overflow(
                    is_detected=True,
                    limit_tokens=theirs,
                    actual_tokens=theirs,
                    budget_tokens=theirs,
                )
            if is_first and not overflow.is_detected:
                learnt = learnt.report(ours=request.tokens, theirs=theirs)
            await self._reports.keep_learnt(connection, key.tenant_id, model, learnt)
        expected = calibration.tokens(request.cached_tokens)
        return UsageReport(
            expected_cached_tokens=expected,
            hit_ratio=_hit_ratio(usage, expected),
            verdict=_verdict(usage, request, expected),
            overflow=overflow,
        )

    def _is_cut(self, model: str, ours: int, theirs: int) -> bool:
        """Tell whether a provider has read only a part of a request, and does not say so.

        One whose window is known reads all that fits in it, and nobody's holds less than a window
        must: what says so is a mistake of the report, and would hold every session of the tenant.
        """
        rule = self._rules.find(model)
        window_tokens = None if rule is None or rule.is_fallback else rule.budget_tokens()
        if window_tokens is not None and ours <= window_tokens:
            return False
        return theirs >= LEAST_WINDOW and is_truncated(ours, theirs)

    def _count(self, request: CompiledRequest, usage: Usage, *, ours: int, expected: int) -> None:
        """Count a report that is the first of its request."""
        self._meter.tokens_estimated(request.model, ours=ours, theirs=usage.input_tokens or 0)
        self._meter.usage_reported(
            request.model,
            usage,
            ttl=_TTL_NAMES.get(request.ttl_s),
            expected=expected,
            miss=_miss(usage, request, expected),
        )

    async def _refused(
        self,
        connection: Connection,
        key: SessionKey,
        request: CompiledRequest | None,
        reading: ErrorReading,
    ) -> Overflow:
        told = Overflow(
            is_detected=True,
            limit_tokens=reading.limit_tokens,
            actual_tokens=reading.input_tokens,
        )
        if request is None:
            return told
        rule = self._rules.find(request.model)
        learnt = await self._reports.lock_learnt(connection, key.tenant_id, request.model)
        ours = calibration_of(learnt, rule).tokens(request.tokens)
        if not is_believable(reading.input_limit_tokens, reading.input_tokens, ours=ours):
            # What is learnt counts for every session of the tenant.
            log.warning("overflow_not_believed", ours=ours, limit=reading.input_limit_tokens)
            return told
        # An error without a count leaves how the provider counts to a later report.
        if reading.input_tokens is not None and await self._reports.claim(
            connection, key, request.fingerprint
        ):
            learnt = learnt.report(ours=request.tokens, theirs=reading.input_tokens)
        refused = reading.input_tokens or calibration_of(learnt, rule).tokens(request.tokens)
        limit = limit_after_overflow(
            input_limit=reading.input_limit_tokens,
            reserve_tokens=_reserve(rule, reading),
            refused_tokens=refused,
        )
        learnt = learnt.refused(limit)
        await self._reports.keep_learnt(connection, key.tenant_id, request.model, learnt)
        return replace(told, budget_tokens=limit)

    async def _with_compaction(
        self, key: SessionKey, report: UsageReport, request: CompiledRequest | None, tokens: int
    ) -> UsageReport:
        rule = None if request is None else self._rules.find(request.model)
        known = [
            report.overflow.budget_tokens,
            None if rule is None else rule.budget_tokens(),
        ]
        window_tokens = min((limit for limit in known if limit is not None), default=None)
        scheduled = await self._schedule.after_compile(
            key,
            RequestSize(tokens=tokens, window_tokens=window_tokens),
            is_overflow=report.overflow.is_detected,
        )
        return replace(report, compaction=scheduled)


def _reserve(rule: ModelRule | None, reading: ErrorReading) -> int:
    """Return what is left for the answer; a provider that named it has had it taken off."""
    if rule is None or reading.output_tokens is not None:
        return 0
    return rule.output_reserve_tokens


def _hit_ratio(usage: Usage, expected: int) -> float | None:
    if usage.cached_tokens is None or not expected:
        return None
    return round(min(1.0, usage.cached_tokens / expected), 4)


def _verdict(usage: Usage, request: CompiledRequest, expected: int) -> Verdict:
    """Say why the cache was or was not read."""
    miss = _miss(usage, request, expected)
    if miss is None:
        return "hit" if expected and usage.cached_tokens is not None else "unknown"
    return "ttl_expired" if miss == "ttl" else "prefix_changed"


def _miss(usage: Usage, request: CompiledRequest, expected: int) -> Miss | None:
    """Say why the cache was not read, None when it was or nothing can be said."""
    cached = usage.cached_tokens
    if cached is None or (expected and cached >= HIT_RATIO * expected):
        return None
    if request.is_broken:
        return "prefix"
    if not expected:
        return None
    since_s, ttl_s = request.since_base_s, request.ttl_s
    if since_s is not None and ttl_s is not None and since_s > ttl_s:
        return "ttl"
    # We sent what begins alike, in time: what the provider got was another request, or got it
    # somewhere else.
    return "routing"
