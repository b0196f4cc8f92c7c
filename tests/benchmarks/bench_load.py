"""Many agents at once: how much is answered, how late, and what happens when it is too much.

    make bench-load                                       some three minutes
    make bench-load BENCH_ARGS="--json load.json"         and everything as JSON
    make bench-load BENCH_ARGS="--seconds 20"             longer at each point

Every client is an agent with a session of its own of some 40 live events, and sends its next
request when it has the answer to the last: 70% compiles with one appended event, 20% appends of one
event, 10% reads of the newest events. Clients are spread over one service or two, on one Postgres.
The last point is far more clients than may be answered at a time: who is refused waits as long as
``Retry-After`` says, and those who are answered wait no longer than before.
"""

import asyncio
import json
import random
import sys
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from app.cli.service_process import running_service
from app.storage.migrate import migrate
from tests.benchmarks.asking import tidy_up
from tests.benchmarks.http_client import Answer, Connection
from tests.benchmarks.measuring import percentile, table
from tests.benchmarks.processes import busy, cpu_seconds, postmaster_of, saturated
from tests.benchmarks.running import own_server, parser_of, tell_machine, write_report
from tests.benchmarks.workload import AGENT, events

CLIENTS: Final = (1, 16, 64, 256)
#: Past what the services answer at a time.
TOO_MANY: Final = 768
FIRST_EVENTS: Final = 40
POLICY: Final = {"compaction": {"strategy": "none"}}
SECONDS: Final = 5.0
WARM_UP_S: Final = 1.0
#: What is held to: how much more two do than one, and what of the best rate is left past it.
LEAST_GAIN: Final = 1.3
LEAST_LEFT: Final = 0.6
#: And how much longer than with as many clients as are answered at a time the slowest answers take.
MOST_LONGER: Final = 3.0


