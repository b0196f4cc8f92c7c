"""Token buckets: in the process, in Redis, and in the process again when Redis goes."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from app.core.errors import InvalidInputError
from app.core.limits import RateLimit, parse_rate_limit
from app.providers import rate_limits
from app.providers.rate_limits import LocalBuckets, RedisBuckets
from app.providers.redis import RedisLink
from tests.fakes.counting_redis import CountingRedisMeter
from tests.redis_server import RedisServer

SLOW = RateLimit(3, 3600)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def link(redis_server: RedisServer) -> AsyncIterator[RedisLink]:
    link = RedisLink(redis_server.url, CountingRedisMeter(), timeout_s=2.0)
    yield link
    await link.close()


async def test_a_bucket_gives_what_it_holds_and_fills_evenly() -> None:
    clock = Clock()
    buckets = LocalBuckets(clock)
    limit = RateLimit(60, 60)
    taken = [await buckets.take("b", limit) for _ in range(61)]

    assert [each.is_allowed for each in taken] == [True] * 60 + [False]
    assert (taken[0].remaining, taken[59].remaining, taken[60].remaining) == (59, 0, 0)
    assert taken[60].retry_after_s == pytest.approx(1.0)
    clock.now_s += 1.0
    assert (await buckets.take("b", limit)).is_allowed
    assert not (await buckets.take("b", limit)).is_allowed
    clock.now_s += 3600
    assert (await buckets.take("b", limit)).remaining == 59
    assert (await buckets.take("another", limit)).remaining == 59


async def test_a_process_forgets_the_bucket_that_was_used_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limits, "MAX_BUCKETS", 2)
    buckets = LocalBuckets(Clock())
    for name in ("a", "b", "a", "c"):
        await buckets.take(name, SLOW)

    assert (await buckets.take("a", SLOW)).remaining == 0
    assert (await buckets.take("b", SLOW)).remaining == 2


async def test_replicas_share_a_bucket_in_redis(redis_server: RedisServer) -> None:
    links = [RedisLink(redis_server.url, CountingRedisMeter(), timeout_s=2.0) for _ in range(2)]
    replicas = [RedisBuckets(link, LocalBuckets()) for link in links]
    taken = [await replicas[number % 2].take("shared", SLOW) for number in range(4)]
    for link in links:
        await link.close()

    assert [each.is_allowed for each in taken] == [True, True, True, False]
    assert [each.remaining for each in taken] == [2, 1, 0, 0]
    assert taken[3].retry_after_s == pytest.approx(1200, rel=0.01)


async def test_a_bucket_in_redis_fills_by_its_own_clock_and_goes_away(link: RedisLink) -> None:
    buckets = RedisBuckets(link, LocalBuckets())
    quick = RateLimit(10, 1)
    allowed = [(await buckets.take("quick", quick)).is_allowed for _ in range(30)]
    assert 10 <= sum(allowed) < 30
    await asyncio.sleep(0.3)
    assert (await buckets.take("quick", quick)).is_allowed
    left_ms = await link.run("ping", lambda client: client.pttl("foldline:rate:quick"))
    assert left_ms is not None
    assert 0 < left_ms <= 2000


async def test_without_redis_each_process_counts_for_itself(redis_server: RedisServer) -> None:
    meter = CountingRedisMeter()
    link = RedisLink(redis_server.url, meter)
    buckets = RedisBuckets(link, LocalBuckets())
    await buckets.take("b", SLOW)
    redis_server.kill()
    began_s = time.monotonic()
    allowed = [(await buckets.take("b", SLOW)).is_allowed for _ in range(200)]
    took_s = time.monotonic() - began_s
    await link.close()

    assert allowed == [True] * 3 + [False] * 197
    # One wait of 50 ms at most; the breaker spares the rest.
    assert took_s < 0.5
    assert meter.errors == {"rate_limit": 1}


@pytest.mark.parametrize(("text", "limit"), [("100/s", (100, 1)), ("600/min", (600, 60))])
def test_a_limit_reads_as_it_is_written(text: str, limit: tuple[int, int]) -> None:
    assert parse_rate_limit(text) == RateLimit(*limit)
    assert parse_rate_limit(text).text == text


@pytest.mark.parametrize("text", ["", "off", "10", "10/d", "-1/s", "0/s", "1.5/s", "9/s ", "1e9/s"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_rate_limit(text, "/rate_limit")
    assert caught.value.pointer == "/rate_limit"
