"""Breakpoints: where they stand for which model, and what they leave alone."""

from typing import Any

import pytest

from app.core.calibration import calibration_of
from app.core.compile.inputs import (
    CacheOptions,
    CompileInput,
    CompileOptions,
    CompileResult,
    Instruction,
)
from app.core.compile.pipeline import run_pipeline
from app.core.compile.render import request_fields
from app.core.copying import replace
from app.core.events import Event
from app.core.json_text import parse_json
from app.core.lanes import Reader
from app.formats import FORMATS, VALIDATORS
from app.providers.model_rules import load_model_rules
from tests.builders import call, fold, log, model, response, text, thought, user

RULES = load_model_rules()
OPUS, GPT = "claude-opus-5-5", "gpt-5.6"


def compiled(
    *events: Event,
    name: str = "anthropic",
    model_name: str = OPUS,
    system: str = "",
    system_tokens: int = 0,
    tools: tuple[str, ...] = (),
    tools_tokens: int = 0,
    **cache: Any,
) -> tuple[CompileResult, dict[str, Any]]:
    """Return a compile and the request's body."""
    built = log(*events)
    rule = RULES.find(model_name)
    options = CompileOptions(
        reader=Reader(agent="bot"),
        model=model_name,
        system=system,
        tools=tools,
        cache=CacheOptions(**cache),
    )
    inputs = CompileInput(
        options=options,
        format=FORMATS[name],
        index=built.index,
        compiled_seq=len(built.events),
        rule=rule,
        calibration=calibration_of(None, rule),
        system_tokens=system_tokens,
        tools_tokens=tools_tokens,
        cache_scope=("tenant", "session"),
    )
    result = run_pipeline(built.events, inputs)
    fields = request_fields(result, FORMATS[name], options)
    body = {key: parse_json(value) for key, value in fields.items()}
    assert VALIDATORS[name](body, model=model_name) == ()
    return result, body


def chat(turns: int, *, tokens: int = 500) -> list[Event]:
    events = []
    for number in range(turns):
        events.append(user(f"q{number}", part_tokens=(tokens,)))
        events.append(model(f"a{number}", part_tokens=(tokens,)))
    return [*events, user("now", part_tokens=(tokens,))]


def test_a_short_request_gets_no_marker() -> None:
    result, body = compiled(user("hi", part_tokens=(10,)))
    assert result.breakpoints == ()
    assert "cache_control" not in str(body)


def test_the_system_text_and_the_last_block_are_marked() -> None:
    result, body = compiled(*chat(1), system="be kind", system_tokens=2_000)
    assert [each.block for each in result.breakpoints] == ["system", 2]
    assert body["system"] == [
        {"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}
    ]
    assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


def test_tools_are_marked_where_there_is_no_system_text() -> None:
    result, body = compiled(*chat(1), tools=('{"name":"t"}', '{"name":"u"}'), tools_tokens=2_000)
    assert [each.block for each in result.breakpoints] == ["tools", 2]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, {"type": "ephemeral"}]


def test_the_newest_summary_is_marked() -> None:
    events = [*chat(2), fold(1, 4, "so far"), *chat(1)]
    result, body = compiled(*events, system="s", system_tokens=2_000)
    marked = [
        (number, block["text"])
        for number, message in enumerate(body["messages"])
        for block in message["content"]
        if "cache_control" in block
    ]
    assert marked[0] == (0, "so far")
    assert [each.block for each in result.breakpoints] == ["system", 0, len(body["messages"]) - 1]


def test_where_the_last_request_ended_is_marked_when_it_is_too_far_back() -> None:
    start = [user("go", part_tokens=(2_000,))]
    loop = [
        each
        for number in range(10)
        for each in (call("t", id=f"c{number}"), response(f"c{number}", name="t"))
    ]
    near, _ = compiled(*start, *loop[:4])
    assert [each.block for each in near.breakpoints] == [4]
    far = [model(*(text(str(n)) for n in range(20))), user("next")]
    result, _ = compiled(*start, *far)
    assert [each.block for each in result.breakpoints] == [0, 2]


