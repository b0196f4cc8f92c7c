"""ADK's event JSON (and ours, which is the same with a few fields more) to Event.

Native ``snake_case`` and ADK's ``camelCase`` are read alike, at every level. Unknown keys of the
event itself are ignored and noted; unknown keys inside actions, contents and parts are errors, as
in google-adk 2.13. What an event must know of earlier ones is not decided here: seq is 0, responses
have no owners, markers are requests.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from msgspec import Struct

from app.core.canonical import Json, is_clean
from app.core.contents import FunctionCall, Part, Role, Text, responses
from app.core.copying import replace
from app.core.errors import InvalidEventError
from app.core.events import USER, CacheMetadata, Event, MarkerRequest
from app.core.lanes import Lane
from app.core.usage import read_usage, wrong_counts
from app.formats.adk_files import convert_item
from app.formats.fields import MAX_SEQ, Fields, Notes, Shape, pointer_to, refuse_deep
from app.formats.markers import (
    ADK_MARKERS,
    MAX_PATH_BYTES,
    SERVICE_MARKERS,
    marker_body,
    parse_marker,
    parse_time,
)
from app.formats.parts import (
    ParsedContent,
    native_part_text,
    parse_content,
    parse_part,
    part_to_native,
)

__all__ = [
    "ParsedContent",
    "ParsedEvent",
    "convert_item",
    "marker_body",
    "native_part_text",
    "parse_content",
    "parse_event",
    "parse_part",
    "parse_time",
    "part_to_native",
]

#: Ids and names of an event are indexed. google-adk's own columns hold up to 256 characters.
MAX_ID_BYTES: Final = 512

#: ADK's fields that nothing here reads, and what we add to an event when we answer it.
_PASSED_THROUGH: Final = (
    "error_message",
    "finish_reason",
    "turn_complete",
    "turn_complete_reason",
    "interrupted",
    "output",
    "grounding_metadata",
    "citation_metadata",
    "model_version",
    "avg_logprobs",
    "logprobs_result",
    "live_session_resumption_update",
    "go_away",
    "voice_activity",
    "interaction_id",
    "interaction_status",
    "environment_id",
    "seq",
    "status",
    "masked_by",
    "tokens",
)
#: Fields of an event that only say whose it is, and when.
_SAYING_NOTHING: Final = frozenset(
    {
        "id",
        "invocation_id",
        "author",
        "timestamp",
        "branch",
        "isolation_scope",
        "node_info",
        "seq",
        "status",
        "masked_by",
        "tokens",
    }
)
_EVENT = Shape(
    "an event",
    "id",
    "invocation_id",
    "author",
    "timestamp",
    "content",
    "actions",
    "partial",
    "branch",
    "isolation_scope",
    "node_info",
    "long_running_tool_ids",
    "input_transcription",
    "output_transcription",
    "error_code",
    "live_session_id",
    "usage_metadata",
    "cache_metadata",
    "custom_metadata",
    "compiled_fingerprint",
    "compiled_seq",
    "response_id",
    "invocation_complete",
    *_PASSED_THROUGH,
)
_ADK_ACTIONS: Final = (
    "skip_summarization",
    "state_delta",
    "artifact_delta",
    "transfer_to_agent",
    "transfer_reason",
    "escalate",
    "requested_auth_configs",
    "requested_tool_confirmations",
    "end_of_agent",
    "agent_state",
    "route",
    "render_ui_widgets",
    "set_model_response",
    *ADK_MARKERS,
)
_ACTIONS = Shape("actions", *_ADK_ACTIONS)
_SERVICE_ACTIONS = Shape("actions", *_ADK_ACTIONS, *SERVICE_MARKERS)
_NODE_INFO = Shape("node info", "path", "output_for", "message_as_output")
_CACHE_METADATA = Shape(
    "cache metadata",
    "cache_name",
    "expire_time",
    "fingerprint",
    "invocations_used",
    "contents_count",
    "created_at",
)
_TRANSCRIPTION = Shape("a transcription", "text", "finished")
_CONFIRMATION = Shape("a tool confirmation", "hint", "confirmed", "payload")


#: google-adk hides such an event from every agent, and so do we.
NO_ROLE: Final = "a content without a role is stored and read by no one"


class ParsedEvent(Struct, frozen=True, kw_only=True):
    """An event, and what it says beside what the passes read."""

    event: Event
    #: What it changes in the state, keys with their prefixes; can be stored as JSON as it is.
    state_delta: dict[str, Json]
    #: A fragment of a stream: answered, never stored.
    is_partial: bool
    #: It ends its invocation.
    completes_invocation: bool
    #: Without one the event's timestamp is 0.0, and the service sets the time.
    has_timestamp: bool
    #: What could not be taken as it came: ``(pointer, text)``.
    notes: tuple[tuple[str, str], ...]


def parse_event(value: Json, *, allow_markers: bool = False) -> ParsedEvent:
    """Read one event.

    Args:
        value: the event's JSON.
        allow_markers: read the markers that only services write; otherwise they are unknown keys.

    Raises:
        InvalidEventError: something has the wrong type, is unknown, or is nested too deep; the
            pointer is relative to the event.
    """
    refuse_deep(value)
    notes: Notes = []
    fields = _EVENT.read(value, "", notes)
    if fields.unknown:
        notes.extend((pointer_to("", key), "unknown key, ignored") for key in fields.unknown)
    if all(key in _SAYING_NOTHING for key in fields):
        notes.append(("", "the event says nothing: it is stored and read by no one"))
    actions = _actions(fields, allow_markers=allow_markers)
    event = _event(fields, actions)
    return ParsedEvent(
        event=event,
        state_delta=actions.state_delta,
        is_partial=fields.flag("partial"),
        completes_invocation=fields.flag("invocation_complete"),
        has_timestamp="timestamp" in fields,
        notes=event.notes,
    )


def _event(fields: Fields, actions: "_Actions") -> Event:
    role, parts = _content(fields)
    if parts and not role:
        fields.notes.append((pointer_to(fields.at("content"), "role"), NO_ROLE))
    long_running_ids = frozenset(_names(fields, "long_running_tool_ids"))
    if long_running_ids:
        parts = tuple(_long_running(part, long_running_ids) for part in parts)
    author = _author(fields, role)
    node_path = _node_path(fields)
    # Kept, and read by nobody here: only its type is looked at.
    fields.mapping("custom_metadata")
    rarer: dict[str, Any] = {
        _RARER[key][0]: _RARER[key][1](fields, key) for key in fields if key in _RARER
    }
    return Event(
        id=fields.identifier("id", max_bytes=MAX_ID_BYTES) or "",
        author=author,
        invocation_id=fields.identifier("invocation_id", max_bytes=MAX_ID_BYTES) or "",
        timestamp=_timestamp(fields),
        lane=_lane(fields, parts, author=author, node_path=node_path),
        node_path=node_path,
        role=role,
        parts=parts,
        long_running_ids=long_running_ids,
        requested_ids=actions.requested_ids,
        is_transfer=actions.is_transfer,
        skips_summarization=actions.skips_summarization,
        request=actions.request,
        notes=tuple(fields.notes),
        **rarer,
    )


def _content(fields: Fields) -> tuple[str | None, tuple[Part, ...]]:
    """Return role and parts; a plain string is the user's text or, from an agent, the model's."""
    value = fields.value("content")
    if value is None:
        return None, ()
    if isinstance(value, str):
        role: Role = "user" if fields.value("author") in (None, "", USER) else "model"
        return role, (Text(text=fields.text("content") or ""),)
    content = parse_content(value, fields.at("content"), fields.notes)
    return content.role, content.parts


def _author(fields: Fields, role: str | None) -> str:
    """Return the author; of a user content whose author is not given, the user."""
    author = fields.identifier("author", max_bytes=MAX_ID_BYTES)
    if author is None:
        return USER if role == "user" else ""
    return author


def _lane(fields: Fields, parts: tuple[Part, ...], *, author: str, node_path: str) -> Lane:
    is_for_node = author == USER and not responses(parts)
    return Lane(
        isolation_scope=fields.identifier("isolation_scope", max_bytes=MAX_PATH_BYTES) or None,
        branch=fields.identifier("branch", max_bytes=MAX_PATH_BYTES) or "",
        node_path=node_path if is_for_node else "",
    )


def _node_path(fields: Fields) -> str:
    if "node_info" not in fields:
        return ""
    node = _NODE_INFO.read(fields.value("node_info"), fields.at("node_info"), fields.notes)
    return node.identifier("path", max_bytes=MAX_PATH_BYTES) or ""


def _timestamp(fields: Fields) -> float:
    value = fields.value("timestamp")
    return 0.0 if value is None else parse_time(value, fields.at("timestamp"))


def _long_running(part: Part, long_running_ids: frozenset[str]) -> Part:
    if isinstance(part, FunctionCall) and part.id in long_running_ids and not part.long_running:
        return replace(part, long_running=True)
    return part


def _transcription(fields: Fields, key: str) -> str:
    return _TRANSCRIPTION.read(fields.value(key), fields.at(key), fields.notes).text("text") or ""


def _is_said(fields: Fields, key: str) -> bool:
    return bool(fields.text(key))


def _identifier(fields: Fields, key: str) -> str | None:
    return fields.identifier(key, max_bytes=MAX_ID_BYTES)


def _response_id(fields: Fields, key: str) -> str | None:
    return _identifier(fields, key) or None


def _position(fields: Fields, key: str) -> int | None:
    return fields.seq(key, least=0)


def _prompt_tokens(fields: Fields, key: str) -> int | None:
    """Return the input tokens that the model's provider reported."""
    usage = fields.mapping(key)
    if not usage:
        return None
    for pointer, detail in wrong_counts(usage):
        fields.notes.append((fields.at(key) + pointer, f"{detail}; ignored"))
    return read_usage(usage).input_tokens


