"""Kill what serves and what stores while clients append; race for one session. Real processes.

Whatever was answered as stored must be there afterwards, byte for byte, and the seqs dense.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4

import pytest

from app.storage.embedded_cluster import Layout

pytestmark = pytest.mark.commits

# Generous, because the machine may be busy; what is waited for takes a second or two.
PATIENCE_S: Final = 60.0
RETRY_S: Final = 0.05
WRITERS: Final = 6
#: Sessions that the writers share.
SESSIONS: Final = 2
#: Acknowledged batches before the kill, and after it.
BEFORE: Final = 40
AFTER: Final = 20


class Service:
    """`foldline serve` on a data directory of the test's; may be killed and started again."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve"],
            env=os.environ
            | {
                "FOLDLINE_DATA_DIR": str(self.data_dir),
                "FOLDLINE_PORT": "0",
                "FOLDLINE_AUTH": "off",
                "FOLDLINE_LOG_FORMAT": "json",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        port = _told_port(self._process.stdout)
        _eventually(lambda: _is_ready(port))
        self.port = port

    def kill(self) -> None:
        """End it as the kernel does when memory runs out."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()

    def kill_database(self) -> None:
        """Kill the first process of its Postgres."""
        lines = (Layout(self.data_dir).cluster / "postmaster.pid").read_text().splitlines()
        os.kill(int(lines[0]), signal.SIGKILL)

    def stop(self) -> None:
        """End it as an operator does."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE_S)

    def request(
        self, method: str, path: str, body: str | None = None, **headers: str
    ) -> tuple[int, str]:
        """Return status and text of an answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            sent = {"Content-Type": "application/json", **headers}
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def new_session(self) -> str:
        """Make a session and return its path."""
        path = f"/v1/sessions/{uuid4().hex}"
        body = json.dumps({"app_name": "app", "user_id": "user"})
        assert self.request("PUT", path, body)[0] == 201
        return path

    def events(self, path: str) -> list[str]:
        """Return the text of every event, in order."""
        texts: list[str] = []
        while True:
            page = f"{path}/events?limit=1000&after_seq={len(texts)}"
            status, text = self.request("GET", page)
            assert status == 200, text
            data = json.loads(text, parse_float=str, parse_int=str)["data"]
            texts += [self.request("GET", f"{path}/events/{event['seq']}")[1] for event in data]
            if len(data) < 1000:
                return texts


def _told_port(output: IO[str]) -> int:
    """Return the port that the service tells; read on so that it never waits for a reader."""
    for line in output:
        told = json.loads(line)
        if told["event"] == "serving_started":
            threading.Thread(target=_drain, args=(output,), daemon=True).start()
            return int(told["port"])
    raise AssertionError("the service ended before it listened")


def _drain(output: IO[str]) -> None:
    try:
        for _ in output:
            pass
    except ValueError:
        # Closed by a kill.
        return


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(RETRY_S)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One running service for all tests of this file: each has sessions of its own."""
    running = Service(tmp_path_factory.mktemp("faults") / "data")
    running.start()
    yield running
    running.stop()


@dataclass
class Written:
    """What the writers were told; the lock is for the sums."""

    #: By session and seq: id and text of each event that was acknowledged.
    acknowledged: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    batches: int = 0
    retries: int = 0
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def _event_text(event_id: str, number: int) -> str:
    """Return an event whose text no decoder and encoder would give back."""
    return (
        f'{{"id":"{event_id}","author":"user","timestamp":1e9,'
        f'"content":{{"role":"user","parts":[{{"text":"\\u00e9\\/ {number}"}}]}},'
        f'"custom_metadata":{{"n":{number}.50, "m": 1E5, "big":{10**29 + number}}}}}'
    )


def _write(
    service: Service, path: str, written: Written, goal: Callable[[], bool], name: str
) -> None:
    """Append batch after batch until the goal is reached; what was not answered is sent again."""
    for number in count():
        if goal() or written.failures:
            return
        events = {
            f"{name}-{number}-{part}": _event_text(f"{name}-{number}-{part}", number)
            for part in range(1 + number % 3)
        }
        _append_until_answered(service, path, written, events)


def _append_until_answered(
    service: Service, path: str, written: Written, events: dict[str, str]
) -> None:
    body = f'{{"events": [{", ".join(events.values())}]}}'
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            status, text = service.request("POST", f"{path}/events", body)
        except (OSError, HTTPException):
            status, text = 0, "no answer"
        if status == 201:
            break
        if status not in (0, 503):
            written.failures.append(f"{status} {text}")
            return
        with written.lock:
            written.retries += 1
        time.sleep(RETRY_S)
    else:
        written.failures.append("no answer in time")
        return
    with written.lock:
        written.batches += 1
        for entry in json.loads(text)["appended"]:
            place = (path, entry["seq"])
            if place in written.acknowledged:
                written.failures.append(f"seq {entry['seq']} given twice")
            written.acknowledged[place] = (entry["id"], events[entry["id"]])


def _write_around(service: Service, kill: Callable[[], None]) -> tuple[list[str], Written]:
    """Let several clients append, do what kills, and let them go on."""
    written = Written()
    paths = [service.new_session() for _ in range(SESSIONS)]
    goal = threading.Event()
    writers = [
        threading.Thread(
            target=_write,
            args=(service, paths[number % SESSIONS], written, goal.is_set, f"w{number}"),
        )
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    try:
        _eventually(lambda: written.batches >= BEFORE or bool(written.failures))
        kill()
        killed_at = written.batches
        _eventually(lambda: written.batches >= killed_at + AFTER or bool(written.failures))
    finally:
        goal.set()
        for writer in writers:
            writer.join(PATIENCE_S)
    assert written.failures == []
    return paths, written


def _check(service: Service, paths: list[str], written: Written) -> None:
    for path in paths:
        texts = service.events(path)
        told = [json.loads(text) for text in texts]
        assert [event["seq"] for event in told] == list(range(1, len(texts) + 1))
        ids = [event["id"] for event in told]
        assert len(set(ids)) == len(ids)
        acknowledged = {
            seq: said for (of_path, seq), said in written.acknowledged.items() if of_path == path
        }
        # Everybody went on until they were answered, so that nothing is stored that none knows of.
        assert sorted(acknowledged) == list(range(1, len(texts) + 1))
        for seq, (event_id, sent) in acknowledged.items():
            assert ids[seq - 1] == event_id
            # The server's own members come first.
            assert texts[seq - 1].endswith(sent[1:])
        status, session = service.request("GET", path)
        assert (status, json.loads(session)["head_seq"]) == (200, len(texts))


def test_killed_service_loses_nothing_that_it_acknowledged(service: Service) -> None:
    def kill() -> None:
        service.kill()
        service.start()

    paths, written = _write_around(service, kill)

    assert written.retries > 0
    _check(service, paths, written)


def test_killed_database_loses_nothing_and_the_service_recovers(service: Service) -> None:
    paths, written = _write_around(service, service.kill_database)

    _eventually(lambda: _is_ready(service.port))
    _check(service, paths, written)


def test_killed_database_and_service_together_lose_nothing(service: Service) -> None:
    def kill() -> None:
        service.kill_database()
        service.kill()
        service.start()

    paths, written = _write_around(service, kill)

    _check(service, paths, written)


# Races


def _at_once(requests: list[Callable[[], Any]]) -> list[Any]:
    """Run all of them at once and return what they gave, in order."""
    barrier = threading.Barrier(len(requests))
    answers: list[Any] = [None] * len(requests)

    def run(number: int) -> None:
        barrier.wait(PATIENCE_S)
        answers[number] = requests[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return answers


def test_fifty_writers_on_one_session_get_dense_seqs_and_no_duplicates(service: Service) -> None:
    path = service.new_session()
    written = Written()

    def append(number: int) -> None:
        for batch in range(2):
            names = [f"w{number}-{batch}-{part}" for part in range(2)]
            events = {name: _event_text(name, number) for name in names}
            _append_until_answered(service, path, written, events)

    _at_once([lambda number=number: append(number) for number in range(50)])  # type: ignore[misc]

    assert written.failures == []
    assert len(written.acknowledged) == 200
    _check(service, [path], written)
    # A batch stands together.
    seqs = {event_id: seq for (_, seq), (event_id, _) in written.acknowledged.items()}
    assert all(seqs[f"{name[:-1]}1"] == seqs[name] + 1 for name in seqs if name.endswith("-0"))


@pytest.mark.parametrize("condition", ["If-Match", "expected_seq"])
def test_of_many_writers_that_saw_one_head_exactly_one_wins(
    service: Service, condition: str
) -> None:
    path = service.new_session()

    def append(number: int, head: int) -> tuple[int, str]:
        body: dict[str, Any] = {"events": [{"author": "user", "content": str(number)}]}
        headers = {}
        if condition == "If-Match":
            headers["If-Match"] = f'"{head}"'
        else:
            body["expected_seq"] = head
        return service.request("POST", f"{path}/events", json.dumps(body), **headers)

    for head in range(3):
        answers = _at_once(
            [lambda n=number, at=head: append(n, at) for number in range(12)]  # type: ignore[misc]
        )
        assert sorted(status for status, _ in answers) == [201, *[412] * 11]
        told = {json.loads(text)["head_seq"] for status, text in answers if status == 412}
        assert told == {head + 1}
    assert len(service.events(path)) == 3


def test_one_event_sent_by_many_at_once_is_stored_once(service: Service) -> None:
    path = service.new_session()
    body = f'{{"events": [{_event_text("only", 1)}]}}'
    answers = _at_once([lambda: service.request("POST", f"{path}/events", body)] * 12)

    entries = [json.loads(text)["appended"][0] for status, text in answers if status == 201]
    assert len(entries) == 12
    assert {entry["seq"] for entry in entries} == {1}
    assert sorted(entry["duplicate"] for entry in entries) == [False, *[True] * 11]
    assert len(service.events(path)) == 1


def test_append_whose_answer_was_lost_can_be_sent_again(service: Service) -> None:
    path = service.new_session()
    body = f'{{"events": [{_event_text("e1", 1)}, {_event_text("e2", 2)}], "expected_seq": 0}}'
    deaf = HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_S)
    deaf.request("POST", f"{path}/events", body, {"Content-Type": "application/json"})
    _eventually(lambda: json.loads(service.request("GET", path)[1])["head_seq"] == 2)
    deaf.close()

    for _ in range(2):
        status, text = service.request("POST", f"{path}/events", body)
        assert status == 201
        answer = json.loads(text)
        assert [(entry["seq"], entry["duplicate"]) for entry in answer["appended"]] == [
            (1, True),
            (2, True),
        ]
        assert answer["head_seq"] == 2
    assert len(service.events(path)) == 2
