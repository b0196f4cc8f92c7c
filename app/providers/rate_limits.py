"""Token buckets: in Redis, where all replicas share them, else in this process.

A bucket holds as many requests as its limit names and fills evenly. In Redis one script takes a
request at a time, by Redis's own clock. While Redis is not there, and where there is none, each
process has buckets of its own: then a caller gets the limit from every replica.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from app.core.limits import RateLimit
from app.ports import TakenRequest
from app.providers.redis import RedisLink

#: Buckets that a process remembers; the one used longest ago is forgotten, and is full then.
MAX_BUCKETS: Final = 10_000
PREFIX: Final = "foldline:rate:"

# KEYS[1]: the bucket. ARGV: requests, seconds. The key lives until the bucket would be full.
_TAKE: Final = """
local now = redis.call('TIME')
local now_s = tonumber(now[1]) + tonumber(now[2]) / 1000000
local most, per_s = tonumber(ARGV[1]), tonumber(ARGV[2])
local kept = redis.call('HMGET', KEYS[1], 'left', 'at')
local left, at = tonumber(kept[1]) or most, tonumber(kept[2]) or now_s
left = math.min(most, left + math.max(0, now_s - at) * most / per_s)
local allowed = 0
if left >= 1 then
    left = left - 1
    allowed = 1
end
redis.call('HSET', KEYS[1], 'left', tostring(left), 'at', string.format('%.6f', now_s))
redis.call('PEXPIRE', KEYS[1], math.ceil(per_s * 1000) + 1000)
return {allowed, tostring(left)}
"""


class LocalBuckets:
    """:class:`app.ports.RateLimits` in this process."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def take(self, bucket: str, limit: RateLimit) -> TakenRequest:
        """Take a request out of a bucket, if there is one."""
        now_s = self._monotonic_s()
        left, at_s = self._buckets.pop(bucket, (float(limit.requests), now_s))
        left = min(limit.requests, left + (now_s - at_s) * limit.requests / limit.per_s)
        is_allowed = left >= 1
        if is_allowed:
            left -= 1
        self._buckets[bucket] = (left, now_s)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return _taken(limit, left, is_allowed=is_allowed)


class RedisBuckets:
    """:class:`app.ports.RateLimits` in Redis, and in this process while Redis is not there."""

    def __init__(self, link: RedisLink, local: LocalBuckets) -> None:
        self._link = link
        self._local = local

    async def take(self, bucket: str, limit: RateLimit) -> TakenRequest:
        """Take a request out of a bucket, if there is one."""

        async def run(client: Any) -> Any:  # noqa: ANN401  the library's answers are untyped
            return await client.eval(_TAKE, 1, PREFIX + bucket, limit.requests, limit.per_s)

        answer = await self._link.run("rate_limit", run)
        if answer is None:
            return await self._local.take(bucket, limit)
        return _taken(limit, float(answer[1]), is_allowed=bool(answer[0]))


def _taken(limit: RateLimit, left: float, *, is_allowed: bool) -> TakenRequest:
    s_each = limit.per_s / limit.requests
    return TakenRequest(
        is_allowed=is_allowed,
        remaining=int(left),
        reset_s=(limit.requests - left) * s_each,
        retry_after_s=0.0 if is_allowed else (1 - left) * s_each,
    )
