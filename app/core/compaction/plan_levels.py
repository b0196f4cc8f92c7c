"""Levels: as many folds of one level as the policy says, side by side, become one of the next."""

from collections.abc import Iterable

from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.search import Search
from app.core.compaction.view import PlanView, ShownFold
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
