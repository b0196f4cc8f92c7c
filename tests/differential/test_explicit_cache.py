"""The life cycle of explicit caches against google-adk's own manager, over random conversations.

google-adk's manager runs on the contents that we send, with its own records and a provider that
makes whatever it is asked for; ours runs on our records. Both have to do the same with every
request, and to split it at the same place. Left out on purpose: caches of other branches, which
google-adk mixes up (see ``app/core/compile/explicit_cache.py``), and more replies in a row without
a token count than we look back.
"""

import asyncio
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.events.event import Event as AdkEvent
from google.adk.flows.llm_flows.context._cache import ContextCacheRequestProcessor
from google.adk.models.cache_metadata import CacheMetadata as AdkMetadata
from google.adk.models.gemini_context_cache_manager import GeminiContextCacheManager
from google.adk.models.llm_request import LlmRequest
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.compile.explicit_cache import (
    Lifecycle,
    Terms,
    newest_records,
    plan_cache,
    request_after,
    used_record,
)
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.compile.projection import count_result
from app.core.copying import replace
from app.core.events import CacheMetadata, Event
from app.core.json_text import parse_json
from app.core.lanes import Reader
from app.core.resolve import Facts, Resolver
from app.formats import FORMATS
from tests.builders import call, fold, model, response, user
from tests.requests import request_of

pytestmark = pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning")

AGENT: Final = "bot"
READER: Final = Reader(agent=AGENT)
GEMINI: Final = FORMATS["gemini"]
TTL_S: Final = 1800
#: google-adk counts characters, and so does this test: both see the same shares.
_QUARTER: Final = 40


class Provider:
    """The part of google-genai's client that the manager calls."""

    def __init__(self) -> None:
        self.vertexai = False
        self.caches: list[str] = []
        self.made = 0
        self.aio = SimpleNamespace(caches=SimpleNamespace(create=self.create, delete=self.delete))

    async def create(self, *, model: str, config: types.CreateCachedContentConfig) -> Any:
        del model, config
        self.made += 1
        self.caches.append(f"cachedContents/{self.made}")
        return SimpleNamespace(name=self.caches[-1], expire_time=None)

    async def delete(self, *, name: str) -> None:
        self.caches.remove(name)


@dataclass
class Side:
    """What one side did with a request."""

    action: str
    contents_count: int
    invocations_used: int | None
    contents: list[Any] = field(default_factory=list)


class Both:
    """One conversation, kept by both."""

    def __init__(self, *, model_name: str, intervals: int, min_tokens: int) -> None:
        self.model = model_name
        self.system = "s" * _QUARTER
        self._config = ContextCacheConfig(
            cache_intervals=intervals, ttl_seconds=TTL_S, min_tokens=min_tokens
        )
        floor = 2048 if model_name.startswith("gemini-2.5") else 4096
        self._terms = Terms(
            ttl_s=TTL_S,
            cache_intervals=intervals,
            min_tokens=min_tokens,
            model_min_tokens=floor,
        )
        self._resolver = Resolver(Facts())
        self.events: list[Event] = []
        self._adk_events: list[AdkEvent] = []
        self._provider = Provider()
        self.invocation = 1
        self.now_s = 1_000_000.0
        self._made = 0

    def append(self, event: Event) -> None:
        tokens = tuple(len(getattr(part, "text", "")) or 4 for part in event.parts)
        event = replace(event, part_tokens=tokens, invocation_id=f"i{self.invocation}")
        self.events.append(self._resolver.add(event))

    def request(self, monkeypatch: pytest.MonkeyPatch) -> tuple[Side, Side, Any]:
        """Return what both do, and what each has recorded of it: ours, google-adk's."""
        options = CompileOptions(reader=READER, model=self.model, system=self.system)
        inputs = CompileInput(
            options=options,
            format=GEMINI,
            index=self._resolver.facts.index,
            compiled_seq=len(self.events),
            system_tokens=len(self.system),
        )
        result = run_pipeline(tuple(self.events), inputs)
        ours, record = self._ours(inputs, result)
        theirs, adk_record = self._theirs(request_of(result, GEMINI), monkeypatch)
        return ours, theirs, (record, adk_record)

    def reply(self, event: Event, records: Any, tokens: int | None) -> None:
        ours, theirs = records
        self.append(replace(event, cache_metadata=ours, prompt_tokens=tokens))
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=tokens)
        self._adk_events.append(
            AdkEvent(
                author=AGENT,
                invocation_id=f"i{self.invocation}",
                cache_metadata=theirs,
                usage_metadata=None if tokens is None else usage,
            )
        )

    def _ours(self, inputs: CompileInput, result: CompileResult) -> tuple[Side, CacheMetadata]:
        counted = count_result(result, len, system_tokens=inputs.system_tokens, tools_tokens=0)
        records = newest_records(self.events, READER)
        record = used_record(records, tuple(self.events), inputs.index, READER)
        expire_time = record.metadata.expire_time if record else None
        is_expired = expire_time is not None and self.now_s >= expire_time
        done = plan_cache(result, counted, self._terms, record=record, is_expired=is_expired)
        body: dict[str, Any] = request_of(result, GEMINI)
        if done.is_split:
            fields = request_after(result, GEMINI, inputs.options, done)
            body = {key: parse_json(text) for key, text in fields.items()}
        side = Side(done.action, done.contents_count, done.invocations_used, body["contents"])
        return side, self._recorded(done)

    def _recorded(self, done: Lifecycle) -> CacheMetadata:
        plain = CacheMetadata(fingerprint=done.fingerprint, contents_count=done.contents_count)
        if not done.is_split:
            return plain
        name, expire_time = done.name, done.expire_time
        if done.action != "use":
            self._made += 1
            name, expire_time = f"cachedContents/{self._made}", self.now_s + TTL_S
        return replace(
            plain, cache_name=name, expire_time=expire_time, invocations_used=done.invocations_used
        )

    def _theirs(
        self, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> tuple[Side, AdkMetadata]:
        request = LlmRequest(
            model=self.model,
            contents=[types.Content.model_validate(content) for content in body["contents"]],
            config=types.GenerateContentConfig(system_instruction=self.system),
        )
        request.cache_config = self._config
        found = ContextCacheRequestProcessor()._find_cache_info_from_events(  # noqa: SLF001
            SimpleNamespace(session=SimpleNamespace(events=self._adk_events)),  # type: ignore[arg-type]
            AGENT,
            f"i{self.invocation}",
        )
        request.cache_metadata, request.cacheable_contents_token_count = found
        before = list(self._provider.caches)
        manager = GeminiContextCacheManager(self._provider)  # type: ignore[arg-type]
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: self.now_s)
            record = asyncio.run(manager.handle_context_caching(request))
        assert record is not None
        is_made = record.cache_name is not None and record.cache_name not in before
        is_ended = len(before) + is_made > len(self._provider.caches)
        action = {
            (True, True): "replace",
            (True, False): "create",
            (False, True): "delete",
            (False, False): "use" if record.cache_name else "none",
        }[is_made, is_ended]
        contents = [
            content.model_dump(mode="json", exclude_none=True) for content in request.contents
        ]
        assert bool(request.config.system_instruction) is (
            action not in ("use", "create", "replace")
        )
        side = Side(action, record.contents_count, record.invocations_used, contents)
        return side, record


