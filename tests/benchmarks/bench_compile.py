"""Compile at the HTTP boundary, by length of the masked history; and google-adk on the same.

    make bench                                       the table
    make bench BENCH_ARGS="--json bench.json"        and everything as JSON
    make bench BENCH_ARGS="--masked 0 1000"          only these sizes

The live part is always the same 200 events, about 100 KB. In front of them stand N events folded
into one summary of the caller's. Both sides use one Postgres, ours through HTTP and a process of
its own, google-adk in this process: its figure has no HTTP in it. "events read" is what Postgres
counts as fetched from the table of events, per compile.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx

from app.cli.service_process import running_service
from app.storage.embedded import EmbeddedPostgres
from tests.benchmarks.google_adk import GoogleAdk, compaction, quiet
from tests.benchmarks.measuring import Stopwatch, machine, percentile, table
from tests.benchmarks.workload import AGENT, EVENTS_PER_INVOCATION, LIVE_EVENTS, START_S, events

MASKED: Final = (0, 1_000, 10_000, 100_000)
BATCH: Final = 500
WARM_UP: Final = 20
COMPILES: Final = 300
#: google-adk's samples by masked events: it reads them all, so the large sizes get few.
ADK_SAMPLES: Final = {0: 20, 1_000: 10, 10_000: 3}
#: Only the caller's own fold: nothing happens in the background while others are measured.
POLICY: Final = {"compaction": {"strategy": "none"}}
SUMMARY: Final = "The user asked for the state of many orders; every one is held at a hub."
#: Postgres counts in memory and publishes about once a second.
STATISTICS_DELAY_S: Final = 1.5
#: What is held to: the masked history costs nothing, and this much faster at this size.
RATIO_AT: Final = 10_000
LEAST_RATIO: Final = 100
MOST_GROWTH: Final = 1.5


@dataclass(frozen=True, slots=True)
class Row:
    """One size."""

    masked: int
    request_kb: float
    p50_ms: float
    p99_ms: float
    server_ms: float
    load_ms: float
    events_read: float
    append_s: float
    adk_p50_ms: float
    adk_samples: int

    @property
    def ratio(self) -> float:
        """How many times faster we are."""
        return self.adk_p50_ms / self.p50_ms


def main() -> int:
    """Measure, print, and tell by the exit code whether the two promises hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--masked", type=int, nargs="+", default=list(MASKED))
    parser.add_argument("--json", type=Path, help="write everything there")
    arguments = parser.parse_args()
    about = machine()
    print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="foldline-") as folder, quiet():
        server = EmbeddedPostgres(Path(folder) / "postgres")
        server.start()
        try:
            rows = asyncio.run(_measure_all(server.superuser_url, sorted(arguments.masked)))
        finally:
            server.stop()
    _print(rows)
    if arguments.json is not None:
        report = {"machine": about, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if _holds(rows) else 1


async def _measure_all(server_url: str, sizes: list[int]) -> list[Row]:
    ours = await _database(server_url, "ours")
    adk = GoogleAdk(await _database(server_url, "google_adk"))
    settings = {"DATABASE_URL": ours, "MIGRATE_ON_START": "true", "MAX_BATCH_EVENTS": str(BATCH)}
    try:
        with (
            running_service(settings) as url,
            closing(httpx.Client(base_url=url, timeout=300)) as client,
        ):
            rows = []
            for masked in sizes:
                rows.append(await _measure(client, ours, adk, masked))
                print(f"measured {masked:,} masked", file=sys.stderr, flush=True)
            return rows
    finally:
        await adk.close()


async def _database(server_url: str, name: str) -> str:
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))


async def _measure(client: httpx.Client, ours: str, adk: GoogleAdk, masked: int) -> Row:
    session_id = f"masked-{masked}"
    started_at = time.perf_counter()
    _append(client, session_id, 0, masked)
    if masked:
        _fold(client, session_id, masked)
    _append(client, session_id, masked, LIVE_EVENTS)
    append_s = time.perf_counter() - started_at
    await _analyze(ours)
    body = {"agent": AGENT, "format": "gemini"}
    for _ in range(WARM_UP):
        _compile(client, session_id, body)
    before = await _events_read(ours)
    timed = _timed(client, session_id, body)
    events_read = (await _events_read(ours) - before) / COMPILES
    adk_watch = await _measure_adk(adk, session_id, masked)
    return Row(
        masked=masked,
        request_kb=timed.request_kb,
        p50_ms=percentile(timed.watch.samples_ms, 0.5),
        p99_ms=percentile(timed.watch.samples_ms, 0.99),
        server_ms=percentile(timed.server_ms, 0.5),
        load_ms=percentile(timed.load_ms, 0.5),
        events_read=events_read,
        append_s=append_s,
        adk_p50_ms=percentile(adk_watch.samples_ms, 0.5),
        adk_samples=len(adk_watch.samples_ms),
    )


