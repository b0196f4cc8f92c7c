"""The compose file is valid, and names only what exists: settings, commands, files, variables."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.__main__ import COMMANDS
from app.settings import PREFIX, Settings, load_settings

REPOSITORY = Path(__file__).parents[2]
FILE = REPOSITORY / "docker-compose.yml"
TEXT = FILE.read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "foldline"}
EXAMPLE = (REPOSITORY / ".env.example").read_text(encoding="utf-8")
#: `${NAME}`, `${NAME:-default}` and `${NAME:?is needed}`.
REFERENCE = re.compile(r"\$\{(\w+)(?::(-|\?)([^}]*))?\}")


def _resolved(value: str, given: dict[str, str]) -> str:
    return REFERENCE.sub(lambda found: given.get(found[1]) or found[3] or "", value)


def test_it_has_the_schema_of_compose_files() -> None:
    checker = Path(sys.executable).parent / "check-jsonschema"
    command = [str(checker), "--builtin-schema", "vendor.compose-spec", str(FILE)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_what_runs_is_all_there() -> None:
    assert set(OURS) == {"migrate", "api", "worker"}
    assert {"postgres", "redis", "proxy"} <= set(SERVICES)
    assert SERVICES["api"]["deploy"]["replicas"] == 2


def test_every_command_exists() -> None:
    assert {service["command"][0] for service in OURS.values()} <= set(COMMANDS)


@pytest.mark.parametrize("name", OURS)
def test_the_environment_is_what_the_settings_take(name: str) -> None:
    given = {"POSTGRES_PASSWORD": "secret", "FOLDLINE_ADMIN_KEY": "0123456789abcdef"}
    environment = {key: _resolved(value, given) for key, value in OURS[name]["environment"].items()}

    settings = load_settings(environment)

    assert settings.database_url is not None
    assert "postgres:5432" in settings.database_url.get_secret_value()


@pytest.mark.parametrize("name", ["api", "worker"])
def test_the_pooler_of_the_example_is_what_the_settings_take(name: str) -> None:
    values = dict(re.findall(r"^#?(\w+)=(.*)$", EXAMPLE, re.MULTILINE))
    given = {**values, "POSTGRES_PASSWORD": "secret", "FOLDLINE_ADMIN_KEY": "0123456789abcdef"}
    environment = {key: _resolved(value, given) for key, value in OURS[name]["environment"].items()}

    settings = load_settings(environment)

    assert settings.db_pooler == "pgbouncer"
    assert settings.database_url is not None
    host, _, port = values["DATABASE_ADDRESS"].partition(":")
    assert f"@{host}:{port}/" in settings.database_url.get_secret_value()
    assert SERVICES[host]["environment"]["LISTEN_PORT"] == port


def test_migrations_go_to_postgres_itself() -> None:
    environment = SERVICES["migrate"]["environment"]
    assert "@postgres:5432/" in environment[f"{PREFIX}DATABASE_URL"]
    assert f"{PREFIX}DB_POOLER" not in environment


def test_every_variable_is_in_the_example() -> None:
    shown = set(re.findall(r"^#?(\w+)=", EXAMPLE, re.MULTILINE))
    assert {name for name, _, _ in REFERENCE.findall(TEXT)} == shown
    needed = {name for name, kind, _ in REFERENCE.findall(TEXT) if kind == "?"}
    assert set(re.findall(r"^(\w+)=$", EXAMPLE, re.MULTILINE)) == needed


def test_every_mounted_file_exists() -> None:
    mounted = [
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if volume.startswith(".")
    ]
    assert mounted
    for path in mounted:
        assert (REPOSITORY / path).exists()


def test_nothing_is_published_beyond_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_what_serves_starts_after_the_schema_and_stops_after_its_grace() -> None:
    grace_s = Settings.model_fields["shutdown_grace_s"].default
    for name in ("api", "worker"):
        needed = SERVICES[name]["depends_on"]
        assert needed["migrate"]["condition"] == "service_completed_successfully"
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > grace_s + 1


def test_our_containers_cannot_write_to_their_root_nor_gain_rights() -> None:
    for service in OURS.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_every_image_has_a_version() -> None:
    for service in SERVICES.values():
        if "build" not in service:
            assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+[\w.-]*", service["image"])


def test_what_is_scraped_is_where_it_answers() -> None:
    read = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text())
    (targets,) = read["scrape_configs"][0]["dns_sd_configs"]
    assert set(targets["names"]) == {"api", "worker"}
    for name in targets["names"]:
        assert SERVICES[name]["environment"][f"{PREFIX}METRICS_PORT"] == str(targets["port"])
        assert str(targets["port"]) in SERVICES[name]["expose"]
    for name in read["rule_files"]:
        assert (REPOSITORY / "deploy/prometheus" / name).exists()


def test_grafana_finds_its_source_and_its_dashboards() -> None:
    provisioning = REPOSITORY / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards/foldline.yml").read_text())[
        "providers"
    ]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert provider["options"]["path"] in mounted
