"""A private Postgres for the process, shared with every other process on the same data directory.

    with EmbeddedPostgres(data_dir) as url: ...

The server is held by a small process of its own (`embedded_supervisor.py`) that ends when nobody
uses it any more. So a second `foldline serve` on one data directory shares the server, either may
be killed without harm to the other, and a server outlives its users by a moment at most.

Guarantees: two servers never run on one data directory; a SIGKILL of any process leaves nothing
running and loses nothing that was committed; a dead server or supervisor comes back, on the same
port, as long as a client lives.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Final
from urllib.parse import quote

import app
from app.core.errors import StorageUnavailableError
from app.storage.embedded_cluster import (
    APPLICATION_ROLE,
    DATABASE,
    SUPERUSER,
    Layout,
    ServerState,
)

#: How soon a client notices that the supervisor was killed.
WATCH_S: Final = 1.0
POLL_S: Final = 0.01
MAX_LOG_BYTES: Final = 1024 * 1024


class EmbeddedPostgresError(StorageUnavailableError):
    """The private Postgres does not start."""


class EmbeddedPostgres:
    """This process's hold on the data directory's server; start and stop may be called again."""

    def __init__(
        self, data_dir: Path, *, bin_dir: Path | None = None, start_timeout_s: float = 120.0
    ) -> None:
        """Take note of where; nothing happens before `start`.

        Args:
            data_dir: made when missing; everything of the server's is below it.
            bin_dir: folder with `postgres`, instead of the wheel's or the system's.
            start_timeout_s: for the first start, a recovery after a crash, or another's shutdown.
        """
        # The supervisor works in other folders.
        self._layout = Layout(data_dir.absolute())
        self._bin_dir = bin_dir
        self._start_timeout_s = start_timeout_s
        self._hold: IO[str] | None = None
        self._watcher: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> str:
        """Join the server, starting it where none runs; return a URL on the loopback address.

        Raises:
            EmbeddedPostgresError: it does not start, with the reason.
        """
        if self._hold is not None:
            return self.url
        deadline = time.monotonic() + self._start_timeout_s
        self._stopping.clear()
        try:
            self._layout.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            hold = self._layout.clients_lock.open("a")
        except OSError as error:
            raise EmbeddedPostgresError(f"cannot use the data directory: {error}") from error
        try:
            # A supervisor that is stopping its server holds the lock whole until it has ended.
            _lock(hold, fcntl.LOCK_SH, deadline)
            self._ensure_running(deadline)
        except OSError as error:
            hold.close()
            raise EmbeddedPostgresError(f"cannot use the data directory: {error}") from error
        except BaseException:
            hold.close()
            raise
        self._hold = hold
        self._watcher = threading.Thread(target=self._watch, name="embedded-postgres", daemon=True)
        self._watcher.start()
        return self.url

    def stop(self) -> None:
        """Leave the server; the last one to leave returns when the server has stopped."""
        if self._hold is None:
            return
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
        with self._hold as hold:
            self._hold = None
            # Taken whole only when nobody else is left; newcomers wait until we close it.
            if _try_lock(hold, fcntl.LOCK_EX):
                self._stop_supervisor()

    @property
    def url(self) -> str:
        """The service's database over TCP on the loopback address."""
        return f"postgresql://{self._credentials()}@127.0.0.1:{self._state().port}/{DATABASE}"

    @property
    def superuser_url(self) -> str:
        """A superuser's way in, for people and for tests; the service never takes it."""
        password = self._layout.superuser_password.read_text(encoding="utf-8")
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self._state().port}/{SUPERUSER}"

    @property
    def socket_url(self) -> str:
        """The same over the Unix socket: 0.06 ms a round trip instead of 0.10."""
        state = self._state()
        folder = quote(state.socket_folder, safe="")
        return f"postgresql://{self._credentials()}@/{DATABASE}?host={folder}&port={state.port}"

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _credentials(self) -> str:
        return f"{APPLICATION_ROLE}:{self._layout.password.read_text(encoding='utf-8')}"

    def _state(self) -> ServerState:
        state = ServerState.read(self._layout.state)
        if state is None:
            raise EmbeddedPostgresError("the private Postgres has not been started")
        return state

    def _watch(self) -> None:
        pause_s = WATCH_S
        while not self._stopping.wait(pause_s):
            try:
                self._ensure_running(time.monotonic() + self._start_timeout_s)
                pause_s = WATCH_S
            except (EmbeddedPostgresError, OSError):
                # The reason is in the supervisor's log, requests are answered 503, and we go on.
                pause_s = min(pause_s * 2, 30.0)

    def _ensure_running(self, deadline: float) -> None:
        """Return when a supervisor lives and its server is ready.

        One at a time: under the start lock nobody else looks or starts, so that a look at the
        supervisor's lock never disturbs a supervisor that is about to take it.
        """
        with self._layout.start_lock.open("a") as start_lock:
            _lock(start_lock, fcntl.LOCK_EX, deadline)
            while not self._stopping.is_set():
                if not self._supervisor_lives():
                    self._start_supervisor(deadline)
                state = ServerState.read(self._layout.state)
                if state is not None and state.is_ready:
                    return
                _pause(deadline)

    def _supervisor_lives(self) -> bool:
        with self._layout.supervisor_lock.open("a") as lock:
            return not _try_lock(lock, fcntl.LOCK_SH)

    def _start_supervisor(self, deadline: float) -> None:
        if self._layout.log.exists() and self._layout.log.stat().st_size > MAX_LOG_BYTES:
            self._layout.log.unlink()
        # -P: whatever lies in the working directory is not imported.
        command = [sys.executable, "-P", "-m", "app.storage.embedded_supervisor"]
        command.append(str(self._layout.data_dir))
        if self._bin_dir is not None:
            command.append(str(self._bin_dir))
        log = os.open(self._layout.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # It leaves a copy of itself in the background and ends at once.
            process = subprocess.Popen(  # noqa: S603  our own module
                command,
                cwd="/",
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        finally:
            os.close(log)
        with process:
            message = _read_line(process.stdout, deadline)
        if "error" in message:
            raise EmbeddedPostgresError(str(message["error"]))
        if "port" not in message:
            raise EmbeddedPostgresError(f"the supervisor ended early; see {self._layout.log}")

    def _stop_supervisor(self) -> None:
        state = ServerState.read(self._layout.state)
        while self._supervisor_lives():
            if state is not None and state.supervisor_pid:
                try:
                    os.kill(state.supervisor_pid, signal.SIGTERM)
                except ProcessLookupError:
                    return
            time.sleep(POLL_S)


def _environment() -> dict[str, str]:
    """Return our environment without our settings: the supervisor needs none of our secrets."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("FOLDLINE_")
    }
    # The very package that runs here, however it was found.
    environment["PYTHONPATH"] = str(Path(app.__file__).parent.parent)
    return environment


def _read_line(pipe: IO[str] | None, deadline: float) -> dict[str, object]:
    if pipe is None:
        return {}
    readable, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
    if not readable:
        raise EmbeddedPostgresError("the private Postgres did not start in time")
    line = pipe.readline()
    message: dict[str, object] = json.loads(line) if line else {}
    return message


def _try_lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock(file: IO[str], kind: int, deadline: float) -> None:
    # Not a blocking wait: that would know no deadline.
    while not _try_lock(file, kind):
        _pause(deadline)


def _pause(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise EmbeddedPostgresError("the private Postgres did not become ready in time")
    time.sleep(POLL_S)
