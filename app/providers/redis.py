"""Redis: asked with little patience, and not at all for a while after it failed.

Nothing is kept there that cannot be lost. A command takes 50 ms at most; when one fails, the next
ones fail at once until a trial, with growing pauses, succeeds again. So a Redis that is gone or
slow costs a request one wait now and then, and nothing else.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog
from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from app.ports import RedisMeter

T = TypeVar("T")

TIMEOUT_S: Final = 0.05
#: Pauses between trials while it is gone.
SHORTEST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0
#: Commands at a time; more wait within their own timeout.
CONNECTIONS: Final = 32
#: What is raised when it is not there, or not in time. RuntimeError is what uvloop says of writing
#: to a connection that was reset while it lay idle.
UNAVAILABLE: Final = (RedisError, OSError, TimeoutError, RuntimeError)

log = structlog.get_logger(__name__)


class RedisLink:
    """Commands to one Redis, behind a circuit breaker."""

    def __init__(
        self,
        url: str,
        meter: RedisMeter,
        *,
        timeout_s: float = TIMEOUT_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url: Final = url
        self.meter: Final = meter
        self._timeout_s = timeout_s
        self._monotonic_s = monotonic_s
        self._client = client_of(url, timeout_s=timeout_s)
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._closed_until_s = 0.0
        self._pause_s = SHORTEST_PAUSE_S

    @property
    def is_up(self) -> bool:
        """Whether the newest command was answered; true before the first."""
        return self._closed_until_s == 0.0

    async def run(self, op: str, command: Callable[["Redis"], Awaitable[T]]) -> T | None:
        """Run a command; None when Redis is not there, or did not answer in time.

        Args:
            op: what for, as its errors are counted.
            command: what to ask the client for.
        """
        if not self.is_up:
            now_s = self._monotonic_s()
            if now_s < self._closed_until_s:
                return None
            # This one tries; the others go on without.
            self._closed_until_s = now_s + self._pause_s
        try:
            async with asyncio.timeout(self._timeout_s), self._turns:
                answer = await command(self._client)
        except UNAVAILABLE as error:
            self._failed(op, error)
            return None
        if not self.is_up:
            log.info("redis_recovered")
        self._closed_until_s, self._pause_s = 0.0, SHORTEST_PAUSE_S
        return answer

    async def answers(self) -> bool:
        """Tell whether it answers now."""
        return await self.run("ping", lambda client: client.ping()) is not None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _failed(self, op: str, error: BaseException) -> None:
        self.meter.redis_failed(op)
        if self.is_up:
            # The text of an error may name the host, never the password.
            log.warning("redis_lost", error=type(error).__name__)
        else:
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        self._closed_until_s = self._monotonic_s() + self._pause_s


def client_of(url: str, *, timeout_s: float | None) -> "Redis":
    """Return a client that tries each command once.

    Args:
        url: ``redis://...`` or ``rediss://...``.
        timeout_s: of a command; None for a connection that waits for messages.
    """
    client: Redis = Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s or 1.0,
        retry=Retry(NoBackoff(), 0),
        client_name="foldline",
    )
    return client