@dataclass(slots=True)
class Tally:
    """What the clients of a point met."""

    samples_ms: list[float] = field(default_factory=list)
    refused: int = 0
    #: Refusals that did not say when to come back, and every other error.
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of clients on one number of services."""

    services: int
    clients: int
    per_s: float
    p50_ms: float
    p99_ms: float
    refused_per_s: float
    failures: int
    cores: dict[str, float]
    saturated: str


def main() -> int:
    """Measure, print, and tell by the exit code whether the promises hold."""
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[*CLIENTS, TOO_MANY])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    about = tell_machine()
    rows: list[Row] = []
    with own_server() as server:
        asyncio.run(migrate(server.url))
        for services in (1, 2):
            rows += _measure_services(
                Place(server.url, postmaster_of(server.data_dir)),
                services,
                sorted(arguments.clients),
                arguments.seconds,
            )
    print(_table(rows))
    write_report(
        arguments.json,
        machine=about,
        rows=[asdict(row) for row in rows],
    )
    return 0 if _holds(rows) else 1


@dataclass(frozen=True, slots=True)
class Place:
    """The Postgres of a run."""

    url: str
    postmaster: int


def _measure_services(place: Place, services: int, clients: list[int], seconds: float) -> list[Row]:
    settings = {"DATABASE_URL": place.url, "MIGRATE_ON_START": "false"}
    rows = []
    with ExitStack() as stack:
        urls = [stack.enter_context(running_service(settings)) for _ in range(services)]
        for count in clients:
            rows.append(asyncio.run(_measure(place, urls, count, seconds)))
            asyncio.run(tidy_up(place.url))
            print(f"measured {count} on {services}", file=sys.stderr, flush=True)
    return rows


async def _measure(place: Place, urls: list[str], clients: int, seconds: float) -> Row:
    tally = Tally()
    async with AsyncExitStack() as stack:
        agents = []
        for number in range(clients):
            connection = Connection.to(urls[number % len(urls)])
            await stack.enter_async_context(connection)
            agents.append(Agent(connection, f"s{len(urls)}-c{clients}-{number}", number))
        # A few at a time: making the sessions is not what is measured.
        gate = asyncio.Semaphore(16)
        await asyncio.gather(*(agent.begin(gate) for agent in agents))
        until_s = time.monotonic() + WARM_UP_S
        await asyncio.gather(*(agent.work(Tally(), until_s) for agent in agents))
        before, started_s = cpu_seconds(place.postmaster), time.monotonic()
        until_s = started_s + seconds
        await asyncio.gather(*(agent.work(tally, until_s) for agent in agents))
        wall_s, after = time.monotonic() - started_s, cpu_seconds(place.postmaster)
    cores = busy(before, after, wall_s)
    return Row(
        services=len(urls),
        clients=clients,
        per_s=len(tally.samples_ms) / wall_s,
        p50_ms=percentile(tally.samples_ms, 0.5),
        p99_ms=percentile(tally.samples_ms, 0.99),
        refused_per_s=tally.refused / wall_s,
        failures=len(tally.failures),
        cores=cores,
        saturated=saturated(cores, len(urls)),
    )


class Agent:
    """A client with a session."""

    def __init__(self, connection: Connection, session_id: str, seed: int) -> None:
        self._connection = connection
        self._path = f"/v1/sessions/{session_id}"
        self._dice = random.Random(seed)  # noqa: S311  dice
        self._next = 0

    async def begin(self, gate: asyncio.Semaphore) -> None:
        """Make the session, and let it be compiled once."""
        async with gate:
            create = {"app_name": "bench", "user_id": "user", "policy": POLICY}
            body = {"events": self._events(FIRST_EVENTS), "create": create}
            for path, asked in (("/events", body), ("/compile", self._compile())):
                answer = await self._post(path, asked)
                assert answer.status_code < 300, answer.content

    async def work(self, tally: Tally, until_s: float) -> None:
        """Send one request after the other until it is time."""
        while time.monotonic() < until_s:
            started_s = time.perf_counter()
            answer = await self._step()
            if answer.status_code < 300:
                tally.samples_ms.append((time.perf_counter() - started_s) * 1000)
            elif answer.status_code in (429, 503) and answer.retry_after_s is not None:
                tally.refused += 1
                # As clients do: not all at the same moment.
                pause_s = answer.retry_after_s * self._dice.uniform(0.5, 1.5)
                await asyncio.sleep(min(pause_s, max(0.0, until_s - time.monotonic())))
            else:
                tally.failures.append(answer.text)

    async def _step(self) -> Answer:
        kind = self._dice.random()
        if kind < 0.7:
            return await self._post("/compile", {**self._compile(), "append": self._events(1)})
        if kind < 0.9:
            return await self._post("/events", {"events": self._events(1)})
        return await self._connection.request("GET", f"{self._path}/events?last=20")

    def _compile(self) -> dict[str, Any]:
        return {"agent": AGENT, "format": "gemini"}

    def _events(self, count: int) -> list[dict[str, Any]]:
        first, self._next = self._next, self._next + count
        return list(events(first, count))

    async def _post(self, path: str, body: dict[str, Any]) -> Answer:
        return await self._connection.request("POST", self._path + path, json.dumps(body).encode())


def _table(rows: list[Row]) -> str:
    header = (
        "services", "clients", "answers/s", "p50 ms", "p99 ms", "refused/s", "failures",
        "cores: services", "postgres", "load", "saturated",
    )  # fmt: skip
    return table(
        header,
        [
            (
                str(row.services),
                str(row.clients),
                f"{row.per_s:.0f}",
                f"{row.p50_ms:.1f}",
                f"{row.p99_ms:.1f}",
                f"{row.refused_per_s:.0f}",
                str(row.failures),
                f"{row.cores['services']:.2f}",
                f"{row.cores['postgres']:.2f}",
                f"{row.cores['load']:.2f}",
                row.saturated,
            )
            for row in rows
        ],
    )


def _longer(rows: list[Row]) -> float:
    """Return how many times as long the slowest answers take with more clients than are answered
    at a time; 1 where that was not measured."""
    times = [1.0]
    for past in (row for row in rows if row.clients > CLIENTS[-1]):
        before = [r for r in rows if r.services == past.services and r.clients <= CLIENTS[-1]]
        if before:
            times.append(past.p99_ms / max(row.p99_ms for row in before))
    return max(times)


def _holds(rows: list[Row]) -> bool:
    """Tell, and print, whether the promises hold."""
    best = {count: max(r.per_s for r in rows if r.services == count) for count in (1, 2)}
    gain = best[2] / best[1]
    left = min(
        row.per_s / best[row.services]
        for row in rows
        if row.clients == max(each.clients for each in rows)
    )
    longer = _longer(rows)
    failures = sum(row.failures for row in rows)
    held = {
        f"two services do {LEAST_GAIN}x of one ({gain:.2f}x)": gain >= LEAST_GAIN,
        f"past saturation {LEAST_LEFT:.0%} of the best rate is left ({left:.0%})": (
            left >= LEAST_LEFT
        ),
        f"and the slowest answers take at most {MOST_LONGER:g} times as long ({longer:.1f}x)": (
            longer <= MOST_LONGER
        ),
        f"who is refused is told when to come back ({failures} were not)": failures == 0,
    }
    for what, does_hold in held.items():
        print(f"{what}: {'yes' if does_hold else 'NO'}")
    return all(held.values())


if __name__ == "__main__":
    sys.exit(main())
