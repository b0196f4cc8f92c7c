"""Postgres servers that a test starts, stops and copies itself: the oldest supported version."""

import os
import pwd
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

import pytest

from tests.programs import IS_CI, free_ports

VERSION: Final = 15
BIN: Final = Path(f"/usr/lib/postgresql/{VERSION}/bin")
ROLE: Final = "foldline"
ACCOUNT: Final = "postgres"


class Server:
    """One server and its data directory."""

    def __init__(self, folder: Path, password: str) -> None:
        self.folder = folder
        self._password = password
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        """A superuser's way in."""
        return f"postgresql://{ROLE}:{self._password}@127.0.0.1:{self.port}/postgres"

    def initialise(self) -> None:
        """Make an empty cluster."""
        password = self.folder / "password"
        password.write_text(self._password)
        give_to_account(password)
        as_account(
            [BIN / "initdb", "--pgdata", self.folder / "data", "--username", ROLE, "--pwfile",
             password, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8",
             "--no-sync"]
        )  # fmt: skip
        access = self.folder / "data" / "pg_hba.conf"
        with access.open("a", encoding="utf-8") as written:
            written.write("host replication all 127.0.0.1/32 scram-sha-256\n")

    def copy(self, folder: Path, password: str) -> "Server":
        """Return a standby of this one, not yet started."""
        standby = Server(folder, password)
        as_account(
            [BIN / "pg_basebackup", "--dbname", self.url,
             "--pgdata", folder / "data", "--write-recovery-conf", "--checkpoint", "fast",
             "--no-sync"]
        )  # fmt: skip
        return standby

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        as_account(
            [BIN / "pg_ctl", "--pgdata", self.folder / "data", "--wait", "--silent", "--log",
             self.folder / "log", "--options", options, "start"]
        )  # fmt: skip

    def stop(self, mode: str = "immediate") -> None:
        """Stop it: `immediate` is a crash, `fast` a clean end."""
        as_account(
            [BIN / "pg_ctl", "--pgdata", self.folder / "data", "--mode", mode, "--silent", "stop"]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop()


def as_account(command: Sequence[str | Path]) -> None:
    """Run a command as an account that Postgres accepts, which root is not."""
    prefix = ["runuser", "-u", ACCOUNT, "--"] if os.geteuid() == 0 else []
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    ran = subprocess.run(
        [*prefix, *command], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout


def give_to_account(path: Path) -> None:
    """Let the account read a file or own a folder."""
    if os.geteuid() == 0:
        account = pwd.getpwnam(ACCOUNT)
        os.chown(path, account.pw_uid, account.pw_gid)


@contextmanager
def folder_of_account() -> Iterator[Path]:
    """Give a folder that the account owns and can reach; pytest closes its own to others."""
    with tempfile.TemporaryDirectory(prefix="foldline-test-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        give_to_account(folder)
        yield folder


def needs_postgres() -> None:
    """Skip where Debian's Postgres is missing; in CI, fail."""
    if not (BIN / "postgres").exists():
        reason = f"postgresql-{VERSION} is not installed"
        if IS_CI:
            pytest.fail(reason)
        pytest.skip(reason)


@contextmanager
def primary_and_standby() -> Iterator[tuple[Server, Server]]:
    """Give a running server and another one that follows it."""
    needs_postgres()
    password = secrets.token_hex(16)
    with ExitStack() as stack:
        first, second = [stack.enter_context(folder_of_account()) for _ in range(2)]
        primary = stack.enter_context(Server(first, password))
        primary.initialise()
        primary.start()
        standby = stack.enter_context(primary.copy(second, password))
        standby.start()
        yield primary, standby
