"""What a long history costs: nothing at its head, and how much where one looks back.

    make bench-history                                          some four minutes
    make bench-history BENCH_ARGS="--masked 100000"             a shorter one

Two sessions have the same live part of 200 events; behind one are 104 masked events, behind the
other a million, loaded in bulk. Each is compiled by a service of its own after appends of one
event, in turns, so that time and memory can be compared. Then the long one is looked at in ways
that do look back: an earlier position, an explanation, lists, searches for words and patterns, each
with how many rows of the log Postgres read for it.
"""

import asyncio
import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from app.cli.service_process import running_service
from app.storage.migrate import migrate
from tests.benchmarks.asking import checked, events_read, tidy_up
from tests.benchmarks.bulk import lengthen
from tests.benchmarks.http_client import Client
from tests.benchmarks.measuring import Stopwatch, percentile, table
from tests.benchmarks.processes import resident_mb
from tests.benchmarks.running import own_server, parser_of, tell_machine, write_report
from tests.benchmarks.workload import AGENT, EVENTS_PER_INVOCATION, LIVE_EVENTS, events

SHORT: Final = 104
LONG: Final = 1_000_000
COMPILES: Final = 120
WARM_UP: Final = 15
LOOKS: Final = 5
SUMMARY: Final = "The user asked for the state of many orders; every one is held at a hub."
POLICY: Final = {"compaction": {"strategy": "none"}}
#: What is held to: the median of a compile, and the memory of the process, against the short one.
MOST_GROWTH: Final = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """The two sessions beside each other."""

    masked: int
    compile_p50_ms: float
    compile_p99_ms: float
    append_p50_ms: float
    memory_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One way to look back."""

    what: str
    p50_ms: float
    max_ms: float
    answer_kb: float
    rows_read: float
    status: str


def main() -> int:
    """Measure, print, and tell by the exit code whether the history is free at the head."""
    parser = parser_of(__doc__)
    parser.add_argument("--masked", type=int, default=LONG)
    arguments = parser.parse_args()
    about = tell_machine()
    with own_server() as server:
        asyncio.run(migrate(server.url))
        flat, looks = _measure(server.url, arguments.masked)
    print(_flat_table(flat))
    print(_look_table(looks))
    write_report(
        arguments.json,
        machine=about,
        flat=[asdict(row) for row in flat],
        looks=[asdict(look) for look in looks],
    )
    return 0 if _holds(flat) else 1


def _measure(url: str, masked: int) -> tuple[list[Flat], list[Look]]:
    settings = {"DATABASE_URL": url, "MIGRATE_ON_START": "false", "WORKER": "off"}
    with (
        running_service(settings) as short_url,
        running_service(settings) as long_url,
        closing(Client(short_url)) as short,
        closing(Client(long_url)) as long,
    ):
        sides = [Side(short, "short", SHORT), Side(long, "long", masked)]
        for side in sides:
            side.begin(url)
            print(f"loaded {side.masked:,}", file=sys.stderr, flush=True)
        asyncio.run(tidy_up(url))
        for turn in range(WARM_UP + COMPILES):
            for side in sides:
                side.turn(is_measured=turn >= WARM_UP)
        flat = [side.row() for side in sides]
        looks = _look_back(sides[1], url, masked)
    return flat, looks


class Side:
    """A session, and the service that compiles it."""

    def __init__(self, client: Client, session_id: str, masked: int) -> None:
        self.client = client
        self.session_id = session_id
        self.path = f"/v1/sessions/{session_id}"
        self.masked = masked
        self._next = masked
        self._compiles, self._appends = Stopwatch(), Stopwatch()

    def begin(self, url: str) -> None:
        """Make the session: its masked events, the fold, and the live events."""
        create = {"app_name": "bench", "user_id": "user", "policy": POLICY}
        period = EVENTS_PER_INVOCATION
        first = {"events": list(events(0, period)), "create": create}
        checked(self.client.post(f"{self.path}/events", first))
        asyncio.run(
            lengthen(url, self.session_id, period=period, masked=self.masked, summary=SUMMARY)
        )
        self._append(LIVE_EVENTS)

    def turn(self, *, is_measured: bool) -> None:
        """Append an event and compile, as an agent does."""
        appends, compiles = (
            (self._appends, self._compiles) if is_measured else (Stopwatch(), Stopwatch())
        )
        with appends:
            self._append(1)
        with compiles:
            answer = self.client.post(f"{self.path}/compile", {"agent": AGENT, "format": "gemini"})
        assert len(checked(answer)["request"]["contents"]) > LIVE_EVENTS // 2

    def row(self) -> Flat:
        """Return what was measured."""
        return Flat(
            masked=self.masked,
            compile_p50_ms=percentile(self._compiles.samples_ms, 0.5),
            compile_p99_ms=percentile(self._compiles.samples_ms, 0.99),
            append_p50_ms=percentile(self._appends.samples_ms, 0.5),
            memory_mb=resident_mb(self.client.port),
        )

    def _append(self, count: int) -> None:
        body = {"events": list(events(self._next, count))}
        self._next += count
        checked(self.client.post(f"{self.path}/events", body))


#: Name, method, path below the session, and body.
_Asked: TypeAlias = tuple[str, str, str, dict[str, Any] | None]


def _looks(masked: int) -> list[_Asked]:
    """Return what is looked at."""
    compiled = {"agent": AGENT, "format": "gemini"}
    near, middle = 200, masked // 2
    return [
        ("compile as of seq 200", "POST", "/compile", {**compiled, "as_of_seq": near}),
        ("compile at the head, explained", "POST", "/compile", {**compiled, "explain": True}),
        ("events: the newest 100", "GET", "/events?last=100", None),
        ("events: 100 from the middle", "GET", f"/events?after_seq={middle}", None),
        ("events: masked, the last 100", "GET", "/events?status=masked&order=desc", None),
        (
            "events: one invocation of the middle",
            "GET",
            f"/events?invocation_id=i{middle // 8}",
            None,
        ),
        ("sessions", "GET", "", None),
        ("words that stand once, in the middle", "POST", "/recall", {"query": f"58-{middle + 1}"}),
        ("words that stand everywhere", "POST", "/recall", {"query": "label hub"}),
        ("words that stand nowhere", "POST", "/recall", {"query": "zebra crossing"}),
        ("pattern near the head", "POST", "/recall", {"query": "held at .* hub", "mode": "regex"}),
        ("pattern that stands nowhere", "POST", "/recall", {"query": "zeb+ra", "mode": "regex"}),
    ]


def _look_back(side: Side, url: str, masked: int) -> list[Look]:
    looks = []
    before = asyncio.run(events_read(url))
    for asked in _looks(masked):
        watch, size, status = _look(side, asked)
        after = asyncio.run(events_read(url))
        look = Look(
            what=asked[0],
            p50_ms=percentile(watch.samples_ms, 0.5),
            max_ms=max(watch.samples_ms),
            answer_kb=size / 1024,
            rows_read=(after - before) / LOOKS,
            status=status,
        )
        looks.append(look)
        before = after
        print(f"looked: {look.what}: {look.p50_ms:.0f} ms", file=sys.stderr, flush=True)
    return looks


def _look(side: Side, asked: _Asked) -> tuple[Stopwatch, int, str]:
    """Look several times; return the times, the bytes of an answer, and what was wrong with it."""
    what, method, path, body = asked
    place = "/v1/sessions" if what == "sessions" else side.path + path
    watch, size, status = Stopwatch(), 0, ""
    for _ in range(LOOKS):
        with watch:
            answer = side.client.request(method, place, body)
        size = len(answer.content)
        told = answer.json()
        if not answer.is_success:
            status = f"{answer.status_code} {told['code']}"
        elif told.get("complete") is False:
            status = "a part"
    return watch, size, status


def _flat_table(rows: list[Flat]) -> str:
    return table(
        ("masked", "compile p50 ms", "p99 ms", "append p50 ms", "memory MB"),
        [
            (
                f"{row.masked:,}",
                f"{row.compile_p50_ms:.2f}",
                f"{row.compile_p99_ms:.2f}",
                f"{row.append_p50_ms:.2f}",
                f"{row.memory_mb:.0f}",
            )
            for row in rows
        ],
    )


def _look_table(looks: list[Look]) -> str:
    return table(
        ("look", "p50 ms", "at most", "answer KB", "rows read", ""),
        [
            (
                look.what,
                f"{look.p50_ms:.1f}",
                f"{look.max_ms:.1f}",
                f"{look.answer_kb:.0f}",
                f"{look.rows_read:,.0f}",
                look.status,
            )
            for look in looks
        ],
    )


def _holds(flat: list[Flat]) -> bool:
    """Tell, and print, whether the history is free at the head."""
    short, long = flat
    time, memory = long.compile_p50_ms / short.compile_p50_ms, long.memory_mb / short.memory_mb
    is_flat = max(time, memory) <= MOST_GROWTH
    print(
        f"within {MOST_GROWTH - 1:.0%} of the short history: {'yes' if is_flat else 'NO'}"
        f" (compile {time - 1:+.0%}, memory {memory - 1:+.0%})"
    )
    return is_flat


if __name__ == "__main__":
    sys.exit(main())
