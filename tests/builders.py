"""Small events for tests, by the words one would say them in.

    log(user("find it"), call("search", id="c1"), response("c1"), model("found"))

A builder gives an event as it comes from a caller: unresolved, without seq. :func:`log` appends
them to an empty log in memory, which gives seqs, owners and places, and counts time on: the first
event is of second 1, the next of second 2, unless an event says its own ``timestamp``.

Every builder takes any field of :class:`app.core.events.Event` by keyword, and ``branch`` and
``scope`` for its lane.
"""

# `id` is what the field is called.
# ruff: noqa: A002

from collections.abc import Iterable
from typing import Any, Final

from app.core.canonical import canonical_json
from app.core.compile.estimate import estimate_tokens
from app.core.contents import (
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Part,
    Text,
)
from app.core.copying import replace
from app.core.events import (
    ActivationRequest,
    ElisionRequest,
    Event,
    FoldRequest,
    PinRequest,
    RewindRequest,
    SectionRequest,
    TimedCompactionRequest,
    UndoRequest,
    UnpinRequest,
)
from app.core.lanes import Lane
from app.core.resolve import Log, replay
from app.core.tokens import part_tokens

AGENT: Final = "bot"
#: Of a body that an elision may shorten.
LONG_TOKENS: Final = 16


def event(
    *parts: Part, author: str, branch: str = "", scope: str | None = None, **fields: Any
) -> Event:
    """Return an event of any parts; each counts as one token, a long one as the estimate has it."""
    fields.setdefault("lane", Lane(isolation_scope=scope, branch=branch))
    fields.setdefault("part_tokens", tuple(map(rough_tokens, parts)))
    fields.setdefault("role", "user" if author == "user" else "model")
    return Event(author=author, parts=parts, **fields)


def rough_tokens(part: Part) -> int:
    """Return one token, of a body that an elision may shorten the estimate."""
    tokens = part_tokens(part, estimate_tokens)
    return tokens if tokens > LONG_TOKENS else 1


def user(*said: str | Part, **fields: Any) -> Event:
    """Return a user message."""
    fields.setdefault("author", "user")
    return event(*_parts(said), **fields)


def model(*said: str | Part, **fields: Any) -> Event:
    """Return a model message, of ``bot`` unless an ``author`` is given."""
    fields.setdefault("author", AGENT)
    return event(*_parts(said), **fields)


def call(name: str, *, id: str | None = None, args: Any = None, **fields: Any) -> Event:
    """Return a model event that holds one function call."""
    return model(call_part(name, id=id, args=args), **fields)


def response(
    id: str | None,
    *,
    name: str = "search",
    result: Any = None,
    **fields: Any,
) -> Event:
    """Return an event that holds one function response, of the agent and in role user."""
    fields.setdefault("author", AGENT)
    fields.setdefault("role", "user")
    return event(response_part(id, name=name, result=result), **fields)


def rewind(before_invocation_id: str | None = None, *, to_seq: int | None = None) -> Event:
    """Return a rewind."""
    return _marker(RewindRequest(before_invocation_id, to_seq))


def compaction(
    start: float,
    end: float,
    summary: str = "summary",
    *,
    branch: str = "",
    scope: str | None = None,
    role: str = "model",
    **fields: Any,
) -> Event:
    """Return an ADK compaction of its lane from one second to another, both included."""
    request = TimedCompactionRequest(start, end, (text(summary),), role)
    return _marker(request, lane=Lane(isolation_scope=scope, branch=branch), **fields)


def fold(from_seq: int, to_seq: int, summary: str = "summary", **fields: Any) -> Event:
    """Return a fold of the lane without branch and scope."""
    return fold_of(from_seq, to_seq, section(summary), **fields)


def fold_of(
    from_seq: int, to_seq: int, *sections: SectionRequest, staged: bool = False, **fields: Any
) -> Event:
    """Return a fold of several lanes."""
    return _marker(FoldRequest(from_seq, to_seq, sections, is_staged=staged), **fields)


def section(summary: str, *, branch: str = "", scope: str | None = None) -> SectionRequest:
    """Return the summary of one lane."""
    return SectionRequest(scope, branch, (text(summary),))


def pin(*seqs: int) -> Event:
    """Return a pin."""
    return _marker(PinRequest(seqs))


def unpin(*seqs: int) -> Event:
    """Return an unpin."""
    return _marker(UnpinRequest(seqs))


def elide(*seqs: int, keep: int = 0) -> Event:
    """Return an elision."""
    return _marker(ElisionRequest(seqs, keep))


def undo(target_seq: int) -> Event:
    """Return an undo of the marker at a seq."""
    return _marker(UndoRequest(target_seq))


def activate(target_seq: int) -> Event:
    """Return the activation of a staged fold."""
    return _marker(ActivationRequest(target_seq))


def text(said: str, *, thought: bool = False) -> Text:
    """Return a text part."""
    return Text(text=said, thought=thought)


def thought(said: str, *, signed_by: str | None = None) -> Text:
    """Return a thought, with a signature of the provider if one is named."""
    signature = None if signed_by is None else f"proof of {said}"
    return Text(text=said, thought=True, signature=signature, signed_by=signed_by)


def call_part(name: str, *, id: str | None = None, args: Any = None) -> FunctionCall:
    """Return a function call part; no arguments are an empty object."""
    return FunctionCall(id=id, name=name, args=canonical_json({} if args is None else args))


def signed_call(name: str, id: str, *, by: str) -> FunctionCall:
    """Return a call that a provider signed."""
    return replace(call_part(name, id=id), signature="c2lnbmVk", signed_by=by)


def response_part(
    id: str | None,
    *,
    name: str = "search",
    result: Any = None,
) -> FunctionResponse:
    """Return a function response part."""
    body = canonical_json(result) if result is not None else '{"result":"ok"}'
    return FunctionResponse(id=id, name=name, response=body)


def image(data: str = "AAAA", mime_type: str = "image/png") -> InlineData:
    """Return inline media."""
    return InlineData(mime_type=mime_type, data=data)


def file(uri: str = "gs://bucket/file.pdf", mime_type: str = "application/pdf") -> FileData:
    """Return media by reference."""
    return FileData(file_uri=uri, mime_type=mime_type)


def log(*events: Event) -> Log:
    """Append the events to an empty log in memory."""
    return replay(timed(events))


def timed(events: Iterable[Event]) -> Iterable[Event]:
    """Give events without a timestamp the second of their position."""
    for seq, item in enumerate(events, start=1):
        yield item if item.timestamp else replace(item, timestamp=float(seq))


def _marker(request: Any, **fields: Any) -> Event:
    fields.setdefault("author", "user")
    return Event(request=request, **fields)


def _parts(said: Iterable[str | Part]) -> tuple[Part, ...]:
    return tuple(text(item) if isinstance(item, str) else item for item in said)
