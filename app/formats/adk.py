"""ADK's event JSON (and ours, which is the same with a few fields more) to Event.

Native ``snake_case`` and ADK's ``camelCase`` are read alike, at every level. Unknown keys of the
event itself are ignored and noted; unknown keys inside actions, contents and parts are errors, as
in google-adk 2.13. What an event must know of earlier ones is not decided here: seq is 0, responses
have no owners, markers are requests.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from app.core.canonical import Json, is_clean
from app.core.contents import FunctionCall, Part, Role, Text, responses
from app.core.copying import replace
from app.core.errors import InvalidEventError
from app.core.events import USER, CacheMetadata, Event
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedEvent:
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
    notes.extend((pointer_to("", key), "unknown key, ignored") for key in fields.unknown)
    if not any(key not in _SAYING_NOTHING for key in fields):
        notes.append(("", "the event says nothing: it is stored and read by no one"))
    actions_shape = _SERVICE_ACTIONS if allow_markers else _ACTIONS
    actions = actions_shape.read_strictly(fields.mapping("actions"), fields.at("actions"), notes)
    _check_passed_through(fields, actions)
    state_delta = _state_delta(actions)
    event = _event(fields, actions)
    return ParsedEvent(
        event=event,
        state_delta=state_delta,
        is_partial=fields.flag("partial"),
        completes_invocation=fields.flag("invocation_complete"),
        has_timestamp="timestamp" in fields,
        notes=event.notes,
    )


def _event(fields: Fields, actions: Fields) -> Event:
    role, parts = _content(fields)
    if parts and not role:
        fields.notes.append((pointer_to(fields.at("content"), "role"), NO_ROLE))
    long_running_ids = frozenset(_names(fields, "long_running_tool_ids"))
    author = _author(fields, role)
    node_path = _node_path(fields)
    requested_ids = _requested_ids(actions)
    request = parse_marker(actions)
    return Event(
        id=fields.identifier("id", max_bytes=MAX_ID_BYTES) or "",
        author=author,
        invocation_id=fields.identifier("invocation_id", max_bytes=MAX_ID_BYTES) or "",
        timestamp=_timestamp(fields),
        lane=_lane(fields, parts, author=author, node_path=node_path),
        node_path=node_path,
        role=role,
        parts=tuple(_long_running(part, long_running_ids) for part in parts),
        input_transcription=_transcription(fields, "input_transcription"),
        output_transcription=_transcription(fields, "output_transcription"),
        long_running_ids=long_running_ids,
        requested_ids=requested_ids,
        is_transfer=bool(actions.text("transfer_to_agent")),
        is_live_session=bool(fields.text("live_session_id")),
        skips_summarization=actions.flag("skip_summarization"),
        error_code=fields.text("error_code"),
        compiled_seq=fields.seq("compiled_seq", least=0),
        compiled_fingerprint=fields.identifier("compiled_fingerprint", max_bytes=MAX_ID_BYTES),
        prompt_tokens=_prompt_tokens(fields),
        cache_metadata=_cache_metadata(fields),
        response_id=fields.identifier("response_id", max_bytes=MAX_ID_BYTES) or None,
        request=request,
        notes=tuple(fields.notes),
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


def _transcription(fields: Fields, key: str) -> str | None:
    if key not in fields:
        return None
    return _TRANSCRIPTION.read(fields.value(key), fields.at(key), fields.notes).text("text") or ""


def _prompt_tokens(fields: Fields) -> int | None:
    """Return the input tokens that the model's provider reported."""
    usage = fields.mapping("usage_metadata")
    if not usage:
        return None
    for pointer, detail in wrong_counts(usage):
        fields.notes.append((fields.at("usage_metadata") + pointer, f"{detail}; ignored"))
    return read_usage(usage).input_tokens


def _cache_metadata(fields: Fields) -> CacheMetadata | None:
    """Return what is said of an explicit cache; without fingerprint and count it says nothing."""
    if "cache_metadata" not in fields:
        return None
    cache = _CACHE_METADATA.read(
        fields.value("cache_metadata"), fields.at("cache_metadata"), fields.notes
    )
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


def _check_passed_through(fields: Fields, actions: Fields) -> None:
    """Refuse wrong types in what is kept but not read here."""
    for key in ("usage_metadata", "cache_metadata", "custom_metadata"):
        fields.mapping(key)
    for key in ("escalate", "end_of_agent"):
        actions.flag(key)
    actions.text("transfer_reason")
    for name, version in actions.mapping("artifact_delta").items():
        if isinstance(version, bool) or not isinstance(version, int):
            at = pointer_to(actions.at("artifact_delta"), name)
            raise InvalidEventError("must be a version number", pointer=at)
