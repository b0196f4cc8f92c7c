"""Following a log: nothing lost, nothing twice, nothing kept for who does not read."""

# What is left of a stream is inside.
# ruff: noqa: SLF001

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest

from app.api import event_stream
from app.api.event_stream import EventStream
from app.core.canonical import canonical_json
from app.core.errors import (
    InvalidInputError,
    SessionNotFoundError,
    StreamLimitError,
    UnauthenticatedError,
)
from app.core.ids import session_uid
from app.core.json_text import RawItem, parse_json
from app.core.lanes import Reader
from app.ports import NewSession, SessionKey
from app.providers.hints import LocalHints
from app.services import stream_events
from app.services.append_events import Append
from app.services.bundle import Services
from app.services.prepare_events import SentBatch
from app.services.stream_events import Follower, StreamEndedError, StreamEvents, StreamLimits
from app.wiring import build_parts
from tests.api.conftest import model, settings_for, user

NEW = NewSession(app_name="app", user_id="user")


@pytest.fixture
async def services(database_url: str) -> AsyncIterator[Services]:
    """The services of a process."""
    async with build_parts(settings_for(database_url)) as parts:
        yield parts.services


@pytest.fixture
async def key(services: Services) -> SessionKey:
    """A session."""
    name = uuid4().hex
    made = SessionKey("default", name, session_uid("default", name))
    await services.sessions.open(made, NEW, must_be_new=True)
    return made


async def append(services: Services, key: SessionKey, *events: Any) -> int:
    """Append events and return where the head is."""
    items = [RawItem(event, canonical_json(event)) for event in events]
    result = await services.append_events(Append(key=key, batch=SentBatch(items=items)))
    return result.head_seq


async def follow(services: Services, key: SessionKey, after_seq: int | None = 0) -> Follower:
    return await services.stream_events.open(key, reader=None, after_seq=after_seq)


async def take(follower: Follower, count: int) -> list[int]:
    """Return the seqs of the next so many events."""
    seqs: list[int] = []
    async with asyncio.timeout(30):
        while len(seqs) < count:
            seqs += [view.logged.seq for view in await follower.next(5)]
    return seqs


async def test_a_follower_is_given_what_was_and_what_comes(
    services: Services, key: SessionKey
) -> None:
    await append(services, key, *[user(str(n)) for n in range(300)])
    follower = await follow(services, key)
    assert await take(follower, 300) == list(range(1, 301))
    assert list(await follower.next(0)) == []
    await append(services, key, user("a"), user("b"))
    assert await take(follower, 2) == [301, 302]
    follower.close()


async def test_without_a_position_it_begins_at_the_head(
    services: Services, key: SessionKey
) -> None:
    await append(services, key, user("before"))
    follower = await follow(services, key, None)
    await append(services, key, user("after"))
    assert await take(follower, 1) == [2]
    follower.close()


async def test_many_followers_share_one_reading(services: Services, key: SessionKey) -> None:
    followers = [await follow(services, key, None) for _ in range(20)]
    pages = 0
    page = services.read_events.page

    async def counted(*args: Any, **named: Any) -> Any:
        nonlocal pages
        pages += 1
        return await page(*args, **named)

    services.stream_events._read_events = type("Counted", (), {"page": staticmethod(counted)})()
    taking = asyncio.gather(*[take(follower, 5) for follower in followers])
    for number in range(5):
        await append(services, key, user(str(number)))
    assert await taking == [[1, 2, 3, 4, 5]] * 20
    assert pages <= 10
    for follower in followers:
        follower.close()


async def test_one_who_is_far_behind_reads_the_log_itself(
    services: Services, key: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_events, "SHARED_BYTES", 500)
    quick, slow = await follow(services, key), await follow(services, key)
    for number in range(40):
        await append(services, key, user(f"{number} {'x' * 50}"))
        assert await take(quick, 1) == [number + 1]
    assert quick._feed.shared_bytes <= 500
    assert await take(slow, 40) == list(range(1, 41))
    quick.close()
    slow.close()


async def test_followers_who_come_and_go_are_each_given_everything(
    services: Services, key: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_events, "SHARED_BYTES", 2000)
    is_over = False

    async def follower(start: int) -> list[int]:
        seqs: list[int] = []
        while not (is_over and seqs and seqs[-1] == 120):
            # A new connection every few events.
            one = await follow(services, key, seqs[-1] if seqs else start)
            for _ in range(3):
                seqs += [view.logged.seq for view in await one.next(0.05)]
            one.close()
        return seqs

    taking = [asyncio.create_task(follower(0)) for _ in range(5)]
    for number in range(60):
        await append(services, key, user(f"{number} {'x' * (number * 7 % 300)}"), model("m"))
    is_over = True
    async with asyncio.timeout(60):
        assert await asyncio.gather(*taking) == [list(range(1, 121))] * 5
    assert services.stream_events.count == 0


