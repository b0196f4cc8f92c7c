"""Compiles that go on from earlier ones: the same bytes as from a service that keeps nothing.

Two replicas with kept compiles and one without serve the same sessions.
"""

import random
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest

from app.storage import event_log, live_read
from app.storage.connection import fetch
from tests.api.conftest import Api, call, client_of, model, response, settings_for, user

#: What two answers of the same moment may differ in.
TIMES: Final = ("timing_ms",)
BODIES: Final = (
    {"agent": "agent", "format": "gemini"},
    {"agent": "agent", "format": "anthropic", "model": "claude-sonnet-4-5", "system": "Be brief."},
    {"agent": "agent", "format": "openai_chat", "tools": [{"name": "t", "parameters": {}}]},
    {"agent": "agent", "format": "openai_responses", "budget": {"max_input_tokens": 400}},
    {"format": "bedrock", "model": "anthropic.claude-sonnet-4-5-v1:0"},
    {"agent": "other", "format": "native"},
)


KINDS = (
    *("user", "model", "model", "call", "call", "result", "late"),
    *("fold", "fold_all", "rewind", "pin", "elide"),
)


@pytest.fixture
async def replicas(database_url: str) -> AsyncIterator[list[httpx.AsyncClient]]:
    async with (
        client_of(settings_for(database_url)) as first,
        client_of(settings_for(database_url)) as second,
        client_of(settings_for(database_url, compile_cache_bytes=0)) as forgetful,
    ):
        yield [first, second, forgetful]


def told(answer: httpx.Response) -> dict[str, Any]:
    """Return what was answered, but for times."""
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return {name: value for name, value in body.items() if name not in TIMES}


def differing(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of two answers that differ."""
    names = first.keys() | second.keys()
    return {
        name: (first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    }


class Agent:
    """Does this and that in a session, as its dice say."""

    def __init__(self, api: Api, path: str, seed: int) -> None:
        self._api = api
        self._path = path
        self._dice = random.Random(seed)  # noqa: S311  dice
        self._number = 0
        self.head_seq = 0

    async def step(self, answered: dict[str, Any]) -> None:
        """Append something, or mark something."""
        self._number += 1
        name = f"c{self._number % 3}"
        reply = {
            "compiled_fingerprint": answered["fingerprint"],
            "compiled_seq": answered["compiled_seq"],
            "usage_metadata": {"prompt_token_count": 50 + self._number},
        }
        match self._dice.choice(KINDS):
            case "user":
                await self._append(user(f"question {self._number}"))
            case "model":
                await self._append({**model(f"answer {self._number} " * 15), **reply})
            case "call":
                await self._append({**call("t", name), **reply})
            case "result":
                await self._append(response("t", name, {"n": self._number}))
            case "late":
                await self._append(user("meanwhile"))
                await self._append({**model("to what came before"), **reply})
            case "fold" if self.head_seq > 6:
                covers = {"from_seq": 1, "to_seq": self.head_seq // 2}
                await self._mark("summaries", {"covers": covers, "content": "so far"})
            case "fold_all" if self.head_seq > 6:
                covers = {"from_seq": 1, "to_seq": self.head_seq}
                await self._mark("summaries", {"covers": covers, "content": "all of it"})
            case "rewind" if self.head_seq > 6:
                await self._mark("rewind", {"to_seq": self.head_seq - self._dice.randint(2, 4)})
            case "pin" if self.head_seq:
                await self._mark("pins", {"seqs": [self._dice.randint(1, self.head_seq)]})
            case "elide" if self.head_seq:
                await self._mark("elisions", {"seqs": [self._dice.randint(1, self.head_seq)]})
            case _:
                await self._append(user("nothing else"))

    async def _append(self, event: dict[str, Any]) -> None:
        self.head_seq = (await self._api.append(self._path, event))["head_seq"]

    async def _mark(self, kind: str, body: dict[str, Any]) -> None:
        # Refused ones are of no matter here.
        await self._api.post(f"{self._path}/{kind}", body)


@pytest.mark.parametrize("seed", range(6))
async def test_every_replica_gives_the_bytes_of_one_that_keeps_nothing(
    replicas: list[httpx.AsyncClient], seed: int
) -> None:
    apis = [Api(client) for client in replicas]
    path = await apis[0].session()
    body = BODIES[seed % len(BODIES)]
    agent = Agent(apis[1], path, seed)
    await apis[0].append(path, user("hello"))
    for number in range(40):
        # The first replica sees every state, the second some.
        wanted = [apis[0], apis[2]] if number % 3 else apis
        # The first to see a report learns from it, and what is learnt is an input of the next.
        await apis[2].post(f"{path}/compile", body)
        answers = [told(await api.post(f"{path}/compile", body)) for api in wanted]
        for answer in answers:
            assert differing(answer, answers[-1]) == {}, number
        await agent.step(answers[-1])


async def test_a_session_made_again_under_its_id_shares_nothing(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a"), model("b"), user("c"), model("d"), user("secret"))
    await api.post(f"{path}/compile", BODIES[0])
    await api.delete(path)
    await api.put(path, {"app_name": "app", "user_id": "user"})
    await api.append(path, user("e"), model("f"), user("g"), model("h"), user("i"))

    answer = await api.post(f"{path}/compile", BODIES[0])

    texts = [
        part["text"] for turn in answer.json()["request"]["contents"] for part in turn["parts"]
    ]
    assert texts == ["e", "f", "g", "h", "i"]


async def test_a_compile_reads_what_is_new_in_one_statement(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await api.session()
    for number in range(20):
        await api.append(path, user(f"question {number}"), model(f"answer {number}"))
    await api.post(f"{path}/compile", BODIES[0])
    statements: list[tuple[str, int]] = []

    async def counted(connection: Any, sql: Any, *args: Any) -> Any:
        rows = await fetch(connection, sql, *args)
        statements.append((sql, sum(row["row_kind"] == "e" for row in rows)))
        return rows

    monkeypatch.setattr(live_read, "fetch", counted)
    monkeypatch.setattr(event_log, "fetch", counted)
    await api.append(path, user("one more"))
    statements.clear()

    answer = await api.post(f"{path}/compile", BODIES[0])

    assert [sql for sql, _ in statements] == [live_read.READ_LIVE]
    # The newest reply and what follows it.
    assert statements[0][1] == 2
    assert len(answer.json()["request"]["contents"]) == 41
