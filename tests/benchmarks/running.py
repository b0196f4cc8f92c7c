"""How a benchmark begins and ends: its arguments, the machine, a Postgres of its own, a report."""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.storage.embedded import EmbeddedPostgres
from tests.benchmarks.measuring import machine


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark, which can always write a report."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--json", type=Path, help="write everything there")
    return parser


def tell_machine() -> dict[str, str]:
    """Print what the figures are measured on, and return it."""
    about = machine()
    print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
    return about


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A Postgres that runs for one benchmark."""

    #: As a role that may create databases.
    url: str
    data_dir: Path


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """Give a Postgres that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="foldline-") as folder:
        data_dir = Path(folder) / "postgres"
        server = EmbeddedPostgres(data_dir)
        server.start()
        try:
            yield OwnServer(server.superuser_url, data_dir)
        finally:
            server.stop()


def write_report(path: Path | None, **parts: Any) -> None:
    """Write what was measured, if a report is wanted."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
