"""What to fold next, and why nothing is: headers and policy in, span and sections out.

    plan_compaction(facts, policy, moment="interval")

    1 u 2 m | 3 u 4 m | 5 u 6 m        three complete invocations, interval 3
    Plan(from_seq=1, to_seq=6, ...)    a fold of all three

A plan is what a fold would cover if it were appended now. Summaries take time, and whoever appends
compares what the fold then covers with its plan: the log may have moved on.
"""

from dataclasses import dataclass

from app.core.compaction.draft import Draft
from app.core.compaction.facts import PlanFacts
from app.core.compaction.plan_by_size import plan_by_size, plan_seeded
from app.core.compaction.plan_interval import plan_interval
from app.core.compaction.plan_levels import plan_fanout
from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.policy import CompactionPolicy, Moment
from app.core.compaction.search import Search
from app.core.compaction.view import PlanView
from app.core.lanes import Lane


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
    search = Search(view, moment, is_asked=is_asked)
    match moment:
        case "interval":
            return plan_interval(search)
        case "threshold":
            return plan_by_size(search)
        case "fanout":
            return plan_fanout(search)
        case "range":
            return _plan_range(search, wanted or RangeRequest())


def _plan_range(search: Search, wanted: RangeRequest) -> Plan | Nothing:
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
            plan = plan_seeded(search, span, seeds, is_enough=_anything, lanes=lanes)
            if plan is not None:
                return plan
    return search.nothing()


def _anything(_: Draft) -> None:
    return None


def _lanes_of(view: PlanView, branch: str | None) -> frozenset[Lane] | None:
    if branch is None:
        return None
    return frozenset(event.lane for event in view.events if event.lane.branch == branch)
