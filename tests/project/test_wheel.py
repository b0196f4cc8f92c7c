"""What an installation from a wheel has to bring along."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from app import __version__

REPOSITORY = Path(__file__).parents[2]


def test_an_image_says_what_it_was_built_from(tmp_path: Path) -> None:
    """As the Dockerfile does: without a repository, with the revision beside the package."""
    source, made = tmp_path / "source", tmp_path / "made"
    for name in ("app", "migrations"):
        shutil.copytree(
            REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, source)
    dockerfile = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    [step] = re.findall(r"^RUN (printf .* > app/REVISION)$", dockerfile, re.MULTILINE)
    subprocess.run(["sh", "-c", step], cwd=source, env={"REVISION": "abc123"}, check=True)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(made)

    for folder, revision in ((made, "abc123"), (REPOSITORY, "unknown")):
        told = subprocess.run(
            [sys.executable, "-m", "app.cli", "--version"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert told == f"foldline {__version__} ({revision})\n"


def test_a_wheel_brings_the_migrations_and_no_second_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.iterdir()
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())

    revisions = {path.name for path in (REPOSITORY / "migrations" / "versions").glob("*.py")}
    assert {f"app/_migrations/versions/{name}" for name in revisions} | {
        "app/_migrations/env.py"
    } <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"app", "foldline"}
