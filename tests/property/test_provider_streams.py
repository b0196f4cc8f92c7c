"""Random streams of a provider's own items, with markers between: what returns to the provider is
valid, with its reasoning and ids, and is what was appended."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.canonical import Json
from app.core.compile.verify import verify
from app.core.copying import replace
from app.core.errors import InvalidInputError
from app.core.events import (
    Event,
    FoldRequest,
    MarkerRequest,
    PinRequest,
    RewindRequest,
    SectionRequest,
    UndoRequest,
)
from app.core.resolve import Facts, Log, Resolver
from app.formats import FORMATS
from tests.builders import text
from tests.compiling import (
    AGENT,
    HISTORIES,
    append_items,
    body_of,
    compile_for,
    parse_items,
    violations_of,
)
from tests.sdk_types import SDK_CHECKS

_IDS: Final = ("a", "b", "c")


def _responses_item(kind: str, number: int, call_id: str) -> Json:
    """Return an item; what the model made carries the id that the provider gave it."""
    match kind:
        case "user":
            return {"role": "user", "content": f"u{number}"}
        case "reasoning":
            summary: Json = [{"type": "summary_text", "text": "hm"}]
            proof = {"encrypted_content": f"e{number}"} if number % 4 else {}
            return {"type": "reasoning", "id": f"rs_{number}", "summary": summary, **proof}
        case "call":
            return {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": call_id,
                "name": "f",
                "arguments": f'{{"n":  {number}}}',
            }
        case "custom":
            return {
                "type": "custom_tool_call",
                "id": f"ctc_{number}",
                "call_id": call_id,
                "name": "g",
                "input": f"i{number}",
            }
        case "output":
            return {"type": "function_call_output", "call_id": call_id, "output": f"o{number}"}
        case "custom_output":
            return {"type": "custom_tool_call_output", "call_id": call_id, "output": f"o{number}"}
        case "search":
            return {
                "type": "web_search_call",
                "id": f"ws_{number}",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            }
        case _:
            content: Json = [{"type": "output_text", "text": f"m{number}", "annotations": []}]
            return {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }


def _converse_item(kind: str, number: int, call_id: str) -> Json:
    thinking: Json = {
        "reasoningContent": {"reasoningText": {"text": "hm", "signature": f"c2ln{number}"}}
    }
    call: Json = {"toolUse": {"toolUseId": call_id, "name": "f", "input": {"n": number}}}
    result: Json = {"toolResult": {"toolUseId": call_id, "content": [{"text": f"o{number}"}]}}
    other: Json = {"toolUse": {"toolUseId": f"{call_id}{number}", "name": "g", "input": {}}}
    document: Json = {"document": {"format": "pdf", "name": "report", "source": {"bytes": "AAAA"}}}
    match kind:
        case "user":
            return {"role": "user", "content": [{"text": f"u{number}"}]}
        case "reasoning":
            return {"role": "assistant", "content": [thinking]}
        case "call":
            return {"role": "assistant", "content": [thinking, call, other]}
        case "custom":
            return {"role": "assistant", "content": [{"text": " "}, call]}
        case "output":
            return {"role": "user", "content": [result, {"text": f"u{number}"}]}
        case "custom_output":
            return {"role": "user", "content": [result]}
        case "search":
            return {"role": "user", "content": [document]}
        case _:
            return {"role": "assistant", "content": [thinking, {"text": f"m{number}"}]}


_ITEMS: Final = {"bedrock": _converse_item, "openai_responses": _responses_item}
_KINDS: Final = (
    "user",
    "reasoning",
    "reasoning",
    "call",
    "call",
    "custom",
    "output",
    "custom_output",
    "search",
    "message",
)
_MARKERS: Final = ("fold", "rewind", "pin", "undo")
_step = st.tuples(st.sampled_from(_KINDS * 2 + _MARKERS), st.sampled_from(_IDS), st.integers(0, 5))
streams = st.lists(_step, max_size=16)
formats = pytest.mark.parametrize("name", sorted(_ITEMS))


def _items(name: str, drawn: Sequence[tuple[str, str, int]]) -> list[Json]:
    return [
        _ITEMS[name](kind, number, call_id)
        for number, (kind, call_id, _) in enumerate(drawn)
        if kind not in _MARKERS
    ]


def _log(name: str, drawn: Sequence[tuple[str, str, int]]) -> Log:
    """Append the stream to a log in memory; markers that a caller would be refused are left out."""
    resolver = Resolver(Facts())
    events: list[Event] = []
    for number, (kind, call_id, back) in enumerate(drawn):
        if kind not in _MARKERS:
            parsed = parse_items(name, [_ITEMS[name](kind, number, call_id)])
            for event in (one.event for one in parsed):
                tokens = (1,) * len(event.parts)
                events.append(resolver.add(replace(event, part_tokens=tokens)))
            continue
        with suppress(InvalidInputError):
            request = _request(kind, max(1, len(events) - back), len(events))
            events.append(resolver.add(Event(author="user", request=request)))
    return Log(tuple(events), resolver.facts.index)


def _request(kind: str, seq: int, head: int) -> MarkerRequest:
    match kind:
        case "fold":
            return FoldRequest(1, seq, (SectionRequest(None, "", (text("sum"),)),))
        case "rewind":
            return RewindRequest(to_seq=seq)
        case "pin":
            return PinRequest((seq,))
        case _:
            return UndoRequest(max(1, head))


@formats
@settings(deadline=None)
@given(drawn=streams, thinking=st.sampled_from(("auto", "keep", "strip")))
def test_any_stream_returns_as_a_valid_request(
    name: str, drawn: list[tuple[str, str, int]], thinking: str
) -> None:
    result = compile_for(_log(name, drawn), name, agent=AGENT, thinking=thinking)
    if not result.rendered:
        return
    assert verify(result.rendered, FORMATS[name]) == ()
    assert violations_of(result, name) == ()
    body: Any = body_of(result, name)
    for item in body[HISTORIES[name]]:
        if item.get("type") == "web_search_call":
            # Without its reasoning it is sent as clients of the provider do, without an id.
            item.setdefault("id", "ws")
    assert SDK_CHECKS[name](body) == []


@given(drawn=streams)
def test_what_comes_back_of_reasoning_is_what_was_sent(drawn: list[tuple[str, str, int]]) -> None:
    sent = [item for item in _items("openai_responses", drawn) if isinstance(item, dict)]
    result = compile_for(_log("openai_responses", drawn), "openai_responses", agent=AGENT)
    body: Any = body_of(result, "openai_responses")
    for item in body["input"]:
        if item["type"] == "reasoning":
            assert item in sent
        elif "id" in item:
            (same,) = (one for one in sent if one.get("id") == item["id"])
            # Ids of calls are made unique; all else is as the provider made it.
            assert {**item, "call_id": 0} == {**same, "call_id": 0}


@formats
@settings(deadline=None)
@example(drawn=[("search", "a", 0)] * 5 + [("call", "a", 0), ("search", "a", 0)])
@given(drawn=streams)
def test_what_a_reply_was_made_for_is_a_prefix_of_what_follows(
    name: str, drawn: list[tuple[str, str, int]]
) -> None:
    log = _log(name, [step for step in drawn if step[0] not in _MARKERS])
    whole = compile_for(log, name, agent=AGENT)
    for event in log.events:
        is_first = event.place is not None and event.place.response_seq == event.seq
        is_shown = any(p.seq == event.seq for c in whole.contents for p in c.parts)
        if event.is_model and is_first and is_shown:
            before = compile_for(Log(log.events[: event.seq - 1], log.index), name, agent=AGENT)
            if before.budget_actions != whole.budget_actions:
                # More documents than the provider takes: the oldest give way, as in a budget.
                continue
            assert whole.chain[: len(before.chain)] == before.chain


@formats
@settings(deadline=None)
@given(drawn=streams)
def test_request_that_is_imported_again_compiles_to_itself(
    name: str, drawn: list[tuple[str, str, int]]
) -> None:
    kinds = [step for step in drawn if step[0] not in (*_MARKERS, "search", "message")]
    sent = body_of(compile_for(_log(name, kinds), name, agent=AGENT), name)[HISTORIES[name]]
    again = append_items(name, sent)
    assert body_of(compile_for(again, name, agent=AGENT), name)[HISTORIES[name]] == sent
