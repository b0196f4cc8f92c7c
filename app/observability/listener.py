"""A listener of its own for scrapes, so that the port of the API need not show them.

It runs in a thread: a scrape is answered while the event loop is busy, which is when it is wanted.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

from app.observability.metrics import Metrics

PATH: Final = "/metrics"
#: Of a connection that says nothing.
IDLE_TIMEOUT_S: Final = 30.0


@contextmanager
def listening(metrics: Metrics, listener: socket.socket) -> Iterator[None]:
    """Answer scrapes on a bound socket while the block runs; the socket is closed at its end."""
    server = _Server(metrics, listener)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A scraper that went away must not keep the process from ending.
    block_on_close = False

    def __init__(self, metrics: Metrics, listener: socket.socket) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        # The one that was made is of the wrong family, perhaps, and was never bound.
        self.socket.close()
        self.socket = listener
        self.metrics = metrics
        self.server_activate()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_S

    def do_GET(self) -> None:
        if urlsplit(self.path).path != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        text, content_type = self.server.metrics.scrape(self.headers.get("Accept", ""))
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def version_string(self) -> str:
        """Say no more than the API's own answers do."""
        return "foldline"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the base names it
        """Log nothing: a scrape every few seconds says nothing."""
