"""How many requests a key and its tenant may make in a time."""

import math
from dataclasses import dataclass

from app.core.errors import RateLimitedError
from app.core.limits import RateLimit
from app.ports import Principal, RateLimits, TakenRequest
from app.services.authenticate import ADMIN


@dataclass(frozen=True, slots=True)
class RateStanding:
    """Where a caller stands with the limit that is nearest."""

    limit: RateLimit
    remaining: int
    reset_s: int


class LimitRates:
    """Takes every request out of the bucket of its key, and out of that of its tenant."""

    def __init__(self, *, limits: RateLimits, default: RateLimit | None) -> None:
        """Take the limit of keys that have none of their own."""
        self._limits = limits
        self._default = default

    async def __call__(self, caller: Principal) -> RateStanding | None:
        """Return where the caller stands; None where nothing limits it.

        Raises:
            RateLimitedError: a bucket is empty.
        """
        # The way in that must not be closed by anyone's load.
        if caller.key_id == ADMIN:
            return None
        buckets = [
            (f"key:{caller.key_id}", caller.rate_limit or self._default),
            (f"tenant:{caller.tenant_id}", caller.tenant_rate_limit),
        ]
        standings = [
            await self._take(bucket, limit) for bucket, limit in buckets if limit is not None
        ]
        return min(standings, key=lambda standing: standing.remaining, default=None)

    async def _take(self, bucket: str, limit: RateLimit) -> RateStanding:
        taken: TakenRequest = await self._limits.take(bucket, limit)
        if not taken.is_allowed:
            retry_after_s = max(1, math.ceil(taken.retry_after_s))
            raise RateLimitedError(
                limit=limit.text, requests=limit.requests, retry_after_s=retry_after_s
            )
        return RateStanding(limit, taken.remaining, math.ceil(taken.reset_s))
