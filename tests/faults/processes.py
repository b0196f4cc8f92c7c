"""Services and workers as processes of their own, on one database; they are killed like any."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx

from app.settings import PREFIX

PATIENCE_S: Final = 120.0
POLL_S: Final = 0.02
ADMIN_KEY: Final = "test-admin-key-0123456789"


class Process:
    """A running command, and what it has logged."""

    def __init__(
        self,
        command: str,
        settings: dict[str, str],
        folder: Path,
        *,
        module: str = "app.cli",
        source: Path | None = None,
    ) -> None:
        """Start it, with the code of this repository or of another folder."""
        self._log = folder / f"{command}-{uuid4().hex}.log"
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(PREFIX)}
        with self._log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, command],
                env={**inherited, **{PREFIX + name: value for name, value in settings.items()}},
                cwd=source,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has logged, as far as it is whole lines of JSON."""
        found: list[dict[str, Any]] = []
        for line in self.log.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self._log.read_text()

    def logged(self, event: str) -> dict[str, Any]:
        """Wait for a line and return it."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            for line in self.lines:
                if line.get("event") == event:
                    return line
            assert self.process.poll() is None, self.log
            time.sleep(POLL_S)
        raise AssertionError(f"no {event} in {self.log}")

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """End it as an operator would; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


class Fleet:
    """Processes on one database."""

    def __init__(self, url: str, folder: Path, settings: dict[str, str]) -> None:
        self._folder = folder
        self._settings = {
            "DATABASE_URL": url,
            "ADMIN_KEY": ADMIN_KEY,
            "LOG_FORMAT": "json",
            "DB_POOL_SIZE": "4",
            "JOB_LEASE_S": "1",
            **settings,
        }
        #: Of the code that starts from now on; None: this repository.
        self.source: Path | None = None
        self.processes: list[Process] = []
        self.clients: list[httpx.Client] = []

    def worker(self) -> Process:
        """Start a worker."""
        return self._start("worker", {})

    def service(self, **settings: str) -> tuple[Process, httpx.Client]:
        """Start a service without a worker; return it with a client."""
        process = self._start("serve", {"PORT": "0", "WORKER": "off", **settings})
        client = client_of(process)
        self.clients.append(client)
        return process, client

    def _start(self, command: str, settings: dict[str, str]) -> Process:
        process = Process(command, {**self._settings, **settings}, self._folder, source=self.source)
        self.processes.append(process)
        return process


def client_of(service: Process) -> httpx.Client:
    """Return a client of a service, once it answers."""
    port = service.logged("serving_started")["port"]
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {ADMIN_KEY}"},
        timeout=PATIENCE_S,
    )
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.get("/readyz")
        except httpx.TransportError:
            assert service.process.poll() is None, service.log
            assert time.monotonic() < until_s, service.log
            time.sleep(POLL_S)
        else:
            return client


def limited_key(client: httpx.Client) -> str:
    """Make a key that rate limits hold for, as they never do for the key of the settings."""
    scopes = ["events:read", "events:write", "compile", "metrics"]
    made = client.post("/v1/admin/keys", json={"scopes": scopes, "rate_limit": "100000/s"})
    assert made.status_code == 201, made.text
    key: str = made.json()["key"]
    return key


@contextmanager
def fleet(url: str, folder: Path, **settings: str) -> Iterator[Fleet]:
    """Give a fleet; whatever still runs at the end of the block is killed."""
    made = Fleet(url, folder, settings)
    try:
        yield made
    finally:
        for client in made.clients:
            client.close()
        for process in made.processes:
            if process.process.poll() is None:
                process.kill()
