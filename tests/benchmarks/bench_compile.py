"""Compile at the HTTP boundary, by length of the masked history: floors, and google-adk beside.

    make bench                                       the tables
    make bench BENCH_ARGS="--json bench.json"        and everything as JSON
    make bench BENCH_ARGS="--masked 0 1000"          only these sizes

The live part is about 200 events, 100 KB. In front of them stand N events folded into one summary
of the caller's. Every compile but "again" follows an append of one event, as an agent's does:

    warm     by a service that goes on from what its last compile settled
    cold     by a service that keeps nothing from compile to compile
    again    the same compile once more, warm
    floors   see floor.py: what the same pool, server and bytes cost without a compiler

All use one Postgres; ours through HTTP and processes of their own, google-adk in this process: its
figure has no HTTP in it. "events read" is what Postgres counts as fetched from the table of events,
per warm compile.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from app.cli.service_process import running_service
from tests.benchmarks.asking import checked, events_read, made_database, tidy_up
from tests.benchmarks.google_adk import GoogleAdk, compaction, quiet
from tests.benchmarks.http_client import Client
from tests.benchmarks.measuring import Stopwatch, percentile, table
from tests.benchmarks.running import own_server, parser_of, tell_machine, write_report
from tests.benchmarks.workload import AGENT, EVENTS_PER_INVOCATION, LIVE_EVENTS, START_S, events

MASKED: Final = (0, 1_000, 10_000, 100_000)
BATCH: Final = 500
WARM_UP: Final = 5
#: Each after an append of one event, so the live part grows by so many.
COMPILES: Final = 60
#: Live events of the sessions whose cold compile is held against its floor.
COLD_SIZES: Final = (50, 200, 1_000)
COLD_COMPILES: Final = 30
#: google-adk's samples by masked events: it reads them all, so the large sizes get few.
ADK_SAMPLES: Final = {0: 20, 1_000: 10, 10_000: 3}
#: Only the caller's own fold: nothing happens in the background while others are measured.
POLICY: Final = {"compaction": {"strategy": "none"}}
SUMMARY: Final = "The user asked for the state of many orders; every one is held at a hub."
#: What is held to: the masked history costs nothing; so much faster than google-adk by masked
#: events; so many floors, warm at every length, and cold by live events.
MOST_GROWTH: Final = 1.5
LEAST_RATIO: Final = {0: 5, 1_000: 30, 10_000: 300, 100_000: 3_000}
MOST_WARM: Final = 2.0
MOST_COLD: Final = {50: 3.0, 200: 3.0, 1_000: 5.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One length of the masked history."""

    masked: int
    request_kb: float
    warm_p50_ms: float
    warm_p99_ms: float
    warm_floor_ms: float
    again_p50_ms: float
    cold_p50_ms: float
    events_read: float
    adk_p50_ms: float
    adk_samples: int

    @property
    def ratio(self) -> float:
        """How many times faster than google-adk we are."""
        return self.adk_p50_ms / self.warm_p50_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRow:
    """One length of the live part."""

    live: int
    request_kb: float
    cold_p50_ms: float
    cold_floor_ms: float


def main() -> int:
    """Measure, print, and tell by the exit code whether the promises hold."""
    parser = parser_of(__doc__)
    parser.add_argument("--masked", type=int, nargs="+", default=list(MASKED))
    arguments = parser.parse_args()
    about = tell_machine()
    with own_server() as server, quiet():
        rows, cold_rows = asyncio.run(_measure_all(server.url, sorted(arguments.masked)))
    _print(rows, cold_rows)
    write_report(
        arguments.json,
        machine=about,
        rows=[asdict(row) | {"ratio": row.ratio} for row in rows],
        cold_rows=[asdict(row) for row in cold_rows],
    )
    return 0 if _holds(rows, cold_rows) else 1


@dataclass(frozen=True, slots=True)
class _Peers:
    """Who compiles the sessions: two services, the floors, and google-adk."""

    warm: Client
    cold: Client
    floor: Client
    database_url: str
    adk: GoogleAdk


