"""A client that costs the machine little: one connection, one request at a time, HTTP/1.1."""

import asyncio
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    retry_after_s: float | None
    body: bytes


class Connection:
    """Keeps its connection open; opens it again where the server closed it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

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
            f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
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
        retry_after = headers.get("retry-after")
        return Answer(
            int(status_line.split(" ")[1]),
            None if retry_after is None else float(retry_after),
            content,
        )

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None
