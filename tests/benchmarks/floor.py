"""The floors: what any service in Python on this pool and server has to pay for the same bytes.

    warm    one read of the new rows by primary key, and an answer of as many bytes
    cold    the live events joined to one JSON text in Postgres, and passed through

A process of its own with the service's pool, HTTP server and event loop, and none of its code in
between. Run by the benchmark: python -m tests.benchmarks.floor URL, which prints its port.
"""

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, LiteralString

import uvicorn
from fastapi import FastAPI, Request, Response

from app.core.ids import session_uid
from app.storage.connection import fetch, fetch_one
from app.storage.database import PgDatabase
from app.storage.pool import create_engine

#: What the answer of the warm floor holds beside what it has read.
FILLING: Final = b" " * 2_000_000

_NEW_ROWS: Final[LiteralString] = """
    SELECT e.seq, e.derived, e.resolved
    FROM events AS e
    WHERE e.session_uid = $1 AND e.seq > $2
    ORDER BY e.seq
"""
_LIVE_TEXT: Final[LiteralString] = """
    SELECT '[' || string_agg(e.raw, ',' ORDER BY e.seq) || ']' AS body
    FROM events AS e
    WHERE e.session_uid = $1 AND e.seq > $2
"""


def create_floor(url: str) -> FastAPI:
    """Return the application."""
    engine = create_engine(url, size=10)
    database = PgDatabase(engine)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan, openapi_url=None)

    @app.post("/warm")
    async def warm(request: Request) -> Response:
        asked = await request.json()
        uid = session_uid("default", asked["session"])
        async with database.connection() as connection:
            rows = await fetch(connection, _NEW_ROWS, uid, asked["after_seq"])
        body = "".join(row["derived"] for row in rows).encode()
        return Response(FILLING[: asked["bytes"] - len(body)] + body)

    @app.post("/cold")
    async def cold(request: Request) -> Response:
        asked = await request.json()
        uid = session_uid("default", asked["session"])
        async with database.connection() as connection:
            row = await fetch_one(connection, _LIVE_TEXT, uid, asked["after_seq"])
        assert row is not None
        return Response(row["body"].encode(), media_type="application/json")

    return app


def main() -> int:
    """Serve until told to stop."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        create_floor(sys.argv[1]), loop="uvloop", http="httptools", ws="none", log_level="warning"
    )
    uvicorn.Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
