"""Programs of Debian's that some tests need, run as processes of the test's own on free ports."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

IS_CI: Final = os.environ.get("CI") == "true"
#: Where Debian puts servers, which not every user's PATH names.
PLACES: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
PATIENCE_S: Final = 30.0
POLL_S: Final = 0.02


def program(name: str, *, package: str) -> str:
    """Return the path of a program; where it is missing the test is skipped, in CI it fails."""
    path = shutil.which(name, path=PLACES)
    if path is None:
        reason = f"{name} is not installed: apt-get install {package}"
        if IS_CI:
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on a port of the loopback address."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(holds: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
    """Wait for something that will soon be so."""
    until_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < until_s, "not in time"
        time.sleep(POLL_S)


@contextmanager
def running(
    command: Sequence[str | Path], *, port: int, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that listens on a port; it is killed at the end of the block."""
    log = folder / f"{Path(command[0]).name}-{uuid4().hex}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: process.poll() is not None or is_listening(port))
        assert process.poll() is None, log.read_text(errors="replace")
        yield process
    finally:
        process.kill()
        process.wait()
