"""Every short stream of markers, as it is resolved and by a plain model that goes seq by seq."""

from collections.abc import Iterator, Mapping
from itertools import product
from time import process_time
from typing import Final

from app.core.events import (
    Activation,
    Elision,
    Fold,
    Marker,
    Pin,
    PolicyChange,
    Rewind,
    Section,
    Undo,
    Unpin,
)
from app.core.index import FoldStatus, Index, fold_statuses, resolve
from app.core.lanes import ROOT_LANE, Lane
from app.core.ranges import FOREVER, Ranges, contains, of_seqs
from tests.builders import text

#: Four events, the second of another lane; the markers come after them.
BRANCH: Final = Lane(branch="r")
FIRST_MARKER: Final = 5
LENGTH: Final = 4


def a_fold(root: Ranges, branch: Ranges = (), *, is_staged: bool = False) -> Fold:
    lanes = ((ROOT_LANE, root), (BRANCH, branch))
    sections = tuple(Section(lane, covers, (text("s"),)) for lane, covers in lanes if covers)
    seqs = [pair for section in sections for pair in section.covers]
    return Fold(min(seqs)[0], max(seqs)[1], sections, is_staged=is_staged)


def alphabet(seq: int) -> list[Marker]:
    """Return what may stand at a seq."""
    return [
        a_fold(((1, 1), (3, 3)), ((2, 2),)),
        a_fold(((1, 1), (3, 4))),
        a_fold(((3, 4),), ((2, 2),)),
        a_fold(((1, 1), (3, 4)), is_staged=True),
        Rewind(3),
        Rewind(FIRST_MARKER),
        Pin(((3, 3),)),
        Pin(((1, 2), (4, 4))),
        Unpin(((2, 3),)),
        Elision(((1, 1), (3, 4)), 1),
        Undo(seq - 1),
        Undo(FIRST_MARKER),
        Activation(FIRST_MARKER),
    ]


def streams(length: int) -> Iterator[list[tuple[int, Marker]]]:
    """Yield every stream of so many markers."""
    seqs = range(FIRST_MARKER, FIRST_MARKER + length)
    for markers in product(*map(alphabet, seqs)):
        yield list(zip(seqs, markers, strict=True))


class Plain:
    """What markers mean, seq by seq, told in the words of the rules."""

    def __init__(self, markers: list[tuple[int, Marker]]) -> None:
        self.markers = dict(markers)
        self.last_seq = max(self.markers, default=0)

    def has_effect(self, seq: int) -> bool:
        """Tell whether no later marker that has an effect takes this one's away."""
        return not any(
            self.has_effect(later)
            and (
                (isinstance(marker, Undo) and marker.target_seq == seq)
                or (isinstance(marker, Rewind) and marker.from_seq <= seq)
            )
            for later, marker in self.markers.items()
            if later > seq
        )

    def is_rewound(self, seq: int) -> bool:
        return any(
            isinstance(marker, Rewind) and marker.from_seq <= seq < at and self.has_effect(at)
            for at, marker in self.markers.items()
        )

    def is_staged(self, fold_seq: int) -> bool:
        fold = self.markers[fold_seq]
        return (
            isinstance(fold, Fold)
            and fold.is_staged
            and not any(
                isinstance(marker, Activation)
                and marker.target_seq == fold_seq
                and self.has_effect(at)
                for at, marker in self.markers.items()
            )
        )

    def is_opened(self, seq: int, fold_seq: int) -> bool:
        """Tell whether a pin after the fold took the event out of it."""
        return any(
            isinstance(marker, Pin)
            and at > fold_seq
            and contains(marker.seqs, seq)
            and self.has_effect(at)
            for at, marker in self.markers.items()
        )

    def covers(self, fold_seq: int, lane: Lane) -> list[int]:
        fold = self.markers[fold_seq]
        assert isinstance(fold, Fold)
        if not self.has_effect(fold_seq) or self.is_staged(fold_seq):
            return []
        return [
            seq
            for section in fold.sections
            for seq in range(1, FIRST_MARKER)
            if section.lane == lane
            and contains(section.covers, seq)
            and not self.is_rewound(seq)
            and not self.is_opened(seq, fold_seq)
        ]

    def fold_of(self, seq: int, lane: Lane) -> int | None:
        ranks = [
            (len(covered), at)
            for at, marker in self.markers.items()
            if isinstance(marker, Fold) and seq in (covered := self.covers(at, lane))
        ]
        return max(ranks)[1] if ranks else None

    def is_pinned(self, seq: int) -> bool:
        newest = [
            marker
            for at, marker in sorted(self.markers.items())
            if isinstance(marker, Pin | Unpin)
            and contains(marker.seqs, seq)
            and self.has_effect(at)
        ]
        return bool(newest) and isinstance(newest[-1], Pin) and not self.is_rewound(seq)

    def elision_of(self, seq: int) -> int | None:
        newest = [
            at
            for at, marker in sorted(self.markers.items())
            if isinstance(marker, Pin | Elision)
            and contains(marker.seqs, seq)
            and self.has_effect(at)
        ]
        is_elided = bool(newest) and isinstance(self.markers[newest[-1]], Elision)
        return newest[-1] if is_elided and not self.is_rewound(seq) else None

    def status(self, fold_seq: int) -> FoldStatus:
        if not self.has_effect(fold_seq):
            return "rewound" if self.is_rewound(fold_seq) else "undone"
        if self.is_staged(fold_seq):
            return "staged"
        is_shown = any(self.fold_of(seq, lane_of(seq)) == fold_seq for seq in range(1, 5))
        return "active" if is_shown else "superseded"


