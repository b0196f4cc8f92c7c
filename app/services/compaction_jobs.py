"""What a compaction job asks for: as the policy says, or as a caller does."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, TypeAlias

from app.core.canonical import Json
from app.core.compaction.facts import PlanFacts
from app.core.compaction.plan import RangeRequest, plan_compaction, plan_next
from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.policy import CompactionPolicy, Moment

#: The kind of the jobs that follow a policy, and of those that a caller asks for.
COMPACT: Final = "compact"
COMPACT_ASKED: Final = "compact_asked"
KINDS: Final = (COMPACT, COMPACT_ASKED)

Mode: TypeAlias = Literal["auto", "interval", "threshold", "range"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The payload of a job."""

    #: None: what the policy finds due.
    mode: Mode | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    keep_last: int | None = None
    branch: str | None = None
    #: In place of the policy's.
    summarizer: Mapping[str, Json] | None = None
    #: Of a whole request, where a compile made the job.
    projected_tokens: int | None = None
    #: What such a request may take, as far as it is known.
    window_tokens: int | None = None
    #: Why the job was made; for the record.
    reason: str | None = None

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "Asked":
        """Return what a payload asks for; what a later release adds to it is passed over."""
        known = {each.name for each in fields(cls)}
        return cls(**{key: value for key, value in payload.items() if key in known})

    @property
    def payload(self) -> dict[str, Json]:
        """What is stored with the job: what was said, and no more."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def plan(self, facts: PlanFacts, policy: CompactionPolicy) -> Plan | Nothing:
        """Return the fold that is asked for, or why there is none."""
        if self.mode is None:
            return plan_next(facts, policy)
        if self.mode == "range":
            wanted = RangeRequest(
                from_seq=self.from_seq,
                to_seq=self.to_seq,
                keep_last=self.keep_last,
                branch=self.branch,
            )
            return plan_compaction(facts, policy, moment="range", wanted=wanted)
        found: Plan | Nothing | None = None
        for moment in self._moments(self.mode, policy):
            if found is None or isinstance(found, Nothing):
                plan = plan_compaction(facts, policy, moment=moment, is_asked=True)
                found = plan if found is None or isinstance(plan, Plan) else found
        assert found is not None
        return found

    @staticmethod
    def _moments(
        mode: Literal["auto", "interval", "threshold"], policy: CompactionPolicy
    ) -> tuple[Moment, ...]:
        # By size is how a session without a strategy of its own is folded on request.
        return (policy.moments or ("threshold",)) if mode == "auto" else (mode,)
