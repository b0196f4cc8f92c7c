"""Golden cases of the planner: events and a policy, what is folded step by step, and why no more.

    why: what the case shows
    events: |                         # as for the passes
      user("find it")
      model("found")
    policy:
      strategy: auto
    tokens: 100                       # of each part whose event does not say; may be left out
    summary: 20                       # of each section that is made; may be left out
    moment: interval                  # the only moment that is looked at; may be left out
    expected: |
      fold 1-4 by threshold, level 1
        reads 1-4, covers 1-4: 400 tokens, at most 425
      nothing: below_threshold: ...

What is planned is appended, and planned again, until nothing is. ``--update-golden`` writes the
expected lines anew.
"""

from collections.abc import Iterator
from typing import Any, Final

from app.core.compaction.planned import Nothing, Plan, PlannedSection
from app.core.compaction.policy import CompactionPolicy
from app.core.copying import replace
from app.core.events import Event
from app.core.printing import lane_text, ranges_text
from app.core.ranges import FOREVER
from tests.builders import rough_tokens
from tests.golden.runner import CASES, PLANS, Case
from tests.planning import Session, policy

DEFAULT_TOKENS: Final = 100
DEFAULT_SUMMARY_TOKENS: Final = 20
MAX_PLANS: Final = 20


class PlanCase(Case):
    """One file of the planner."""

    def session(self) -> Session:
        """Return the log of the case."""
        return Session(*(self._sized(event) for event in self.events()))

    @property
    def policy(self) -> CompactionPolicy:
        """The policy of the case."""
        return policy(**self.values["policy"])

    def run(self) -> list[str]:
        """Return what is to be compared with the file."""
        return list(self._planned(self.session()))

    def _planned(self, session: Session) -> Iterator[str]:
        moment = self.values.get("moment")
        known: dict[str, Any] = {}
        if "projected" in self.values:
            known["projected_tokens"] = self.values["projected"]
        for _ in range(MAX_PLANS):
            plan = session.plan(self.policy, moment, **known)
            if isinstance(plan, Nothing):
                yield f"nothing: {plan.reason}: {plan.detail}"
                return
            yield from plan_lines(plan)
            session.fold(plan, tokens=self.values.get("summary", DEFAULT_SUMMARY_TOKENS))
        raise AssertionError("it does not end")

    def _sized(self, event: Event) -> Event:
        tokens = self.values.get("tokens", DEFAULT_TOKENS)
        is_said = event.part_tokens != tuple(map(rough_tokens, event.parts))
        return event if is_said else replace(event, part_tokens=(tokens,) * len(event.parts))


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a plan as one would tell it."""
    staged = ", staged" if plan.is_staged else ""
    yield f"fold {plan.from_seq}-{plan.to_seq} by {plan.moment}, level {plan.level}{staged}"
    for section in plan.sections:
        yield f"  {_section_text(section)}"


def _section_text(section: PlannedSection) -> str:
    seeds = ", ".join(map(str, section.seed_fold_seqs))
    reads = [f"reads {ranges_text(section.seqs)}"] if section.seqs else []
    reads += [f"goes on from {seeds}"] if seeds else []
    if section.is_kept:
        reads = [f"keeps what {seeds} says"]
    most = f", at most {section.most_tokens}" if section.most_tokens < FOREVER else ""
    return (
        f"{' and '.join(reads)}, covers {ranges_text(section.covers)}{lane_text(section.lane)}: "
        f"{section.tokens} tokens{most}"
    )


def all_plan_cases() -> list[PlanCase]:
    """Return every case, by path."""
    return [PlanCase(path) for path in sorted((CASES / PLANS).glob("*.yaml"))]
