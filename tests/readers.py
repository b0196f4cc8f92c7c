"""Read recorded sessions of other tools, for tests only.

A :class:`Session` is what a caller would send: items of a supported format, or native events for
logs in a format of their own. A reader decides nothing about pairing or order: it hands over what
stands in the file, in the order of the file. What tools write for their own screens (progress,
token counts, a second copy of each message) is left out, as it never was in a prompt.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from app.formats.anthropic import convert_item as convert_anthropic

Event: TypeAlias = dict[str, Any]

#: The author of what the model said, where a file does not name one.
AGENT: Final = "agent"


@dataclass(frozen=True, slots=True)
class Session:
    """One recorded session."""

    name: str
    #: One of ``app.formats.CONVERTERS``.
    format: str
    items: list[Any]
    #: An agent of it, for whom it can be compiled.
    agent: str = AGENT


def read_all(data: Path) -> list[Session]:
    """Return every session of the folder of recorded sessions."""
    return [session for read in _READERS for session in read(data)]


def _lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def _files(data: Path, pattern: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(data.glob(pattern)):
        yield str(path.relative_to(data)), path


def _said(author: str, text: str, **fields: Any) -> Event:
    role = "user" if author == "user" else "model"
    return {"author": author, "content": {"role": role, "parts": [{"text": text}]}, **fields}


def _event(author: str, role: str, parts: list[Any], **fields: Any) -> Event:
    return {"author": author, "content": {"role": role, "parts": parts}, **fields}


# Claude Code: Anthropic messages, one block of a message a line, in the order in which they ended.


def claude_code(data: Path) -> Iterator[Session]:
    """Read Claude Code's transcripts, those of sub-agents as sessions of their own."""
    for name, path in _files(data, "claude-code-spotter/**/*.jsonl"):
        events: list[Event] = []
        for line in _lines(path):
            if line["type"] in ("user", "assistant"):
                events += _claude_events(line)
        yield Session(name, "native", events)


def _claude_events(line: Any) -> Iterator[Event]:
    for number, event in enumerate(convert_anthropic(line["message"], agent=AGENT)):
        yield {**event, "id": f"{line['uuid']}/{number}", "timestamp": line["timestamp"]}


# pi: one message a line, with blocks of its own names.


def pi(data: Path) -> Iterator[Session]:
    """Read pi's session logs; a compaction is an ADK compaction of what it no longer keeps."""
    for name, path in _files(data, "pi-mono/*.jsonl"):
        lines = list(_lines(path))
        events = [_pi_event(line, lines) for line in lines]
        yield Session(name, "native", [event for event in events if event is not None])


def _pi_event(line: Any, lines: list[Any]) -> Event | None:
    timestamp = line["timestamp"]
    if line["type"] == "compaction":
        return _pi_compaction(line, lines)
    if line["type"] != "message":
        return None
    message = line["message"]
    match message["role"]:
        case "user":
            return _event("user", "user", _pi_texts(message), timestamp=timestamp)
        case "toolResult":
            response = {
                "id": message["toolCallId"],
                "name": message["toolName"],
                "response": "\n".join(part["text"] for part in _pi_texts(message)),
                "is_error": message["isError"],
            }
            part = {"function_response": response}
            return _event(AGENT, "user", [part], timestamp=timestamp)
        case "bashExecution":
            ran = f"$ {message['command']}\n{message['output']}"
            return _said("user", ran, timestamp=timestamp)
        case _:
            parts = [_pi_part(block) for block in message["content"]]
            event = _event(AGENT, "model", parts, timestamp=timestamp)
            event["error_message"] = message.get("errorMessage")
            event["model_version"] = message["model"]
            return event


def _pi_texts(message: Any) -> list[Any]:
    return [{"text": block["text"]} for block in message["content"]]


def _pi_part(block: Any) -> Event:
    match block["type"]:
        case "toolCall":
            call = {"id": block["id"], "name": block["name"], "args": block["arguments"]}
            return {"function_call": call}
        case "thinking":
            part = {"text": block["thinking"], "thought": True}
            if block["thinkingSignature"]:
                part["thought_signature"] = block["thinkingSignature"]
                part["signature_provider"] = "anthropic"
            return part
        case _:
            return {"text": block["text"]}


def _pi_compaction(line: Any, lines: list[Any]) -> Event:
    last = lines[line["firstKeptEntryIndex"] - 1]
    compaction = {
        "start_timestamp": _seconds(lines[1]["timestamp"]),
        "end_timestamp": _seconds(last["timestamp"]),
        "compacted_content": {"role": "model", "parts": [{"text": line["summary"]}]},
    }
    return {
        "author": "user",
        "timestamp": line["timestamp"],
        "actions": {"compaction": compaction},
    }


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


# Codex: items of the Responses API, and the same again as events for the screen.


def codex(data: Path) -> Iterator[Session]:
    """Read Codex rollouts, line by line as they are."""
    for name, path in _files(data, "codex-rollout/*.jsonl"):
        yield Session(name, "openai_responses", list(_lines(path)))


# Files whose messages are of a supported format, or nearly.


def tau_bench(data: Path) -> Iterator[Session]:
    """Read tau-bench runs."""
    for name, path in _files(data, "tau-bench/*.json"):
        for number, run in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            yield Session(f"{name}#{number}", "openai_chat", run["traj"])


def swe_agent(data: Path) -> Iterator[Session]:
    """Read SWE-agent trajectories."""
    for name, path in _files(data, "swe-agent/**/*.traj"):
        run = json.loads(path.read_text(encoding="utf-8"))
        yield Session(name, "openai_chat", run["history"])


