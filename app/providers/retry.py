"""Try again where that may help: a bounded number of times, waiting longer each time.

    429, Retry-After: 2   ->  wait 2 s  ->  ask again
    503                   ->  wait about 0.5 s, then about 1 s
    400                   ->  never

A provider that names a time is waited for as long as it says, if that is not too long; then it is
the caller's turn to come back later. Waiting and chance come from outside, so that a test waits for
nothing.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from app.core.errors import ProviderError, ProviderRateLimitedError, ProviderTimeoutError

Answer = TypeVar("Answer")

#: Requests in all. The summarizer has another way, so there is no point in insisting.
DEFAULT_ATTEMPTS: Final = 3
FIRST_WAIT_S: Final = 0.5
#: No single wait is longer: a worker that waits holds a place that another session could have.
LONGEST_WAIT_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and after how long."""

    attempts: int = DEFAULT_ATTEMPTS
    first_wait_s: float = FIRST_WAIT_S
    longest_wait_s: float = LONGEST_WAIT_S
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    #: A number from 0 to 1: workers that failed together do not come back together.
    jitter: Callable[[], float] = random.random

    async def run(self, request: Callable[[], Awaitable[Answer]], *, timeout_s: float) -> Answer:
        """Return the answer of the first request that gets one.

        Args:
            request: may be called several times.
            timeout_s: of all requests and the waits between them.

        Raises:
            ProviderError: of the last request; of the first that will not get better.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._run(request)
        except TimeoutError as error:
            raise ProviderTimeoutError(f"no answer within {timeout_s:g} s") from error

    async def _run(self, request: Callable[[], Awaitable[Answer]]) -> Answer:
        for attempt in range(1, self.attempts):
            try:
                return await request()
            except ProviderError as error:
                wait_s = self._wait_s(error, attempt)
                if wait_s is None:
                    raise
            await self.sleep(wait_s)
        return await request()

    def _wait_s(self, error: ProviderError, attempt: int) -> float | None:
        """Return how long to wait before the next request, None for not asking again."""
        if not error.retryable:
            return None
        asked_s = error.retry_after_s if isinstance(error, ProviderRateLimitedError) else None
        if asked_s is not None:
            return asked_s if asked_s <= self.longest_wait_s else None
        wait_s = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (attempt - 1))
        return wait_s * (0.5 + self.jitter() / 2)
