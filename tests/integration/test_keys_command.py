"""The commands for keys and for checks hold their arguments to what HTTP takes."""

import pytest

from app.cli.__main__ import main

pytestmark = pytest.mark.commits


@pytest.fixture(autouse=True)
def on_database(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    """Let the commands use the database of the tests."""
    monkeypatch.setenv("FOLDLINE_DATABASE_URL", database_url)
    # Logging is the process's, and this one goes on.
    for command in ("keys", "verify"):
        monkeypatch.setattr(f"app.cli.{command}.keep_quiet", lambda _: None)


def test_a_key_is_made_listed_rotated_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "create", "--tenant", "acme-cli", "--name", "one", "--ttl-s", "60"]) == 0
    assert capsys.readouterr().out.startswith("fl_")

    assert main(["keys", "list", "--tenant", "acme-cli"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    key_id, state = line.split()[:2]
    assert state == "valid"

    assert main(["keys", "rotate", key_id, "--overlap-s", "0"]) == 0
    assert main(["keys", "revoke", key_id]) == 0
    capsys.readouterr()
    assert main(["keys", "list", "--tenant", "acme-cli"]) == 0
    assert [each.split()[1] for each in capsys.readouterr().out.splitlines()] == ["ended", "valid"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create", "--tenant", "bad tenant!"], "--tenant: "),
        (["create", "--tenant", ""], "--tenant: "),
        (["create", "--tenant", "a/b"], "--tenant: "),
        (["create", "--tenant", "t" * 300], "--tenant: "),
        (["create", "--ttl-s", "-5"], "--ttl-s: "),
        (["create", "--ttl-s", "0"], "--ttl-s: "),
        (["create", "--ttl-s", "99999999999999"], "--ttl-s: "),
        (["create", "--name", "n" * 5_000], "--name: "),
        (["create", "--scopes", "everything"], "--scopes: "),
        (["create", "--scopes", ""], "--scopes: "),
        (["create", "--scopes", "compile,compile"], "keys: a scope is named twice"),
        (["create", "--rate-limit", "fast"], "--rate-limit: "),
        (["rotate", "00000000-0000-0000-0000-000000000000", "--overlap-s", "-5"], "--overlap-s: "),
        (["list", "--tenant", "nobody"], "there is no tenant nobody"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", *arguments]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.startswith("foldline keys: ")) == ("", True)
    assert told in captured.err


def test_a_misspelt_tenant_is_not_one_in_which_nothing_is_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["verify", "--tenant", "nobody"]) == 1
    assert "there is no tenant nobody" in capsys.readouterr().err
