"""Requests of `auto` stay below the trigger, however small the window and long the conversation."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.conftest import Api, call, client_of, model, response, settings_for, user

pytestmark = pytest.mark.commits

WAIT_MS = 60_000
PLACES = ("Oslo", "Lyon", "Porto", "Gdansk", "Turin")


@pytest.fixture
async def working(database_url: str) -> AsyncIterator[Api]:
    """The service with a worker in it."""
    async with client_of(settings_for(database_url, worker="embedded")) as client:
        yield Api(client)


def auto(window: int, **fields: Any) -> dict[str, Any]:
    return {"compaction": {"strategy": "auto", "context_window": window, **fields}}


def text(number: int, sentences: int) -> str:
    """Return what a user or a tool may say: names, numbers and now and then a rule."""
    said = [
        f"Parcel 58-{number:04d}-{one} weighs {one + 3} kg and goes to {PLACES[one % 5]}."
        for one in range(sentences)
    ]
    if number % 4 == 0:
        said.append(f"Never send parcel 58-{number:04d} by air.")
    return " ".join(said)


def turn(number: int, sentences: int) -> list[dict[str, Any]]:
    """Return what the agent did after the user asked: a call, its result, an answer."""
    events = [
        call("look", f"c{number}"),
        response("look", f"c{number}", {"said": text(number, sentences)}),
        model(text(number, sentences // 3 + 1)),
    ]
    return [{**event, "invocation_id": f"i{number}"} for event in events]


@pytest.mark.parametrize(
    ("window", "sentences", "turns"),
    [
        (4_000, 4, 60),
        (6_000, 4, 60),
        (8_000, 8, 60),
        (16_000, 20, 50),
        (32_000, 60, 40),
        (128_000, 400, 20),
    ],
)
async def test_every_compile_that_waits_is_below_the_trigger(
    working: Api, window: int, sentences: int, turns: int
) -> None:
    path = await working.session(policy=auto(window))
    totals: list[int] = []
    for number in range(1, turns + 1):
        asked = user(f"{text(number, 2)} Where is it?", invocation_id=f"i{number}")
        answer = await working.post(
            f"{path}/compile",
            {"append": [asked], "system": "You help.", "compaction_wait_ms": WAIT_MS},
        )
        totals.append(answer.json()["tokens"]["total"])
        await working.append(path, *turn(number, sentences))

    folds = (await working.get(f"{path}/compactions?limit=200")).json()["data"]
    assert len(folds) >= 3
    assert max(totals) < 0.85 * window
