"""How the log is to be read: ``resolve(markers)`` gives live ranges, active folds, what is pinned.

Markers are read newest first, since only a later marker can take an earlier one's effect away: an
undo names it, or a rewind spans it. So a rewind inside a rewound span has no effect, an undone
rewind brings the folds in its span back, and an undo can itself be undone.

    1 u | 2 m | 3 fold(1-2) | 4 u | 5 rewind(from 4) | 6 u     the log
    live 6..., fold 3 shown at 1, rewound 4                    the index

The index is computed when a marker is appended and stored with the session; ordinary appends do not
touch it, because everything after the last marker is live.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.core.events import Activation, Elision, Fold, Marker, Pin, Rewind, Undo, Unpin
from app.core.lanes import Lane
from app.core.ranges import EMPTY, FOREVER, Ranges, contains, size, subtract, union

FoldStatus: TypeAlias = Literal["staged", "active", "superseded", "rewound", "undone"]


@dataclass(frozen=True, slots=True)
class ShownSection:
    """A section of an active fold to which events belong."""

    fold_seq: int
    #: Index among the fold's sections.
    section_index: int
    lane: Lane
    #: The events that it stands for now: each masked event belongs to exactly one section.
    belongs: Ranges

    @property
    def at_seq(self) -> int:
        """Where it is read: in place of the first event that belongs to it."""
        return self.belongs[0][0]


@dataclass(frozen=True, slots=True)
class Elided:
    """Events that are read as stubs, each by the newest elision that names it."""

    marker_seq: int
    seqs: Ranges
    keep_chars: int


@dataclass(frozen=True, slots=True)
class Index:
    """Sets of seqs, and the sections shown in place of what is masked."""

    #: Events that are read, open at the end. Holds no marker.
    live: Ranges = ((1, FOREVER),)
    rewound: Ranges = EMPTY
    pinned: Ranges = EMPTY
    #: By position, then fold.
    sections: tuple[ShownSection, ...] = ()
    #: By marker; no event is in two. What is masked may be among them.
    elided: tuple[Elided, ...] = ()
    #: Folds that wait for their activation, oldest first.
    staged: tuple[int, ...] = ()

    def is_live(self, seq: int) -> bool:
        """Tell whether the event at this seq is read."""
        return contains(self.live, seq)

    def fold_of(self, seq: int) -> int | None:
        """Return the fold that masks this event, or None."""
        for section in self.sections:
            if contains(section.belongs, seq):
                return section.fold_seq
        return None

    def elision_of(self, seq: int) -> Elided | None:
        """Return the elision by which this event is read as a stub, or None."""
        for elided in self.elided:
            if contains(elided.seqs, seq):
                return elided
        return None


#: A log without markers.
UNTOUCHED: Final = Index()


def resolve(markers: Iterable[tuple[int, Marker]]) -> Index:
    """Return the index that the markers make.

    Args:
        markers: every marker of the log up to the wanted position with its seq, in any order.
    """
    ordered = sorted(markers, key=lambda pair: pair[0])
    effective, rewound = _effective(ordered)
    folds = {
        seq: marker
        for seq, marker in ordered
        if seq in effective
        and isinstance(marker, Fold)
        and (not marker.is_staged or _is_activated(seq, ordered, effective))
    }
    sections = _belonging(folds, _holes_by_fold(folds, ordered, effective, rewound))
    masked = union(pair for section in sections for pair in section.belongs)
    marker_seqs = union((seq, seq) for seq, _ in ordered)
    dead = union((*masked, *rewound, *marker_seqs))
    return Index(
        live=subtract(((1, FOREVER),), dead),
        rewound=rewound,
        pinned=subtract(_pinned(ordered, effective), rewound),
        sections=sections,
        elided=_elided(ordered, effective, rewound),
        staged=tuple(
            seq
            for seq, marker in ordered
            if seq in effective and isinstance(marker, Fold) and marker.is_staged
            if seq not in folds
        ),
    )


def fold_statuses(markers: Sequence[tuple[int, Marker]]) -> Mapping[int, FoldStatus]:
    """Return what became of every fold, by seq."""
    ordered = sorted(markers, key=lambda pair: pair[0])
    effective, rewound = _effective(ordered)
    shown = {section.fold_seq for section in resolve(ordered).sections}
    statuses: dict[int, FoldStatus] = {}
    for seq, marker in ordered:
        if not isinstance(marker, Fold):
            continue
        if seq in shown:
            statuses[seq] = "active"
        elif seq in effective:
            is_waiting = marker.is_staged and not _is_activated(seq, ordered, effective)
            statuses[seq] = "staged" if is_waiting else "superseded"
        else:
            statuses[seq] = "rewound" if contains(rewound, seq) else "undone"
    return statuses


def effective_markers(markers: Iterable[tuple[int, Marker]]) -> frozenset[int]:
    """Return the seqs of the markers that have an effect."""
    return _effective(sorted(markers, key=lambda pair: pair[0]))[0]


def _effective(ordered: Sequence[tuple[int, Marker]]) -> tuple[frozenset[int], Ranges]:
    """Return the seqs of the markers that have an effect, and what rewinds undid."""
    effective: set[int] = set()
    undone: set[int] = set()
    rewound: Ranges = EMPTY
    for seq, marker in reversed(ordered):
        if seq in undone or contains(rewound, seq):
            continue
        effective.add(seq)
        if isinstance(marker, Undo):
            undone.add(marker.target_seq)
        elif isinstance(marker, Rewind):
            rewound = union((*rewound, (marker.from_seq, seq - 1)))
    return frozenset(effective), rewound


def _is_activated(
    fold_seq: int, ordered: Sequence[tuple[int, Marker]], effective: frozenset[int]
) -> bool:
    return any(
        isinstance(marker, Activation) and marker.target_seq == fold_seq and seq in effective
        for seq, marker in ordered
    )


def _pinned(ordered: Sequence[tuple[int, Marker]], effective: frozenset[int]) -> Ranges:
    pinned: Ranges = EMPTY
    for seq, marker in ordered:
        if seq not in effective:
            continue
        if isinstance(marker, Pin):
            pinned = union((*pinned, *marker.seqs))
        elif isinstance(marker, Unpin):
            pinned = subtract(pinned, marker.seqs)
    return pinned


def _elided(
    ordered: Sequence[tuple[int, Marker]], effective: frozenset[int], rewound: Ranges
) -> tuple[Elided, ...]:
    """Give every elided event to the newest elision that names it; a later pin brings it back."""
    elided: list[Elided] = []
    taken = rewound
    for seq, marker in reversed(ordered):
        if seq not in effective or not isinstance(marker, Elision | Pin):
            continue
        if isinstance(marker, Elision) and (left := subtract(marker.seqs, taken)):
            elided.append(Elided(seq, left, marker.keep_chars))
        taken = union((*taken, *marker.seqs))
    return tuple(reversed(elided))


def _holes_by_fold(
    folds: Mapping[int, Fold],
    ordered: Sequence[tuple[int, Marker]],
    effective: frozenset[int],
    rewound: Ranges,
) -> Mapping[int, Ranges]:
    """Return what each fold no longer covers: what a later pin opened, and what is rewound."""
    pins = [(seq, m.seqs) for seq, m in ordered if isinstance(m, Pin) and seq in effective]
    return {
        fold_seq: union(
            (*rewound, *(pair for seq, seqs in pins if seq > fold_seq for pair in seqs))
        )
        for fold_seq in folds
    }


def _belonging(
    folds: Mapping[int, Fold], holes_by_fold: Mapping[int, Ranges]
) -> tuple[ShownSection, ...]:
    """Give every covered event to one fold: the one that covers most; of equal ones the newest."""
    covers = {
        seq: tuple(subtract(section.covers, holes_by_fold[seq]) for section in fold.sections)
        for seq, fold in folds.items()
    }
    by_size = sorted(folds, key=lambda seq: (sum(map(size, covers[seq])), seq), reverse=True)
    taken: dict[Lane, Ranges] = {}
    shown: list[ShownSection] = []
    for seq in by_size:
        for number, section in enumerate(folds[seq].sections):
            lane_taken = taken.get(section.lane, EMPTY)
            belongs = subtract(covers[seq][number], lane_taken)
            if belongs:
                shown.append(ShownSection(seq, number, section.lane, belongs))
                taken[section.lane] = union((*lane_taken, *belongs))
    return tuple(sorted(shown, key=lambda item: (item.at_seq, item.fold_seq, item.section_index)))
