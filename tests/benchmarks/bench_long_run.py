"""A conversation of ten thousand turns, folded in the background as it goes.

    python -m tests.benchmarks.bench_long_run                        the table
    python -m tests.benchmarks.bench_long_run --turns 1000           fewer turns
    python -m tests.benchmarks.bench_long_run --json FILE            and everything as JSON

One session, strategy `auto` with the extractive summarizer, over HTTP and a process of its own with
an embedded worker and an embedded Postgres. A turn is a compile that brings the user's message, and
the append of the reply to what was compiled. A compile waits for folds that are due, so no request
may ever reach the trigger. Beside it a session without a history is compiled now and then: what is
slow for both is the machine. What decides whether a compile got slower is the processor time of the
service's process, since others may be at work on the machine. At the end every summary is opened
down to its originals.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import httpx

from app.cli.service_process import running_service
from app.core.compaction.policy import DEFAULT_TRIGGER_RATIO
from tests.benchmarks.asking import checked
from tests.benchmarks.measuring import Stopwatch, percentile, table
from tests.benchmarks.running import parser_of, tell_machine, write_report

TURNS: Final = 10_000
#: Small, so that the run folds hundreds of times.
WINDOW_TOKENS: Final = 16_000
FANOUT: Final = 8
WAIT_MS: Final = 60_000
AGENT: Final = "bot"
#: Rows of the table.
CHECKPOINTS: Final = 20
#: Turns of the session without a history: about as much as is live in the other. It is compiled
#: after every so many turns of that one.
SHORT_TURNS: Final = 40
SHORT_EVERY: Final = 10
#: What is held to, from the second checkpoint to the last.
MOST_COMPILE_GROWTH: Final = 1.5
MOST_MEMORY_GROWTH: Final = 1.25
#: Live summaries of each level: as many as make one of the next, and those on their way to it.
MOST_OF_A_LEVEL: Final = 2 * FANOUT
#: A summary of a stretch is one range, whatever was folded in it before; a question that was open
#: then parts it.
MOST_RANGES: Final = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where the session stands after so many turns."""

    turns: int
    #: The largest request since the checkpoint before.
    most_tokens: int
    live_events: int
    summaries: int
    levels: int
    #: Most ranges that one of them covers.
    ranges: int
    #: Milliseconds, since the checkpoint before, of compiles that waited for no fold.
    compile_p50_ms: float
    compile_p99_ms: float
    #: Processor time of the service's process.
    compile_cpu_ms: float
    #: Of the session without a history, over the same turns.
    short_p50_ms: float
    short_cpu_ms: float
    append_p50_ms: float
    folds: int
    memory_mb: float


class CpuWatch(Stopwatch):
    """Collects durations, and the processor time of a process meanwhile, in milliseconds."""

    def __init__(self, process: Path) -> None:
        super().__init__()
        self.cpu_ms: list[float] = []
        self._process = process
        self._before_ms = 0.0

    def __enter__(self) -> Self:
        self._before_ms = _cpu_ms(self._process)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.cpu_ms.append(_cpu_ms(self._process) - self._before_ms)


