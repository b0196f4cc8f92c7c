"""What `deploy/METRICS.md` says of the metrics is what there is."""

from typing import Final

import pytest

from app.observability.metrics import Definition, definitions
from tests.conftest import REPOSITORY

DOCUMENT: Final = REPOSITORY / "deploy" / "METRICS.md"
HEADING: Final = "\n## Every metric\n"


def _label(name: str, values: tuple[str, ...]) -> str:
    return f"`{name}`" + (f" ({', '.join(values)})" if values else "")


def _row(each: Definition) -> str:
    labels = ", ".join(_label(name, values) for name, values in each.labels.items())
    of_database = " of the database" if each.kind == "elected" else ""
    return f"| `{each.name}` | {each.type}{of_database} | {labels} | {each.meaning} |"


def test_every_metric_is_documented_and_no_other(pytestconfig: pytest.Config) -> None:
    before, heading, section = DOCUMENT.read_text(encoding="utf-8").partition(HEADING)
    section, end, after = section.partition("\n## ")
    head = [line for line in section.splitlines() if not line.startswith("| `foldline_")]
    told = [line for line in section.splitlines() if line.startswith("| `foldline_")]
    rows = [_row(each) for each in definitions()]
    if pytestconfig.getoption("--update-golden"):
        text = before + heading + "\n".join(head).rstrip("\n") + "\n" + "\n".join(rows) + "\n"
        DOCUMENT.write_text(text + end + after, encoding="utf-8")
        return
    assert told == rows


def test_names_say_the_unit_and_counters_end_in_total() -> None:
    for each in definitions():
        assert (each.type == "counter") == each.name.endswith("_total"), each.name
        if each.type == "histogram":
            # What has no unit is a count, and says of what.
            units = ("_seconds", "_bytes", "_ratio", "_tokens", "_events", "_events_scanned")
            assert each.name.endswith(units), each.name
