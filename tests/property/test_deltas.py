"""The delta law: what a caller holds, with what follows it behind, is the whole request."""

import json
from collections.abc import Callable
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from app.core.compile.inputs import (
    CacheOptions,
    CompileOptions,
    CompileResult,
    Format,
    Instruction,
)
from app.core.compile.pipeline import run_pipeline
from app.core.compile.render import is_turn_grown, request_fields
from app.core.lanes import Reader
from app.formats import FORMATS
from tests.property.compiling import at
from tests.property.settling import inputs_of
from tests.property.strategies import Step, build, steps

READERS: Final = (Reader(agent="a"), Reader(agent="a", branch="a.b"), Reader(agent="b"))

Turn = dict[str, Any]


def history(result: CompileResult, wire: Format, *, base_count: int | None = None) -> list[Turn]:
    fields = request_fields(result, wire, CompileOptions(model="m"), base_count=base_count)
    return json.loads(fields[wire.history_field]) if fields else []


def texts(content: str | list[Turn] | None) -> list[Turn]:
    """Return what a message of chat says as a list, which is a string where it is one text."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def joined_messages(held: Turn, new: Turn) -> Turn:
    both = {**held, **new, "content": texts(held.get("content")) + texts(new.get("content"))}
    if calls := held.get("tool_calls", []) + new.get("tool_calls", []):
        both["tool_calls"] = calls
    return both


def joined_contents(field: str) -> Callable[[Turn, Turn], Turn]:
    return lambda held, new: {**held, field: held[field] + new[field]}


def joined_blocks(held: Turn, new: Turn) -> Turn:
    return {**held, "content": held["content"] + new["content"]}


#: How the first turn of what follows is put behind the last turn that is held.
JOINED: Final[dict[str, Callable[[Turn, Turn], Turn]]] = {
    "anthropic": joined_blocks,
    "bedrock": joined_blocks,
    "gemini": joined_contents("parts"),
    "native": joined_contents("parts"),
    "openai_chat": joined_messages,
}


def put_behind(held: list[Turn], new: list[Turn], name: str, *, continues_turn: bool) -> list[Turn]:
    # Responses are a flat list of items: nothing there belongs into another.
    if not continues_turn or name not in JOINED:
        return held + new
    return [*held[:-1], JOINED[name](held[-1], new[0]), *new[1:]]


def without_last_text(held: list[Turn], name: str) -> list[Turn]:
    """Take off the text that only this request had."""
    field = "parts" if name in ("gemini", "native") else "content"
    last = held[-1]
    if isinstance(last[field], str) or len(last[field]) == 1:
        return held[:-1]
    return [*held[:-1], {**last, field: last[field][:-1]}]


def in_one_shape(turns: list[Turn]) -> list[Turn]:
    """Return turns with a message's single text as a list, as a longer message has its texts."""
    return [
        {**turn, "content": texts(turn["content"])}
        if isinstance(turn.get("content"), str)
        else turn
        for turn in turns
    ]


@given(
    steps(max_size=16), st.data(), st.sampled_from(sorted(FORMATS)), st.sampled_from(("", "Now"))
)
def test_what_is_put_together_is_the_whole_request(
    drawn: list[Step], data: st.DataObject, name: str, told: str
) -> None:
    log = build(drawn)[1]
    heads = st.integers(1, len(log.events) or 1)
    since, reader = data.draw(heads), data.draw(st.sampled_from(READERS))

    def compiled(head: int) -> CompileResult:
        inputs = inputs_of(
            log,
            head,
            reader,
            name,
            cache=CacheOptions(breakpoints="none"),
            instruction=Instruction(static=told, dynamic=told and f"It is {head}."),
        )
        return run_pipeline(at(log, head)[0], inputs)

    wire, sent, now = FORMATS[name], compiled(since), compiled(len(log.events))
    if sent.fingerprint not in now.chain[1:]:
        return
    base_count = now.chain.index(sent.fingerprint)
    held = history(sent, wire)
    put_together = put_behind(
        without_last_text(held, name) if told else held,
        history(now, wire, base_count=base_count),
        name,
        continues_turn=is_turn_grown(now, base_count),
    )
    assert in_one_shape(put_together) == in_one_shape(history(now, wire))
