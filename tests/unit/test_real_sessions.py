"""Every recorded session: read, appended, compiled for each format, valid, and nothing lost.

The recordings are data: they are read where they lie and never printed.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from app.core.canonical import canonical_json
from app.core.compile.inputs import CacheOptions, CompileResult
from app.core.compile.verify import verify
from app.core.contents import (
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    Text,
)
from app.core.events import Event
from app.core.resolve import Log
from app.formats import FORMATS
from app.formats.adk import ParsedEvent
from tests import readers
from tests.compiling import (
    HISTORIES,
    append,
    append_items,
    body_of,
    compile_for,
    parse_items,
    violations_of,
)
from tests.readers import Session

FAMILIES: Final = (
    (readers.claude_code, 10),
    (readers.pi, 1),
    (readers.codex, 1),
    (readers.tau_bench, 60),
    (readers.swe_agent, 11),
    (readers.inspect_ai, 3),
    (readers.bioagent, 8),
    (readers.who_and_when, 21),
    (readers.openhands, 4),
    (readers.adk, 7),
    (readers.gemini_stream, 12),
)
by_family = pytest.mark.parametrize(
    ("read", "count"), FAMILIES, ids=[read.__name__ for read, _ in FAMILIES]
)


UNEVEN: Final = ("adk", "gemini", "openai_responses")

#: Repairs that say that a part of the event is not in the request as it was.
DROPS: Final = frozenset(
    {"late_result", "orphan_result", "replaced", "stale_thinking", "unsupported_part"}
)


@cache
def logs(read: Any, data: Path) -> tuple[tuple[Session, Log], ...]:
    """Return the sessions of a family, each appended to a log of its own."""
    return tuple((session, append(parse(session))) for session in read(data))


def parse(session: Session) -> list[ParsedEvent]:
    return parse_items(session.format, session.items, agent=session.agent)


@by_family
def test_every_session_is_read(shared_data: Path, read: Any, count: int) -> None:
    sessions = list(read(shared_data))
    assert len(sessions) == count
    for session in sessions:
        parsed = parse(session)
        # Some hold several events in an item, or records of what was shown on a screen.
        assert len(parsed) >= len(session.items) or session.format in UNEVEN
        assert append(parsed).events


@pytest.mark.parametrize("name", sorted(FORMATS))
@by_family
def test_every_session_compiles_to_a_valid_request(
    shared_data: Path, read: Any, count: int, name: str
) -> None:
    del count
    for session, log in logs(read, shared_data):
        for agent in ("", session.agent):
            result = compile_for(log, name, agent=agent)
            if not result.rendered:
                # Nothing but results without a call: no text is invented.
                assert result.warnings == ("empty_contents",)
                assert len(result.repairs) == len(log.events)
                continue
            broken = violations_of(result, name)
            assert (session.name, agent, broken) == (session.name, agent, ())
            assert verify(result.rendered, FORMATS[name]) == ()


@pytest.mark.parametrize("name", sorted(FORMATS))
@by_family
def test_nothing_of_a_session_is_silently_dropped(
    shared_data: Path, read: Any, count: int, name: str
) -> None:
    del count
    for session, log in logs(read, shared_data):
        result = compile_for(log, name)
        lost = list(_lost(log, result, name))
        assert (session.name, lost) == (session.name, [])


@by_family
def test_every_session_compiles_alike_twice(shared_data: Path, read: Any, count: int) -> None:
    del count
    for session in read(shared_data):
        once, again = (append(parse(session)) for _ in range(2))
        assert once.index == again.index
        assert compile_for(once, "gemini").chain == compile_for(again, "gemini").chain


@pytest.mark.parametrize("name", sorted(HISTORIES))
@by_family
def test_request_that_is_imported_again_compiles_to_itself(
    shared_data: Path, read: Any, count: int, name: str
) -> None:
    del count
    for session, log in logs(read, shared_data):
        sent = _history(log, name)
        if name in ("openai_chat", "openai_responses") and _has_neighbours(sent):
            # Assistant messages side by side are one response when nothing says otherwise.
            continue
        assert (session.name, _history(append_items(name, sent), name)) == (session.name, sent)


def _history(log: Log, name: str) -> list[Any]:
    """Return the history as it is sent; where markers of the cache stand is the compiler's own."""
    result = compile_for(log, name, cache=CacheOptions(breakpoints="none"))
    history: list[Any] = body_of(result, name)[HISTORIES[name]]
    return history


