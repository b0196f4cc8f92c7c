"""Conversations as they really go, in every format: each reply is what was compiled for it, with
signed thinking, and between the replies history is folded, rewound, pinned, elided and undone.

Held to ``spec/PROVIDERS.md`` §9, point by point: what is sent at any moment breaks no rule of its
provider (1 to 8), is the same bytes again (9), and begins with what was sent before unless
something of the above came between (10); of thinking that is bound to its prefix, what is still
sent stands on the very prefix that produced it (4); and markers of the cache stand only where it is
worth it, near enough to find what the request before wrote (7).
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import event as noted
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.canonical import Json
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult, RenderedPart
from app.core.compile.pipeline import run_pipeline
from app.core.compile.verify import verify
from app.core.contents import FunctionCall
from app.core.copying import replace
from app.core.errors import BudgetExceededError, InvalidInputError
from app.core.events import (
    ElisionRequest,
    Event,
    FoldRequest,
    MarkerRequest,
    PinRequest,
    RewindRequest,
    SectionRequest,
    UndoRequest,
)
from app.core.lanes import Reader
from app.core.model_rules import ModelRule
from app.core.resolve import Facts, Resolver
from app.formats import FORMATS, VALIDATORS
from tests.builders import text
from tests.compiling import AGENT, RULES, parse_items
from tests.requests import request_of
from tests.sdk_types import SDK_CHECKS

Step: TypeAlias = tuple[str, str, int]

#: Models that bind their thinking to its prefix, where the provider has such.
MODELS: Final = {
    "anthropic": "claude-opus-5-5",
    "bedrock": "anthropic.claude-opus-5-5-v1:0",
    "gemini": "gemini-3.1-pro",
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-6.2",
}
#: Our tokens of each part; a request that may have fewer than all of them is cut.
PART_TOKENS: Final = 20
SYSTEM_TOKENS: Final = 30
#: Small enough for streams as short as these: what is worth caching, how far back is looked.
MIN_CACHED_TOKENS: Final = 90
LOOKBACK_BLOCKS: Final = 4


def _anthropic(kind: str, number: int, call_id: str) -> list[Json]:
    thinking: Json = {"type": "thinking", "thinking": f"hm{number}", "signature": f"c2ln{number}"}
    call: Json = {"type": "tool_use", "id": call_id, "name": "f", "input": {"n": number}}
    other: Json = {"type": "tool_use", "id": f"{call_id}{number}", "name": "g", "input": {}}
    result: Json = {"type": "tool_result", "tool_use_id": call_id, "content": f"o{number}"}
    source: Json = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    match kind:
        case "call":
            return [{"role": "assistant", "content": [thinking, call, other]}]
        case "result":
            return [{"role": "user", "content": [result]}]
        case "media":
            image: Json = {"type": "image", "source": source}
            return [{"role": "user", "content": [image, {"type": "text", "text": f"u{number}"}]}]
        case "user":
            return [{"role": "user", "content": f"u{number}"}]
        case _:
            said: Json = {"type": "text", "text": f"m{number}"}
            return [{"role": "assistant", "content": [thinking, said]}]


def _bedrock(kind: str, number: int, call_id: str) -> list[Json]:
    reasoned: Json = {"text": f"hm{number}", "signature": f"c2ln{number}"}
    thinking: Json = {"reasoningContent": {"reasoningText": reasoned}}
    call: Json = {"toolUse": {"toolUseId": call_id, "name": "f", "input": {"n": number}}}
    other: Json = {"toolUse": {"toolUseId": f"{call_id}{number}", "name": "g", "input": {}}}
    content: Json = [{"text": f"o{number}"}]
    match kind:
        case "call":
            return [{"role": "assistant", "content": [thinking, call, other]}]
        case "result":
            answer: Json = {"toolResult": {"toolUseId": call_id, "content": content}}
            return [{"role": "user", "content": [answer]}]
        case "media":
            document: Json = {"format": "pdf", "name": f"r{number}", "source": {"bytes": "AAAA"}}
            said: list[Json] = [{"document": document}, {"text": f"u{number}"}]
            return [{"role": "user", "content": said}]
        case "user":
            return [{"role": "user", "content": [{"text": f"u{number}"}]}]
        case _:
            return [{"role": "assistant", "content": [thinking, {"text": f"m{number}"}]}]


def _gemini(kind: str, number: int, call_id: str) -> list[Json]:
    proof = f"c2ln{number % 10}A=="
    call: Json = {"id": call_id, "name": "f", "args": {"n": number}}
    signed: Json = {"functionCall": call, **({"thoughtSignature": proof} if number % 3 else {})}
    other: Json = {"functionCall": {"id": f"{call_id}{number}", "name": "g", "args": {}}}
    answer: Json = {"id": call_id, "name": "f", "response": {"output": f"o{number}"}}
    match kind:
        case "call":
            return [{"role": "model", "parts": [{"text": "hm", "thought": True}, signed, other]}]
        case "result":
            return [{"role": "user", "parts": [{"functionResponse": answer}]}]
        case "media":
            image: Json = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
            return [{"role": "user", "parts": [image, {"text": f"u{number}"}]}]
        case "user":
            return [{"role": "user", "parts": [{"text": f"u{number}"}]}]
        case _:
            said: Json = {"text": f"m{number}", "thoughtSignature": proof}
            return [{"role": "model", "parts": [said]}]


def _openai_chat(kind: str, number: int, call_id: str) -> list[Json]:
    call: Json = {
        "id": call_id,
        "type": "function",
        "function": {"name": "f", "arguments": f'{{"n":  {number}}}'},
    }
    other: Json = {
        "id": f"{call_id}{number}",
        "type": "function",
        "function": {"name": "g", "arguments": "{}"},
    }
    match kind:
        case "call":
            return [{"role": "assistant", "content": None, "tool_calls": [call, other]}]
        case "result":
            return [{"role": "tool", "tool_call_id": call_id, "content": f"o{number}"}]
        case "media":
            url: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
            return [{"role": "user", "content": [url, {"type": "text", "text": f"u{number}"}]}]
        case "user":
            return [{"role": "user", "content": f"u{number}"}]
        case _:
            return [{"role": "assistant", "content": f"m{number}"}]


def _openai_responses(kind: str, number: int, call_id: str) -> list[Json]:
    thinking: Json = {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": f"e{number}",
    }
    match kind:
        case "call":
            call: Json = {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": call_id,
                "name": "f",
                "arguments": f'{{"n":  {number}}}',
            }
            return [thinking, call]
        case "result":
            return [{"type": "function_call_output", "call_id": call_id, "output": f"o{number}"}]
        case "media":
            image: Json = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
            said: list[Json] = [image, {"type": "input_text", "text": f"u{number}"}]
            return [{"role": "user", "content": said}]
        case "user":
            return [{"role": "user", "content": f"u{number}"}]
        case _:
            message: Json = {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": f"m{number}", "annotations": []}],
            }
            return [thinking, message]


_ITEMS: Final = {
    "anthropic": _anthropic,
    "bedrock": _bedrock,
    "gemini": _gemini,
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
}
_REPLIES: Final = ("call", "message")
_MARKERS: Final = ("fold", "rewind", "pin", "elide", "undo")
_KINDS: Final = (*_REPLIES, *_REPLIES, "result", "result", "user", "media")


class Conversation:
    """A log that grows reply by reply, each to what was compiled for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.model = MODELS[name]
        self.rule = _rule_of(self.model)
        self._resolver = Resolver(Facts())
        self.events: list[Event] = []
        self._before: CompileResult | None = None

    def compiled(self, *, budget: int | None = None) -> CompileResult:
        inputs = CompileInput(
            options=CompileOptions(reader=Reader(agent=AGENT), model=self.model, system="s"),
            format=FORMATS[self.name],
            index=self._resolver.facts.index,
            compiled_seq=len(self.events),
            rule=self.rule,
            budget_tokens=budget,
            system_tokens=SYSTEM_TOKENS,
        )
        return run_pipeline(tuple(self.events), inputs)

    def step(self, kind: str, call_id: str, back: int) -> None:
        """Append what the step says; what a caller would be refused is left out."""
        number = len(self.events)
        if kind in _MARKERS:
            with suppress(InvalidInputError):
                request = _request(kind, max(1, number - back), number)
                self._append(Event(author="user", request=request))
                self._before = None
            return
        items = _ITEMS[self.name](kind, number, call_id)
        said: dict[str, Any] = {}
        if kind in _REPLIES:
            result = self.compiled()
            self.check(result)
            before = self._before
            # More documents than the provider takes: the oldest give way, as in a budget.
            if (
                before is not None
                and result.rendered
                and result.budget_actions == before.budget_actions
            ):
                assert result.chain[: len(before.chain)] == before.chain
                self._check_lookback(before, result)
            self._before = result
            said = {"compiled_seq": number, "compiled_fingerprint": result.fingerprint}
            said["response_id"] = f"resp{number}"
        for parsed in parse_items(self.name, items):
            self._append(replace(parsed.event, **said))

    def check(self, result: CompileResult) -> None:
        """Hold a request to its provider's rules, and to what was thought on which prefix."""
        if not result.rendered:
            return
        wire = FORMATS[self.name]
        assert verify(result.rendered, wire) == ()
        body = request_of(result, wire, model=self.model)
        assert VALIDATORS[self.name](body, model=self.model) == ()
        assert SDK_CHECKS[self.name](body) == []
        self._check_thinking(result)
        self._check_markers(result)

    def _check_markers(self, result: CompileResult) -> None:
        """See that no marker stands before what is worth caching, nor on thinking."""
        cache = self.rule.cache
        assert len(result.breakpoints) <= cache.max_markers
        for each in result.breakpoints:
            assert each.tokens >= cache.min_tokens
        marked = [part for part in _parts(result) if part.placed.marker]
        noted(f"markers: {len(marked)}")
        assert not any(part.placed.part.thought for part in marked)

    def _check_lookback(self, before: CompileResult, result: CompileResult) -> None:
        """See that a marker finds the last entry that the request before wrote."""
        if self.rule.cache.kind != "markers":
            return
        written = [n for n, part in enumerate(_parts(before)) if part.placed.marker]
        if written:
            found = [n - written[-1] for n, part in enumerate(_parts(result)) if part.placed.marker]
            noted(f"looked back: {min((n for n in found if n >= 0), default=None)}")
            assert any(0 <= back <= LOOKBACK_BLOCKS for back in found)

    def _check_thinking(self, result: CompileResult) -> None:
        count = 0
        for content in result.rendered:
            thoughts = [
                part
                for part in content.parts
                if part.placed.part.thought and not isinstance(part.placed.part, FunctionCall)
            ]
            recorded = content.content.compiled_fingerprint
            if thoughts and self.rule.is_reasoning_bound:
                noted("thinking is kept")
                assert recorded == result.chain[count]
            count += len(content.parts)

    def _append(self, event: Event) -> None:
        tokens = (PART_TOKENS,) * len(event.parts)
        self.events.append(self._resolver.add(replace(event, part_tokens=tokens)))


