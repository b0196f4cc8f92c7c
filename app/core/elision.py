"""The stub of an event: its bodies replaced by what they were and where they are.

    3 bot: result c1 {"output": 9,000 characters}
    3 bot: result c1 {"output": "[9000 characters left out: expand seq 3 to read them]"}

Texts, results and media give way; calls, thinking and what is signed or must travel verbatim stay,
because the provider checks them. So does a body whose stub would take no fewer characters of the
request, or no fewer tokens: what is kept of a result is sent as text inside of JSON, and may grow.
"""

from app.core.canonical import canonical_json
from app.core.contents import (
    CodeExecutionResult,
    FileData,
    FunctionResponse,
    InlineData,
    Part,
    Text,
    is_thinking,
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
    read = [
        stub_of(part, tokens, event.seq, keep_chars=elided.keep_chars, count=count)
        for part, tokens in zip(event.parts, event.part_tokens, strict=True)
    ]
    parts = tuple(part for part, _ in read)
    if parts == event.parts:
        return event
    return replace(event, parts=parts, part_tokens=tuple(tokens for _, tokens in read))


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


def leaves_out(event: Event, *, keep_chars: int, count: CountTokens) -> bool:
    """Tell whether an elision would change anything of an event, whose parts are counted."""
    return any(
        stub_of(part, tokens, event.seq, keep_chars=keep_chars, count=count)[0] is not part
        for part, tokens in zip(event.parts, event.part_tokens, strict=True)
    )


def stub_of(
    part: Part, tokens: int, seq: int, *, keep_chars: int, count: CountTokens
) -> tuple[Part, int]:
    """Return what stands for a part of the event at this seq, and its tokens; the part itself
    where a stub takes no fewer."""
    stubbed = stub(part, seq, keep_chars)
    if stubbed is part:
        return part, tokens
    stub_tokens = part_tokens(stubbed, count)
    return (stubbed, stub_tokens) if stub_tokens < tokens else (part, tokens)


def stub(part: Part, seq: int, keep_chars: int) -> Part:
    """Return what stands for a part of the event at this seq, the part itself if nothing shorter
    can."""
    if is_thinking(part) or part.signature is not None:
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
    response = canonical_json({"output": text})
    # Media cost by what they show, however few characters they take.
    if len(response) >= len(part.response) and not part.media:
        return part
    return replace(
        part,
        response=response,
        response_text=text,
        media=(),
        # A provider's own form of the result would bring it all back.
        extra=None,
    )


def _short(text: str, seq: int, keep_chars: int) -> str | None:
    """Return the beginning and a note of the rest, None where that is no shorter."""
    kept, left = text[:keep_chars], len(text) - keep_chars
    note = f"[{left} characters left out: expand seq {seq} to read them]"
    if kept:
        note = f"\n{note}"
    # In JSON the line break takes two characters, and the rest no fewer than it has.
    return f"{kept}{note}" if len(canonical_json(note)) - 2 < left else None


def _media_note(part: InlineData | FileData, seq: int) -> str:
    return f"[{part.mime_type or 'file'} left out: expand seq {seq} to see it]"
