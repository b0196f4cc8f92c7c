"""A session's events as server-sent events, for as long as the client listens.

    retry: 1500                          how long to wait before connecting again

    id: 12                               the seq: what Last-Event-ID names
    event: append                        or compaction, activation, rewind
    data: {"id": "e12", "seq": 12, ...}  the event, as it is listed

    : heartbeat                          when nothing came for a while

    event: bye                           the last word: connect again, or not
    data: {"reason": "draining"}

What a client does not take is not read for it: sending waits. A client that takes nothing for a
minute is left; it may connect again and goes on where it was.
"""

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog
from fastapi import Response
from starlette.types import Message, Receive, Scope, Send

from app.api.answers import etag_of
from app.api.schemas.events import event_text
from app.core.canonical import canonical_json
from app.core.errors import AccessError, StorageError
from app.observability.failures import step_failed
from app.services.read_events import EventView
from app.services.stream_events import Follower, StreamEndedError

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT_S: Final = 15.0
#: How long a client may take nothing.
SEND_TIMEOUT_S: Final = 60.0
#: What is still being sent when the stream ends has so long.
LAST_WORD_S: Final = 1.0
#: Bounds of what clients are told to wait: they shall not all come back together.
RETRY_MS: Final = (500, 3000)
#: Kinds of markers that are told by their name; everything else is ``append``.
NAMED: Final = frozenset({"compaction", "activation", "rewind"})
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_RANDOM: Final = random.SystemRandom()

#: Raises when the caller may not listen any more.
Check = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)


class EventStream(Response):
    """Sends what a follower is given, until it ends or the client is gone."""

    media_type = MEDIA_TYPE

    def __init__(self, follower: Follower, check: Check) -> None:
        super().__init__()
        self._follower = follower
        self._check = check
        del self.headers["content-length"]
        self.headers["Cache-Control"] = "no-store"
        # Proxies of nginx's kind would collect the answer otherwise.
        self.headers["X-Accel-Buffering"] = "no"
        self.headers["ETag"] = etag_of(follower.head_seq)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until it ends or the client is gone, then let everything go."""
        del scope
        writing = asyncio.create_task(self._write(send))
        gone = asyncio.create_task(_until_gone(receive))
        ended = asyncio.create_task(self._follower.ended())
        tasks = {writing, gone, ended}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ended in done and writing not in done:
                await asyncio.wait({writing, gone}, timeout=LAST_WORD_S)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._follower.close()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, TimeoutError | OSError):
                raise result

    async def _write(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await _send(send, _retry() + "\n")
        checked_s = time.monotonic()
        while True:
            try:
                views = await self._follower.next(HEARTBEAT_S)
            except StreamEndedError as error:
                await _send(send, bye(str(error)), is_last=True)
                return
            await _send(send, frames(views) or ": heartbeat\n\n")
            if time.monotonic() - checked_s >= HEARTBEAT_S:
                checked_s = time.monotonic()
                if refused := await self._refused():
                    await _send(send, bye(refused), is_last=True)
                    return

    async def _refused(self) -> str | None:
        """Return why the caller may not listen any more, None when it may."""
        try:
            await self._check()
        except AccessError as error:
            return error.code
        except StorageError as error:
            # It cannot be looked up: it is asked again with the next heartbeat.
            step_failed(log, "listener_not_checked", error)
        return None


async def _until_gone(receive: Receive) -> None:
    message: Message = {}
    while message.get("type") != "http.disconnect":
        message = await receive()


async def _send(send: Send, text: str, *, is_last: bool = False) -> None:
    body = text.encode(errors="replace")
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await send({"type": "http.response.body", "body": body, "more_body": not is_last})


def frames(views: Sequence[EventView]) -> str:
    """Return events as they are sent."""
    return "".join(_frame(view) for view in views)


def _frame(view: EventView) -> str:
    kind = view.logged.kind
    name = kind if kind in NAMED else "append"
    # A body may hold line ends between its members, where JSON takes any white space.
    data = "".join(f"data: {line}\n" for line in _LINE_END.split(event_text(view)))
    return f"id: {view.logged.seq}\nevent: {name}\n{data}\n"


def bye(reason: str) -> str:
    """Return the last word of a stream."""
    return f"event: bye\ndata: {canonical_json({'reason': reason})}\n{_retry()}\n"


def _retry() -> str:
    return f"retry: {_RANDOM.randint(*RETRY_MS)}\n"
