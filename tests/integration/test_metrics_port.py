"""Scrapes on a port of their own, of both kinds of process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from app.cli.serve import bound_metrics_socket
from app.settings import Settings, SettingsError

PATIENCE_S = 60.0


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
        assert client.post("/metrics").status_code == 501
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