def inspect_ai(data: Path) -> Iterator[Session]:
    """Read Inspect logs; long texts stand elsewhere in the file, under their hash."""
    for name, path in _files(data, "inspect-ai/*.json"):
        for number, sample in enumerate(json.loads(path.read_text(encoding="utf-8"))["samples"]):
            attachments = sample.get("attachments") or {}
            messages = [_attached(message, attachments) for message in sample["messages"]]
            yield Session(f"{name}#{number}", "openai_chat", messages)


def _attached(value: Any, attachments: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _attached(item, attachments) for key, item in value.items()}
    if isinstance(value, list):
        return [_attached(item, attachments) for item in value]
    if isinstance(value, str) and value.startswith("attachment://"):
        return attachments[value.removeprefix("attachment://")]
    return value


def bioagent(data: Path) -> Iterator[Session]:
    """Read bioagent logs; those of AutoGen are written as Python, not as JSON."""
    for name, path in _files(data, "bioagent/*.json"):
        text = path.read_text(encoding="utf-8")
        try:
            messages = json.loads(text)
        except json.JSONDecodeError:
            messages = ast.literal_eval(text)
        yield Session(name, "openai_chat", [_unpaired(message) for message in messages])


def _unpaired(message: Any) -> Any:
    """Return a message whose content may be LangGraph's pairs of role and text as one of texts."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    return {**message, "content": [one[1] if isinstance(one, list) else one for one in content]}


def who_and_when(data: Path) -> Iterator[Session]:
    """Read multi-agent logs of text; who speaks stands in the name or in the role."""
    for name, path in _files(data, "who-and-when/*/*.json"):
        history = json.loads(path.read_text(encoding="utf-8"))["history"]
        events = [_said(_speaker(message), message["content"]) for message in history]
        agent = next(event["author"] for event in events if event["author"] != "user")
        yield Session(name, "native", events, agent)


def _speaker(message: Any) -> str:
    if "name" in message:
        return str(message["name"])
    role = re.sub(r" \(.*\)$", "", message["role"])
    return "user" if role == "human" else role


# OpenHands: actions and observations; an observation names its action by number.


def openhands(data: Path) -> Iterator[Session]:
    """Read OpenHands event streams."""
    for name, path in _files(data, "openhands/*.json"):
        yield _openhands_session(name, json.loads(path.read_text(encoding="utf-8")))
    for name, path in _files(data, "openhands/*.jsonl"):
        for number, run in enumerate(_lines(path)):
            yield _openhands_session(f"{name}#{number}", run["history"])


def _openhands_session(name: str, history: Iterable[Any]) -> Session:
    return Session(name, "native", [event for one in history for event in _openhands(one)])


def _openhands(one: Any) -> Iterator[Event]:
    timestamp = one["timestamp"]
    tool = one.get("tool_call_metadata")
    if "observation" in one:
        if "cause" in one:
            call_id = tool["tool_call_id"] if tool else f"cause {one['cause']}"
            name = tool["function_name"] if tool else one["observation"]
            response = {"id": call_id, "name": name, "response": one["content"]}
            yield _event(AGENT, "user", [{"function_response": response}], timestamp=timestamp)
        return
    arguments = one.get("args") or {}
    if tool:
        yield _openhands_call(one, tool)
    elif one["action"] in ("message", "system"):
        author = AGENT if one["source"] == "agent" and one["action"] == "message" else "user"
        yield _said(author, arguments["content"], timestamp=timestamp)


def _openhands_call(one: Any, tool: Any) -> Event:
    response = tool["model_response"]
    message = response["choices"][0]["message"]
    called = next(c for c in message["tool_calls"] if c["id"] == tool["tool_call_id"])
    call = {
        "id": called["id"],
        "name": called["function"]["name"],
        "args": called["function"]["arguments"],
    }
    parts: list[Any] = [{"text": message["content"]}] if message["content"] else []
    parts.append({"function_call": call})
    return _event(AGENT, "model", parts, timestamp=one["timestamp"], response_id=response["id"])


# ADK and Gemini.


def adk(data: Path) -> Iterator[Session]:
    """Read ADK sessions and evaluation sets."""
    for name, path in _files(data, "adk/*.json"):
        value = json.loads(path.read_text(encoding="utf-8"))
        yield Session(name, "adk", value if isinstance(value, list) else [value])


def gemini_stream(data: Path) -> Iterator[Session]:
    """Read recorded Gemini answers: whole ones, and streams as lists of chunks."""
    for name, path in _files(data, "gemini-api-stream/*.responses"):
        answers = [line["response"] for line in _lines(path)]
        yield Session(name, "gemini", [one for one in answers if one])


def tau2_voice(data: Path) -> Iterator[Session]:
    """Read a voice simulation: what either side did in a fifth of a second is a partial event."""
    for name, path in _files(data, "tau2-voice/*.json"):
        events: list[Event] = []
        for tick in json.loads(path.read_text(encoding="utf-8"))["ticks"]:
            for chunk, author in ((tick["user_chunk"], "user"), (tick["agent_chunk"], AGENT)):
                spoken = "..." if chunk and chunk["contains_speech"] else ""
                fields = {"partial": True, "timestamp": tick["timestamp"]}
                events.append(_said(author, spoken, **fields))
        yield Session(name, "native", events)


_READERS: Final[tuple[Callable[[Path], Iterator[Session]], ...]] = (
    claude_code,
    pi,
    codex,
    tau_bench,
    swe_agent,
    inspect_ai,
    bioagent,
    who_and_when,
    openhands,
    adk,
    gemini_stream,
)
