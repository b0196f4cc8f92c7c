"""Tenants, keys and the audit log over HTTP: who may do what, and what is left of it."""

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest
from pydantic import SecretStr

from tests.api.conftest import Api, client_of, key_for, settings_for, user
from tests.redis_server import RedisServer

KEYS = "/v1/admin/keys"
TENANTS = "/v1/admin/tenants"
AUDIT = "/v1/admin/audit"
NEW = {"app_name": "app", "user_id": "user"}


async def make_key(api: Api, *scopes: str, **fields: Any) -> dict[str, Any]:
    answer = await api.post(KEYS, {"scopes": list(scopes), **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def make_tenant(api: Api, **fields: Any) -> str:
    tenant = f"t-{uuid4().hex}"
    answer = await api.post(TENANTS, {"id": tenant, **fields})
    assert answer.status_code == 201, answer.text
    return tenant


def with_key(api: Api, made: dict[str, Any]) -> Api:
    return Api(api.client, made["key"])


# Keys


async def test_a_key_is_shown_once_and_kept_nowhere(api: Api, database_url: str) -> None:
    tenant = await make_tenant(api)
    made = await make_key(api, "events:read", tenant_id=tenant, name="ci", ttl_s=3600)

    shown = (await api.get(f"{KEYS}/{made['id']}")).json()
    assert "key" not in shown
    assert shown == {name: value for name, value in made.items() if name != "key"}
    listed = (await api.get(f"{KEYS}?tenant_id={tenant}")).text
    audited = (await api.get(f"{AUDIT}?tenant_id={tenant}")).text
    assert made["key"] not in listed + audited
    connection = await asyncpg.connect(database_url)
    dumped = [
        str(dict(row))
        for table in ("api_keys", "audit_log", "idempotency_keys")
        for row in await connection.fetch(f"SELECT * FROM {table}")  # noqa: S608  ours
    ]
    await connection.close()
    assert dumped
    assert not any(made["key"] in row for row in dumped)


async def test_a_revoked_key_opens_nothing_at_once(api: Api) -> None:
    made = await make_key(api, "events:read")
    mine = with_key(api, made)
    assert (await mine.get("/v1/sessions")).status_code == 200

    assert (await api.delete(f"{KEYS}/{made['id']}")).status_code == 204
    refused = await mine.get("/v1/sessions")

    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert (await api.delete(f"{KEYS}/{made['id']}")).status_code == 204
    assert (await api.get(f"{KEYS}/{made['id']}")).json()["valid"] is False


async def test_a_key_that_is_rotated_works_beside_the_new_one(api: Api) -> None:
    old = await make_key(api, "events:read", name="ci", rate_limit="1000/s")
    answer = await api.post(f"{KEYS}/{old['id']}/rotate", {"overlap_s": 60})
    new = answer.json()

    assert answer.status_code == 201
    assert new["key"] != old["key"]
    assert {name: new[name] for name in ("scopes", "name", "rate_limit", "tenant_id")} == {
        name: old[name] for name in ("scopes", "name", "rate_limit", "tenant_id")
    }
    for made in (old, new):
        assert (await with_key(api, made).get("/v1/sessions")).status_code == 200
    assert (await api.get(f"{KEYS}/{old['id']}")).json()["expires_at"] is not None


async def test_without_overlap_the_old_key_ends_at_once(api: Api) -> None:
    old = await make_key(api, "events:read")
    assert (await with_key(api, old).get("/v1/sessions")).status_code == 200
    new = (await api.post(f"{KEYS}/{old['id']}/rotate", {"overlap_s": 0})).json()

    assert (await with_key(api, old).get("/v1/sessions")).status_code == 401
    assert (await with_key(api, new).get("/v1/sessions")).status_code == 200
    again = await api.post(f"{KEYS}/{old['id']}/rotate")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


async def test_a_key_ends_when_its_time_is_over(api: Api) -> None:
    made = await make_key(api, "events:read", ttl_s=1)
    mine = with_key(api, made)
    assert (await mine.get("/v1/sessions")).status_code == 200
    # What is remembered of a key is not believed for longer than it is valid.
    await asyncio.sleep(1.1)
    assert (await mine.get("/v1/sessions")).status_code == 401


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"scopes": []}, "/scopes"),
        ({"scopes": ["root"]}, "/scopes/0"),
        ({"scopes": ["compile", "compile"]}, "/scopes"),
        ({"scopes": ["compile"], "rate_limit": "fast"}, "/rate_limit"),
        ({"scopes": ["compile"], "rate_limit": "0/s"}, "/rate_limit"),
        ({"scopes": ["compile"], "ttl_s": 0}, "/ttl_s"),
        ({"scopes": ["compile"], "tenant_id": "a b"}, "/tenant_id"),
        ({"scopes": ["compile"], "name": "a\0b"}, "/name"),
        ({"scopes": ["compile"], "key": "mine"}, "/key"),
    ],
)
async def test_a_bad_key_is_refused_at_its_field(
    api: Api, fields: dict[str, Any], pointer: str
) -> None:
    answer = await api.post(KEYS, fields)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_keys_are_listed_in_pages(api: Api) -> None:
    tenant = await make_tenant(api)
    ids = [(await make_key(api, "compile", tenant_id=tenant))["id"] for _ in range(5)]

    found: list[str] = []
    cursor = ""
    while True:
        page = (await api.get(f"{KEYS}?tenant_id={tenant}&limit=2{cursor}")).json()
        found += [key["id"] for key in page["data"]]
        if not page["has_more"]:
            break
        cursor = f"&after={page['next']}"
    assert found == ids
    other = await api.get(f"{KEYS}?limit=2{cursor}")
    assert other.status_code == 422


