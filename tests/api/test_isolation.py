"""Every route of the OpenAPI document: another tenant's things are as good as missing, and no route
answers without a key of the scope that it needs.

An operation that is not in the table fails the tests: whoever adds a route says here whose it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest

from app.main import create_app
from app.services.authenticate import SCOPES
from app.settings import Settings
from tests.api.conftest import Api, call, key_for, model, response, settings_for, user

WRITE: Final = frozenset({"events:write"})
READ: Final = frozenset({"events:read"})
COMPILE: Final = frozenset({"compile"})
ADMIN: Final = frozenset({"admin"})
OPERATOR: Final = frozenset({"operator"})
#: Without a key: probes, and what runs here.
OPEN: Final = frozenset[str]()

S: Final = "/v1/sessions/{sid}"
NEW: Final = {"app_name": "app", "user_id": "user"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """How to call an operation so that its owner is answered."""

    #: One of them is enough; none: no key is needed.
    scopes: frozenset[str]
    body: Any = None
    query: str = ""
    #: What the path's parameters are named after in :class:`Things`, beside ``sid``.
    parameters: Mapping[str, str] = field(default_factory=dict)
    #: It makes what it names, in the caller's own tenant.
    is_making: bool = False
    #: It goes on until the caller has heard enough.
    is_endless: bool = False


OPERATIONS: Final[dict[str, Operation]] = {
    "get /livez": Operation(scopes=OPEN),
    "get /readyz": Operation(scopes=OPEN),
    "get /startupz": Operation(scopes=OPEN),
    "get /v1/info": Operation(scopes=OPEN),
    "get /metrics": Operation(scopes=frozenset({"metrics"})),
    "get /v1/sessions": Operation(scopes=READ),
    f"put {S}": Operation(scopes=WRITE, body=NEW, is_making=True),
    f"get {S}": Operation(scopes=READ),
    f"patch {S}": Operation(scopes=WRITE, body={"metadata": {"k": "v"}}),
    f"delete {S}": Operation(scopes=WRITE),
    f"post {S}/fork": Operation(scopes=WRITE, body={"new_id": "<new>"}),
    f"get {S}/state": Operation(scopes=READ),
    "get /v1/apps/{app}/policy": Operation(scopes=READ | ADMIN, parameters={"app": "app"}),
    "put /v1/apps/{app}/policy": Operation(
        scopes=ADMIN,
        parameters={"app": "app"},
        body={"compaction": {"strategy": "none"}},
        is_making=True,
    ),
    "get /v1/apps/{app}/state": Operation(scopes=READ, parameters={"app": "app"}),
    "get /v1/apps/{app}/users/{user}/state": Operation(
        scopes=READ, parameters={"app": "app", "user": "user"}
    ),
    "delete /v1/apps/{app}/users/{user}/state": Operation(
        scopes=WRITE, parameters={"app": "app", "user": "user"}
    ),
    f"post {S}/events": Operation(scopes=WRITE, body={"events": [user("more")]}),
    f"get {S}/events": Operation(scopes=READ),
    f"get {S}/events/{{seq_or_id}}": Operation(scopes=READ, parameters={"seq_or_id": "one"}),
    f"get {S}/events/stream": Operation(scopes=READ, is_endless=True),
    f"get {S}/invocations/{{id}}": Operation(scopes=READ, parameters={"id": "invocation"}),
    f"post {S}/rewind": Operation(scopes=WRITE, body={"to_seq": 1}),
    f"get {S}/pins": Operation(scopes=READ),
    f"post {S}/pins": Operation(scopes=WRITE, body={"seqs": [1]}),
    f"delete {S}/pins": Operation(scopes=WRITE, body={"seqs": [6]}),
    f"post {S}/summaries": Operation(
        scopes=WRITE, body={"covers": {"from_seq": 5, "to_seq": 5}, "content": "x"}
    ),
    f"get {S}/compactions": Operation(scopes=READ),
    f"post {S}/compactions": Operation(scopes=WRITE, body={}),
    f"get {S}/compactions/{{seq}}": Operation(scopes=READ, parameters={"seq": "fold"}),
    f"post {S}/compactions/{{seq}}/activate": Operation(scopes=WRITE, parameters={"seq": "staged"}),
    f"post {S}/compactions/{{seq}}/undo": Operation(scopes=WRITE, parameters={"seq": "fold"}),
    f"post {S}/elisions": Operation(scopes=WRITE, body={"seqs": [5]}),
    f"post {S}/elisions/{{seq}}/undo": Operation(scopes=WRITE, parameters={"seq": "elision"}),
    f"post {S}/recall": Operation(scopes=READ, body={"query": "first"}),
    f"post {S}/expand": Operation(scopes=READ, body={"from_seq": 1, "to_seq": 2}),
    f"post {S}/usage": Operation(
        scopes=COMPILE, body={"fingerprint": "0" * 64, "usage": {"input_tokens": 1}}
    ),
    f"post {S}/compile": Operation(scopes=COMPILE, body={"agent": "agent"}),
    f"post {S}/compile:diff": Operation(
        scopes=COMPILE, body={"a": {"as_of_seq": 1}, "b": {"as_of_seq": 2}}
    ),
    "post /v1/compile": Operation(scopes=COMPILE, body={"events": [user("a")]}),
    "post /v1/tokens": Operation(scopes=COMPILE, body={"text": "a"}),
    "post /v1/validate": Operation(
        scopes=COMPILE, body={"format": "gemini", "request": {"contents": []}}
    ),
    "get /v1/jobs/{id}": Operation(scopes=READ, parameters={"id": "job"}),
    "post /v1/jobs/{id}/cancel": Operation(scopes=WRITE, parameters={"id": "job"}),
    "get /v1/admin/tenants": Operation(scopes=OPERATOR),
    "post /v1/admin/tenants": Operation(scopes=OPERATOR, body={"id": "<new>"}),
    "get /v1/admin/tenants/{tenant}": Operation(scopes=OPERATOR, parameters={"tenant": "tenant"}),
    "patch /v1/admin/tenants/{tenant}": Operation(
        scopes=OPERATOR, parameters={"tenant": "tenant"}, body={}
    ),
    "get /v1/admin/keys": Operation(scopes=ADMIN),
    "post /v1/admin/keys": Operation(scopes=ADMIN, body={"scopes": ["compile"]}),
    "get /v1/admin/keys/{id}": Operation(scopes=ADMIN, parameters={"id": "key"}),
    "delete /v1/admin/keys/{id}": Operation(scopes=ADMIN, parameters={"id": "key"}),
    "post /v1/admin/keys/{id}/rotate": Operation(scopes=ADMIN, parameters={"id": "key"}),
    "get /v1/admin/audit": Operation(scopes=ADMIN),
    "delete /v1/admin/calibrations/{model}": Operation(scopes=ADMIN, parameters={"model": "model"}),
    "get /v1/admin/sessions/{sid}/verify": Operation(scopes=ADMIN),
    "post /v1/admin/sessions/{sid}/verify": Operation(scopes=ADMIN),
}

#: A tenant's own rights; an operator's reach is every tenant, and is tested in test_admin.py.
TENANTS_SCOPES: Final = tuple(scope for scope in SCOPES if scope != "operator")


def document_operations() -> list[str]:
    """Return every operation of the OpenAPI document."""
    document = create_app(Settings()).openapi()
    return [f"{method} {path}" for path, found in document["paths"].items() for method in found]


def test_the_table_has_every_operation_of_the_document() -> None:
    assert set(OPERATIONS) == set(document_operations())


#: Of what has a place in the log.
NUMBERED: Final = ("fold", "staged", "elision")


class Things:
    """What a tenant has: one of each that a path can name."""

    def __init__(self, api: Api, tenant: str) -> None:
        self.api = api
        self.names = {"tenant": tenant, "sid": uuid4().hex, "one": "1", "invocation": "i1"}
        self.names |= {"app": f"app-{tenant}", "user": "ada", "model": f"model-{tenant}"}

    async def make(self) -> "Things":
        """Make them."""
        path = f"/v1/sessions/{self.names['sid']}"
        new = {"app_name": self.names["app"], "user_id": self.names["user"]}
        state = {"user:secret": "theirs", "app:secret": "theirs"}
        assert (await self.api.put(path, {**new, "state": state})).status_code == 201
        events = [
            {**user("first words"), "invocation_id": "i1"},
            {**model("second"), "invocation_id": "i1"},
            {**call("f", "c1"), "invocation_id": "i2"},
            {**response("f", "c1"), "invocation_id": "i2"},
            {**model("fifth " * 20), "invocation_id": "i2"},
            {**user("sixth"), "invocation_id": "i3"},
            {**user("seventh " * 20), "invocation_id": "i3"},
        ]
        await self.api.append(path, *events)
        span = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "x"}
        self.names["fold"] = await self._seq(f"{path}/summaries", span)
        staged = {"covers": {"from_seq": 3, "to_seq": 4}, "content": "x", "activation": "staged"}
        self.names["staged"] = await self._seq(f"{path}/summaries", staged)
        self.names["elision"] = await self._seq(f"{path}/elisions", {"seqs": [7]})
        assert (await self.api.post(f"{path}/pins", {"seqs": [6]})).status_code == 201
        job = await self.api.post(f"{path}/compactions", {"mode": "range", "wait_ms": 0})
        self.names["job"] = job.json()["job_id"]
        told = (await self.api.post(f"{path}/compile", {"model": self.names["model"]})).json()
        report = {"fingerprint": told["fingerprint"], "usage": {"input_tokens": 100}}
        assert (await self.api.post(f"{path}/usage", report)).status_code == 200
        key = await self.api.post("/v1/admin/keys", {"scopes": ["compile"]})
        self.names["key"] = key.json()["id"]
        return self

    async def _seq(self, path: str, body: Any) -> str:
        answer = await self.api.post(path, body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["seq"])


def missing(names: Mapping[str, str]) -> dict[str, str]:
    """Return names of the same kinds that nobody has."""
    found = {name: value if value.isdigit() else uuid4().hex for name, value in names.items()}
    return found | {"job": str(uuid4()), "key": str(uuid4())}


async def ask(api: Api, name: str, names: Mapping[str, str]) -> httpx.Response:
    """Call an operation with things of these names."""
    operation = OPERATIONS[name]
    method, path = name.split(" ")
    values = {"sid": names["sid"]}
    values |= {parameter: names[kind] for parameter, kind in operation.parameters.items()}
    body = operation.body
    if isinstance(body, dict):
        body = {key: uuid4().hex if value == "<new>" else value for key, value in body.items()}
    return await api.call(method.upper(), path.format(**values) + operation.query, body)


def told(answer: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """Return all that an answer tells but the path that was asked."""
    body = answer.json() if answer.content else None
    if isinstance(body, dict):
        body.pop("instance", None)
    kept = {k: v for k, v in answer.headers.items() if k not in ("x-request-id", "content-length")}
    return answer.status_code, body, kept


async def tenant_of(client: httpx.AsyncClient, url: str) -> tuple[str, Api]:
    tenant = f"t-{uuid4().hex}"
    return tenant, Api(client, await key_for(settings_for(url), tenant, *TENANTS_SCOPES))


NAMED = [
    name
    for name, operation in OPERATIONS.items()
    if "{" in name and "operator" not in operation.scopes and not operation.is_making
]


@pytest.mark.parametrize("name", NAMED)
async def test_anothers_things_are_as_good_as_missing(
    client: httpx.AsyncClient, database_url: str, name: str
) -> None:
    tenant, owner = await tenant_of(client, database_url)
    _, stranger = await tenant_of(client, database_url)
    things = await Things(owner, tenant).make()

    theirs = told(await ask(stranger, name, things.names))

    assert theirs == told(await ask(stranger, name, missing(things.names)))
    if "/v1/apps/" not in name:
        assert theirs[0] == 404
        assert theirs[1]["code"] == "not_found"
    # It is there all the same, and untouched: its owner is answered.
    if not OPERATIONS[name].is_endless:
        owners = await ask(owner, name, things.names)
        assert owners.is_success or owners.status_code == 409, owners.text


MAKING = [name for name, operation in OPERATIONS.items() if operation.is_making]


@pytest.mark.parametrize("name", MAKING)
async def test_what_is_made_under_anothers_name_is_ones_own(
    client: httpx.AsyncClient, database_url: str, name: str
) -> None:
    tenant, owner = await tenant_of(client, database_url)
    _, stranger = await tenant_of(client, database_url)
    things = await Things(owner, tenant).make()
    path = name.partition(" ")[2].format(sid=things.names["sid"], app=things.names["app"])
    before = (await owner.get(path)).json()

    made = await ask(stranger, name, things.names)

    assert made.is_success
    assert "theirs" not in made.text
    assert (await owner.get(path)).json() == before
    assert (await stranger.get(path)).json() != before


async def test_lists_show_nothing_of_another_tenant(
    client: httpx.AsyncClient, database_url: str
) -> None:
    tenant, owner = await tenant_of(client, database_url)
    other, stranger = await tenant_of(client, database_url)
    things = await Things(owner, tenant).make()

    assert (await stranger.get("/v1/sessions")).json()["data"] == []
    for path in ("/v1/admin/keys", "/v1/admin/audit"):
        rows = (await stranger.get(path)).json()["data"]
        assert {row["tenant_id"] for row in rows} == {other}
    assert things.names["sid"] in (await owner.get("/v1/sessions")).text


GUARDED = [name for name, operation in OPERATIONS.items() if operation.scopes]


@pytest.mark.parametrize("name", GUARDED)
async def test_every_route_demands_its_scope(
    client: httpx.AsyncClient, database_url: str, name: str
) -> None:
    tenant = f"t-{uuid4().hex}"
    operation = OPERATIONS[name]
    # Who may ask is settled before whether there is such a thing.
    names = missing(Things(Api(client), tenant).names | dict.fromkeys(NUMBERED, "1"))

    for key in (None, "fl_unknown", ""):
        answer = await ask(Api(client, key), name, names)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
    others = [scope for scope in SCOPES if scope not in operation.scopes]
    key = await key_for(settings_for(database_url), tenant, *others)
    answer = await ask(Api(client, key), name, names)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    for scope in operation.scopes:
        key = await key_for(settings_for(database_url), tenant, scope)
        answer = await ask(Api(client, key), name, names)
        assert answer.is_success or answer.status_code == 404, answer.text


@pytest.mark.parametrize("name", [n for n, o in OPERATIONS.items() if not o.scopes])
async def test_what_needs_no_key_tells_nothing_of_tenants(
    client: httpx.AsyncClient, name: str
) -> None:
    answer = await ask(Api(client, None), name, {"sid": "none"})
    assert answer.status_code in (200, 503)
    assert "tenant" not in answer.text