@dataclass(frozen=True, slots=True)
class _Timed:
    """Many compiles of one session."""

    watch: Stopwatch
    #: What the service says that it took: all of it, and reading the log.
    server_ms: list[float]
    load_ms: list[float]
    request_kb: float


def _timed(client: httpx.Client, session_id: str, body: dict[str, Any]) -> _Timed:
    watch = Stopwatch()
    server_ms: list[float] = []
    load_ms: list[float] = []
    answer: dict[str, Any] = {}
    for _ in range(COMPILES):
        with watch:
            response = client.post(f"/v1/sessions/{session_id}/compile", json=body)
        answer = _checked(response)
        server_ms.append(sum(answer["timing_ms"].values()))
        load_ms.append(answer["timing_ms"]["load"])
    assert len(answer["request"]["contents"]) > LIVE_EVENTS // 2
    return _Timed(watch, server_ms, load_ms, len(json.dumps(answer["request"])) / 1024)


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


def _append(client: httpx.Client, session_id: str, first: int, count: int) -> None:
    for start in range(first, first + count, BATCH):
        size = min(BATCH, first + count - start)
        body = {
            "events": list(events(start, size)),
            "create": {"app_name": "bench", "user_id": "user", "policy": POLICY},
        }
        _checked(client.post(f"/v1/sessions/{session_id}/events", json=body))


def _fold(client: httpx.Client, session_id: str, masked: int) -> None:
    assert masked % EVENTS_PER_INVOCATION == 0
    covers = {"from_seq": 1, "to_seq": masked}
    body = {"covers": covers, "content": SUMMARY}
    fold = _checked(client.post(f"/v1/sessions/{session_id}/summaries", json=body))
    assert fold["covers"] == [[1, masked]]


def _compile(client: httpx.Client, session_id: str, body: dict[str, Any]) -> dict[str, Any]:
    return _checked(client.post(f"/v1/sessions/{session_id}/compile", json=body))


def _checked(response: httpx.Response) -> dict[str, Any]:
    if not response.is_success:
        raise RuntimeError(
            f"{response.request.url} answered {response.status_code}: {response.text}"
        )
    value: dict[str, Any] = response.json()
    return value


async def _analyze(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def _events_read(url: str) -> int:
    """Return how many rows of the table of events Postgres has fetched so far."""
    await asyncio.sleep(STATISTICS_DELAY_S)
    connection = await asyncpg.connect(url)
    try:
        fetched: int = await connection.fetchval(
            "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables"
            " WHERE relname = 'events'"
        )
        return fetched
    finally:
        await connection.close()


def _print(rows: list[Row]) -> None:
    header = (
        "masked", "KB", "p50 ms", "p99 ms", "in server", "load", "events read", "append s",
        "adk p50 ms", "adk n", "ratio",
    )  # fmt: skip
    print(
        table(
            header,
            [
                (
                    f"{row.masked:,}",
                    f"{row.request_kb:.0f}",
                    f"{row.p50_ms:.2f}",
                    f"{row.p99_ms:.2f}",
                    f"{row.server_ms:.2f}",
                    f"{row.load_ms:.2f}",
                    f"{row.events_read:.0f}",
                    f"{row.append_s:.1f}",
                    f"{row.adk_p50_ms:,.1f}",
                    str(row.adk_samples),
                    f"{row.ratio:,.0f}x",
                )
                for row in rows
            ],
        )
    )


def _holds(rows: list[Row]) -> bool:
    """Tell, and print, whether the promises hold for the sizes that were measured."""
    growth = max(row.p50_ms for row in rows) / min(row.p50_ms for row in rows)
    is_flat = growth <= MOST_GROWTH
    print(
        f"flat in the masked history: {'yes' if is_flat else 'NO'} (slowest/fastest {growth:.2f})"
    )
    at_size = next((row for row in rows if row.masked == RATIO_AT), None)
    if at_size is None:
        return is_flat
    is_fast = at_size.ratio >= LEAST_RATIO
    print(f"at least {LEAST_RATIO}x at {RATIO_AT:,} masked: {'yes' if is_fast else 'NO'}")
    return is_flat and is_fast


if __name__ == "__main__":
    sys.exit(main())
