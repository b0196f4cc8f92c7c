"""What an event must know of the events before it, decided once, when it is appended.

Its seq, its lane, the call that each of its responses answers, where a reply is read, and for a
marker the seqs that it means. What is decided here is stored with the event and never decided
again, so that a later fold, rewind or read of only the live rows cannot change it.

    facts = what the log says that this batch needs (see :func:`needs_of`)
    resolver = Resolver(facts)
    rows = [resolver.add(event) for event in batch]

Appending to Postgres and compiling a list of events that is stored nowhere use the same resolver:
the first loads the few facts that :func:`needs_of` names, the second starts from none and keeps
all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from app.core.branch import line_up, tagged_segments
from app.core.contents import FunctionCall, FunctionResponse
from app.core.copying import replace
from app.core.errors import (
    CompactionRangeError,
    InvalidEventError,
    InvalidInputError,
    RewindTargetError,
)
from app.core.events import (
    KIND_BY_MARKER,
    Activation,
    ActivationRequest,
    Elision,
    ElisionRequest,
    Event,
    Fold,
    FoldRequest,
    Marker,
    Owner,
    Pin,
    PinRequest,
    Place,
    PolicyChange,
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
from app.core.index import UNTOUCHED, Index, resolve
from app.core.lanes import Lane
from app.core.ranges import Ranges, Silent, contains, of_seqs

#: Synthetic calls by which the framework asks the client; they stay open until they are answered
#: (``spec/ADK.md`` A.4).
CLIENT_CALLS: Final = frozenset(
    {"adk_request_credential", "adk_request_confirmation", "adk_request_input"}
)


class CallsUnknownError(Exception):
    """What an event means depends on calls that the facts may lack."""


@dataclass(slots=True)
class CallFacts:
    """One function call of the log."""

    seq: int
    part_index: int
    id: str | None
    name: str
    lane: Lane
    author: str
    #: First event of the response that the call is a part of; the call's own event outside replies.
    response_seq: int
    #: Seqs of the events that hold a response of it, oldest first.
    answers: list[int] = field(default_factory=list)


class ReplyFacts(Struct, frozen=True):
    """The newest model event of one author in one scope and branch."""

    seq: int
    place: Place
    invocation_id: str
    response_id: str | None
    compiled_seq: int | None


@dataclass(slots=True)
class LaneFacts:
    """A lane of the session."""

    #: Number of the lane within the session, from 1.
    number: int
    #: Newest ordinary event in it.
    last_seq: int = 0
    #: Newest reply by author.
    replies: dict[str, ReplyFacts] = field(default_factory=dict)


class Header(Struct, frozen=True):
    """What a marker must know of an event that it may reach."""

    seq: int
    lane: Lane
    timestamp: float
    invocation_id: str
    is_marker: bool
    #: Owner seqs of its responses; None for an orphan.
    owner_seqs: tuple[int | None, ...] = ()
    #: Call ids for which it asks a confirmation or a credential.
    requested_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ForeseenFold:
    """A fold as it would have been appended at an earlier head.

    What a fold covers depends on all of its span. Events that come after leave that as it is, but
    for calls that they answer or close, so under the lock only these are looked at again.
    """

    request: FoldRequest
    fold: Fold
    #: Head of the log then.
    head_seq: int
    #: Markers in its span and beside it.
    silent: Silent
    #: Events that it would have covered, had their calls not waited for an answer.
    waiting: frozenset[int]


@dataclass(slots=True)
class Facts:
    """What the log says, as far as a batch needs it. Loaded by the storage, kept up by the
    resolver."""

    head_seq: int = 0
    #: Those that stand on the line upward of an event of the batch, or of a call; every one where
    #: the batch holds a marker.
    lanes: dict[Lane, LaneFacts] = field(default_factory=dict)
    #: Of all lanes of the session, loaded or not.
    lane_count: int = 0
    index: Index = UNTOUCHED
    last_rewind_seq: int = 0
    #: Calls by id; those without one under the empty id.
    calls_by_id: dict[str, list[CallFacts]] = field(default_factory=dict)
    #: False: the newest calls that nothing answers are there, of older ones none. Who means one of
    #: these cannot be resolved.
    knows_older_calls: bool = True
    #: Every marker, for a batch that holds one; where it holds folds alone, at least the folds that
    #: are shown.
    markers: list[tuple[int, Marker]] = field(default_factory=list)
    #: First event of each invocation; only needed for rewinds.
    first_seq_by_invocation: dict[str, int] = field(default_factory=dict)
    #: Headers by seq of what folds, pins and elisions may reach, and the calls that stand there.
    headers: dict[int, Header] = field(default_factory=dict)
    calls_by_seq: dict[int, list[CallFacts]] = field(default_factory=dict)
    #: What a fold of the batch will be, unless the log has changed too much since.
    foreseen: ForeseenFold | None = None

    @property
    def silent(self) -> Silent:
        """The markers that are known: at least those from before the span of each fold of the batch
        to the first event after it."""
        if self.foreseen is not None:
            return self.foreseen.silent
        told = (header.seq for header in self.headers.values() if header.is_marker)
        return Silent(of_seqs({*told, *(seq for seq, _ in self.markers)}))


@dataclass(frozen=True, slots=True)
class Needs:
    """Which facts a batch needs beyond head and index."""

    #: ``(isolation_scope, branch)`` of where its events stand.
    standings: frozenset[tuple[str | None, str]] = frozenset()
    #: Ids of calls that responses answer or that branches name.
    call_ids: frozenset[str] = frozenset()
    #: Names of tools whose id-less responses look for a call by name.
    call_names: frozenset[str] = frozenset()
    has_markers: bool = False
    #: Some of them may bring back what others took away: every marker of the log is needed.
    has_reversals: bool = False
    invocation_ids: frozenset[str] = frozenset()
    #: Seqs that pins and elisions name: their whole call groups are needed.
    pinned_seqs: frozenset[int] = frozenset()
    #: Spans that folds name, closed.
    spans: tuple[tuple[int, int], ...] = ()
    #: ``(isolation_scope, branch, start, end)`` of ADK compactions.
    times: tuple[tuple[str | None, str, float, float], ...] = ()

    @property
    def is_light(self) -> bool:
        """Tell whether head, index and the lanes of its events are enough."""
        return not (self.call_ids or self.call_names or self.has_markers)


def needs_of(events: Iterable[Event]) -> Needs:
    """Return what the resolver will have to know for these events."""
    call_ids: set[str] = set()
    names: set[str] = set()
    invocations: set[str] = set()
    pinned: set[int] = set()
    spans: list[tuple[int, int]] = []
    times: list[tuple[str | None, str, float, float]] = []
    has_markers = has_reversals = False
    standings: set[tuple[str | None, str]] = set()
    for event in events:
        standings.add((event.lane.isolation_scope, event.lane.branch))
        call_ids.update(tag for _, tag in tagged_segments(event.lane.branch))
        for part in event.responses:
            (call_ids if part.id else names).add(part.id or part.name)
        match event.request:
            case None:
                continue
            case RewindRequest(before_invocation_id=str(invocation_id)):
                invocations.add(invocation_id)
            case PinRequest(seqs=seqs) | UnpinRequest(seqs=seqs) | ElisionRequest(seqs=seqs):
                pinned.update(seqs)
            case FoldRequest(from_seq=start, to_seq=end, sections=sections):
                spans.append((start, end))
                # What a section's lane is called depends on these calls, as for an event's.
                for section in sections:
                    call_ids.update(tag for _, tag in tagged_segments(section.branch))
            case TimedCompactionRequest(start_timestamp=since, end_timestamp=until):
                times.append((event.lane.isolation_scope, event.lane.branch, since, until))
            case _:
                pass
        has_markers = True
        has_reversals = has_reversals or not isinstance(event.request, FoldRequest)
    return Needs(
        standings=frozenset(standings),
        call_ids=frozenset(call_ids),
        call_names=frozenset(names),
        has_markers=has_markers,
        has_reversals=has_reversals,
        invocation_ids=frozenset(invocations),
        pinned_seqs=frozenset(pinned),
        spans=tuple(spans),
        times=tuple(times),
    )


# Nothing of an event is decided before it is appended: `place` and `owners` are empty until then.


class Resolver:
    """Adds events to the facts, one by one."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def add(self, event: Event) -> Event:
        """Return the event as it stands in the log.

        Raises:
            InvalidEventError: ``compiled_seq`` is not before the event, or a marker names no
            marker. RewindTargetError: a rewind names nothing before it. CompactionRangeError: a
            fold would cover nothing. CallsUnknownError: the facts know no older calls.
        """
        facts = self.facts
        seq = facts.head_seq + 1
        if event.compiled_seq is not None and not 0 <= event.compiled_seq < seq:
            detail = f"compiled_seq {event.compiled_seq} is not before the event's own seq {seq}"
            raise InvalidEventError(detail, pointer="/compiled_seq")
        lane = self._lane(event.lane)
        if event.request is None:
            resolved = self._ordinary(event, seq, lane)
        else:
            resolved = self._marker(replace(event, seq=seq, lane=lane))
        facts.head_seq = seq
        facts.first_seq_by_invocation.setdefault(event.invocation_id, seq)
        facts.headers[seq] = Header(
            seq=seq,
            lane=lane,
            timestamp=event.timestamp,
            invocation_id=event.invocation_id,
            is_marker=resolved.marker is not None,
            owner_seqs=tuple(owner.seq if owner else None for owner in resolved.owners),
            requested_ids=event.requested_ids,
        )
        return resolved

    # Ordinary events

    def _lane(self, lane: Lane) -> Lane:
        known = self.facts.calls_by_id
        tagged = list(tagged_segments(lane.branch))
        if not self.facts.knows_older_calls and not all(known.get(tag) for _, tag in tagged):
            raise CallsUnknownError
        names = tuple(name for name, tag in tagged if known.get(tag))
        lane = replace(lane, tool_names=names) if names else lane
        if lane not in self.facts.lanes:
            self.facts.lane_count += 1
            self.facts.lanes[lane] = LaneFacts(number=self.facts.lane_count)
        return lane

    def _ordinary(self, sent: Event, seq: int, lane: Lane) -> Event:
        event = replace(sent, seq=seq, lane=lane)
        place = self._place(event) if event.is_model else None
        if place is not None:
            event = replace(event, place=place)
        owners: list[Owner | None] = []
        # In part order: some logs hold a call and its result in one event.
        for part_index, part in enumerate(event.parts):
            if isinstance(part, FunctionCall):
                self._remember_call(part, part_index, event)
            elif isinstance(part, FunctionResponse):
                owners.append(self._owner(part, event))
        known = self.facts.lanes[lane]
        known.last_seq = seq
        if place is not None:
            known.replies[event.author] = ReplyFacts(
                seq, place, event.invocation_id, event.response_id, event.compiled_seq
            )
        return replace(event, owners=tuple(owners)) if owners else event

    def _remember_call(self, part: FunctionCall, part_index: int, event: Event) -> None:
        call = CallFacts(
            seq=event.seq,
            part_index=part_index,
            id=part.id,
            name=part.name,
            lane=event.lane,
            author=event.author,
            response_seq=event.place.response_seq if event.place else event.seq,
        )
        self.facts.calls_by_id.setdefault(part.id or "", []).append(call)
        self.facts.calls_by_seq.setdefault(event.seq, []).append(call)

    def _replies(self, lane: Lane) -> Mapping[str, ReplyFacts]:
        """Return the newest reply by author in the lane's scope and branch."""
        newest: dict[str, ReplyFacts] = {}
        for other, facts in self.facts.lanes.items():
            if (other.isolation_scope, other.branch) == (lane.isolation_scope, lane.branch):
                for author, reply in facts.replies.items():
                    if author not in newest or newest[author].seq < reply.seq:
                        newest[author] = reply
        return newest

    def _place(self, event: Event) -> Place:
        replies = self._replies(event.lane)
        previous = replies.get(event.author)
        last_any_seq = max((reply.place.after_any_seq for reply in replies.values()), default=0)
        if previous is not None and self._continues(event, previous):
            return replace(previous.place, after_any_seq=last_any_seq)
        read_after = event.seq - 1 if event.compiled_seq is None else event.compiled_seq
        return Place(
            response_seq=event.seq,
            after_seq=max(read_after, previous.place.after_seq if previous else 0),
            after_any_seq=max(read_after, last_any_seq),
        )

    def _continues(self, event: Event, previous: ReplyFacts) -> bool:
        """Tell whether the event is a part of the same response as its author's previous one."""
        if previous.seq <= self.facts.last_rewind_seq:
            return False
        if event.response_id is not None and previous.response_id is not None:
            return event.response_id == previous.response_id
        if event.compiled_seq is not None and previous.compiled_seq is not None:
            return event.compiled_seq == previous.compiled_seq
        if (event.response_id, event.compiled_seq) != (None, None):
            return False
        if (previous.response_id, previous.compiled_seq) != (None, None):
            return False
        return (
            event.invocation_id == previous.invocation_id
            and self._last_seq_up_line(event.lane) == previous.seq
        )

    def _last_seq_up_line(self, lane: Lane) -> int:
        line = line_up(lane.branch)
        return max(
            facts.last_seq
            for other, facts in self.facts.lanes.items()
            if other.isolation_scope == lane.isolation_scope and other.branch in line
        )

    def _owner(self, part: FunctionResponse, event: Event) -> Owner | None:
        candidates = self._candidates(part)
        standing = [c for c in candidates if not contains(self.facts.index.rewound, c.seq)]
        candidates = standing or candidates
        if not candidates:
            if not self.facts.knows_older_calls:
                raise CallsUnknownError
            return None
        line = line_up(event.lane.branch)
        closest = min(_distance(event.lane, line, call) for call in candidates)
        candidates = [c for c in candidates if _distance(event.lane, line, c) == closest]
        call = self._choose(candidates, by_name=bool(part.name) and not part.id)
        # None that is older comes before a call that waits where the response stands.
        is_certain = bool(part.id and standing) and closest == 0 and self._is_open(call)
        if not (is_certain or self.facts.knows_older_calls):
            raise CallsUnknownError
        call.answers.append(event.seq)
        return Owner(call.seq, call.part_index, call.author, call.name, call.lane)

    def _candidates(self, part: FunctionResponse) -> list[CallFacts]:
        """Return the calls that the response can mean, oldest first."""
        if part.id:
            return list(self.facts.calls_by_id.get(part.id, ()))
        known = sorted(
            (call for calls in self.facts.calls_by_id.values() for call in calls),
            key=lambda call: (call.seq, call.part_index),
        )
        if not part.name:
            # It says nothing of its call: only one that waits for a result can be meant.
            return [call for call in known if self._is_open(call)]
        named = [call for call in known if call.name == part.name]
        return [call for call in named if not call.id] or named

    def _choose(self, candidates: Sequence[CallFacts], *, by_name: bool) -> CallFacts:
        """Return an open call before an answered or closed one, then the nearest.

        Within one event the first open one: parallel calls may share an id, or have none. By name
        alone the first open call is meant, since results come in the order of their calls.
        """
        opened = [call for call in candidates if self._is_open(call)]
        if by_name and opened:
            return opened[0]
        nearest_seq = (opened or candidates)[-1].seq
        nearest = [call for call in opened or candidates if call.seq == nearest_seq]
        return nearest[0] if opened else nearest[-1]

    def _is_open(self, call: CallFacts) -> bool:
        """Tell whether a result may still answer the call: none did, and no other response came."""
        if call.answers:
            return False
        newest = self._replies(call.lane).get(call.author)
        return (
            newest is None
            or newest.seq <= call.seq
            or (newest.place.response_seq == call.response_seq)
        )

    # Markers

    def foresee(self, request: FoldRequest) -> None:
        """Work out what a fold would be if it were appended now, for when it will be.

        What cannot be appended now is left to the append to refuse.
        """
        # A lane that only the fold has gets its number from whoever appends first.
        then = Resolver(replace(self.facts, lanes=dict(self.facts.lanes)))
        try:
            fold = then._fold(request)
        except InvalidInputError:
            return
        self.facts.foreseen = ForeseenFold(
            request=request,
            fold=fold,
            head_seq=self.facts.head_seq,
            silent=self.facts.silent,
            waiting=frozenset(self._waiting_of(request, self.facts.headers)),
        )

    def _marker(self, event: Event) -> Event:
        facts = self.facts
        marker = self._resolved(event)
        facts.markers.append((event.seq, marker))
        if isinstance(marker, Fold):
            facts.index = facts.index.with_fold(event.seq, marker, facts.silent)
        else:
            facts.index = resolve(facts.markers)
        if isinstance(marker, Rewind):
            facts.last_rewind_seq = event.seq
        return replace(event, marker=marker)

    def _resolved(self, event: Event) -> Marker:
        match event.request:
            case RewindRequest() as request:
                return self._rewind(request, event.seq)
            case TimedCompactionRequest() as request:
                return self._timed_fold(request, event)
            case FoldRequest() as request:
                return self._fold(request)
            case PinRequest(seqs=seqs):
                return Pin(self._groups(seqs))
            case UnpinRequest(seqs=seqs):
                return Unpin(self._groups(seqs))
            case ElisionRequest() as request:
                return self._elision(request)
            case UndoRequest(target_seq=target_seq):
                self._marker_at(target_seq)
                return Undo(target_seq)
            case ActivationRequest(target_seq=target_seq):
                target = self._marker_at(target_seq)
                if not (isinstance(target, Fold) and target.is_staged):
                    raise InvalidEventError(f"seq {target_seq} is no staged fold")
                return Activation(target_seq)
            case _:
                return PolicyChange()

    def _marker_at(self, seq: int) -> Marker:
        for marker_seq, marker in self.facts.markers:
            if marker_seq == seq and not isinstance(marker, PolicyChange):
                return marker
        raise InvalidEventError(f"seq {seq} is no marker that can be undone or activated")

    def _rewind(self, request: RewindRequest, seq: int) -> Rewind:
        if request.before_invocation_id is not None:
            first = self.facts.first_seq_by_invocation.get(request.before_invocation_id)
            if first is None:
                detail = (
                    f"no event before the rewind has invocation {request.before_invocation_id!r}"
                )
                raise RewindTargetError(detail, pointer="/actions/rewind_before_invocation_id")
            return Rewind(first)
        if request.to_seq is None or not 0 <= request.to_seq < seq - 1:
            detail = f"to_seq must be from 0 to {seq - 2}: nothing else can be rewound"
            raise RewindTargetError(detail, pointer="/to_seq")
        return Rewind(request.to_seq + 1)

    def _elision(self, request: ElisionRequest) -> Elision:
        for seq in request.seqs:
            self._content_at(seq)
            if contains(self.facts.index.pinned, seq):
                raise InvalidEventError(f"seq {seq} is pinned", pointer="/seqs", seq=seq)
        return Elision(of_seqs(request.seqs), request.keep_chars)

    def _groups(self, seqs: Iterable[int]) -> Ranges:
        """Return the seqs with their whole call groups."""
        wanted: set[int] = set()
        for seq in seqs:
            header = self._content_at(seq)
            owners = {owner for owner in header.owner_seqs if owner is not None}
            for call_seq in {seq, *owners}:
                wanted.add(call_seq)
                for call in self.facts.calls_by_seq.get(call_seq, ()):
                    wanted.update(call.answers)
        return of_seqs(wanted)

    def _content_at(self, seq: int) -> Header:
        """Return the header of an event that can be pinned or elided: one with content."""
        header = self.facts.headers.get(seq)
        if header is None:
            detail = f"seq {seq} is no event of this session"
            raise InvalidEventError(detail, pointer="/seqs", seq=seq)
        if header.is_marker:
            kind = KIND_BY_MARKER[type(dict(self.facts.markers)[seq])]
            detail = f"seq {seq} is a marker ({kind}), and has nothing to read"
            raise InvalidEventError(detail, pointer="/seqs", seq=seq)
        return header

    def _timed_fold(self, request: TimedCompactionRequest, event: Event) -> Fold:
        wanted = of_seqs(
            header.seq
            for header in self.facts.headers.values()
            if request.start_timestamp <= header.timestamp <= request.end_timestamp
            and (header.lane.isolation_scope, header.lane.branch)
            == (event.lane.isolation_scope, event.lane.branch)
            and (header.invocation_id, header.timestamp) not in request.excluded
        )
        section = SectionRequest(event.lane.isolation_scope, event.lane.branch, request.parts)
        span = (wanted[0][0], wanted[-1][1]) if wanted else (event.seq, event.seq)
        covers = self._covers([section], span=span, wanted=wanted)
        return Fold(
            from_seq=span[0],
            to_seq=span[1],
            # An imported compaction that covers nothing is kept in the log, and shows nothing.
            sections=tuple(
                Section(lane, ranges, request.parts, role=request.role)
                for lane, ranges in covers.items()
                if ranges
            ),
            start_timestamp=request.start_timestamp,
            end_timestamp=request.end_timestamp,
        )

    def _fold(self, request: FoldRequest) -> Fold:
        foreseen = self.facts.foreseen
        if foreseen is not None and self._still_holds(foreseen, request):
            return foreseen.fold
        self.facts.foreseen = None
        if not 1 <= request.from_seq <= request.to_seq <= self.facts.head_seq:
            detail = f"the span must lie within 1 and {self.facts.head_seq}"
            raise CompactionRangeError(detail, pointer="/covers")
        span = (request.from_seq, request.to_seq)
        covers = self._covers(request.sections, span=span, wanted=request.seqs or (span,))
        for number, lane in enumerate(covers):
            if not covers[lane]:
                detail = (
                    "nothing in the span can be folded for this lane: "
                    "it is empty, rewound, pinned, open or folded already"
                )
                raise CompactionRangeError(detail, pointer=f"/sections/{number}")
        last_seq = max((ranges[-1][1] for ranges in covers.values()), default=request.to_seq)
        return Fold(
            from_seq=request.from_seq,
            to_seq=request.to_seq,
            sections=tuple(
                Section(lane, ranges, section.parts)
                for section, (lane, ranges) in zip(request.sections, covers.items(), strict=True)
            ),
            level=request.level,
            is_staged=request.is_staged,
            # Where preset `adk` reads it: what it covers may not be read then.
            end_timestamp=self.facts.headers[last_seq].timestamp,
        )

    def _still_holds(self, foreseen: ForeseenFold, request: FoldRequest) -> bool:
        """Tell whether nothing came since that changes what the fold covers."""
        facts = self.facts
        if request is not foreseen.request:
            return False
        since = [facts.headers[seq] for seq in range(foreseen.head_seq + 1, facts.head_seq + 1)]
        if any(header.is_marker for header in since):
            return False
        answered = (
            owner
            for header in since
            for owner in header.owner_seqs
            if owner is not None and owner <= request.to_seq
        )
        return self._waiting_of(request, {*answered, *foreseen.waiting}) == foreseen.waiting

    def _waiting_of(self, request: FoldRequest, seqs: Iterable[int]) -> set[int]:
        """Return what the fold means of these events and may not cover: their calls wait."""
        meant = [seq for seq in seqs if self._is_wanted(seq, request)]
        return {seq for seq in self.waiting(meant) if self._is_wanted(seq, request)}

    def _is_wanted(self, seq: int, request: FoldRequest) -> bool:
        header = self.facts.headers.get(seq)
        wanted = request.seqs or ((request.from_seq, request.to_seq),)
        return header is not None and not header.is_marker and contains(wanted, seq)

    def _covers(
        self, sections: Sequence[SectionRequest], *, span: tuple[int, int], wanted: Ranges
    ) -> dict[Lane, Ranges]:
        """Return what each section covers: what is wanted in its lane, less the holes."""
        lanes = [self._section_lane(section) for section in sections]
        if len(set(lanes)) != len(lanes):
            raise CompactionRangeError("two sections for one lane", pointer="/sections")
        folded = {
            seq
            for seq, header in self.facts.headers.items()
            if header.lane in lanes and not header.is_marker and contains(wanted, seq)
        }
        folded -= self._protected(folded, span)
        while split := {seq for seq in folded if self._has_uncovered_owner(seq, folded)}:
            folded -= split
        silent = self.facts.silent
        return {
            lane: silent.bridge(
                of_seqs(seq for seq in folded if self.facts.headers[seq].lane == lane)
            )
            for lane in lanes
        }

    def _section_lane(self, section: SectionRequest) -> Lane:
        lane = Lane(section.isolation_scope, section.branch, node_path=section.node_path)
        if section.tool_names is None:
            return self._lane(lane)
        return replace(lane, tool_names=section.tool_names)

    def _has_uncovered_owner(self, seq: int, folded: set[int]) -> bool:
        """Tell whether the event holds a response whose call is not folded with it, unless they are
        apart already: then the older fold would go on to be read for this one event."""
        index = self.facts.index
        return any(
            owner not in folded
            and not contains(index.rewound, owner)
            and not _are_apart(index, seq, owner)
            for owner in self.facts.headers[seq].owner_seqs
            if owner is not None
        )

    def _protected(self, seqs: Iterable[int], span: tuple[int, int]) -> set[int]:
        """Return what may not be folded now: rewound, pinned, open, and what waits for the user."""
        index = self.facts.index
        shown = {section.fold_seq for section in index.sections}
        is_inside = any(
            isinstance(fold, Fold)
            and fold_seq in shown
            and fold.from_seq <= span[0]
            and span[1] <= fold.to_seq
            and (fold.from_seq, fold.to_seq) != span
            for fold_seq, fold in self.facts.markers
        )
        protected = {
            seq
            for seq in seqs
            if contains(index.rewound, seq)
            or contains(index.pinned, seq)
            or (is_inside and not index.is_live(seq))
        }
        return protected | self.waiting(seqs)

    def waiting(self, seqs: Iterable[int]) -> set[int]:
        """Return which of these events hold a call that may still be answered, with the answers."""
        waiting: set[int] = set()
        for seq in seqs:
            calls = self.facts.calls_by_seq.get(seq, ())
            if any(self._is_waiting(call) for call in calls):
                waiting.add(seq)
                waiting.update(answer for call in calls for answer in call.answers)
        return waiting

    def _is_waiting(self, call: CallFacts) -> bool:
        """Tell whether someone may still have to answer the call."""
        if call.name in CLIENT_CALLS:
            return not call.answers
        asked = [
            answer
            for answer in call.answers
            if answer in self.facts.headers and call.id in self.facts.headers[answer].requested_ids
        ]
        return self._is_open(call) or (bool(asked) and asked[-1] == call.answers[-1])


def _are_apart(index: Index, seq: int, other: int) -> bool:
    """Tell whether two events are folded, by different folds."""
    folds = index.fold_of(seq), index.fold_of(other)
    return None not in folds and folds[0] != folds[1]


def _distance(lane: Lane, line: Sequence[str], call: CallFacts) -> int:
    """Return how far up its line a response finds the call; beyond the line for elsewhere."""
    if call.lane.isolation_scope != lane.isolation_scope or call.lane.branch not in line:
        return len(line)
    return line.index(call.lane.branch)


@dataclass(frozen=True, slots=True)
class Log:
    """A whole log in memory."""

    events: tuple[Event, ...]
    index: Index


def replay(events: Iterable[Event]) -> Log:
    """Append events to an empty log in memory and return it. Raises what :meth:`Resolver.add`
    does."""
    resolver = Resolver(Facts())
    resolved = tuple(resolver.add(event) for event in events)
    return Log(resolved, resolver.facts.index)
