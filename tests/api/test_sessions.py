"""Sessions, policies and keys over HTTP."""

from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

from app import revision
from tests.api.conftest import Api, client_of, key_for, model, settings_for, user

NEW = {"app_name": "app", "user_id": "user"}


async def test_put_creates_once_and_then_gets(api: Api) -> None:
    path = f"/v1/sessions/{uuid4().hex}"
    # A user of its own: others' states are looked at whole.
    new = {**NEW, "user_id": "one-with-state"}
    body = {**new, "state": {"k": 1, "user:n": "x"}, "metadata": {"m": "1"}, "ttl_s": 60}
    first = await api.put(path, body)
    assert (first.status_code, first.headers["etag"]) == (201, '"0"')
    second = await api.put(path, new)
    assert second.status_code == 200
    session = second.json()
    assert session == (await api.get(path)).json()
    assert session["state"]["k"] == 1
    assert session["state"]["user:n"] == "x"
    assert session["metadata"] == {"m": "1"}
    assert session["ttl_s"] == 60
    assert session["stats"] == {
        "events": 0,
        "live_events": 0,
        "tokens_raw": 0,
        "tokens_live": 0,
        "compactions": 0,
    }


async def test_if_none_match_creates_only(api: Api) -> None:
    path = f"/v1/sessions/{uuid4().hex}"
    headers = {"If-None-Match": "*"}
    assert (await api.put(path, NEW, headers=headers)).status_code == 201
    answer = await api.put(path, NEW, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (412, "session_exists")


async def test_a_session_of_another_user_is_not_got_by_put(api: Api) -> None:
    path = await api.session()
    answer = await api.put(path, {**NEW, "user_id": "somebody else"})
    assert (answer.status_code, answer.json()["code"]) == (412, "session_exists")


@pytest.mark.parametrize("session_id", ["a b", "x" * 129, "a%2Fb", "ä", "%00"])
async def test_a_session_id_has_few_characters(api: Api, session_id: str) -> None:
    answer = await api.put(f"/v1/sessions/{session_id}", NEW)
    assert answer.status_code in (404, 422)
    assert answer.json()["code"] in ("not_found", "invalid_request")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"app_name": "a"}, "/user_id"),
        ({**NEW, "app_name": ""}, "/app_name"),
        ({**NEW, "app_name": "a\0"}, "/app_name"),
        ({**NEW, "user_id": 7}, "/user_id"),
        ({**NEW, "state": []}, "/state"),
        ({**NEW, "ttl_s": 0}, "/ttl_s"),
        ({**NEW, "nonsense": 1}, "/nonsense"),
        ({**NEW, "policy": {"compaktion": {}}}, "/policy/compaktion"),
        ({**NEW, "policy": {"compaction": {"strategy": "fast"}}}, "/policy/compaction/strategy"),
    ],
)
async def test_a_wrong_field_of_a_new_session_is_named(
    api: Api, body: dict[str, Any], pointer: str
) -> None:
    path = f"/v1/sessions/{uuid4().hex}"
    answer = await api.put(path, body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert (await api.get(path)).status_code == 404


async def test_state_and_metadata_may_hold_what_postgres_refuses(api: Api) -> None:
    odd = {"k": "a\0b", "\0": "\ud83d", "n": 123456789012345678901234567890}
    path = await api.session(state=odd, metadata=odd)
    session = (await api.get(path)).json()
    assert session["state"]["k"] == "a\ufffdb"
    assert session["state"]["n"] == odd["n"]
    assert session["metadata"]["k"] == "a\ufffdb"


async def test_patch_merges_and_null_takes_away(api: Api) -> None:
    path = await api.session(metadata={"a": "1", "b": {"c": 1}}, ttl_s=60)
    answer = await api.patch(path, {"metadata": {"a": None, "b": {"d": 2}}, "ttl_s": None})
    assert answer.json()["metadata"] == {"b": {"c": 1, "d": 2}}
    assert answer.json()["ttl_s"] is None
    assert answer.json()["head_seq"] == 0


async def test_a_policy_change_is_an_event(api: Api) -> None:
    path = await api.session()
    policy = {"compaction": {"strategy": "interval", "compaction_interval": 3, "overlap_size": 1}}
    answer = await api.patch(path, {"policy": policy})
    assert (answer.json()["policy"], answer.json()["head_seq"]) == (policy, 1)
    event = (await api.get(f"{path}/events/1")).json()
    assert (event["status"], event["actions"]["policy"]) == ("marker", policy)
    same = await api.patch(path, {"policy": policy})
    assert same.json()["head_seq"] == 1


async def test_offload_is_refused_until_there_is_one(api: Api) -> None:
    policy = {"offload": {"threshold_tokens": 100, "preview_tokens": 10}}
    path = await api.session()
    fields = {"app_name": "app", "user_id": "user", "policy": policy}
    app_path = f"/v1/apps/app-{uuid4().hex}/policy"
    for answer, pointer in (
        (await api.put(f"/v1/sessions/{uuid4().hex}", fields), "/policy/offload"),
        (await api.patch(path, {"policy": policy}), "/policy/offload"),
        (
            await api.post(
                f"/v1/sessions/{uuid4().hex}/events", {"events": [user("hi")], "create": fields}
            ),
            "/create/policy/offload",
        ),
        (await api.put(app_path, policy), "/offload"),
    ):
        error = answer.json()["errors"][0]
        assert (answer.status_code, error["pointer"]) == (422, pointer)
        assert "does not exist yet" in error["detail"]
    assert (await api.put(app_path, {"offload": None})).json()["offload"] is None


async def test_a_policy_that_was_stored_with_offload_is_read_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = {"offload": {"threshold_tokens": 100}, "pins": {"max_tokens": 5}}
    with monkeypatch.context() as before:
        before.setattr("app.services.sessions.validate_policy", lambda *_: None)
        path = await api.session(policy=policy)

    assert (await api.get(path)).json()["policy"] == policy
    await api.append(path, user("hi"))
    assert (await api.post(f"{path}/compile", {"agent": "agent"})).status_code == 200
    assert (await api.patch(path, {"metadata": {"a": 1}})).status_code == 200
    changed = await api.patch(path, {"policy": {"offload": None, "pins": {"max_tokens": 6}}})
    assert changed.json()["policy"] == {"pins": {"max_tokens": 6}}


async def test_a_policy_that_results_from_a_patch_must_be_valid(api: Api) -> None:
    path = await api.session()
    answer = await api.patch(path, {"policy": {"compaction": {"strategy": "interval"}}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/policy/compaction/compaction_interval"
    assert await api.head_seq(path) == 0


async def test_a_patch_that_changes_the_strategy_is_told_how_to_take_a_key_away(api: Api) -> None:
    path = await api.session(policy={"compaction": {"strategy": "window", "window_size": 9}})
    interval: dict[str, Any] = {
        "strategy": "interval", "compaction_interval": 2, "overlap_size": 0,
    }  # fmt: skip
    answer = await api.patch(path, {"policy": {"compaction": interval}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/policy/compaction/window_size"
    assert "null takes away" in error["detail"]
    interval["window_size"] = None
    assert (await api.patch(path, {"policy": {"compaction": interval}})).status_code == 200


async def test_patch_honours_if_match(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x"))
    answer = await api.patch(path, {"metadata": {"a": 1}}, headers={"If-Match": '"0"'})
    assert (answer.status_code, answer.json()["head_seq"]) == (412, 1)


async def test_an_erased_session_is_gone_and_may_be_made_again(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x", id="a"))
    assert (await api.delete(path)).status_code == 204
    assert (await api.get(path)).status_code == 404
    assert (await api.delete(path)).status_code == 404
    assert (await api.put(path, NEW)).status_code == 201
    assert (await api.append(path, user("y", id="a")))["appended"][0]["seq"] == 1


async def test_a_session_that_has_moved_on_is_not_erased(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x"), user("y"))
    stale = await api.delete(path, headers={"If-Match": '"1"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "head_moved")
    assert (await api.get(path)).json()["head_seq"] == 2
    assert (await api.delete(path, headers={"If-Match": '"2"'})).status_code == 204


async def test_sessions_are_listed_page_by_page(api: Api) -> None:
    app_name = f"list-{uuid4().hex}"
    paths = [await api.session(app_name=app_name, metadata={"n": str(n)}) for n in range(3)]
    ids = [path.rpartition("/")[2] for path in paths]
    query = f"/v1/sessions?app_name={app_name}&order=asc&limit=2"
    first = (await api.get(query)).json()
    assert [session["id"] for session in first["data"]] == ids[:2]
    assert first["has_more"]
    second = (await api.get(f"{query}&after={first['next']}")).json()
    assert [session["id"] for session in second["data"]] == ids[2:]
    assert (second["has_more"], second["next"]) == (False, None)
    found = (await api.get(f"/v1/sessions?app_name={app_name}&metadata.n=1")).json()
    assert [session["id"] for session in found["data"]] == [ids[1]]


async def test_a_cursor_is_bound_to_its_list(api: Api) -> None:
    app_name = f"list-{uuid4().hex}"
    for _ in range(2):
        await api.session(app_name=app_name)
    first = (await api.get(f"/v1/sessions?app_name={app_name}&limit=1")).json()
    for query in (
        f"app_name={app_name}&limit=1&order=asc&after={first['next']}",
        f"limit=1&after={first['next']}",
        "after=nonsense",
        "after=bnVsbA",
    ):
        answer = await api.get(f"/v1/sessions?{query}")
        assert answer.status_code == 422, query
        assert answer.json()["errors"][0]["pointer"] == "/query/after"


@pytest.mark.parametrize("query", ["limit=1001", "limit=0", "nonsense=1", "order=up"])
async def test_a_wrong_query_is_named(api: Api, query: str) -> None:
    answer = await api.get(f"/v1/sessions?{query}")
    assert answer.status_code == 422
    name = query.partition("=")[0]
    assert answer.json()["errors"][0]["pointer"] == f"/query/{name}"


async def test_a_fork_shares_the_past_and_nothing_after(api: Api) -> None:
    path = await api.session(state={"k": 1})
    await api.append(path, user("a", id="e1"), model("b"), user("c"))
    new_id = uuid4().hex
    answer = await api.post(f"{path}/fork", {"new_id": new_id, "at_seq": 2})
    assert answer.status_code == 201
    fork = f"/v1/sessions/{new_id}"
    assert answer.json()["head_seq"] == 2
    assert answer.json()["forked_from"] == path.rpartition("/")[2]
    assert answer.json()["created_at"] == answer.json()["updated_at"]
    assert answer.json()["state"]["k"] == 1
    await api.append(fork, user("d"))
    events = (await api.get(f"{fork}/events")).json()["data"]
    assert [event["seq"] for event in events] == [1, 2, 3]
    assert events[0]["id"] == "e1"
    assert await api.head_seq(path) == 3


async def test_a_fork_needs_a_new_id_and_a_seq_of_the_log(api: Api) -> None:
    path = await api.session()
    other = (await api.session()).rpartition("/")[2]
    taken = await api.post(f"{path}/fork", {"new_id": other})
    assert (taken.status_code, taken.json()["code"]) == (412, "session_exists")
    beyond = await api.post(f"{path}/fork", {"new_id": uuid4().hex, "at_seq": 1})
    assert beyond.status_code == 422
    assert beyond.json()["errors"][0]["pointer"] == "/at_seq"


async def test_a_fork_with_an_idempotency_key_is_made_once(api: Api) -> None:
    path = await api.session()
    body = {"new_id": uuid4().hex}
    headers = {"Idempotency-Key": "f"}
    first = await api.post(f"{path}/fork", body, headers=headers)
    again = await api.post(f"{path}/fork", body, headers=headers)
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"


async def test_an_app_has_a_default_policy(api: Api) -> None:
    path = f"/v1/apps/app-{uuid4().hex}/policy"
    assert (await api.get(path)).json()["compaction"] == {"strategy": "auto"}
    policy = {"pins": {"max_tokens": 5}}
    assert (await api.put(path, policy)).json() == policy
    assert (await api.get(path)).json() == policy
    wrong = await api.put(path, {"pins": {"max": 5}})
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["pointer"] == "/pins/max"
    unknown = await api.put(path, {"pin": {}})
    assert unknown.json()["errors"][0]["pointer"] == "/pin"


# Keys


ALL = ("events:write", "events:read", "compile", "admin")


async def test_without_a_key_nothing_is_answered(client: httpx.AsyncClient) -> None:
    for key in (None, "wrong-key"):
        answer = await Api(client, key=key).get("/v1/sessions")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert (await client.get("/livez")).status_code == 200


async def test_without_authentication_the_tenant_is_default(
    database_url: str, client: httpx.AsyncClient
) -> None:
    path = await Api(client).session()
    async with client_of(settings_for(database_url, auth="off")) as open_client:
        assert (await Api(open_client, key=None).get(path)).status_code == 200


async def test_another_tenant_s_things_are_not_found(
    database_url: str, client: httpx.AsyncClient
) -> None:
    mine = Api(client)
    path = await mine.session()
    await mine.append(path, user("a"), model("b"), user("c"))
    await mine.post(f"{path}/summaries", {"covers": {"from_seq": 1, "to_seq": 2}, "content": "s"})
    theirs = Api(client, await key_for(settings_for(database_url), f"t-{uuid4().hex}", *ALL))
    requests: list[tuple[str, str, Any]] = [
        ("GET", "", None),
        ("PATCH", "", {"metadata": {"a": 1}}),
        ("DELETE", "", None),
        ("GET", "/state", None),
        ("POST", "/fork", {"new_id": uuid4().hex}),
        ("POST", "/events", {"events": [user("x")]}),
        ("POST", "/events", {"format": "openai_chat", "items": [{"role": "user"}]}),
        ("GET", "/events", None),
        ("GET", "/events/1", None),
        ("GET", "/invocations/i", None),
        ("POST", "/rewind", {"to_seq": 1}),
        ("GET", "/pins", None),
        ("POST", "/pins", {"seqs": [1]}),
        ("POST", "/pins", {"last_turn": True}),
        ("DELETE", "/pins", {"seqs": [1]}),
        ("POST", "/summaries", {"covers": {"from_seq": 1, "to_seq": 1}, "content": "s"}),
        ("GET", "/compactions", None),
        ("GET", "/compactions/4", None),
        ("POST", "/compactions/4/undo", None),
        ("POST", "/compactions/4/activate", None),
        ("POST", "/compile", {}),
        ("POST", "/compile", {"append": [user("x")]}),
        ("POST", "/compile:diff", {"a": {}, "b": {}}),
    ]
    for method, suffix, body in requests:
        answer = await theirs.call(method, path + suffix, body)
        assert answer.status_code == 404, (method, suffix, answer.text)
        assert answer.json()["code"] == "not_found"
    assert (await theirs.get("/v1/sessions")).json()["data"] == []
    assert await mine.head_seq(path) == 4
    assert (await theirs.put(path, {"app_name": "x", "user_id": "y"})).status_code == 201
    assert (await mine.get(path)).json()["app_name"] == "app"


async def test_a_key_does_only_what_its_scopes_allow(
    database_url: str, client: httpx.AsyncClient
) -> None:
    settings = settings_for(database_url)
    tenant = f"t-{uuid4().hex}"
    writer = Api(client, await key_for(settings, tenant, "events:write"))
    reader = Api(client, await key_for(settings, tenant, "events:read"))
    runner = Api(client, await key_for(settings, tenant, "compile"))
    path = await writer.session()
    await writer.append(path, user("x"))
    refused = [
        await writer.get(path),
        await writer.post(f"{path}/compile", {}),
        await reader.post(f"{path}/events", {"events": [user("x")]}),
        await reader.put("/v1/apps/a/policy", {}),
        await runner.get(f"{path}/events"),
        await runner.post(f"{path}/compile", {"append": [user("x")]}),
    ]
    for answer in refused:
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await reader.get(f"{path}/events")).status_code == 200
    assert (await runner.post(f"{path}/compile", {})).status_code == 200
    assert (await runner.get(f"{path}/events?reader.agent=a")).status_code == 200


async def test_the_service_answers_its_probes(api: Api) -> None:
    for path in ("/livez", "/readyz", "/startupz"):
        answer = await api.get(path)
        assert (answer.status_code, answer.json()["status"]) == (200, "ok"), answer.text
    info = (await api.get("/v1/info")).json()
    assert info["schema_revision"]
    assert "gemini" in info["capabilities"]["compile_formats"]


async def test_the_service_names_what_it_was_built_from(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (await api.get("/v1/info")).json()["revision"] == revision()
    (tmp_path / "REVISION").write_text("abc123\n")
    monkeypatch.setattr("app.files", lambda _: tmp_path)
    assert (await api.get("/v1/info")).json()["revision"] == "abc123"


async def test_a_lost_database_makes_unready_and_answers_503() -> None:
    settings = settings_for("postgresql://nobody@127.0.0.1:1/none")
    async with client_of(settings) as client:
        api = Api(client)
        assert (await api.get("/livez")).status_code == 200
        assert (await api.get("/readyz")).status_code == 503
        answer = await api.get("/v1/sessions/x")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.json()["retry_after_s"] == int(answer.headers["retry-after"])


async def test_a_database_without_schema_is_not_ready(empty_database_url: str) -> None:
    async with client_of(settings_for(empty_database_url)) as client:
        answer = await Api(client).get("/startupz")
        assert answer.status_code == 503
        assert "migrate" in answer.json()["checks"]["schema"]


async def test_what_an_existing_session_has_otherwise_is_told(api: Api) -> None:
    fields = {"policy": {"pins": {"max_tokens": 100}}, "metadata": {"a": 1}, "ttl_s": 60}
    owner = {"app_name": "app", "user_id": uuid4().hex}
    path = await api.session(state={"k": 1, "user:u": 2}, **owner, **fields)
    same = {"state": {"k": 1, "user:u": 2}, **owner, **fields}
    for asked in (same, owner):
        answer = await api.put(path, asked)
        assert answer.status_code == 200
        assert "warnings" not in answer.json()
    other = {"state": {"k": 2}, "policy": {}, "metadata": {"a": 2}, "ttl_s": 61}
    for name, value in other.items():
        answer = await api.put(path, {**same, name: value})
        assert answer.status_code == 200
        assert [each["pointer"] for each in answer.json()["warnings"]] == [f"/{name}"]
    # Nothing was changed by asking.
    assert (await api.get(path)).json()["metadata"] == {"a": 1}


@pytest.mark.parametrize("name", ["app_name", "user_id"])
async def test_another_owner_is_refused_by_name(api: Api, name: str) -> None:
    path = await api.session()
    asked = {"app_name": "app", "user_id": "user", name: "another"}
    answer = await api.put(path, asked)
    assert (answer.status_code, answer.json()["code"]) == (412, "session_exists")
    assert [each["pointer"] for each in answer.json()["errors"]] == [f"/{name}"]
    body = {"events": [user("a")], "create": asked}
    answer = await api.post(f"{path}/events", body)
    assert (answer.status_code, answer.json()["code"]) == (412, "session_exists")
    assert [each["pointer"] for each in answer.json()["errors"]] == [f"/create/{name}"]
    assert await api.head_seq(path) == 0


# Erasing what outlives sessions


async def test_the_state_of_a_user_is_erased_when_one_asks_for_it(api: Api) -> None:
    app = f"app-{uuid4().hex}"
    state = {"user:x": 1, "user:y": 2, "app:z": 3, "own": 4}
    path = await api.session(app_name=app, user_id="ada", state=state)
    await api.session(app_name=app, user_id="bob", state={"user:x": 9})
    where = f"/v1/apps/{app}/users/ada/state"

    # It is the user's, and not a session's.
    assert (await api.delete(path)).status_code == 204
    assert (await api.get(where)).json() == {"x": 1, "y": 2}
    for _ in range(2):
        assert (await api.delete(where)).status_code == 204

    assert (await api.get(where)).json() == {}
    assert (await api.get(f"/v1/apps/{app}/users/bob/state")).json() == {"x": 9}
    assert (await api.get(f"/v1/apps/{app}/state")).json() == {"z": 3}
    told = (await api.get("/v1/admin/audit?action=erase_user_state&limit=9")).json()["data"]
    found = [(row["target"], row["details"]) for row in told if row["details"]["app_name"] == app]
    assert found == [("ada", {"app_name": app, "keys": 2})]


# Names with a slash


async def test_an_app_and_a_user_with_a_slash_are_reached(api: Api) -> None:
    app, user_id = f"a/{uuid4().hex}", "org/ada/%2F"
    await api.session(app_name=app, user_id=user_id, state={"app:x": 1, "user:y": 2})
    path = f"/v1/apps/{quote(app, safe='')}"
    policy = {"compaction": {"strategy": "none"}}

    app_state = await api.get(f"{path}/state")
    user_state = await api.get(f"{path}/users/{quote(user_id, safe='')}/state")
    assert (await api.put(f"{path}/policy", policy)).status_code == 200
    stored = await api.get(f"{path}/policy")

    assert (app_state.status_code, app_state.json()) == (200, {"x": 1})
    assert (user_state.status_code, user_state.json()) == (200, {"y": 2})
    assert stored.json()["compaction"] == {"strategy": "none"}


async def test_a_name_that_looks_like_a_path_is_no_other_s(api: Api) -> None:
    app = f"a{uuid4().hex}"
    await api.session(app_name=app, user_id="b", state={"user:y": 2})
    await api.session(app_name=f"{app}/users/b", user_id="c", state={"app:x": 1})

    looks = await api.get(f"/v1/apps/{app}%2Fusers%2Fb/state")
    other = await api.get(f"/v1/apps/{app}/users/b/state")

    assert (looks.json(), other.json()) == ({"x": 1}, {"y": 2})
    assert (await api.get("/v1/sessions/a%2Fb/state")).status_code == 422
