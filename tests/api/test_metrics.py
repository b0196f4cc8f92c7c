"""What is counted is told to a scraper, in few series and without anything of the callers."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.observability.metrics import definitions
from app.settings import Settings
from tests.api.conftest import Api, call, client_of, key_for, model, settings_for, user
from tests.fakes.model_server import ModelServer, Step, fails, says


async def scraped(api: Api) -> dict[str, float]:
    """Return every sample of the service, by name and labels as the text shows them."""
    answer = await api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return samples(answer.text)


def samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def risen(before: dict[str, float], after: dict[str, float], name: str) -> float:
    """Return by how much a sample rose, exactly as it is named."""
    return after.get(name, 0) - before.get(name, 0)


async def _key(settings: Settings, *scopes: str) -> str:
    return await key_for(settings, uuid4().hex, *scopes)


async def test_a_scrape_needs_a_key_with_the_scope_and_no_other(database_url: str) -> None:
    settings = settings_for(database_url)
    right, wrong = await _key(settings, "metrics"), await _key(settings, "events:read", "compile")
    async with client_of(settings) as client:
        assert (await Api(client, None).get("/metrics")).status_code == 401
        refused = await Api(client, wrong).get("/metrics")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert (await Api(client, right).get("/metrics")).status_code == 200


async def test_openmetrics_is_answered_to_who_asks_for_it(api: Api) -> None:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = await api.get("/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_with_a_port_of_their_own_metrics_are_not_on_the_api(database_url: str) -> None:
    async with client_of(settings_for(database_url, metrics_port=0)) as client:
        assert (await Api(client).get("/metrics")).status_code == 404


async def test_requests_are_counted_by_template_method_and_status(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("hi"))
    before = await scraped(api)

    await api.append(path, user("again"))
    await api.get("/nowhere/at/all")
    await api.get(f"/v1/sessions/{uuid4().hex}")
    after = await scraped(api)

    def rose(method: str, route: str, status: int) -> float:
        labels = f'{{method="{method}",route="{route}",status="{status}"}}'
        return risen(before, after, f"foldline_http_requests_total{labels}")

    assert rose("POST", "/v1/sessions/{sid}/events", 201) == 1
    assert rose("GET", "none", 404) == 1
    assert rose("GET", "/v1/sessions/{sid}", 404) == 1
    count = "foldline_http_request_duration_seconds_count"
    labels = '{method="POST",route="/v1/sessions/{sid}/events",status_class="2xx"}'
    assert risen(before, after, count + labels) == 1
    sent = 'foldline_http_request_size_bytes_sum{route="/v1/sessions/{sid}/events"}'
    assert 50 < risen(before, after, sent) < 500
    answered = 'foldline_http_response_size_bytes_sum{route="/v1/sessions/{sid}/events"}'
    assert 50 < risen(before, after, answered) < 1000


async def test_a_request_is_in_flight_until_it_is_answered(database_url: str) -> None:
    flying = 'foldline_http_requests_in_flight{route="/v1/sessions/{sid}/compile"}'
    async with client_of(settings_for(database_url, min_seq_wait_ms=1000)) as client:
        api = Api(client)
        path = await api.session()
        waiting = asyncio.create_task(api.post(f"{path}/compile", {"agent": "a", "min_seq": 5}))
        await asyncio.sleep(0.3)
        during = await scraped(api)
        assert (await waiting).status_code == 409
        after = await scraped(api)
    assert (during[flying], after[flying]) == (1, 0)


async def test_nothing_that_callers_choose_becomes_a_label(api: Api) -> None:
    names = [f"canary-{uuid4().hex}" for _ in range(6)]
    path = f"/v1/sessions/{names[0]}"
    await api.put(path, {"app_name": names[1], "user_id": names[2]})
    await api.append(path, user("hi", id=names[3]), model("yes", author=names[4]))
    body = {"agent": names[4], "model": names[5], "format": "openai_chat"}
    assert (await api.post(f"{path}/compile", body)).status_code == 200
    await api.get(f"/v1/{names[5]}")
    text = (await api.get("/metrics")).text
    assert "canary" not in text


async def test_strange_requests_add_few_series(api: Api) -> None:
    for _ in range(2):
        await api.call("BREW", "/v1/info")
        await api.get("/none")
    before = len(await scraped(api))
    for number in range(40):
        await api.call(f"BREW{number}", "/v1/info")
        await api.get(f"/{number}/{uuid4().hex}")
        await api.put(f"/v1/sessions/{uuid4().hex}", {"app_name": "a", "user_id": "u"})
        await api.get("/v1/info", headers={"X-Request-Id": uuid4().hex})
    after = await scraped(api)
    # Only what the first session and the first look at the information add.
    assert len(after) - before < 300
    assert {name for name in after if "BREW" in name} == set()


async def test_every_label_has_the_values_that_its_metric_says(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("hi"), model("yes"))
    assert (await api.post(f"{path}/compile", {"agent": "agent"})).status_code == 200
    defined = {each.name.removesuffix("_total"): each for each in definitions()}
    families = text_string_to_metric_families((await api.get("/metrics")).text)
    for family in families:
        if family.name.startswith("process_"):
            continue
        each = defined[family.name]
        assert family.type == each.type
        for sample in family.samples:
            _check_labels(sample.labels, each.labels)


def _check_labels(labels: dict[str, str], defined: Any) -> None:
    assert labels.keys() - {"le"} == defined.keys()
    for name, value in labels.items():
        values = defined.get(name, ())
        assert not values or value in values, (name, value)
        assert re.fullmatch(r"[\w./{}:+-]*", value), (name, value)


async def test_statements_and_connections_are_counted(api: Api) -> None:
    path = await api.session()
    before = await scraped(api)
    await api.append(path, user("hi"))
    after = await scraped(api)
    inserted = 'foldline_db_query_duration_seconds_count{query="insert_events.insert"}'
    assert risen(before, after, inserted) == 1
    assert risen(before, after, 'foldline_db_pool_wait_seconds_count{pool="rw"}') >= 1
    assert after['foldline_db_pool_connections{pool="rw",state="max"}'] == 5
    assert after['foldline_db_pool_connections{pool="rw",state="idle"}'] >= 1
    assert not [name for name in after if 'query="other"' in name]


# What services report


@pytest.fixture
async def working(database_url: str) -> AsyncIterator[Api]:
    """The service with a worker in it."""
    async with client_of(settings_for(database_url, worker="embedded")) as client:
        yield Api(client)


OPEN_JOBS = """
    SELECT count(*) FROM jobs
    WHERE status IN ('ready', 'running') AND kind IN ('compact', 'compact_asked')
