"""How the log is to be read: ``resolve(markers)`` gives live ranges, active folds, what is pinned.

Markers are read newest first, since only a later marker can take an earlier one's effect away: an
undo names it, or a rewind spans it. So a rewind inside a rewound span has no effect, an undone
rewind brings the folds in its span back, and an undo can itself be undone.

    1 u | 2 m | 3 fold(1-2) | 4 u | 5 rewind(from 4) | 6 u     the log
    live 6..., fold 3 shown at 1, rewound 4                    the index

The index is computed when a marker is appended and stored with the session; ordinary appends do not
touch it, because everything after the last marker is live. A fold is added to what is stored
(:meth:`Index.with_fold`); other markers may bring back what was superseded, and all are read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.core.copying import replace
from app.core.events import (
    Activation,
    ActivationRequest,
    Elision,
    ElisionRequest,
    Fold,
    Marker,
    MarkerRequest,
    Pin,
    Rewind,
    Section,
    Undo,
    UndoRequest,
    Unpin,
)
from app.core.lanes import Lane
from app.core.ranges import (
    EMPTY,
    FOREVER,
    Range,
    Ranges,
    Silent,
    Taken,
    contains,
    of_seqs,
    subtract,
    union,
)

FoldStatus: TypeAlias = Literal["staged", "active", "superseded", "rewound", "undone"]


@dataclass(frozen=True, slots=True)
class ShownSection:
    """A section of an active fold to which events belong."""

    fold_seq: int
    #: Index among the fold's sections.
    section_index: int
    lane: Lane
    #: The events that it stands for now: each masked event belongs to exactly one section. A range
    #: may run over markers, which belong to none.
    belongs: Ranges
    #: How many events it covers, whichever of them belong to it: more than others of its lane that
    #: cover the same event, or it would not belong to this.
    count: int

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
        """Return the fold that masks this event, or None. Not to be asked of markers."""
        for section in self.sections:
            if contains(section.belongs, seq):
                return section.fold_seq
        return None

    def with_fold(self, seq: int, fold: Fold, silent: Silent) -> "Index":
        """Return what :func:`resolve` says when a fold is appended, from what it said before.

        A new fold takes events from others or leaves them; only what undoes and pins can bring back
        what was superseded. So the markers before it need not be known, of which a long session has
        many, and the steps follow what is shown.

        Args:
            seq: of the fold, beyond every other marker.
            fold: as it was resolved.
            silent: every marker from the event before its span to the event after it.
        """
        marker = ((seq, seq),)
        if fold.is_staged:
            return replace(self, live=subtract(self.live, marker), staged=(*self.staged, seq))
        sections = list(self.sections)
        for number, section in enumerate(fold.sections):
            sections = _with_section(sections, (seq, number), section, silent)
        fresh = (pair for each in sections if each.fold_seq == seq for pair in each.belongs)
        return replace(
            self, live=subtract(self.live, union((*fresh, *marker))), sections=_in_order(sections)
        )

    def elision_of(self, seq: int) -> Elided | None:
        """Return the elision by which this event is read as a stub, or None."""
        for elided in self.elided:
            if contains(elided.seqs, seq):
                return elided
        return None


def _with_section(
    sections: Sequence[ShownSection], place: tuple[int, int], section: Section, silent: Silent
) -> list[ShownSection]:
    """Let a section of the newest fold, at ``(fold seq, number)``, take what it covers from the
    sections of its lane that cover no more."""
    count = silent.count_events(section.covers)
    stronger = [each for each in sections if each.lane == section.lane and each.count > count]
    taken = union(pair for each in stronger for pair in each.belongs)
    belongs = silent.bridge(subtract(section.covers, taken))
    left: list[ShownSection] = []
    for each in sections:
        if each.lane != section.lane or each.count > count:
            left.append(each)
        elif kept := silent.bridge(subtract(each.belongs, belongs)):
            left.append(replace(each, belongs=kept))
    if belongs:
        left.append(ShownSection(*place, section.lane, belongs, count))
    return left


def _in_order(sections: Iterable[ShownSection]) -> tuple[ShownSection, ...]:
    return tuple(
        sorted(sections, key=lambda item: (item.at_seq, item.fold_seq, item.section_index))
    )


#: A log without markers.
UNTOUCHED: Final = Index()


def resolve(markers: Iterable[tuple[int, Marker]]) -> Index:
    """Return the index that the markers make, in about as many steps as they have ranges.

    Args:
        markers: every marker of the log up to the wanted position with its seq, in any order.
    """
    read = _Read(markers)
    sections = _belonging(read)
    masked = (pair for section in sections for pair in section.belongs)
    dead = union((*masked, *read.rewound, *read.seqs))
    return Index(
        live=subtract(((1, FOREVER),), dead),
        rewound=read.rewound,
        pinned=subtract(_pinned(read), read.rewound),
        sections=sections,
        elided=_elided(read),
        staged=tuple(
            seq
            for seq, marker in read.effective()
            if isinstance(marker, Fold) and seq in read.staged
        ),
    )


def fold_statuses(markers: Iterable[tuple[int, Marker]]) -> Mapping[int, FoldStatus]:
    """Return what became of every fold, by seq."""
    read = _Read(markers)
    shown = {section.fold_seq for section in _belonging(read)}
    statuses: dict[int, FoldStatus] = {}
    for seq, marker in read.ordered:
        if not isinstance(marker, Fold):
            continue
        if seq in shown:
            statuses[seq] = "active"
        elif seq in read.effective_seqs:
            statuses[seq] = "staged" if seq in read.staged else "superseded"
        else:
            statuses[seq] = "rewound" if contains(read.rewound, seq) else "undone"
    return statuses


def effective_markers(markers: Iterable[tuple[int, Marker]]) -> frozenset[int]:
    """Return the seqs of the markers that have an effect."""
    return _Read(markers).effective_seqs


def is_gone(markers: Sequence[tuple[int, Marker]], seq: int) -> bool:
    """Tell whether there is a marker at this seq that has no effect any more."""
    return any(each == seq for each, _ in markers) and seq not in effective_markers(markers)


def already_done(markers: Sequence[tuple[int, Marker]], request: MarkerRequest) -> int | None:
    """Return the marker that already has the effect that is asked for; None if it would be new.

    Of an undo or an activation the newest that aims at the same marker and has an effect, of an
    elision the newest of those by which all its events are the same stubs already.
    """
    if isinstance(request, UndoRequest | ActivationRequest):
        kind = Undo if isinstance(request, UndoRequest) else Activation
        wanted = kind(request.target_seq)
        effective = effective_markers(markers)
        same = (seq for seq, marker in markers if marker == wanted and seq in effective)
        return max(same, default=None)
    if isinstance(request, ElisionRequest):
        index = resolve(markers)
        elided = [index.elision_of(seq) for seq in request.seqs]
        found = [e.marker_seq for e in elided if e and e.keep_chars == request.keep_chars]
        return max(found, default=None) if len(found) == len(elided) else None
    return None


class _Read:
    """The markers in order, with what undoes and rewinds leave of them."""

    def __init__(self, markers: Iterable[tuple[int, Marker]]) -> None:
        self.ordered = sorted(markers, key=lambda pair: pair[0])
        self.seqs = of_seqs(seq for seq, _ in self.ordered)
        self.silent = Silent(self.seqs)
        self.effective_seqs, self.rewound = _effective(self.ordered)
        activated = {
            marker.target_seq for _, marker in self.effective() if isinstance(marker, Activation)
        }
        #: Folds that wait for their activation.
        self.staged = {
            seq
            for seq, marker in self.effective()
            if isinstance(marker, Fold) and marker.is_staged and seq not in activated
        }

    def effective(self) -> Iterator[tuple[int, Marker]]:
        """Yield what has an effect, oldest first."""
        return (pair for pair in self.ordered if pair[0] in self.effective_seqs)

    def newest_first(self) -> Iterator[tuple[int, Marker]]:
        """Yield what has an effect, newest first."""
        return (pair for pair in reversed(self.ordered) if pair[0] in self.effective_seqs)


def _effective(ordered: Sequence[tuple[int, Marker]]) -> tuple[frozenset[int], Ranges]:
    """Return the seqs of the markers that have an effect, and what rewinds undid."""
    effective: set[int] = set()
    undone: set[int] = set()
    rewound: list[Range] = []
    # Of the ranges so far only the oldest can hold an older marker: the rewind of each stands
    # before the others, or it would have no effect.
    rewound_from: int | None = None
    for seq, marker in reversed(ordered):
        # Markers that nobody appended, to see what they would do, stand beyond every seq.
        if seq in undone or (rewound_from is not None and seq >= rewound_from):
            continue
        effective.add(seq)
        if isinstance(marker, Undo):
            undone.add(marker.target_seq)
        elif isinstance(marker, Rewind):
            rewound.append((marker.from_seq, seq - 1))
            rewound_from = marker.from_seq
    return frozenset(effective), union(rewound)


def _pinned(read: _Read) -> Ranges:
    """Return what the newest marker that names it pins."""
    decided = Taken()
    pinned: list[Range] = []
    for _, marker in read.newest_first():
        if isinstance(marker, Pin):
            pinned.extend(decided.take(marker.seqs))
        elif isinstance(marker, Unpin):
            decided.take(marker.seqs)
    return union(pinned)


def _elided(read: _Read) -> tuple[Elided, ...]:
    """Give every elided event to the newest elision that names it; a later pin brings it back."""
    elided: list[Elided] = []
    taken = Taken(read.rewound)
    for seq, marker in read.newest_first():
        if isinstance(marker, Pin):
            taken.take(marker.seqs)
        elif isinstance(marker, Elision) and (left := taken.take(marker.seqs)):
            elided.append(Elided(seq, left, marker.keep_chars))
    return tuple(reversed(elided))


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a section covers, less what a later pin opened and what is rewound."""

    fold_seq: int
    section_index: int
    lane: Lane
    covers: Ranges
    #: How many events that is.
    count: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.count, self.fold_seq


def _belonging(read: _Read) -> tuple[ShownSection, ...]:
    """Give every covered event to one section of its lane: the one that covers most of the lane;
    of equal ones the newest."""
    taken: dict[Lane, Taken] = {}
    shown = [
        ShownSection(claim.fold_seq, claim.section_index, claim.lane, belongs, claim.count)
        for claim in sorted(_claims(read), key=lambda claim: claim.rank, reverse=True)
        if (belongs := read.silent.bridge(taken.setdefault(claim.lane, Taken()).take(claim.covers)))
    ]
    return _in_order(shown)


def _claims(read: _Read) -> Iterator[_Claim]:
    holes = Taken(read.rewound)
    for seq, marker in read.newest_first():
        if isinstance(marker, Pin):
            holes.take(marker.seqs)
        elif isinstance(marker, Fold) and seq not in read.staged:
            for number, section in enumerate(marker.sections):
                covers = holes.left(section.covers)
                count = read.silent.count_events(covers)
                yield _Claim(seq, number, section.lane, covers, count)
