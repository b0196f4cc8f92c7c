"""Clients that cost the machine little, so that what is measured is the service: one connection,
one request at a time, HTTP/1.1. httpx takes 0.4 to 0.6 ms a request, a third of a small append."""

import asyncio
import json
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Final, Self
from urllib.parse import urlsplit

JSON: Final = "application/json"
TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status_code: int
    retry_after_s: float | None
    content: bytes

    @property
    def is_success(self) -> bool:
        """It is no error."""
        return self.status_code < 400

    @property
    def text(self) -> str:
        """The body."""
        return self.content.decode()

    def json(self) -> Any:
        """Return what the body says."""
        return json.loads(self.content)


class Client:
    """Waits for each answer; the standard library's client."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.port = parts.port or 80
        self._connection = HTTPConnection(parts.hostname or "", self.port, timeout=TIMEOUT_S)

    def get(self, path: str) -> Answer:
        """Ask for what is there."""
        return self.request("GET", path)

    def put(self, path: str, body: Any) -> Answer:
        """Put it there."""
        return self.request("PUT", path, body)

    def post(self, path: str, body: Any) -> Answer:
        """Have it done."""
        return self.request("POST", path, body)

    def patch(self, path: str, body: Any) -> Answer:
        """Have it changed."""
        return self.request("PATCH", path, body)

    def request(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request, with the body as JSON where there is one, and return its answer."""
        content = None if body is None else json.dumps(body).encode()
        is_used = self._connection.sock is not None
        try:
            return self._request(method, path, content)
        except ConnectionError:
            if not is_used:
                raise
        # The server has closed it, as it was idle.
        self._connection.close()
        return self._request(method, path, content)

    def _request(self, method: str, path: str, content: bytes | None) -> Answer:
        self._connection.request(method, path, content, {"Content-Type": JSON})
        answer = self._connection.getresponse()
        return Answer(answer.status, _seconds(answer.headers["Retry-After"]), answer.read())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Connection:
    """Waits beside others. Keeps its connection open, and opens it again where the server closed
    it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @classmethod
    def to(cls, url: str) -> Self:
        """Return a connection to where a URL points."""
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or 80)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def request(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Send a request and return its answer; over a new connection, if the server has closed the
        one that was idle."""
        is_used = self._writer is not None
        try:
            return await self._request(method, path, body)
        except (asyncio.IncompleteReadError, ConnectionError):
            # An answer that broke off would be asked for twice: what is appended has an id.
            if not is_used:
                raise
        self._close()
        return await self._request(method, path, body)

    async def _request(self, method: str, path: str, body: bytes) -> Answer:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._address)
        assert self._reader is not None
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {JSON}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = head.split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        content = await self._reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self._close()
        return Answer(int(status_line.split(" ")[1]), _seconds(headers.get("retry-after")), content)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


def _seconds(retry_after: str | None) -> float | None:
    return None if retry_after is None else float(retry_after)
