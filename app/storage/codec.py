"""Rows to domain values and back.

An event's row keeps three JSON texts besides its columns, as arrays by position:

    derived    what follows from the event alone: role, parts, their tokens, ids
    resolved   what was decided against earlier events: place, owners
    marker     the seqs that a marker means

Trailing fields that have their usual value are left out, so a field is only ever added at the end.
``derived`` carries the version of what makes it: an older row is derived again from its raw text
when it is read. ``resolved`` and ``marker`` are never decided again; ``schema_version`` is of their
shape.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson

from app.core.canonical import Json, canonical_json
from app.core.compile.explicit_cache import CacheRecord
from app.core.contents import (
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    PartBase,
    Text,
)
from app.core.copying import replace
from app.core.events import (
    KIND_BY_MARKER,
    Activation,
    CacheMetadata,
    Elision,
    Event,
    Fold,
    Marker,
    Owner,
    Pin,
    Place,
    PolicyChange,
    Rewind,
    Section,
    Undo,
    Unpin,
)
from app.core.index import Elided, Index, ShownSection
from app.core.lanes import Lane
from app.core.ranges import FOREVER, Ranges, size
from app.core.resolve import ReplyFacts
from app.storage.connection import Row

#: Raise it with every change in how an event is derived from its raw text.
DERIVED_VERSION: Final = 4
#: Of ``resolved`` and ``marker``.
SCHEMA_VERSION: Final = 1

#: Derives an event from its raw text, source format and number within its item, tokens included.
Derive: TypeAlias = Callable[[str, str, int], Event]
#: A JSON array of the codec's own; only ever read back by it.
Packed: TypeAlias = list[Any]

#: ``FunctionCall.args`` of a call without arguments.
NO_ARGS: Final = "{}"


def tokens_of(event: Event) -> int:
    """Return our token count of what the event says; for a fold, of its sections."""
    if isinstance(event.marker, Fold):
        return sum(section.tokens for section in event.marker.sections)
    return sum(event.part_tokens)


# Parts

_TEXT, _CALL, _RESPONSE, _INLINE, _FILE, _CODE, _RESULT, _OPAQUE = range(8)


def pack_part(part: Part) -> Packed:
    """Return a part as ``[kind, base, field, ...]``; ``base`` is 0 when it says nothing."""
    return [*_packed_kind(part, _packed_base(part))]


def _packed_kind(part: Part, base: Packed | int) -> Packed:
    match part:
        case Text(text=text):
            return [_TEXT, base, text]
        case FunctionCall():
            fields = [part.id, part.name, part.args, part.args_text, part.long_running]
            return [_CALL, base, *_trimmed(fields, [None, False])]
        case FunctionResponse():
            media = [pack_part(item) for item in part.media]
            fields = [part.id, part.name, part.response, part.response_text, part.is_error]
            return [_RESPONSE, base, *_trimmed([*fields, media], [None, False, []])]
        case InlineData():
            return [_INLINE, base, part.mime_type, part.data, part.display_name]
        case FileData():
            return [_FILE, base, part.file_uri, part.mime_type, part.display_name]
        case ExecutableCode():
            return [_CODE, base, part.code, part.language]
        case CodeExecutionResult():
            return [_RESULT, base, part.outcome, part.output]
        case Opaque():
            return [_OPAQUE, base, part.provider, part.type, part.raw, part.text]


def _packed_base(part: PartBase) -> Packed | int:
    if part.signature is None and part.extra is None and part.signed_by is None:
        return 1 if part.thought else 0
    return [part.thought, part.signature, part.signed_by, part.extra]


def _trimmed(fields: Packed, usual: Packed) -> Packed:
    """Return the fields without those at the end that have their usual value."""
    end = len(fields)
    for value in reversed(usual):
        if fields[end - 1] != value:
            break
        end -= 1
    return fields[:end]


_BASE_FIELDS: Final = ("thought", "signature", "signed_by", "extra")
#: By kind: the type, whose own fields stand in the order in which they are packed.
_PARTS: Final[tuple[Callable[..., Part], ...]] = (
    Text,
    FunctionCall,
    FunctionResponse,
    InlineData,
    FileData,
    ExecutableCode,
    CodeExecutionResult,
    Opaque,
)
#: Where a result's media stand.
_MEDIA_AT: Final = 5


def unpack_part(packed: Packed) -> Part:
    """Return the part of :func:`pack_part`. What a row leaves out has its default."""
    kind, base = packed[0], packed[1]
    own = packed[2:]
    if kind == _RESPONSE and len(own) > _MEDIA_AT:
        own[_MEDIA_AT] = tuple([unpack_part(item) for item in own[_MEDIA_AT]])
    if not base:
        return _PARTS[kind](*own)
    if base == 1:
        return _PARTS[kind](*own, thought=True)
    return _PARTS[kind](*own, **dict(zip(_BASE_FIELDS, base, strict=True)))


# What follows from the event alone

_IS_TRANSFER, _IS_LIVE, _SKIPS_SUMMARIZATION = 1, 2, 4


def pack_derived(event: Event) -> str:
    """Return the ``derived`` text of an event."""
    flags = (
        _IS_TRANSFER * event.is_transfer
        + _IS_LIVE * event.is_live_session
        + _SKIPS_SUMMARIZATION * event.skips_summarization
    )
    fields = [
        event.role,
        [pack_part(part) for part in event.parts],
        list(event.part_tokens),
        event.node_path,
        flags,
        event.compiled_seq,
        event.compiled_fingerprint,
        event.response_id,
        sorted(event.long_running_ids),
        event.input_transcription,
        event.output_transcription,
        event.error_code,
        event.prompt_tokens,
        _packed_cache(event.cache_metadata),
    ]
    return canonical_json(_trimmed(fields, _USUAL_RARER))


def _packed_cache(cache: CacheMetadata | None) -> Packed | None:
    if cache is None:
        return None
    fields = [cache.fingerprint, cache.contents_count, cache.cache_name, cache.expire_time]
    return [*fields, cache.created_at, cache.invocations_used]


def pack_cache_record(event: Event) -> str | None:
    """Return what a reply says of an explicit cache, and of how many tokens its request had."""
    packed = _packed_cache(event.cache_metadata)
    return None if packed is None else canonical_json([*packed, event.prompt_tokens])


def unpack_cache_record(row: Row) -> CacheRecord:
    """Return the record of a row that has ``seq, invocation_id, cache_record``."""
    *fields, prompt_tokens = orjson.loads(row["cache_record"])
    return CacheRecord(
        seq=row["seq"],
        invocation_id=row["invocation_id"],
        metadata=_cache(fields),
        prompt_tokens=prompt_tokens,
    )


_NO_IDS: Final[frozenset[str]] = frozenset()
#: Fields of ``derived`` that every event has.
_USUAL_FIELDS: Final = 3
#: What the trailing fields of ``derived`` have when they are left out.
_USUAL_RARER: Final[Packed] = ["", 0, None, None, None, [], None, None, None, None, None]


def unpack_event(row: Row, lane: Lane, derive: Derive | None = None) -> Event:
    """Return the event of a row.

    Args:
        row: has ``seq, id, author, invocation_id, event_at, derived, derived_version, resolved,
            requested_ids, marker``, and ``raw, source_format, item_part`` where the version is old.
        lane: the lane of the row's number.
        derive: for rows of an older version.
    """
    if derive is not None and row["derived_version"] < DERIVED_VERSION:
        return _derived_again(row, lane, derive)
    derived = orjson.loads(row["derived"])
    role, parts, part_tokens = derived[:_USUAL_FIELDS]
    resolved, marker, requested_ids = row["resolved"], row["marker"], row["requested_ids"]
    place, owners = (None, ()) if resolved is None else unpack_resolved(resolved, lane)
    event = Event(
        seq=row["seq"],
        id=row["id"],
        author=row["author"],
        invocation_id=row["invocation_id"],
        timestamp=row["event_at"],
        lane=lane,
        role=role,
        # Nearly every event has one.
        parts=(
            (unpack_part(parts[0]),)
            if len(parts) == 1
            else tuple([unpack_part(part) for part in parts])
        ),
        part_tokens=tuple(part_tokens),
        requested_ids=_NO_IDS if requested_ids is None else unpack_ids(requested_ids),
        place=place,
        owners=owners,
        marker=None if marker is None else unpack_marker(marker),
    )
    # Not among the arguments above, which a mapping makes twice as slow to pass.
    return (
        replace(event, **_rarer(derived[_USUAL_FIELDS:])) if len(derived) > _USUAL_FIELDS else event
    )


def _rarer(packed: Packed) -> dict[str, Any]:
    """Return the fields that few events have, by name."""
    packed += _USUAL_RARER[len(packed) :]
    node_path, flags, compiled_seq, compiled_fingerprint, response_id = packed[:5]
    long_running_ids, heard, said, error_code, prompt_tokens, cache = packed[5:11]
    return {
        "node_path": node_path,
        "is_transfer": bool(flags & _IS_TRANSFER),
        "is_live_session": bool(flags & _IS_LIVE),
        "skips_summarization": bool(flags & _SKIPS_SUMMARIZATION),
        "compiled_seq": compiled_seq,
        "compiled_fingerprint": compiled_fingerprint,
        "response_id": response_id,
        "long_running_ids": frozenset(long_running_ids),
        "input_transcription": heard,
        "output_transcription": said,
        "error_code": error_code,
        "prompt_tokens": prompt_tokens,
        "cache_metadata": None if cache is None else _cache(cache),
    }


def _cache(packed: Packed) -> CacheMetadata:
    fingerprint, contents_count, cache_name, expire_time, created_at, invocations_used = packed
    return CacheMetadata(
        fingerprint=fingerprint,
        contents_count=contents_count,
        cache_name=cache_name,
        expire_time=expire_time,
        created_at=created_at,
        invocations_used=invocations_used,
    )


def _derived_again(row: Row, lane: Lane, derive: Derive) -> Event:
    """Return the event as today's code derives it, with what was decided at its append."""
    resolved, marker, requested_ids = row["resolved"], row["marker"], row["requested_ids"]
    place, owners = (None, ()) if resolved is None else unpack_resolved(resolved, lane)
    return replace(
        derive(row["raw"], row["source_format"], row["item_part"]),
        seq=row["seq"],
        id=row["id"],
        author=row["author"],
        invocation_id=row["invocation_id"],
        timestamp=row["event_at"],
        lane=lane,
        requested_ids=unpack_ids(requested_ids),
        place=place,
        owners=owners,
        request=None,
        marker=None if marker is None else unpack_marker(marker),
        notes=(),
    )