async def test_a_reader_is_given_what_it_may_see(services: Services, key: SessionKey) -> None:
    reader = Reader(agent="a", branch="root.a")
    follower = await services.stream_events.open(key, reader=reader, after_seq=0)
    await append(
        services,
        key,
        user("for all"),
        {**model("mine"), "branch": "root.a"},
        {**model("theirs"), "branch": "root.b"},
        {**user("scoped"), "isolation_scope": "s"},
        user("for all again"),
    )
    assert await take(follower, 3) == [1, 2, 5]
    assert follower.position == 5
    follower.close()


async def test_an_append_elsewhere_is_found_without_a_hint(
    services: Services, key: SessionKey, database_url: str
) -> None:
    follower = await follow(services, key)
    async with build_parts(settings_for(database_url)) as other:
        await append(other.services, key, user("from another process"))
        assert await take(follower, 1) == [1]
    follower.close()


async def test_what_was_rolled_back_is_never_given(services: Services, key: SessionKey) -> None:
    follower = await follow(services, key)
    with pytest.raises(InvalidInputError):
        await append(services, key, user("a"), {"author": 7})
    await append(services, key, user("b"))
    assert await take(follower, 1) == [1]
    assert list(await follower.next(0.5)) == []
    follower.close()


async def test_a_session_that_is_erased_ends_its_streams(
    services: Services, key: SessionKey
) -> None:
    follower = await follow(services, key)
    await append(services, key, user("a"))
    await take(follower, 1)
    await services.sessions.erase(key, actor="test")
    with pytest.raises(StreamEndedError, match="erased"):
        await follower.next(10)
    follower.close()
    # One of the same name has nothing to do with it.
    await services.sessions.open(key, NEW, must_be_new=True)
    again = await follow(services, key)
    await append(services, key, user("new"))
    assert await take(again, 1) == [1]
    again.close()


async def test_where_nothing_can_be_followed_nothing_is_counted(
    services: Services, key: SessionKey
) -> None:
    missing = SessionKey("default", "none", uuid4())
    with pytest.raises(SessionNotFoundError):
        await follow(services, missing)
    with pytest.raises(InvalidInputError) as caught:
        await services.stream_events.open(key, reader=None, after_seq=1, pointer="/p")
    assert caught.value.pointer == "/p"
    assert services.stream_events.count == 0


async def test_streams_are_limited_by_process_and_tenant(
    services: Services, key: SessionKey
) -> None:
    streams = StreamEvents(
        database=services.stream_events._database,
        log=services.stream_events._log,
        read_events=services.read_events,
        hints=LocalHints(),
        limits=StreamLimits(max_streams=3, tenant_streams=2),
    )
    name = uuid4().hex
    other = SessionKey("other", name, session_uid("other", name))
    await services.sessions.open(other, NEW, must_be_new=True)

    async def opened(of: SessionKey) -> Follower:
        return await streams.open(of, reader=None, after_seq=None)

    first, second = await opened(key), await opened(key)
    with pytest.raises(StreamLimitError) as caught:
        await opened(key)
    assert caught.value.limit_name == "tenant_streams"
    third = await opened(other)
    with pytest.raises(StreamLimitError) as caught:
        await opened(other)
    assert caught.value.limit_name == "max_streams"
    first.close()
    first.close()
    assert streams.count == 2
    fourth = await opened(key)
    for follower in (second, third, fourth):
        follower.close()
    assert streams.count == 0
    assert not streams._feeds
    await streams.close()


async def test_no_connection_is_held_while_nothing_happens(
    services: Services, key: SessionKey
) -> None:
    engine = services.stream_events._database.engine  # type: ignore[attr-defined]
    followers = [await follow(services, key) for _ in range(50)]
    waiting = [asyncio.create_task(follower.next(2)) for follower in followers]
    await asyncio.sleep(0.1)
    used = []
    for _ in range(50):
        await asyncio.sleep(0.01)
        used.append(engine.pool.checkedout())
    # The one look for all of them, now and then.
    assert max(used) <= 1
    assert used.count(0) > len(used) / 2
    await asyncio.gather(*waiting)
    for follower in followers:
        follower.close()


async def test_nothing_is_left_when_all_have_gone(services: Services, key: SessionKey) -> None:
    follower = await follow(services, key)
    await append(services, key, user("a"))
    await take(follower, 1)
    follower.close()
    watch = services.stream_events._watch
    assert watch is not None
    async with asyncio.timeout(10):
        await watch
    assert not services.stream_events._feeds


# As an answer


