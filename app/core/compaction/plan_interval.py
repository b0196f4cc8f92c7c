"""Folds by count: every so many complete invocations, with an overlap (``spec/ADK.md`` C).

interval 3, overlap 1        1 u 2 m | 3 u 4 m | 5 u 6 m | 7 u 8 m | 9 u 10 m | 11 u 12 m
first fold                   1 ................... 6
second fold                                5 ..................................... 12
"""

from collections.abc import Sequence

from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.search import Search
from app.core.compaction.view import Invocation, PlanView
from app.core.ranges import Range, contains, intersect, subtract, union


def plan_interval(search: Search) -> Plan | Nothing:
    """Fold the oldest run of new complete invocations that is long enough.

    A window holds as many new invocations as the interval says; more only where so few are not
    worth a summary, or where theirs was refused beside what the overlap reads again.
    """
    policy = search.policy
    least = 1 if search.is_asked else policy.compaction_interval
    runs = _new_runs(search.view)
    for run in runs:
        start, end = _window_start(search.view, run[0]), 0
        wanted = policy.compaction_interval
        if start < run[0].events[0].seq:
            # What is read again weighs less beside more that is new: the same would be refused.
            wanted += _refused_before(search.view, run)
        for count, invocation in enumerate(run, start=1):
            end = max(end, invocation.events[-1].seq)
            if count < min(wanted, len(run)) or count < least:
                continue
            plan = _plan_window(search, (start, end))
            if plan is not None:
                return plan
    longest = max(map(len, runs), default=0)
    if longest < least:
        return _too_few_invocations(search.view, longest, least)
    return search.nothing()


def _refused_before(view: PlanView, run: Sequence[Invocation]) -> int:
    """Return how many invocations at the beginning of a run were in a plan that was refused."""
    refused = union(pair for refusal in view.facts.refusals for pair in refusal.covers)
    is_new = (
        any(
            view.index.is_live(event.seq) and not contains(refused, event.seq)
            for event in each.events
        )
        for each in run
    )
    return next((count for count, new in enumerate(is_new) if new), len(run))


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


def _plan_window(search: Search, window: Range) -> Plan | None:
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