# What was decided against earlier events


def pack_resolved(event: Event) -> str | None:
    """Return the ``resolved`` text of an event, None when nothing was to be decided."""
    if event.place is None and not event.owners:
        return None
    place = None if event.place is None else _packed_place(event.place)
    return canonical_json([place, [_packed_owner(owner, event.lane) for owner in event.owners]])


def _packed_place(place: Place) -> Packed:
    return [place.response_seq, place.after_seq, place.after_any_seq]


def _packed_owner(owner: Owner | None, lane: Lane) -> Json:
    if owner is None:
        return None
    # A call nearly always stands in the lane of its response.
    packed_lane = None if owner.lane == lane else pack_lane(owner.lane)
    return [owner.seq, owner.part_index, owner.author, owner.name, packed_lane]


def unpack_resolved(text: str, lane: Lane) -> tuple[Place | None, tuple[Owner | None, ...]]:
    """Return place and owners; ``lane`` is the event's."""
    place, owners = orjson.loads(text)
    return (
        None if place is None else Place(*place),
        tuple([None if owner is None else _owner(owner, lane) for owner in owners])
        if owners
        else (),
    )


def _owner(packed: Packed, lane: Lane) -> Owner:
    packed[4] = lane if packed[4] is None else unpack_lane(packed[4])
    return Owner(*packed)


