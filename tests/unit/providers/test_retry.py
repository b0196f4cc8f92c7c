"""What is tried again, how often, and after how long."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from app.core.errors import (
    ProviderError,
    ProviderRateLimitedError,
    ProviderRejectedError,
    ProviderTimeoutError,
    ProviderUnavailableError,
)
from app.providers.json_api import retry_after_s
from app.providers.retry import Retries


class _Asked:
    """Requests that fail as scripted, and the waits between them."""

    def __init__(self, *errors: ProviderError) -> None:
        self._errors = list(errors)
        self.waits: list[float] = []
        self.requests = 0

    async def request(self) -> str:
        self.requests += 1
        if self._errors:
            raise self._errors.pop(0)
        return "answer"

    async def sleep(self, wait_s: float) -> None:
        self.waits.append(wait_s)

    def retries(self, jitter: Callable[[], float] = lambda: 1.0) -> Retries:
        return Retries(attempts=3, sleep=self.sleep, jitter=jitter)

    async def run(self) -> str:
        return await self.retries().run(self.request, timeout_s=5)


async def test_waits_double_between_requests() -> None:
    asked = _Asked(ProviderUnavailableError(), ProviderTimeoutError())

    assert await asked.run() == "answer"
    assert asked.waits == [0.5, 1.0]


async def test_chance_takes_at_most_half_of_a_wait() -> None:
    asked = _Asked(ProviderUnavailableError())

    await asked.retries(jitter=lambda: 0.0).run(asked.request, timeout_s=5)

    assert asked.waits == [0.25]


async def test_requests_are_bounded_and_the_last_error_is_told() -> None:
    asked = _Asked(*(ProviderUnavailableError(str(number)) for number in range(9)))

    with pytest.raises(ProviderUnavailableError, match="2"):
        await asked.run()
    assert asked.requests == 3


async def test_a_refusal_is_not_tried_again() -> None:
    asked = _Asked(ProviderRejectedError())

    with pytest.raises(ProviderRejectedError):
        await asked.run()
    assert asked.requests == 1


async def test_a_provider_that_names_a_time_is_waited_for_just_so_long() -> None:
    asked = _Asked(ProviderRateLimitedError(retry_after_s=7.0))

    await asked.run()

    assert asked.waits == [7.0]


async def test_a_wait_that_is_too_long_is_the_callers_turn() -> None:
    asked = _Asked(ProviderRateLimitedError(retry_after_s=600.0))

    with pytest.raises(ProviderRateLimitedError) as caught:
        await asked.run()
    assert (asked.requests, caught.value.retry_after_s) == (1, 600.0)


async def test_the_time_limit_holds_over_all_requests() -> None:
    async def request() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(ProviderTimeoutError):
        await Retries().run(request, timeout_s=0.01)


@pytest.mark.parametrize(
    ("value", "date", "expected"),
    [
        ("3", "", 3.0),
        ("0.5", "", 0.5),
        ("-4", "", 0.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "", None),
        ("soon", "", None),
        ("", "", None),
    ],
)
def test_retry_after_is_read_in_seconds_and_by_the_providers_own_clock(
    value: str, date: str, expected: float | None
) -> None:
    assert retry_after_s(httpx.Headers({"retry-after": value, "date": date})) == expected
