"""What an installation from a wheel has to bring along."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

REPOSITORY = Path(__file__).parents[2]


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