class Client:
    """An ASGI client that takes what it wants to."""

    def __init__(self, stream: EventStream) -> None:
        self.sent: list[bytes] = []
        self.headers: dict[str, str] = {}
        self.is_gone = asyncio.Event()
        self.may_take = asyncio.Event()
        self.may_take.set()
        self.waiting = 0
        self.task = asyncio.create_task(stream({}, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.waiting += 1
        await self.may_take.wait()
        self.waiting -= 1
        if message["type"] == "http.response.start":
            self.headers = {n.decode(): v.decode() for n, v in message["headers"]}
        else:
            self.sent.append(message["body"])

    @property
    def text(self) -> str:
        """All that was sent."""
        return b"".join(self.sent).decode()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110  what it waits for has no event
                await asyncio.sleep(0.01)


async def allowed() -> None:
    """Let everyone listen."""


async def test_events_are_sent_with_their_seq_and_kind(services: Services, key: SessionKey) -> None:
    await append(services, key, user("a"), model("b"), user("c"))
    await services.rewind_session(key, before_invocation_id=None, to_seq=2, expected_seq=None)
    client = Client(EventStream(await follow(services, key), allowed))
    await client.until(lambda: "id: 4" in client.text)
    client.is_gone.set()
    await client.task

    assert client.headers["content-type"].startswith("text/event-stream")
    assert (client.headers["cache-control"], client.headers["etag"]) == ("no-store", '"4"')
    assert "content-length" not in client.headers
    first, *blocks = client.text.rstrip("\n").split("\n\n")
    assert first.startswith("retry: ")
    lines = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    told = [(line["id"], line["event"]) for line in lines]
    assert told == [("1", "append"), ("2", "append"), ("3", "append"), ("4", "rewind")]
    events = [parse_json(line["data"]) for line in lines]
    assert [event["seq"] for event in events] == [1, 2, 3, 4]  # type: ignore[index,call-overload]
    assert services.stream_events.count == 0


async def test_a_body_with_line_ends_is_one_event(services: Services, key: SessionKey) -> None:
    raw = '{"author": "user",\n "content":\r\n {"role": "user",\r "parts": [{"text": "a\\nb"}]}}'
    item = RawItem(parse_json(raw), raw)
    await services.append_events(Append(key=key, batch=SentBatch(items=[item])))
    client = Client(EventStream(await follow(services, key), allowed))
    await client.until(lambda: "id: 1" in client.text)
    client.is_gone.set()
    await client.task

    block = client.text.rstrip("\n").split("\n\n")[1]
    assert "\r" not in block
    data = [line.removeprefix("data: ") for line in block.splitlines()[2:]]
    assert len(data) > 1
    event = parse_json("\n".join(data))
    assert event["content"]["parts"] == [{"text": "a\nb"}]  # type: ignore[index,call-overload]


async def test_a_client_that_takes_nothing_is_not_read_for_and_then_left(
    services: Services, key: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(services, key, *[user("x" * 2000) for _ in range(200)])
    monkeypatch.setattr(event_stream, "SEND_TIMEOUT_S", 3.0)
    follower = await follow(services, key)
    client = Client(EventStream(follower, allowed))
    await client.until(lambda: bool(client.sent))
    client.may_take.clear()
    await append(services, key, user("more"))
    # However much it took before: what it is offered now, it does not take.
    await client.until(lambda: client.waiting == 1)
    position = follower.position
    await append(services, key, user("and more"))
    await asyncio.sleep(0.5)

    assert follower.position == position < 202
    assert client.waiting == 1
    async with asyncio.timeout(20):
        await client.task
    assert services.stream_events.count == 0
    again = await follow(services, key, 202)
    again.close()


async def test_a_quiet_stream_beats_and_asks_whether_it_may_go_on(
    services: Services, key: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.1)
    is_revoked = False

    async def check() -> None:
        if is_revoked:
            raise UnauthenticatedError

    client = Client(EventStream(await follow(services, key), check))
    await client.until(lambda: client.text.count(": heartbeat") >= 3)
    is_revoked = True
    async with asyncio.timeout(10):
        await client.task
    assert client.text.rstrip().split("\n\n")[-1].startswith("event: bye\n")
    assert '{"reason":"unauthenticated"}' in client.text
    assert services.stream_events.count == 0


async def test_a_busy_stream_asks_too(
    services: Services, key: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.2)

    async def check() -> None:
        raise UnauthenticatedError

    client = Client(EventStream(await follow(services, key), check))
    async with asyncio.timeout(20):
        while not client.task.done():
            await append(services, key, user("a"))
    assert "bye" in client.text


async def test_a_process_that_drains_says_goodbye(services: Services, key: SessionKey) -> None:
    client = Client(EventStream(await follow(services, key), allowed))
    stuck = Client(EventStream(await follow(services, key), allowed))
    await client.until(lambda: bool(client.sent and stuck.sent))
    stuck.may_take.clear()
    services.stream_events.is_draining = lambda: True
    async with asyncio.timeout(10):
        await asyncio.gather(client.task, stuck.task)
    assert (
        client.text.rstrip()
        .split("\n\n")[-1]
        .startswith('event: bye\ndata: {"reason":"draining"}\nretry: ')
    )
    assert services.stream_events.count == 0
