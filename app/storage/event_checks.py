"""Re-checking one row of the log: each column against the body, and against the columns beside it.

    id, author, invocation_id, event_at, item_part       as the body says, where it says so
    kind, marker, section_lanes                          what the body asks for
    derived, tokens, requested_ids, cache_record,        what follows from the body
    state_delta, body_hash
    lane                                                 where the body stands
    resolved, owner_seqs                                 a call that is there; a place that follows
                                                         from the replies before
    calls                                                what the body calls, and who does

`created_at`, and `id` and `event_at` where the body has none, are the server's own: nothing can be
compared with them. `derived_version` says which release derived the row; what another one derived
is not compared, and is derived again when it is read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from app.core.branch import tagged_segments
from app.core.canonical import Json, canonical_json
from app.core.contents import FunctionCall, Part
from app.core.events import (
    Activation,
    ActivationRequest,
    Elision,
    ElisionRequest,
    Event,
    Fold,
    FoldRequest,
    Marker,
    MarkerRequest,
    Owner,
    Pin,
    PinRequest,
    Place,
    PolicyChange,
    PolicyRequest,
    Rewind,
    RewindRequest,
    Section,
    SectionRequest,
    TimedCompactionRequest,
    Undo,
    UndoRequest,
    Unpin,
    UnpinRequest,
)
from app.core.lanes import Lane
from app.core.ranges import contains, of_seqs
from app.core.resolve import ReplyFacts
from app.ports import BodyAgain, Finding
from app.storage.codec import (
    DERIVED_VERSION,
    NO_ARGS,
    SCHEMA_VERSION,
    pack_cache_record,
    pack_derived,
    pack_part,
    tokens_of,
)
from app.storage.connection import Row

NATIVE: Final = "native"

#: Reads a stored event's body again from its text, source format, number within its item, author.
ReadAgain: TypeAlias = Callable[[str, str, int, str], BodyAgain]


@dataclass(slots=True)
class LanesSoFar:
    """What the events up to one make of the lanes; as large as the lanes themselves."""

    #: As they are stored, by number.
    stored: Mapping[int, Lane]
    #: Seq of the first call of each id that a branch names.
    first_call_seqs: Mapping[str, int]
    first_seqs: dict[int, int] = field(default_factory=dict)
    replies: dict[int, dict[str, ReplyFacts]] = field(default_factory=dict)

    def add(self, event: Event, numbers: Sequence[int]) -> None:
        """Take an event in, which stands in the first of these lanes."""
        for number in numbers:
            self.first_seqs.setdefault(number, event.seq)
        if event.place is not None:
            self.replies.setdefault(numbers[0], {})[event.author] = ReplyFacts(
                event.seq, event.place, event.invocation_id, event.response_id, event.compiled_seq
            )

    def newest_replies(self, lane: Lane) -> Mapping[str, ReplyFacts]:
        """Return the newest reply by author in the lane's scope and branch."""
        newest: dict[str, ReplyFacts] = {}
        for number, replies in self.replies.items():
            other = self.stored[number]
            if (other.isolation_scope, other.branch) == (lane.isolation_scope, lane.branch):
                for author, reply in replies.items():
                    if author not in newest or newest[author].seq < reply.seq:
                        newest[author] = reply
        return newest


def check_event(
    row: Row,
    event: Event,
    again: BodyAgain,
    *,
    lanes: LanesSoFar,
    calls: Sequence[Row],
    owned: Mapping[tuple[int, int], Row],
) -> Iterator[Finding]:
    """Yield what is wrong with a row.

    Args:
        row: with its lane's columns.
        event: as it is read.
        again: its body, read again.
        lanes: as the events before it leave them.
        calls: rows of its calls.
        owned: rows of the calls that are said to be answered, by seq and part.
    """
    checks: Iterable[Iterable[str]] = (
        _body(row, again),
        _derived(row, event, again),
        _marker(row, event, again.event.request, lanes),
        _lane(event, again.event.lane, lanes),
        _calls(row, event, calls),
        _owners(row, event, lanes, owned),
        _place(event, lanes),
    )
    for found in checks:
        for wrong in found:
            kind, _, detail = wrong.partition(": ")
            yield Finding(kind=kind, seq=event.seq, detail=detail)


