"""What the planner must know of a log: headers of what is read now, and every marker.

    facts = PlanFacts(head_seq=..., events=headers, markers=markers, waiting=..., ...)

The storage loads them from columns; :func:`plan_facts_of` takes them from a log in memory. Both
need the headers of every live event and of what :func:`read_again` names, whatever the history.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.core.branch import tagged_segments
from app.core.compaction.policy import CompactionPolicy
from app.core.compile.estimate import estimate_tokens
from app.core.contents import FunctionResponse, is_blank
from app.core.copying import replace
from app.core.elision import elide
from app.core.events import USER, Event, Fold, Marker, Undo
from app.core.final_response import is_final_response
from app.core.index import UNTOUCHED, Index, effective_markers, resolve
from app.core.lanes import ROOT_LANE, Lane
from app.core.ranges import EMPTY, Ranges, contains, intersect, union
from app.core.resolve import CallFacts, Facts, Log, Resolver
from app.core.tokens import CountTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEvent:
    """An ordinary event, as far as planning goes."""

    seq: int
    lane: Lane = ROOT_LANE
    author: str = ""
    invocation_id: str = ""
    #: Of all parts, as they are read.
    tokens: int = 0
    #: The user speaks: more than tool results.
    is_user_message: bool = False
    #: First event of the response that it is a part of; None unless the model made it.
    response_seq: int | None = None
    has_calls: bool = False
    #: It thinks or is signed: what it calls may be part of a loop that stays whole.
    is_thinking: bool = False
    #: Of each response, the event of its call; None for an orphan.
    owner_seqs: tuple[int | None, ...] = ()
    #: It may end its invocation (:mod:`app.core.final_response`).
    is_final: bool = False
    #: Who appended it says that it does.
    completes_invocation: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A plan whose summary was refused: useless, or not to be had."""

    #: What the plan covered.
    covers: Ranges
    #: Head of the session then. Its lanes must grow before it is tried again.
    since_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """A log, as far as planning goes."""

    head_seq: int
    #: Headers of every live event, whichever lane, and of :func:`read_again`. In any order; no
    #: markers. What a staged fold covers is live.
    events: Sequence[PlanEvent]
    #: How the log is read now.
    index: Index = UNTOUCHED
    #: The markers that may have a say, each with its seq: all but folds and activations, and what
    #: :func:`wanted_folds` names. Further ones change nothing.
    markers: Sequence[tuple[int, Marker]] = ()
    #: Of all the log: events with a call that someone may still answer, with what answers them
    #: already (:meth:`app.core.resolve.Resolver.waiting`).
    waiting: frozenset[int] = frozenset()
    #: Of the call ids that scopes and branches are named after: those of which every call is
    #: answered and none waits (:func:`closed_calls`).
    closed_call_ids: frozenset[str] = frozenset()
    #: First event of each invocation in all the log, by id, where it is not among ``events``.
    first_seqs: Mapping[str, int] = field(default_factory=dict)
    #: Of a whole request as it would be sent now; None: what is counted here.
    projected_tokens: int | None = None
    refusals: Sequence[Refusal] = ()


def plan_event(event: Event, *, completes_invocation: bool = False) -> PlanEvent:
    """Return the header of an ordinary event."""
    speaks = any(
        not isinstance(part, FunctionResponse) and not is_blank(part) for part in event.parts
    )
    return PlanEvent(
        seq=event.seq,
        lane=event.lane,
        author=event.author,
        invocation_id=event.invocation_id,
        tokens=sum(event.part_tokens),
        is_user_message=event.author == USER and not event.is_model and speaks,
        response_seq=event.place.response_seq if event.place else None,
        has_calls=bool(event.calls),
        is_thinking=event.is_model and any(part.thought or part.signature for part in event.parts),
        owner_seqs=tuple(owner.seq if owner else None for owner in event.owners),
        is_final=is_final_response(event),
        completes_invocation=completes_invocation,
    )


def plan_facts_of(
    log: Log, *, projected_tokens: int | None = None, count: CountTokens = estimate_tokens
) -> PlanFacts:
    """Return the facts of a whole log in memory."""
    resolver = Resolver(Facts())
    for event in log.events:
        resolver.add(event)
    facts = facts_known(resolver, log.events, count)
    return replace(facts, projected_tokens=projected_tokens)


