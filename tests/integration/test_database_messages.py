"""What the commands say of a database that they cannot use."""

import asyncio
import os
import subprocess
import sys
from typing import Final
from urllib.parse import SplitResult, urlsplit

import asyncpg
import pytest

from app.core.errors import StorageForbiddenError
from app.storage.migrate import migrate

pytestmark = pytest.mark.commits

COMMANDS: Final = {
    "migrate": ["migrate"],
    "keys list": ["keys", "list"],
    "keys create": ["keys", "create"],
    "verify": ["verify"],
}


def ran(url: str, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *COMMANDS[command]],
        env={**os.environ, "FOLDLINE_DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )


def _with_login(parts: SplitResult, login: str) -> str:
    return parts._replace(netloc=f"{login}@{parts.hostname}:{parts.port}").geturl()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_refused_login_is_told_without_the_password(command: str, server_url: str) -> None:
    parts = urlsplit(server_url)
    failed = ran(_with_login(parts, f"{parts.username}:hunter2"), command)

    assert failed.returncode == 1
    assert failed.stderr == (
        f"foldline {command.partition(' ')[0]}: the database is not available: password "
        f'authentication failed for user "{parts.username}" (InvalidPasswordError, 28P01)\n'
    )
    assert "hunter2" not in failed.stdout + failed.stderr


async def test_a_refused_login_is_not_tried_again(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: float) -> None:
        raise AssertionError("waited for a login that nobody mends")

    monkeypatch.setattr(asyncio, "sleep", never)
    parts = urlsplit(server_url)
    with pytest.raises(StorageForbiddenError):
        await migrate(_with_login(parts, f"{parts.username}:hunter2"))


@pytest.mark.parametrize("command", ["keys list", "verify"])
def test_a_database_that_does_not_exist_is_told(command: str, server_url: str) -> None:
    failed = ran(urlsplit(server_url)._replace(path="/nowhere").geturl(), command)

    assert failed.returncode == 1
    assert 'database "nowhere" does not exist (InvalidCatalogNameError, 3D000)' in failed.stderr
    assert failed.stdout == ""


@pytest.mark.parametrize("command", ["keys list", "keys create", "verify"])
def test_a_database_without_a_schema_is_told(command: str, empty_database_url: str) -> None:
    failed = ran(empty_database_url, command)

    assert failed.returncode == 1
    assert "(UndefinedTableError, 42P01)" in failed.stderr


@pytest.mark.parametrize("command", ["migrate", "keys create"])
def test_a_database_that_takes_no_writes_is_told_from_one_that_does_not_answer(
    command: str, own_database_url: str, server_url: str
) -> None:
    name = urlsplit(own_database_url).path[1:]

    async def close() -> None:
        connection = await asyncpg.connect(server_url)
        await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        await connection.close()

    asyncio.run(close())
    failed = ran(own_database_url, command)

    assert failed.returncode == 1
    assert "the database is not available: it takes no writes" in failed.stderr
    assert ran(own_database_url, "verify").returncode == 0


def test_a_database_that_nobody_serves_is_told(unused_tcp_port: int) -> None:
    failed = ran(f"postgresql://u:hunter2@127.0.0.1:{unused_tcp_port}/x", "keys list")

    assert failed.returncode == 1
    assert "(ConnectionRefusedError)" in failed.stderr
    assert "hunter2" not in failed.stderr
