"""Levels: once a lane has as many sections of one level side by side as the policy says, their
folds become one of the next."""

from collections import Counter
from collections.abc import Iterable

from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.search import Search
from app.core.compaction.view import PlanView, ShownFold
from app.core.lanes import Lane
from app.core.ranges import intersect


def plan_fanout(search: Search) -> Plan | Nothing:
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
    return Nothing("not_enough_folds", f"no lane has {fanout} folds of one level side by side")


def _siblings(view: PlanView, fanout: int) -> Iterable[list[ShownFold]]:
    """Yield the groups of neighbours of one level in which some lane has ``fanout`` sections,
    lowest level and oldest first.

    By lane: folds that have none in common would stay as many summaries as they are. Lower folds
    between two of them, of what was unfolded and folded again, come along.
    """
    for level in sorted({shown.fold.level for shown in view.folds}):
        run: list[ShownFold] = []
        peers: Counter[Lane] = Counter()
        for shown in view.folds:
            if shown.fold.level > level:
                run, peers = [], Counter()
            elif run or shown.fold.level == level:
                run.append(shown)
                if shown.fold.level == level:
                    peers.update(section.lane for section in shown.sections)
            if max(peers.values(), default=0) >= fanout:
                yield run
                run, peers = [], Counter()