def pack_ids(ids: frozenset[str]) -> str | None:
    """Return a set of ids for JSON, None for none."""
    return canonical_json([*sorted(ids)]) if ids else None


def unpack_ids(text: str | None) -> frozenset[str]:
    """Return the ids of :func:`pack_ids`."""
    return _NO_IDS if text is None else frozenset(orjson.loads(text))


def pack_lane(lane: Lane) -> Packed:
    """Return a lane for JSON."""
    return [lane.isolation_scope, lane.branch, list(lane.tool_names), lane.node_path]


def unpack_lane(packed: Packed) -> Lane:
    """Return the lane of :func:`pack_lane`."""
    scope, branch, tool_names, node_path = packed
    return Lane(scope, branch, tuple(tool_names), node_path)


def pack_replies(replies: Mapping[str, ReplyFacts]) -> str:
    """Return the newest replies of a lane, by author."""
    return canonical_json(
        {
            author: [
                reply.seq,
                _packed_place(reply.place),
                reply.invocation_id,
                reply.response_id,
                reply.compiled_seq,
            ]
            for author, reply in replies.items()
        }
    )


def unpack_replies(text: str) -> dict[str, ReplyFacts]:
    """Return the replies of :func:`pack_replies`."""
    return {
        author: ReplyFacts(seq, Place(*place), invocation_id, response_id, compiled_seq)
        for author, (seq, place, invocation_id, response_id, compiled_seq) in orjson.loads(
            text
        ).items()
    }


def unpack_json(text: str | None) -> Any:  # noqa: ANN401  JSON
    """Return the value of a ``json`` column. Not by orjson, which cuts large integers."""
    return None if text is None else json.loads(text)


# Markers


def pack_marker(marker: Marker) -> str:
    """Return the ``marker`` text."""
    return canonical_json([KIND_BY_MARKER[type(marker)], *_packed_marker(marker)])


def _packed_marker(marker: Marker) -> Packed:
    match marker:
        case Fold():
            return [
                marker.from_seq,
                marker.to_seq,
                [_packed_section(section) for section in marker.sections],
                marker.level,
                marker.is_staged,
                marker.start_timestamp,
                marker.end_timestamp,
            ]
        case Rewind(from_seq=from_seq):
            return [from_seq]
        case Pin(seqs=seqs) | Unpin(seqs=seqs):
            return [_packed_ranges(seqs)]
        case Elision(seqs=seqs, keep_chars=keep_chars):
            return [_packed_ranges(seqs), keep_chars]
        case Undo(target_seq=target_seq) | Activation(target_seq=target_seq):
            return [target_seq]
        case PolicyChange():
            return []


