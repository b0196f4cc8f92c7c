"""The image and the compose file name only what exists."""

import re
from pathlib import Path
from typing import Any

import yaml

from app.cli.__main__ import COMMANDS
from app.settings import FILE_SUFFIX, PREFIX, SECRET_FIELDS, Settings

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(
    (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8")
)
KNOWN = {PREFIX + name.upper() for name in Settings.model_fields} | {
    PREFIX + name.upper() + FILE_SUFFIX for name in SECRET_FIELDS
}


def test_every_variable_is_a_setting() -> None:
    named = set(re.findall(rf"^ *(?:ENV )?({PREFIX}\w+)=", DOCKERFILE, re.MULTILINE))
    for service in COMPOSE["services"].values():
        named |= {name for name in service["environment"] if name.startswith(PREFIX)}
    assert named
    assert named <= KNOWN


def test_every_command_exists() -> None:
    commands = [service.get("command", ["serve"])[0] for service in COMPOSE["services"].values()]
    assert set(commands) <= set(COMMANDS)
    assert 'CMD ["serve"]' in DOCKERFILE


def test_what_is_copied_is_there_and_is_not_ignored() -> None:
    allowed = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for name in line.split():
            assert (REPOSITORY / name).exists()
            assert f"!{name}" in allowed


def test_the_service_starts_after_the_schema() -> None:
    needed = COMPOSE["services"]["api"]["depends_on"]
    assert needed["migrate"]["condition"] == "service_completed_successfully"
