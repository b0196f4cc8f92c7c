"""What is wrong in an item is told by a pointer into the item, in every format.

One wrong value is planted at every place of one item of everything that a format has.
"""

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from app.core.errors import InvalidEventError
from app.core.json_text import RawItem, parse_json
from app.formats import CONVERTERS
from app.formats.sources import Source
from app.services.prepare_events import EventPreparer, SentBatch
from tests.wire_items import ITEMS

WRONG: Final[tuple[Any, ...]] = (
    5,
    1.5,
    True,
    None,
    "",
    [],
    {},
    "x" * 2_000,
    "\ud800",
    ["a"],
    {"nope": 1},
)
#: What a note of these words tells of is the very value that was planted.
ABOUT_A_VALUE: Final = ("emitted", "_raw")


class Words:
    """Counts nothing."""

    def count(self, text: str) -> int:
        return len(text)


PREPARER: Final = EventPreparer(converters=CONVERTERS, tokens=Words())
NOW: Final = datetime(2026, 11, 30, tzinfo=UTC)


async def told(format_name: str, item: Any) -> list[tuple[str, str, bool]]:
    """Return pointer and words of what is told of an item, and whether it is refused."""
    raw = json.dumps(item)
    batch = SentBatch(
        items=[RawItem(parse_json(raw), raw)],
        pointer="/items",
        source_format=format_name,
        agent="bot",
    )
    try:
        _, notes = await PREPARER.prepare(batch, now=NOW)
    except InvalidEventError as error:
        return [(error.pointer, error.detail, True)]
    return [(note.pointer, note.detail, False) for note in notes]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place in a value but the value itself."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def planted(item: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    """Return a copy of an item with a wrong value at a place."""
    changed = copy.deepcopy(item)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = wrong
    return changed


def resolves(value: Any, tokens: list[str]) -> bool:
    """Tell whether a pointer leads to a value, or to where a member is missing."""
    for number, token in enumerate(tokens):
        if isinstance(value, dict):
            if token not in value:
                return number == len(tokens) - 1
            value = value[token]
        elif isinstance(value, list) and token.isdigit() and int(token) < len(value):
            value = value[int(token)]
        else:
            return False
    return True


CASES: Final = [(name, number) for name, items in ITEMS.items() for number in range(len(items))]


@pytest.mark.parametrize(("format_name", "number"), CASES)
async def test_an_item_as_it_is_sent_is_taken(format_name: str, number: int) -> None:
    item = ITEMS[format_name][number]
    words = [words for _, words, _ in await told(format_name, item)]
    # Of a prompt among the items it is told that it is read as the user's.
    assert len(words) == (item.get("role") in ("system", "developer"))


@pytest.mark.parametrize(("format_name", "number"), CASES)
async def test_one_wrong_thing_is_told_where_it_stands(format_name: str, number: int) -> None:
    item = ITEMS[format_name][number]
    for path in places(item):
        for wrong in WRONG:
            changed = planted(item, path, wrong)
            for pointer, words, is_refused in await told(format_name, changed):
                said = f"{words!r} at {pointer} for {wrong!r:.30} at {path}"
                here, tokens = [str(key) for key in path], pointer.split("/")[3:]
                assert pointer.startswith("/items/0"), said
                assert resolves(changed, tokens), said
                if is_refused or any(about in words for about in ABOUT_A_VALUE):
                    # At the wrong value, in it, or at what holds it.
                    depth = min(len(here), len(tokens))
                    assert here[:depth] == tokens[:depth], said
                if is_refused and not isinstance(wrong, bool | None):
                    assert tokens, said


@pytest.mark.parametrize(
    ("format_name", "item", "pointer"),
    [
        (
            "openai_chat",
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "function": {"name": "", "arguments": ""}},
                ],
            },
            "/tool_calls/1/function/name",
        ),
        (
            "openai_responses",
            {"type": "function_call", "call_id": "a" * 2_000, "name": "f", "arguments": "{}"},
            "/call_id",
        ),
        (
            "anthropic",
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": ""},
                    {"type": "tool_use", "id": "a", "name": "", "input": {}},
                ],
            },
            "/content/1/name",
        ),
        (
            "bedrock",
            {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": "!"}}}]},
            "/content/0/image/source/bytes",
        ),
        (
            "gemini",
            {"role": "user", "parts": [{"text": "a"}, {"fileData": {"mimeType": "a/b"}}]},
            "/parts/1/fileData/file_uri",
        ),
        ("adk", {"content": {"parts": [{"functionCall": {"name": 5}}]}}, None),
        ("adk", {"compiledSeq": -1, "content": "a"}, "/compiledSeq"),
        (
            "adk",
            {"events": [{"content": "a"}, {"content": {"parts": [{"inlineData": {"data": 5}}]}}]},
            "/events/1/content/parts/0/inlineData/data",
        ),
    ],
)
async def test_a_wrong_field_is_named_as_it_was_spelled(
    format_name: str, item: Any, pointer: str | None
) -> None:
    ((found, _, is_refused),) = await told(format_name, item)
    assert is_refused
    assert found == f"/items/0{pointer or '/content/parts/0/functionCall/name'}"


def test_what_the_event_has_of_nowhere_is_told_by_what_holds_it() -> None:
    source = Source({"a": {"b": "text", "c": [1]}}, lambda _: [{"x": {"y": "new"}}])
    assert source.pointer(0, "/x/y") == ""
    item: Any = {"a": {"b": "text", "c": [1, 2]}}
    source = Source(item, lambda value: [{"x": {"y": "new", "z": value["a"]["b"]}}])
    assert source.pointer(0, "/x/y") == "/a"
    assert source.pointer(0, "/x/z") == "/a/b"
    assert source.pointer(0, "/x/z/deeper/still") == "/a/b"
