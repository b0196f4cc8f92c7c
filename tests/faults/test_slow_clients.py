"""Clients that send their bodies slowly or never, and clients that never take their answers.

They wait, and nobody else does. Real sockets, because what a client leaves out is what counts.
"""

import json
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.faults.balancer import balanced
from tests.faults.processes import fleet
from tests.programs import wait_until

pytestmark = pytest.mark.commits

PLACES: Final = 4
#: More than there are places.
SLOW: Final = 3 * PLACES
BODY_TIMEOUT_S: Final = 8.0
PATIENCE_S: Final = 30.0
CREATED: Final = {"create": {"app_name": "a", "user_id": "u"}}
BODY: Final = json.dumps({"events": [{"author": "user", "content": "hi"}], **CREATED}).encode()
SCOPES: Final = ["events:read", "events:write", "compile"]


class Site:
    """A service with few places, and a key for each of two tenants."""

    def __init__(self, admin: httpx.Client) -> None:
        self._admin = admin
        self.port = admin.base_url.port or 0
        self.slow_key, self.other_key = self._key("slow"), self._key("other")

    def _key(self, tenant: str) -> str:
        made = self._admin.post("/v1/admin/keys", json={"tenant_id": tenant, "scopes": SCOPES})
        assert made.status_code == 201, made.text
        key: str = made.json()["key"]
        return key

    def begin(self, key: str, *, size: int = len(BODY), port: int | None = None) -> socket.socket:
        """Begin an append whose body does not come yet."""
        connection = socket.create_connection(("127.0.0.1", port or self.port), timeout=PATIENCE_S)
        connection.sendall(_head("POST", "/v1/sessions/none/events", key, size=size) + b"{")
        return connection

    def asks(self, key: str, *, port: int | None = None) -> httpx.Response:
        """Append at once, as everybody does."""
        url = f"http://127.0.0.1:{port or self.port}/v1/sessions/s/events"
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(url, content=BODY, headers=headers, timeout=PATIENCE_S)

    def in_flight(self) -> int:
        """Return how many requests are being answered, beside the one that asks."""
        lines = self._admin.get("/metrics").text.splitlines()
        counts = [
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("foldline_http_requests_in_flight{") and "/v1/sessions" in line
        ]
        return int(sum(counts))


def _head(method: str, path: str, key: str, *, size: int) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        f"Content-Length: {size}",
    ]
    return "\r\n".join([*lines, "\r\n"]).encode()


def answer_on(connection: socket.socket) -> tuple[HTTPResponse, Any]:
    """Read an answer, and its body as JSON."""
    answer = HTTPResponse(connection)
    answer.begin()
    return answer, json.loads(answer.read())


def crowd(site: Site, stack: ExitStack, *, places: int) -> list[tuple[HTTPResponse, Any]]:
    """Take all places with bodies that stop, and more; return the answers of those whose place
    another took: each time the one that waited longest."""
    slow: list[socket.socket] = []
    answers: list[tuple[HTTPResponse, Any]] = []
    before = site.in_flight()
    for number in range(SLOW):
        slow.append(stack.enter_context(site.begin(site.slow_key)))
        if number < places:
            wait_until(lambda: site.in_flight() == before + len(slow))
        else:
            answers.append(answer_on(slow[number - places]))
    return answers


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Iterator[Site]:
    settings = {"MAX_REQUESTS": str(PLACES), "BODY_TIMEOUT_S": str(BODY_TIMEOUT_S)}
    with fleet(database_url, tmp_path, **settings) as processes:
        _, client = processes.service()
        yield Site(client)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_bodies_that_stop_shut_nobody_out(site: Site, stack: ExitStack) -> None:
    refused = crowd(site, stack, places=PLACES)

    assert [site.asks(site.other_key).status_code for _ in range(3)] == [201] * 3
    assert [site.asks(site.slow_key).status_code for _ in range(3)] == [201] * 3
    for answer, problem in refused:
        assert (answer.status, problem["code"]) == (503, "overloaded")
        assert answer.headers["Connection"] == "close"
        assert answer.headers["Retry-After"] == "1"


def test_the_tenant_with_most_bodies_on_their_way_makes_room(site: Site, stack: ExitStack) -> None:
    first = stack.enter_context(site.begin(site.other_key))
    wait_until(lambda: site.in_flight() == 1)
    crowd(site, stack, places=PLACES - 1)
    assert site.asks(site.other_key).status_code == 201

    first.sendall(BODY[1:])
    answer, _ = answer_on(first)
    assert answer.status == 201


def test_a_body_has_its_time_however_often_something_of_it_comes(
    site: Site, stack: ExitStack
) -> None:
    connection = stack.enter_context(site.begin(site.slow_key, size=1000))
    for _ in range(int(4 * BODY_TIMEOUT_S)):
        connection.sendall(b" ")
        if select.select([connection], [], [], 0.5)[0]:
            break
    answer, problem = answer_on(connection)

    assert answer.status == 408
    assert answer.headers["Connection"] == "close"
    assert (problem["code"], problem["limit_name"]) == ("body_timeout", "body_timeout_s")
    assert problem["limit"] == BODY_TIMEOUT_S
    assert connection.recv(1) == b""


def test_answers_that_nobody_takes_shut_nobody_out(site: Site, stack: ExitStack) -> None:
    large = {"events": [{"author": "user", "content": "x" * 900_000}], **CREATED}
    url = f"http://127.0.0.1:{site.port}/v1/sessions/s/events"
    headers = {"Authorization": f"Bearer {site.slow_key}"}
    for _ in range(8):
        assert httpx.post(url, json=large, headers=headers).status_code == 201
    ask = _head("GET", "/v1/sessions/s/events?limit=1000", site.slow_key, size=0)
    for _ in range(PLACES):
        connection = socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_S)
        stack.enter_context(connection).sendall(3 * ask)
    # The second answer of each waits until the first is taken.
    wait_until(lambda: site.in_flight() == PLACES)

    assert site.asks(site.other_key).status_code == 201


def test_no_body_is_waited_for_without_a_key(site: Site, stack: ExitStack) -> None:
    document = httpx.get(f"http://127.0.0.1:{site.port}/openapi.json").json()
    asked = 0
    for path, operations in document["paths"].items():
        for method in (name for name, about in operations.items() if "requestBody" in about):
            address = ("127.0.0.1", site.port)
            connection = stack.enter_context(socket.create_connection(address, timeout=5))
            sent = path.replace("{", "").replace("}", "")
            connection.sendall(_head(method.upper(), sent, "nobody's", size=50))
            answer, _ = answer_on(connection)
            assert answer.status == 401, path
            asked += 1
    assert asked > 10


def test_bodies_that_stop_before_the_load_balancer_shut_nobody_out(
    site: Site, stack: ExitStack, tmp_path: Path
) -> None:
    port = urlsplit(stack.enter_context(balanced([site.port], tmp_path))).port
    wait_until(lambda: site.asks(site.other_key, port=port).is_success)
    for _ in range(SLOW):
        stack.enter_context(site.begin(site.slow_key, port=port))

    assert [site.asks(site.other_key, port=port).status_code for _ in range(5)] == [201] * 5
    # Of a small body nothing has reached a replica.
    assert site.in_flight() == 0
