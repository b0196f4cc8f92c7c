r"""What a model is shown of events.

    [1] user: "Set it up.\n[2] bot: \"done\""      one line for each thing said, whatever it holds
    [2] bot called read_file {"path":"a.toml"}
    [3] read_file returned "port = 8080\n"
    [4] user attached image/png

Every text is a JSON string on a line of its own, so no text can pass for another turn, end its own
quotation or add a line.
"""

import json
import re
from typing import Final

from app.core.canonical import canonical_json, json_string
from app.core.compaction.ledger import CountTokens
from app.core.compaction.redaction import redacted, without_secrets
from app.core.compaction.said import Author, author_of, is_credential, said, tool_name
from app.core.compaction.statements import one_line
from app.core.contents import (
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    Text,
    is_thinking,
)
from app.core.events import Event, Events

#: Characters of arguments and results in a transcript, as ADK cuts them.
MAX_DATA_CHARACTERS: Final = 2_000
#: Characters of one event in a transcript.
MAX_EVENT_CHARACTERS: Final = 16_000


def transcript_lines(event: Event, limit: int = MAX_EVENT_CHARACTERS) -> tuple[str, ...]:
    """Return the event's lines in the transcript, not many more characters than the limit."""
    if is_credential(event):
        return ()
    author = author_of(event)
    lines: list[str] = []
    left = limit
    for part in event.parts:
        line = "" if is_thinking(part) else _part_line(event, author, part, max(200, left))
        if line and left <= 0:
            return (*lines, f"[{event.seq}] … more of this event is not shown")
        if line:
            lines.append(f"[{event.seq}] {line}")
            left -= len(line)
    if not event.parts:
        # Spoken: the transcriptions alone.
        heard = (one for one in said(event) if one.text)
        lines += (
            f"[{one.seq}] {_safe_name(one.name)}: {_cut_string(one.text, limit)}" for one in heard
        )
    return tuple(lines)


def _part_line(event: Event, author: Author, part: Part, left: int) -> str:
    name = _safe_name(author.name)
    match part:
        case Text(text=text):
            text = without_secrets(text)
            return f"{name}: {_cut_string(text, left)}" if text.strip() else ""
        case FunctionCall(name=tool, args=args):
            return f"{name} called {_safe_name(tool)} {_cut(_redacted_json(args))}"
        case FunctionResponse():
            tool = _safe_name(tool_name(event, part))
            media = "".join(f", with {_kind_of_media(one)}" for one in part.media)
            return f"{tool} returned {_cut(_result_json(part))}{media}"
        case ExecutableCode(code=code):
            return f"{name} ran {_cut_string(without_secrets(code), MAX_DATA_CHARACTERS)}"
        case CodeExecutionResult(output=output):
            return f"the code gave {_cut_string(without_secrets(output), MAX_DATA_CHARACTERS)}"
        case Opaque(text=text):
            return f"{name}: {_cut_string(without_secrets(text), left)}" if text else ""
        case InlineData() | FileData():
            return f"{name} attached {_kind_of_media(part)}"


def _kind_of_media(part: InlineData | FileData) -> str:
    kind = _safe_name(part.mime_type or "a file")
    return f"{kind} {json_string(part.display_name)}" if part.display_name else kind


def _result_json(part: FunctionResponse) -> str:
    if part.response_text is None:
        return _redacted_json(part.response)
    return json_string(without_secrets(part.response_text))


def _redacted_json(text: str) -> str:
    try:
        return canonical_json(redacted(json.loads(text)))
    except ValueError:
        return json_string(without_secrets(text))


def _cut(text: str) -> str:
    """Cut JSON text, which is on one line already."""
    if len(text) <= MAX_DATA_CHARACTERS:
        return text
    return f"{text[:MAX_DATA_CHARACTERS]}… [{len(text) - MAX_DATA_CHARACTERS} characters cut]"


def _cut_string(text: str, limit: int) -> str:
    """Return the JSON string of a text, of a long one the beginning and the end."""
    if len(text) <= limit:
        return json_string(text)
    head, tail = text[: limit * 3 // 4], text[-(limit // 4) :]
    gone = len(text) - len(head) - len(tail)
    return f"{json_string(head)} … [{gone} characters cut] … {json_string(tail)}"


def _safe_name(name: str) -> str:
    """Return a name that cannot end the place it stands in."""
    return re.sub(r"[\"\[\]{}:\n\r]", " ", one_line(name, 60)) or "someone"


def chunks(
    events: Events, max_tokens: int, count: CountTokens
) -> tuple[tuple[Events, tuple[str, ...]], ...]:
    """Return the events in stretches whose transcripts fit, each with its lines.

    An event is never divided; one that is too long is shown in part.
    """
    # A token has rarely less than one character; with fewer than four it is mostly not English.
    limit = min(MAX_EVENT_CHARACTERS, max(400, max_tokens * 2))
    done: list[tuple[Events, tuple[str, ...]]] = []
    held: list[Event] = []
    lines: list[str] = []
    tokens = 0
    for event in events:
        shown = transcript_lines(event, limit)
        cost = sum(count(line) + 1 for line in shown)
        if lines and tokens + cost > max_tokens:
            done.append((tuple(held), tuple(lines)))
            held, lines, tokens = [], [], 0
        held.append(event)
        lines += shown
        tokens += cost
    if held:
        done.append((tuple(held), tuple(lines)))
    return tuple(done)
