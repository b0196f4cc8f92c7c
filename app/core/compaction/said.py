"""What is said in an event: by whom, and as plain text.

    model calls read_file {"path": "a.toml"}      tool  read_file  "path: a.toml"
    user  "Set it up."                            user  user       "Set it up."

Both ways to a summary begin here. Thoughts are nobody's business, and credentials leave no trace:
neither the events that ask for or deliver them nor what looks like one.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.core.canonical import Json, canonical_json
from app.core.compaction.redaction import redacted, without_secrets
from app.core.compaction.statements import one_line
from app.core.contents import (
    CodeExecutionResult,
    ExecutableCode,
    FunctionCall,
    FunctionResponse,
    Opaque,
    Part,
    Text,
    is_thinking,
)
from app.core.events import USER, Event

#: ADK's name of the call that asks for a credential; the answer holds one.
CREDENTIAL_CALL: Final = "adk_request_credential"
#: Characters of one line of flattened JSON.
_FLAT_LINE: Final = 240


class Speaker(StrEnum):
    """Whose words they are."""

    USER = "user"
    AGENT = "agent"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Said:
    """Something that was said, done or given in an event, as plain text."""

    seq: int
    speaker: Speaker
    #: Author, or name of the tool.
    name: str
    text: str


def said(event: Event) -> Iterator[Said]:
    """Yield what is said in an event, in part order."""
    if is_credential(event):
        return
    author = author_of(event)
    for part in event.parts:
        if not is_thinking(part):
            yield from _said_by_part(event, author, part)
    if event.input_transcription:
        yield Said(event.seq, Speaker.USER, USER, without_secrets(event.input_transcription))
    if event.output_transcription:
        heard = without_secrets(event.output_transcription)
        yield Said(event.seq, Speaker.AGENT, author.name, heard)


def is_credential(event: Event) -> bool:
    """Tell whether the event asks for a credential or delivers one."""
    return any(call.name == CREDENTIAL_CALL for call in event.calls) or any(
        response.name == CREDENTIAL_CALL or (owner is not None and owner.name == CREDENTIAL_CALL)
        for response, owner in zip(
            event.responses, event.owners or (None,) * len(event.responses), strict=False
        )
    )


@dataclass(frozen=True, slots=True)
class Author:
    """Whose event it is."""

    speaker: Speaker
    name: str


def author_of(event: Event) -> Author:
    """Return whose words the texts of an event are."""
    if event.author == USER and not event.is_model:
        return Author(Speaker.USER, USER)
    return Author(Speaker.AGENT, one_line(event.author, 60) or "agent")


def _said_by_part(event: Event, author: Author, part: Part) -> Iterator[Said]:
    match part:
        case Text(text=text):
            yield Said(event.seq, author.speaker, author.name, without_secrets(text))
        case FunctionCall(name=name, args=args):
            yield Said(event.seq, Speaker.TOOL, name, flat_json(args))
        case FunctionResponse(name=name):
            yield Said(event.seq, Speaker.TOOL, tool_name(event, part), _result_text(part))
        case ExecutableCode(code=code):
            yield Said(event.seq, Speaker.TOOL, "code", without_secrets(code))
        case CodeExecutionResult(output=output):
            yield Said(event.seq, Speaker.TOOL, "code", without_secrets(output))
        case Opaque(text=text) if text:
            yield Said(event.seq, author.speaker, author.name, without_secrets(text))
        case _:
            return


def tool_name(event: Event, part: FunctionResponse) -> str:
    """Return the name of the tool that answered."""
    if part.name:
        return part.name
    owners = dict(zip(event.responses, event.owners, strict=False))
    owner = owners.get(part)
    return owner.name if owner is not None else "tool"


def _result_text(part: FunctionResponse) -> str:
    if part.response_text is not None and not part.response_text.lstrip().startswith(("{", "[")):
        return without_secrets(part.response_text)
    return flat_json(part.response_text or part.response)


def flat_json(text: str) -> str:
    """Return JSON as lines of ``key: value``, those of one object together; other text as it is."""
    try:
        value: Json = json.loads(text)
    except ValueError:
        return without_secrets(text)
    return "\n".join(_flat("", redacted(value)))


def _flat(name: str, value: Json) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(name, item)
        return
    if not isinstance(value, dict):
        text = value if isinstance(value, str) else canonical_json(value)
        yield f"{name}: {text}" if name and name not in ("result", "output") else text
        return
    line = ""
    for key, item in value.items():
        if isinstance(item, dict | list) or (isinstance(item, str) and "\n" in item):
            continue
        pair = f"{key}: {item if isinstance(item, str) else canonical_json(item)}"
        if line and len(line) + len(pair) > _FLAT_LINE:
            yield line
            line = ""
        line = f"{line}, {pair}" if line else pair
    if line:
        yield f"{name}: {line}" if name else line
    for key, item in value.items():
        if isinstance(item, dict | list) or (isinstance(item, str) and "\n" in item):
            yield from _flat(key, item)


def spoken_words(events: Sequence[Event]) -> str:
    """Return all that is said, for comparing an answer with."""
    return "\n".join(one.text for event in events for one in said(event))
