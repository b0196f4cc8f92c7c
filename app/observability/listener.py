"""A listener of its own for scrapes, so that the port of the API need not show them.

It runs in a thread: a scrape is answered while the event loop is busy, which is when it is wanted.
That thread has a loop of its own, so that scrapers that send or take nothing cost a socket each and
no thread; a connection has its time, and of too many the oldest is dropped.
"""

import asyncio
import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from typing import Final
from urllib.parse import urlsplit

import structlog

from app.observability.metrics import Metrics

PATH: Final = "/metrics"
#: For a connection in all, from its first byte to the last one that it takes.
TIMEOUT_S: Final = 10.0
MAX_CONNECTIONS: Final = 100
MAX_HEAD_BYTES: Final = 16 * 1024

log = structlog.get_logger(__name__)


@contextmanager
def listening(metrics: Metrics, listener: socket.socket) -> Iterator[None]:
    """Answer scrapes on a bound socket while the block runs; the socket is closed at its end."""
    scrapes = _Scrapes(metrics)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="metrics", daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(scrapes.begin(listener), loop).result()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(scrapes.end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Scrapes:
    """Answers one request on each connection."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        #: The oldest first.
        self._connections: dict[asyncio.Task[None], None] = {}

    async def begin(self, listener: socket.socket) -> asyncio.Server:
        """Listen."""
        return await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD_BYTES)

    async def end(self, server: asyncio.Server) -> None:
        """Listen no longer. A scraper that went away must not keep the process from ending."""
        server.close()
        tasks = [*self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.cancel()
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections[task] = None
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # What a scraper does wrong is nothing that its log would not tell better than ours.
            with suppress(OSError, EOFError, asyncio.LimitOverrunError):
                async with asyncio.timeout(TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()

    def _answer(self, head: bytes) -> bytes:
        line, _, fields = head.partition(b"\r\n")
        try:
            method, target, _ = line.decode("latin-1").split(" ")
            accept = parse_headers(io.BytesIO(fields)).get("Accept", "")
        except (ValueError, HTTPException):
            return _whole(HTTPStatus.BAD_REQUEST)
        if urlsplit(target).path != PATH:
            return _whole(HTTPStatus.NOT_FOUND)
        if method != "GET":
            return _whole(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET")
        try:
            text, content_type = self._metrics.scrape(accept)
        except Exception:
            log.exception("scrape_failed")
            return _whole(HTTPStatus.INTERNAL_SERVER_ERROR)
        return _whole(HTTPStatus.OK, f"Content-Type: {content_type}", body=text)


def _whole(status: HTTPStatus, *fields: str, body: bytes = b"") -> bytes:
    """Return an answer, after which the connection is closed."""
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *fields,
        f"Content-Length: {len(body)}",
        "Connection: close",
        "\r\n",
    ]
    return "\r\n".join(lines).encode() + body
