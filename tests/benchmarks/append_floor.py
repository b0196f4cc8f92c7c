"""The service with the floor of an append beside it: the same rows, and nothing else.

    POST /floor/{batch}/{sid}    body: as of an append; inserts the batch's rows at the head
    POST /least/{batch}/{sid}    the same, and parses the body and counts the events' tokens
    GET  /stall                  how long the event loop stood still at most since, in ms

The first reads the body and throws it away. The second does what no service can leave out that
answers how many tokens each event has, with the fastest libraries there are. The rows are those
that the service itself makes of the batch, made once; each time only seqs and ids are other ones.
They are inserted under the lock of the session's row, in one statement on a connection of the
service's own pool.

Run by the benchmark: python -m tests.benchmarks.append_floor URL, which prints its port.
"""

import asyncio
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, LiteralString

import orjson
from fastapi import FastAPI, Request, Response
from pydantic import SecretStr

from app.cli.serve import serve, settle_process
from app.core.canonical import canonical_json
from app.core.ids import session_uid
from app.core.json_text import RawItem
from app.core.resolve import Facts
from app.formats import CONVERTERS
from app.main import create_app
from app.observability.logging import configure_logging
from app.providers.clock import SystemClock
from app.providers.tokenizer import Tokenizer
from app.services.prepare_events import EventPreparer, SentBatch
from app.services.resolve_batch import resolve_batch
from app.settings import Settings
from app.storage import insert_events
from app.storage.codec import DERIVED_VERSION, SCHEMA_VERSION
from app.storage.connection import fetch_one
from app.storage.database import PgDatabase
from tests.benchmarks.workload import events

BATCHES: Final = (1, 100, 500)

_FLOOR: Final[LiteralString] = """
    WITH moved AS (
        UPDATE sessions
        SET head_seq = head_seq + $23, updated_at = statement_timestamp()
        WHERE session_uid = $1
        RETURNING head_seq
    ),
    inserted AS (
        INSERT INTO events (
            session_uid, seq, id, kind, lane, author, invocation_id, event_at, tokens, raw,
            source_format, item_part, body_hash, derived, derived_version, resolved, owner_seqs,
            requested_ids, marker, section_lanes, state_delta, cache_record, schema_version
        )
        SELECT
            $1, moved.head_seq - $23 + e.seq, 'f' || (moved.head_seq - $23 + e.seq), e.kind,
            e.lane, e.author, e.invocation_id, e.event_at, e.tokens, e.raw, e.source_format,
            e.item_part, e.body_hash, e.derived, $2, e.resolved, e.owner_seqs::bigint[],
            e.requested_ids::json, e.marker, e.section_lanes::integer[], e.state_delta::json, NULL,
            $3
        FROM moved
        CROSS JOIN unnest(
            $4::bigint[], $5::text[], $6::text[], $7::integer[], $8::text[], $9::text[],
            $10::double precision[], $11::integer[], $12::text[], $13::text[], $14::integer[],
            $15::bytea[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[],
            $21::text[], $22::text[]
        ) AS e (
            seq, id, kind, lane, author, invocation_id, event_at, tokens, raw, source_format,
            item_part, body_hash, derived, resolved, owner_seqs, requested_ids, marker,
            section_lanes, state_delta
        )
    )
    SELECT head_seq
    FROM moved
"""


class LoopWatch:
    """Wakes every millisecond, and notes by how much it came too late, and how much of that the
    process itself was busy: on a busy machine the rest is others'."""

    PAUSE_S: Final = 0.001

    def __init__(self) -> None:
        self._longest_s = self._longest_own_s = 0.0
        self._due_s = self._cpu_s = 0.0

    def wake(self) -> None:
        """Note how late it is, and wake again."""
        loop = asyncio.get_running_loop()
        now_s, cpu_s = loop.time(), time.process_time()
        if self._due_s:
            late_s = now_s - self._due_s
            self._longest_s = max(self._longest_s, late_s)
            self._longest_own_s = max(self._longest_own_s, min(late_s, cpu_s - self._cpu_s))
        self._due_s, self._cpu_s = now_s + self.PAUSE_S, cpu_s
        loop.call_at(self._due_s, self.wake)

    def longest_ms(self) -> dict[str, float]:
        """Return the longest delays since it was last asked for."""
        told = {"all": self._longest_s * 1000, "own": self._longest_own_s * 1000}
        self._longest_s = self._longest_own_s = 0.0
        return told


def add_watch(app: FastAPI) -> None:
    """Give the application the route that tells of the loop; the first request starts it."""
    watch = LoopWatch()
    is_awake = False

    @app.get("/stall")
    async def stall() -> dict[str, float]:
        nonlocal is_awake
        if not is_awake:
            is_awake = True
            watch.wake()
        return watch.longest_ms()


def add_floor(app: FastAPI) -> None:
    """Give the application the route."""
    columns: dict[int, list[Any]] = {}
    count = Tokenizer().count

    # Before all others: nothing of the service's own routes is in between.
    @app.post("/floor/{batch}/{sid}")
    async def floor(request: Request, batch: int, sid: str) -> Response:
        await request.body()
        return await insert(request, batch, sid)

    @app.post("/least/{batch}/{sid}")
    async def least(request: Request, batch: int, sid: str) -> Response:
        for sent in orjson.loads(await request.body())["events"]:
            sum(count(text) for part in sent["content"]["parts"] for text in _texts(part))
        return await insert(request, batch, sid)

    async def insert(request: Request, batch: int, sid: str) -> Response:
        if batch not in columns:
            columns[batch] = await _columns_of(batch)
        database: PgDatabase = request.app.state.services.append_events._database  # noqa: SLF001
        async with database.connection() as connection:
            row = await fetch_one(
                connection,
                _FLOOR,
                session_uid("default", sid),
                DERIVED_VERSION,
                SCHEMA_VERSION,
                *columns[batch],
                batch,
            )
        assert row is not None
        return Response(b"%d" % row["head_seq"])


def _texts(part: dict[str, Any]) -> Iterator[str]:
    """Yield what is counted of a part of the workload."""
    for kind, value in part.items():
        if kind == "text":
            yield value
        else:
            yield value["name"]
            yield orjson.dumps(value.get("args") or value["response"]).decode()


async def _columns_of(batch: int) -> list[Any]:
    """Return the columns that the service itself would insert, by column."""
    preparer = EventPreparer(converters=CONVERTERS, tokens=Tokenizer())
    items = [RawItem(event, canonical_json(event)) for event in events(0, batch)]
    prepared, _ = await preparer.prepare(SentBatch(items=items), now=SystemClock().now())
    facts = Facts()
    rows = resolve_batch(facts, prepared, Tokenizer().count)
    return list(zip(*[insert_events._event_row(row, facts) for row in rows], strict=True))  # noqa: SLF001


def main() -> int:
    """Serve until told to stop."""
    settings = Settings.model_validate(
        {
            "database_url": SecretStr(sys.argv[1]),
            "auth": "off",
            "worker": "off",
        }
    )
    configure_logging(level="error", line_format="json")
    app = create_app(settings)
    add_floor(app)
    add_watch(app)
    settle_process()
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    return serve(app, listener, grace_s=5)


if __name__ == "__main__":
    sys.exit(main())