# Whose


async def test_an_administrator_reaches_its_own_tenant_only(api: Api) -> None:
    mine, theirs = await make_tenant(api), await make_tenant(api)
    admin = with_key(api, await make_key(api, "admin", tenant_id=mine))
    foreign = await make_key(api, "compile", tenant_id=theirs)

    own = await make_key(admin, "compile", "events:read")
    assert own["tenant_id"] == mine
    missing = await admin.get(f"{KEYS}/{uuid4()}")
    assert missing.status_code == 404
    for method, path in [
        ("GET", f"{KEYS}/{foreign['id']}"),
        ("DELETE", f"{KEYS}/{foreign['id']}"),
        ("POST", f"{KEYS}/{foreign['id']}/rotate"),
    ]:
        answer = await admin.call(method, path)
        assert answer.status_code == 404
        assert {**answer.json(), "instance": ""} == {**missing.json(), "instance": ""}
    assert (await with_key(api, foreign).post("/v1/tokens", {"text": "a"})).status_code == 200
    for answer in [
        await admin.post(KEYS, {"scopes": ["compile"], "tenant_id": theirs}),
        await admin.post(KEYS, {"scopes": ["operator"]}),
        await admin.post(KEYS, {"scopes": ["events:read", "metrics"]}),
        await admin.get(f"{KEYS}?tenant_id={theirs}"),
        await admin.get(f"{AUDIT}?tenant_id={theirs}"),
        await admin.get(TENANTS),
        await admin.post(TENANTS, {"id": "x"}),
        await admin.get(f"{TENANTS}/{mine}"),
        await admin.patch(f"{TENANTS}/{mine}", {"quotas": None}),
    ]:
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    rows = (await admin.get(AUDIT)).json()["data"]
    assert {row["tenant_id"] for row in rows} == {mine}
    assert {row["target"] for row in rows} >= {own["id"]}


@pytest.mark.parametrize("scope", ["operator", "metrics"])
async def test_a_key_that_reaches_beyond_a_tenant_is_for_operators_to_rotate(
    api: Api, scope: str
) -> None:
    wide = await make_key(api, scope, "admin")
    admin = with_key(api, await make_key(api, "admin"))

    assert (await admin.post(f"{KEYS}/{wide['id']}/rotate")).status_code == 403
    assert (await api.post(f"{KEYS}/{wide['id']}/rotate")).status_code == 201


@pytest.mark.parametrize("scope", ["operator", "metrics"])
async def test_a_key_that_reaches_beyond_a_tenant_is_for_operators_to_revoke(
    api: Api, scope: str
) -> None:
    wide = await make_key(api, scope, "admin")
    admin = with_key(api, await make_key(api, "admin"))

    refused = await admin.delete(f"{KEYS}/{wide['id']}")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert (await api.get(f"{KEYS}/{wide['id']}")).json()["revoked_at"] is None
    assert (await api.delete(f"{KEYS}/{wide['id']}")).status_code == 204


# Tenants