def plain(contents: list[Any]) -> list[Any]:
    """Return contents as google-genai reads them."""
    return [
        types.Content.model_validate(content).model_dump(mode="json", exclude_none=True)
        for content in contents
    ]


_steps = st.sampled_from(
    ("reply", "reply", "reply", "call", "question", "invocation", "fold", "system", "pause")
)
_tokens = st.sampled_from((None, 100, 1_000_000, 1_000_000))


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(_steps, _tokens, st.integers(1, 9)), max_size=24),
    model_name=st.sampled_from(("gemini-2.5-pro", "gemini-3.1-pro")),
    intervals=st.integers(1, 3),
    min_tokens=st.sampled_from((0, 50, 5_000)),
)
def test_both_do_the_same_with_every_request(
    steps: list[tuple[str, int | None, int]], model_name: str, intervals: int, min_tokens: int
) -> None:
    both = Both(model_name=model_name, intervals=intervals, min_tokens=min_tokens)
    both.append(user("q" * _QUARTER))
    for number, (step, tokens, size) in enumerate(steps):
        # Some say it: see above.
        tokens = tokens if number % 4 else 1_000_000  # noqa: PLW2901
        match step:
            case "question":
                both.append(user("q" * _QUARTER * size))
            case "invocation":
                both.invocation += 1
                both.append(user("q" * _QUARTER * size))
            case "fold":
                both.append(fold(1, len(both.events), "f" * _QUARTER * size))
            case "system":
                both.system = "s" * _QUARTER * size
            case "pause":
                both.now_s += TTL_S / 2
            case _:
                monkeypatch = pytest.MonkeyPatch()
                ours, theirs, records = both.request(monkeypatch)
                assert replace(ours, contents=[]) == replace(theirs, contents=[])
                assert plain(ours.contents) == theirs.contents
                if step == "call":
                    both.reply(call("f", id=f"c{number}"), records, tokens)
                    both.append(response(f"c{number}", name="f"))
                else:
                    both.reply(model("m" * _QUARTER * size), records, tokens)


@pytest.mark.parametrize(
    ("model_name", "floor"), [("gemini-2.5-pro", 2048), ("gemini-3-pro", 4096)]
)
@pytest.mark.parametrize("more", [-8, 8])
def test_both_ask_for_the_model_s_minimum_of_what_is_cached(
    monkeypatch: pytest.MonkeyPatch, model_name: str, floor: int, more: int
) -> None:
    both = Both(model_name=model_name, intervals=1, min_tokens=0)
    both.append(user("q" * (2 * floor - _QUARTER)))
    _, _, records = both.request(monkeypatch)
    # Half of what the second request has is in front of its question.
    both.reply(model("m" * _QUARTER * 10), records, 2 * floor + more)
    both.append(user("q" * (2 * floor + _QUARTER * 10)))
    ours, theirs, _ = both.request(monkeypatch)
    assert ours == replace(theirs, contents=ours.contents)
    assert ours.action == ("create" if more > 0 else "none")
