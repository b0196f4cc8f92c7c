"""Traces, sent to an OpenTelemetry collector: a span for every request, stage, statement and call.

A span is told when it has ended, as our figures are, with its duration; so the meter's own reports
are what spans are made of, and nothing is done twice. Spans are put together and sent by a thread:
whoever is traced waits for nobody, and a collector that is away costs spans.

OTLP over HTTP takes JSON (https://opentelemetry.io/docs/specs/otlp/, 2026-11-30), which is all that
is needed here; the SDK would add eight packages and state of its own that all of a process shares.
"""

import os
import queue
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID, uuid4

import httpx
import orjson
import structlog

Kind: TypeAlias = Literal["internal", "server", "client"]
Attributes: TypeAlias = Mapping[str, str | int | float | bool]

#: Spans that wait to be sent; what comes when it is full is lost.
MAX_WAITING: Final = 10_000
MAX_BATCH: Final = 512
#: How long a span waits for others.
SEND_AFTER_S: Final = 1.0
TIMEOUT_S: Final = 5.0
TRACES_PATH: Final = "/v1/traces"

_KINDS: Final[Mapping[str, int]] = {"internal": 1, "server": 2, "client": 3}
_ERROR: Final = 2
# https://www.w3.org/TR/trace-context/ (2026-11-30); later versions may go on behind.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_SAMPLED: Final = 1

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SpanContext:
    """Where a span stands: what begins now is below it."""

    trace_id: str
    span_id: str
    is_sampled: bool = True
    #: Of the span above it; empty: none.
    parent_id: str = ""

    @property
    def traceparent(self) -> str:
        """The header by which another process goes on."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"

    def below(self) -> "SpanContext":
        """Return the context of a new span below this one."""
        return SpanContext(self.trace_id, _new_id(8), self.is_sampled, self.span_id)


@dataclass(frozen=True, slots=True)
class Span:
    """A span that has ended."""

    context: SpanContext
    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    attributes: Attributes
    is_error: bool = False


_CURRENT: Final[ContextVar[SpanContext | None]] = ContextVar("foldline_span", default=None)


def read_traceparent(header: str | None) -> SpanContext | None:
    """Return the context that a header names, None where it names none."""
    match = _TRACEPARENT.fullmatch(header.strip()) if header else None
    if match is None:
        return None
    return SpanContext(match[1], match[2], bool(int(match[3], 16) & _SAMPLED))


class Tracer:
    """Takes spans and sends them. The process must run it: see :meth:`running`."""

    def __init__(self, endpoint: str, *, service: str, version: str) -> None:
        """Take the collector's URL, and what to call this process."""
        url = endpoint.rstrip("/")
        self._url = url if url.endswith(TRACES_PATH) else url + TRACES_PATH
        self._resource = _attributes(
            {
                "service.name": service,
                "service.version": version,
                "service.instance.id": str(uuid4()),
            }
        )
        self._waiting: queue.Queue[Span | None] = queue.Queue(MAX_WAITING)
        self._is_away = False

    # Spans

    def begin(self, traceparent: str | None) -> tuple[SpanContext, Token[SpanContext | None]]:
        """Begin the span of a request, below the caller's if it has one; to be ended."""
        above = read_traceparent(traceparent)
        context = SpanContext(_new_id(16), _new_id(8)) if above is None else above.below()
        return context, _CURRENT.set(context)

    def end(
        self,
        context: SpanContext,
        token: Token[SpanContext | None],
        name: str,
        *,
        duration_s: float,
        attributes: Attributes,
        is_error: bool,
    ) -> None:
        """End the span of a request."""
        _CURRENT.reset(token)
        self._put(context, name, "server", duration_s, attributes, is_error=is_error)

    def add(
        self,
        name: str,
        *,
        duration_s: float,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        is_error: bool = False,
        stages_s: Mapping[str, float] | None = None,
    ) -> None:
        """Take a span that has ended just now, and the stages that it consists of, in order."""
        above = _CURRENT.get() or _of_job()
        context = SpanContext(_new_id(16), _new_id(8)) if above is None else above.below()
        end_ns = self._put(context, name, kind, duration_s, attributes or {}, is_error=is_error)
        if end_ns is None or stages_s is None:
            return
        start_ns = end_ns - _nanoseconds(sum(stages_s.values()))
        for stage, spent_s in stages_s.items():
            stage_end_ns = start_ns + _nanoseconds(spent_s)
            span = Span(context.below(), stage, "internal", start_ns, stage_end_ns, {})
            self._enqueue(span)
            start_ns = stage_end_ns

    def job_ended(self, name: str, *, duration_s: float, attributes: Attributes) -> None:
        """Take the span of a job, above what was told while it ran."""
        context = _of_job()
        if context is not None:
            self._put(context, name, "internal", duration_s, attributes, is_error=False)

    def _put(
        self,
        context: SpanContext,
        name: str,
        kind: Kind,
        duration_s: float,
        attributes: Attributes,
        *,
        is_error: bool,
    ) -> int | None:
        if not context.is_sampled:
            return None
        end_ns = time.time_ns()
        start_ns = end_ns - _nanoseconds(duration_s)
        self._enqueue(Span(context, name, kind, start_ns, end_ns, attributes, is_error))
        return end_ns

    def _enqueue(self, span: Span) -> None:
        try:
            self._waiting.put_nowait(span)
        except queue.Full:
            self._told_lost("too many wait")

    # Sending

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send while the block runs, and what is left at its end."""
        thread = threading.Thread(target=self._send_all, name="traces", daemon=True)
        thread.start()
        try:
            yield
        finally:
            # What is full makes room in time, or the process ends without its last spans.
            try:
                self._waiting.put(None, timeout=TIMEOUT_S)
                thread.join(2 * TIMEOUT_S)
            except queue.Full:
                self._told_lost("the process ended")

    def _send_all(self) -> None:
        with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client:
            is_last = False
            while not is_last:
                batch, is_last = self._batch()
                if batch:
                    self._send(client, batch)

    def _batch(self) -> tuple[list[Span], bool]:
        """Return what has come within a while, and whether nothing more will."""
        batch: list[Span] = []
        until_s = time.monotonic() + SEND_AFTER_S
        while len(batch) < MAX_BATCH:
            try:
                span = self._waiting.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                break
            if span is None:
                return batch, True
            batch.append(span)
        return batch, False

    def _send(self, client: httpx.Client, batch: list[Span]) -> None:
        try:
            answer = client.post(
                self._url,
                content=orjson.dumps(self._body(batch)),
                headers={"content-type": "application/json"},
            )
        except httpx.HTTPError as error:
            self._told_lost(type(error).__name__)
            return
        if answer.is_success:
            self._is_away = False
        else:
            self._told_lost(f"status {answer.status_code}")

    def _body(self, batch: list[Span]) -> dict[str, Any]:
        spans = [_encoded(span) for span in batch]
        scopes = [{"scope": {"name": "foldline"}, "spans": spans}]
        return {
            "resourceSpans": [{"resource": {"attributes": self._resource}, "scopeSpans": scopes}]
        }

    def _told_lost(self, reason: str) -> None:
        """Say that spans are lost: once until the collector takes some again."""
        if not self._is_away:
            self._is_away = True
            log.warning("traces_lost", reason=reason)


def _of_job() -> SpanContext | None:
    """Return the context of the job that runs here: its id is the trace's, whoever runs it."""
    job_id = structlog.contextvars.get_contextvars().get("job_id")
    if job_id is None:
        return None
    trace_id = trace_of_job(UUID(job_id))
    return SpanContext(trace_id, trace_id[:16])


def trace_of_job(job_id: UUID) -> str:
    """Return the id of a job's trace."""
    return job_id.hex


def _encoded(span: Span) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "traceId": span.context.trace_id,
        "spanId": span.context.span_id,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
    }
    if span.context.parent_id:
        encoded["parentSpanId"] = span.context.parent_id
    if span.is_error:
        encoded["status"] = {"code": _ERROR}
    return encoded


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: str | float) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        # As text: JSON's numbers do not hold 64 bits.
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


def _new_id(size_bytes: int) -> str:
    return os.urandom(size_bytes).hex()