class LongRun:
    """The session and what is measured of it."""

    def __init__(self, client: httpx.Client, process: Path) -> None:
        self._client = client
        self._process = process
        self._path = "/v1/sessions/long"
        self._begin()

    def _begin(self) -> None:
        self._compiles = CpuWatch(self._process)
        self._short = CpuWatch(self._process)
        self._appends = Stopwatch()
        self._most_tokens = 0

    def start(self, window_tokens: int) -> None:
        """Make the session."""
        compaction = {"strategy": "auto", "context_window": window_tokens, "fanout": FANOUT}
        body = {"app_name": "bench", "user_id": "user", "policy": {"compaction": compaction}}
        checked(self._client.put(self._path, json=body))
        checked(self._client.put(_SHORT, json={"app_name": "bench", "user_id": "user"}))
        events = [
            event for number in range(SHORT_TURNS) for event in (_asked(number), _replied(number))
        ]
        checked(self._client.post(f"{_SHORT}/events", json={"events": events}))

    def turn(self, number: int) -> None:
        """Ask, compile, reply."""
        body = {**_COMPILE, "append": [_asked(number)], "compaction_wait_ms": WAIT_MS}
        watch = CpuWatch(self._process)
        with watch:
            answer = checked(self._client.post(f"{self._path}/compile", json=body))
        self._most_tokens = max(self._most_tokens, answer["tokens"]["total"])
        if answer["compaction"].get("job_id") is None:
            self._compiles.samples_ms += watch.samples_ms
            self._compiles.cpu_ms += watch.cpu_ms
        reply = {
            **_replied(number),
            "compiled_seq": answer["compiled_seq"],
            "compiled_fingerprint": answer["fingerprint"],
        }
        with self._appends:
            checked(self._client.post(f"{self._path}/events", json={"events": [reply]}))
        if number % SHORT_EVERY == 0:
            with self._short:
                checked(self._client.post(f"{_SHORT}/compile", json=_COMPILE))

    def checkpoint(self, turns: int) -> Checkpoint:
        """Return where the session stands, and begin the next stretch."""
        folds = list(self._folds())
        active = [fold for fold in folds if fold["status"] == "active"]
        stats = checked(self._client.get(self._path))["stats"]
        made = Checkpoint(
            turns=turns,
            most_tokens=self._most_tokens,
            live_events=stats["live_events"],
            summaries=len(active),
            levels=max((fold["level"] for fold in active), default=0),
            ranges=max((len(fold["covers"]) for fold in active), default=0),
            compile_p50_ms=percentile(self._compiles.samples_ms, 0.5),
            compile_p99_ms=percentile(self._compiles.samples_ms, 0.99),
            compile_cpu_ms=percentile(self._compiles.cpu_ms, 0.5),
            short_p50_ms=percentile(self._short.samples_ms, 0.5),
            short_cpu_ms=percentile(self._short.cpu_ms, 0.5),
            append_p50_ms=percentile(self._appends.samples_ms, 0.5),
            folds=len(folds),
            memory_mb=_memory_mb(self._process),
        )
        self._begin()
        return made

    def open_all(self) -> tuple[int, int]:
        """Open every summary; return how many there are, and how many give their originals."""
        opened = total = 0
        folds = list(self._folds())
        # Every marker of the session is a fold. Ranges run over them.
        markers = {fold["seq"] for fold in folds}
        for fold in folds:
            total += 1
            first, covered = fold["covers"][0][0], _count_events(fold["covers"], markers)
            body = {"summary_seqs": [fold["seq"]], "max_tokens": 1_000_000}
            found = checked(self._client.post(f"{self._path}/expand", json=body))
            events = found["events"]
            is_whole = len(events) == covered or (found["truncated"] and len(events) < covered)
            opened += bool(events) and events[0]["seq"] == first and is_whole
        return total, opened

    def _folds(self) -> Iterator[dict[str, Any]]:
        after: str | None = None
        while True:
            params = {"limit": "200", **({} if after is None else {"after": after})}
            page = checked(self._client.get(f"{self._path}/compactions", params=params))
            yield from page["data"]
            after = page["next"]
            if after is None:
                return


def _count_events(ranges: list[list[int]], markers: set[int]) -> int:
    size = sum(end - start + 1 for start, end in ranges)
    return size - sum(start <= seq <= end for seq in markers for start, end in ranges)


_PLACES: Final = ("Malmo", "Lyon", "Porto", "Gdansk", "Turin", "Leeds", "Ghent")


def question(number: int) -> str:
    """Return what the user says: something else each time, with a name that may be asked for."""
    place = _PLACES[number % len(_PLACES)]
    return (
        f"Parcel 58-{number:05d} was to reach {place} on day {number % 28 + 1}, and the customer "
        f"wrote twice. What is its state, and what do we tell them about the {number % 7 + 2} "
        "items that are still missing from the order?"
    )


def reply_text(number: int) -> str:
    """Return what the model says."""
    place = _PLACES[(number + 3) % len(_PLACES)]
    return (
        f"Parcel 58-{number:05d} is held at the hub in {place}, because its label cannot be read. "
        f"A new label was printed, and it goes on within {number % 3 + 1} working days. I told "
        "them so, and asked the warehouse to send the missing items in a parcel of their own."
    )


_SHORT: Final = "/v1/sessions/short"
_COMPILE: Final = {"agent": AGENT, "format": "anthropic"}


def _asked(number: int) -> dict[str, Any]:
    fields = {"id": f"u{number}", "author": "user", "invocation_id": f"i{number}"}
    return {**fields, "content": question(number)}


def _replied(number: int) -> dict[str, Any]:
    fields = {"id": f"m{number}", "author": AGENT, "invocation_id": f"i{number}"}
    return {**fields, "content": {"role": "model", "parts": [{"text": reply_text(number)}]}}


