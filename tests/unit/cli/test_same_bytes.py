"""Compiled by another process, with other hashes and another locale, a log has the same bytes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from app.formats import FORMATS

REPOSITORY: Final = Path(__file__).parents[3]
SAMPLE: Final = REPOSITORY / "app/cli/sample_session.json"
#: What may differ from process to process, and must not be seen.
ENVIRONMENTS: Final = (
    {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "1", "LC_ALL": "C.utf8", "TZ": "Asia/Tokyo"},
    {"PYTHONHASHSEED": "2", "LC_ALL": "POSIX", "TZ": "America/New_York", "PYTHONUTF8": "1"},
)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_process_compiles_the_same_bytes(name: str) -> None:
    command = [sys.executable, "-m", "app.cli", "compile", "--to", name, "--json", str(SAMPLE)]
    printed = {
        subprocess.run(
            command,
            env={**os.environ, **environment},
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for environment in ENVIRONMENTS
    }

    assert len(printed) == 1
    assert len(printed.pop()) > 1_000
