"""The leader of a Patroni cluster is killed under load: what was acknowledged is on the next one.

Two servers of Postgres 15, etcd, and HAProxy, with the configuration that is deployed; two replicas
of the service, which nobody restarts.
"""

import os
import re
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest

from tests.faults.processes import Process, client_of, fleet
from tests.programs import free_ports, program, running, wait_until
from tests.servers import ACCOUNT, BIN, folder_of_account, give_to_account, needs_postgres

pytestmark = [pytest.mark.commits, pytest.mark.slow]

DEPLOYED: Final = Path(__file__).parents[2] / "deploy" / "patroni"
NODES: Final = 2
WRITERS: Final = 4
#: Acknowledged appends before the kill, and after it.
BEFORE: Final = 200
AFTER: Final = 200
#: The leader's time to live and twice the wait of a loop, and room for a busy machine.
OUTAGE_S: Final = 60.0


@dataclass
class Node:
    """One server and the Patroni that runs it."""

    name: str
    postgres_port: int
    rest_port: int
    process: subprocess.Popen[bytes]
    data: Path

    def is_leader(self) -> bool:
        """Whether it says that it leads."""
        return self._answers("/primary")

    def is_replica(self) -> bool:
        """Whether it follows, in step: it may be promoted."""
        return self._answers("/synchronous")

    def _answers(self, path: str) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.rest_port}{path}").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """Kill Patroni and its Postgres, as when the machine is gone."""
        lines = (self.data / "postmaster.pid").read_text().splitlines()
        # The whole group: what changes the account stands between us and Patroni.
        os.killpg(self.process.pid, signal.SIGKILL)
        os.kill(int(lines[0]), signal.SIGKILL)
        self.process.wait()


@contextmanager
def cluster(password: str, logs: Path) -> Iterator[tuple[list[Node], str]]:
    """Give the nodes, and the URL through HAProxy; everything ends with the block."""
    needs_postgres()
    patroni = program("patroni", package="patroni")
    with ExitStack() as stack:
        etcd_port, peer_port, primary_port, replica_port = free_ports(4)
        folder = stack.enter_context(folder_of_account())
        etcd = [
            program("etcd", package="etcd-server"), "--data-dir", str(folder / "etcd"),
            "--listen-client-urls", f"http://127.0.0.1:{etcd_port}",
            "--advertise-client-urls", f"http://127.0.0.1:{etcd_port}",
            "--listen-peer-urls", f"http://127.0.0.1:{peer_port}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer_port}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer_port}",
            # Nothing here has to survive the test.
            "--unsafe-no-fsync",
        ]  # fmt: skip
        stack.enter_context(running(etcd, port=etcd_port, folder=logs))
        nodes: list[Node] = []
        for number in range(NODES):
            own = stack.enter_context(folder_of_account())
            postgres_port, rest_port = free_ports(2)
            values = {
                "NAME": f"postgres{number + 1}",
                "ADDRESS": "127.0.0.1",
                "POSTGRES_PORT": str(postgres_port),
                "REST_PORT": str(rest_port),
                "ETCD": f"127.0.0.1:{etcd_port}",
                "DATA_DIR": str(own / "data"),
                "BIN_DIR": str(BIN),
                "SUPERUSER_PASSWORD": password,
                "REPLICATION_PASSWORD": password,
            }
            configuration = own / "patroni.yml"
            text = "\n".join(
                line
                for line in (DEPLOYED / "patroni.yml").read_text(encoding="utf-8").splitlines()
                if not line.startswith("#")
            )
            for name, value in values.items():
                assert re.search(rf"\b{name}\b", text), name
                text = re.sub(rf"\b{name}\b", value, text)
            configuration.write_text(text)
            give_to_account(configuration)
            log = (logs / f"patroni{number}.log").open("wb")
            stack.enter_context(log)
            as_account = ["runuser", "-u", ACCOUNT, "--"] if os.geteuid() == 0 else []
            process = subprocess.Popen(
                [*as_account, patroni, str(configuration)],
                cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            node = Node(values["NAME"], postgres_port, rest_port, process, own / "data")
            stack.callback(_end, node)
            nodes.append(node)
            if number == 0:
                wait_until(node.is_leader, patience_s=120)
        wait_until(nodes[1].is_replica, patience_s=120)

        text = (DEPLOYED / "haproxy.cfg").read_text(encoding="utf-8")
        text = text.replace("bind :5432", f"bind 127.0.0.1:{primary_port}")
        text = text.replace("bind :5433", f"bind 127.0.0.1:{replica_port}")
        for node in nodes:
            text = text.replace(
                f"{node.name}:5432 check port 8008",
                f"127.0.0.1:{node.postgres_port} check port {node.rest_port}",
            )
        configuration = folder / "haproxy.cfg"
        configuration.write_text(text)
        haproxy = [program("haproxy", package="haproxy"), "-db", "-f", str(configuration)]
        stack.enter_context(running(haproxy, port=primary_port, folder=logs))
        yield nodes, f"postgresql://foldline:{password}@127.0.0.1:{primary_port}/postgres"


def _end(node: Node) -> None:
    """End what still runs of a node."""
    with suppress(ProcessLookupError):
        os.killpg(node.process.pid, signal.SIGKILL)
    node.process.wait()
    pid_file = node.data / "postmaster.pid"
    if pid_file.exists():
        pg_ctl = [str(BIN / "pg_ctl"), "--pgdata", str(node.data), "--mode", "immediate", "stop"]
        prefix = ["runuser", "-u", ACCOUNT, "--"] if os.geteuid() == 0 else []
        subprocess.run([*prefix, *pg_ctl], cwd="/", capture_output=True, check=False)


class Writers:
    """Threads that append to sessions of their own until told to stop."""

    def __init__(self, clients: list[httpx.Client]) -> None:
        self._clients = clients
        self.acknowledged: dict[str, dict[str, int]] = {}
        self.count = 0
        self.refused = 0
        self.unexpected: list[str] = []
        #: The longest time that any writer waited for an answer that was a success.
        self.longest_s = 0.0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        client, path = self._clients[number % len(self._clients)], f"/v1/sessions/{uuid4().hex}"
        own = self.acknowledged[path] = {}
        self._until_done(client, "PUT", path, {"app_name": "a", "user_id": "u"})
        while not self._stop.is_set():
            name = f"e{len(own)}"
            event = {"id": name, "author": "user", "content": name}
            answer = self._until_done(client, "POST", f"{path}/events", {"events": [event]})
            if answer is None:
                return
            own[name] = answer["appended"][0]["seq"]
            with self._lock:
                self.count += 1

    def _until_done(self, client: httpx.Client, method: str, path: str, body: Any) -> Any:
        began_s = time.monotonic()
        while not self._stop.is_set() or time.monotonic() - began_s < OUTAGE_S:
            answer = client.request(method, path, json=body)
            if answer.is_success:
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                return answer.json()
            if answer.status_code != 503:
                self.unexpected.append(answer.text)
                return None
            with self._lock:
                self.refused += 1
            time.sleep(0.1)
        return None


def test_killing_the_leader_loses_nothing_and_needs_no_restart(tmp_path: Path) -> None:
    password = secrets.token_hex(16)
    with cluster(password, tmp_path) as (nodes, url), ExitStack() as stack:
        migrated = Process("migrate", {"DATABASE_URL": url, "LOG_FORMAT": "json"}, tmp_path)
        assert migrated.process.wait(60) == 0, migrated.log
        processes = stack.enter_context(fleet(url, tmp_path))
        services = [processes.service() for _ in range(2)]
        clients = [client_of(process) for process, _ in services]
        for client in clients:
            stack.callback(client.close)
        writers = Writers(clients)
        writers.start()
        stack.callback(writers.stop)
        wait_until(lambda: writers.count >= BEFORE, patience_s=60)

        leader = next(node for node in nodes if node.is_leader())
        other = next(node for node in nodes if node is not leader)
        leader.kill()
        wait_until(other.is_leader, patience_s=OUTAGE_S)
        target = writers.count + AFTER
        wait_until(lambda: writers.count >= target, patience_s=OUTAGE_S)
        writers.stop()

        assert writers.unexpected == []
        # It was noticed, and it was over soon.
        assert writers.refused
        assert writers.longest_s < OUTAGE_S
        (tmp_path / "figures").write_text(f"{writers.longest_s:.1f} s, {writers.count} appends")
        for path, acknowledged in writers.acknowledged.items():
            found: dict[str, int] = {}
            while True:
                page = (
                    clients[0]
                    .get(f"{path}/events", params={"limit": 1000, "after_seq": len(found)})
                    .json()
                )
                found |= {event["id"]: event["seq"] for event in page["data"]}
                if not page["has_more"]:
                    break
            assert sorted(found.values()) == list(range(1, len(found) + 1))
            assert found.items() >= acknowledged.items()
        for process, _ in services:
            assert process.terminate() == 0
