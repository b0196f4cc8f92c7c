"""A TCP proxy that delays, holds back, cuts and refuses, in a thread of its own.

with TcpProxy("127.0.0.1", 5432) as proxy:
    proxy.port                       where it listens
    proxy.delay_s = 0.05             each piece of data arrives later, in both directions
    proxy.is_holding = True          nothing arrives any more, and nobody is told
    proxy.cut()                      every connection is reset; new ones are made
    proxy.refuse() / proxy.accept()  new connections are closed at once, until they are not
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

PIECE_BYTES: Final = 64 * 1024
POLL_S: Final = 0.01
#: SO_LINGER on, for no time: closing sends a reset instead of an end.
RESET: Final = struct.pack("ii", 1, 0)


class TcpProxy:
    """Stands before a server; its faults may be set at any time, from any thread."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0
        #: Connections that were made through it.
        self.connections = 0
        self.delay_s = 0.0
        self.is_holding = False
        self.is_refusing = False

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Reset every connection."""
        self._run(self._cut())

    def refuse(self) -> None:
        """Close new connections at once, and reset those that there are."""
        self.is_refusing = True
        self.cut()

    def accept(self) -> None:
        """Take new connections again."""
        self.is_refusing = False

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self) -> None:
        for writer in list(self._writers):
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self.is_refusing:
                return
            try:
                server_reader, server_writer = await asyncio.open_connection(*self._target)
            except OSError:
                return
            self.connections += 1
            self._writers.add(server_writer)
            try:
                # Either side's end is the other's.
                await asyncio.wait(
                    [
                        asyncio.ensure_future(self._pass_on(reader, server_writer)),
                        asyncio.ensure_future(self._pass_on(server_reader, writer)),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                self._writers.discard(server_writer)
                server_writer.close()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                while self.is_holding:  # noqa: ASYNC110  set from another thread
                    await asyncio.sleep(POLL_S)
                writer.write(data)
                await writer.drain()
