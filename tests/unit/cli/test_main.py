"""The command line: what it prints where, and how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.__main__ import COMMANDS, main


def test_config_check_prints_every_setting_with_secrets_masked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FOLDLINE_ADMIN_KEY", "hunter2hunter2hunter2")

    assert main(["config", "check"]) == 0
    output = capsys.readouterr().out
    assert "FOLDLINE_PORT=8080" in output
    assert "FOLDLINE_ADMIN_KEY=**********" in output
    assert "hunter2" not in output


def test_config_check_names_the_bad_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FOLDLINE_PORT", "http")

    assert main(["config", "check"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("FOLDLINE_PORT: ")
    assert captured.out == ""


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_config_check_looks_into_the_file_of_model_rules(
    text: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "rules.json"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("FOLDLINE_MODEL_RULES", str(path))

    assert main(["config", "check"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("FOLDLINE_MODEL_RULES: ")
    assert captured.out == ""


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_its_module(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])

    assert caught.value.code == 0
    assert COMMANDS[command] in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["fold"], ["config"], ["config", "change"]])
def test_wrong_usage_is_told_apart(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)

    assert caught.value.code == 2
    assert "usage: foldline" in capsys.readouterr().err


def test_the_installed_command_and_the_module_are_the_same() -> None:
    installed = Path(sys.executable).with_name("foldline")
    outputs = [
        subprocess.run([*command, "--version"], capture_output=True, check=True).stdout
        for command in ([installed], [sys.executable, "-m", "app.cli"])
    ]

    assert outputs[0] == outputs[1]
