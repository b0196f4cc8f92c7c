"""A bound on the requests that are answered at a time."""

import asyncio

import pytest

from app.core.errors import FoldlineError
from app.services.append_events import Append, AppendEvents, AppendResult
from tests.api.conftest import Api, client_of, settings_for, user


async def test_what_comes_beyond_the_bound_is_told_to_come_later(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = asyncio.Semaphore(0), asyncio.Event()
    append = AppendEvents.__call__

    async def held(self: AppendEvents, asked: Append) -> AppendResult:
        begun.release()
        await may_end.wait()
        return await append(self, asked)

    async with client_of(settings_for(database_url, max_requests=2)) as client:
        api = Api(client)
        path = await api.session()
        monkeypatch.setattr(AppendEvents, "__call__", held)
        body = {"events": [user("hi")]}
        working = [asyncio.create_task(api.call("POST", f"{path}/events", body)) for _ in range(2)]
        for _ in working:
            await begun.acquire()

        refused = await api.call("POST", f"{path}/events", body)
        alive = [(await client.get(probe)).status_code for probe in ("/livez", "/readyz")]
        may_end.set()
        answers = [(await task).status_code for task in working]
        later = await api.call("POST", f"{path}/events", body)

    assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
    assert refused.headers["Retry-After"] == "1"
    assert (refused.json()["limit_name"], refused.json()["limit"]) == ("max_requests", 2)
    assert alive == [200, 200]
    assert answers == [201, 201]
    # Nothing was done of what was refused, and its place is free again.
    assert later.json()["head_seq"] == 3


async def test_a_request_that_fails_gives_its_place_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: AppendEvents, asked: Append) -> AppendResult:
        del self, asked
        raise FoldlineError

    async with client_of(settings_for(database_url, max_requests=1)) as client:
        api = Api(client)
        path = await api.session()
        monkeypatch.setattr(AppendEvents, "__call__", fails)

        statuses = [
            (await api.call("POST", f"{path}/events", {"events": [user("hi")]})).status_code
            for _ in range(3)
        ]

    assert statuses == [500] * 3