def test_no_marker_stands_on_thinking_and_never_more_than_four() -> None:
    events = [
        *chat(3),
        fold(1, 4, "so far"),
        model(thought("hm", signed_by="anthropic"), *(text(str(n)) for n in range(20))),
        user("end", part_tokens=(900,)),
    ]
    result, body = compiled(
        *events, system="s", system_tokens=2_000, tools=('{"name":"t"}',), tools_tokens=900
    )
    assert len(result.breakpoints) == 4
    assert str(body).count("cache_control") == 4


@pytest.mark.parametrize(("ttl", "marker"), [("5m", {}), ("1h", {"ttl": "1h"})])
def test_the_ttl_is_the_callers(ttl: str, marker: dict[str, str]) -> None:
    result, body = compiled(*chat(1), ttl=ttl)
    assert {each.ttl for each in result.breakpoints} == {ttl}
    last = body["messages"][-1]["content"][-1]
    assert last["cache_control"] == {"type": "ephemeral", **marker}


def test_the_caller_may_want_none() -> None:
    result, body = compiled(*chat(3), breakpoints="none")
    assert result.breakpoints == ()
    assert "cache_control" not in str(body)


def test_markers_are_no_part_of_the_chain() -> None:
    with_markers, _ = compiled(*chat(3))
    without, _ = compiled(*chat(3), breakpoints="none")
    assert with_markers.breakpoints
    assert with_markers.chain == without.chain
    assert with_markers.sent_fingerprint == without.sent_fingerprint


def test_the_minimum_is_the_models() -> None:
    events = chat(1, tokens=300)
    small, _ = compiled(*events, model_name="claude-opus-5")
    large, _ = compiled(*events, model_name="claude-opus-4-6")
    assert len(small.breakpoints) == 1
    assert large.breakpoints == ()


def test_openai_marks_the_developer_message_and_the_newest_summary_and_has_a_key() -> None:
    events = [*chat(2), fold(1, 4, "so far"), *chat(1, tokens=900)]
    result, body = compiled(
        *events, name="openai_chat", model_name=GPT, system="s", system_tokens=2_000
    )
    explicit = {"mode": "explicit"}
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "s", "prompt_cache_breakpoint": explicit}
    ]
    assert body["messages"][1]["content"][0]["prompt_cache_breakpoint"] == explicit
    assert str(body).count("prompt_cache_breakpoint") == 2
    assert body["prompt_cache_key"] == result.cache_key != ""


def test_instructions_of_the_responses_api_take_no_marker() -> None:
    events = [*chat(2, tokens=900), fold(1, 4, "so far"), *chat(1, tokens=900)]
    result, body = compiled(
        *events, name="openai_responses", model_name=GPT, system="s", system_tokens=2_000
    )
    assert body["instructions"] == "s"
    assert [each.block for each in result.breakpoints] == [0]
    assert body["input"][0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}


def test_a_provider_that_caches_by_itself_gets_only_a_key() -> None:
    result, body = compiled(*chat(3), name="openai_chat", model_name="gpt-5")
    assert result.breakpoints == ()
    assert body["prompt_cache_key"] == result.cache_key


def test_bedrock_gets_points_of_their_own() -> None:
    name = "us.anthropic.claude-opus-5-5"
    result, body = compiled(
        *chat(1), name="bedrock", model_name=name, system="s", system_tokens=2_000, ttl="1h"
    )
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["system"] == [{"text": "s"}, point]
    assert body["messages"][-1]["content"][-1] == point
    assert len(result.breakpoints) == 2


def test_nova_takes_no_hour_and_no_point_behind_tools() -> None:
    result, body = compiled(
        *chat(2),
        name="bedrock",
        model_name="amazon.nova-pro-v1:0",
        tools=('{"name":"t"}',),
        tools_tokens=2_000,
        ttl="1h",
    )
    assert {each.ttl for each in result.breakpoints} == {"5m"}
    assert "cachePoint" not in str(body["toolConfig"])


