"""What to fold next, and why nothing is: headers and policy in, span and sections out.

    plan_compaction(facts, policy, moment="interval")

    1 u 2 m | 3 u 4 m | 5 u 6 m        three complete invocations, interval 3
    Plan(from_seq=1, to_seq=6, ...)    a fold of all three

A plan is what a fold would cover if it were appended now. Summaries take time, and whoever appends
compares what the fold then covers with its plan: the log may have moved on.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.core.compaction.facts import PlanEvent, PlanFacts
from app.core.compaction.policy import RECENT_SHARE, CompactionPolicy, Moment
from app.core.compaction.view import GROWTH_RATIO, Invocation, PlanView, Selection, ShownFold
from app.core.contents import Part
from app.core.copying import replace
from app.core.events import FoldRequest, SectionRequest
from app.core.lanes import Lane
from app.core.ranges import (
    FOREVER,
    Range,
    Ranges,
    contains,
    intersect,
    of_seqs,
    subtract,
    union,
)

#: Why nothing is folded. The first that applies, in this order, is told.
Reason: TypeAlias = Literal[
    # The policy does not fold at this moment, or not at all.
    "nothing_due",
    # Nothing is live in the range that was asked for.
    "nothing_live",
    "not_enough_invocations",
    "not_enough_folds",
    "below_threshold",
    # No more is live than the policy keeps.
    "too_few_events",
    # It would free too little to matter; tried again when more has come.
    "no_progress",
    # It holds no more than the last summary took.
    "not_worth_it",
    # All that is left was undone, or refused by the summarizer, and has not grown since.
    "undone_span",
    "refused_span",
    # All that is left belongs to the invocation that is still running.
    "open_invocation",
    # All that is left is pinned, waits for an answer, or would be split.
    "all_protected",
]

#: What a fold by size must free at least, as a part of the trigger: a log that stays over it
#: whatever is folded would be folded anew with every event.
MIN_FREED_RATIO: Final = GROWTH_RATIO
#: A section of a few lines. Lanes of which little is to be told get so much beside large ones.
LEAST_SECTION_TOKENS: Final = 120


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is nothing to fold."""

    reason: Reason
    #: For a person.
    detail: str


