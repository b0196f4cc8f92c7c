"""Scrapes on a port of their own, of both kinds of process."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import httpx
import psutil
import pytest

from app.cli.serve import bound_metrics_socket
from app.observability.listener import MAX_CONNECTIONS, TIMEOUT_S, listening
from app.observability.metrics import Metrics
from app.settings import Settings, SettingsError

PATIENCE_S = 60.0
#: Threads that the pool beside the event loop may start meanwhile.
OTHERS: Final = 5
#: SO_LINGER on, for no time: closing sends a reset instead of an end.
RESET: Final = struct.pack("ii", 1, 0)
#: What a worker says at its end.
ENDING: Final = {"worker_started", "draining_started", "worker_stopped"}


@contextmanager
def _process(command: str, url: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Give a process of ours and the port of its metrics."""
    settings = {
        "FOLDLINE_DATABASE_URL": url,
        "FOLDLINE_PORT": "0",
        "FOLDLINE_METRICS_PORT": "0",
        "FOLDLINE_LOG_FORMAT": "json",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", command],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = map(json.loads, process.stdout)
        yield process, next(line["port"] for line in lines if line["event"] == "metrics_started")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_port_of_its_own_answers_scrapes_without_a_key_and_nothing_else(
    database_url: str, command: str
) -> None:
    with (
        _process(command, database_url) as (process, port),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        answer = client.get("/metrics")
        assert answer.status_code == 200
        assert "foldline_build_info{" in answer.text
        assert client.get("/v1/info").status_code == 404
        assert client.post("/metrics").status_code == 405
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


def test_a_taken_port_is_told_by_the_name_of_its_variable() -> None:
    with bound_metrics_socket(Settings(metrics_port=0)) as taken:
        assert taken is not None
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(SettingsError, match="FOLDLINE_METRICS_PORT"),
            bound_metrics_socket(Settings(metrics_port=port)),
        ):
            raise AssertionError


def _threads(process: subprocess.Popen[str]) -> int:
    return psutil.Process(process.pid).num_threads()


def _bound() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def test_scrapers_that_send_nothing_take_no_threads_and_nobody_waits_for_them(
    database_url: str,
) -> None:
    with _process("worker", database_url) as (process, port), ExitStack() as stack:
        httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S)
        before = _threads(process)
        stalled = [stack.enter_context(_connected(port)) for _ in range(3 * MAX_CONNECTIONS)]
        for connection in stalled:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S)
        assert answer.status_code == 200
        assert _threads(process) <= before + OTHERS
        # The newest ones have their time, too.
        began_s = time.monotonic()
        stalled[-1].settimeout(2 * TIMEOUT_S)
        assert stalled[-1].recv(1) == b""
        assert time.monotonic() - began_s < 1.5 * TIMEOUT_S


@pytest.mark.parametrize(
    "sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\r\n\r\n"]
)
def test_a_scraper_that_resets_its_connection_is_not_worth_a_line(
    database_url: str, sent: bytes
) -> None:
    with _process("worker", database_url) as (process, port):
        for _ in range(3):
            connection = _connected(port)
            connection.sendall(sent)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()
        httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert {json.loads(line)["event"] for line in output.splitlines()} <= ENDING


def test_a_scrape_that_fails_is_answered_and_told_in_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Broken(Metrics):
        def scrape(self, accept: str = "") -> tuple[bytes, str]:
            raise LookupError(accept)

    with _bound() as listener, listening(Broken(), listener):
        port = listener.getsockname()[1]
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S)
    assert answer.status_code == 500
    assert "scrape_failed" in capfd.readouterr().out
