"""The application over an in-process client, on a real Postgres."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi.routing import APIRoute
from pydantic import SecretStr
from starlette.routing import Match

from app.core.json_text import parse_json
from app.main import ROUTERS, create_app
from app.services.manage_keys import CLI, WantedKey
from app.settings import Settings
from app.wiring import build

ADMIN_KEY = "test-admin-key-0123456789"


def settings_for(url: str, **changes: Any) -> Settings:
    """Return settings of a small service."""
    values: dict[str, Any] = {
        "database_url": SecretStr(url),
        "db_pool_size": 5,
        # What is not wanted is nobody's work: a test that needs a worker says so.
        "worker": "off",
        "admin_key": SecretStr(ADMIN_KEY),
    }
    return Settings.model_validate(values | changes)


class Api:
    """Calls the service as one tenant."""

    def __init__(self, client: httpx.AsyncClient, key: str | None = ADMIN_KEY) -> None:
        self.client = client
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def call(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send a request; a str or bytes body is sent as it is, anything else as JSON."""
        content: bytes | None
        if body is None or isinstance(body, bytes):
            content = body
        else:
            content = (body if isinstance(body, str) else json.dumps(body)).encode()
        sent = {**self.headers, **(headers or {})}
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        answer = await self.client.request(method, path, content=content, headers=sent)
        self._check(answer)
        return answer

    def _check(self, answer: httpx.Response) -> None:
        """See that an answer is what the OpenAPI document says of it."""
        if not answer.is_success:
            return
        request = answer.request
        scope = {
            "type": "http",
            "method": request.method,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "headers": [],
        }
        for route in (route for router in ROUTERS for route in router.routes):
            if isinstance(route, APIRoute) and route.matches(scope)[0] is Match.FULL:
                declared = route.responses.get(answer.status_code, {}).get("model")
                model = declared or route.response_model
                if model is not None:
                    model.model_validate(parse_json(answer.text))

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return await self.call("POST", path, body, **options)

    async def put(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return await self.call("PUT", path, body, **options)

    async def patch(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return await self.call("PATCH", path, body, **options)

    async def delete(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return await self.call("DELETE", path, body, **options)

    async def session(self, **fields: Any) -> str:
        """Make a session of its own name and return its path."""
        path = f"/v1/sessions/{uuid4().hex}"
        answer = await self.put(path, {"app_name": "app", "user_id": "user", **fields})
        assert answer.status_code == 201, answer.text
        return path

    async def append(self, path: str, *events: Any, **fields: Any) -> dict[str, Any]:
        """Append events and return the answer's body."""
        answer = await self.post(f"{path}/events", {"events": list(events), **fields})
        assert answer.status_code == 201, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def head_seq(self, path: str) -> int:
        """Return where a session's head is."""
        seq: int = (await self.get(path)).json()["head_seq"]
        return seq


async def key_for(settings: Settings, tenant: str, *scopes: str, **fields: Any) -> str:
    """Make a key of a tenant and return it."""
    async with build(settings) as services:
        wanted = WantedKey(tenant_id=tenant, name="test", scopes=scopes, **fields)
        return (await services.keys.create(wanted, by=CLI)).secret


@pytest.fixture
async def client(database_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application with the usual settings."""
    async with client_of(settings_for(database_url)) as client:
        yield client


@pytest.fixture
async def api(client: httpx.AsyncClient) -> Api:
    """The service, called with every scope."""
    return Api(client)


def client_of(settings: Settings) -> "RunningClient":
    """Return a client of an application with these settings; use it in `async with`."""
    return RunningClient(settings)


class RunningClient:
    """Starts the application, gives a client, and stops it."""

    def __init__(self, settings: Settings) -> None:
        self._app = create_app(settings)

    async def __aenter__(self) -> httpx.AsyncClient:
        self._lifespan = self._app.router.lifespan_context(self._app)
        await self._lifespan.__aenter__()
        transport = httpx.ASGITransport(app=self._app)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://test")
        return self._client

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()
        await self._lifespan.__aexit__(None, None, None)


def user(text: str, **fields: Any) -> dict[str, Any]:
    """Return a user's event."""
    return {"author": "user", "content": {"role": "user", "parts": [{"text": text}]}, **fields}


def model(text: str, author: str = "agent", **fields: Any) -> dict[str, Any]:
    """Return a model's event."""
    content = {"role": "model", "parts": [{"text": text}]}
    return {"author": author, "content": content, **fields}


def call(name: str, call_id: str, args: Any = None, author: str = "agent") -> dict[str, Any]:
    """Return an event that calls a tool."""
    part = {"function_call": {"id": call_id, "name": name, "args": args or {}}}
    return {"author": author, "content": {"role": "model", "parts": [part]}}


def response(name: str, call_id: str, result: Any = None, author: str = "agent") -> dict[str, Any]:
    """Return an event that answers a call."""
    part = {"function_response": {"id": call_id, "name": name, "response": result or {"ok": 1}}}
    return {"author": author, "content": {"role": "user", "parts": [part]}}


def zipped(body: Any) -> bytes:
    """Return a JSON body in gzip."""
    return gzip.compress(json.dumps(body).encode())
