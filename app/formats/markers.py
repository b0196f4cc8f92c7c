"""Markers: the actions that change how the log is read, as JSON and as requests.

ADK's own (``rewind_before_invocation_id``, ``compaction``) may come from anyone. The others are
written by services only, which make their body here and store it like any event's.

    RewindRequest(to_seq=7)      {"actions": {"rewind": {"to_seq": 7}}}
    PinRequest((2, 3))           {"actions": {"pin": {"seqs": [2, 3]}}}
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from app.core.canonical import Json
from app.core.errors import InvalidEventError
from app.core.events import (
    ActivationRequest,
    ElisionRequest,
    FoldRequest,
    MarkerRequest,
    PinRequest,
    PolicyRequest,
    RewindRequest,
    SectionRequest,
    TimedCompactionRequest,
    UndoRequest,
    UnpinRequest,
)
from app.core.ranges import Ranges, union
from app.formats.fields import Fields, Notes, Shape, read_seq
from app.formats.parts import parse_content, part_to_native

#: Scopes, branches and node paths are indexed together.
MAX_PATH_BYTES: Final = 1024

#: From here on a number counts milliseconds: as seconds it would lie beyond the year 5000.
_LEAST_MILLISECONDS: Final = 1e11
_MOST_SECONDS: Final = _LEAST_MILLISECONDS
#: The year 1, where calendars here begin.
_LEAST_SECONDS: Final = -62_135_596_800

# `fromisoformat` reads the rest, and week dates and bare dates besides.
_RFC_3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")

_COMPACTION = Shape(
    "a compaction", "start_timestamp", "end_timestamp", "compacted_content", "excluded_events"
)
_EXCLUDED = Shape("an excluded event", "invocation_id", "timestamp")
_REWIND = Shape("a rewind", "to_seq")
_FOLD = Shape("a fold", "from_seq", "to_seq", "sections", "seqs", "level", "is_staged", "details")
_SECTION = Shape(
    "a section", "isolation_scope", "branch", "tool_names", "node_path", "content", "ledger"
)
_SEQS = Shape("a pin", "seqs")
_ELISION = Shape("an elision", "seqs", "keep_chars")
_TARGET = Shape("an undo or activation", "target_seq")


def parse_time(value: Json, pointer: str) -> float:
    """Return seconds since the epoch.

    Args:
        value: RFC 3339 with or without a zone (none: UTC), or epoch seconds or milliseconds.
        pointer: where it stands.
    """
    if isinstance(value, str):
        seconds = _time_of_text(value, pointer)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidEventError("must be RFC 3339 or a number", pointer=pointer)
    elif isinstance(value, float) and math.isnan(value):
        raise InvalidEventError("is not a number", pointer=pointer)
    else:
        seconds = _seconds(value)
    if not _LEAST_SECONDS <= seconds < _MOST_SECONDS:
        raise InvalidEventError("lies outside of all times", pointer=pointer)
    return seconds


def _seconds(value: float) -> float:
    if abs(value) >= _LEAST_MILLISECONDS * 1000:
        # Also keeps integers that no float holds from being converted.
        return math.inf
    return value / 1000 if value >= _LEAST_MILLISECONDS else float(value)


def _time_of_text(value: str, pointer: str) -> float:
    try:
        moment = datetime.fromisoformat(value) if _RFC_3339.match(value) else None
    except ValueError:
        moment = None
    if moment is None:
        raise InvalidEventError("is not an RFC 3339 time", pointer=pointer)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def parse_marker(actions: Fields) -> MarkerRequest | None:
    """Return what the actions ask for; None when they hold no marker."""
    keys = [key for key in _READERS if actions.value(key) not in (None, "")]
    if len(keys) > 1:
        raise actions.wrong(keys[1], f"an event holds one marker; this one has {keys[0]} too")
    return _READERS[keys[0]](actions, keys[0]) if keys else None


def _rewind_before(actions: Fields, key: str) -> MarkerRequest:
    return RewindRequest(before_invocation_id=actions.text(key))


def _compaction(actions: Fields, key: str) -> MarkerRequest:
    fields = _COMPACTION.read_strictly(actions.value(key), actions.at(key), actions.notes)
    for needed in ("start_timestamp", "end_timestamp", "compacted_content"):
        if needed not in fields:
            raise fields.wrong(needed, "a compaction needs it")
    content = parse_content(
        fields.value("compacted_content"), fields.at("compacted_content"), fields.notes
    )
    return TimedCompactionRequest(
        start_timestamp=parse_time(fields.value("start_timestamp"), fields.at("start_timestamp")),
        end_timestamp=parse_time(fields.value("end_timestamp"), fields.at("end_timestamp")),
        parts=content.parts,
        role=content.role,
        excluded=tuple(
            _excluded(item, f"{fields.at('excluded_events')}/{index}", fields.notes)
            for index, item in enumerate(fields.array("excluded_events"))
        ),
    )


def _excluded(value: Json, pointer: str, notes: Notes) -> tuple[str, float]:
    fields = _EXCLUDED.read_strictly(value, pointer, notes)
    timestamp = parse_time(fields.value("timestamp"), fields.at("timestamp"))
    return fields.text("invocation_id") or "", timestamp


def _rewind(actions: Fields, key: str) -> MarkerRequest:
    fields = _REWIND.read_strictly(actions.value(key), actions.at(key), actions.notes)
    return RewindRequest(to_seq=_needed_seq(fields, "to_seq", least=0))


def _fold(actions: Fields, key: str) -> MarkerRequest:
    fields = _FOLD.read_strictly(actions.value(key), actions.at(key), actions.notes)
    return FoldRequest(
        from_seq=_needed_seq(fields, "from_seq"),
        to_seq=_needed_seq(fields, "to_seq"),
        sections=tuple(
            _section(item, f"{fields.at('sections')}/{index}", fields.notes)
            for index, item in enumerate(fields.array("sections"))
        ),
        seqs=_ranges(fields, "seqs") if "seqs" in fields else None,
        level=fields.seq("level") or 1,
        is_staged=fields.flag("is_staged"),
        details=fields.value("details"),
    )


def _section(value: Json, pointer: str, notes: Notes) -> SectionRequest:
    fields = _SECTION.read_strictly(value, pointer, notes)
    content = parse_content(fields.value("content"), fields.at("content"), notes)
    return SectionRequest(
        isolation_scope=fields.identifier("isolation_scope", max_bytes=MAX_PATH_BYTES),
        branch=fields.identifier("branch", max_bytes=MAX_PATH_BYTES) or "",
        parts=content.parts,
        tool_names=_tool_names(fields) if "tool_names" in fields else None,
        node_path=fields.identifier("node_path", max_bytes=MAX_PATH_BYTES) or "",
        ledger=fields.value("ledger"),
    )


def _tool_names(fields: Fields) -> tuple[str, ...]:
    names = fields.array("tool_names")
    if not all(isinstance(name, str) for name in names):
        raise fields.wrong("tool_names", "must be a list of strings")
    return tuple(str(name) for name in names)


def _ranges(fields: Fields, key: str) -> Ranges:
    pairs: list[tuple[int, int]] = []
    for index, item in enumerate(fields.array(key)):
        at = f"{fields.at(key)}/{index}"
        if not isinstance(item, list) or len(item) != len(("from", "to")):
            raise InvalidEventError("must be a pair of positions", pointer=at)
        pairs.append((read_seq(item[0], f"{at}/0"), read_seq(item[1], f"{at}/1")))
    return union(pairs)


def _pin(actions: Fields, key: str) -> MarkerRequest:
    return PinRequest(_seqs(actions, key))


def _unpin(actions: Fields, key: str) -> MarkerRequest:
    return UnpinRequest(_seqs(actions, key))


def _seqs(actions: Fields, key: str) -> tuple[int, ...]:
    return _positions(_SEQS.read_strictly(actions.value(key), actions.at(key), actions.notes))


def _positions(fields: Fields) -> tuple[int, ...]:
    items = enumerate(fields.array("seqs"))
    return tuple(read_seq(item, f"{fields.at('seqs')}/{index}") for index, item in items)


def _elision(actions: Fields, key: str) -> MarkerRequest:
    fields = _ELISION.read_strictly(actions.value(key), actions.at(key), actions.notes)
    return ElisionRequest(_positions(fields), fields.seq("keep_chars", least=0) or 0)


def _undo(actions: Fields, key: str) -> MarkerRequest:
    return UndoRequest(_target(actions, key))


def _activation(actions: Fields, key: str) -> MarkerRequest:
    return ActivationRequest(_target(actions, key))


def _target(actions: Fields, key: str) -> int:
    fields = _TARGET.read_strictly(actions.value(key), actions.at(key), actions.notes)
    return _needed_seq(fields, "target_seq")


def _needed_seq(fields: Fields, key: str, *, least: int = 1) -> int:
    seq = fields.seq(key, least=least)
    if seq is None:
        raise fields.wrong(key, "is needed")
    return seq


def _policy(actions: Fields, key: str) -> MarkerRequest:
    actions.mapping(key)
    return PolicyRequest()


_READERS: Final[Mapping[str, Callable[[Fields, str], MarkerRequest]]] = {
    "rewind_before_invocation_id": _rewind_before,
    "compaction": _compaction,
    "rewind": _rewind,
    "fold": _fold,
    "pin": _pin,
    "unpin": _unpin,
    "elision": _elision,
    "undo": _undo,
    "activation": _activation,
    "policy": _policy,
}

#: What anyone may send, and what only services write.
ADK_MARKERS: Final = ("rewind_before_invocation_id", "compaction")
SERVICE_MARKERS: Final = tuple(key for key in _READERS if key not in ADK_MARKERS)


def marker_body(
    request: MarkerRequest,
    *,
    id: str,  # noqa: A002
    author: str,
    invocation_id: str,
) -> dict[str, Json]:
    """Return the native event that asks for this; ``parse_event`` reads the same request from it.

    A policy's own text is not part of the request: the caller puts it under ``actions.policy``.
    """
    key, value = _action(request)
    return {
        "id": id,
        "author": author,
        "invocation_id": invocation_id,
        "actions": {key: value},
    }


def _action(request: MarkerRequest) -> tuple[str, Json]:
    match request:
        case RewindRequest(before_invocation_id=str() as invocation_id):
            return "rewind_before_invocation_id", invocation_id
        case RewindRequest():
            return "rewind", {"to_seq": request.to_seq}
        case TimedCompactionRequest():
            return "compaction", _compaction_body(request)
        case FoldRequest():
            return "fold", _fold_body(request)
        case PinRequest():
            return "pin", {"seqs": list(request.seqs)}
        case UnpinRequest():
            return "unpin", {"seqs": list(request.seqs)}
        case ElisionRequest():
            return "elision", {"seqs": list(request.seqs), "keep_chars": request.keep_chars}
        case UndoRequest():
            return "undo", {"target_seq": request.target_seq}
        case ActivationRequest():
            return "activation", {"target_seq": request.target_seq}
        case PolicyRequest():
            return "policy", {}


def _compaction_body(request: TimedCompactionRequest) -> Json:
    body: dict[str, Json] = {
        "start_timestamp": request.start_timestamp,
        "end_timestamp": request.end_timestamp,
        "compacted_content": {
            "role": request.role,
            "parts": [part_to_native(part) for part in request.parts],
        },
    }
    if request.excluded:
        body["excluded_events"] = [
            {"invocation_id": invocation_id, "timestamp": timestamp}
            for invocation_id, timestamp in request.excluded
        ]
    return body


def _fold_body(request: FoldRequest) -> Json:
    body: dict[str, Json] = {
        "from_seq": request.from_seq,
        "to_seq": request.to_seq,
        "sections": [_section_body(section) for section in request.sections],
        "level": request.level,
        "is_staged": request.is_staged,
    }
    if request.seqs is not None:
        body["seqs"] = [[start, end] for start, end in request.seqs]
    if request.details is not None:
        body["details"] = request.details
    return body


def _section_body(section: SectionRequest) -> Json:
    body: dict[str, Json] = {
        "isolation_scope": section.isolation_scope,
        "branch": section.branch,
        "content": {"parts": [part_to_native(part) for part in section.parts]},
    }
    if section.tool_names is not None:
        body["tool_names"] = list(section.tool_names)
    if section.node_path:
        body["node_path"] = section.node_path
    if section.ledger is not None:
        body["ledger"] = section.ledger
    return body
