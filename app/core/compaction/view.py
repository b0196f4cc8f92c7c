"""A log as the planner sees it: staged folds count as active, and some events may not be folded.

1 u | 2 m | 3 u (pinned) | 4 m | 5 u c(a)              events, oldest first
5 is open, so its user message and call stay; 3 stays  holes
1, 2, 4                                                what may be folded
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final, Literal, TypeAlias

from app.core.compaction.boundaries import Boundaries
from app.core.compaction.facts import (
    PlanEvent,
    PlanFacts,
    call_ids_of,
    planned_index,
    planned_markers,
    read_again,
)
from app.core.compaction.policy import CompactionPolicy
from app.core.events import Fold, Undo
from app.core.index import Index, ShownSection, effective_markers
from app.core.lanes import Lane
from app.core.ranges import (
    EMPTY,
    FOREVER,
    Range,
    Ranges,
    Silent,
    contains,
    intersect,
    of_seqs,
    size,
    subtract,
    union,
)

#: Why an event stays: ``held`` is what the user asked in the invocation that is still open.
HoleReason: TypeAlias = Literal["pinned", "waiting", "held", "undone", "refused"]

#: Part of the trigger that must have come since, before what was undone or refused is tried again
#: by a policy that goes by tokens.
GROWTH_RATIO: Final = 0.05


@dataclass(frozen=True, slots=True)
class ShownFold:
    """A fold that is shown, or will be when it is activated."""

    seq: int
    fold: Fold
    sections: tuple[ShownSection, ...]

    @property
    def tokens(self) -> int:
        """Of the sections that are shown."""
        return sum(self.tokens_by_lane.values())

    @property
    def tokens_by_lane(self) -> dict[Lane, int]:
        """Tokens of each shown section."""
        return {
            shown.lane: self.fold.sections[shown.section_index].tokens for shown in self.sections
        }

    @property
    def covers_by_lane(self) -> dict[Lane, Ranges]:
        """What each shown section stands for, whatever belongs to others now."""
        return {
            shown.lane: self.fold.sections[shown.section_index].covers for shown in self.sections
        }

    def is_within(self, span: Range) -> bool:
        """Tell whether the fold lies within a span."""
        return span[0] <= self.fold.from_seq and self.fold.to_seq <= span[1]


@dataclass(frozen=True, slots=True)
class Invocation:
    """The events of an invocation that are known, oldest first."""

    key: str
    #: Where it began, also if that is not known any more.
    first_seq: int
    events: tuple[PlanEvent, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """What one fold would cover, by what becomes of it."""

    #: Live events that would be folded.
    live: tuple[PlanEvent, ...]
    #: Events that are folded already and are read again.
    again: tuple[PlanEvent, ...]
    #: Folds whose summaries are read in place of what they cover.
    seeds: tuple[ShownFold, ...]

    @property
    def span(self) -> Range:
        """From the first to the last event that the fold would stand for; empty for nothing."""
        events = (*self.live, *self.again)
        starts = (*(e.seq for e in events), *(seed.fold.from_seq for seed in self.seeds))
        ends = (*(e.seq for e in events), *(seed.fold.to_seq for seed in self.seeds))
        return min(starts, default=1), max(ends, default=0)

    @property
    def live_tokens(self) -> int:
        """Of the events that would be folded."""
        return sum(event.tokens for event in self.live)


class PlanView:
    """What may be folded, and together with what."""

    def __init__(
        self, facts: PlanFacts, policy: CompactionPolicy, *, is_asked: bool = False
    ) -> None:
        """Look at a log.

        Args:
            facts: the log.
            policy: what else must stay.
            is_asked: a caller asks for the fold; then nothing speaks against what was undone.
        """
        self.facts = facts
        self.policy = policy
        self.actual = facts.index
        self.index = planned_index(facts)
        self.folds = _shown_folds(self.index, planned_markers(facts.markers))
        # Only what storage would read were staged folds in use: a plan must depend neither on what
        # else is known, nor on when a fold is activated.
        known = union((*self.index.live, *read_again(facts.markers, policy)))
        self.events = sorted(
            (event for event in facts.events if contains(known, event.seq)),
            key=lambda event: event.seq,
        )
        self.live = tuple(event for event in self.events if self.index.is_live(event.seq))
        #: Masked events that are known all the same: an overlap may read them again.
        self.known_masked = tuple(
            event
            for event in self.events
            if not self.index.is_live(event.seq) and not contains(self.index.rewound, event.seq)
        )
        self.invocations = _invocations(self.events, facts.first_seqs, self.index.rewound)
        self.open_invocation = self._open_invocation()
        #: User messages of the open invocation: a span lies wholly before or wholly after each.
        self.held = tuple(
            event.seq
            for event in _questions(self.open_invocation, facts.waiting)
            if self.index.is_live(event.seq) and not self.is_closed(event.lane)
        )
        self.hole_reasons = self._hole_reasons(is_asked=is_asked)
        self.boundaries = Boundaries(
            sorted((*self.live, *self.known_masked), key=lambda event: event.seq),
            is_closed=self.is_closed,
            is_hole=self.hole_reasons.__contains__,
        )

    # What is there

    def is_closed(self, lane: Lane) -> bool:
        """Tell whether the lane is one of a call that was answered for good."""
        call_ids = call_ids_of(lane)
        return bool(call_ids) and call_ids[-1] in self.facts.closed_call_ids

    @cached_property
    def masked_by_lane(self) -> Mapping[Lane, Ranges]:
        """What folds stand for, by lane."""
        ranges: dict[Lane, list[Range]] = {}
        for section in self.index.sections:
            ranges.setdefault(section.lane, []).extend(section.belongs)
        return {lane: union(pairs) for lane, pairs in ranges.items()}

    @cached_property
    def masked(self) -> Ranges:
        """What folds stand for."""
        return union(pair for ranges in self.masked_by_lane.values() for pair in ranges)

    @cached_property
    def _marker_seqs(self) -> Ranges:
        """Markers: those that are known, what is neither live nor rewound nor folded, and where all
        events are known what is none."""
        events = union((*self.actual.live, *self.actual.rewound, *_belongs(self.actual)))
        known = ((seq, seq) for seq, _ in self.facts.markers)
        again = subtract(read_again(self.facts.markers, self.policy), self._event_seqs)
        return union((*subtract(((1, self.facts.head_seq),), events), *known, *again))

    @cached_property
    def _event_seqs(self) -> Ranges:
        return of_seqs(event.seq for event in self.events)

    @cached_property
    def silent(self) -> Silent:
        """Where nothing stands."""
        return Silent(self._marker_seqs)

    @cached_property
    def known(self) -> Ranges:
        """Where it is known what stands: events with a known header, and markers."""
        return union((*self._event_seqs, *self._marker_seqs))

    @cached_property
    def tokens_now(self) -> int:
        """Tokens of a request, with staged folds in use."""
        shown = sum(fold.tokens for fold in self.folds)
        if self.facts.projected_tokens is None:
            return sum(event.tokens for event in self.live) + shown
        staged = sum(
            event.tokens
            for event in self.facts.events
            if self.actual.is_live(event.seq) and not self.index.is_live(event.seq)
        )
        shown_now = sum(fold.tokens for fold in _shown_folds(self.actual, self.facts.markers))
        return self.facts.projected_tokens - staged + shown - shown_now

    def most_saved(self, span: Range) -> int:
        """Return more than a fold of the span can save: a bound that costs little."""
        first, last = (bisect_left(self._live_seqs, seq) for seq in (span[0], span[1] + 1))
        touching = (
            shown.tokens
            for shown in self.folds
            if shown.fold.from_seq <= span[1] and span[0] <= shown.fold.to_seq
        )
        return self._tokens_before[last] - self._tokens_before[first] + sum(touching)

    @cached_property
    def _live_seqs(self) -> Sequence[int]:
        return [event.seq for event in self.live]

    @cached_property
    def _tokens_before(self) -> Sequence[int]:
        return [0, *accumulate(event.tokens for event in self.live)]

    @cached_property
    def last_summary_tokens(self) -> int:
        """What the last summary took: all that is known in advance of the next one."""
        newest = max(self.folds, key=lambda shown: shown.seq, default=None)
        return newest.tokens if newest is not None else 0

    def segments(self, end: int) -> list[Range]:
        """Return the stretches up to a seq in which a span may lie, oldest first."""
        bounds = (0, *self.held, FOREVER)
        stretches = ((low + 1, min(high - 1, end)) for low, high in pairwise(bounds))
        return [(low, high) for low, high in stretches if low <= high]

    def is_inside(self, span: Range) -> bool:
        """Tell whether the span lies strictly inside an active fold, where only live events are
        folded."""
        return any(
            shown.fold.from_seq <= span[0]
            and span[1] <= shown.fold.to_seq
            and (shown.fold.from_seq, shown.fold.to_seq) != span
            for shown in _shown_folds(self.actual, self.facts.markers)
        )

    # What may be folded

    def select(
        self,
        span: Range,
        *,
        seeds: Sequence[ShownFold] = (),
        reads_again: bool = False,
        lanes: frozenset[Lane] | None = None,
    ) -> Selection:
        """Return what a fold of the span would cover: no holes, and no half of a group.

        Args:
            span: closed.
            seeds: folds whose summaries the new one goes on from.
            reads_again: what is folded already is covered too, as far as it is known.
            lanes: only these; None for all.
        """
        wanted = {event.seq: event for event in self._within(self.live, span, lanes)}
        if reads_again:
            wanted.update(
                (event.seq, event) for event in self._within(self.known_masked, span, lanes)
            )
        seeded = self.covered_by(seeds)
        for event in tuple(wanted.values()):
            if event.seq not in wanted:
                continue
            group = self.boundaries.group_of(event.seq)
            is_split = any(self._is_left_out(seq, wanted) for seq in group)
            if is_split or self._lacks_owner(event, wanted, seeded):
                for seq in group:
                    wanted.pop(seq, None)
        ordered = [wanted[seq] for seq in sorted(wanted)]
        selection = Selection(
            live=tuple(event for event in ordered if self.index.is_live(event.seq)),
            again=tuple(event for event in ordered if not self.index.is_live(event.seq)),
            seeds=tuple(seeds),
        )
        if (selection.seeds or selection.again) and self.is_inside(selection.span):
            return self.select(span, lanes=lanes)
        return selection

    def covered_by(self, seeds: Iterable[ShownFold]) -> Ranges:
        """Return what these folds stand for and may be folded on: nothing live, undone or open."""
        covers = union(
            pair for seed in seeds for ranges in seed.covers_by_lane.values() for pair in ranges
        )
        waiting = ((seq, seq) for seq in self.facts.waiting)
        return subtract(covers, union((*self._not_covered, *waiting)))

    def rank_of(self, shown: ShownFold, lane: Lane) -> int:
        """Return how many events a section covers now: what decides between it and others."""
        return self.silent.count_events(subtract(shown.covers_by_lane[lane], self._not_covered))

    @cached_property
    def _not_covered(self) -> Ranges:
        """What later pins opened, and what was rewound."""
        return union((*self.index.live, *self.index.rewound))

    def _within(
        self, events: Iterable[PlanEvent], span: Range, lanes: frozenset[Lane] | None
    ) -> Iterable[PlanEvent]:
        return (
            event
            for event in events
            if span[0] <= event.seq <= span[1]
            and event.seq not in self.hole_reasons
            and event.seq not in self.facts.waiting
            and (lanes is None or event.lane in lanes)
        )

    def _is_left_out(self, seq: int, wanted: Mapping[int, PlanEvent]) -> bool:
        return seq not in wanted and self.index.is_live(seq)

    def _lacks_owner(
        self, event: PlanEvent, wanted: Mapping[int, PlanEvent], seeded: Ranges
    ) -> bool:
        """Tell whether the event answers a call that would not be folded with it."""
        return any(
            owner not in wanted
            and not contains(seeded, owner)
            and not contains(self.index.rewound, owner)
            for owner in event.owner_seqs
            if owner is not None
        )

    # What must stay

    def _open_invocation(self) -> Invocation | None:
        """Return the invocation that began last, unless it is complete."""
        newest = max(self.invocations, key=lambda each: each.first_seq, default=None)
        if newest is None or _is_complete(newest, self.facts.waiting):
            return None
        return newest

    def _hole_reasons(self, *, is_asked: bool) -> dict[int, HoleReason]:
        reasons: dict[int, HoleReason] = {}
        if not is_asked:
            for seqs, why in self._not_again():
                reasons.update((event.seq, why) for event in self.live if contains(seqs, event.seq))
        reasons.update((seq, "held") for seq in self.held)
        reasons.update((seq, "waiting") for seq in self.facts.waiting if self.index.is_live(seq))
        pinned = union((*self.index.pinned, *self._first_seqs()))
        reasons.update((event.seq, "pinned") for event in self.live if contains(pinned, event.seq))
        return reasons

    def _first_seqs(self) -> Ranges:
        """Return the session's first events, which the policy keeps."""
        taken = union((*self._marker_seqs, *self.index.rewound))
        ordinary = subtract(((1, FOREVER),), taken)
        kept: list[Range] = []
        for start, end in ordinary:
            left = self.policy.pin_first - size(tuple(kept))
            if left > 0:
                kept.append((start, min(end, start + left - 1)))
        return tuple(kept)

    def _not_again(self) -> Iterable[tuple[Ranges, Literal["undone", "refused"]]]:
        """Yield what was undone or refused and has not grown since."""
        for covers, since_seq in undone_covers(self.facts):
            if not self.has_grown(since_seq, covers):
                yield covers, "undone"
        for refusal in self.facts.refusals:
            if not self.has_grown(refusal.since_seq, refusal.covers):
                yield refusal.covers, "refused"

    def blocked(self) -> Ranges:
        """Return what was undone or refused and has not grown since."""
        return union(pair for ranges, _ in self._not_again() for pair in ranges)

    def has_grown(self, since_seq: int, covers: Ranges) -> bool:
        """Tell whether the lanes of what is covered have grown by one interval since."""
        lanes = {event.lane for event in self.events if contains(covers, event.seq)} | {
            lane for lane, ranges in self.masked_by_lane.items() if intersect(ranges, covers)
        }
        later = ((since_seq + 1, FOREVER),)
        if any(intersect(self.masked_by_lane.get(lane, EMPTY), later) for lane in lanes):
            # Something newer was folded there: it held an interval, or enough tokens.
            return True
        return self._is_an_interval(
            [event for event in self.live if event.seq > since_seq and event.lane in lanes]
        )

    def _is_an_interval(self, events: Sequence[PlanEvent]) -> bool:
        policy = self.policy
        if policy.strategy in ("interval", "both"):
            open_key = self.open_invocation.key if self.open_invocation is not None else None
            seqs = {event.seq for event in events}
            grown = [
                invocation
                for invocation in self.invocations
                if invocation.key != open_key and any(e.seq in seqs for e in invocation.events)
            ]
            return len(grown) >= policy.compaction_interval
        if policy.strategy == "window":
            return len(events) >= policy.window_size
        trigger = policy.trigger_tokens or policy.context_window
        return sum(event.tokens for event in events) >= GROWTH_RATIO * trigger