"""


async def no_jobs_left(url: str) -> None:
    """Wait until the worker has done what other tests left."""
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(60):
            while await connection.fetchval(OPEN_JOBS):  # noqa: ASYNC110  it is the worker's to do
                await asyncio.sleep(0.05)
    finally:
        await connection.close()


class Watch:
    """Tells by how much samples rose since the last look."""

    def __init__(self, api: Api, before: dict[str, float]) -> None:
        self._api = api
        self._before = before

    @classmethod
    async def of(cls, api: Api) -> "Watch":
        return cls(api, await scraped(api))

    async def rise(self) -> dict[str, float]:
        """Return what rose, without the prefix and without buckets."""
        after = await scraped(self._api)
        rises = {
            name.removeprefix("foldline_"): risen(self._before, after, name)
            for name in after
            if name.startswith("foldline_") and "_bucket" not in name
        }
        self._before = after
        return {name: rise for name, rise in rises.items() if rise}


async def test_what_is_appended_is_counted_by_kind_and_by_where_it_comes_from(api: Api) -> None:
    path = await api.session()
    watch = await Watch.of(api)
    await api.append(path, user("one", id="a", invocation_id="i1"), model("two"))
    items = [{"role": "user", "content": "three"}]
    await api.post(f"{path}/events", {"format": "openai_chat", "items": items})
    await api.post(f"{path}/pins", {"seqs": [1]})
    await api.patch(path, {"policy": {"compaction": {"strategy": "none"}}})
    rise = await watch.rise()
    assert rise['events_appended_total{kind="message",source="api"}'] == 2
    assert rise['events_appended_total{kind="message",source="import"}'] == 1
    assert rise['events_appended_total{kind="pin",source="api"}'] == 1
    assert rise['events_appended_total{kind="policy",source="api"}'] == 1
    assert rise["append_batch_size_events_sum"] == 5
    assert rise["append_batch_size_events_count"] == 4
    assert rise['session_lock_wait_seconds_count{op="append"}'] == 2
    assert rise['session_lock_wait_seconds_count{op="marker"}'] == 1


async def test_conflicts_and_repeats_are_counted_by_their_reason(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one", id="a"))
    key = {"Idempotency-Key": uuid4().hex}
    watch = await Watch.of(api)
    await api.append(path, user("one", id="a"))
    stale = {"events": [user("x")], "expected_seq": 0}
    assert (await api.post(f"{path}/events", stale)).status_code == 412
    other = {"events": [user("other", id="a")]}
    assert (await api.post(f"{path}/events", other)).status_code == 409
    for _ in range(2):
        await api.post(f"{path}/events", {"events": [user("two")]}, headers=key)
    await api.post(f"{path}/events", {"events": [user("three")]}, headers=key)
    rise = await watch.rise()
    assert rise['append_duplicates_total{level="event"}'] == 1
    assert rise['append_duplicates_total{level="request"}'] == 1
    for reason in ("head_moved", "id_reused", "idem_mismatch"):
        assert rise[f'append_conflicts_total{{reason="{reason}"}}'] == 1
    assert rise['events_appended_total{kind="message",source="api"}'] == 1


async def test_a_lock_that_is_not_had_in_time_is_a_conflict(api: Api, database_url: str) -> None:
    path = await api.session()
    watch = await Watch.of(api)
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            session_id = path.rpartition("/")[2]
            await connection.execute(
                "SELECT 1 FROM sessions WHERE session_id = $1 FOR UPDATE", session_id
            )
            answer = await api.post(f"{path}/events", {"events": [user("x")]})
    finally:
        await connection.close()
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    rise = await watch.rise()
    assert rise['append_conflicts_total{reason="lock_timeout"}'] == 1


async def test_a_compile_is_counted_with_its_stages_tokens_and_outcome(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a question"), model("an answer"), user("another"))
    watch = await Watch.of(api)
    body = {"agent": "agent", "format": "anthropic", "system": "Be brief."}
    answer = (await api.post(f"{path}/compile", body)).json()
    rise = await watch.rise()
    assert rise['compile_outcomes_total{outcome="ok"}'] == 1
    assert rise['compile_duration_seconds_count{cache="full",format="anthropic"}'] == 1
    assert rise["compile_events_scanned_sum"] == 3
    tokens = answer["tokens"]
    assert rise['compile_output_tokens_sum{format="anthropic"}'] == tokens["total"]
    for segment, count in tokens["by_segment"].items():
        name = f'compile_tokens_by_segment_total{{segment="{segment}"}}'
        assert rise.get(name, 0) == count
    stages = {name for name in rise if name.startswith("compile_stage_duration_seconds_count")}
    assert len(stages) == len(answer["timing_ms"])
    assert all(rise[name] == 1 for name in stages)
    total_s = sum(value for name, value in rise.items() if "stage_duration_seconds_sum" in name)
    measured_s = rise['compile_duration_seconds_sum{cache="full",format="anthropic"}']
    assert total_s == pytest.approx(measured_s)
    assert not [name for name in rise if name.startswith(("prefix_", "compile_repairs_"))]


async def test_a_compile_that_goes_on_from_an_earlier_one_is_told_apart(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one"))
    watch = await Watch.of(api)
    for _ in range(3):
        body = (await api.post(f"{path}/compile", {"agent": "agent"})).json()
        stamp = {"compiled_seq": body["compiled_seq"], "compiled_fingerprint": body["fingerprint"]}
        await api.append(path, model("an answer", **stamp), user("and then?"))
    rise = await watch.rise()
    hits = rise['compile_cache_requests_total{result="hit"}']
    assert hits >= 1
    assert hits + rise['compile_cache_requests_total{result="miss"}'] == 3
    how = 'compile_duration_seconds_count{cache="incremental",format="gemini"}'
    assert rise[how] == hits


async def test_a_compile_that_adds_nothing_to_the_base_or_does_not_fit_is_told_apart(
    api: Api,
) -> None:
    path = await api.session()
    await api.append(path, user("a question " * 50))
    first = (await api.post(f"{path}/compile", {"agent": "agent"})).json()
    watch = await Watch.of(api)
    base = {"agent": "agent", "base_fingerprint": first["fingerprint"]}
    await api.post(f"{path}/compile", base)
    small = {"agent": "agent", "budget": {"max_input_tokens": 10, "reserve_output_tokens": 0}}
    assert (await api.post(f"{path}/compile", small)).status_code == 422
    rise = await watch.rise()
    assert rise['compile_outcomes_total{outcome="not_modified"}'] == 1
    assert rise['compile_outcomes_total{outcome="over_budget"}'] == 1
    assert 'compile_outcomes_total{outcome="ok"}' not in rise


async def test_breaks_repairs_and_what_is_left_out_are_counted(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one"), model("two"), user("three"), call("track", "c1"))
    await api.append(path, user("four"))
    first = (await api.post(f"{path}/compile", {"agent": "agent"})).json()
    reply = {"compiled_seq": first["compiled_seq"], "compiled_fingerprint": first["fingerprint"]}
    await api.append(path, model("five", **reply), user("six"))
    watch = await Watch.of(api)
    await api.post(f"{path}/compile", {"agent": "agent"})
    rise = await watch.rise()
    assert 0.3 < rise['prefix_shared_ratio_sum{format="gemini"}'] < 1
    assert rise['compile_repairs_total{rule="synthetic_result"}'] == 1
    fold = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "One and two."}
    assert (await api.post(f"{path}/summaries", fold)).status_code == 201
    await api.post(f"{path}/compile", {"agent": "agent"})
    rise = await watch.rise()
    assert rise['prefix_breaks_total{reason="compaction"}'] == 1
    assert rise['compile_events_dropped_total{reason="masked"}'] == 2
    assert rise['events_appended_total{kind="compaction",source="api"}'] == 1


async def test_what_a_reader_may_not_see_is_counted_as_left_out(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one"), model("", author="agent"))
    watch = await Watch.of(api)
    await api.post(f"{path}/compile", {"agent": "agent"})
    assert (await watch.rise())['compile_events_dropped_total{reason="branch"}'] == 1


async def test_a_report_of_usage_is_counted_once_by_family_and_kind(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a question " * 300))
    body = {"agent": "agent", "format": "anthropic", "model": "claude-sonnet-5-20260801"}
    compiled = (await api.post(f"{path}/compile", body)).json()
    total = compiled["tokens"]["total"]
    usage = {"input_tokens": 100, "cache_read_input_tokens": 0, "output_tokens": 5}
    usage["cache_creation_input_tokens"] = total - 100
    watch = await Watch.of(api)
    for _ in range(2):
        await api.post(f"{path}/usage", {"fingerprint": compiled["fingerprint"], "usage": usage})
    rise = await watch.rise()
    labels = 'model="claude-sonnet-5",provider="anthropic"'
    assert rise[f'provider_cache_tokens_total{{kind="write_5m",{labels}}}'] == total - 100
    assert rise[f'provider_cache_tokens_total{{kind="uncached",{labels}}}'] == 100
    assert rise['token_estimate_error_ratio_count{provider="anthropic"}'] == 1
    assert 'token_estimate_error_ratio_sum{provider="anthropic"}' not in rise


async def test_a_cache_that_is_read_less_than_expected_is_a_miss_with_a_cause(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a question " * 6000))
    body = {"agent": "agent", "format": "anthropic", "model": "claude-sonnet-5"}
    first = (await api.post(f"{path}/compile", body)).json()
    reply = {"compiled_seq": first["compiled_seq"], "compiled_fingerprint": first["fingerprint"]}
    await api.append(path, model("an answer", **reply), user("more"))
    second = (await api.post(f"{path}/compile", body)).json()
    usage = {"input_tokens": second["tokens"]["total"], "cached_tokens": 0}
    watch = await Watch.of(api)
    report = {"fingerprint": second["fingerprint"], "usage": usage}
    told = (await api.post(f"{path}/usage", report)).json()
    rise = await watch.rise()
    labels = 'model="claude-sonnet-5",provider="anthropic"'
    expected = rise[f"provider_cache_expected_tokens_total{{{labels}}}"]
    assert expected == told["expected_cached_tokens"] > 5000
    assert rise['provider_cache_miss_total{cause="routing",provider="anthropic"}'] == 1


async def test_a_request_that_was_too_long_is_an_overflow(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a question"))
    body = {"agent": "agent", "format": "openai_chat", "model": "gpt-5.4"}
    compiled = (await api.post(f"{path}/compile", body)).json()
    error = {
        "status": 400,
        "body": {"error": {"code": "context_length_exceeded", "message": "too long"}},
    }
    watch = await Watch.of(api)
    await api.post(f"{path}/usage", {"fingerprint": compiled["fingerprint"], "error": error})
    assert (await watch.rise())['provider_overflow_total{provider="openai"}'] == 1


async def test_recall_and_expand_are_counted_with_what_they_found(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("the red lamp " * 20), model("is on the table"))
    watch = await Watch.of(api)
    await api.post(f"{path}/recall", {"query": "lamp"})
    await api.post(f"{path}/recall", {"query": "zeppelin"})
    await api.post(f"{path}/expand", {"from_seq": 1, "to_seq": 2, "max_tokens": 1})
    rise = await watch.rise()
    assert rise['recall_requests_total{outcome="ok",tool="recall"}'] == 1
    assert rise['recall_requests_total{outcome="empty",tool="recall"}'] == 1
    assert rise['recall_requests_total{outcome="partial",tool="expand"}'] == 1
    assert rise['recall_tokens_total{outcome="partial",tool="expand"}'] > 20


@pytest.mark.commits
async def test_a_compaction_is_counted_with_its_job(working: Api, database_url: str) -> None:
    await no_jobs_left(database_url)
    path = await working.session()
    text = "Order 58-1140 goes to Oslo before Friday. " * 60
    await working.append(path, *(each for _ in range(4) for each in (user(text), model(text))))
    watch = await Watch.of(working)
    wanted = {"mode": "range", "from_seq": 1, "to_seq": 6, "wait_ms": 30_000}
    answer = await working.post(f"{path}/compactions", wanted)
    assert answer.status_code == 201, answer.text
    rise = await watch.rise()
    how = 'method="deterministic",outcome="ok",trigger="manual"'
    assert rise[f"compactions_total{{{how}}}"] == 1
    assert rise['compaction_duration_seconds_count{method="deterministic"}'] == 1
    before, after = answer.json()["tokens_before"], answer.json()["tokens_after"]
    assert rise['compaction_tokens_total{side="in"}'] == before
    # What is read has a few tokens more: how the section is introduced.
    assert rise['compaction_tokens_total{side="out"}'] == pytest.approx(after, rel=0.05)
    ratio = rise['compaction_ratio_sum{method="deterministic"}']
    assert ratio == pytest.approx(after / before, rel=0.05)
    assert rise['events_appended_total{kind="compaction",source="worker"}'] == 1
    assert rise['job_run_seconds_count{outcome="done",queue="compact_asked"}'] == 1
    assert rise['job_wait_seconds_count{outcome="done",queue="compact_asked"}'] == 1
    assert 0 <= rise.get('job_wait_seconds_sum{outcome="done",queue="compact_asked"}', 0) < 30
    assert rise['session_lock_wait_seconds_count{op="fold"}'] == 1


@pytest.mark.commits
@pytest.mark.parametrize(
    ("step", "outcome", "fold"),
    [
        (says("## Facts\n- Order 58-1140 goes to Oslo before Friday [1]"), "ok", "ok"),
        (fails(429, retry_after="60"), "rate_limited", "llm_error"),
        (fails(500), "unavailable", "llm_error"),
        (fails(400), "rejected", "llm_error"),
    ],
)
async def test_requests_to_a_summarizer_are_counted_by_how_they_end(
    own_database_url: str, step: Step, outcome: str, fold: str
) -> None:
    with ModelServer() as server:
        server.script(step)
        settings = settings_for(
            own_database_url,
            worker="embedded",
            summarizer="openai",
            summarizer_url=server.url("openai"),
            summarizer_model="gpt-5.4-2026-03-01",
        )
        async with client_of(settings) as client:
            api = Api(client)
            path = await api.session()
            text = "Order 58-1140 goes to Oslo before Friday. " * 60
            await api.append(path, *(each for _ in range(4) for each in (user(text), model(text))))
            watch = await Watch.of(api)
            wanted = {"mode": "range", "from_seq": 1, "to_seq": 6, "wait_ms": 30_000}
            answer = await api.post(f"{path}/compactions", wanted)
            assert answer.status_code == 201, answer.text
            rise = await watch.rise()
    labels = f'model="gpt-5.4",outcome="{outcome}",provider="openai"'
    assert rise[f"summarizer_requests_total{{{labels}}}"] >= 1
    assert rise[f"summarizer_duration_seconds_count{{{labels}}}"] >= 1
    cost = f"summarizer_cost_usd_total{{{labels}}}"
    assert (cost in rise) == (outcome == "ok")
    [ended] = [name for name in rise if name.startswith("compactions_total")]
    assert f'outcome="{fold}"' in ended
