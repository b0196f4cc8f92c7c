"""The image names only what exists, and runs as nobody in particular."""

import re
import subprocess
import sys
from pathlib import Path

from app.cli.__main__ import COMMANDS
from app.settings import FILE_SUFFIX, PREFIX, SECRET_FIELDS, Settings

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
KNOWN = {PREFIX + name.upper() for name in Settings.model_fields} | {
    PREFIX + name.upper() + FILE_SUFFIX for name in SECRET_FIELDS
}


def test_every_variable_is_a_setting() -> None:
    named = set(re.findall(rf"^ *(?:ENV )?({PREFIX}\w+)=", DOCKERFILE, re.MULTILINE))
    assert named
    assert named <= KNOWN


def test_every_command_of_the_image_exists() -> None:
    told = re.search(r"the command selects what it does: (.*?)\. It runs", DOCKERFILE, re.DOTALL)
    assert told is not None
    names = set(re.findall(r"[a-z]+", re.sub(r"\(.*?\)|\n#", "", told[1])))
    # The demo starts a service of its own, and is no way to run the image.
    assert names == set(COMMANDS) - {"demo"}
    assert 'CMD ["serve"]' in DOCKERFILE


def test_what_is_copied_is_there_and_is_not_ignored() -> None:
    allowed = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    assert copied
    for line in copied:
        for name in line.split():
            assert (REPOSITORY / name).exists()
            assert f"!{name}" in allowed


def test_it_says_what_it_was_built_from() -> None:
    # Each stage has arguments of its own.
    build, run = DOCKERFILE.split("\nFROM ")[1:]
    assert "ARG REVISION=unknown\n" in build
    assert build.index("> app/REVISION") < build.index("pip wheel")
    assert "ARG REVISION=unknown\n" in run
    assert 'org.opencontainers.image.revision="${REVISION}"' in run


def test_it_runs_without_root_and_leaves_health_to_the_probes() -> None:
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
    assert not re.search(r"^HEALTHCHECK", DOCKERFILE, re.MULTILINE)


def test_the_base_is_pinned_by_digest() -> None:
    base = re.search(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert base is not None
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base[1])
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${BASE}"}


def test_the_linter_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    linted = subprocess.run(
        [hadolint, REPOSITORY / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert linted.returncode == 0, linted.stdout
