"""What is counted is told to a scraper, in few series and without anything of the callers."""

import asyncio
import re
from typing import Any
from uuid import uuid4

from prometheus_client.parser import text_string_to_metric_families

from app.observability.metrics import definitions
from app.settings import Settings
from app.wiring import build
from tests.api.conftest import Api, client_of, model, settings_for, user


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
    async with build(settings) as services:
        return await services.create_key(tenant_id=uuid4().hex, name="test", scopes=scopes)


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
    locked = 'foldline_db_query_duration_seconds_count{query="event_log.lock_session"}'
    assert risen(before, after, locked) == 1
    assert risen(before, after, 'foldline_db_pool_wait_seconds_count{pool="rw"}') >= 1
    assert after['foldline_db_pool_connections{pool="rw",state="max"}'] == 5
    assert after['foldline_db_pool_connections{pool="rw",state="idle"}'] >= 1
    assert not [name for name in after if 'query="other"' in name]
