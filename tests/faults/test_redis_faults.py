"""Redis is gone, frozen, or slow: a request may take a moment longer, and nothing else happens."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import pytest

from tests.fakes.tcp_proxy import TcpProxy
from tests.faults.processes import Process, fleet, limited_key
from tests.programs import wait_until
from tests.redis_server import RedisServer

pytestmark = pytest.mark.commits

#: What one request may take, on a busy machine; without a time limit of ours it takes for ever.
PROMPT_S: Final = 3.0
REQUESTS: Final = 4
ERRORS: Final = 'foldline_redis_errors_total{op="rate_limit"}'
IS_TAKEN: Final = 'foldline_redis_up{op="commands"}'
IS_HEARD: Final = 'foldline_redis_up{op="subscribe"}'


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def running(
    database_url: str, proxy: TcpProxy, tmp_path: Path
) -> Iterator[tuple[Process, httpx.Client]]:
    """A service that asks Redis for the rate of every request."""
    redis_url = f"redis://127.0.0.1:{proxy.port}/0"
    with fleet(database_url, tmp_path, REDIS_URL=redis_url) as processes:
        process, client = processes.service()
        client.headers["Authorization"] = f"Bearer {limited_key(client)}"
        yield process, client


def _work(client: httpx.Client) -> None:
    """Append and compile; every request is answered soon, and as if nothing was the matter."""
    path = f"/v1/sessions/{uuid4().hex}"
    _ask(client, "PUT", path, {"app_name": "a", "user_id": "u"})
    for number in range(REQUESTS):
        event = {"id": f"e{number}", "author": "user", "content": "hello"}
        answer = _ask(client, "POST", f"{path}/events", {"events": [event]})
        assert answer["head_seq"] == number + 1
    _ask(client, "POST", f"{path}/compile", {})


def _ask(client: httpx.Client, method: str, path: str, body: object) -> dict[str, object]:
    began_s = time.monotonic()
    answer = client.request(method, path, json=body)
    assert answer.is_success, answer.text
    assert time.monotonic() - began_s < PROMPT_S
    found: dict[str, object] = answer.json()
    return found


def _told(client: httpx.Client, begin: str) -> float:
    """Return what a scrape says, added up over all samples that begin so."""
    lines = client.get("/metrics").text.splitlines()
    values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(begin)]
    assert values
    return sum(values)


def _hold(proxy: TcpProxy, redis_server: RedisServer) -> None:
    del redis_server
    proxy.is_holding = True


def _refuse(proxy: TcpProxy, redis_server: RedisServer) -> None:
    del redis_server
    proxy.refuse()


def _slow(proxy: TcpProxy, redis_server: RedisServer) -> None:
    del redis_server
    proxy.delay_s = 0.5


def _kill(proxy: TcpProxy, redis_server: RedisServer) -> None:
    del proxy
    redis_server.kill()


@pytest.mark.parametrize("fail", [_hold, _refuse, _slow, _kill])
def test_its_loss_costs_a_moment_and_it_is_used_again(
    running: tuple[Process, httpx.Client],
    proxy: TcpProxy,
    redis_server: RedisServer,
    fail: Callable[[TcpProxy, RedisServer], None],
) -> None:
    process, client = running
    _work(client)
    used = proxy.connections
    assert used

    wait_until(lambda: _told(client, IS_TAKEN) == 1, patience_s=60)
    before = _told(client, ERRORS)

    fail(proxy, redis_server)
    _work(client)
    assert client.get("/readyz").is_success
    assert _told(client, IS_TAKEN) == 0
    assert _told(client, ERRORS) > before

    proxy.is_holding, proxy.delay_s = False, 0
    proxy.accept()
    # What hung before is cut off, so that whoever is connected afterwards came back.
    proxy.cut()
    used = proxy.connections
    if fail is _kill:
        redis_server.start()

    def is_used_again() -> bool:
        _work(client)
        return proxy.connections > used

    wait_until(is_used_again, patience_s=60)
    wait_until(lambda: _told(client, IS_TAKEN) == _told(client, IS_HEARD) == 1, patience_s=60)
    assert process.terminate() == 0
