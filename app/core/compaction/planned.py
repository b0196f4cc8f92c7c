"""What a plan says: the span, and of each lane what is to be summarized; or why there is none."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.core.compaction.policy import Moment
from app.core.contents import Part
from app.core.events import FoldRequest, SectionRequest
from app.core.lanes import Lane
from app.core.ranges import FOREVER, Range, Ranges, union

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
    #: What a fold of this section alone spans.
    span: Range
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

    #: By the first event that they cover; at least one.
    sections: tuple[PlannedSection, ...]
    level: int
    moment: Moment
    is_staged: bool

    @property
    def from_seq(self) -> int:
        """The first event that the fold would stand for."""
        return _span_of(self.sections)[0]

    @property
    def to_seq(self) -> int:
        """The last."""
        return _span_of(self.sections)[1]

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
        # Not further than what is folded: what is not would keep later folds from beginning there.
        from_seq, to_seq = _span_of(kept)
        return FoldRequest(
            from_seq=from_seq,
            to_seq=to_seq,
            sections=tuple(section.request(summaries[section.lane]) for section in kept),
            seqs=union(pair for section in kept for pair in section.covers),
            level=self.level,
            is_staged=self.is_staged,
        )


def _span_of(sections: Sequence[PlannedSection]) -> Range:
    return min(each.span[0] for each in sections), max(each.span[1] for each in sections)
