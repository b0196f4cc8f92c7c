"""From what was sent to events that can be appended."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.core.json_text import RawItem, parse_object
from app.formats import CONVERTERS
from app.services.prepare_events import EventPreparer, SentBatch, body_hash, uuid7

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


class Words:
    """Counts words."""

    def count(self, text: str) -> int:
        return len(text.split())


PREPARER = EventPreparer(converters=CONVERTERS, tokens=Words())


def batch(*values: Any, **fields: Any) -> SentBatch:
    return SentBatch(items=[RawItem(value, json.dumps(value)) for value in values], **fields)


async def test_what_lacks_an_id_and_a_time_gets_them() -> None:
    prepared, _ = await PREPARER.prepare(batch({"author": "user", "content": "x"}), now=NOW)
    assert prepared[0].event.timestamp == NOW.timestamp()
    assert len(prepared[0].event.id) == 36
    assert not prepared[0].has_own_id


async def test_long_texts_are_counted_as_short_ones_are() -> None:
    prepared, _ = await PREPARER.prepare(
        batch({"content": "a b"}, {"content": "a " * 20_000}), now=NOW
    )
    assert [each.tokens for each in prepared] == [6, 20_004]


async def test_an_own_timestamp_of_zero_stays() -> None:
    prepared, _ = await PREPARER.prepare(batch({"content": "x", "timestamp": 0}), now=NOW)
    assert prepared[0].event.timestamp == 0


async def test_what_of_an_item_is_not_read_is_told() -> None:
    item = {"role": "assistant", "content": "x", "annotations": [{"type": "url_citation"}]}
    sent = batch(item, source_format="openai_chat", pointer="/items", agent="bot")
    _, notes = await PREPARER.prepare(sent, now=NOW)
    assert [note.pointer for note in notes] == ["/items/0/annotations"]


async def test_temp_state_is_dropped_and_told() -> None:
    event = {"content": "x", "actions": {"state_delta": {"temp:a": 1, "b": 2}}}
    prepared, notes = await PREPARER.prepare(batch(event), now=NOW)
    assert prepared[0].state_delta == {"b": 2}
    assert [note.pointer for note in notes] == ["/events/0/actions/state_delta/temp:a"]


@pytest.mark.parametrize("key", ["state_delta", "stateDelta"])
async def test_what_is_temporary_is_not_in_the_text_either(key: str) -> None:
    text = f"""{{"content": {{"parts": [{{"text": "\\u00e9 1.00"}}]}},
        "actions" : {{ "{key}": {{"temp:a": "secret", "b": 1.50, "temp:b": {{}}, "c": [ 1 ]}} }},
        "custom_metadata": {{"n": 123456789012345678901234567890}} }}"""
    items = parse_object(f'{{"events": [{text}]}}', kept=("events",))["events"]
    ((stored,), _) = await PREPARER.prepare(SentBatch(items=items), now=NOW)
    assert json.loads(stored.raw)["actions"] == {key: {"b": 1.5, "c": [1]}}
    for piece in ('"text": "\\u00e9 1.00"', "1.50", "[ 1 ]", "123456789012345678901234567890"):
        assert piece in stored.raw
    assert stored.body_hash == PREPARER.read_again(stored.raw, "native", 0, "").body_hash


async def test_a_stored_event_is_derived_again_from_its_item() -> None:
    message = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "done"},
            {"type": "text", "text": "next please"},
        ],
    }
    sent = batch(message, source_format="anthropic", pointer="/items", agent="bot")
    prepared, _ = await PREPARER.prepare(sent, now=NOW)
    for each in prepared:
        again = PREPARER.derive(each.raw, each.source_format, each.item_part)
        assert (again.parts, again.part_tokens) == (each.event.parts, each.event.part_tokens)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"invocationId": "i"}, {"invocation_id": "i"}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1, "b": None}, {"a": 1}, True),
        ({"a": 1, "seq": 5, "status": "live", "masked_by": None, "tokens": 3}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"actions": {"stateDelta": {"aB": 1}}}, {"actions": {"state_delta": {"aB": 1}}}, True),
        ({"actions": {"stateDelta": {"aB": 1}}}, {"actions": {"stateDelta": {"a_b": 1}}}, False),
        (
            {"content": {"parts": [{"functionCall": {"args": {"aB": 1}}}]}},
            {"content": {"parts": [{"function_call": {"args": {"aB": 1}}}]}},
            True,
        ),
    ],
)
def test_bodies_are_the_same_in_either_spelling(one: Any, other: Any, *, is_same: bool) -> None:
    assert (body_hash(one) == body_hash(other)) is is_same


def test_our_ids_sort_by_time() -> None:
    ids = [str(uuid7(NOW + timedelta(milliseconds=n))) for n in range(50)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 50
    assert all(each[14] == "7" and each[19] in "89ab" for each in ids)
