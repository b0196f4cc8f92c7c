"""Staged folds: used from the first append after a pause that outlived the provider's cache."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from app.core.ids import session_uid
from app.core.lanes import ANYONE
from app.ports import CompiledRequest, SessionKey
from app.services.remember_compiles import WRITE_AFTER_S
from app.storage.database import PgDatabase
from app.storage.pool import create_engine
from app.storage.token_reports import PgTokenReports
from tests.api.conftest import Api, call, model, response, user
from tests.log_driver import LOG

Age = Callable[[str, int], Awaitable[None]]
Asked = Callable[[str, int | None], Awaitable[None]]


def key_of(path: str) -> SessionKey:
    """Return the key of a session of the default tenant."""
    session_id = path.rpartition("/")[2]
    return SessionKey("default", session_id, session_uid("default", session_id))


@pytest.fixture
def age(database_url: str) -> Age:
    """Make everything of a session so many seconds older."""

    async def make_older(path: str, seconds: int) -> None:
        # What compiles remember is written a moment after their answers.
        await asyncio.sleep(3 * WRITE_AFTER_S)
        connection = await asyncpg.connect(database_url)
        try:
            # The log's own trigger forbids it, as it should.
            await connection.execute("SET session_replication_role = replica")
            for table, column in (("events", "created_at"), ("compiled_requests", "compiled_at")):
                await connection.execute(
                    f"UPDATE {table} SET {column} = {column} - $2 * interval '1 second'"  # noqa: S608
                    " WHERE session_uid = $1",
                    key_of(path).uid,
                    seconds,
                )
        finally:
            await connection.close()

    return make_older


@pytest.fixture
def asked(database_url: str) -> Asked:
    """Note that a session was compiled now, for a cache that lives so long."""

    async def remember(path: str, ttl_s: int | None) -> None:
        engine = create_engine(database_url, size=1)
        request = CompiledRequest(
            fingerprint="f", model="m", tokens=1, cached_tokens=1, ttl_s=ttl_s
        )
        async with PgDatabase(engine).transaction() as connection:
            read = await LOG.read_live(connection, key_of(path), ANYONE)
            assert read is not None
            await PgTokenReports().remember(connection, read.key, read.incarnation, request)
        await engine.dispose()

    return remember


async def staged_session(api: Api) -> tuple[str, int]:
    """Make a session with a reply and a staged fold of its first two events."""
    path = await api.session()
    await api.append(path, user("one"), model("two"), user("three"), model("four"))
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "s", "activation": "staged"}
    answer = await api.post(f"{path}/summaries", body)
    assert answer.json()["status"] == "staged"
    seq: int = answer.json()["seq"]
    return path, seq


async def status(api: Api, path: str, seq: int) -> str:
    """Return what became of a fold."""
    found: str = (await api.get(f"{path}/compactions/{seq}")).json()["status"]
    return found


async def compiled(api: Api, path: str, **fields: Any) -> dict[str, Any]:
    """Compile for Anthropic and return the answer."""
    body = {"agent": "agent", "format": "anthropic", "model": "claude-opus-5", **fields}
    answer = await api.post(f"{path}/compile", body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_an_append_after_a_long_pause_activates_it(api: Api, age: Age) -> None:
    path, seq = await staged_session(api)
    await age(path, 301)
    answer = await api.append(path, user("back again"))
    assert answer["appended"][0]["seq"] == seq + 1
    assert answer["head_seq"] == seq + 2
    assert await status(api, path, seq) == "active"
    marker = (await api.get(f"{path}/events/{seq + 2}")).json()
    assert marker["actions"] == {"activation": {"target_seq": seq}}
    # Once is enough.
    await age(path, 301)
    assert (await api.append(path, user("and again")))["head_seq"] == seq + 3


async def test_an_append_while_the_cache_is_warm_leaves_it_staged(api: Api, age: Age) -> None:
    path, seq = await staged_session(api)
    await age(path, 200)
    answer = await api.append(path, user("quick"))
    assert answer["head_seq"] == seq + 1
    assert await status(api, path, seq) == "staged"


@pytest.mark.parametrize(
    "case",
    [(300, 200, "staged"), (300, 400, "active"), (3_600, 400, "staged"), (None, 400, "active")],
)
async def test_what_was_compiled_since_counts_by_the_rules_of_its_model(
    api: Api, age: Age, asked: Asked, case: tuple[int | None, int, str]
) -> None:
    ttl_s, since_s, expected = case
    path, seq = await staged_session(api)
    await age(path, 10_000)
    await asked(path, ttl_s)
    await age(path, since_s)
    await api.append(path, user("next"))
    assert await status(api, path, seq) == expected


async def test_events_of_a_compile_activate_it_before_they_are_compiled(api: Api, age: Age) -> None:
    path, seq = await staged_session(api)
    await compiled(api, path)
    await age(path, 100_000)
    found = await compiled(api, path, append=[user("back again")])
    assert found["request"]["messages"][0]["content"][0]["text"] == "s"
    assert found["compiled_seq"] == seq + 2


@pytest.mark.parametrize(
    "events", [[model("slow")], [user("x"), model("slow")], [call("f", "c")]], ids=str
)
async def test_a_reply_that_took_long_activates_nothing(
    api: Api, age: Age, events: list[dict[str, Any]]
) -> None:
    path, seq = await staged_session(api)
    await age(path, 1_000)
    await api.append(path, *events)
    assert await status(api, path, seq) == "staged"


async def test_a_result_that_took_long_activates_it(api: Api, age: Age) -> None:
    path, seq = await staged_session(api)
    await api.append(path, call("f", "c"))
    await age(path, 1_000)
    await api.append(path, response("f", "c"))
    assert await status(api, path, seq) == "active"


async def test_repeats_and_markers_activate_nothing(api: Api, age: Age) -> None:
    path, seq = await staged_session(api)
    await api.append(path, user("once", id="e"))
    await age(path, 1_000)
    again = await api.append(path, user("once", id="e"))
    assert again["appended"][0]["duplicate"]
    await api.post(f"{path}/pins", {"seqs": [4]})
    assert await status(api, path, seq) == "staged"


async def test_several_staged_folds_are_activated_together(api: Api, age: Age) -> None:
    path, first = await staged_session(api)
    body = {"covers": {"from_seq": 3, "to_seq": 4}, "content": "s2", "activation": "staged"}
    second = (await api.post(f"{path}/summaries", body)).json()["seq"]
    undone = (await api.post(f"{path}/summaries", {**body, "content": "s3"})).json()["seq"]
    await api.post(f"{path}/compactions/{undone}/undo")
    await age(path, 1_000)
    await api.append(path, user("back again"))
    found = [await status(api, path, seq) for seq in (first, second, undone)]
    assert found == ["active", "active", "undone"]


async def test_a_session_in_which_nothing_was_ever_asked_has_no_cache(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one"), user("two"))
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "s", "activation": "staged"}
    seq = (await api.post(f"{path}/summaries", body)).json()["seq"]
    await api.append(path, user("three"))
    assert await status(api, path, seq) == "active"


async def test_an_activation_can_be_undone_and_is_made_again_when_it_is_cold(
    api: Api, age: Age
) -> None:
    path, seq = await staged_session(api)
    activation = (await api.post(f"{path}/compactions/{seq}/activate")).json()["seq"]
    await api.post(f"{path}/compactions/{activation}/undo")
    assert await status(api, path, seq) == "staged"
    await age(path, 1_000)
    await api.append(path, user("back again"))
    assert await status(api, path, seq) == "active"
