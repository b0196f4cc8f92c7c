"""The serving process: it binds first, drains on SIGTERM, and exits 0."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Final, Self

import pytest

from app.cli.serve import bound_socket
from app.settings import Settings, SettingsError
from app.storage.embedded_cluster import Layout, processes_in

PATIENCE_S: Final = 60.0

SERVICE: Final = """
import asyncio, signal, sys
from fastapi import FastAPI, Request
from app.cli.serve import bound_socket, serve
from app.settings import Settings

application = FastAPI()

@application.get("/slow")
async def slow() -> str:
    await asyncio.sleep(float(sys.argv[1]))
    return "done"

@application.get("/draining")
async def draining(request: Request) -> bool:
    return request.app.state.draining

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with bound_socket(Settings(port=0)) as listener:
    print(listener.getsockname()[1], flush=True)
    sys.exit(serve(application, listener, grace_s=float(sys.argv[2])))
"""


class Service:
    """A serving process that tells its port first."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    @classmethod
    def of_two_paths(cls, *, slow_s: float, grace_s: float) -> Self:
        """Start an application that has one slow and one fast path."""
        process = subprocess.Popen(
            [sys.executable, "-c", SERVICE, str(slow_s), str(grace_s)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        return cls(process, int(process.stdout.readline()))

    @classmethod
    def on(cls, data_dir: Path) -> Self:
        """Start the whole service on an embedded Postgres."""
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve"],
            env=os.environ | {"FOLDLINE_DATA_DIR": str(data_dir), "FOLDLINE_PORT": "0"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line["event"] == "serving_started"
        return cls(process, line["port"])

    def connect(self) -> HTTPConnection:
        """Return a connection, once the process listens."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            try:
                connection.connect()
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return connection

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@pytest.fixture
def services() -> Iterator[list[Service]]:
    """Services that are ended with the test."""
    started: list[Service] = []
    yield started
    for service in started:
        service.process.kill()
        service.process.communicate()


def _get(connection: HTTPConnection, path: str) -> HTTPResponse:
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    return response


def test_sigterm_finishes_what_is_in_flight_and_exits_0(services: list[Service]) -> None:
    service = Service.of_two_paths(slow_s=1.5, grace_s=10)
    services.append(service)
    connection = service.connect()
    statuses: list[int] = []
    request = threading.Thread(target=lambda: statuses.append(_get(connection, "/slow").status))
    request.start()
    time.sleep(0.3)

    service.process.send_signal(signal.SIGTERM)
    request.join()
    connection.close()

    assert statuses == [200]
    assert service.end() == 0


def test_while_draining_an_open_connection_is_answered_and_then_closed(
    services: list[Service],
) -> None:
    service = Service.of_two_paths(slow_s=0, grace_s=10)
    services.append(service)
    connection = service.connect()
    assert _get(connection, "/draining").getheader("connection") is None

    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    response = _get(connection, "/draining")
    connection.close()

    assert response.status == 200
    assert response.getheader("connection") == "close"
    assert service.end() == 0


def test_the_grace_ends_a_request_that_takes_too_long(services: list[Service]) -> None:
    service = Service.of_two_paths(slow_s=60, grace_s=1)
    services.append(service)
    connection = service.connect()
    connection.request("GET", "/slow")
    time.sleep(0.3)
    began = time.monotonic()

    service.process.send_signal(signal.SIGTERM)

    assert service.end() == 0
    assert time.monotonic() - began < 10
    connection.close()


@pytest.mark.commits
def test_two_services_share_a_data_directory_and_one_may_die(
    tmp_path: Path, services: list[Service]
) -> None:
    killed, other = Service.on(tmp_path / "data"), Service.on(tmp_path / "data")
    services += [killed, other]
    for service in services:
        connection = service.connect()
        assert _get(connection, "/readyz").status == 200
        connection.close()

    killed.process.kill()
    killed.process.wait()
    time.sleep(1.0)
    connection = other.connect()
    assert _get(connection, "/readyz").status == 200
    connection.close()

    other.process.send_signal(signal.SIGTERM)
    assert other.end() == 0
    assert not processes_in(Layout(tmp_path / "data").cluster)


def test_a_taken_port_is_told_by_the_name_of_its_variable() -> None:
    with bound_socket(Settings(port=0)) as taken:
        taken.listen()
        with pytest.raises(SettingsError, match="FOLDLINE_PORT"):
            bound_socket(Settings(port=taken.getsockname()[1]))


def test_a_host_that_does_not_exist_is_told_by_the_name_of_its_variable() -> None:
    with pytest.raises(SettingsError, match="FOLDLINE_HOST"):
        bound_socket(Settings(host="nowhere.invalid"))