async def _measure_all(server_url: str, sizes: list[int]) -> tuple[list[Row], list[ColdRow]]:
    ours = await made_database(server_url, "ours")
    adk = GoogleAdk(await made_database(server_url, "google_adk"))
    settings = {"DATABASE_URL": ours, "MIGRATE_ON_START": "true", "MAX_BATCH_EVENTS": str(BATCH)}
    try:
        with (
            running_service(settings) as warm_url,
            running_service({**settings, "COMPILE_CACHE_BYTES": "0"}) as cold_url,
            _running_floor(ours) as floor_url,
            closing(Client(warm_url)) as warm,
            closing(Client(cold_url)) as cold,
            closing(Client(floor_url)) as floor,
        ):
            peers = _Peers(warm, cold, floor, ours, adk)
            cold_rows = [await _measure_cold(peers, live) for live in COLD_SIZES]
            rows = []
            for masked in sizes:
                rows.append(await _measure(peers, masked))
                print(f"measured {masked:,} masked", file=sys.stderr, flush=True)
            return rows, cold_rows
    finally:
        await adk.close()


@contextmanager
def _running_floor(url: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.floor", url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate()


async def _measure(peers: _Peers, masked: int) -> Row:
    session_id = f"masked-{masked}"
    _append(peers.warm, session_id, 0, masked)
    if masked:
        _fold(peers.warm, session_id, masked)
    _append(peers.warm, session_id, masked, LIVE_EVENTS)
    await tidy_up(peers.database_url)
    body = {"agent": AGENT, "format": "gemini"}
    for _ in range(WARM_UP):
        _compile(peers.warm, session_id, body)
        _compile(peers.cold, session_id, body)
    before = await events_read(peers.database_url)
    warm, floor, size = Stopwatch(), Stopwatch(), 0
    for number in range(COMPILES):
        head_seq = _append(peers.warm, session_id, masked + LIVE_EVENTS + number, 1)
        with warm:
            response = peers.warm.post(f"/v1/sessions/{session_id}/compile", body)
        assert len(checked(response)["request"]["contents"]) > LIVE_EVENTS // 2
        size = len(response.content)
        asked = {"session": session_id, "after_seq": head_seq - 1, "bytes": size}
        _timed(peers.floor, "/warm", asked, floor)
    read = (await events_read(peers.database_url) - before) / COMPILES
    again, cold = Stopwatch(), Stopwatch()
    for _ in range(COMPILES):
        _timed(peers.warm, f"/v1/sessions/{session_id}/compile", body, again)
        _timed(peers.cold, f"/v1/sessions/{session_id}/compile", body, cold)
    adk_watch = await _measure_adk(peers.adk, session_id, masked)
    return Row(
        masked=masked,
        request_kb=size / 1024,
        warm_p50_ms=percentile(warm.samples_ms, 0.5),
        warm_p99_ms=percentile(warm.samples_ms, 0.99),
        warm_floor_ms=percentile(floor.samples_ms, 0.5),
        again_p50_ms=percentile(again.samples_ms, 0.5),
        cold_p50_ms=percentile(cold.samples_ms, 0.5),
        # The floor reads one row of each.
        events_read=read - 1,
        adk_p50_ms=percentile(adk_watch.samples_ms, 0.5),
        adk_samples=len(adk_watch.samples_ms),
    )


async def _measure_cold(peers: _Peers, live: int) -> ColdRow:
    session_id = f"live-{live}"
    _append(peers.cold, session_id, 0, live)
    await tidy_up(peers.database_url)
    body = {"agent": AGENT, "format": "gemini"}
    asked = {"session": session_id, "after_seq": 0}
    for _ in range(WARM_UP):
        _compile(peers.cold, session_id, body)
    cold, floor, size = Stopwatch(), Stopwatch(), 0
    for _ in range(COLD_COMPILES):
        size = _timed(peers.cold, f"/v1/sessions/{session_id}/compile", body, cold)
        _timed(peers.floor, "/cold", asked, floor)
    return ColdRow(
        live=live,
        request_kb=size / 1024,
        cold_p50_ms=percentile(cold.samples_ms, 0.5),
        cold_floor_ms=percentile(floor.samples_ms, 0.5),
    )


def _timed(client: Client, path: str, body: dict[str, Any], watch: Stopwatch) -> int:
    """Time a request; return the bytes of its answer."""
    with watch:
        response = client.post(path, body)
    if not response.is_success:
        raise RuntimeError(f"{path} answered {response.status_code}: {response.text}")
    return len(response.content)


async def _measure_adk(adk: GoogleAdk, session_id: str, masked: int) -> Stopwatch:
    folded = events(0, masked)
    last_s = float(START_S + masked - 1)
    marker = [compaction(0, first_s=float(START_S), last_s=last_s, summary=SUMMARY)]
    live = events(masked, LIVE_EVENTS)
    await adk.fill(session_id, chain(folded, marker if masked else (), live))
    watch = Stopwatch()
    for _ in range(ADK_SAMPLES.get(masked, 1)):
        contents = await adk.compile(session_id, watch)
        assert contents >= LIVE_EVENTS
    return watch


def _append(client: Client, session_id: str, first: int, count: int) -> int:
    """Append events; return the head."""
    head_seq = 0
    for start in range(first, first + count, BATCH):
        size = min(BATCH, first + count - start)
        body = {
            "events": list(events(start, size)),
            "create": {"app_name": "bench", "user_id": "user", "policy": POLICY},
        }
        answer = checked(client.post(f"/v1/sessions/{session_id}/events", body))
        head_seq = answer["head_seq"]
    return head_seq


def _fold(client: Client, session_id: str, masked: int) -> None:
    assert masked % EVENTS_PER_INVOCATION == 0
    covers = {"from_seq": 1, "to_seq": masked}
    body = {"covers": covers, "content": SUMMARY}
    fold = checked(client.post(f"/v1/sessions/{session_id}/summaries", body))
    assert fold["covers"] == [[1, masked]]


def _compile(client: Client, session_id: str, body: dict[str, Any]) -> None:
    checked(client.post(f"/v1/sessions/{session_id}/compile", body))


def _print(rows: list[Row], cold_rows: list[ColdRow]) -> None:
    header = (
        "masked", "KB", "warm p50 ms", "p99 ms", "floor ms", "x floor", "again p50", "cold p50",
        "events read", "adk p50 ms", "adk n", "ratio",
    )  # fmt: skip
    print(
        table(
            header,
            [
                (
                    f"{row.masked:,}",
                    f"{row.request_kb:.0f}",
                    f"{row.warm_p50_ms:.2f}",
                    f"{row.warm_p99_ms:.2f}",
                    f"{row.warm_floor_ms:.2f}",
                    f"{row.warm_p50_ms / row.warm_floor_ms:.1f}",
                    f"{row.again_p50_ms:.2f}",
                    f"{row.cold_p50_ms:.2f}",
                    f"{row.events_read:.1f}",
                    f"{row.adk_p50_ms:,.1f}",
                    str(row.adk_samples),
                    f"{row.ratio:,.0f}x",
                )
                for row in rows
            ],
        )
    )
    print(
        table(
            ("live", "KB", "cold p50 ms", "floor ms", "x floor"),
            [
                (
                    f"{row.live:,}",
                    f"{row.request_kb:.0f}",
                    f"{row.cold_p50_ms:.2f}",
                    f"{row.cold_floor_ms:.2f}",
                    f"{row.cold_p50_ms / row.cold_floor_ms:.1f}",
                )
                for row in cold_rows
            ],
        )
    )


def _holds(rows: list[Row], cold_rows: list[ColdRow]) -> bool:
    """Tell, and print, whether the promises hold for the sizes that were measured."""
    growth = max(row.warm_p50_ms for row in rows) / min(row.warm_p50_ms for row in rows)
    held = {
        f"flat in the masked history (slowest/fastest {growth:.2f})": growth <= MOST_GROWTH,
    }
    for row in rows:
        floors = row.warm_p50_ms / row.warm_floor_ms
        held[f"warm within {MOST_WARM:g} floors at {row.masked:,} masked ({floors:.1f})"] = (
            floors <= MOST_WARM
        )
        if (least := LEAST_RATIO.get(row.masked)) is not None:
            told = f"at least {least:,}x google-adk at {row.masked:,} masked ({row.ratio:,.0f}x)"
            held[told] = row.ratio >= least
    for cold_row in cold_rows:
        most, floors = MOST_COLD[cold_row.live], cold_row.cold_p50_ms / cold_row.cold_floor_ms
        told = f"cold within {most:g} floors at {cold_row.live:,} live ({floors:.1f})"
        held[told] = floors <= most
    for what, does_hold in held.items():
        print(f"{what}: {'yes' if does_hold else 'NO'}")
    return all(held.values())


if __name__ == "__main__":
    sys.exit(main())