def service_process() -> Path:
    """Return the folder that tells of the service's process."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = _status(folder)
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if status.get("PPid") == str(os.getpid()) and b"serve" in command:
            return folder
    raise RuntimeError("the service's process is not to be found")


def _status(process: Path) -> dict[str, str]:
    lines = (process / "status").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name: value.strip() for name, value in pairs}


def _memory_mb(process: Path) -> float:
    """Return what a process holds in memory."""
    return int(_status(process)["VmRSS"].split()[0]) / 1024


def _cpu_ms(process: Path) -> float:
    """Return the processor time that all threads of a process have had.

    The clock's id is what ``clock_getcpuclockid(3)`` makes of a process id on Linux.
    """
    return time.clock_gettime((~int(process.name) << 3) | 2) * 1000


def run(turns: int, window_tokens: int) -> tuple[list[Checkpoint], tuple[int, int]]:
    """Return the checkpoints, and how many summaries there are and can be opened."""
    made: list[Checkpoint] = []
    every = max(1, turns // CHECKPOINTS)
    with (
        running_service() as url,
        closing(httpx.Client(base_url=url, timeout=300)) as client,
    ):
        session = LongRun(client, service_process())
        session.start(window_tokens)
        for number in range(1, turns + 1):
            session.turn(number)
            if number % every == 0:
                made.append(session.checkpoint(number))
                print(_line(made[-1]), file=sys.stderr, flush=True)
        return made, session.open_all()


HEADER: Final = (
    "turns", "most tokens", "live events", "summaries", "levels", "ranges", "folds made",
    "compile p50 ms", "p99 ms", "CPU ms", "short p50 ms", "CPU ms", "append p50 ms", "memory MB",
)  # fmt: skip


def cells(row: Checkpoint) -> list[str]:
    """Return a row of the table."""
    return [
        f"{row.turns:,}",
        f"{row.most_tokens:,}",
        str(row.live_events),
        str(row.summaries),
        str(row.levels),
        str(row.ranges),
        str(row.folds),
        f"{row.compile_p50_ms:.1f}",
        f"{row.compile_p99_ms:.1f}",
        f"{row.compile_cpu_ms:.1f}",
        f"{row.short_p50_ms:.1f}",
        f"{row.short_cpu_ms:.1f}",
        f"{row.append_p50_ms:.1f}",
        f"{row.memory_mb:.0f}",
    ]


def _line(row: Checkpoint) -> str:
    return ", ".join(f"{name} {cell}" for name, cell in zip(HEADER, cells(row), strict=True))


def holds(made: list[Checkpoint], window_tokens: int, opened: tuple[int, int]) -> bool:
    """Tell, and print, whether the promises hold."""
    later = made[1:] or made
    growth = _ends(later, lambda row: row.compile_cpu_ms / row.short_cpu_ms)
    waited = _ends(later, lambda row: row.compile_p50_ms / row.short_p50_ms)
    memory = _ends(later, lambda row: row.memory_mb)
    most = MOST_OF_A_LEVEL * max(row.levels for row in made)
    ranges = max(row.ranges for row in made)
    levels = math.ceil(math.log(max(2, made[-1].folds), FANOUT)) + 1
    tokens = max(row.most_tokens for row in made)
    trigger = int(DEFAULT_TRIGGER_RATIO * window_tokens)
    promises = {
        f"below the trigger of {trigger:,} tokens (most {tokens:,})": tokens < trigger,
        f"live summaries within {most}, in {made[-1].levels} levels of at most {levels}": all(
            row.summaries <= most and row.levels <= levels for row in made
        ),
        f"each summary covers at most {MOST_RANGES} ranges (most {ranges})": ranges <= MOST_RANGES,
        f"processor time of a compile flat beside a session without history (end/beginning "
        f"{growth:.2f}, at most {MOST_COMPILE_GROWTH}; by the clock {waited:.2f})": growth
        <= MOST_COMPILE_GROWTH,
        f"memory flat (end/beginning {memory:.2f}, at most {MOST_MEMORY_GROWTH})": memory
        <= MOST_MEMORY_GROWTH,
        f"{opened[1]} of {opened[0]} summaries open": opened[0] == opened[1] > 0,
    }
    for promise, is_kept in promises.items():
        print(f"{'yes' if is_kept else 'NO '}  {promise}")
    return all(promises.values())


def _ends(made: list[Checkpoint], figure: Callable[[Checkpoint], float]) -> float:
    """Return by how much a figure grew: the mean of the last quarter over that of the first."""
    count = max(1, len(made) // 4)
    first, last = made[:count], made[-count:]
    return sum(map(figure, last)) / sum(map(figure, first))


def main() -> int:
    """Run, print, and tell by the exit code whether the promises hold."""
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--window", type=int, default=WINDOW_TOKENS)
    arguments = parser.parse_args()
    about = tell_machine()
    started_s = time.monotonic()
    made, opened = run(arguments.turns, arguments.window)
    print(table(HEADER, [cells(row) for row in made]))
    print(f"{arguments.turns:,} turns in {time.monotonic() - started_s:,.0f} s")
    write_report(
        arguments.json,
        machine=about,
        rows=[asdict(row) for row in made],
        opened=opened,
    )
    return 0 if holds(made, arguments.window, opened) else 1


if __name__ == "__main__":
    sys.exit(main())
