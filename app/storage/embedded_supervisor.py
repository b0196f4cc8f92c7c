"""The process that holds a private Postgres and ends with the last that uses it.

    client ---shared lock---> clients.lock <---tries to take it whole--- supervisor ---> postgres
    client ---shared lock---^

It belongs to no client: each may be killed at any moment, and the kernel drops its lock. When the
supervisor can take the lock whole nobody is left, and it stops the server and ends. Killed itself,
the kernel tells the server to stop (Linux), and the clients start another supervisor. A server that
was killed is started again on the same port.

Run as `python -m app.storage.embedded_supervisor DATA_DIR [BIN_DIR]`; it writes one line of JSON
when the server is ready, or why it is not, and then stays in the background.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Final

from app.storage.embedded_cluster import (
    Account,
    Binaries,
    ClusterError,
    Layout,
    ServerState,
    make_cluster,
    make_socket_folder,
    processes_in,
    start_server,
)

#: How soon the last client's death is noticed.
POLL_S: Final = 0.25
#: A fast shutdown writes a checkpoint; after this the rest is left to crash recovery.
STOP_TIMEOUT_S: Final = 60.0
#: How long what a dead postmaster left behind may take to go before it is killed.
LEFTOVER_TIMEOUT_S: Final = 5.0
#: A server that dies this often in a row is not kept alive.
MAX_ATTEMPTS: Final = 5
#: A server that lived this long was healthy: the count begins anew.
HEALTHY_AFTER_S: Final = 30.0


class Supervisor:
    """One data directory's server, from start to stop."""

    def __init__(self, layout: Layout, *, bin_dir: Path | None) -> None:
        self._layout = layout
        self._account = Account.for_server(layout.cluster)
        found = Binaries.find(layout.cluster, folder=bin_dir)
        self._binaries = found.readable_by(self._account)
        self._socket_folder = make_socket_folder(layout.data_dir, self._account)
        self._server: subprocess.Popen[str] | None = None
        self._port = 0

    def start(self) -> int:
        """Start the server, making the cluster first where there is none; return its port."""
        if not self._layout.cluster.exists():
            make_cluster(self._layout, self._binaries, self._account)
        previous = ServerState.read(self._layout.state)
        self._port = previous.port if previous else 0
        failure = ""
        for attempt in range(MAX_ATTEMPTS):
            self._clear_leftovers()
            self._port = _free_port(self._port)
            self._publish(is_ready=False)
            self._server = start_server(
                self._binaries,
                self._layout,
                self._account,
                port=self._port,
                socket_folder=self._socket_folder,
            )
            if self._becomes_ready():
                self._publish(is_ready=True)
                return self._port
            failure = _tail(self._layout.log)
            time.sleep(0.1 * 2**attempt)
        raise ClusterError(f"Postgres does not start; {self._layout.log} ends with: {failure}")

    def is_alive(self) -> bool:
        """Whether the server runs."""
        return self._server is not None and self._server.poll() is None

    def stop(self) -> None:
        """Stop the server: fast, then at once, then by force. The socket folder goes with it."""
        self._publish(is_ready=False)
        for stop_signal in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if self._server is None or not self.is_alive():
                break
            self._server.send_signal(stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(STOP_TIMEOUT_S)
        with contextlib.suppress(OSError):
            for leftover in self._socket_folder.iterdir():
                leftover.unlink()
            self._socket_folder.rmdir()
        ServerState(supervisor_pid=0, port=self._port, socket_folder="", is_ready=False).write(
            self._layout.state
        )

    def _publish(self, *, is_ready: bool) -> None:
        ServerState(
            supervisor_pid=os.getpid(),
            port=self._port,
            socket_folder=str(self._socket_folder),
            is_ready=is_ready,
        ).write(self._layout.state)

    def _becomes_ready(self) -> bool:
        # No limit of time: after a crash the server replays its log, however long that takes.
        while self.is_alive():
            if self._status() == "ready":
                return True
            time.sleep(0.01)
        return False

    def _status(self) -> str:
        # The eighth line of the lock file is what pg_ctl waits for.
        with contextlib.suppress(FileNotFoundError, IndexError):
            lines = (self._layout.cluster / "postmaster.pid").read_text(encoding="utf-8")
            fields = lines.splitlines()
            if self._server is not None and fields[0].strip() == str(self._server.pid):
                return fields[7].strip()
        return ""

    def _clear_leftovers(self) -> None:
        """Wait for, then end, what a dead supervisor or postmaster left; drop stale lock files.

        Nobody else may run here: the supervisor's lock is ours. Backends of a killed postmaster end
        by themselves when idle, but one inside a long statement keeps the shared memory in use.
        """
        postmaster = self._leftover_postmaster()
        if postmaster is not None:
            # Where the kernel sends no death signal, the orphan waits for ours.
            with contextlib.suppress(ProcessLookupError):
                os.kill(postmaster, signal.SIGINT)
            _wait_until_gone(self._layout.cluster, STOP_TIMEOUT_S)
        _wait_until_gone(self._layout.cluster, LEFTOVER_TIMEOUT_S)
        for pid in processes_in(self._layout.cluster):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _wait_until_gone(self._layout.cluster, LEFTOVER_TIMEOUT_S)
        if sys.platform == "linux" and not processes_in(self._layout.cluster):
            # Postgres would take any living process with the number in it for a server: after a
            # restart of a container the number often belongs to something else.
            (self._layout.cluster / "postmaster.pid").unlink(missing_ok=True)
            for stale in self._socket_folder.iterdir():
                stale.unlink()

    def _leftover_postmaster(self) -> int | None:
        try:
            text = (self._layout.cluster / "postmaster.pid").read_text(encoding="utf-8")
            pid = int(text.splitlines()[0])
        except (FileNotFoundError, ValueError, IndexError):
            return None
        return pid if pid in processes_in(self._layout.cluster) else None


def run(layout: Layout, *, bin_dir: Path | None, report: int) -> int:
    """Hold the server until its last client is gone; return the exit code.

    Args:
        report: a descriptor that gets one line of JSON, and is then closed.
    """
    with layout.supervisor_lock.open("w") as own_lock, layout.clients_lock.open("w") as clients:
        fcntl.flock(own_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        wakeups = _wakeups()
        supervisor = None
        try:
            supervisor = Supervisor(layout, bin_dir=bin_dir)
            port = supervisor.start()
        except (ClusterError, OSError) as error:
            if supervisor is not None:
                supervisor.stop()
            _report(report, {"error": str(error)})
            return 1
        _report(report, {"port": port})
        try:
            _hold(supervisor, clients, wakeups)
        finally:
            supervisor.stop()
        return 0


def _hold(supervisor: Supervisor, clients: IO[str], wakeups: int) -> None:
    """Keep the server alive until nobody uses it, we are told to stop, or it keeps dying."""
    started_at, deaths = time.monotonic(), 0
    while not _is_told_to_stop(wakeups) and not _is_free(clients):
        if supervisor.is_alive():
            continue
        if time.monotonic() - started_at > HEALTHY_AFTER_S:
            deaths = 0
        deaths += 1
        if deaths > MAX_ATTEMPTS:
            return
        print("the server died; starting it again", file=sys.stderr, flush=True)  # noqa: T201
        supervisor.start()
        started_at = time.monotonic()


def main(arguments: list[str]) -> int:
    """Go into the background, so that we are nobody's child, and hold the server."""
    layout = Layout(Path(arguments[0]))
    bin_dir = Path(arguments[1]) if len(arguments) > 1 else None
    report = os.dup(1)
    # Standard output was the pipe of whoever started us; the server must not keep it open.
    os.dup2(2, 1)
    if os.fork() != 0:
        # The starter waits for this process only.
        os._exit(0)
    os.setsid()
    return run(layout, bin_dir=bin_dir, report=report)


def _wakeups() -> int:
    """Return a descriptor that becomes readable when a signal arrives that we act on."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        # A handler has to exist for the number to be written; what it does is done in the loop.
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _is_told_to_stop(wakeups: int) -> bool:
    readable, _, _ = select.select([wakeups], [], [], POLL_S)
    received = os.read(wakeups, 512) if readable else b""
    return signal.SIGTERM in received or signal.SIGINT in received


def _is_free(file: IO[str]) -> bool:
    """Take a lock whole if nobody holds it; it is then ours until we end."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _report(descriptor: int, message: dict[str, object]) -> None:
    # The one who asked may be dead by now; then nobody wants to know.
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "w") as pipe:
        pipe.write(json.dumps(message) + "\n")


def _free_port(preferred: int) -> int:
    """Return the preferred port, so that a URL stays true, or a free one when it is taken."""
    for port in (preferred, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise ClusterError("no free port on 127.0.0.1")


def _wait_until_gone(cluster: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while processes_in(cluster) and time.monotonic() < deadline:
        time.sleep(0.02)


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()[-1000:]
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