async def test_a_tenant_is_made_changed_and_counted(api: Api) -> None:
    tenant = await make_tenant(api, rate_limit="100/s", quotas={"events": 5})
    taken = await api.post(TENANTS, {"id": tenant})
    assert (taken.status_code, taken.json()["code"]) == (409, "conflict")
    writer = with_key(api, await make_key(api, "events:write", "events:read", tenant_id=tenant))
    path = await writer.session()
    await writer.append(path, user("héllo"), user("again"))

    changed = await api.patch(f"{TENANTS}/{tenant}", {"quotas": {"sessions": 3, "events": None}})
    assert changed.json()["quotas"] == {"sessions": 3, "events": None, "bytes": None}
    assert changed.json()["rate_limit"] == "100/s"
    shown = (await api.get(f"{TENANTS}/{tenant}")).json()
    assert shown["quotas"] == changed.json()["quotas"]
    events = (await writer.get(f"{path}/events")).json()["data"]
    assert (shown["usage"]["sessions"], shown["usage"]["events"]) == (1, 2)
    assert 0 < shown["usage"]["bytes"] < len(str(events)) * 2
    cleared = await api.patch(f"{TENANTS}/{tenant}", {"quotas": None, "rate_limit": None})
    assert set(cleared.json()["quotas"].values()) == {None}
    assert (await api.get(f"{TENANTS}/nobody-{uuid4().hex}")).status_code == 404
    assert (await api.patch(f"{TENANTS}/nobody", {})).status_code == 404
    assert (await api.post(TENANTS, {"id": "no spaces"})).status_code == 422
    assert (await api.patch(f"{TENANTS}/{tenant}", {"rate_limit": "1/year"})).status_code == 422


async def test_tenants_are_listed_in_pages(api: Api) -> None:
    made = {await make_tenant(api) for _ in range(3)}
    found: list[str] = []
    cursor = ""
    while True:
        page = (await api.get(f"{TENANTS}?limit=2{cursor}")).json()
        found += [tenant["id"] for tenant in page["data"]]
        if not page["has_more"]:
            break
        cursor = f"&after={page['next']}"
    assert found == sorted(found)
    assert made <= set(found)


async def test_a_disabled_tenant_is_let_in_again(api: Api) -> None:
    tenant = await make_tenant(api)
    mine = with_key(api, await make_key(api, "events:read", tenant_id=tenant))
    assert (await mine.get("/v1/sessions")).status_code == 200

    await api.patch(f"{TENANTS}/{tenant}", {"disabled": True})
    refused = await mine.get("/v1/sessions")
    assert (refused.status_code, refused.json()["code"]) == (403, "tenant_disabled")

    await api.patch(f"{TENANTS}/{tenant}", {"disabled": False})
    assert (await mine.get("/v1/sessions")).status_code == 200


# Quotas


@pytest.fixture
async def small(api: Api) -> tuple[Api, str]:
    """A tenant that may store little, and its path."""
    quotas = {"sessions": 2, "events": 4, "bytes": 2000}
    tenant = await make_tenant(api, quotas=quotas)
    scopes = ("events:write", "events:read", "compile")
    return with_key(api, await make_key(api, *scopes, tenant_id=tenant)), tenant


def quota_of(answer: httpx.Response) -> tuple[int, str, str]:
    body = answer.json()
    return answer.status_code, body["code"], body.get("quota", "")


async def test_more_sessions_than_the_quota_are_refused(small: tuple[Api, str]) -> None:
    mine, _ = small
    path = await mine.session()
    await mine.session()

    refused = f"/v1/sessions/{uuid4().hex}"
    answer = await mine.put(refused, NEW)
    assert quota_of(answer) == (403, "quota_exceeded", "sessions")
    assert (answer.json()["limit"], answer.json()["used"]) == (2, 2)
    made = await mine.post(f"{refused}/events", {"events": [user("a")], "create": NEW})
    assert quota_of(made) == (403, "quota_exceeded", "sessions")
    forked = await mine.post(f"{path}/fork", {"new_id": uuid4().hex})
    assert quota_of(forked) == (403, "quota_exceeded", "sessions")
    assert (await mine.get(refused)).status_code == 404
    # One that is there already is no new one.
    assert (await mine.put(path, NEW)).status_code == 200


async def test_more_events_than_the_quota_are_refused_whole(small: tuple[Api, str]) -> None:
    mine, _ = small
    path = await mine.session()
    first = {"events": [{**user("a"), "id": "e1"}, {**user("b"), "id": "e2"}, user("c")]}
    assert (await mine.post(f"{path}/events", first)).status_code == 201

    refused = await mine.post(f"{path}/events", {"events": [user("d"), user("e")]})
    assert quota_of(refused) == (403, "quota_exceeded", "events")
    assert await mine.head_seq(path) == 3
    await mine.append(path, user("d"))
    # A repeat stores nothing, and neither does a partial event.
    repeated = await mine.post(
        f"{path}/events", {"events": [{**user("a"), "id": "e1"}, {**user("b"), "id": "e2"}]}
    )
    assert repeated.status_code == 201
    partial = await mine.post(f"{path}/events", {"events": [{**user("p"), "partial": True}]})
    assert partial.status_code == 201
    # What makes the log smaller is never refused.
    assert (await mine.post(f"{path}/rewind", {"to_seq": 2})).status_code == 201


