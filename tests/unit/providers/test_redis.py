"""Redis behind its breaker: what it costs when it is there, gone or slow."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from app.providers.hints import COLLECT_S, RedisHints, running
from app.providers.redis import LONGEST_PAUSE_S, SHORTEST_PAUSE_S, RedisLink
from tests.fakes.counting_redis import CountingRedisMeter
from tests.redis_server import RedisServer

PATIENCE_S = 20.0


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  whatever it is has no event
            await asyncio.sleep(0.01)


async def test_a_redis_that_is_frozen_costs_one_short_wait(redis_server: RedisServer) -> None:
    clock, meter = Clock(), CountingRedisMeter()
    link = RedisLink(redis_server.url, meter, monotonic_s=clock)
    assert await link.answers()
    redis_server.freeze()
    began_s = time.monotonic()
    answers = [await link.answers() for _ in range(100)]
    took_s = time.monotonic() - began_s

    assert answers == [False] * 100
    assert took_s < 0.5
    assert (meter.errors, link.is_up) == ({"ping": 1}, False)
    redis_server.thaw()
    assert not await link.answers()
    clock.now_s += SHORTEST_PAUSE_S
    assert await link.answers()
    assert link.is_up
    await link.close()


async def test_trials_become_rarer_and_only_one_tries_at_a_time(redis_server: RedisServer) -> None:
    clock, meter = Clock(), CountingRedisMeter()
    link = RedisLink(redis_server.url, meter, monotonic_s=clock)
    redis_server.kill()
    for _ in range(1000):
        clock.now_s += 0.1
        await asyncio.gather(*[link.answers() for _ in range(3)])
    await link.close()

    # Of 3,000 commands in 100 s: at 0.5, 1, 2, 4, 8 and then every 10 s.
    assert 8 <= meter.errors["ping"] <= 100 / LONGEST_PAUSE_S + 10


async def test_a_restarted_redis_is_used_again(redis_server: RedisServer) -> None:
    clock = Clock()
    link = RedisLink(redis_server.url, CountingRedisMeter(), timeout_s=2.0, monotonic_s=clock)
    redis_server.kill()
    assert not await link.answers()
    redis_server.start()
    clock.now_s += SHORTEST_PAUSE_S
    assert await link.answers()
    await link.close()


@pytest.fixture
async def two(redis_server: RedisServer) -> AsyncIterator[tuple[RedisHints, RedisHints]]:
    """Two processes' hints."""
    links = [RedisLink(redis_server.url, CountingRedisMeter(), timeout_s=2.0) for _ in range(2)]
    first, second = (RedisHints(link) for link in links)
    async with running(first), running(second):
        await eventually(lambda: first.is_connected and second.is_connected)
        yield first, second
    for link in links:
        await link.close()


async def test_a_hint_is_heard_here_at_once_and_elsewhere_soon(
    two: tuple[RedisHints, RedisHints],
) -> None:
    first, second = two
    here: list[str | None] = []
    there: list[str | None] = []
    end = first.listen(here.append)
    second.listen(there.append)

    first.tell("a")
    assert here == ["a"]
    for number in range(100):
        first.tell(str(number))
    await eventually(lambda: len(there) == 101)
    assert set(there) == {"a", *map(str, range(100))}
    # One's own are not heard twice.
    assert len(here) == 101
    end()
    first.tell("b")
    assert len(here) == 101


async def test_hints_come_again_after_redis_was_gone(
    two: tuple[RedisHints, RedisHints], redis_server: RedisServer
) -> None:
    first, second = two
    there: list[str | None] = []
    second.listen(there.append)
    redis_server.kill()
    await eventually(lambda: not second.is_connected)
    first.tell("lost")
    redis_server.start()
    await eventually(lambda: first.is_connected and second.is_connected)

    # Something may have been missed: whoever listens is told to look.
    assert None in there

    def is_heard() -> bool:
        first.tell("found")
        return "found" in there

    await eventually(is_heard)


async def test_a_redis_that_is_back_is_known_to_be_though_nobody_asks(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.providers.hints.SILENCE_S", 0.1)
    meter = CountingRedisMeter()
    link = RedisLink(redis_server.url, meter, timeout_s=2.0)
    async with running(RedisHints(link)):
        redis_server.kill()
        assert not await link.answers()
        redis_server.start()
        await eventually(lambda: link.is_up)
    await link.close()

    assert meter.errors["ping"] >= 1
    assert meter.errors["subscribe"] >= 1


async def test_it_ends_even_while_something_is_being_published(redis_server: RedisServer) -> None:
    """Many of these tries meet the moment in which the library swallows a cancellation."""
    link = RedisLink(redis_server.url, CountingRedisMeter(), timeout_s=2.0)
    async with asyncio.timeout(PATIENCE_S):
        for number in range(120):
            hints = RedisHints(link)
            async with running(hints):
                hints.tell("a")
                await asyncio.sleep(COLLECT_S + number % 40 * 0.00005)
    await link.close()


async def test_telling_never_waits(redis_server: RedisServer) -> None:
    redis_server.freeze()
    link = RedisLink(redis_server.url, CountingRedisMeter())
    hints = RedisHints(link)
    began_s = time.monotonic()
    for number in range(50_000):
        hints.tell(str(number))
    assert time.monotonic() - began_s < 5
    redis_server.thaw()
    await link.close()