# Each yields the kind of a finding and what it says.


def _body(row: Row, again: BodyAgain) -> Iterator[str]:
    said = again.event
    if again.body_hash != row["body_hash"]:
        yield "body_hash: the body is not what was appended"
    if row["item_part"] != 0 and row["source_format"] == NATIVE:
        yield f"item_part: an event of its own is told as part {row['item_part']} of an item"
    if row["schema_version"] != SCHEMA_VERSION:
        yield f"schema_version: no release writes rows of version {row['schema_version']}"
    pairs = (
        # Without one the server gave it one.
        ("id", row["id"], said.id or row["id"]),
        ("author", row["author"], said.author),
        ("invocation_id", row["invocation_id"], said.invocation_id),
        ("event_at", row["event_at"], said.timestamp if again.has_timestamp else row["event_at"]),
        ("requested_ids", row["requested_ids"], _ids(said.requested_ids)),
        (
            "state_delta",
            row["state_delta"],
            canonical_json(dict(again.state_delta)) if again.state_delta else None,
        ),
    )
    for name, told, made in pairs:
        if told != made:
            yield f"{name}: {name} is not what the body says"


def _ids(ids: frozenset[str]) -> str | None:
    return canonical_json([*sorted(ids)]) if ids else None


def _derived(row: Row, event: Event, again: BodyAgain) -> Iterator[str]:
    if row["derived_version"] != DERIVED_VERSION:
        return
    if row["derived"] != pack_derived(again.event):
        yield "derived: what is derived is not of this body"
    if row["tokens"] != tokens_of(event):
        yield f"tokens: {row['tokens']} tokens are told of {tokens_of(event)}"
    if row["cache_record"] != pack_cache_record(again.event):
        yield "cache_record: what is told of a cache is not what the body says"


# Markers


def _marker(
    row: Row, event: Event, request: MarkerRequest | None, lanes: LanesSoFar
) -> Iterator[str]:
    if row["kind"] != event.kind:
        yield f"kind: {row['kind']} is told of a {event.kind}"
    is_same_release = row["derived_version"] == DERIVED_VERSION
    if is_same_release and not _is_asked_for(event.marker, request, event.seq):
        yield "marker: the marker is not what the body asks for"
    sections = event.marker.sections if isinstance(event.marker, Fold) else ()
    told = [lanes.stored.get(number) for number in row["section_lanes"] or ()]
    if told != [section.lane for section in sections]:
        yield "section_lanes: the lanes of the sections are told in two ways"


def _is_asked_for(marker: Marker | None, request: MarkerRequest | None, seq: int) -> bool:
    """Tell whether a marker is what a request asks for, as far as that hangs on no other event."""
    match request:
        case None:
            return marker is None
        case PolicyRequest():
            return isinstance(marker, PolicyChange)
        case RewindRequest(to_seq=to_seq):
            if not isinstance(marker, Rewind):
                return False
            return 1 <= marker.from_seq < seq and to_seq in (None, marker.from_seq - 1)
        case PinRequest(seqs=seqs) | UnpinRequest(seqs=seqs):
            kind = Pin if isinstance(request, PinRequest) else Unpin
            # With their whole call groups.
            return isinstance(marker, kind) and all(contains(marker.seqs, named) for named in seqs)
        case ElisionRequest(seqs=seqs, keep_chars=keep_chars):
            return marker == Elision(of_seqs(seqs), keep_chars)
        case UndoRequest(target_seq=target_seq):
            return marker == Undo(target_seq)
        case ActivationRequest(target_seq=target_seq):
            return marker == Activation(target_seq)
        case TimedCompactionRequest():
            return isinstance(marker, Fold) and _is_timed(marker, request)
        case FoldRequest():
            return isinstance(marker, Fold) and _is_fold(marker, request)


def _is_timed(fold: Fold, request: TimedCompactionRequest) -> bool:
    times = request.start_timestamp, request.end_timestamp
    return (fold.start_timestamp, fold.end_timestamp) == times and all(
        section.role == request.role and _packed(section.parts) == _packed(request.parts)
        for section in fold.sections
    )


