"""Folds by size: ``threshold``, ``window`` and ``auto`` take what is older than what they keep.

threshold, window    the last summary and all that came since, up to what is kept
auto                 the oldest stretch that takes enough; then summaries together; then any
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from app.core.compaction.draft import Draft
from app.core.compaction.facts import PlanEvent
from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.policy import RECENT_SHARE
from app.core.compaction.search import Search
from app.core.compaction.view import GROWTH_RATIO, PlanView, ShownFold
from app.core.lanes import Lane
from app.core.ranges import Range, contains, intersect, of_seqs

#: What a fold by size must free at least, as a part of the trigger: a log that stays over it
#: whatever is folded would be folded anew with every event.
MIN_FREED_RATIO: Final = GROWTH_RATIO


def plan_by_size(search: Search) -> Plan | Nothing:
    """Fold when the trigger is passed, or when a caller asks, all that is older than is kept."""
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


def _frees_enough(search: Search) -> Callable[[Draft], Nothing | None]:
    trigger = search.policy.trigger_tokens or 0

    def check(draft: Draft) -> Nothing | None:
        if draft.freed_tokens >= MIN_FREED_RATIO * trigger:
            return None
        detail = f"{draft.freed_tokens} tokens would be freed, of {trigger} that begin a fold"
        return Nothing("no_progress", detail)

    return check


def _plan_rolling(search: Search, end: int) -> Plan | None:
    """Fold what is older than what is kept, going on from the last summary."""
    for start, stop in search.view.segments(end):
        for cut in _size_cuts(search, stop):
            seeds = _seeds(search, (start, cut))
            plan = plan_seeded(search, (start, cut), seeds, is_enough=_frees_enough(search))
            if plan is not None:
                return plan
    return None


def _size_cuts(search: Search, end: int) -> Iterator[int]:
    """Yield where to cut: a window is a bound, so there the cut moves on rather than back."""
    if search.policy.strategy == "window":
        view = search.view
        last_group = view.boundaries.group_of(view.live[-1].seq)[0] if view.live else 0
        for may_split_loops in (False, True):
            cut = view.boundaries.earliest_cut(end, may_split_loops=may_split_loops)
            if cut < last_group and not any(end < seq <= cut for seq in view.held):
                yield cut
    yield from search.cuts(end)


def _seeds(search: Search, span: Range) -> Sequence[ShownFold]:
    """Return the folds that a rolling fold goes on from.

    With intervals beside it that is the newest, as in ADK; their levels take the others together.
    """
    within = [shown for shown in search.view.folds if shown.is_within(span)]
    if search.policy.strategy == "both" and within:
        return [max(within, key=lambda shown: shown.seq)]
    return within


def plan_seeded(
    search: Search,
    span: Range,
    seeds: Sequence[ShownFold],
    *,
    is_enough: Callable[[Draft], Nothing | None],
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


def _plan_auto(search: Search, end: int) -> Plan | None:
    """Fold the oldest stretch that takes enough of what is there, beside the folds before it; when
    there is none, summaries and what is between them; when that frees too little as well, any
    stretch that frees something, though the last summary took more."""
    return (
        _plan_run(search, end)
        or _plan_squeeze(search, end)
        or _plan_run(search, end, has_worth_check=False)
    )


def _plan_run(search: Search, end: int, *, has_worth_check: bool = True) -> Plan | None:
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


def _auto_cuts(search: Search, run: Sequence[PlanEvent], target: float) -> Iterator[int]:
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


def _plan_squeeze(search: Search, end: int) -> Plan | None:
    """Fold summaries and what stands between them, when nothing else frees enough.

    This is what keeps a request bounded: summaries that have come to take too much become one that
    takes no more than it may.
    """
    view = search.view
    least = MIN_FREED_RATIO * (search.policy.trigger_tokens or 0)
    blocked = view.blocked() if not search.is_asked else ()

    def is_enough(draft: Draft) -> Nothing | None:
        # The new summary takes in each lane about as much as the largest that it replaces there,
        # unless it may not.
        largest: dict[Lane, int] = {}
        for seed in draft.selection.seeds:
            for lane, tokens in seed.tokens_by_lane.items():
                largest[lane] = max(tokens, largest.get(lane, 0))
        freed = draft.saved_tokens - min(sum(largest.values()), draft.most_tokens)
        if draft.selection.seeds and freed >= least:
            return None
        return Nothing("no_progress", f"{freed} tokens would be freed, {least:g} are worth a fold")

    for start, stop in view.segments(max([end, *(shown.fold.to_seq for shown in view.folds)])):
        seeds = [shown for shown in view.folds if shown.is_within((start, stop))]
        if intersect(view.covered_by(seeds), blocked):
            search.refuse("refused_span", f"from {start} to {stop} was undone or refused")
            continue
        plan = (
            plan_seeded(search, (start, stop), seeds, is_enough=is_enough, tightens=True)
            if seeds
            else None
        )
        if plan is not None:
            return plan
    return None
