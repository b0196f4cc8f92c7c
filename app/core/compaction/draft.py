"""A selection as a fold: one section for each lane, what it would save, and what it may take."""

from collections.abc import Iterator, Sequence
from typing import Final

from app.core.compaction.facts import PlanEvent
from app.core.compaction.planned import Plan, PlannedSection
from app.core.compaction.policy import Moment
from app.core.compaction.view import PlanView, Selection, ShownFold
from app.core.copying import replace
from app.core.lanes import Lane
from app.core.ranges import Range, Ranges, contains, intersect, of_seqs, subtract, union

#: A section of a few lines. Lanes of which little is to be told get so much beside large ones.
LEAST_SECTION_TOKENS: Final = 120


class Draft:
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
            span=self._span_of(read, seeds),
            seed_fold_seqs=tuple(seed.seq for seed in seeds),
            tokens=sum(event.tokens for event in read)
            + sum(seed.tokens_by_lane[lane] for seed in seeds),
            tokens_before=sum(e.tokens for e in read if self._view.index.is_live(e.seq))
            + self._superseded_tokens(lane, covers),
        )

    def _span_of(self, read: Sequence[PlanEvent], seeds: Sequence[ShownFold]) -> Range:
        """Return what a section spans; of one that takes up what is folded already and stands
        within another fold, all that is selected, or it could not take it up alone."""
        spans = [(event.seq, event.seq) for event in read]
        spans += [(seed.fold.from_seq, seed.fold.to_seq) for seed in seeds]
        own = min(start for start, _ in spans), max(end for _, end in spans)
        is_plain = not seeds and all(self._view.index.is_live(event.seq) for event in read)
        return own if is_plain or not self._view.is_inside(own) else self.selection.span

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
        """Return it as the plan of a fold."""
        return Plan(
            sections=self._shared_out(),
            level=level,
            moment=moment,
            is_staged=is_staged,
        )


def _by_seq(event: PlanEvent) -> int:
    return event.seq