def lane_of(seq: int) -> Lane:
    return BRANCH if seq == 2 else ROOT_LANE


def belonging(index: Index) -> Mapping[int, int]:
    """Return the fold of each masked event."""
    return {
        seq: section.fold_seq
        for section in index.sections
        for start, end in section.belongs
        for seq in range(start, end + 1)
    }


def check(markers: list[tuple[int, Marker]]) -> None:
    index, plain = resolve(markers), Plain(markers)
    events = range(1, FIRST_MARKER)
    folds = {seq: found for seq in events if (found := plain.fold_of(seq, lane_of(seq)))}
    assert belonging(index) == folds, markers
    assert [seq for seq in events if contains(index.pinned, seq)] == [
        seq for seq in events if plain.is_pinned(seq)
    ], markers
    assert [found and found.marker_seq for seq in events for found in [index.elision_of(seq)]] == [
        plain.elision_of(seq) for seq in events
    ], markers
    seqs = range(1, plain.last_seq + 1)
    rewound = [seq for seq in seqs if plain.is_rewound(seq)]
    assert index.rewound == of_seqs(rewound), markers
    live = [seq for seq in events if seq not in folds and seq not in rewound]
    assert index.live == (*of_seqs(live), (plain.last_seq + 1, FOREVER)), markers
    assert fold_statuses(markers) == {
        seq: plain.status(seq) for seq, marker in markers if isinstance(marker, Fold)
    }, markers
    assert set(index.staged) == {
        seq
        for seq, marker in markers
        if isinstance(marker, Fold) and plain.has_effect(seq) and plain.is_staged(seq)
    }, markers


def test_every_short_stream_is_resolved_as_the_rules_say() -> None:
    for length in range(1, LENGTH + 1):
        for markers in streams(length):
            check(markers)


def test_many_folds_are_resolved_in_about_as_many_steps() -> None:
    rolled: list[tuple[int, Marker]] = [
        (2 * n, a_fold(((1, 2 * n - 1),))) for n in range(1, 20_001)
    ]
    beside: list[tuple[int, Marker]] = [
        (100_000 + n, a_fold(((3 * n, 3 * n + 1),))) for n in range(1, 20_001)
    ]
    levels: list[tuple[int, Marker]] = [
        (200_000 + n, a_fold(tuple((3 * k, 3 * k + 1) for k in range(8 * n, 8 * n + 8))))
        for n in range(1, 2_000)
    ]

    started_s = process_time()
    assert len(resolve(rolled).sections) == 1
    assert len(resolve(beside).sections) == 20_000
    assert len(resolve([*beside, *levels]).sections) < 7_000
    assert len(fold_statuses([*beside, *levels])) == 21_999
    # A step for every pair of them takes minutes.
    assert process_time() - started_s < 10


def test_a_policy_change_leaves_everything_as_it_is() -> None:
    assert resolve([(5, PolicyChange())]).live == ((1, 4), (6, FOREVER))