def undone_covers(facts: PlanFacts) -> Iterable[tuple[Ranges, int]]:
    """Yield what each undone fold covered, and when it was undone."""
    effective = effective_markers(facts.markers)
    folds = {seq: marker for seq, marker in facts.markers if isinstance(marker, Fold)}
    for seq, marker in facts.markers:
        if isinstance(marker, Undo) and seq in effective and marker.target_seq in folds:
            sections = folds[marker.target_seq].sections
            yield union(pair for section in sections for pair in section.covers), seq


def _belongs(index: Index) -> Iterable[Range]:
    return (pair for section in index.sections for pair in section.belongs)


def _shown_folds(index: Index, markers: Sequence[tuple[int, object]]) -> tuple[ShownFold, ...]:
    """Return the folds of which something is shown, by where they begin."""
    by_seq = {seq: marker for seq, marker in markers if isinstance(marker, Fold)}
    sections: dict[int, list[ShownSection]] = {}
    for section in index.sections:
        sections.setdefault(section.fold_seq, []).append(section)
    shown = (ShownFold(seq, by_seq[seq], tuple(each)) for seq, each in sections.items())
    return tuple(sorted(shown, key=lambda each: (each.fold.from_seq, each.fold.to_seq, each.seq)))


def _invocations(
    events: Iterable[PlanEvent], first_seqs: Mapping[str, int], rewound: Ranges
) -> tuple[Invocation, ...]:
    """Return the invocations in the order in which they began.

    Events without an invocation id, as recorded messages come, are of the one that the last such
    user message began.
    """
    members: dict[str, list[PlanEvent]] = {}
    nameless = ""
    for event in events:
        if contains(rewound, event.seq):
            continue
        if not event.invocation_id and (event.is_user_message or not nameless):
            nameless = f"\x00{event.seq}"
        members.setdefault(event.invocation_id or nameless, []).append(event)
    invocations = (
        Invocation(key, min(first_seqs.get(key, each[0].seq), each[0].seq), tuple(each))
        for key, each in members.items()
    )
    return tuple(sorted(invocations, key=lambda invocation: invocation.first_seq))


