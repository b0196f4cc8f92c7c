"""A large event, or a large batch, is not worked on where every other request is answered: nothing
of it runs on the event loop's thread at once that takes long. Told from what runs there, not from
clocks."""

import json
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

from app.api import bodies
from app.core import canonical, json_text
from app.providers.tokenizer import PIECE_CHARACTERS, Tokenizer
from app.services import prepare_events, resolve_batch
from app.storage import insert_events
from tests.api.conftest import Api, model, response, user, zipped

#: What may be worked on at once on the loop, in characters.
MOST_ON_LOOP: Final = 65_536
MEGABYTE: Final = 1_000_000

LARGE: Final = {
    "prose": "the order is held at the hub " * (MEGABYTE // 29),
    "members": [{"at": n, "place": f"hub {n}"} for n in range(MEGABYTE // 36)],
    "numbers": [n * 1.5 for n in range(MEGABYTE // 10)],
}


class Watch:
    """Notes how large what runs on the loop's thread is."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._loop_thread = threading.get_ident()
        self.on_loop: dict[str, int] = {}
        self.beside: dict[str, int] = {}

    def watch(self, owner: Any, name: str, size_of: Callable[..., int]) -> None:
        original = getattr(owner, name)

        def noting(*args: Any, **kwargs: Any) -> Any:
            is_loop = threading.get_ident() == self._loop_thread
            noted = self.on_loop if is_loop else self.beside
            noted[name] = max(noted.get(name, 0), size_of(*args, **kwargs))
            return original(*args, **kwargs)

        self._patch.setattr(owner, name, noting)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watching = Watch(monkeypatch)
    watching.watch(bodies, "parse_object", lambda text, **_: len(text))
    watching.watch(prepare_events, "parse_event", lambda value, **_: len(json.dumps(value)))
    watching.watch(prepare_events, "body_hash", lambda value: len(json.dumps(value)))
    watching.watch(Tokenizer, "count", lambda _, text: len(text))
    watching.watch(insert_events, "pack_derived", lambda event: sum(map(_size, event.parts)))
    return watching


def _size(part: Any) -> int:
    return len(getattr(part, "text", "") or getattr(part, "response", ""))


@pytest.mark.parametrize("kind", LARGE)
async def test_a_large_event_is_worked_on_beside_the_loop(
    api: Api, watch: Watch, kind: str
) -> None:
    path = await api.session()

    await api.append(path, response("read", "c1", {"result": LARGE[kind]}))

    assert {name: size for name, size in watch.on_loop.items() if size > MOST_ON_LOOP} == {}
    # All of it was seen: what is not called any more would not be watched.
    worked_on = {"parse_object", "parse_event", "body_hash", "count", "pack_derived"}
    assert {name for name, size in watch.beside.items() if size > MEGABYTE // 2} == worked_on


async def test_a_large_batch_is_worked_on_beside_the_loop(api: Api, watch: Watch) -> None:
    path = await api.session()
    watch.watch(resolve_batch, "resolve_batch", lambda *given: len(given[1]))
    watch.watch(insert_events, "_values", lambda *given: len(given[0]))

    await api.append(path, *(model(f"answer {number} " * 10) for number in range(500)))

    # The session was made on the loop.
    assert set(watch.on_loop) <= {"parse_object"}
    assert watch.beside["parse_object"] > MOST_ON_LOOP
    assert watch.beside["resolve_batch"] == watch.beside["_values"] == 500


async def test_long_texts_of_a_compile_are_counted_beside_the_loop(api: Api, watch: Watch) -> None:
    path = await api.session()
    long = str(LARGE["prose"])
    await api.append(path, user(long), model(long, author="other"), user("now"))
    await api.post(f"{path}/elisions", {"seqs": [1], "keep_chars": MEGABYTE * 9 // 10})
    watch.on_loop.clear()
    watch.beside.clear()
    instruction = {"static": "s", "dynamic": "Now. " + long}
    for options in ({}, {"instruction": instruction}, {"system": "Here. " + long}):
        body = {"agent": "agent", "format": "anthropic", **options}
        answer = await api.post(f"{path}/compile", body)
        assert answer.status_code == 200, answer.text

    assert watch.on_loop.get("count", 0) <= MOST_ON_LOOP
    assert watch.beside["count"] > MEGABYTE // 2


async def test_a_compressed_body_is_opened_beside_the_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await api.session()
    opened: list[int] = []
    unzip = bodies.DECODERS["gzip"]

    def noting(data: bytes, most: int) -> bytes:
        opened.append(threading.get_ident())
        return unzip(data, most)

    monkeypatch.setitem(bodies.DECODERS, "gzip", noting)
    body = zipped({"events": [model("x" * MEGABYTE)]})
    sent = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answer = await api.call("POST", f"{path}/events", body, headers=sent)

    assert answer.status_code == 201, answer.text
    assert len(opened) == 1
    assert threading.get_ident() not in opened


def test_the_tokenizer_is_given_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    tokenizer = Tokenizer()
    count = tokenizer._encoding.count  # noqa: SLF001

    class Encoding:
        def count(self, text: str) -> int:
            sizes.append(len(text))
            return int(count(text))

    monkeypatch.setattr(tokenizer, "_encoding", Encoding())
    tokenizer.count("word " * 200_000)

    assert sum(sizes) == MEGABYTE
    assert max(sizes) == PIECE_CHARACTERS <= MOST_ON_LOOP // 4


@pytest.mark.parametrize("kind", ["members", "numbers"])
def test_a_large_value_is_written_and_read_in_steps(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value: Any = {"result": LARGE[kind], "odd": ["a\x00b", float("inf")]}
    expected = canonical.canonical_json(value)
    at_once: list[object] = []
    monkeypatch.setattr(canonical, "_encode", at_once.append)

    text = canonical.canonical_json(value)

    assert text == expected
    assert at_once == []
    monkeypatch.undo()
    # Reading, ours is asked between any two members.
    steps = 0
    for name in ("_integer", "_float"):
        original = getattr(json_text, name)

        def counting(digits: str, original: Any = original) -> Any:
            nonlocal steps
            steps += 1
            return original(digits)

        monkeypatch.setattr(json_text, name, counting)
    items = json_text.parse_object(f'{{"events":[{text}]}}', kept=("events",))["events"]
    assert items[0].value == json.loads(text)
    assert steps >= len(LARGE[kind])
