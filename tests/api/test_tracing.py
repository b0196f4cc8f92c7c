"""Traces: what is told to a collector, and that nobody waits for it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.observability.tracing import Tracer, read_traceparent
from app.wiring import build_telemetry
from tests.api.conftest import Api, client_of, model, settings_for, user
from tests.fakes.model_server import ModelServer, fails, says
from tests.fakes.otlp_collector import OtlpCollector, ReceivedSpan

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
SERVER, CLIENT, INTERNAL = 2, 3, 1


@asynccontextmanager
async def traced(url: str, collector: OtlpCollector, **changes: Any) -> AsyncIterator[Api]:
    """The service with a collector. What it sent is all there when the block is left."""
    settings = settings_for(url, otlp_endpoint=collector.url, **changes)
    async with client_of(settings) as client:
        yield Api(client)


def below(spans: list[ReceivedSpan], above: ReceivedSpan) -> list[ReceivedSpan]:
    return [span for span in spans if span.parent_id == above.span_id]


async def test_a_compile_is_one_trace_from_the_caller_down_to_every_pass(
    database_url: str,
) -> None:
    with OtlpCollector() as collector:
        async with traced(database_url, collector) as api:
            path = await api.session()
            await api.append(path, user("one"), model("two"), user("three"))
            answer = await api.post(f"{path}/compile", {"agent": "agent"}, headers=TRACEPARENT)
    [request] = [span for span in collector.spans if span.parent_id == CALLER]
    assert request.name == "POST /v1/sessions/{sid}/compile"
    assert (request.trace_id, request.kind, request.is_error) == (TRACE, SERVER, False)
    assert request.attributes["http.response.status_code"] == 200
    assert request.resource["service.name"] == "foldline"
    told = answer.headers["traceparent"]
    assert told == f"00-{TRACE}-{request.span_id}-01"

    children = below(collector.spans, request)
    [compiled] = [span for span in children if span.name == "compile"]
    assert compiled.attributes["foldline.events_scanned"] == 3
    passes = below(collector.spans, compiled)
    assert [span.name for span in passes] == list(answer.json()["timing_ms"])
    assert all(span.trace_id == TRACE and span.kind == INTERNAL for span in passes)
    for span, following in pairwise(passes):
        assert span.end_ns == following.start_ns
    assert passes[0].start_ns >= request.start_ns - 1_000_000
    [read] = [span for span in children if span.name == "live_read.read_live"]
    assert (read.kind, read.attributes["db.system.name"]) == (CLIENT, "postgresql")
    assert request.start_ns <= read.start_ns <= read.end_ns <= request.end_ns


async def test_without_a_caller_a_trace_begins_and_an_error_is_marked(database_url: str) -> None:
    with OtlpCollector() as collector:
        async with traced(database_url, collector) as api:
            await api.get("/v1/info")
            await api.get("/none", headers={"traceparent": "00-nonsense"})
    for span in (span for span in collector.spans if span.kind == SERVER):
        assert span.parent_id == ""
        assert span.is_error is False
    assert {span.name for span in collector.spans} >= {"GET /v1/info", "GET none"}


async def test_what_the_caller_does_not_sample_is_not_sent(database_url: str) -> None:
    with OtlpCollector() as collector:
        async with traced(database_url, collector) as api:
            path = await api.session()
            await api.append(path, user("one"))
            headers = {"traceparent": f"00-{TRACE}-{CALLER}-00"}
            await api.post(f"{path}/compile", {"agent": "agent"}, headers=headers)
    assert collector.spans
    assert not [span for span in collector.spans if span.trace_id == TRACE]


@pytest.mark.commits
@pytest.mark.parametrize("is_failing", [False, True])
async def test_a_call_of_a_summarizer_is_told_as_the_conventions_have_it(
    own_database_url: str, *, is_failing: bool
) -> None:
    text = "Order 58-1140 goes to Oslo before Friday. " * 60
    with ModelServer() as server, OtlpCollector() as collector:
        server.script(fails(400) if is_failing else says("## Facts\n- To Oslo [1]"))
        changes = {
            "worker": "embedded",
            "summarizer": "openai",
            "summarizer_url": server.url("openai"),
            "summarizer_model": "gpt-5.4",
        }
        async with traced(own_database_url, collector, **changes) as api:
            path = await api.session()
            await api.append(path, *(each for _ in range(4) for each in (user(text), model(text))))
            wanted = {"mode": "range", "from_seq": 1, "to_seq": 6, "wait_ms": 30_000}
            assert (await api.post(f"{path}/compactions", wanted)).status_code == 201
    calls = [span for span in collector.spans if span.name == "chat gpt-5.4"]
    assert calls
    call = calls[0]
    assert (call.kind, call.is_error) == (CLIENT, is_failing)
    assert call.attributes["gen_ai.operation.name"] == "chat"
    assert call.attributes["gen_ai.provider.name"] == "openai"
    assert call.attributes["gen_ai.request.model"] == "gpt-5.4"
    assert ("gen_ai.usage.output_tokens" in call.attributes) != is_failing
    assert ("error.type" in call.attributes) == is_failing
    [job] = [span for span in collector.spans if span.span_id == call.parent_id]
    assert job.name == "job compact_asked"
    assert job.trace_id == call.trace_id


async def test_nothing_of_what_is_said_or_of_who_says_it_is_in_a_span(database_url: str) -> None:
    with OtlpCollector() as collector:
        async with traced(database_url, collector) as api:
            path = await api.session(user_id="canary-user")
            await api.append(path, user("canary text", id="canary-event"))
            await api.post(f"{path}/compile", {"agent": "canary-agent"})
    assert "canary" not in repr(collector.spans)
    assert path.rpartition("/")[2] not in repr(collector.spans)


@pytest.mark.parametrize("kind", ["away", "refusing"])
async def test_a_collector_that_takes_nothing_costs_spans_and_no_request(
    database_url: str, kind: str
) -> None:
    with OtlpCollector(status=503) as collector:
        endpoint = collector.url if kind == "refusing" else "http://127.0.0.1:1"
        async with client_of(settings_for(database_url, otlp_endpoint=endpoint)) as client:
            api = Api(client)
            for _ in range(3):
                assert (await api.get("/v1/info")).status_code == 200
            began = time.monotonic()
    assert time.monotonic() - began < 8


def test_more_spans_than_may_wait_are_lost_and_nobody_waits() -> None:
    tracer = Tracer("http://127.0.0.1:1", service="test", version="0")
    began = time.monotonic()
    with capture_logs() as logs:
        for _ in range(12_000):
            tracer.add("a", duration_s=0)
    assert time.monotonic() - began < 5
    assert [line["event"] for line in logs] == ["traces_lost"]


async def test_the_log_names_the_trace_whether_it_is_sent_or_not(api: Api) -> None:
    with capture_logs(processors=[_merge]) as logs:
        await api.get("/v1/info", headers=TRACEPARENT)
    handled = [line for line in logs if line["event"] == "request_handled"]
    assert [line["trace_id"] for line in handled] == [TRACE]


@pytest.mark.commits
async def test_what_a_job_logs_names_the_job_s_trace(own_database_url: str) -> None:
    with OtlpCollector() as collector, capture_logs(processors=[_merge]) as logs:
        async with traced(own_database_url, collector, worker="embedded") as api:
            path = await api.session()
            await api.append(path, *(user("Order 58-1140 goes to Oslo. " * 60) for _ in range(4)))
            wanted = {"mode": "range", "from_seq": 1, "to_seq": 3, "wait_ms": 30_000}
            assert (await api.post(f"{path}/compactions", wanted)).status_code == 201
    told = [line["trace_id"] for line in logs if line["event"] == "compaction_appended"]
    jobs = [span for span in collector.spans if span.name == "job compact_asked"]
    assert told == [job.trace_id for job in jobs]
    assert len(told) == 1


def _merge(logger: object, name: str, event: Any) -> Any:
    from structlog.contextvars import merge_contextvars  # noqa: PLC0415

    return merge_contextvars(logger, name, event)


def test_without_a_collector_nothing_is_traced(database_url: str) -> None:
    telemetry = build_telemetry(settings_for(database_url))
    assert telemetry.tracer is None
    assert type(telemetry.meter).__name__ == "Meter"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{CALLER}-01",
        f"00-{TRACE}-{CALLER}-1",
    ],
)
def test_a_header_that_is_no_traceparent_is_none(header: str) -> None:
    assert read_traceparent(header) is None