def _packed_section(section: Section) -> Packed:
    parts = [pack_part(part) for part in section.parts]
    covers = _packed_ranges(section.covers)
    return [pack_lane(section.lane), covers, parts, section.tokens, section.role]


def unpack_marker(text: str) -> Marker:
    """Return the marker of :func:`pack_marker`."""
    kind, *fields = orjson.loads(text)
    return _UNPACK_MARKER[kind](*fields)


def _fold(*packed: Any) -> Fold:  # noqa: ANN401  JSON
    from_seq, to_seq, sections, level, is_staged, start_timestamp, end_timestamp = packed
    return Fold(
        from_seq=from_seq,
        to_seq=to_seq,
        sections=tuple(
            Section(
                unpack_lane(lane),
                _ranges(covers),
                tuple([unpack_part(part) for part in parts]),
                tokens,
                role,
            )
            for lane, covers, parts, tokens, role in sections
        ),
        level=level,
        is_staged=is_staged,
        # What is not finite is a string in canonical JSON.
        start_timestamp=None if start_timestamp is None else float(start_timestamp),
        end_timestamp=None if end_timestamp is None else float(end_timestamp),
    )


_UNPACK_MARKER: Final[Mapping[str, Callable[..., Marker]]] = {
    "compaction": _fold,
    "rewind": Rewind,
    "pin": lambda seqs: Pin(_ranges(seqs)),
    "unpin": lambda seqs: Unpin(_ranges(seqs)),
    "elision": lambda seqs, keep_chars: Elision(_ranges(seqs), keep_chars),
    "deactivation": Undo,
    "activation": Activation,
    "policy": PolicyChange,
}


# The index


def pack_index(index: Index) -> str:
    """Return what the index holds beside its live and rewound ranges, which are columns."""
    sections = [
        [shown.fold_seq, shown.section_index, pack_lane(shown.lane), _packed_ranges(shown.belongs)]
        for shown in index.sections
    ]
    elided = [
        [elided.marker_seq, _packed_ranges(elided.seqs), elided.keep_chars]
        for elided in index.elided
    ]
    counts = [shown.count for shown in index.sections]
    fields = [_packed_ranges(index.pinned), sections, elided, list(index.staged), counts]
    return canonical_json(_trimmed(fields, [[], [], []]))


def unpack_index(text: str | None, live: str, rewound: str) -> Index:
    """Return an index.

    Args:
        text: of :func:`pack_index`; None for a log without markers.
        live: the column's text.
        rewound: the column's text.
    """
    fields = [[], []] if text is None else orjson.loads(text)
    pinned, sections, elided, staged, counts = [*fields, [], [], []][:5]
    if len(counts) < len(sections):
        # Stored before sections said how many events they cover: what belongs to one is the least.
        counts = [size(_ranges(belongs)) for *_, belongs in sections]
    return Index(
        live=unpack_multirange(live),
        rewound=unpack_multirange(rewound),
        pinned=_ranges(pinned),
        sections=tuple(
            ShownSection(fold_seq, section_index, unpack_lane(lane), _ranges(belongs), count)
            for (fold_seq, section_index, lane, belongs), count in zip(
                sections, counts, strict=True
            )
        ),
        elided=tuple(
            Elided(marker_seq, _ranges(seqs), keep_chars) for marker_seq, seqs, keep_chars in elided
        ),
        staged=tuple(staged),
    )


def tells_counts(text: str | None) -> bool:
    """Tell whether a stored index says how many events its sections cover, as all do since one did;
    what belongs to a section had a gap then for every marker in it."""
    return text is None or len(orjson.loads(text)) > _COUNTS


#: Place of the counts in :func:`pack_index`.
_COUNTS: Final = 4


def pack_multirange(ranges: Ranges) -> str:
    """Return the text of an ``int8multirange``; what has no end yet has none there either."""
    pairs = (f"[{start},)" if end == FOREVER else f"[{start},{end + 1})" for start, end in ranges)
    return "{" + ",".join(pairs) + "}"


def unpack_multirange(text: str) -> Ranges:
    """Return the ranges of an ``int8multirange``'s text, which is ``{[1,5),[9,)}``."""
    if text == "{}":
        return ()
    pairs = (pair.split(",") for pair in text[2:-2].split("),["))
    return tuple((int(start), int(end) - 1 if end else FOREVER) for start, end in pairs)


def _packed_ranges(ranges: Ranges) -> Packed:
    return [list(pair) for pair in ranges]


def _ranges(packed: Sequence[Sequence[int]]) -> Ranges:
    return tuple([(start, end) for start, end in packed])
