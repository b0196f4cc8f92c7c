"""Appends that follow the head in one statement: the same log as by the long way, and how often the
database is asked."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import asyncpg
import httpx
import pytest
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.pool import Pool

from app.services.follow_head import Followed, FollowHead
from tests.api.conftest import Api, call, client_of, model, response, settings_for, user

#: What two sessions that were appended the same may differ in.
OWN: Final = {"session_uid", "session_id", "incarnation", "created_at", "updated_at", "expires_at"}
#: What the service makes up for a marker: its id, and when it came.
_MADE: Final = {"raw", "body_hash", "event_at"}
TABLES: Final = {
    "events": "seq",
    "lanes": "lane",
    "calls": "seq, part_index",
    "answers": "call_seq, call_part, answer_seq",
    "sessions": "session_uid",
}
PROGRAMS: Final = 8
STEPS: Final = 30


async def _never(*_: object, **__: object) -> Followed | None:
    """Stand in for a way that never suffices."""
    return None


@pytest.fixture
async def replicas(database_url: str) -> AsyncIterator[list[Api]]:
    async with (
        client_of(settings_for(database_url)) as first,
        client_of(settings_for(database_url)) as second,
    ):
        yield [Api(first), Api(second)]


def _program(seed: int) -> list[dict[str, Any]]:
    """Return bodies of appends that an agent, its tools and its users might send."""
    dice = random.Random(seed)  # noqa: S311  dice
    bodies: list[dict[str, Any]] = []
    number = 0
    for _ in range(STEPS):
        events = []
        for _ in range(dice.choice((1, 1, 1, 2, 5))):
            number += 1
            events.append(_event(dice, number))
        body: dict[str, Any] = {"events": events}
        if bodies and dice.random() < 0.1:
            body = {"events": [*dice.choice(bodies)["events"], *events]}
        bodies.append(body)
    return bodies


def _event(dice: random.Random, number: int) -> dict[str, Any]:
    call_id = f"c{dice.randint(1, 6)}"
    branch = dice.choice(("", "", "", "root", "root.sub", f"root.tool@{call_id}"))
    match dice.choice(("user", "model", "model", "call", "call", "result", "result", "compiled")):
        case "user":
            event = user(f"question {number}")
        case "model":
            event = model(f"answer {number} " * 3)
        case "compiled":
            event = {**model(f"late {number}"), "compiled_seq": max(0, number // 3 - 2)}
        case "call":
            event = call("track", call_id)
        case _:
            event = response("track", call_id)
    event = {**event, "timestamp": float(number)}
    if dice.random() < 0.9:
        event["id"] = f"e{number}"
    if dice.random() < 0.8:
        event["invocation_id"] = f"i{number // dice.choice((4, 4, 4, 9))}"
    if branch:
        event["branch"] = branch
    if dice.random() < 0.05:
        event["actions"] = {"state_delta": {"k": number}}
    if dice.random() < 0.03:
        event["actions"] = {"end_of_agent": True}
    return event


async def _play(api: Api, path: str, seed: int, others: list[Api]) -> list[Any]:
    created = {"app_name": "shop", "user_id": "ada", "policy": _POLICIES[seed % len(_POLICIES)]}
    assert (await api.call("PUT", path, created)).status_code == 201
    dice = random.Random(seed)  # noqa: S311  dice
    told: list[Any] = []
    for body in _program(seed):
        # Now and then it is another replica that is asked.
        asked = dice.choice([api, api, api, *others])
        answer = await asked.call("POST", f"{path}/events", body)
        told.append(_told(answer))
        if dice.random() < 0.08:
            pin = {"seqs": [dice.randint(1, 4)]}
            await asked.call("POST", f"{path}/pins", pin)
    return told


_POLICIES: Final = (
    {"compaction": {"strategy": "none"}},
    {"compaction": {"strategy": "interval", "compaction_interval": 3, "overlap_size": 1}},
    {"compaction": {"strategy": "auto", "context_window": 200}},
)


def _told(answer: httpx.Response) -> Any:
    body = answer.json()
    if not answer.is_success:
        return answer.status_code, body["code"], body.get("errors")
    compaction = {name: value for name, value in body["compaction"].items() if name != "job_id"}
    seqs = [(each["seq"], each["duplicate"]) for each in body["appended"]]
    return answer.status_code, body["head_seq"], seqs, body["warnings"], compaction


async def _stored(connection: "asyncpg.Connection[Any]", session_id: str) -> dict[str, Any]:
    """Return all that the log has of a session, but what differs between sessions."""
    uid = await connection.fetchval(
        "SELECT session_uid FROM sessions WHERE session_id = $1", session_id
    )
    found: dict[str, Any] = {}
    for table, order in TABLES.items():
        rows = await connection.fetch(
            f"SELECT * FROM {table} WHERE session_uid = $1 ORDER BY {order}",  # noqa: S608
            uid,
        )
        found[table] = [
            {
                name: value
                for name, value in row.items()
                if name not in OWN | (_MADE if row.get("marker") else set())
                and not (name == "id" and str(value).count("-") == 4)
            }
            for row in rows
        ]
    return found


@pytest.mark.parametrize("seed", range(PROGRAMS))
async def test_following_the_head_leaves_the_log_that_the_long_way_leaves(
    database_url: str, replicas: list[Api], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = f"short-{seed}", f"long-{seed}"

    told = await _play(replicas[0], f"/v1/sessions/{short}", seed, replicas[1:])
    monkeypatch.setattr(FollowHead, "__call__", _never)
    expected = await _play(replicas[0], f"/v1/sessions/{long}", seed, replicas[1:])

    assert told == expected
    connection = await asyncpg.connect(database_url)
    try:
        found, wanted = await _stored(connection, short), await _stored(connection, long)
        for table in TABLES:
            for each, other in zip(found[table], wanted[table], strict=True):
                assert each == other
    finally:
        await connection.close()
        # Their jobs would be done by another test's worker.
        for session_id in (short, long):
            await replicas[0].call("DELETE", f"/v1/sessions/{session_id}")


@pytest.mark.parametrize("seed", range(PROGRAMS))
async def test_writers_at_the_same_time_leave_the_log_that_one_after_another_leaves(
    database_url: str, replicas: list[Api], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = f"at-once-{seed}", f"in-turn-{seed}"
    dice = random.Random(seed)  # noqa: S311  dice
    created = {"app_name": "shop", "user_id": "ada", "policy": _POLICIES[seed % len(_POLICIES)]}
    for session_id in (short, long):
        await replicas[0].call("PUT", f"/v1/sessions/{session_id}", created)
    program = _program(seed)

    async def append(body: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        asked = dice.choice([replicas[0]] * 5 + replicas[1:])
        return body, _told(await asked.call("POST", f"/v1/sessions/{short}/events", body))

    told: list[tuple[dict[str, Any], Any]] = []
    while program:
        writers = dice.choice((2, 5, 12))
        told += await asyncio.gather(*map(append, program[:writers]))
        del program[:writers]
    # What changed nothing may have come whenever: a repeat, or what is refused.
    stored = [(body, said) for body, said in told if said[0] == 201 and _first_seq(said)]
    stored.sort(key=lambda each: _first_seq(each[1]))
    monkeypatch.setattr(FollowHead, "__call__", _never)
    for body, said in stored:
        answer = await replicas[0].call("POST", f"/v1/sessions/{long}/events", body)
        assert _told(answer) == said

    connection = await asyncpg.connect(database_url)
    try:
        assert await _stored(connection, short) == await _stored(connection, long)
    finally:
        await connection.close()
        for session_id in (short, long):
            await replicas[0].call("DELETE", f"/v1/sessions/{session_id}")


def _first_seq(said: Any) -> int:
    """Return the seq of the first event that an append has stored, 0 without one."""
    return min((seq for seq, is_duplicate in said[2] if not is_duplicate), default=0)


async def test_one_that_is_refused_refuses_nobody_else(replicas: list[Api]) -> None:
    path = await replicas[0].session()
    events = [{**model(f"{n}"), "id": f"m{n}"} for n in range(10)]
    events[4]["compiled_seq"] = 1_000
    answers = await asyncio.gather(
        *(replicas[0].call("POST", f"{path}/events", {"events": [event]}) for event in events)
    )

    assert [answer.status_code for answer in answers] == [201] * 4 + [422] + [201] * 5
    assert answers[4].json()["errors"][0]["pointer"] == "/events/0/compiled_seq"
    seqs = [answer.json()["appended"][0]["seq"] for answer in answers if answer.is_success]
    assert sorted(seqs) == list(range(1, 10))


async def test_an_event_that_many_send_at_once_is_stored_once(replicas: list[Api]) -> None:
    path = await replicas[0].session()
    event = {**model("once"), "id": "m1"}
    # All others wait for the first, and come together.
    first = {"events": [model("before")]}
    bodies = [first, *[{"events": [event]}, {"events": [event, model("beside")]}] * 5]
    answers = await asyncio.gather(
        *(replicas[0].call("POST", f"{path}/events", body) for body in bodies)
    )

    assert {answer.status_code for answer in answers} == {201}
    told = [answer.json()["appended"] for answer in answers[1:]]
    assert {each[0]["seq"] for each in told} == {2}
    assert sum(not each[0]["duplicate"] for each in told) == 1
    assert sorted(each[1]["seq"] for each in told if len(each) == 2) == [3, 4, 5, 6, 7]


async def test_writers_that_wait_ask_the_database_together(database_url: str) -> None:
    with asked_of_the_database() as sent:
        async with client_of(settings_for(database_url)) as client:
            api, path = Api(client), "/v1/sessions/asked-together"
            await api.call("PUT", path, {"app_name": "shop", "user_id": "ada"})
            await _count(sent, api, path, user("hi"))
            sent.clear()
            answers = await asyncio.gather(
                *(api.call("POST", f"{path}/events", {"events": [model(f"{n}")]}) for n in range(9))
            )
            await asyncio.sleep(0.01)

    assert [answer.status_code for answer in answers] == [201] * 9
    inserts = [text for text in sent if "INSERT INTO events" in text]
    assert len(inserts) == 2


async def test_an_invocation_is_complete_when_its_calls_are_answered(
    database_url: str, replicas: list[Api]
) -> None:
    path = await replicas[0].session()
    connection = await asyncpg.connect(database_url)
    complete: list[tuple[bool, int]] = []
    try:
        for event in (
            user("where is it?"),
            call("track", "c1"),
            call("track", "c2"),
            model("I am looking."),
            response("track", "c1"),
            model("Still."),
            response("track", "c2"),
            model("It is held."),
        ):
            await replicas[0].append(path, {**event, "invocation_id": "i1"})
            row = await connection.fetchrow(
                "SELECT is_invocation_complete, invocations_new FROM sessions"
                " WHERE session_id = $1",
                path.rpartition("/")[2],
            )
            assert row is not None
            complete.append((row["is_invocation_complete"], row["invocations_new"]))
    finally:
        await connection.close()

    # What is said while a call waits ends nothing.
    assert complete == [(False, 0)] * 7 + [(True, 1)]


@contextmanager
def asked_of_the_database() -> Iterator[list[str]]:
    """Give the texts of what connections that are opened in the block are sent."""
    sent: list[str] = []

    def listen(dbapi_connection: Any, *_: object) -> None:
        dbapi_connection.driver_connection.add_query_logger(lambda told: sent.append(told.query))

    sqlalchemy_event.listen(Pool, "connect", listen)
    try:
        yield sent
    finally:
        sqlalchemy_event.remove(Pool, "connect", listen)


async def _count(sent: list[str], api: Api, path: str, *events: dict[str, Any]) -> int:
    """Return how many times the database is asked while a batch is appended."""
    # Loggers are told by the loop, a moment later.
    await asyncio.sleep(0)
    sent.clear()
    answer = await api.call("POST", f"{path}/events", {"events": list(events)})
    assert answer.status_code == 201, answer.text
    await asyncio.sleep(0.01)
    return len(sent)


async def test_an_append_asks_the_database_once(database_url: str) -> None:
    with asked_of_the_database() as sent:
        async with client_of(settings_for(database_url, db_pool_size=1)) as client:
            api, path = Api(client), "/v1/sessions/asked-once"
            for made in (path, f"{path}-before"):
                await api.call("PUT", made, {"app_name": "shop", "user_id": "ada"})
            # The driver asks about types once a connection, and quotas are asked for now and then.
            await _count(sent, api, f"{path}-before", user("hi"))
            first = await _count(sent, api, path, user("hi"))

            plain = [
                await _count(sent, api, path, {**event, "invocation_id": f"i{number}"})
                for number in range(3)
                for event in (user("where is it?"), call("track", f"c{number}"))
            ]
            batch = [{**model(f"{n}"), "id": f"m{n}"} for n in range(100)]
            of_batch = await _count(sent, api, path, *batch)
            # The model has spoken since it called, and a result comes without a call.
            late = await _count(sent, api, path, response("track", "c2"))
            orphan = await _count(sent, api, path, response("track", "nobody"))
            called = await _count(sent, api, path, call("track", "c7"), call("track", "c8"))
            answering = [
                await _count(sent, api, path, response("track", call_id))
                for call_id in ("c8", "c7")
            ]
            again = await _count(sent, api, path, response("track", "c8"))
            final = await _count(sent, api, path, model("It is held."))
            named = {**user("once"), "id": "once"}
            await _count(sent, api, path, named)
            repeated = await _count(sent, api, path, named)

    # Nothing was known of where the log stands.
    assert first == 2
    assert plain == [1] * 6
    assert of_batch == 1
    assert called == 1
    # Calls that wait are known; which others there are, and their lanes, is looked up first.
    assert answering == [1, 1]
    assert (late, orphan, again) == (3, 3, 3)
    # It does not follow, though the log stands where it was thought to: nothing is tried again.
    # What is left is the lock, and what is stored under the id, in a transaction.
    assert repeated == 2 + 4
    assert final == 1
