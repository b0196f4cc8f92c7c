"""What the README says is true: its commands run, its examples are answered as shown, nothing is
left out of its tables."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import httpx
import pytest
from pydantic_core import PydanticUndefined

from app.api.errors import CODES, STATUSES, UnsupportedMediaTypeError, status_of
from app.cli.__main__ import COMMANDS
from app.cli.service_process import running_service
from app.core import errors, policy
from app.core.compaction.summary import Rejection
from app.settings import PREFIX, SECRET_FIELDS, Settings
from tests.benchmarks.survival import KIT_HEADER, OWN_HEADER, OWN_SETS, kit_rows
from tests.project.readme_examples import README, commands, examples, mismatch, programs

FALLBACK_HEADER = ("`fallback_reason`", "why the model's answer was not taken")
TEXT = README.read_text(encoding="utf-8")
REPOSITORY = README.parent


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with running_service() as url, httpx.Client(base_url=url) as client:
        yield client


def test_every_example_is_answered_as_shown(client: httpx.Client) -> None:
    shown = list(examples())
    assert len(shown) >= 6
    for example in shown:
        body = {} if example.body is None else {"json": example.body}
        answer = client.request(example.method, example.path, **body)
        assert answer.is_success, answer.text
        assert mismatch(example.answer, answer.json()) is None, example.path


def test_the_program_prints_what_is_shown_below_it(
    client: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    ((program, shown),) = programs()
    assert "http://localhost:8080" in program
    program = program.replace("http://localhost:8080", str(client.base_url).rstrip("/"))

    exec(compile(program, str(README), "exec"), {})  # noqa: S102

    assert capsys.readouterr().out == shown


def test_a_scrape_after_the_walk_says_what_is_shown() -> None:
    with running_service() as url, httpx.Client(base_url=url) as client:
        for example in examples():
            body = {} if example.body is None else {"json": example.body}
            client.request(example.method, example.path, **body)
        lines = client.get("/metrics").text.splitlines()
    shown = [line for line in _section("Watching it").splitlines() if line.startswith("foldline_")]
    assert len(shown) >= 3
    assert set(shown) <= set(lines)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_exists_and_the_quick_ones_run(words: list[str]) -> None:
    while "=" in words[0]:
        name = words.pop(0).partition("=")[0]
        assert name.removeprefix(PREFIX).lower() in Settings.model_fields
    if words[0] == "make":
        makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE)
        return
    assert words[0] == ".venv/bin/foldline"
    assert words[1] in COMMANDS
    if words[1] == "serve":
        return
    command = [sys.executable, "-m", "app.cli", *words[1:]]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def _section(heading: str) -> str:
    return TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _table(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table under a heading, by the code in the first cell."""
    lines = _section(heading).splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in rows}


def _default(name: str) -> str:
    """Return a setting's default as the table shows it; what is not plain is told in words."""
    value = Settings.model_fields[name].default
    if value is None or value is PydanticUndefined:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def test_every_setting_is_documented_with_its_meaning(pytestconfig: pytest.Config) -> None:
    told = {name: cells[0] for name, cells in _table("Settings").items()}
    rows = []
    for name, field in Settings.model_fields.items():
        default = _default(name)
        if default == "none":
            default = told.get(PREFIX + name.upper(), default)
        rows.append(f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    shown = [line for line in _section("Settings").splitlines() if line.startswith("| `")]
    if pytestconfig.getoption("--update-golden"):
        README.write_text(TEXT.replace("\n".join(shown), "\n".join(rows)), encoding="utf-8")
        return
    assert shown == rows
    for name in SECRET_FIELDS:
        assert f"`{PREFIX}{name.upper()}_FILE`" in TEXT


def test_every_key_of_a_policy_is_documented_with_who_uses_it() -> None:
    strategies = set(policy.STRATEGY_KEYS)
    who_uses = {key: strategies - {"none"} for key in policy.SHARED_KEYS}
    for strategy, keys in policy.STRATEGY_KEYS.items():
        for key in keys:
            who_uses.setdefault(key, set()).add(strategy)
    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| ?([^|]*)\| [^|]+ \|$", _section("Folded by policy"), re.MULTILINE
    )
    told = {key: set(re.findall(r"`(\w+)`", who)) for key, who in rows}
    wanted = who_uses | {"strategy": set()}
    assert told == {
        # "all but `none`"
        key: {"none"} if who == strategies - {"none"} else who
        for key, who in wanted.items()
    }
    summarizer = TEXT[TEXT.index("`summarizer` has ") : TEXT.index("`pins` has")]
    assert set(re.findall(r"`(\w+)`", summarizer)) == {"summarizer", *policy.SUMMARIZER_KEYS}


def _kinds(kind: type[errors.FoldlineError]) -> Iterator[type[errors.FoldlineError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


def test_every_error_code_is_documented_with_its_status() -> None:
    documented = {code: set(cells[0].split(", ")) for code, cells in _table("Errors").items()}
    statuses: dict[str, set[str]] = {code: {str(status)} for status, code in CODES.items()}
    statuses["invalid_request"] = {"400", "422"}
    for kind in _kinds(errors.FoldlineError):
        base = next(base for base in kind.__mro__ if base in STATUSES)
        is_answered = base is not errors.FoldlineError or kind is errors.FoldlineError
        if kind is not UnsupportedMediaTypeError and (is_answered or kind.code != "internal"):
            status = str(STATUSES[base]) if is_answered else "none"
            statuses.setdefault(kind.code, set()).add(status)
    assert documented == statuses


def test_every_reason_why_a_model_was_not_taken_is_documented() -> None:
    told = set(re.findall(r"`(\w+)`", " ".join(row[0] for row in _cells(FALLBACK_HEADER))))

    codes = {kind.code for kind in _kinds(errors.ProviderError)}
    assert told == {*get_args(Rejection), *codes, "not_configured", "input_limit"}


def _cells(header: tuple[str, ...]) -> list[list[str]]:
    """Return the rows of the table with this header."""
    (table,) = re.findall(
        rf"^\| {re.escape(' | '.join(header))} \|\n\|[-:| ]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE
    )
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]


def test_the_tables_of_what_survives_are_those_of_the_command() -> None:
    kit, own = _cells(KIT_HEADER), _cells(OWN_HEADER)

    assert [row[:2] for row in kit] == [
        [f"{len(row.sessions)} {row.name}", "ours" if row.budget is None else f"{row.budget:.0%}"]
        for row in kit_rows()
    ]
    assert [row[0] for row in own] == [f"{len(told)} {name}" for name, told in OWN_SETS.items()]
    for row in (*kit, *own):
        assert all(re.fullmatch(r"\d+%", cell) for cell in row[2:])
        assert row[2:4] == ["100%", "100%"], "rules and constraints"
        if row[1] != "10%":
            assert row[4:7] == ["100%"] * 3


def test_an_unsupported_media_type_has_the_documented_status() -> None:
    assert (
        str(status_of(UnsupportedMediaTypeError())) == _table("Errors")["unsupported_media_type"][0]
    )


@pytest.mark.parametrize(
    "name", ["make demo", "make test", "make serve", "make bench", "make check"]
)
def test_make_targets_that_the_text_names_exist(name: str) -> None:
    assert f"`{name}`" in TEXT or f"{name} " in TEXT
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    target = name.partition(" ")[2]
    planned = subprocess.run(
        ["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert planned.returncode == 0, planned.stderr


def test_the_map_names_what_is_there() -> None:
    for name in re.findall(r"`((?:app|migrations|tests)[\w./]*)`", _section("Map of the code")):
        assert Path(REPOSITORY / name).exists(), name