def _cache_metadata(fields: Fields, key: str) -> CacheMetadata | None:
    """Return what is said of an explicit cache; without fingerprint and count it says nothing."""
    cache = _CACHE_METADATA.read(fields.mapping(key), fields.at(key), fields.notes)
    fingerprint = cache.identifier("fingerprint", max_bytes=MAX_ID_BYTES)
    count = cache.seq("contents_count", least=0)
    name, used = cache.text("cache_name"), cache.seq("invocations_used", least=0)
    expire_time, created_at = _moment(cache, "expire_time"), _moment(cache, "created_at")
    if fingerprint is None or count is None:
        missing = "contents_count" if fingerprint else "fingerprint"
        cache.note(missing, "without it nothing is known of a cache")
        return None
    return CacheMetadata(
        fingerprint=fingerprint,
        contents_count=count,
        cache_name=name,
        expire_time=expire_time,
        created_at=created_at,
        invocations_used=used,
    )


def _moment(cache: Fields, key: str) -> float | None:
    """Return seconds since the epoch."""
    value = cache.value(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_SEQ:
        raise cache.wrong(key, "must be a number: seconds since 1970")
    return float(value)


def _names(fields: Fields, key: str) -> Iterator[str]:
    for index, item in enumerate(fields.array(key)):
        if not isinstance(item, str):
            raise InvalidEventError("must be a string", pointer=f"{fields.at(key)}/{index}")
        yield item


#: Fields of an event that most lack: what they say of it, and how it is read.
_RARER: Final[Mapping[str, tuple[str, Callable[[Fields, str], Any]]]] = {
    "input_transcription": ("input_transcription", _transcription),
    "output_transcription": ("output_transcription", _transcription),
    "error_code": ("error_code", Fields.text),
    "live_session_id": ("is_live_session", _is_said),
    "usage_metadata": ("prompt_tokens", _prompt_tokens),
    "cache_metadata": ("cache_metadata", _cache_metadata),
    "compiled_fingerprint": ("compiled_fingerprint", _identifier),
    "compiled_seq": ("compiled_seq", _position),
    "response_id": ("response_id", _response_id),
}


class _Actions(Struct, frozen=True, kw_only=True):
    """What the actions of an event say."""

    state_delta: dict[str, Json]
    requested_ids: frozenset[str] = frozenset()
    is_transfer: bool = False
    skips_summarization: bool = False
    request: MarkerRequest | None = None


def _actions(event: Fields, *, allow_markers: bool) -> _Actions:
    if "actions" not in event:
        return _Actions(state_delta={})
    shape = _SERVICE_ACTIONS if allow_markers else _ACTIONS
    fields = shape.read_strictly(event.mapping("actions"), event.at("actions"), event.notes)
    _check_unread(fields)
    return _Actions(
        state_delta=_state_delta(fields),
        requested_ids=_requested_ids(fields),
        is_transfer=bool(fields.text("transfer_to_agent")),
        skips_summarization=fields.flag("skip_summarization"),
        request=parse_marker(fields),
    )


def _requested_ids(actions: Fields) -> frozenset[str]:
    confirmations = actions.mapping("requested_tool_confirmations")
    for call_id, confirmation in confirmations.items():
        at = pointer_to(actions.at("requested_tool_confirmations"), call_id)
        _CONFIRMATION.read_strictly(confirmation, at, actions.notes)
    return frozenset((*confirmations, *actions.mapping("requested_auth_configs")))


def _state_delta(actions: Fields) -> dict[str, Json]:
    delta = actions.mapping("state_delta")
    if not delta:
        return {}
    text = actions.canonical("state_delta", delta)
    return delta if is_clean(delta) else cast("dict[str, Json]", json.loads(text))


def _check_unread(actions: Fields) -> None:
    """Refuse wrong types in what is kept but not read here."""
    for key in ("escalate", "end_of_agent"):
        actions.flag(key)
    actions.text("transfer_reason")
    for name, version in actions.mapping("artifact_delta").items():
        if isinstance(version, bool) or not isinstance(version, int):
            at = pointer_to(actions.at("artifact_delta"), name)
            raise InvalidEventError("must be a version number", pointer=at)