def _has_neighbours(messages: list[Any]) -> bool:
    return any(
        one.get("role") == other.get("role") == "assistant" for one, other in pairwise(messages)
    )


@by_family
def test_what_a_reply_was_compiled_from_stays_a_prefix(
    shared_data: Path, read: Any, count: int
) -> None:
    del count
    for session, log in logs(read, shared_data):
        if any(event.marker is not None for event in log.events):
            continue
        whole = compile_for(log, "anthropic", agent=session.agent).chain
        # Some of the replies of the long ones: this is quadratic.
        replies = [event.seq for event in log.events if _starts_reply(event, session.agent)]
        for seq in islice(replies, 0, None, max(1, len(replies) // 20)):
            before = Log(log.events[: seq - 1], log.index)
            chain = compile_for(before, "anthropic", agent=session.agent).chain
            assert (session.name, seq, chain) == (session.name, seq, whole[: len(chain)])


def _starts_reply(event: Event, agent: str) -> bool:
    starts = event.place is not None and event.place.response_seq == event.seq
    return event.is_model and event.author == agent and starts


# What the description of the recordings names.


def test_calls_of_one_message_that_are_interleaved_with_their_results_are_one_turn(
    shared_data: Path,
) -> None:
    path = "claude-code-spotter/fa812bfe-b295-4cca-9c2f-fdf01028cb46.jsonl"
    log = next(
        one for session, one in logs(readers.claude_code, shared_data) if session.name == path
    )
    shared_id = Counter(event.response_id for event in log.events if event.calls).most_common(1)
    ((response_id, count),) = shared_id
    assert count > 1
    body: Any = body_of(compile_for(log, "anthropic"), "anthropic")
    ids = [
        part.id for event in log.events if event.response_id == response_id for part in event.calls
    ]
    (turn,) = [
        one for one in body["messages"] if ids[0] in [block.get("id") for block in one["content"]]
    ]
    assert [block["id"] for block in turn["content"] if block["type"] == "tool_use"] == ids


def test_ids_used_again_in_one_session_are_made_unique(shared_data: Path) -> None:
    _, log = logs(readers.tau_bench, shared_data)[0]
    ids = [part.id for event in log.events for part in event.calls]
    assert len(set(ids)) < len(ids)
    body: Any = body_of(compile_for(log, "openai_chat"), "openai_chat")
    emitted = [call["id"] for one in body["messages"] for call in one.get("tool_calls") or ()]
    assert len(set(emitted)) == len(emitted) == len(ids)


def test_interrupted_calls_are_closed(shared_data: Path) -> None:
    ((_, log),) = logs(readers.pi, shared_data)
    answered = {(owner.seq, owner.part_index) for e in log.events for owner in e.owners if owner}
    open_seqs = [
        event.seq
        for event in log.events
        for index, part in enumerate(event.parts)
        if isinstance(part, FunctionCall) and (event.seq, index) not in answered
    ]
    assert len(open_seqs) == 6
    result = compile_for(log, "anthropic")
    closed = [one.seq for one in result.repairs if one.rule == "synthetic_result"]
    assert closed == [seq for seq in open_seqs if log.index.is_live(seq)]
    assert closed


def test_compactions_of_another_tool_fold(shared_data: Path) -> None:
    ((_, log),) = logs(readers.pi, shared_data)
    (section,) = log.index.sections
    masked = {event.seq for event in log.events if log.index.fold_of(event.seq) is not None}
    assert len(masked) > 200
    result = compile_for(log, "openai_chat")
    shown = [part.placed.seq for content in result.rendered for part in content.parts]
    assert shown[0] == section.fold_seq
    assert not masked & set(shown)


def test_reasoning_and_arguments_of_a_rollout_return_as_they_were(shared_data: Path) -> None:
    ((session, log),) = logs(readers.codex, shared_data)
    recorded = [line["payload"] for line in session.items if line["type"] == "response_item"]
    sent: Any = body_of(compile_for(log, "openai_responses"), "openai_responses")["input"]
    proofs = [one["encrypted_content"] for one in recorded if one["type"] == "reasoning"]
    assert proofs
    assert [one["encrypted_content"] for one in sent if one["type"] == "reasoning"] == proofs
    arguments = [one["arguments"] for one in recorded if one["type"] == "function_call"]
    assert [one["arguments"] for one in sent if one["type"] == "function_call"] == arguments
    for name in FORMATS.keys() - {"openai_responses", "native"}:
        assert not set(_strings(body_of(compile_for(log, name), name))) & set(proofs)


def test_a_text_that_is_dropped_is_noticed(shared_data: Path) -> None:
    _, log = logs(readers.tau_bench, shared_data)[0]
    result = compile_for(log, "openai_chat")
    said = Event(seq=999, author="user", role="user", parts=(Text(text="never sent"),))
    more = Log((*log.events, said), log.index)
    assert list(_lost(more, result, "openai_chat")) == ["Text at seq 999, part 0"]


def test_ticks_of_a_voice_call_are_partial_events(shared_data: Path) -> None:
    (session,) = readers.tau2_voice(shared_data)
    parsed = parse(session)
    assert len(parsed) > 900
    assert all(one.is_partial for one in parsed)
    assert append(parsed).events == ()


# What is in a log and neither in the request, nor masked, nor reported.


def _lost(log: Log, result: CompileResult, name: str) -> Iterator[str]:
    body = body_of(result, name)
    said = set(_strings(body))
    reported = {repair.seq for repair in result.repairs if repair.rule in DROPS}
    live = [event for event in log.events if log.index.is_live(event.seq)]
    for event in live:
        for index, part in enumerate(event.parts):
            if not _is_told(part, said, name) and event.seq not in reported:
                yield f"{type(part).__name__} at seq {event.seq}, part {index}"
    yield from _lost_calls(live, body, name)


def _is_told(part: Part, said: set[str], name: str) -> bool:
    """Tell whether the request holds what the part says. Calls are counted apart."""
    match part:
        case Text() if part.thought:
            returns = name == part.signed_by == "anthropic"
            return not returns or part.signature in said
        case Text():
            return not part.text.strip() or part.text in said
        case FunctionResponse():
            return _is_result_told(part, said)
        case InlineData():
            return any(part.data in one for one in said)
        case FileData():
            return part.file_uri in said
        case Opaque():
            return part.thought or not part.text or part.text in said
        case _:
            return True


def _is_result_told(part: FunctionResponse, said: set[str]) -> bool:
    text = part.response if part.response_text is None else part.response_text
    failed = canonical_json({"error": text})
    return not text.strip() or bool({text, failed} & said) or _leaves_of(text) <= said


def _leaves_of(text: str) -> set[str]:
    """Return the strings of a result that is an object; Gemini takes it as one."""
    try:
        value = json.loads(text)
    except ValueError:
        return {text}
    leaves = set(_strings(value))
    return leaves or {text}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _lost_calls(events: Sequence[Event], body: Any, name: str) -> Iterator[str]:
    """Every call is sent, each as often as it was made, and answered as often."""
    made = Counter(
        (part.name, canonical_json(json.loads(part.args)))
        for event in events
        for part in event.parts
        if isinstance(part, FunctionCall)
    )
    sent = Counter(_calls_of(body, name))
    yield from (f"call {call} made {n} times" for call, n in (made - sent).items())
    yield from (f"call {call} invented {n} times" for call, n in (sent - made).items())


def _calls_of(body: Any, name: str) -> Iterator[tuple[str, str]]:
    if name == "openai_chat":
        for message in body["messages"]:
            for call in message.get("tool_calls") or ():
                function = call["function"]
                yield function["name"], canonical_json(json.loads(function["arguments"]))
        return
    if name == "openai_responses":
        for item in body["input"]:
            if item["type"] == "function_call":
                yield item["name"], canonical_json(json.loads(item["arguments"]))
        return
    for turn in body[HISTORIES.get(name, "contents")]:
        for part in turn["content" if "content" in turn else "parts"]:
            called = part if part.get("type") == "tool_use" else part.get("toolUse")
            if called:
                yield called["name"], canonical_json(called["input"])
            call = part.get("functionCall") or part.get("function_call")
            if call:
                yield call["name"], canonical_json(call.get("args") or {})
