"""What of an item is not read is told by a pointer to it, in every format.

One member that nobody knows is planted in every object of one item of everything that a format has.
"""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from app.core.errors import InvalidEventError
from app.formats import CONVERTERS
from app.formats.fields import Notes
from app.formats.sources import parse_item
from app.formats.unread import Kinds, Members, members, unread
from tests.wire_items import ITEMS

FORMATS: Final = sorted(ITEMS.keys() - {"adk"})
PLANTED: Final = "planted here"
#: What says how an answer came about, and where a cache ends: no part of what was said.
ABOUT: Final = frozenset({"cache_control", "cachePoint", "usage"})


def places(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every object in a value, and where it stands."""
    if isinstance(value, dict):
        yield pointer, value
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, f"{pointer}/{key}")


def notes_on(format_name: str, item: Any) -> Notes:
    notes: Notes = []
    CONVERTERS[format_name](item, agent="bot", notes=notes)
    return notes


CASES: Final = [(name, number) for name in FORMATS for number in range(len(ITEMS[name]))]


@pytest.mark.parametrize(("format_name", "number"), CASES)
def test_a_member_that_nobody_knows_is_told_kept_or_refused(format_name: str, number: int) -> None:
    item = ITEMS[format_name][number]
    count = sum(1 for _ in places(item))
    for index in range(count):
        changed = copy.deepcopy(item)
        pointer, holder = list(places(changed))[index]
        holder["mood"] = PLANTED
        try:
            notes = notes_on(format_name, changed)
            convert = partial(CONVERTERS[format_name], agent="bot")
            events = [one.event for one in parse_item(changed, convert)]
        except InvalidEventError:
            continue
        if pointer.rpartition("/")[2] in ABOUT or (not pointer and "usage" in item):
            continue
        is_told = any(at == f"{pointer}/mood" for at, _ in notes)
        assert is_told != (PLANTED in repr(events)), pointer


@pytest.mark.parametrize(("format_name", "number"), CASES)
def test_of_an_item_as_it_is_sent_nothing_is_told(format_name: str, number: int) -> None:
    assert notes_on(format_name, ITEMS[format_name][number]) == []


def chat(role: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": "hi", **fields}


def asked(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def answered(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content), **fields}


CITATION: Final[dict[str, Any]] = {"type": "char_location", "document_index": 0, "cited_text": "a"}
SEARCHED: Final[dict[str, Any]] = {"type": "web_search_result_location", "encrypted_index": "a"}
S3: Final = {"s3Location": {"uri": "s3://bucket/a.png", "bucketOwner": "1"}}


@pytest.mark.parametrize(
    ("format_name", "item", "pointers"),
    [
        (
            "openai_chat",
            chat("assistant", annotations=[{"type": "url_citation"}]),
            ["/annotations"],
        ),
        ("openai_chat", chat("assistant", reasoning_details=[{}]), ["/reasoning_details"]),
        (
            "openai_chat",
            chat("user", tool_call_id="a", refusal="no"),
            ["/tool_call_id", "/refusal"],
        ),
        ("openai_chat", chat("assistant", annotations=[], mood=None, odd=False, words=""), []),
        (
            "openai_responses",
            answered(
                {"type": "output_text", "text": "a", "annotations": [{}], "logprobs": []},
                {"type": "refusal", "refusal": "no"},
            ),
            ["/content/0/annotations", "/content/1"],
        ),
        (
            "openai_responses",
            {"output": [answered({"type": "output_text", "text": "a", "annotations": [{}]})]},
            ["/output/0/content/0/annotations"],
        ),
        (
            "openai_responses",
            {
                "type": "response_item",
                "payload": answered({"type": "output_text", "text": "a", "annotations": [{}]}),
            },
            ["/payload/content/0/annotations"],
        ),
        (
            "openai_responses",
            {"type": "computer_call_output", "call_id": "a", "acknowledged_safety_checks": [{}]},
            ["/acknowledged_safety_checks"],
        ),
        (
            "anthropic",
            answered({"type": "text", "text": "a", "citations": [SEARCHED, CITATION]}),
            ["/content/0/citations/1"],
        ),
        (
            "anthropic",
            asked(
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "a", "citations": [SEARCHED]}],
                }
            ),
            ["/content/0/content/0/citations"],
        ),
        ("anthropic", answered({"type": "mood", "mood": 1}), []),
        (
            "bedrock",
            asked(
                {
                    "toolResult": {
                        "toolUseId": "a",
                        "content": [{"image": {"format": "png", "source": S3}}],
                    }
                }
            ),
            ["/content/0/toolResult/content/0/image/source/s3Location/bucketOwner"],
        ),
        ("bedrock", asked({"image": {"format": "png", "source": S3}}), []),
        (
            "gemini",
            {
                "candidates": [
                    {"content": {"parts": [{"text": "a"}]}, "groundingMetadata": {"a": 1}},
                    {"content": {"parts": [{"text": "b"}]}},
                ]
            },
            ["/candidates/1", "/candidates/0/groundingMetadata"],
        ),
    ],
)
def test_what_was_lost_unseen_is_told(format_name: str, item: Any, pointers: list[str]) -> None:
    assert [pointer for pointer, _ in notes_on(format_name, item)] == pointers


def test_what_is_told_of_an_item_is_told_once() -> None:
    item = asked({"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "a"})
    parsed = parse_item({**item, "mood": 1}, partial(CONVERTERS["anthropic"], agent="bot"))
    assert [[pointer for pointer, _ in one.notes] for one in parsed] == [["/mood"], []]


def test_lists_kinds_and_members_are_looked_into() -> None:
    part = Kinds({"a": members("type", "x")}, untagged=members("y"))
    look = members("plain", parts=part, whole=Members({"z": members()}, keeps_others=True))
    value: Any = {
        "plain": {"deep": 1},
        "parts": [{"type": "a", "x": 1, "n": 1}, {"type": "b", "n": 1}, {"n/m": 1}, 5],
        "whole": {"z": {"n": 1}, "n": 1},
    }
    assert [pointer for pointer, _ in unread(value, look)] == [
        "/parts/0/n",
        "/parts/2/n~1m",
        "/whole/z/n",
    ]
    strict = Kinds({"a": members("type")}, keeps_others=False)
    assert [pointer for pointer, _ in unread([{"type": "a"}, {"type": "b"}], strict)] == ["/1"]
