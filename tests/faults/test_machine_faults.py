"""The machine fails: the disk below the data directory is full; the clock is set back."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest

from tests.faults import set_back
from tests.faults.processes import ADMIN_KEY, Process, client_of
from tests.programs import PLACES, wait_until

pytestmark = pytest.mark.commits

#: A new cluster with its log takes 47 MB.
DISK_BYTES: Final = 120 * 1024 * 1024
DISK_FULL: Final = "53100"
DAY_S: Final = 86_400


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Give a folder on a disk of its own; where none can be mounted, the test is skipped."""
    mounted = folder / "disk"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "tmpfs", str(mounted)]
    environment = os.environ | {"PATH": PLACES}
    made = subprocess.run(mount, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        # Also in CI: a container may forbid it, and nothing that could be installed would help.
        pytest.skip(f"no disk can be mounted here: {made.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], env=environment, check=True)


def serving(
    stack: ExitStack, folder: Path, data_dir: Path, module: str = "app.cli"
) -> tuple[Process, httpx.Client]:
    """Start a service with a database of its own below the data directory."""
    settings = {
        "DATA_DIR": str(data_dir),
        "PORT": "0",
        "ADMIN_KEY": ADMIN_KEY,
        "LOG_FORMAT": "json",
        "JOB_LEASE_S": "1",
    }
    process = Process("serve", settings, folder, module=module)
    stack.callback(process.kill)
    client = stack.enter_context(closing(client_of(process)))
    wait_until(lambda: client.get("/readyz").is_success, patience_s=60)
    return process, client


def _new_session(client: httpx.Client, **body: Any) -> str:
    path = f"/v1/sessions/{uuid4().hex}"
    made = client.put(path, json={"app_name": "a", "user_id": "u", **body})
    assert made.status_code == 201, made.text
    return path


def _events(client: httpx.Client, path: str) -> list[Any]:
    answer = client.get(f"{path}/events", params={"limit": 1000})
    assert answer.is_success, answer.text
    data: list[Any] = answer.json()["data"]
    return data


def _fill(disk: Path) -> Path:
    """Use up the disk, to the last block."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as written:
        for size in (1024 * 1024, 4096):
            try:
                while True:
                    written.write(b"\0" * size)
            except OSError:
                continue
    return filler


def test_a_full_disk_is_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path))
        process, client = serving(stack, tmp_path, disk / "data")
        path = _new_session(client)
        acknowledged: dict[str, int] = {}

        def append(name: str) -> httpx.Response:
            # Not compressible, so that each takes room.
            text = os.urandom(100_000).hex()
            body = {"events": [{"id": name, "author": "user", "content": text}]}
            answer = client.post(f"{path}/events", json=body)
            if answer.is_success:
                acknowledged[name] = answer.json()["appended"][0]["seq"]
            return answer

        assert append("before").is_success
        filler = _fill(disk)

        refused = 0
        for number in range(200):
            answer = append(f"full{number}")
            if not answer.is_success:
                assert answer.status_code == 503, answer.text
                assert answer.json()["code"] == "unavailable"
                assert answer.headers["retry-after"] == "1"
                refused += 1
            if refused == 3:
                break
        assert refused == 3
        assert process.logged("database_unavailable")["sqlstate"] == DISK_FULL
        assert client.get("/livez").is_success

        filler.unlink()
        wait_until(lambda: append(f"after{time.monotonic_ns()}").is_success, patience_s=60)
        wait_until(lambda: client.get("/readyz").is_success)

        events = _events(client, path)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert {event["id"]: event["seq"] for event in events} == acknowledged
        assert process.terminate() == 0


def test_a_clock_set_back_disturbs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running service, with its worker, sees the clock go back by a day."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    monkeypatch.setenv(set_back.FILE, str(offset))
    policy = {
        "compaction": {
            "strategy": "interval",
            "compaction_interval": 2,
            "overlap_size": 0,
            "worth_check": False,
        }
    }
    with ExitStack() as stack:
        process, client = serving(stack, tmp_path, tmp_path / "data", set_back.__name__)
        path = _new_session(client, policy=policy)

        def append(name: str, key: str) -> httpx.Response:
            events: list[dict[str, Any]] = [
                {"id": f"{name}-u", "author": "user", "content": "Where is it? " * 20},
                {"id": f"{name}-a", "author": "a", "content": {"role": "model", "parts": [
                    {"text": "It is on its way. " * 20}]}},
            ]  # fmt: skip
            for event in events:
                event["invocation_id"] = name
            return client.post(
                f"{path}/events", json={"events": events}, headers={"Idempotency-Key": key}
            )

        assert append("i1", "k1").is_success
        offset.write_text(f"-{DAY_S}")
        assert append("i2", "k2").is_success
        # Remembered before, asked for a day earlier.
        again = append("i1", "k1")
        assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
        assert append("i3", "k3").is_success
        # What became due is done by the worker, whose leases and pauses go on.
        wait_until(
            lambda: any(event["status"] == "marker" for event in _events(client, path)),
            patience_s=60,
        )

        events = _events(client, path)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        dates = [event["timestamp"] for event in events if event["author"] == "user"]
        assert dates[0] > dates[-1], "the clock was not set back"
        compiled = client.post(f"{path}/compile", json={"agent": "a"}).json()
        assert compiled["compiled_seq"] == len(events)
        assert client.get("/readyz").is_success
        assert process.terminate() == 0
