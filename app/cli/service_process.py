"""A service of one's own while a block runs: another process, a free port, a data folder that goes
away with it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import IO, Final

import httpx

from app.settings import PREFIX

#: A cold start makes a database cluster and migrates; on a slow disk that takes a while.
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.02
#: The service's last words, for when it does not start.
KEPT_LINES: Final = 20


class ServiceFailedError(Exception):
    """The service did not start; the text has its last words."""


class _Output(Thread):
    """Reads what the service logs, so that it never waits for a reader."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.port: int | None = None
        #: The service is listening, or has ended.
        self.is_decided = Event()

    def run(self) -> None:
        """Read to the end."""
        for line in self._stream:
            self.lines.append(line.rstrip("\n"))
            if self.port is None:
                self.port = _port_of(line)
                if self.port is not None:
                    self.is_decided.set()
        self.is_decided.set()


def _port_of(line: str) -> int | None:
    """Return the port of the line that says where the service listens."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, dict) or told.get("event") != "serving_started":
        return None
    port = told.get("port")
    return port if isinstance(port, int) else None


@contextmanager
def running_service(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Give the base URL of a service on an embedded Postgres; both end with the block.

    Args:
        settings: further settings, without the prefix. The caller's own environment is not used,
            so that nothing here touches a database that someone needs.

    Raises:
        ServiceFailedError: the service does not start.
    """
    with tempfile.TemporaryDirectory(prefix="foldline-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve"],
            env=_environment(folder, settings or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        output = _Output(process.stdout)
        output.start()
        try:
            yield _url_when_ready(process, output)
        finally:
            _stop(process)
            output.join(STOP_TIMEOUT_S)
            process.stdout.close()


def _url_when_ready(process: subprocess.Popen[str], output: _Output) -> str:
    """Wait until the service answers, and return its base URL."""
    until = time.monotonic() + START_TIMEOUT_S
    output.is_decided.wait(START_TIMEOUT_S)
    url = f"http://127.0.0.1:{output.port}"
    # The port is told before anyone listens on it.
    while output.port is not None and process.poll() is None and time.monotonic() < until:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz", timeout=START_TIMEOUT_S).is_success:
                return url
        time.sleep(POLL_S)
    raise ServiceFailedError("\n".join(output.lines) or "the service said nothing")


def _environment(folder: str, settings: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    own = {
        "DATA_DIR": os.path.join(folder, "data"),  # noqa: PTH118  a value of the environment
        "HOST": "127.0.0.1",
        "PORT": "0",
        "AUTH": "off",
        "LOG_FORMAT": "json",
        **settings,
    }
    return {**inherited, **{PREFIX + name: value for name, value in own.items()}}


def _stop(process: subprocess.Popen[str]) -> None:
    """End the service as an operator would; by force only when it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
