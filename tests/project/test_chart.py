"""The Helm chart: linted, rendered, valid for Kubernetes, true to the settings and the probes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from app import __version__
from app.api.routes.health import router as health
from app.cli.__main__ import COMMANDS
from app.cli.service_process import running_service
from app.settings import PREFIX, SECRET_FIELDS, Settings
from tests.project.charts import CHART, manifests, objects, of_kind, pod_specs

#: The oldest that the chart names, and the newest that the checker knows.
KUBERNETES = ("1.27", "1.37")
PLAIN = CHART.parents[1] / "kubernetes"
EVERYTHING: dict[str, Any] = {
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "settings": {"LOG_LEVEL": "debug", "DB_POOL_SIZE": 20, "VERIFY_COMPILE": True},
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "rules", "configMap": {"name": "rules"}}],
    "extraVolumeMounts": [{"name": "rules", "mountPath": "/etc/foldline"}],
    "podAnnotations": {"team": "context"},
    "podLabels": {"team": "context"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "api": {"autoscaling": {"targetRequestsInFlight": 20}},
    "migrate": {"databaseUrlKey": "direct-database-url"},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "hosts": [{"host": "foldline.example", "secretName": "certificate"}],
    },
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"team": "agents"}}}],
        "scrapedFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
    },
    "monitoring": {"enabled": True, "labels": {"release": "prometheus"}},
}


def test_the_linter_finds_nothing() -> None:
    found = helm.lint(str(CHART))
    assert found["errors"] == []
    assert [m["error"] for m in found["messages"] if m["error"] != "icon is recommended"] == []


def test_its_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_object_is_valid(values: dict[str, Any], version: str) -> None:
    found = objects(values)
    assert len(found) >= 9
    for each in found:
        if each["apiVersion"].startswith("monitoring.coreos.com/"):
            continue
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 3}, "replicas"),
        ({"image": {"tag": "latest"}}, "tag"),
        ({"image": {"digest": "sha256:1"}}, "digest"),
        ({"settings": {"DATABASE_URL": "postgresql://"}}, "DATABASE_URL"),
        ({"settings": {"log_level": "debug"}}, "log_level"),
        ({"secretKeys": {"DATABASE_URL": "url"}}, "DATABASE_URL"),
        ({"existingSecret": ""}, "existingSecret"),
        ({"service": {"port": 0}}, "port"),
        ({"api": {"podDisruptionBudget": {"maxUnavailable": 0}}}, "maxUnavailable"),
    ],
)
def test_values_that_are_wrong_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm.HelmError, match=named):
        objects(values)


def test_the_schema_knows_every_default() -> None:
    with helm.Chart.load(str(CHART)) as chart:
        for name, value in chart.values.items():
            chart.validate_schema({name: value})


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_variable_is_a_setting_and_every_command_exists(values: dict[str, Any]) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for spec in pod_specs(objects(values)):
        for container in spec["containers"]:
            named = {each["name"] for each in container["env"]}
            assert {name for name in named if name.startswith(PREFIX)} <= known
            if "command" not in container:
                assert container["args"][0] in COMMANDS


def test_secrets_come_from_the_secret_alone() -> None:
    secrets = {PREFIX + name.upper() for name in SECRET_FIELDS}
    seen = set()
    for spec in pod_specs(objects(EVERYTHING)):
        for each in spec["containers"][0]["env"]:
            if each["name"] in secrets:
                seen.add(each["name"])
                assert each["valueFrom"]["secretKeyRef"]["name"] == "foldline"
    assert f"{PREFIX}DATABASE_URL" in seen


def test_migrations_may_take_a_url_of_their_own() -> None:
    job = of_kind(objects(EVERYTHING), "Job")["foldline-migrate"]
    (variable,) = [
        each
        for each in job["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == f"{PREFIX}DATABASE_URL"
    ]
    assert variable["valueFrom"]["secretKeyRef"]["key"] == "direct-database-url"
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"


def test_probes_ask_what_exists() -> None:
    deployment = of_kind(objects(), "Deployment")["foldline-api"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    asked = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "liveness", "readiness")
    }
    assert asked == {"startup": "/startupz", "liveness": "/livez", "readiness": "/readyz"}
    assert set(asked.values()) <= {getattr(route, "path", "") for route in health.routes}


def test_a_pod_has_time_to_drain() -> None:
    grace_s = Settings.model_fields["shutdown_grace_s"].default
    for deployment in of_kind(objects(), "Deployment").values():
        spec = deployment["spec"]["template"]["spec"]
        lifecycle = spec["containers"][0].get("lifecycle")
        waits_s = 0 if lifecycle is None else int(lifecycle["preStop"]["exec"]["command"][1])
        assert spec["terminationGracePeriodSeconds"] > waits_s + 1 + grace_s


def test_no_pod_may_do_more_than_it_needs() -> None:
    for spec in pod_specs(objects()):
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_a_service_of_the_same_name_does_not_become_settings() -> None:
    assert all(spec["enableServiceLinks"] is False for spec in pod_specs(objects()))


def test_what_disrupts_and_scales_selects_the_deployments() -> None:
    found = objects()
    deployments = of_kind(found, "Deployment")
    labels = {
        name: each["spec"]["template"]["metadata"]["labels"] for name, each in deployments.items()
    }
    for name, budget in of_kind(found, "PodDisruptionBudget").items():
        selector = budget["spec"]["selector"]["matchLabels"]
        assert [n for n, own in labels.items() if selector.items() <= own.items()] == [name]
    (scaler,) = of_kind(found, "HorizontalPodAutoscaler").values()
    assert scaler["spec"]["scaleTargetRef"]["name"] in deployments
    # Two that set the number of replicas would fight.
    assert "replicas" not in deployments["foldline-api"]["spec"]
    (service,) = of_kind(found, "Service").values()
    selector = service["spec"]["selector"]
    assert [n for n, own in labels.items() if selector.items() <= own.items()] == ["foldline-api"]


def test_every_process_is_scraped_where_it_answers() -> None:
    found = objects(EVERYTHING)
    service = of_kind(found, "Service")["foldline-metrics"]
    monitor = of_kind(found, "ServiceMonitor")["foldline"]
    selector = monitor["spec"]["selector"]["matchLabels"]
    assert selector.items() <= service["metadata"]["labels"].items()
    # The service of the API is not scraped too.
    others = [s for s in of_kind(found, "Service").values() if s is not service]
    assert not any(selector.items() <= s["metadata"]["labels"].items() for s in others)
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    for deployment in of_kind(found, "Deployment").values():
        template = deployment["spec"]["template"]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        container = template["spec"]["containers"][0]
        port = next(p["containerPort"] for p in container["ports"] if p["name"] == "metrics")
        told = {each["name"]: each.get("value") for each in container["env"]}
        assert told[f"{PREFIX}METRICS_PORT"] == str(port)
        assert told[f"{PREFIX}HOST"] == "0.0.0.0"


def test_rules_and_dashboard_are_those_of_the_repository() -> None:
    found = objects(EVERYTHING)
    rules = of_kind(found, "PrometheusRule")["foldline"]["spec"]["groups"]
    deploy = CHART.parents[1]
    written = [
        group
        for name in ("recording_rules.yml", "alert_rules.yml")
        for group in yaml.safe_load((deploy / "prometheus" / name).read_text())["groups"]
    ]
    assert rules == written
    dashboard = of_kind(found, "ConfigMap")["foldline-dashboard"]["data"]["foldline.json"]
    text = (deploy / "grafana/dashboards/foldline.json").read_text(encoding="utf-8")
    assert json.loads(dashboard) == json.loads(text)


def test_another_name_of_the_release_makes_other_objects() -> None:
    first, second = objects(name="foldline"), objects(name="second")
    names = [{(e["kind"], e["metadata"]["name"]) for e in found} for found in (first, second)]
    assert not names[0] & names[1]


def test_the_plain_manifests_are_the_rendered_chart(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--update-golden"):
        PLAIN.mkdir(exist_ok=True)
        for name, text in manifests().items():
            (PLAIN / name).write_text(text, encoding="utf-8")
        return
    written = {path.name: path.read_text(encoding="utf-8") for path in PLAIN.glob("*.yaml")}
    assert written == manifests()


@pytest.mark.commits
def test_the_test_of_the_chart_passes_against_a_service(tmp_path: Path) -> None:
    (pod,) = of_kind(objects(), "Pod").values()
    container = pod["spec"]["containers"][0]
    assert container["command"] == ["python", "-c"]
    with running_service({"AUTH": "on", "ADMIN_KEY": "0123456789abcdef"}) as url:
        environment = {"SERVICE_URL": url, "SERVICE_KEY": "0123456789abcdef"}
        assert set(environment) == {each["name"] for each in container["env"]}
        ran = subprocess.run(
            [sys.executable, "-c", container["args"][0]],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "appended, compiled and erased\n"