def _is_fold(fold: Fold, request: FoldRequest) -> bool:
    told = (fold.from_seq, fold.to_seq, fold.level, fold.is_staged, fold.start_timestamp)
    asked = (request.from_seq, request.to_seq, request.level, request.is_staged, None)
    return (
        told == asked
        and len(fold.sections) == len(request.sections)
        and all(map(_is_section, fold.sections, request.sections))
    )


def _is_section(section: Section, request: SectionRequest) -> bool:
    lane = section.lane
    told = (lane.isolation_scope, lane.branch, lane.node_path)
    return told == (request.isolation_scope, request.branch, request.node_path) and (
        _packed(section.parts) == _packed(request.parts)
    )


def _packed(parts: Sequence[Part]) -> str:
    # As text, in which what cannot be stored is replaced.
    packed: list[Json] = [pack_part(part) for part in parts]
    return canonical_json(packed)


# What was decided against earlier events


def _lane(event: Event, said: Lane, lanes: LanesSoFar) -> Iterator[str]:
    lane, first = event.lane, lanes.first_call_seqs
    if (lane.isolation_scope, lane.branch, lane.node_path) != (
        said.isolation_scope,
        said.branch,
        said.node_path,
    ):
        yield "lane: the event stands in another lane than its body says"
    called = tuple(
        name for name, tag in tagged_segments(lane.branch) if first.get(tag, event.seq) < event.seq
    )
    if lane.tool_names != called:
        yield "lane: the tools of its lane are not those that were called before"


def _calls(row: Row, event: Event, calls: Sequence[Row]) -> Iterator[str]:
    expected = {
        (
            number,
            part.id or "",
            part.name,
            row["lane"],
            event.author,
            event.place.response_seq if event.place else event.seq,
            part.args != NO_ARGS,
        )
        for number, part in enumerate(() if event.marker is not None else event.parts)
        if isinstance(part, FunctionCall)
    }
    columns = ("part_index", "call_id", "name", "lane", "author", "response_seq", "has_args")
    if {tuple(call[column] for column in columns) for call in calls} != expected:
        yield "calls: the calls are not those of the body"


def _owners(
    row: Row, event: Event, lanes: LanesSoFar, owned: Mapping[tuple[int, int], Row]
) -> Iterator[str]:
    owners = event.owners
    if (row["owner_seqs"] or []) != [None if owner is None else owner.seq for owner in owners]:
        yield "owners: the owners are told in two ways"
    responses = event.responses if event.marker is None else ()
    if len(owners) != len(responses):
        yield f"owners: {len(owners)} owners are told of {len(responses)} responses"
    for owner, response in zip(owners, responses, strict=False):
        if owner is None:
            continue
        # A call and its result may be of one event.
        if not 0 < owner.seq <= event.seq:
            yield "owners: an owner does not stand before its response"
            continue
        call = owned.get((owner.seq, owner.part_index))
        if call is None or not _is_owner(call, owner, response.id, lanes.stored):
            yield "owners: an owner is no call that the response can answer"


def _is_owner(call: Row, owner: Owner, response_id: str | None, stored: Mapping[int, Lane]) -> bool:
    told = (owner.author, owner.name, owner.lane)
    return told == (call["author"], call["name"], stored.get(call["lane"])) and (
        not response_id or call["call_id"] == response_id
    )


def _place(event: Event, lanes: LanesSoFar) -> Iterator[str]:
    """Which response an event continues is not decided again; what follows from that is."""
    place = event.place
    if (place is not None) != event.is_model:
        yield "place: the place of a reply is told of what is none, or not told"
    if place is None:
        return
    replies = lanes.newest_replies(event.lane)
    previous = replies.get(event.author)
    last_any_seq = max((reply.place.after_any_seq for reply in replies.values()), default=0)
    if place.response_seq != event.seq:
        response_seq = previous.place.response_seq if previous else None
        after_seq = previous.place.after_seq if previous else None
        is_sound = (response_seq, after_seq, last_any_seq) == (
            place.response_seq,
            place.after_seq,
            place.after_any_seq,
        )
    else:
        read_after = event.seq - 1 if event.compiled_seq is None else event.compiled_seq
        is_sound = place == Place(
            response_seq=event.seq,
            after_seq=max(read_after, previous.place.after_seq if previous else 0),
            after_any_seq=max(read_after, last_any_seq),
        )
    if not is_sound:
        yield "place: the place of a reply does not follow from the replies before it"
