"""Rules and dashboard: every query is one that Prometheus takes, of metrics and labels that a real
scrape has; every alert is tested and documented."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import yaml

from app.cli.service_process import running_service
from app.observability.metrics import PREFIX, Definition, definitions
from tests.conftest import IS_CI, REPOSITORY
from tests.redis_server import running_redis

RULES: Final = REPOSITORY / "deploy" / "prometheus"
DASHBOARD: Final = REPOSITORY / "deploy" / "grafana" / "dashboards" / "foldline.json"
RULE_TESTS: Final = REPOSITORY / "tests" / "prometheus" / "alert_rules_test.yml"
DOCUMENT: Final = REPOSITORY / "deploy" / "METRICS.md"

METRIC: Final = re.compile(rf"\b{PREFIX}\w+")
RECORDED: Final = re.compile(r"\bfoldline(?::\w+)+")
SELECTOR: Final = re.compile(rf"\b({PREFIX}\w+)\s*\{{((?:[^}}\"]|\"[^\"]*\")*)\}}")
GROUPING: Final = re.compile(r"\bby \(([^)]*)\)")
#: What Prometheus adds to every series, and what buckets have.
ALWAYS: Final = {"instance", "job", "le"}
PATIENCE_S: Final = 60.0


def program(name: str) -> str:
    """Return a program of Debian's `prometheus`, which the test needs."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is missing: apt-get install prometheus"
        if IS_CI:
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def rules() -> list[dict[str, Any]]:
    """Return all rules, recording ones first."""
    return [
        rule
        for name in ("recording_rules.yml", "alert_rules.yml")
        for group in yaml.safe_load((RULES / name).read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]


def panels() -> list[dict[str, Any]]:
    """Return the panels that ask something."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str, str]]:
    """Return title, query and legend of everything that the dashboard asks."""
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel["targets"]
    ]


def _by_name() -> dict[str, Definition]:
    names: dict[str, Definition] = {}
    for each in definitions():
        ends = ("_bucket", "_sum", "_count") if each.type == "histogram" else ("",)
        names |= {each.name + end: each for end in ends}
    return names


def _unknown(query: str, legend: str = "") -> list[str]:
    """Return what a query names that is not there: metrics, labels, values of labels."""
    known, recorded = _by_name(), {rule["record"] for rule in rules() if "record" in rule}
    wrong = [name for name in METRIC.findall(query) if name not in known]
    wrong += [name for name in RECORDED.findall(query) if name not in recorded]
    used = [known[name] for name in METRIC.findall(query) if name in known]
    labels = {label for each in used for label in each.labels} | ALWAYS
    for name, matchers in SELECTOR.findall(query):
        for label, value in re.findall(r"(\w+)\s*=\s*\"([^\"]*)\"", matchers):
            allowed = known[name].labels.get(label)
            if allowed is None and label not in ALWAYS:
                wrong.append(f"{name} has no {label}")
            elif allowed and value not in allowed:
                wrong.append(f"{name} has no {label}={value}")
    grouped = {label.strip() for group in GROUPING.findall(query) for label in group.split(",")}
    told = set(re.findall(r"{{(\w+)}}", legend))
    if used:
        wrong += sorted(grouped - labels)
        wrong += sorted(told - grouped - ALWAYS if grouped else told - labels)
    return wrong


@pytest.mark.parametrize(("title", "query", "legend"), queries())
def test_a_panel_asks_for_what_there_is(title: str, query: str, legend: str) -> None:
    assert _unknown(query, legend) == [], title


def test_rules_ask_for_what_there_is() -> None:
    for rule in rules():
        assert _unknown(rule["expr"]) == [], rule


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for _, query, _ in queries() for name in METRIC.findall(query)}
    by_rules = {name for rule in rules() for name in METRIC.findall(rule["expr"])}
    by_name = _by_name()
    told = {by_name[name].name for name in shown | by_rules}
    assert told == {each.name for each in definitions()}


def test_the_rules_pass_their_tests() -> None:
    tool = program("promtool")
    checked = subprocess.run(
        [tool, "check", "rules", *map(str, sorted(RULES.glob("*_rules.yml")))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = subprocess.run(
        [tool, "test", "rules", str(RULE_TESTS)], capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_configuration_is_one_that_prometheus_takes() -> None:
    command = [program("promtool"), "check", "config", str(RULES / "prometheus.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_is_seen_to_fire_and_to_be_silent_and_says_what_to_do() -> None:
    tests = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tests for case in test.get("alert_rule_test", ())]
    told = re.findall(r"^\| `(Foldline\w+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    alerts = [rule["alert"] for rule in rules() if "alert" in rule]
    assert told == alerts
    for alert in alerts:
        fires = [bool(case.get("exp_alerts")) for case in cases if case["alertname"] == alert]
        assert True in fires, alert
        assert False in fires, alert


# A real Prometheus


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service, with a Redis, that has done a little of everything."""
    with (
        running_redis(tmp_path_factory.mktemp("redis")) as redis,
        running_service({"REDIS_URL": redis.url}) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as client,
    ):
        yield client


def _live_a_little(client: httpx.Client) -> None:
    """Append, compile, fold, recall and report, on a session of its own."""
    path = f"/v1/sessions/{uuid4().hex}"
    client.put(path, json={"app_name": "a", "user_id": "u"}).raise_for_status()
    text = "Order 58-1140 goes to Oslo before Friday. " * 60
    body = {"agent": "a", "format": "anthropic", "model": "claude-sonnet-5"}
    for _ in range(4):
        client.post(f"{path}/events", json={"events": [{"author": "user", "content": text}]})
        compiled = client.post(f"{path}/compile", json=body).json()
        usage = {"input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 1}
        usage["cache_creation_input_tokens"] = compiled["tokens"]["total"]
        report = {"fingerprint": compiled["fingerprint"], "usage": usage}
        client.post(f"{path}/usage", json=report).raise_for_status()
        stamp = {
            "compiled_seq": compiled["compiled_seq"],
            "compiled_fingerprint": compiled["fingerprint"],
        }
        reply = {"author": "a", "content": {"role": "model", "parts": [{"text": text}]}, **stamp}
        client.post(f"{path}/events", json={"events": [reply]}).raise_for_status()
    fold = {"mode": "range", "from_seq": 1, "to_seq": 4, "wait_ms": 20_000}
    client.post(f"{path}/compactions", json=fold).raise_for_status()
    client.post(f"{path}/recall", json={"query": "Oslo"}).raise_for_status()
    client.post(f"{path}/expand", json={"from_seq": 1, "to_seq": 2}).raise_for_status()
    client.post(f"{path}/compile", json=body).raise_for_status()


@pytest.fixture(scope="module")
def prometheus(
    service: httpx.Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A Prometheus with our rules that scrapes the service every half second."""
    folder = tmp_path_factory.mktemp("prometheus")
    configuration = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(path) for path in sorted(RULES.glob("*_rules.yml"))],
        "scrape_configs": [
            {
                "job_name": "foldline",
                "static_configs": [{"targets": [service.base_url.netloc.decode()]}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"]},
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            _until_ready(client, process, folder / "log")
            _until_scraped(client)
            for _ in range(6):
                _live_a_little(service)
                time.sleep(0.7)
            time.sleep(1.5)
            yield client
    finally:
        process.kill()
        process.wait()


def _until_ready(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if client.get("/-/ready").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail(log.read_text(encoding="utf-8"))


def _until_scraped(client: httpx.Client) -> None:
    """Wait for the first scrape, some seconds after the start: what happened before is no
    increase."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        up = _asked(client, 'up{job="foldline"}')
        if up and up[0]["value"][1] == "1":
            return
        time.sleep(0.1)
    pytest.fail("nothing was scraped")


def _asked(client: httpx.Client, query: str) -> list[dict[str, Any]]:
    query = query.replace("$__rate_interval", "1m").replace("$route", ".*")
    answer = client.get("/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", (query, answer)
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


#: What did not happen: no model was asked for a summary, nothing failed, nobody reported an error,
#: and there is no read replica.
NOTHING_HAPPENED: Final = {
    "Lag of the read replica",
    "Requests to summarizers",
    "Time of a summarizer's answer, 95%",
    "Cost of summarizers a day",
    "Requests that were too long",
    "Repairs",
    "Misses by cause",
}


def test_a_scrape_is_taken_and_every_query_of_the_dashboard_is_answered(
    prometheus: httpx.Client,
) -> None:
    assert _asked(prometheus, 'up{job="foldline"}')[0]["value"][1] == "1"
    empty = set()
    for title, query, legend in queries():
        found = _asked(prometheus, query)
        if not found:
            empty.add(title)
        for label in re.findall(r"{{(\w+)}}", legend):
            assert all(label in sample["metric"] for sample in found), (title, label)
    assert empty <= NOTHING_HAPPENED


def test_the_rules_are_evaluated_and_nothing_is_alarmed_about_a_healthy_service(
    prometheus: httpx.Client,
) -> None:
    groups = prometheus.get("/api/v1/rules").json()["data"]["groups"]
    loaded = [rule for group in groups for rule in group["rules"]]
    assert len(loaded) == len(rules())
    assert [rule for rule in loaded if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in loaded if rule.get("state") == "firing"] == []


def test_what_prometheus_took_is_what_the_table_has(prometheus: httpx.Client) -> None:
    taken = prometheus.get("/api/v1/metadata").json()["data"]
    ours = {name: kinds[0]["type"] for name, kinds in taken.items() if name.startswith(PREFIX)}
    # OpenMetrics, which Prometheus asks for, names a counter's family without its end.
    assert ours == {each.name.removesuffix("_total"): each.type for each in definitions()}
