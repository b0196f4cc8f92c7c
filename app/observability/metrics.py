"""Every metric of the service, in one table: what is not here is not measured.

Each label has few values, and the table says which: those in brackets, or ``route`` (the path's
template), ``model`` (the family that the model rules find, else ``other``), ``query`` (the name of
a statement of ours). What belongs to a tenant, a session, a user or an agent is never a label.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

from app.observability.collectors import ElectedGauges, LoopCounter, LoopHistogram

#: Upper bounds of buckets, by the name that the table uses.
BUCKETS: Final[Mapping[str, tuple[float, ...]]] = {
    "LAT": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    "SLOW": (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300),
    "TOK": (256, 1e3, 4e3, 16e3, 32e3, 64e3, 128e3, 200e3, 400e3, 1e6, 2e6),
    "N": (1, 5, 10, 25, 50, 100, 250, 500, 1e3, 2.5e3, 5e3, 10e3, 50e3),
    "RATIO": (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1),
    "BYTES": tuple(float(1024 * 4**power) for power in range(8)),
    "ERROR": (-0.5, -0.3, -0.2, -0.1, -0.05, -0.02, 0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5),
}

#: Values of labels that are long or used more than once, by the name that the table uses.
VALUES: Final[Mapping[str, str]] = {
    "EVENT_KINDS": "message,compaction,rewind,pin,unpin,elision,deactivation,activation,policy",
    "SEGMENTS": "system,tools,memory,injected,summaries,history,pins,artifacts",
    "BREAKS": "tools,system,model,pin,compaction,elision,rewind,budget,overlap,option,"
    "nondeterminism",
    "MODEL_ENDS": "ok,timeout,rate_limited,unavailable,rejected,error",
    "JOB_ENDS": "done,failed,retried,dead,lost,released",
    "FOLD_ENDS": "ok,no_progress,llm_error,conflict,skipped",
    "QUEUES": "compact,compact_asked",
    "REDIS_OPS": "rate_limit,publish,subscribe,ping",
}

#: One metric a line: kind or buckets, name without its prefix, labels, meaning. The unit is the end
#: of the name. ``elected`` is a gauge of the whole database, which one worker alone tells.
TABLE: Final = """
gauge   | build_info                           | version revision schema rules_date | Always 1: what is running.
counter | http_requests_total                  | method route status | Requests answered.
LAT     | http_request_duration_seconds        | method route status_class(2xx,3xx,4xx,5xx) | From the request to the end of its answer.
gauge   | http_requests_in_flight              | route | Requests that are being answered now.
gauge   | sse_clients                          | | Event streams that are open now.
BYTES   | http_request_size_bytes              | route | Size of request bodies as they were sent.
BYTES   | http_response_size_bytes             | route | Size of answers as they were sent, compressed or not.
counter | events_appended_total                | kind(EVENT_KINDS) source(api,import,worker) | Events stored.
N       | append_batch_size_events             | | Events that one append stored.
counter | append_conflicts_total               | reason(head_moved,id_reused,idem_mismatch,lock_timeout) | Appends refused because of what others wrote.
counter | append_duplicates_total              | level(event,request) | Events or whole requests that had been stored before.
LAT     | session_lock_wait_seconds            | op(append,marker,fold) | Wait for the lock of a session, round trip included.
LAT     | compile_duration_seconds             | format cache(incremental,full) | Time of a compile, from the read to the answer's text; incremental: it went on from an earlier one.
LAT     | compile_stage_duration_seconds       | stage | Time of one step of a compile: the read, a pass, the answer.
N       | compile_events_scanned               | | Events that a compile read.
TOK     | compile_output_tokens                | format | Tokens of a compiled request.
counter | compile_tokens_by_segment_total      | segment(SEGMENTS) | Tokens of compiled requests.
counter | compile_outcomes_total               | outcome(ok,not_modified,over_budget,unrepairable,error) | How compiles ended; not_modified: the caller's base is all of it.
counter | compile_repairs_total                | rule | Places of a log that the provider would have refused, by what was done.
counter | compile_events_dropped_total         | reason(masked,rewound,branch,budget) | Events that compiles left out: by the index, of what was read by the reader's view, and to fit.
counter | compile_cache_requests_total         | result(hit,miss,stale) | Compiles that looked for an earlier one to go on from; stale: what was found was of no use.
counter | prefix_breaks_total                  | reason(BREAKS) | Compiles in which the newest reply's prefix no longer stands.
RATIO   | prefix_shared_ratio                  | format | Part of a compiled request that the request before it begins with.
counter | reasoning_items_total                | action(kept,stripped,invalidated) | Items of thinking in compiled requests.
counter | provider_cache_tokens_total          | provider model kind(read,write_5m,write_1h,write,uncached) | Input tokens that providers reported.
counter | provider_cache_expected_tokens_total | provider model | Of the reported requests, the tokens that we expected to be read from the cache.
counter | provider_cache_miss_total            | provider cause(ttl,prefix,routing) | Reported requests that read less than expected; routing: all was as it should be.
counter | provider_overflow_total              | provider | Requests that a provider refused, or cut, for their size.
ERROR   | token_estimate_error_ratio           | provider | Our estimate of a request less what its provider counted, over the latter.
counter | compactions_total                    | trigger(interval,tokens,manual,overflow) method(llm,deterministic) outcome(FOLD_ENDS) | Compactions that ended; llm_error: folded by code in place of the model.
SLOW    | compaction_duration_seconds          | method(llm,deterministic) | Time to make the summaries of a fold.
RATIO   | compaction_ratio                     | method(llm,deterministic) | Tokens of a fold's summaries over what they stand for.
counter | compaction_tokens_total              | side(in,out) | Tokens that folds stand for, and of their summaries.
elected | compaction_lag_seconds               | | Age of the oldest compaction that is due and not running.
counter | summarizer_requests_total            | provider model outcome(MODEL_ENDS) | Requests to models for summaries, retries within one not counted.
SLOW    | summarizer_duration_seconds          | provider model outcome(MODEL_ENDS) | Time of such a request, retries included.
counter | summarizer_cost_usd_total            | provider model outcome(MODEL_ENDS) | What they cost by the prices of the model rules; nothing where no price is known.
elected | jobs                                 | queue(QUEUES) state(ready,running,failed,dead) | Jobs in the database.
SLOW    | job_wait_seconds                     | queue(QUEUES) outcome(JOB_ENDS) | How long a job was due before it was claimed.
SLOW    | job_run_seconds                      | queue(QUEUES) outcome(JOB_ENDS) | How long a job ran.
counter | job_retries_total                    | queue(QUEUES) | Jobs that failed and will be tried again.
counter | job_lease_lost_total                 | queue(QUEUES) | Jobs that were taken from their worker, or cancelled, while they ran.
gauge   | db_pool_connections                  | pool(rw,ro) state(idle,used,max) | Connections of this process.
LAT     | db_pool_wait_seconds                 | pool(rw,ro) | Wait for a connection, opening it included.
LAT     | db_query_duration_seconds            | query | Time of a statement, round trip included.
elected | db_oldest_transaction_seconds        | | Age of the oldest open transaction of the database.
elected | db_replica_lag_seconds               | replica | Age of the newest transaction that the read replica has, while it lacks a newer one; 0 when it has all. Nothing when it does not answer.
counter | redis_errors_total                   | op(REDIS_OPS) | Commands that Redis did not answer in time; while it is away few are tried.
gauge   | redis_up                             | op(commands,subscribe) | 1 while Redis takes commands, and tells what other processes tell; only where a Redis is set.
counter | recall_requests_total                | tool(recall,expand) outcome(ok,empty,partial) | Searches and openings of what was folded; partial: by time or size.
counter | recall_tokens_total                  | tool(expand) outcome(ok,partial) | Tokens of the originals that were answered.
LAT     | event_loop_lag_seconds               | | How late the event loop runs what is due.
"""  # noqa: E501  one metric a line

PREFIX: Final = "foldline_"

Metric: TypeAlias = Gauge | LoopCounter | LoopHistogram
M = TypeVar("M", Gauge, LoopCounter, LoopHistogram)

_LABEL: Final = re.compile(r"(\w+)(?:\(([^)]*)\))?")


@dataclass(frozen=True, slots=True)
class Definition:
    """A line of the table."""

    #: ``counter``, ``gauge``, ``elected`` or ``histogram``.
    kind: str
    #: With the prefix.
    name: str
    #: By label: its values where the table says them, else none.
    labels: Mapping[str, tuple[str, ...]]
    meaning: str
    #: Of a histogram.
    buckets: tuple[float, ...] = ()

    @property
    def type(self) -> str:
        """What a scrape says that it is."""
        return "gauge" if self.kind == "elected" else self.kind


def definitions() -> tuple[Definition, ...]:
    """Return the table."""
    return tuple(_definition(line) for line in TABLE.strip().splitlines())


def _definition(line: str) -> Definition:
    kind, name, labels, meaning = (cell.strip() for cell in line.split("|"))
    values = {label: _values(given) for label, given in _LABEL.findall(labels)}
    buckets = BUCKETS.get(kind, ())
    kind = "histogram" if kind in BUCKETS else kind
    return Definition(kind, PREFIX + name, values, meaning, buckets)


def _values(given: str) -> tuple[str, ...]:
    return tuple(VALUES.get(given, given).split(",")) if given else ()


class Metrics:
    """The metrics of a process, by their names without the prefix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._before_scrape: list[Callable[[], None]] = []
        self._by_name: dict[str, Metric] = {}
        ProcessCollector(registry=self._registry)
        table = definitions()
        self.elected: Final = ElectedGauges(
            {
                each.name.removeprefix(PREFIX): (each.name, each.meaning, tuple(each.labels))
                for each in table
                if each.kind == "elected"
            }
        )
        self._registry.register(self.elected)
        self._definitions = {each.name.removeprefix(PREFIX): each for each in table}
        for each in table:
            if each.kind != "elected":
                self._by_name[each.name.removeprefix(PREFIX)] = self._made(each)

    def _made(self, definition: Definition) -> Metric:
        name, meaning, labels = definition.name, definition.meaning, tuple(definition.labels)
        made: Metric
        if definition.kind == "gauge":
            made = Gauge(name, meaning, labels, registry=self._registry)
        elif definition.kind == "counter":
            made = LoopCounter(name, meaning, labels)
            self._registry.register(made)
        else:
            made = LoopHistogram(name, meaning, labels, definition.buckets)
            self._registry.register(made)
        # Of a single label the values are there from the start, so that the first time that
        # something happens is a rise. With more labels most combinations never occur.
        if len(labels) == 1 and definition.kind != "gauge":
            for value in definition.labels[labels[0]]:
                made.labels(value)
        return made

    def definition(self, name: str) -> Definition:
        """Return a line of the table."""
        return self._definitions[name]

    def counter(self, name: str) -> LoopCounter:
        """Return a counter of the table."""
        return self._of(name, LoopCounter)

    def gauge(self, name: str) -> Gauge:
        """Return a gauge of the table."""
        return self._of(name, Gauge)

    def histogram(self, name: str) -> LoopHistogram:
        """Return a histogram of the table."""
        return self._of(name, LoopHistogram)

    def _of(self, name: str, kind: type[M]) -> M:
        metric = self._by_name[name]
        assert isinstance(metric, kind)
        return metric

    def before_scrape(self, refresh: Callable[[], None]) -> None:
        """Have something counted anew for every scrape. It may run in a thread of its own."""
        self._before_scrape.append(refresh)

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Return everything as text, and the text's type, in the format that the header asks for.

        Takes some milliseconds, so call it beside the event loop.
        """
        for refresh in self._before_scrape:
            refresh()
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