async def test_more_bytes_than_the_quota_are_refused(small: tuple[Api, str]) -> None:
    mine, _ = small
    path = await mine.session()
    refused = await mine.post(f"{path}/events", {"events": [user("x" * 3000)]})
    assert quota_of(refused) == (403, "quota_exceeded", "bytes")
    assert await mine.head_seq(path) == 0
    await mine.append(path, user("x" * 1000))


async def test_a_quota_that_is_raised_counts_at_once(api: Api, small: tuple[Api, str]) -> None:
    mine, tenant = small
    path = await mine.session()
    await mine.append(path, *[user("a")] * 4)
    assert (await mine.post(f"{path}/events", {"events": [user("b")]})).status_code == 403

    await api.patch(f"{TENANTS}/{tenant}", {"quotas": {"events": 5}})
    await mine.append(path, user("b"))


async def test_erasing_a_session_gives_its_room_back(api: Api, small: tuple[Api, str]) -> None:
    mine, tenant = small
    path = await mine.session()
    await mine.append(path, *[user("a")] * 4)
    await mine.delete(path)
    await api.patch(f"{TENANTS}/{tenant}", {})

    path = await mine.session()
    await mine.append(path, *[user("a")] * 4)


# Rates


async def test_a_key_that_asks_too_often_is_told_when_to_ask_again(api: Api) -> None:
    mine = with_key(api, await make_key(api, "compile", rate_limit="3/h"))
    answers = [await mine.post("/v1/tokens", {"text": "a"}) for _ in range(4)]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    told = [int(answer.headers["RateLimit-Remaining"]) for answer in answers]
    assert told == [2, 1, 0, 0]
    assert {answer.headers["RateLimit-Limit"] for answer in answers} == {"3"}
    body = answers[-1].json()
    assert answers[-1].headers["content-type"] == "application/problem+json"
    assert body["code"] == "rate_limited"
    assert 1100 < body["retry_after_s"] <= 1200
    assert answers[-1].headers["Retry-After"] == str(body["retry_after_s"])
    assert int(answers[-1].headers["RateLimit-Reset"]) == body["retry_after_s"]


async def test_the_keys_of_a_tenant_share_its_rate(api: Api) -> None:
    tenant = await make_tenant(api, rate_limit="3/h")
    keys = [with_key(api, await make_key(api, "compile", tenant_id=tenant)) for _ in range(2)]
    statuses = [
        (await keys[number % 2].post("/v1/tokens", {"text": "a"})).status_code
        for number in range(4)
    ]
    assert statuses == [200, 200, 200, 429]


async def test_the_setting_is_for_keys_without_a_rate_of_their_own(database_url: str) -> None:
    settings = settings_for(database_url, rate_limit="2/h")
    tenant = uuid4().hex
    usual = await key_for(settings, tenant, "compile")
    faster = await key_for(settings, tenant, "compile", rate_limit="5/h")
    async with client_of(settings) as client:
        statuses = [
            (await Api(client, key).post("/v1/tokens", {"text": "a"})).status_code
            for key in (usual, usual, usual, faster, faster, faster)
        ]
        # The way in of the settings is closed by nobody's load, and refusals cost nothing.
        for _ in range(3):
            assert (await Api(client).get("/v1/sessions")).status_code == 200
        assert (await client.get("/livez")).status_code == 200
    assert statuses == [200, 200, 429, 200, 200, 200]


async def test_without_a_limit_there_are_no_headers_of_one(api: Api) -> None:
    answer = await api.get("/v1/sessions")
    assert not [name for name in answer.headers if name.startswith("ratelimit")]


@pytest.mark.parametrize("is_required", [True, False])
async def test_only_a_required_redis_is_waited_for(
    database_url: str, redis_server: RedisServer, *, is_required: bool
) -> None:
    settings = settings_for(
        database_url, redis_url=SecretStr(redis_server.url), redis_required=is_required
    )
    redis_server.kill()
    async with client_of(settings) as client:
        # A busy machine's database may need more than the second that a check waits.
        for _ in range(20):
            answer = await client.get("/readyz")
            if answer.json()["checks"].get("database") == "ok":
                break
            await asyncio.sleep(1.1)
        assert answer.status_code == (503 if is_required else 200)
        assert answer.json()["checks"].get("redis") == ("does not answer" if is_required else None)
        assert (await client.get("/livez")).status_code == 200