@dataclass(frozen=True, slots=True)
class PlannedSection:
    """What is to be said of one lane."""

    lane: Lane
    #: Events to read, after the summaries of the seeds.
    seqs: Ranges
    #: All that the section will stand for: those events, and what the seeds stand for.
    covers: Ranges
    #: Folds whose section for the lane is read in place of what it covers, oldest first.
    seed_fold_seqs: tuple[int, ...]
    #: Of the events and the seeds: what the summary has to be smaller than.
    tokens: int
    #: What is read now in place of the section.
    tokens_before: int = 0
    #: What the summary may take, so that all summaries together leave the request room.
    most_tokens: int = FOREVER
    #: Of the plan's other sections those that hold the calls that events of this one answer.
    call_lanes: frozenset[Lane] = frozenset()

    @property
    def is_carried(self) -> bool:
        """Tell whether it is an earlier section of which nothing new is known."""
        return not self.seqs and len(self.seed_fold_seqs) == 1

    @property
    def is_kept(self) -> bool:
        """Tell whether it is carried as it is: made anew it could only lose something."""
        return self.is_carried and self.tokens <= self.most_tokens

    @property
    def seed_fold_seq(self) -> int | None:
        """The newest seed."""
        return self.seed_fold_seqs[-1] if self.seed_fold_seqs else None

    def request(self, parts: tuple[Part, ...]) -> SectionRequest:
        """Return the section with its summary."""
        return SectionRequest(
            self.lane.isolation_scope,
            self.lane.branch,
            parts,
            tool_names=self.lane.tool_names,
            node_path=self.lane.node_path,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A fold that should be made."""

    from_seq: int
    to_seq: int
    #: By the first event that they cover.
    sections: tuple[PlannedSection, ...]
    level: int
    moment: Moment
    is_staged: bool

    @property
    def tokens_before(self) -> int:
        """What is read now in place of what the fold will show."""
        return sum(section.tokens_before for section in self.sections)

    @property
    def covers(self) -> Ranges:
        """All that the fold will cover."""
        return union(pair for section in self.sections for pair in section.covers)

    def kept(self, lanes: Container[Lane]) -> Sequence[PlannedSection]:
        """Return the sections that can be made when only these lanes have a summary.

        A result is folded with its call or not at all, so some lanes go with others.
        """
        kept = {section.lane: section for section in self.sections if section.lane in lanes}
        planned = {section.lane for section in self.sections}
        while torn := [
            lane for lane, each in kept.items() if (each.call_lanes & planned) - kept.keys()
        ]:
            for lane in torn:
                del kept[lane]
        return tuple(kept.values())

    def fold_request(self, summaries: Mapping[Lane, tuple[Part, ...]]) -> FoldRequest:
        """Return the fold with its summaries; a lane without one stays as it is."""
        kept = self.kept(summaries)
        return FoldRequest(
            from_seq=self.from_seq,
            to_seq=self.to_seq,
            sections=tuple(section.request(summaries[section.lane]) for section in kept),
            seqs=union(pair for section in kept for pair in section.covers),
            level=self.level,
            is_staged=self.is_staged,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRequest:
    """What a caller asks to be folded."""

    from_seq: int | None = None
    to_seq: int | None = None
    #: So many of the newest live events stay.
    keep_last: int | None = None
    #: Only events of this branch; None for all.
    branch: str | None = None


def plan_compaction(
    facts: PlanFacts,
    policy: CompactionPolicy,
    *,
    moment: Moment,
    wanted: RangeRequest | None = None,
    is_asked: bool = False,
) -> Plan | Nothing:
    """Return the next fold, or why there is none.

    Args:
        facts: the log.
        policy: of the session.
        moment: what to look for.
        wanted: for the moment ``range``.
        is_asked: a caller asks for it: whether it is due does not matter, and what was undone may
            be folded again.
    """
    is_asked = is_asked or moment == "range"
    view = PlanView(facts, policy, is_asked=is_asked)
    return _plan_at(view, moment, wanted=wanted, is_asked=is_asked)


def plan_next(facts: PlanFacts, policy: CompactionPolicy) -> Plan | Nothing:
    """Return the next fold of any moment of the policy, or why the first moment has none."""
    nothing: Nothing | None = None
    view = PlanView(facts, policy)
    for moment in policy.moments:
        found = _plan_at(view, moment)
        if isinstance(found, Plan):
            return found
        nothing = nothing or found
    return nothing or Nothing("nothing_due", f"strategy {policy.strategy} folds nothing")


def _plan_at(
    view: PlanView,
    moment: Moment,
    *,
    wanted: RangeRequest | None = None,
    is_asked: bool = False,
) -> Plan | Nothing:
    policy = view.policy
    if moment not in policy.moments and not is_asked:
        return Nothing("nothing_due", f"strategy {policy.strategy} has no moment {moment!r}")
    search = _Search(view, moment, is_asked=is_asked)
    match moment:
        case "interval":
            return _plan_interval(search)
        case "threshold":
            return _plan_by_size(search)
        case "fanout":
            return _plan_fanout(search)
        case "range":
            return _plan_range(search, wanted or RangeRequest())


class _Search:
    """Tries spans one after the other and remembers what spoke against them."""

    def __init__(self, view: PlanView, moment: Moment, *, is_asked: bool) -> None:
        self.view = view
        self.policy = view.policy
        self.moment: Moment = moment
        self.is_asked = is_asked
        self._refused: list[Nothing] = []

    def refuse(self, reason: Reason, detail: str) -> None:
        """Remember why a span is none."""
        self._refused.append(Nothing(reason, detail))

    def nothing(self) -> Nothing:
        """Return what came nearest to a plan."""
        order: Sequence[Reason] = (
            "no_progress",
            "not_worth_it",
            "undone_span",
            "refused_span",
            "open_invocation",
            "all_protected",
        )
        for reason in order:
            for refused in self._refused:
                if refused.reason == reason:
                    return refused
        if self.view.held and all(refused.reason == "nothing_live" for refused in self._refused):
            return Nothing("open_invocation", "all that is live is what the user asks now")
        return self._refused[0] if self._refused else Nothing("nothing_live", "nothing is live")

    def attempt(
        self,
        selection: Selection,
        span: Range,
        *,
        level: int = 1,
        is_enough: Callable[["_Draft"], Nothing | None] | None = None,
        has_worth_check: bool = True,
        tightens: bool = False,
    ) -> Plan | None:
        """Return the plan of a selection unless something speaks against it.

        Args:
            selection: what to fold.
            span: where it was looked for.
            level: of the fold.
            is_enough: says why it is not, of a fold that nobody asks for.
            has_worth_check: it has to hold more than the last summary took.
            tightens: sections of which nothing new is known become shorter too, if they take more
                than their part.
        """
        draft = _Draft(self.view, selection, tightens=tightens)
        if not draft.sections or not (selection.live or tightens or len(selection.seeds) > 1):
            self.refuse(*self._why_empty(span))
            return None
        if has_worth_check and self._is_worthless(draft):
            last = self.view.last_summary_tokens
            self.refuse(
                "not_worth_it",
                f"{draft.saved_tokens} tokens could be saved, and the last summary took {last}",
            )
            return None
        refused = None if is_enough is None or self.is_asked else is_enough(draft)
        if refused is not None:
            self._refused.append(refused)
            return None
        return draft.plan(level=level, moment=self.moment, is_staged=self.policy.is_staged)

    def cuts(self, end: int) -> Iterator[int]:
        """Yield where a span that should end here may end, the best first.

        Last of all it ends here whatever it splits: what would be split stays as a hole.
        """
        boundaries = self.view.boundaries
        seen: set[int] = set()
        for cut in (
            boundaries.latest_cut(end),
            boundaries.latest_cut(end, may_split_loops=True),
            end,
        ):
            if cut not in seen:
                seen.add(cut)
                yield cut

    def _is_worthless(self, draft: "_Draft") -> bool:
        if not self.policy.has_worth_check or self.moment == "range":
            return False
        return draft.saved_tokens <= self.view.last_summary_tokens

    def _why_empty(self, span: Range) -> tuple[Reason, str]:
        """Return why nothing in a span may be folded."""
        stays: dict[str, int] = {}
        live = [event for event in self.view.live if span[0] <= event.seq <= span[1]]
        for event in live:
            why = self.view.hole_reasons.get(event.seq, "split")
            stays[why] = stays.get(why, 0) + 1
        told = ", ".join(f"{count} {why}" for why, count in sorted(stays.items()))
        detail = f"of {len(live)} live events from {span[0]} to {_named(span[1])}: {told or 'none'}"
        if "undone" in stays:
            return "undone_span", detail
        if "refused" in stays:
            return "refused_span", detail
        if not live:
            return "nothing_live", detail
        return "all_protected", detail


def _named(seq: int) -> str:
    return "the head" if seq >= FOREVER else str(seq)


class _Draft:
    """A selection as a fold: its sections, and what they would save."""

    def __init__(self, view: PlanView, selection: Selection, *, tightens: bool = False) -> None:
        self._view = view
        self._tightens = tightens
        self.selection = selection
        self.sections = tuple(self._sections())

    def _sections(self) -> Iterator[PlannedSection]:
        read: dict[Lane, list[PlanEvent]] = {}
        for event in sorted((*self.selection.again, *self.selection.live), key=_by_seq):
            read.setdefault(event.lane, []).append(event)
        seeds: dict[Lane, list[ShownFold]] = {}
        for seed in self.selection.seeds:
            for lane in seed.tokens_by_lane:
                seeds.setdefault(lane, []).append(seed)
        carried = self._view.covered_by(self.selection.seeds)
        sections = [
            self._section(lane, read.get(lane, []), seeds.get(lane, []), carried)
            for lane in {**read, **seeds}
        ]
        told = self._with_call_lanes([section for section in sections if section.covers])
        yield from sorted(told, key=lambda section: section.covers[0])

    def _with_call_lanes(self, sections: Sequence[PlannedSection]) -> Sequence[PlannedSection]:
        """Name for each section the others that hold the calls that its events answer."""
        owners: dict[Lane, set[int]] = {}
        for event in (*self.selection.again, *self.selection.live):
            owners.setdefault(event.lane, set()).update(o for o in event.owner_seqs if o)
        return [
            replace(
                section,
                call_lanes=frozenset(
                    other.lane
                    for other in sections
                    if other.lane != section.lane
                    and any(contains(other.covers, o) for o in owners.get(section.lane, ()))
                ),
            )
            for section in sections
        ]

    def _section(
        self,
        lane: Lane,
        read: Sequence[PlanEvent],
        seeds: Sequence[ShownFold],
        carried: Ranges,
    ) -> PlannedSection:
        seqs = of_seqs(event.seq for event in read)
        seeded = union(pair for seed in seeds for pair in seed.covers_by_lane[lane])
        covers = self._view.silent.bridge(union((*seqs, *intersect(seeded, carried))))
        return PlannedSection(
            lane=lane,
            seqs=seqs,
            covers=covers,
            seed_fold_seqs=tuple(seed.seq for seed in seeds),
            tokens=sum(event.tokens for event in read)
            + sum(seed.tokens_by_lane[lane] for seed in seeds),
            tokens_before=sum(e.tokens for e in read if self._view.index.is_live(e.seq))
            + self._superseded_tokens(lane, covers),
        )

    def _superseded_tokens(self, lane: Lane, covers: Ranges) -> int:
        """Tokens of the lane's sections that would be shown no more."""
        return sum(
            shown.tokens_by_lane[lane]
            for shown in self._view.folds
            for section in shown.sections
            if section.lane == lane
            and not subtract(section.belongs, covers)
            and self._view.rank_of(shown, lane) <= self._view.silent.count_events(covers)
        )

    @property
    def most_tokens(self) -> int:
        """What all sections together may take."""
        superseded = self.saved_tokens - self.freed_tokens
        others = sum(shown.tokens for shown in self._view.folds) - superseded
        staying = sum(section.tokens for section in self.sections if self._stays(section))
        return staying + self._view.policy.most_summary_tokens(others + staying)

    def _stays(self, section: PlannedSection) -> bool:
        return section.is_carried and not self._tightens

    def _shared_out(self) -> tuple[PlannedSection, ...]:
        """Let every section take its part of what all may take, by what it stands for.

        Each gets as much as a short one needs, as long as there is enough for all.
        """
        made = [section for section in self.sections if not self._stays(section)]
        staying = sum(section.tokens for section in self.sections if self._stays(section))
        most = self.most_tokens - staying
        least = LEAST_SECTION_TOKENS if LEAST_SECTION_TOKENS * len(made) <= most else 0
        total = max(1, sum(section.tokens for section in made))
        left = most - least * len(made)
        return tuple(
            replace(
                section,
                most_tokens=section.tokens
                if self._stays(section)
                else max(1, least + left * section.tokens // total),
            )
            for section in self.sections
        )

    @property
    def freed_tokens(self) -> int:
        """Tokens of live events that would be folded."""
        return self.selection.live_tokens

    @property
    def saved_tokens(self) -> int:
        """What a summary of no length would save."""
        return sum(section.tokens_before for section in self.sections)

    def plan(self, *, level: int, moment: Moment, is_staged: bool) -> Plan:
        from_seq, to_seq = self.selection.span
        return Plan(
            from_seq=from_seq,
            to_seq=to_seq,
            sections=self._shared_out(),
            level=level,
            moment=moment,
            is_staged=is_staged,
        )


def _by_seq(event: PlanEvent) -> int:
    return event.seq


# Interval


def _plan_interval(search: _Search) -> Plan | Nothing:
    """Fold the oldest run of new complete invocations that is long enough.

    A window holds as many new invocations as the interval says; more only where so few are not
    worth a summary.
    """
    policy = search.policy
    least = 1 if search.is_asked else policy.compaction_interval
    runs = _new_runs(search.view)
    for run in runs:
        start, end = _window_start(search.view, run[0]), 0
        for count, invocation in enumerate(run, start=1):
            end = max(end, invocation.events[-1].seq)
            if count < min(policy.compaction_interval, len(run)) or count < least:
                continue
            plan = _plan_window(search, (start, end))
            if plan is not None:
                return plan
    longest = max(map(len, runs), default=0)
    if longest < least:
        return _too_few_invocations(search.view, longest, least)
    return search.nothing()


def _too_few_invocations(view: PlanView, longest: int, least: int) -> Nothing:
    undone = sorted(seq for seq, why in view.hole_reasons.items() if why in ("undone", "refused"))
    detail = f"{longest} new complete invocations in a row, of {least}"
    if undone and view.hole_reasons[undone[0]] == "undone":
        return Nothing("undone_span", f"{detail}; {len(undone)} events were unfolded not long ago")
    if undone:
        return Nothing("refused_span", f"{detail}; {len(undone)} events were refused not long ago")
    if view.open_invocation is not None and longest + 1 == least:
        return Nothing("open_invocation", f"{detail}; one is still running")
    return Nothing("not_enough_invocations", detail)


def _plan_window(search: _Search, window: Range) -> Plan | None:
    view = search.view
    start, end = window
    end = min([end, *(seq - 1 for seq in view.held if seq > start)])
    if search.policy.has_worth_check and view.most_saved((start, end)) <= view.last_summary_tokens:
        search.refuse("not_worth_it", f"{start} to {end} holds no more than the last summary took")
        return None
    for cut in search.cuts(end):
        selection = view.select((start, cut), reads_again=True)
        if selection.live:
            # If it is not worth it, a shorter one is not either.
            return search.attempt(selection, (start, cut))
    search.refuse("all_protected", f"from {start} to {end} all would be split or has to stay")
    return None


def _window_start(view: PlanView, first: Invocation) -> int:
    """Return where a window begins that overlaps with what is folded.

    Only as far as every event on the way is known, or the overlap would leap over some.
    """
    position = view.invocations.index(first)
    start = first.events[0].seq
    for earlier in reversed(
        view.invocations[max(0, position - view.policy.overlap_size) : position]
    ):
        at = min(start, earlier.events[0].seq)
        if subtract(intersect(view.masked, ((at, start),)), view.known):
            break
        start = at
    return start


def _new_runs(view: PlanView) -> list[list[Invocation]]:
    """Return the stretches of complete invocations whose end is not folded yet, oldest first."""
    runs: list[list[Invocation]] = []
    last: Invocation | None = None
    for invocation in view.invocations:
        if view.open_invocation is not None and invocation.key == view.open_invocation.key:
            continue
        is_new = _is_new(view, invocation)
        if is_new and last is not None and not _is_apart(view, last, invocation):
            runs[-1].append(invocation)
        elif is_new:
            runs.append([invocation])
        last = invocation if is_new else None
    return runs


def _is_new(view: PlanView, invocation: Invocation) -> bool:
    for event in reversed(invocation.events):
        if not view.index.is_live(event.seq):
            return False
        if event.seq not in view.hole_reasons:
            return True
    return False


def _is_apart(view: PlanView, before: Invocation, after: Invocation) -> bool:
    """Tell whether something is folded between two invocations."""
    between = ((before.events[-1].seq, after.events[0].seq),)
    lanes = {event.lane for event in after.events}
    return any(intersect(view.masked_by_lane.get(lane, ()), between) for lane in lanes)


# By size: threshold, window and auto


def _plan_by_size(search: _Search) -> Plan | Nothing:
    view, policy = search.view, search.policy
    trigger = policy.trigger_tokens
    if trigger is not None and view.tokens_now < trigger and not search.is_asked:
        detail = f"{view.tokens_now} tokens, folding begins at {trigger}"
        return Nothing("below_threshold", detail)
    keep = _kept_events(view)
    if len(view.live) <= keep:
        search.refuse("too_few_events", f"{len(view.live)} live events, {keep} are kept")
        end = 0
    else:
        end = view.live[len(view.live) - keep - 1].seq
    plan = _plan_auto(search, end) if policy.strategy == "auto" else _plan_rolling(search, end)
    return plan or search.nothing()


def _kept_events(view: PlanView) -> int:
    """Return how many of the newest live events stay."""
    policy = view.policy
    match policy.strategy:
        case "threshold" | "both":
            return policy.event_retention_size
        case "window":
            return policy.window_size
        case _:
            return _recent_events(view)


def _recent_events(view: PlanView) -> int:
    """Return how many of the newest events ``auto`` keeps: as many as the policy says, but no more
    than fit into a part of the window. What the model has not answered yet is kept whole."""
    left = RECENT_SHARE * view.policy.full_tokens
    kept = 0
    newest = view.boundaries.group_of(view.live[-1].seq) if view.live else ()
    for event in reversed(view.live[-view.policy.preserve_recent :]):
        left -= event.tokens
        if left < 0 and event.seq not in newest:
            break
        kept += 1
    return min(kept, view.policy.preserve_recent)


def _frees_enough(search: _Search) -> Callable[[_Draft], Nothing | None]:
    trigger = search.policy.trigger_tokens or 0

    def check(draft: _Draft) -> Nothing | None:
        if draft.freed_tokens >= MIN_FREED_RATIO * trigger:
            return None
        detail = f"{draft.freed_tokens} tokens would be freed, of {trigger} that begin a fold"
        return Nothing("no_progress", detail)

    return check


def _plan_rolling(search: _Search, end: int) -> Plan | None:
    """Fold what is older than what is kept, going on from the last summary."""
    for start, stop in search.view.segments(end):
        for cut in _size_cuts(search, stop):
            seeds = _seeds(search, (start, cut))
            plan = _plan_seeded(search, (start, cut), seeds, is_enough=_frees_enough(search))
            if plan is not None:
                return plan
    return None


def _size_cuts(search: _Search, end: int) -> Iterator[int]:
    """Yield where to cut: a window is a bound, so there the cut moves on rather than back."""
    if search.policy.strategy == "window":
        view = search.view
        last_group = view.boundaries.group_of(view.live[-1].seq)[0] if view.live else 0
        for may_split_loops in (False, True):
            cut = view.boundaries.earliest_cut(end, may_split_loops=may_split_loops)
            if cut < last_group and not any(end < seq <= cut for seq in view.held):
                yield cut
    yield from search.cuts(end)


def _seeds(search: _Search, span: Range) -> Sequence[ShownFold]:
    """Return the folds that a rolling fold goes on from.

    With intervals beside it that is the newest, as in ADK; their levels take the others together.
    """
    within = [shown for shown in search.view.folds if shown.is_within(span)]
    if search.policy.strategy == "both" and within:
        return [max(within, key=lambda shown: shown.seq)]
    return within


def _plan_seeded(
    search: _Search,
    span: Range,
    seeds: Sequence[ShownFold],
    *,
    is_enough: Callable[[_Draft], Nothing | None],
    lanes: frozenset[Lane] | None = None,
    tightens: bool = False,
) -> Plan | None:
    """Fold a span, going on from these folds and from all that then lie in between."""
    view = search.view
    plain = view.select(span, lanes=lanes)
    starts = [*(seed.fold.from_seq for seed in seeds), *(event.seq for event in plain.live[:1])]
    if not starts:
        search.attempt(plain, span)
        return None
    inner = (min(starts), span[1])
    seeds = [
        shown
        for shown in view.folds
        if shown.is_within(inner) and (lanes is None or lanes & shown.tokens_by_lane.keys())
    ]
    selection = view.select(inner, seeds=seeds, lanes=lanes)
    level = max((seed.fold.level for seed in selection.seeds), default=1)
    return search.attempt(
        selection,
        span,
        level=level,
        is_enough=is_enough,
        has_worth_check=not tightens,
        tightens=tightens,
    )


def _plan_auto(search: _Search, end: int) -> Plan | None:
    """Fold the oldest stretch that takes enough of what is there, beside the folds before it; when
    there is none, summaries and what is between them; when that frees too little as well, any
    stretch that frees something, though the last summary took more."""
    return (
        _plan_run(search, end)
        or _plan_squeeze(search, end)
        or _plan_run(search, end, has_worth_check=False)
    )


def _plan_run(search: _Search, end: int, *, has_worth_check: bool = True) -> Plan | None:
    target = search.policy.summary_ratio * search.view.tokens_now
    for run in _live_runs(search.view, end):
        for cut in _auto_cuts(search, run, target):
            span = (run[0].seq, cut)
            plan = search.attempt(
                search.view.select(span),
                span,
                is_enough=_frees_enough(search),
                has_worth_check=has_worth_check,
            )
            if plan is not None:
                return plan
    return None


def _auto_cuts(search: _Search, run: Sequence[PlanEvent], target: float) -> Iterator[int]:
    """Yield where to end: where enough is taken, and where all is."""
    taken, wanted, last = 0, run[-1].seq, run[-1].seq
    for event in run:
        taken += event.tokens if event.seq not in search.view.hole_reasons else 0
        if taken >= target:
            wanted = event.seq
            break
    boundaries = search.view.boundaries
    yield boundaries.latest_cut(wanted)
    for may_split_loops in (False, True):
        cut = boundaries.earliest_cut(wanted, may_split_loops=may_split_loops)
        if cut <= last:
            yield cut
    yield from search.cuts(last)


def _live_runs(view: PlanView, end: int) -> Iterable[list[PlanEvent]]:
    """Yield live events up to a seq, oldest first, parted where something is folded or held."""
    run: list[PlanEvent] = []
    last_by_lane: dict[Lane, int] = {}
    held = of_seqs(view.held)
    for event in view.live:
        if event.seq > end:
            break
        between = ((last_by_lane.get(event.lane, event.seq), event.seq),)
        masked = view.masked_by_lane.get(event.lane, ())
        is_apart = bool(intersect(masked, between)) or contains(held, event.seq)
        if is_apart and run:
            yield run
        if is_apart:
            run, last_by_lane = [], {}
        if not contains(held, event.seq):
            run.append(event)
            last_by_lane[event.lane] = event.seq
    if run:
        yield run


def _plan_squeeze(search: _Search, end: int) -> Plan | None:
    """Fold summaries and what stands between them, when nothing else frees enough.

    This is what keeps a request bounded: summaries that have come to take too much become one that
    takes no more than it may.
    """
    view = search.view
    least = MIN_FREED_RATIO * (search.policy.trigger_tokens or 0)
    blocked = view.blocked() if not search.is_asked else ()

    def is_enough(draft: _Draft) -> Nothing | None:
        # The new summary takes about as much as the largest that it replaces, unless it may not.
        largest = max((seed.tokens for seed in draft.selection.seeds), default=0)
        freed = draft.saved_tokens - min(largest, draft.most_tokens)
        if draft.selection.seeds and freed >= least:
            return None
        return Nothing("no_progress", f"{freed} tokens would be freed, {least:g} are worth a fold")

    for start, stop in view.segments(max([end, *(shown.fold.to_seq for shown in view.folds)])):
        seeds = [shown for shown in view.folds if shown.is_within((start, stop))]
        if intersect(view.covered_by(seeds), blocked):
            search.refuse("refused_span", f"from {start} to {stop} was undone or refused")
            continue
        plan = (
            _plan_seeded(search, (start, stop), seeds, is_enough=is_enough, tightens=True)
            if seeds
            else None
        )
        if plan is not None:
            return plan
    return None


# Levels


def _plan_fanout(search: _Search) -> Plan | Nothing:
    """Make one fold of the oldest folds of one level that stand side by side."""
    view, fanout = search.view, search.policy.fanout
    blocked = view.blocked() if not search.is_asked else ()
    for group in _siblings(view, fanout):
        span = (group[0].fold.from_seq, max(shown.fold.to_seq for shown in group))
        if any(span[0] <= seq <= span[1] for seq in view.held):
            search.refuse("open_invocation", f"{span[0]} to {span[1]} holds what the user asks")
            continue
        if intersect(view.covered_by(group), blocked):
            search.refuse("undone_span", f"from {span[0]} to {span[1]} was undone or refused")
            continue
        selection = view.select(span, seeds=group)
        level = max(shown.fold.level for shown in group) + 1
        plan = search.attempt(selection, span, level=level) if selection.seeds else None
        if plan is not None:
            return plan
    refused = search.nothing()
    if refused.reason != "nothing_live":
        return refused
    return Nothing("not_enough_folds", f"fewer than {fanout} folds of one level side by side")


def _siblings(view: PlanView, fanout: int) -> Iterable[list[ShownFold]]:
    """Yield the groups of ``fanout`` neighbours of one level, lowest level and oldest first.

    Lower folds between two of them, of what was unfolded and folded again, come along.
    """
    for level in sorted({shown.fold.level for shown in view.folds}):
        run: list[ShownFold] = []
        peers = 0
        for shown in view.folds:
            if shown.fold.level > level:
                run, peers = [], 0
            elif run or shown.fold.level == level:
                run.append(shown)
                peers += shown.fold.level == level
            if peers == fanout:
                yield run
                run, peers = [], 0


# What a caller asks for


def _plan_range(search: _Search, wanted: RangeRequest) -> Plan | Nothing:
    view = search.view
    lanes = _lanes_of(view, wanted.branch)
    live = [event for event in view.live if lanes is None or event.lane in lanes]
    end = view.facts.head_seq if wanted.to_seq is None else wanted.to_seq
    if wanted.keep_last:
        kept = live[-wanted.keep_last :]
        end = min(end, kept[0].seq - 1) if kept else 0
    start = wanted.from_seq or 1
    for low, high in view.segments(end):
        for cut in search.cuts(high):
            span = (max(low, start), cut)
            seeds = [shown for shown in view.folds if shown.is_within(span)]
            plan = _plan_seeded(search, span, seeds, is_enough=_anything, lanes=lanes)
            if plan is not None:
                return plan
    return search.nothing()


def _anything(_: _Draft) -> None:
    return None


def _lanes_of(view: PlanView, branch: str | None) -> frozenset[Lane] | None:
    if branch is None:
        return None
    return frozenset(event.lane for event in view.events if event.lane.branch == branch)