def _is_complete(invocation: Invocation, waiting: frozenset[int]) -> bool:
    """Tell whether the newest invocation has ended: nothing of it is open, and it was answered.

    What the agent says before it calls a tool looks like a final response until the call lands;
    planning goes by the last event (API.md, "Invocations", would call it complete).
    """
    if any(event.seq in waiting for event in invocation.events):
        return any(event.completes_invocation for event in invocation.events)
    ended = _ended_seq(invocation, waiting)
    return bool(ended) and all(event.seq <= ended for event in _own_lane(invocation))


def _questions(invocation: Invocation | None, waiting: frozenset[int]) -> Iterable[PlanEvent]:
    """Yield what the user asked and has no final response yet.

    Some callers know only one invocation: what was answered in it is history all the same.
    """
    if invocation is not None:
        ended = _ended_seq(invocation, waiting)
        for event in invocation.events:
            if event.is_user_message and event.seq > ended:
                yield event


def _ended_seq(invocation: Invocation, waiting: frozenset[int]) -> int:
    """Return the last final response after which nothing or the user came, 0 for none."""
    ended = 0
    for event, later in pairwise((*_own_lane(invocation), None)):
        is_final = event is not None and event.is_final and event.seq not in waiting
        if event is not None and (
            event.completes_invocation or (is_final and (later is None or later.is_user_message))
        ):
            ended = event.seq
    return ended


def _own_lane(invocation: Invocation) -> Sequence[PlanEvent]:
    """Return the events in the scope and branch in which the invocation began."""
    lane = invocation.events[0].lane
    return [
        event
        for event in invocation.events
        if (event.lane.isolation_scope, event.lane.branch) == (lane.isolation_scope, lane.branch)
    ]