# Audit


async def test_every_act_of_an_administrator_is_told(api: Api) -> None:
    tenant = await make_tenant(api, quotas={"events": 5})
    await api.patch(f"{TENANTS}/{tenant}", {"disabled": False, "rate_limit": "9/s"})
    admin_key = await make_key(
        api, "admin", "events:write", "events:read", tenant_id=tenant, name="boss"
    )
    admin = with_key(api, admin_key)
    key = await make_key(admin, "compile")
    new = (await admin.post(f"{KEYS}/{key['id']}/rotate", {"overlap_s": 5})).json()
    await admin.delete(f"{KEYS}/{new['id']}")
    await admin.put(
        "/v1/apps/shop/policy", {"summarizer": {"kind": "extractive", "prompt": "private"}}
    )
    path = await admin.session()
    await admin.append(path, user("gone"))
    await admin.delete(path)

    rows = (await api.get(f"{AUDIT}?tenant_id={tenant}")).json()["data"]
    told = [(row["action"], row["actor"], row["target"]) for row in reversed(rows)]
    by = admin_key["id"]
    assert told == [
        ("create_tenant", "admin", tenant),
        ("change_tenant", "admin", tenant),
        ("create_key", "admin", by),
        ("create_key", by, key["id"]),
        ("rotate_key", by, key["id"]),
        ("revoke_key", by, new["id"]),
        ("set_app_policy", by, "shop"),
        ("erase_session", by, ""),
    ]
    rotated = next(row for row in rows if row["action"] == "rotate_key")
    assert rotated["details"]["new_key"] == new["id"]
    assert "private" not in str(rows)
    assert rows[0]["events"] == 1
    session_id = path.rpartition("/")[2]
    found = (await admin.get(f"{AUDIT}?session_id={session_id}")).json()["data"]
    assert [row["action"] for row in found] == ["erase_session"]
    only = (await api.get(f"{AUDIT}?tenant_id={tenant}&action=create_key")).json()["data"]
    assert [row["action"] for row in only] == ["create_key", "create_key"]
    page = (await api.get(f"{AUDIT}?tenant_id={tenant}&limit=3")).json()
    rest = (await api.get(f"{AUDIT}?tenant_id={tenant}&limit=9&after={page['next']}")).json()
    assert page["data"] + rest["data"] == rows
    everyone = (await api.get(f"{AUDIT}?limit=8")).json()["data"]
    assert {row["tenant_id"] for row in everyone} == {tenant}


async def test_what_was_refused_is_not_told_as_done(api: Api) -> None:
    tenant = await make_tenant(api)
    admin = with_key(api, await make_key(api, "admin", tenant_id=tenant))
    await admin.post(KEYS, {"scopes": ["operator"]})
    await api.post(TENANTS, {"id": tenant})

    rows = (await api.get(f"{AUDIT}?tenant_id={tenant}")).json()["data"]
    assert [row["action"] for row in rows] == ["create_key", "create_tenant"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_log SET actor = 'nobody'",
        "DELETE FROM audit_log",
        "TRUNCATE audit_log",
        "SET foldline.erased_session = ''; DELETE FROM audit_log",
    ],
)
async def test_the_audit_log_is_never_changed(api: Api, database_url: str, statement: str) -> None:
    await make_tenant(api)
    connection = await asyncpg.connect(database_url)
    try:
        with pytest.raises(asyncpg.RestrictViolationError):
            await connection.execute(statement)
    finally:
        await connection.close()


# The way in


async def test_the_key_of_the_settings_makes_the_first_keys(database_url: str) -> None:
    settings = settings_for(database_url, admin_key=SecretStr("another-admin-key-0123456789"))
    async with client_of(settings) as client:
        first = Api(client, "another-admin-key-0123456789")
        made = await make_key(first, "admin", tenant_id=await make_tenant(first))
        assert (await Api(client, made["key"]).get(KEYS)).status_code == 200
        assert (await Api(client, "another-admin-key-012345678").get(KEYS)).status_code == 401
        assert (await Api(client, None).get(KEYS)).status_code == 401


async def test_every_answer_says_what_browsers_may_do(api: Api) -> None:
    for path in ("/livez", "/v1/sessions", "/nowhere", "/v1/sessions/none"):
        headers = (await api.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