def _rule_of(model: str) -> ModelRule:
    rule = RULES.find(model)
    assert rule is not None
    cache = replace(rule.cache, min_tokens=MIN_CACHED_TOKENS, lookback_blocks=LOOKBACK_BLOCKS)
    return replace(rule, cache=cache)


def _parts(result: CompileResult) -> list[RenderedPart]:
    return [part for content in result.rendered for part in content.parts]


def _request(kind: str, seq: int, head: int) -> MarkerRequest:
    match kind:
        case "fold":
            return FoldRequest(1, seq, (SectionRequest(None, "", (text("sum"),)),))
        case "rewind":
            return RewindRequest(to_seq=seq)
        case "pin":
            return PinRequest((seq,))
        case "elide":
            return ElisionRequest((seq,), 0)
        case _:
            return UndoRequest(max(1, head))


_step = st.tuples(
    st.sampled_from(_KINDS * 2 + _MARKERS), st.sampled_from(("a", "b", "c")), st.integers(0, 6)
)
formats = pytest.mark.parametrize("name", sorted(_ITEMS))


@formats
@settings(deadline=None)
@example(
    drawn=[*[("media", "a", 0)] * 3, ("call", "a", 0), *[("media", "a", 0)] * 3, ("call", "b", 0)],
    budget=None,
)
@given(drawn=st.lists(_step, max_size=18), budget=st.none() | st.integers(40, 600))
def test_what_is_sent_at_any_moment_is_valid_and_stands(
    name: str, drawn: Sequence[Step], budget: int | None
) -> None:
    conversation = Conversation(name)
    for step in drawn:
        conversation.step(*step)
    conversation.check(conversation.compiled())
    if budget is not None:
        with suppress(BudgetExceededError):
            cut = conversation.compiled(budget=budget)
            noted(f"cut: {bool(cut.budget_actions)}")
            conversation.check(cut)
            assert conversation.compiled(budget=budget).chain == cut.chain
