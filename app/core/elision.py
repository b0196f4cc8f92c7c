"""The stub of an event: its bodies replaced by what they were and where they are.

    3 bot: result c1 {"output": 9,000 characters}
    3 bot: result c1 {"output": "[9000 characters left out: expand seq 3 to read them]"}

Texts, results and media give way; calls, thinking and what is signed or must travel verbatim stay,
because the provider checks them. A body that is no longer than its stub stays too.
"""

from collections.abc import Sequence

from app.core.canonical import canonical_json
from app.core.contents import (
    CodeExecutionResult,
    FileData,
    FunctionResponse,
    InlineData,
    Part,
    Text,
)
from app.core.copying import replace
from app.core.events import Event, Events
from app.core.index import Index
from app.core.tokens import CountTokens, part_tokens, text_size


def elide(event: Event, index: Index, count: CountTokens) -> Event:
    """Return the event as it is read: its stub if it is elided, else the event itself.

    Args:
        event: as it was appended, its parts counted.
        index: which events are elided.
        count: for what stays of a body.
    """
    elided = index.elision_of(event.seq)
    if elided is None or event.marker is not None:
        return event
    parts = tuple(stub(part, event.seq, elided.keep_chars) for part in event.parts)
    if parts == event.parts:
        return event
    return replace(event, parts=parts, part_tokens=_tokens(event, parts, count))


def kept_characters(events: Events, index: Index) -> int:
    """Return at most how many characters of elided bodies will be counted: what decides where the
    counting runs."""
    if not index.elided:
        return 0
    kept = 0
    for event in events:
        elided = index.elision_of(event.seq)
        if elided is not None and elided.keep_chars:
            kept += min(text_size(event.parts), elided.keep_chars * len(event.parts))
    return kept


def leaves_out(parts: Sequence[Part], seq: int, keep_chars: int) -> bool:
    """Tell whether an elision would change anything of an event with these parts."""
    return any(stub(part, seq, keep_chars) is not part for part in parts)


def stub(part: Part, seq: int, keep_chars: int) -> Part:
    """Return what stands for a part of the event at this seq, the part itself if nothing shorter
    can."""
    if part.thought or part.signature is not None:
        return part
    match part:
        case Text(text=text):
            return Text(text=short) if (short := _short(text, seq, keep_chars)) else part
        case FunctionResponse():
            return _response_stub(part, seq, keep_chars)
        case CodeExecutionResult(output=output):
            short = _short(output, seq, keep_chars)
            return replace(part, output=short, extra=None) if short else part
        case InlineData() | FileData():
            return Text(text=_media_note(part, seq))
        case _:
            return part


def _response_stub(part: FunctionResponse, seq: int, keep_chars: int) -> FunctionResponse:
    said = part.response if part.response_text is None else part.response_text
    short = _short(said, seq, keep_chars)
    if short is None and not part.media:
        return part
    notes = [_media_note(item, seq) for item in part.media]
    text = "\n".join((said if short is None else short, *notes))
    return replace(
        part,
        response=canonical_json({"output": text}),
        response_text=text,
        media=(),
        # A provider's own form of the result would bring it all back.
        extra=None,
    )


def _short(text: str, seq: int, keep_chars: int) -> str | None:
    """Return the beginning and a note of the rest, None where that is no shorter."""
    kept, left = text[:keep_chars], len(text) - keep_chars
    note = f"[{left} characters left out: expand seq {seq} to read them]"
    short = f"{kept}\n{note}" if kept else note
    return short if len(short) < len(text) else None


def _media_note(part: InlineData | FileData, seq: int) -> str:
    return f"[{part.mime_type or 'file'} left out: expand seq {seq} to see it]"


def _tokens(event: Event, parts: Sequence[Part], count: CountTokens) -> tuple[int, ...]:
    return tuple(
        tokens if after is before else min(tokens, part_tokens(after, count))
        for tokens, before, after in zip(event.part_tokens, event.parts, parts, strict=True)
    )