def test_ephemeral_text_stands_behind_the_last_marker() -> None:
    # The dynamic instruction of a turn must not be written to the cache.
    built = log(*chat(1))
    rule = RULES.find(OPUS)
    options = CompileOptions(
        reader=Reader(agent="bot"),
        model=OPUS,
        instruction=Instruction(static="s", dynamic="it is noon"),
    )
    inputs = CompileInput(
        options=options,
        format=FORMATS["anthropic"],
        index=built.index,
        compiled_seq=3,
        rule=rule,
    )
    result = run_pipeline(built.events, inputs)
    last = result.rendered[-1].parts
    assert [bool(part.placed.marker) for part in last] == [True, False]
    assert last[1].placed.ephemeral


def cache_key(
    *,
    session: str = "a",
    tenant: str = "tenant",
    agent: str = "bot",
    system: str = "s",
    tokens: int,
    turns: int = 0,
) -> str:
    built = log(*chat(turns))
    inputs = CompileInput(
        options=CompileOptions(reader=Reader(agent=agent), model=GPT, system=system),
        format=FORMATS["openai_chat"],
        index=built.index,
        compiled_seq=len(built.events),
        rule=RULES.find(GPT),
        system_tokens=tokens,
        cache_scope=(tenant, session),
    )
    return run_pipeline(built.events, inputs).cache_key


def test_all_sessions_share_a_key_where_the_head_is_worth_caching() -> None:
    assert cache_key(session="a", tokens=2_000) == cache_key(session="b", tokens=2_000)
    assert cache_key(session="a", tokens=100) != cache_key(session="b", tokens=100)


@pytest.mark.parametrize("tokens", [100, 2_000])
def test_a_key_stays_while_a_session_grows(tokens: int) -> None:
    assert len({cache_key(tokens=tokens, turns=turns) for turns in range(4)}) == 1


@pytest.mark.parametrize("tokens", [100, 2_000])
@pytest.mark.parametrize("other", [{"tenant": "other"}, {"agent": "other"}, {"system": "other"}])
def test_a_key_is_of_one_tenant_agent_and_head(tokens: int, other: dict[str, Any]) -> None:
    assert cache_key(tokens=tokens, **other) != cache_key(tokens=tokens)


def test_the_minimum_is_of_the_model_s_tokens() -> None:
    # 150 of the model's for 100 of ours: its 512 are 341 of ours and a half.
    for tokens, count in ((340, 0), (341, 1)):
        result, _ = compiled(user("hi", part_tokens=(tokens,)))
        assert len(result.breakpoints) == count


@pytest.mark.parametrize(("blocks", "marked"), [(14, [2]), (15, [0, 2])])
def test_a_marker_is_put_before_the_look_back_ends(blocks: int, marked: list[int]) -> None:
    # The provider looks 20 blocks back; the next turn may add several at once.
    events = [user("go", part_tokens=(2_000,)), model(*(text(str(n)) for n in range(blocks)))]
    result, _ = compiled(*events, user("next"))
    assert [each.block for each in result.breakpoints] == marked


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_no_more_markers_than_the_provider_takes(most: int) -> None:
    rule = RULES.find(OPUS)
    assert rule is not None
    few = replace(rule, cache=replace(rule.cache, max_markers=most, min_tokens=0))
    built = log(*chat(12), fold(1, 4, "so far"), *chat(12))
    options = CompileOptions(reader=Reader(agent="bot"), model=OPUS, system="be kind")
    inputs = CompileInput(
        options=options,
        format=FORMATS["anthropic"],
        index=built.index,
        compiled_seq=len(built.events),
        rule=few,
        system_tokens=2_000,
    )
    result = run_pipeline(built.events, inputs)
    sent = request_fields(result, FORMATS["anthropic"], options)
    assert "".join(sent.values()).count('"cache_control"') == len(result.breakpoints) == most
