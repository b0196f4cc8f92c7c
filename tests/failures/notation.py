"""Sessions that broke other systems, in one line each.

    U (K C# R#)x3 A U

``U`` user text, ``A`` the model's, ``M`` an image of the user's, ``K`` reasoning and text, ``C1,2``
one model message with calls 1 and 2, ``R1,2`` their results in one event (``!`` an error, ``j``
JSON, ``i`` an image, ``d`` a document by reference), ``RU1`` a result with user text in the same
event, ``^`` pinned. ``:n`` makes a text n characters long. ``(...)xN`` repeats, and ``#`` is the
number of the repetition. Every word is an event; the model speaks in a response of its own each
time, except that calls directly after ``K`` are of its response.
"""

import re
from collections.abc import Iterator
from typing import Final

from app.core.canonical import Json, canonical_json
from app.core.contents import FileData, FunctionResponse, InlineData, Part, Text
from app.core.copying import replace
from app.core.events import Event
from app.core.resolve import Log
from tests.builders import call_part, event, image, log, model, pin, text, user

TOOL: Final = "search"
_GROUP: Final = re.compile(r"\(([^()]*)\)x(\d+)")
_RESULT: Final = re.compile(r"(\d+)(?::(\d+))?(!?)([jid]?)")


def sent(stream: str) -> list[Event]:
    """Return the events of a stream as a caller sends them; pins stand at the end."""
    events: list[Event] = []
    pinned: list[int] = []
    previous = ""
    for word in _words(stream):
        events.append(_event(word.rstrip("^"), len(events) + 1, previous, events))
        if word.endswith("^"):
            pinned.append(len(events))
        previous = word
    return [*events, pin(*pinned)] if pinned else events


def stored(stream: str, *more: Event) -> Log:
    """Return the log of a stream and what follows it."""
    return log(*sent(stream), *more)


def _words(stream: str) -> Iterator[str]:
    written_out = _GROUP.sub(
        lambda match: " ".join(
            match[1].replace("#", str(number)) for number in range(1, int(match[2]) + 1)
        ),
        stream,
    )
    return iter(written_out.split())


def _event(word: str, seq: int, previous: str, before: list[Event]) -> Event:
    kind, rest = word[0], word[1:]
    response_id = f"r{seq}"
    match kind:
        case "U":
            return user(_text(rest, f"user {seq}"))
        case "M":
            return user(image())
        case "A":
            return model(_text(rest, f"model {seq}"), response_id=response_id)
        case "K":
            signed = Text(text="hm", thought=True, signature="c2ln", signed_by="anthropic")
            return model(signed, text(f"model {seq}"), response_id=response_id)
        case "C":
            called = model(*(call_part(TOOL, id=number) for number in rest.split(",")))
            is_same = previous.startswith("K")
            return replace(called, response_id=before[-1].response_id if is_same else response_id)
        case "R":
            return _results(rest, seq)
        case _:
            raise ValueError(word)


def _results(rest: str, seq: int) -> Event:
    told = [text(f"user {seq}")] if rest.startswith("U") else []
    parts: list[Part] = [*map(_result, _RESULT.findall(rest)), *told]
    return event(*parts, author="bot", role="user")


def _result(found: tuple[str, str, str, str]) -> FunctionResponse:
    call_id, length, failed, kind = found
    body: Json = {"result": "x" * int(length or 2)}
    media: tuple[InlineData | FileData, ...] = ()
    if kind == "j":
        body = {"rows": [{"id": number} for number in range(int(length or 9) // 9)]}
    if kind == "i":
        media = (image(),)
    if kind == "d":
        media = (FileData(file_uri="s3://bucket/report.pdf", mime_type="application/pdf"),)
    return FunctionResponse(
        id=call_id, name=TOOL, response=canonical_json(body), is_error=bool(failed), media=media
    )


def _text(rest: str, otherwise: str) -> str:
    return "x" * int(rest[1:]) if rest.startswith(":") else otherwise
