"""Hints that there is something new: within the process at once, to others through Redis.

Told topics are collected for a moment and published together, so that a burst of appends is one
message. Every process hears every hint and looks whether it concerns one of its own. A hint that is
lost costs the time until whoever waits looks for itself.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final
from uuid import uuid4

import structlog

from app.providers.redis import UNAVAILABLE, RedisLink, client_of

CHANNEL: Final = "foldline:hints"
#: How long hints are collected before they are published.
COLLECT_S: Final = 0.005
#: Most of one message; what is more is forgotten, as any hint may be.
MAX_COLLECTED: Final = 10_000
#: Without a message for so long the connection is tried, and given up after twice that.
SILENCE_S: Final = 5.0
SHORTEST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
#: A task that was told to end and goes on is told again after this.
ASK_AGAIN_S: Final = 0.01

Callback = Callable[[str | None], None]

log = structlog.get_logger(__name__)


class LocalHints:
    """:class:`app.ports.Hints` within this process."""

    def __init__(self) -> None:
        self._callbacks: list[Callback] = []

    @property
    def is_connected(self) -> bool:
        """Whether hints of other processes arrive: never."""
        return False

    def tell(self, topic: str) -> None:
        """Give a hint."""
        self.hear(topic)

    def listen(self, callback: Callback) -> Callable[[], None]:
        """Have every hint given to a function; return what ends that."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def hear(self, topic: str | None) -> None:
        """Give a hint to whoever listens here."""
        for callback in list(self._callbacks):
            callback(topic)


class RedisHints(LocalHints):
    """:class:`app.ports.Hints` to and from every process on one Redis."""

    def __init__(self, link: RedisLink) -> None:
        super().__init__()
        self._link = link
        self._own = uuid4().hex
        self._told: set[str] = set()
        self._has_told = asyncio.Event()
        self._is_subscribed = False

    @property
    def is_connected(self) -> bool:
        """Whether hints of other processes arrive, as far as it is known."""
        return self._is_subscribed

    def tell(self, topic: str) -> None:
        """Give a hint here, and to the others soon."""
        self.hear(topic)
        if len(self._told) < MAX_COLLECTED:
            self._told.add(topic)
            self._has_told.set()

    async def publish(self) -> None:
        """Publish what is told, for ever."""
        while True:
            await self._has_told.wait()
            await asyncio.sleep(COLLECT_S)
            self._has_told.clear()
            message = "\n".join([self._own, *self._told])
            self._told.clear()
            await self._link.run("publish", partial(_publish, message))

    async def subscribe(self) -> None:
        """Hear what others tell, for ever; connect again when the connection is lost."""
        pause_s = SHORTEST_PAUSE_S
        while True:
            client = client_of(self._link.url, timeout_s=None)
            try:
                async with client.pubsub() as pubsub:
                    async with asyncio.timeout(1.0):
                        await pubsub.subscribe(CHANNEL)
                    pause_s = SHORTEST_PAUSE_S
                    self._is_subscribed = True
                    # What was told before is lost to us.
                    self.hear(None)
                    await self._receive(pubsub)
            except UNAVAILABLE as error:
                self._link.meter.redis_failed("subscribe")
                if self._is_subscribed:
                    log.warning("hints_lost", error=type(error).__name__)
            finally:
                self._is_subscribed = False
                with suppress(*UNAVAILABLE):
                    await client.aclose()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _receive(self, pubsub: Any) -> None:  # noqa: ANN401  the library is untyped here
        is_asked = False
        while True:
            if not self._link.is_up:
                # Where nobody asks for anything, nothing else would tell that it is back.
                await self._link.answers()
            message = await pubsub.get_message(timeout=SILENCE_S)
            if message is None:
                if is_asked:
                    raise TimeoutError
                is_asked = True
                await pubsub.ping()
                continue
            is_asked = False
            if message["type"] == "message":
                own, *topics = message["data"].decode(errors="replace").split("\n")
                for topic in topics if own != self._own else ():
                    self.hear(topic)


async def _publish(message: str, client: Any) -> int:  # noqa: ANN401  the library is untyped here
    heard_by: int = await client.publish(CHANNEL, message)
    return heard_by


@asynccontextmanager
async def running(hints: RedisHints) -> AsyncIterator[None]:
    """Publish and hear hints beside the block."""
    tasks = [asyncio.create_task(hints.publish()), asyncio.create_task(hints.subscribe())]
    try:
        yield
    finally:
        # Again and again: the library sends with `asyncio.wait_for`, which in Python 3.11 swallows
        # a cancellation that comes together with what it waits for.
        while left := [task for task in tasks if not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=ASK_AGAIN_S)
