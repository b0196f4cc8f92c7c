"""How busy the processes of a run are, from /proc."""

import os
from collections.abc import Mapping
from pathlib import Path

from app.storage.embedded_cluster import Layout

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(postmaster: int) -> Mapping[str, float]:
    """Return the CPU time so far of the ``services`` below this process, of ``postgres``, and of
    this process, the ``load``, of those that live now; and of the whole ``machine``."""
    services = [pid for pid in _family(os.getpid()) if "app.cli serve" in _command(pid)]
    return {
        "services": sum(map(_seconds, services)),
        "postgres": sum(map(_seconds, [postmaster, *_family(postmaster)])),
        "load": _seconds(os.getpid()),
        "machine": _machine_seconds(),
    }


def postmaster_of(data_dir: Path) -> int:
    """Return the first process of an embedded Postgres."""
    return int((Layout(data_dir).cluster / "postmaster.pid").read_text().split()[0])


def busy(
    before: Mapping[str, float], after: Mapping[str, float], wall_s: float
) -> dict[str, float]:
    """Return how many cores each took."""
    return {name: (after[name] - before[name]) / wall_s for name in before}


def saturated(cores: Mapping[str, float], services: int) -> str:
    """Name what there was no more of, and of the machine's cores who had most.

    A service computes on one core at a time; the machine has so many for all.
    """
    if cores["services"] >= 0.85 * services:
        return "service"
    if cores["machine"] < 0.9 * (os.cpu_count() or 1):
        return "nothing"
    shares = {name: busy for name, busy in cores.items() if name != "machine"}
    shares["others"] = cores["machine"] - sum(shares.values())
    return "machine: " + max(shares, key=lambda name: shares[name])


def _machine_seconds() -> float:
    user, nice, system, _, _, irq, softirq = map(
        int, _text("/proc/stat").splitlines()[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


def resident_mb(port: int) -> float:
    """Return the memory of the process below this one that listens on a port."""
    wanted = f":{port:04X}"
    inodes = {
        fields[9]
        for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
        if fields[1].endswith(wanted) and fields[3] == "0A"
    }
    for pid in _family(os.getpid()):
        links = [_link(path) for path in _open_files(pid)]
        if any(f"socket:[{inode}]" in links for inode in inodes):
            pages = int(_text(f"/proc/{pid}/statm").split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    raise LookupError(f"nobody listens on {port}")


def _open_files(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []


def _family(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = _text(f"{path}/stat")
        if fields:
            children.setdefault(int(fields.rpartition(")")[2].split()[1]), []).append(
                int(path.name)
            )
    found, level = [], [pid]
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        found += level
    return found


def _command(pid: int) -> str:
    return _text(f"/proc/{pid}/cmdline").replace("\0", " ")


def _seconds(pid: int) -> float:
    fields = _text(f"/proc/{pid}/stat")
    if not fields:
        return 0.0
    user, system = fields.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def _text(path: str) -> str:
    """Return what a file holds; nothing where its process ended meanwhile."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
