"""Takes what services, stores and the worker report, and counts it.

One value for a process. Every method costs a few microseconds, never raises for what it is given
and never waits. The children of labelled metrics are looked up once and kept.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import Final, Protocol, TypeVar

from app.core.compile.breaks import Break
from app.core.compile.inputs import CompileResult
from app.core.errors import (
    ConcurrentAppendError,
    EventIdReusedError,
    FoldlineError,
    IdempotencyMismatchError,
    LockTimeoutError,
    ProviderError,
    ProviderRateLimitedError,
    ProviderRejectedError,
    ProviderTimeoutError,
    ProviderUnavailableError,
)
from app.core.index import Index
from app.core.model_rules import PRICE_UNIT, ModelRule, ModelRules
from app.core.ranges import size
from app.core.usage import Usage
from app.observability.metrics import Metrics

#: What a label says of everything that is not on its list.
OTHER: Final = "other"
#: Names of models are the callers': so many are remembered with what they are called here.
KNOWN_MODELS: Final = 1024
#: Statuses and methods that HTTP knows; a client may send any method.
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_CONFLICTS: Final[tuple[tuple[type[FoldlineError], str], ...]] = (
    (ConcurrentAppendError, "head_moved"),
    (EventIdReusedError, "id_reused"),
    (IdempotencyMismatchError, "idem_mismatch"),
    (LockTimeoutError, "lock_timeout"),
)
_MODEL_ENDS: Final[tuple[tuple[type[ProviderError], str], ...]] = (
    (ProviderTimeoutError, "timeout"),
    (ProviderRateLimitedError, "rate_limited"),
    (ProviderUnavailableError, "unavailable"),
    (ProviderRejectedError, "rejected"),
)


class Facts(Protocol):
    """What is true of the whole database."""

    @property
    def jobs(self) -> Mapping[tuple[str, ...], int]:
        """By kind and status: jobs that are open or did not end well."""

    @property
    def compaction_lag_s(self) -> float:
        """Since when the oldest compaction is due that nobody does."""

    @property
    def oldest_transaction_s(self) -> float:
        """Age of the oldest open transaction."""

    @property
    def replica_lag_s(self) -> Mapping[str, float]:
        """By read replica: how far back it is."""


S = TypeVar("S")


class _Children(dict[str | tuple[str, ...], S]):
    """Series of a metric by the values of its labels, each looked up once."""

    def __init__(self, labels: Callable[..., S]) -> None:
        super().__init__()
        self._labels = labels

    def __missing__(self, values: str | tuple[str, ...]) -> S:
        made = self._labels(*((values,) if isinstance(values, str) else values))
        self[values] = made
        return made


class Meter:
    """Counts into the metrics of a process."""

    def __init__(self, metrics: Metrics, rules: ModelRules, query_names: Mapping[str, str]) -> None:
        """Take the metrics, what knows models, and the names of the storage's statements."""
        counter, histogram = metrics.counter, metrics.histogram
        self._rules = rules
        self._query_names = query_names
        self._family: Callable[[str], tuple[str, str]] = lru_cache(KNOWN_MODELS)(self._family_of)
        self._requests = _Children(counter("http_requests_total").labels)
        self._request_s = _Children(histogram("http_request_duration_seconds").labels)
        self._request_bytes = _Children(histogram("http_request_size_bytes").labels)
        self._response_bytes = _Children(histogram("http_response_size_bytes").labels)
        self._appended = _Children(counter("events_appended_total").labels)
        self._batch_events = histogram("append_batch_size_events").labels()
        self._conflicts = _Children(counter("append_conflicts_total").labels)
        self._duplicates = _Children(counter("append_duplicates_total").labels)
        self._lock_wait_s = _Children(histogram("session_lock_wait_seconds").labels)
        self._compile_s = _Children(histogram("compile_duration_seconds").labels)
        self._stage_s = _Children(histogram("compile_stage_duration_seconds").labels)
        self._scanned = histogram("compile_events_scanned").labels()
        self._output_tokens = _Children(histogram("compile_output_tokens").labels)
        self._segment_tokens = _Children(counter("compile_tokens_by_segment_total").labels)
        self._compiles = _Children(counter("compile_outcomes_total").labels)
        self._repairs = _Children(counter("compile_repairs_total").labels)
        self._dropped = _Children(counter("compile_events_dropped_total").labels)
        self._cache_results = _Children(counter("compile_cache_requests_total").labels)
        self._breaks = _Children(counter("prefix_breaks_total").labels)
        self._shared_ratio = _Children(histogram("prefix_shared_ratio").labels)
        self._reasoning = _Children(counter("reasoning_items_total").labels)
        self._cache_tokens = _Children(counter("provider_cache_tokens_total").labels)
        self._expected_tokens = _Children(counter("provider_cache_expected_tokens_total").labels)
        self._misses = _Children(counter("provider_cache_miss_total").labels)
        self._overflows = _Children(counter("provider_overflow_total").labels)
        self._estimate_errors = _Children(histogram("token_estimate_error_ratio").labels)
        self._compactions = _Children(counter("compactions_total").labels)
        self._compaction_s = _Children(histogram("compaction_duration_seconds").labels)
        self._compaction_ratio = _Children(histogram("compaction_ratio").labels)
        self._compaction_tokens = _Children(counter("compaction_tokens_total").labels)
        self._summarizer_requests = _Children(counter("summarizer_requests_total").labels)
        self._summarizer_s = _Children(histogram("summarizer_duration_seconds").labels)
        self._summarizer_cost = _Children(counter("summarizer_cost_usd_total").labels)
        self._job_wait_s = _Children(histogram("job_wait_seconds").labels)
        self._job_run_s = _Children(histogram("job_run_seconds").labels)
        self._job_retries = _Children(counter("job_retries_total").labels)
        self._leases_lost = _Children(counter("job_lease_lost_total").labels)
        self._pool_wait_s = _Children(histogram("db_pool_wait_seconds").labels)
        self._query_s = _Children(histogram("db_query_duration_seconds").labels)
        self._redis_errors = _Children(counter("redis_errors_total").labels)
        self._elected = metrics.elected
        labels = metrics.definition("jobs").labels
        self._no_jobs: dict[tuple[str, ...], float] = dict.fromkeys(
            product(labels["queue"], labels["state"]), 0.0
        )
        self._recalls = _Children(counter("recall_requests_total").labels)
        self._recall_tokens = _Children(counter("recall_tokens_total").labels)
        self._loop_lag_s = histogram("event_loop_lag_seconds").labels()

    # HTTP

    def answered(
        self,
        method: str,
        route: str,
        status: int,
        *,
        duration_s: float,
        request_bytes: int | None,
        response_bytes: int,
    ) -> None:
        """Take a request and its answer; ``route`` is the template of the path."""
        method = method if method in METHODS else OTHER
        self._requests[method, route, str(status)].inc()
        self._request_s[method, route, f"{status // 100}xx"].observe(duration_s)
        self._response_bytes[route].observe(response_bytes)
        if request_bytes is not None:
            self._request_bytes[route].observe(request_bytes)

    # Append

    def lock_waited(self, op: str, wait_s: float) -> None:
        """Take how long the lock of a session was waited for, and for what: append, marker or
        fold."""
        self._lock_wait_s[op].observe(wait_s)

    def appended(self, count_by_kind: Mapping[str, int], *, source: str, repeated: int) -> None:
        """Take a batch that is stored: how many of which kind, and how many were there before."""
        if count_by_kind:
            self._batch_events.observe(sum(count_by_kind.values()))
        for kind, count in count_by_kind.items():
            self._appended[kind, source].inc(count)
        if repeated:
            self._duplicates["event"].inc(repeated)

    def request_repeated(self) -> None:
        """Take a request whose idempotency key had been used for the same one."""
        self._duplicates["request"].inc()

    def append_refused(self, error: FoldlineError) -> None:
        """Take why an append was refused; only conflicts are counted."""
        reason = _first(error, _CONFLICTS)
        if reason is not None:
            self._conflicts[reason].inc()

    # Compile

    def compiled(
        self,
        result: CompileResult,
        *,
        wire_format: str,
        cache: str | None,
        timing_ms: Mapping[str, float],
        scanned: int,
        hidden: int,
        index: Index,
        tokens_by_segment: Mapping[str, int],
        shared_tokens: int | None,
        found_break: Break | None,
        is_unchanged: bool,
    ) -> None:
        """Take a compile.

        Args:
            result: what came out.
            wire_format: the provider's.
            cache: what became of going on from an earlier compile: ``hit``, ``miss`` or ``stale``;
                None where it was not tried.
            timing_ms: by stage, in the order in which they ran without a pause.
            scanned: events that were read.
            hidden: of those, events that the reader may not see.
            index: that was compiled with.
            tokens_by_segment: of the request.
            shared_tokens: that the request before begins with; None when there is none before.
            found_break: why the newest reply's prefix does not stand.
            is_unchanged: the caller has all of it.
        """
        total = sum(tokens_by_segment.values())
        self._compiles["not_modified" if is_unchanged else "ok"].inc()
        if cache is not None:
            self._cache_results[cache].inc()
        how = "incremental" if cache == "hit" else "full"
        self._compile_s[wire_format, how].observe(sum(timing_ms.values()) / 1000)
        stage_s = self._stage_s
        for name, spent in timing_ms.items():
            stage_s[name].observe(spent / 1000)
        self._scanned.observe(scanned)
        self._output_tokens[wire_format].observe(total)
        for segment, tokens in tokens_by_segment.items():
            if tokens:
                self._segment_tokens[segment].inc(tokens)
        if shared_tokens is not None and total:
            self._shared_ratio[wire_format].observe(min(1.0, shared_tokens / total))
        if found_break is not None:
            self._breaks[found_break.reason].inc()
        if result.repairs:
            for rule, count in Counter(repair.rule for repair in result.repairs).items():
                self._repairs[rule].inc(count)
        self._count_dropped(result, hidden, index)
        reasoning = result.reasoning
        for action, items in (
            ("kept", reasoning.kept),
            ("stripped", reasoning.stripped),
            ("invalidated", reasoning.invalidated),
        ):
            if items:
                self._reasoning[action].inc(items)

    def _count_dropped(self, result: CompileResult, hidden: int, index: Index) -> None:
        if hidden:
            self._dropped["branch"].inc(hidden)
        if index.sections:
            self._dropped["masked"].inc(sum(size(shown.belongs) for shown in index.sections))
        if index.rewound:
            self._dropped["rewound"].inc(size(index.rewound))
        cut = sum(action.action == "dropped" for action in result.budget_actions)
        if cut:
            self._dropped["budget"].inc(cut)

    def compile_refused(self, outcome: str) -> None:
        """Take a compile without an answer: ``over_budget``, ``unrepairable`` or ``error``."""
        self._compiles[outcome].inc()

    # Reports of usage

    def usage_reported(
        self, model: str, usage: Usage, *, ttl: str | None, expected: int, miss: str | None
    ) -> None:
        """Take what a provider counted.

        Args:
            model: as the caller names it.
            usage: the provider's count.
            ttl: how long what was written to the cache is kept: ``5m`` or ``1h``; None: unknown.
            expected: tokens that the cache should have had.
            miss: why it had fewer: ``ttl``, ``prefix`` or ``routing``; None when it had them.
        """
        provider, family = self._family(model)
        written = usage.cache_write_tokens or 0
        read = usage.cached_tokens or 0
        uncached = max(0, (usage.input_tokens or 0) - read - written)
        kinds = {"read": read, f"write_{ttl}" if ttl else "write": written, "uncached": uncached}
        for kind, tokens in kinds.items():
            if tokens:
                self._cache_tokens[provider, family, kind].inc(tokens)
        if expected:
            self._expected_tokens[provider, family].inc(expected)
        if miss is not None:
            self._misses[provider, miss].inc()

    def tokens_estimated(self, model: str, *, ours: int, theirs: int) -> None:
        """Take our estimate of a request and the provider's count of it."""
        if theirs:
            self._estimate_errors[self._family(model)[0]].observe((ours - theirs) / theirs)

    def overflowed(self, model: str) -> None:
        """Take a request that was too long for its provider."""
        self._overflows[self._family(model)[0]].inc()

    # Compaction

    def compaction_ended(self, *, trigger: str, method: str, outcome: str) -> None:
        """Take the end of a compaction."""
        self._compactions[trigger, method, outcome].inc()

    def folded(
        self, *, method: str, duration_s: float, tokens_before: int, tokens_after: int
    ) -> None:
        """Take a fold: how long its summaries took, and what they save."""
        self._compaction_s[method].observe(duration_s)
        self._compaction_tokens["in"].inc(tokens_before)
        self._compaction_tokens["out"].inc(tokens_after)
        if tokens_before:
            self._compaction_ratio[method].observe(tokens_after / tokens_before)

    def summarized(
        self,
        provider: str,
        model: str,
        error: BaseException | None,
        *,
        duration_s: float,
        input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        """Take a request to a model for a summary, and the error that it ended with, if any."""
        outcome = "ok" if error is None else _first(error, _MODEL_ENDS) or "error"
        labels = (provider, self._family(model)[1], outcome)
        self._summarizer_requests[labels].inc()
        self._summarizer_s[labels].observe(duration_s)
        cost = _cost_usd(self._rules.find(model), input_tokens, output_tokens)
        if cost:
            self._summarizer_cost[labels].inc(cost)

    # Jobs

    def job_ended(self, queue: str, outcome: str, *, waited_s: float, ran_s: float) -> None:
        """Take a job that this worker is done with, whatever becomes of it."""
        self._job_wait_s[queue, outcome].observe(max(0.0, waited_s))
        self._job_run_s[queue, outcome].observe(ran_s)
        if outcome == "retried":
            self._job_retries[queue].inc()
        elif outcome == "lost":
            self._leases_lost[queue].inc()

    # Database

    def pool_waited(self, pool: str, wait_s: float) -> None:
        """Take how long a connection was waited for."""
        self._pool_wait_s[pool].observe(wait_s)

    def query_ran(self, sql: str, *, duration_s: float) -> None:
        """Take a statement that ran, however it ended."""
        self._query_s[self._query_names.get(sql, OTHER)].observe(duration_s)

    def database_seen(self, facts: Facts, *, valid_s: float) -> None:
        """Take what is true of the whole database; it counts for so long."""
        jobs: dict[tuple[str, ...], float] = {**self._no_jobs}
        jobs.update(facts.jobs)
        self._elected.set(
            {
                "jobs": jobs,
                "compaction_lag_seconds": {(): facts.compaction_lag_s},
                "db_oldest_transaction_seconds": {(): facts.oldest_transaction_s},
                "db_replica_lag_seconds": {
                    (replica,): lag_s for replica, lag_s in facts.replica_lag_s.items()
                },
            },
            valid_s=valid_s,
        )

    def database_unseen(self) -> None:
        """Say nothing of it from now on: another process does, or nobody knows."""
        self._elected.clear()

    # Redis

    def redis_failed(self, op: str) -> None:
        """Take a command that was not answered, or not in time, and what it was for."""
        self._redis_errors[op].inc()

    # Recall

    def recalled(self, tool: str, outcome: str, *, tokens: int) -> None:
        """Take a search for originals, or an opening of a fold."""
        self._recalls[tool, outcome].inc()
        if tokens:
            self._recall_tokens[tool, outcome].inc(tokens)

    # Process

    def loop_lagged(self, lag_s: float) -> None:
        """Take how late the event loop was."""
        self._loop_lag_s.observe(lag_s)

    def _family_of(self, model: str) -> tuple[str, str]:
        """Return provider and family of a model: names are the callers', families are ours."""
        rule = self._rules.find(model) if model else None
        return (OTHER, OTHER) if rule is None else (rule.provider, rule.family)


def _first(error: BaseException, names: Iterable[tuple[type[BaseException], str]]) -> str | None:
    return next((name for kind, name in names if isinstance(error, kind)), None)


def _cost_usd(rule: ModelRule | None, input_tokens: int, output_tokens: int) -> float:
    prices = rule.prices_of(input_tokens) if rule is not None else None
    if prices is None:
        return 0.0
    return (input_tokens * prices.input + output_tokens * prices.output) / PRICE_UNIT
