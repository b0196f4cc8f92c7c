"""Compile behind the summaries of each side's own engine: none, by interval, and rolling.

    python -m tests.benchmarks.bench_engines                    the table
    python -m tests.benchmarks.bench_engines --json FILE        and everything as JSON

Both sides are given the same 150 invocations, one after another, and fold them as they are set:
ours with the extractive summarizer, google-adk with one that says always the same. Then nothing
folds any more, and both compile: ours over HTTP, each time after an append of one event, google-adk
by loading the session and building its contents, without HTTP. Part of `make bench`.
"""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Final

from app.cli.service_process import running_service
from app.core.canonical import Json
from tests.benchmarks.asking import checked, made_database, tidy_up
from tests.benchmarks.google_adk import GoogleAdk, folded, quiet
from tests.benchmarks.http_client import Client
from tests.benchmarks.measuring import Stopwatch, percentile, table
from tests.benchmarks.running import own_server, parser_of, tell_machine, write_report
from tests.benchmarks.workload import AGENT, EVENTS_PER_INVOCATION, events

INVOCATIONS: Final = 150
EVENTS: Final = INVOCATIONS * EVENTS_PER_INVOCATION
COMPILES: Final = 30
ADK_SAMPLES: Final = 10
WAIT_MS: Final = 60_000
MOST_FOLDS: Final = 1_000
#: By name, what both are set to; google-adk calls the members alike.
ENGINES: Final[Mapping[str, Mapping[str, int]]] = {
    "none": {},
    "interval": {"compaction_interval": 3, "overlap_size": 1},
    "rolling": {"token_threshold": 8_000, "event_retention_size": 16},
}
STRATEGIES: Final = {"none": "none", "interval": "interval", "rolling": "threshold"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One engine."""

    name: str
    folds: int
    contents: int
    warm_p50_ms: float
    adk_folds: int
    adk_contents: int
    adk_p50_ms: float

    @property
    def ratio(self) -> float:
        """How many times faster than google-adk we are."""
        return self.adk_p50_ms / self.warm_p50_ms


async def _measure(name: str, client: Client, database_url: str, adk: GoogleAdk) -> Row:
    folds = _played(client, name)
    await tidy_up(database_url)
    warm, contents = _measured(client, name)
    theirs = await folded(events(0, EVENTS), EVENTS_PER_INVOCATION, ENGINES[name])
    await adk.fill(name, theirs)
    watch, adk_contents = Stopwatch(), 0
    for _ in range(ADK_SAMPLES):
        adk_contents = await adk.compile(name, watch)
    return Row(
        name=name,
        folds=folds,
        contents=contents,
        warm_p50_ms=percentile(warm.samples_ms, 0.5),
        adk_folds=len(theirs) - EVENTS,
        adk_contents=adk_contents,
        adk_p50_ms=percentile(watch.samples_ms, 0.5),
    )


def _played(client: Client, name: str) -> int:
    """Append the invocations, each folded before the next; return how many folds there are."""
    path = f"/v1/sessions/{name}"
    policy = {"compaction": {"strategy": STRATEGIES[name], **ENGINES[name]}}
    body = {"app_name": "bench", "user_id": "user", "policy": policy}
    checked(client.put(path, body))
    for first in range(0, EVENTS, EVENTS_PER_INVOCATION):
        turn = list(events(first, EVENTS_PER_INVOCATION))
        checked(client.post(f"{path}/events", {"events": turn}))
        _compile(client, path, compaction_wait_ms=WAIT_MS)
    rests = {"compaction": {"strategy": "none", **dict.fromkeys(ENGINES[name])}}
    checked(client.patch(path, {"policy": rests}))
    page = checked(client.get(f"{path}/compactions?limit={MOST_FOLDS}"))
    return len(page["data"])


def _measured(client: Client, name: str) -> tuple[Stopwatch, int]:
    """Compile after appends; return how long it took, and how many contents there are."""
    path = f"/v1/sessions/{name}"
    _compile(client, path)
    warm, contents = Stopwatch(), 0
    for number in range(COMPILES):
        asked = {"events": list(events(EVENTS + number, 1))}
        checked(client.post(f"{path}/events", asked))
        with warm:
            compiled = _compile(client, path)
        contents = len(compiled["request"]["contents"])
    return warm, contents


def _compile(client: Client, path: str, **more: Json) -> dict[str, Any]:
    body = {"agent": AGENT, "format": "gemini", **more}
    compiled: dict[str, Any] = checked(client.post(f"{path}/compile", body))
    return compiled


async def _measure_all(server_url: str) -> list[Row]:
    ours = await made_database(server_url, "ours")
    adk = GoogleAdk(await made_database(server_url, "google_adk"))
    settings = {"DATABASE_URL": ours, "MIGRATE_ON_START": "true"}
    try:
        with (
            running_service(settings) as url,
            closing(Client(url)) as client,
        ):
            return [await _measure(name, client, ours, adk) for name in ENGINES]
    finally:
        await adk.close()


def main() -> int:
    """Measure, print, and tell by the exit code whether we are faster everywhere."""
    arguments = parser_of(__doc__).parse_args()
    about = tell_machine()
    with own_server() as server, quiet():
        rows = asyncio.run(_measure_all(server.url))
    header = (
        "engine", "folds", "contents", "warm p50 ms", "adk folds", "adk contents", "adk p50 ms",
        "ratio",
    )  # fmt: skip
    cells = [
        (
            row.name,
            str(row.folds),
            str(row.contents),
            f"{row.warm_p50_ms:.2f}",
            str(row.adk_folds),
            str(row.adk_contents),
            f"{row.adk_p50_ms:.1f}",
            f"{row.ratio:.0f}x",
        )
        for row in rows
    ]
    print(table(header, cells))
    write_report(
        arguments.json,
        machine=about,
        rows=[asdict(row) | {"ratio": row.ratio} for row in rows],
    )
    is_faster = all(row.ratio > 1 for row in rows)
    print(f"faster behind every engine: {'yes' if is_faster else 'NO'}")
    return 0 if is_faster else 1


if __name__ == "__main__":
    sys.exit(main())
