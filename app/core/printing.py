"""Events and contents as text: one line each, for goldens, the command line and the demo.

    1 user: "find the invoice"
    2 bot: call search#c1 {"q":"invoice"}
    3 bot: result search#c1 {"result":"ok"}
    4 user: fold 1-3 covers 1-3 "the user looked for an invoice"

A line says who, where (``@branch``, ``scope=``) and what. The role stands in brackets only where it
is not the one that author and parts suggest. Turns are printed alike, each part with the seq of the
event it comes from:

    model: 2 call search#c1 {"q":"invoice"}
    user: 3 result search#c1 {"result":"ok"} + 5 "thanks"
"""

from collections.abc import Iterable, Sequence
from typing import Final

from app.core.canonical import json_string
from app.core.contents import (
    CodeExecutionResult,
    Content,
    Contents,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    PlacedPart,
    Segment,
    Text,
)
from app.core.events import (
    USER,
    Activation,
    Elision,
    Event,
    Events,
    Fold,
    Marker,
    Pin,
    PolicyChange,
    Rewind,
    Section,
    Undo,
    Unpin,
)
from app.core.lanes import Lane
from app.core.ranges import FOREVER, Ranges

#: What stands between two parts of one line.
JOINT: Final = " + "


def print_events(events: Events, *, limit: int | None = None) -> list[str]:
    """Return one line for each event.

    Args:
        events: in any order; printed in theirs.
        limit: the most characters of each quoted text; None: all of it.
    """
    return [event_line(event, limit=limit) for event in events]


def print_contents(contents: Contents, *, limit: int | None = None) -> list[str]:
    """Return one line for each turn."""
    return [content_line(content, limit=limit) for content in contents]


def event_line(event: Event, *, limit: int | None = None) -> str:
    """Return the line of one event."""
    what = parts_text(event.parts, limit=limit)
    if event.marker is not None and not event.parts:
        what = marker_text(event.marker, limit=limit)
    elif event.request is not None and not event.parts:
        what = type(event.request).__name__
    elif not event.parts:
        what = _transcribed(event, limit) or "nothing"
    return f"{event.seq} {_who(event)}{lane_text(event.lane)}{_kind(event)}: {what}"


def content_line(content: Content, *, limit: int | None = None) -> str:
    """Return the line of one turn. ``-- prefix`` says that the cacheable prefix ends with it."""
    parts = JOINT.join(_placed_text(placed, limit) for placed in content.parts)
    return f"{content.role}: {parts}{' -- prefix' if content.ends_prefix else ''}"


def parts_text(parts: Iterable[Part], *, limit: int | None = None) -> str:
    """Return the parts on one line."""
    return JOINT.join(part_text(part, limit=limit) for part in parts)


def part_text(part: Part, *, limit: int | None = None) -> str:
    """Return what one part says."""
    prefix = "thought " if part.thought else ""
    signed = " signed" if part.signature is not None else ""
    return f"{prefix}{_what(part, limit)}{signed}"


def marker_text(marker: Marker, *, limit: int | None = None) -> str:
    """Return what a marker does."""
    match marker:
        case Fold():
            staged = " staged" if marker.is_staged else ""
            sections = "; ".join(_section_text(each, limit) for each in marker.sections)
            return f"fold {_range_text(marker.from_seq, marker.to_seq)}{staged} {sections}".rstrip()
        case Rewind(from_seq=from_seq):
            return f"rewind from {from_seq}"
        case Pin(seqs=seqs):
            return f"pin {ranges_text(seqs)}"
        case Unpin(seqs=seqs):
            return f"unpin {ranges_text(seqs)}"
        case Elision(seqs=seqs, keep_chars=keep_chars):
            kept = f" keep {keep_chars}" if keep_chars else ""
            return f"elide {ranges_text(seqs)}{kept}"
        case Undo(target_seq=target_seq):
            return f"undo {target_seq}"
        case Activation(target_seq=target_seq):
            return f"activate {target_seq}"
        case PolicyChange():
            return "policy"


def ranges_text(ranges: Ranges) -> str:
    """Return a set of seqs as one would say it: ``1-4, 7, 9-``."""
    return ", ".join(_range_text(start, end) for start, end in ranges)


def lane_text(lane: Lane) -> str:
    """Return where an event stands, with a leading blank; nothing for the root."""
    branch = f" @{lane.branch}" if lane.branch else ""
    scope = f" scope={lane.isolation_scope}" if lane.isolation_scope is not None else ""
    node = f" node={lane.node_path}" if lane.node_path else ""
    return branch + scope + node


def excerpt(text: str, limit: int | None) -> str:
    """Return the text in quotes on one line; of a long one the beginning and how long it is."""
    if limit is None or len(text) <= limit:
        return json_string(text)
    return f'{json_string(text[:limit])[:-1]}…" ({len(text)} characters)'


def _what(part: Part, limit: int | None) -> str:
    match part:
        case Text(text=text):
            return excerpt(text, limit)
        case FunctionCall(name=name, args=args):
            pending = " long-running" if part.long_running else ""
            return f"call {_called(name, part.id)} {_json(args, limit)}{pending}"
        case FunctionResponse(name=name, response=response):
            said = response if part.response_text is None else json_string(part.response_text)
            failed = " failed" if part.is_error else ""
            media = "".join(f" with {_what(item, limit)}" for item in part.media)
            return f"result {_called(name, part.id)} {_json(said, limit)}{failed}{media}"
        case InlineData(mime_type=mime_type, data=data):
            return f"{mime_type} ({len(data) * 3 // 4} bytes)"
        case FileData(file_uri=file_uri):
            return f"file {file_uri}"
        case ExecutableCode(language=language, code=code):
            return f"code {language} {excerpt(code, limit)}"
        case CodeExecutionResult(outcome=outcome, output=output):
            return f"code result {outcome} {excerpt(output, limit)}"
        case Opaque(provider=provider, type=kind, text=text):
            twin = f" {excerpt(text, limit)}" if text else ""
            return f"opaque {provider} {kind}{twin}"


def _called(name: str, call_id: str | None) -> str:
    return f"{name}#{call_id}" if call_id else name


def _json(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text)} characters)"


def _placed_text(placed: PlacedPart, limit: int | None) -> str:
    source = "-" if placed.seq is None else str(placed.seq)
    kind = f"[{placed.segment}] " if placed.segment is not Segment.HISTORY else ""
    ephemeral = "~" if placed.ephemeral else ""
    return f"{source}{ephemeral} {kind}{part_text(placed.part, limit=limit)}"


def _section_text(section: Section, limit: int | None) -> str:
    summary = parts_text(section.parts, limit=limit)
    return f"covers {ranges_text(section.covers)}{lane_text(section.lane)} {summary}"


def _range_text(start: int, end: int) -> str:
    if end >= FOREVER:
        return f"{start}-"
    return str(start) if start == end else f"{start}-{end}"


def _who(event: Event) -> str:
    author = event.author or "?"
    if event.role is None or event.role == _expected_role(event.author, event.parts):
        return author
    return f"{author}({event.role or 'no role'})"


def _kind(event: Event) -> str:
    return f" [{event.segment}]" if event.segment is not Segment.HISTORY else ""


def _expected_role(author: str, parts: Sequence[Part]) -> str:
    is_result = bool(parts) and all(isinstance(part, FunctionResponse) for part in parts)
    return "user" if author == USER or is_result else "model"


def _transcribed(event: Event, limit: int | None) -> str:
    heard = event.input_transcription or event.output_transcription
    return f"heard {excerpt(heard, limit)}" if heard else ""