def facts_known(
    resolver: Resolver, events: Iterable[Event], count: CountTokens = estimate_tokens
) -> PlanFacts:
    """Return the facts of a whole log of which the resolver saw every event."""
    facts = resolver.facts
    events = tuple(events)
    ordinary = [event for event in events if event.marker is None]
    return PlanFacts(
        head_seq=facts.head_seq,
        events=[plan_event(elide(event, facts.index, count)) for event in ordinary],
        index=facts.index,
        markers=[(event.seq, event.marker) for event in events if event.marker is not None],
        waiting=frozenset(resolver.waiting(facts.calls_by_seq)),
        closed_call_ids=closed_calls(resolver, (event.lane for event in ordinary)),
        first_seqs={
            event.invocation_id: event.seq for event in reversed(ordinary) if event.invocation_id
        },
    )


def call_ids_of(lane: Lane) -> tuple[str, ...]:
    """Return the call ids that a lane is named after: its events happen within these calls."""
    tags = tuple(tag for _, tag in tagged_segments(lane.branch))
    return tags if lane.isolation_scope is None else (*tags, lane.isolation_scope)


def closed_calls(resolver: Resolver, lanes: Iterable[Lane]) -> frozenset[str]:
    """Return the call ids that lanes are named after of which every call is answered for good."""
    wanted = {call_id for lane in set(lanes) for call_id in call_ids_of(lane)}
    known = resolver.facts.calls_by_id
    return frozenset(
        call_id
        for call_id in wanted
        if known.get(call_id) and all(_is_closed(call, resolver) for call in known[call_id])
    )


def _is_closed(call: CallFacts, resolver: Resolver) -> bool:
    return bool(call.answers) and not resolver.waiting((call.seq,))


def planned_markers(markers: Iterable[tuple[int, Marker]]) -> list[tuple[int, Marker]]:
    """Return the markers with every staged fold in use: what it covers is as good as folded."""
    return [
        (seq, replace(marker, is_staged=False))
        if isinstance(marker, Fold) and marker.is_staged
        else (seq, marker)
        for seq, marker in markers
    ]


def planned_index(facts: PlanFacts) -> Index:
    """Return how the log would be read with every staged fold in use."""
    if not facts.index.staged:
        return facts.index
    planned = resolve(planned_markers(facts.markers))
    # Markers that have no say any more are not known, and no event either.
    return replace(planned, live=intersect(planned.live, facts.index.live))


def wanted_folds(index: Index, others: Iterable[tuple[int, Marker]]) -> frozenset[int]:
    """Return the folds of which planning must know, beside the newest for :func:`read_again`.

    What was superseded has no say, and of that a long session has most.

    Args:
        index: how the log is read now.
        others: every marker that is neither a fold nor an activation.
    """
    undone = {marker.target_seq for _, marker in others if isinstance(marker, Undo)}
    return frozenset({section.fold_seq for section in index.sections} | set(index.staged) | undone)


#: So far back an overlap looks: folds that were rolled up for long span the whole history.
_MOST_READ_AGAIN: Final = 4_096


def read_again_folds(policy: CompactionPolicy) -> int:
    """Return how many of the newest folds of the first level an overlap may reach into."""
    if "interval" not in policy.moments:
        return 0
    return 1 + -(-policy.overlap_size // policy.compaction_interval)


def read_again(markers: Sequence[tuple[int, Marker]], policy: CompactionPolicy) -> Ranges:
    """Return which masked events an interval's overlap may read again.

    The newest folds of the first level are enough: each holds an interval's worth, so how long the
    history is does not matter.
    """
    if "interval" not in policy.moments:
        return EMPTY
    effective = effective_markers(markers)
    folds = sorted(
        (marker.from_seq, marker.to_seq)
        for seq, marker in markers
        if isinstance(marker, Fold) and seq in effective and marker.level == 1
    )
    wanted = read_again_folds(policy)
    rewound = resolve(markers).rewound
    spans = [span for span in folds if not contains(rewound, span[1])]
    return union((max(start, end - _MOST_READ_AGAIN), end) for start, end in spans[-wanted:])
