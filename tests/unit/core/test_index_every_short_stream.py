"""Every short stream of markers, as it is resolved and by a plain model that goes seq by seq."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from time import process_time
from typing import Final

import pytest

from app.core.copying import replace
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
from app.core.ranges import FOREVER, Ranges, Silent, contains, of_seqs, union
from tests.builders import text

#: Four events, the second of another lane.
BRANCH: Final = Lane(branch="r")


@dataclass(frozen=True)
class Layout:
    """Where the four events stand, and where the markers."""

    events: tuple[int, int, int, int]
    markers: tuple[int, ...]

    def lane_of(self, seq: int) -> Lane:
        return BRANCH if seq == self.events[1] else ROOT_LANE

    def ranges(self, numbers: Iterable[int], before_seq: int) -> Ranges:
        """Return the events of these numbers that stand before a seq, over markers in between."""
        seqs = [seq for number in numbers if (seq := self.events[number - 1]) < before_seq]
        between = {
            marker
            for low, high in pairwise(seqs)
            if set(range(low + 1, high)) <= set(self.markers)
            for marker in range(low + 1, high)
        }
        return of_seqs({*seqs, *between})


#: Markers after all events, and markers between them.
AFTER: Final = Layout((1, 2, 3, 4), (5, 6, 7, 8))
BETWEEN: Final = Layout((1, 3, 4, 6), (2, 5, 7, 8))


def a_fold(root: Ranges, branch: Ranges = (), *, is_staged: bool = False) -> Fold:
    lanes = ((ROOT_LANE, root), (BRANCH, branch))
    sections = tuple(Section(lane, covers, (text("s"),)) for lane, covers in lanes if covers)
    seqs = [pair for section in sections for pair in section.covers]
    return Fold(min(seqs)[0], max(seqs)[1], sections, is_staged=is_staged)


def alphabet(seq: int, layout: Layout) -> Iterator[Marker]:
    """Yield what may stand at a seq."""
    first = layout.markers[0]
    for root, branch, is_staged in (
        ((1, 3), (2,), False),
        ((1, 3, 4), (), False),
        ((3, 4), (2,), False),
        ((1, 3, 4), (), True),
    ):
        covers = layout.ranges(root, seq), layout.ranges(branch, seq)
        if any(covers):
            yield a_fold(*covers, is_staged=is_staged)
    yield from (Rewind(at) for at in (layout.events[2], first) if at < seq)
    for marker, numbers in ((Pin, (3,)), (Pin, (1, 2, 4)), (Unpin, (2, 3))):
        if seqs := of_seqs(at for n in numbers if (at := layout.events[n - 1]) < seq):
            yield marker(seqs)
    yield Elision(layout.ranges((1, 3, 4), seq), 1)
    yield from (Undo(at) for at in {seq - 1, first} if at in layout.markers and at < seq)
    if first < seq:
        yield Activation(first)


def streams(length: int, layout: Layout) -> Iterator[list[tuple[int, Marker]]]:
    """Yield every stream of so many markers."""
    seqs = layout.markers[:length]
    for markers in product(*(tuple(alphabet(seq, layout)) for seq in seqs)):
        yield list(zip(seqs, markers, strict=True))


class Plain:
    """What markers mean, seq by seq, told in the words of the rules."""

    def __init__(self, markers: list[tuple[int, Marker]], layout: Layout) -> None:
        self.markers = dict(markers)
        self.layout = layout
        self.last_seq = max(*self.markers, layout.events[-1])

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
            for seq in self.layout.events
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
        lane_of = self.layout.lane_of
        is_shown = any(self.fold_of(at, lane_of(at)) == fold_seq for at in self.layout.events)
        return "active" if is_shown else "superseded"


def belonging(index: Index, layout: Layout) -> Mapping[int, int]:
    """Return the fold of each masked event."""
    return {
        seq: section.fold_seq
        for section in index.sections
        for seq in layout.events
        if contains(section.belongs, seq) and section.lane == layout.lane_of(seq)
    }


def check(markers: list[tuple[int, Marker]], layout: Layout) -> None:
    index, plain = resolve(markers), Plain(markers, layout)
    events, lane_of = layout.events, layout.lane_of
    folds = {seq: found for seq in events if (found := plain.fold_of(seq, lane_of(seq)))}
    assert belonging(index, layout) == folds, markers
    # A section is read where its first event stood, and none is shown that has no event.
    assert [(each.at_seq, each.fold_seq) for each in index.sections] == sorted(
        (
            min(seq for seq in folds if (folds[seq], lane_of(seq)) == (each.fold_seq, each.lane)),
            each.fold_seq,
        )
        for each in index.sections
    ), markers
    assert [seq for seq in events if contains(index.pinned, seq)] == [
        seq for seq in events if plain.is_pinned(seq)
    ], markers
    assert [found and found.marker_seq for seq in events for found in [index.elision_of(seq)]] == [
        plain.elision_of(seq) for seq in events
    ], markers
    seqs = range(1, plain.last_seq + 1)
    rewound = [seq for seq in seqs if plain.is_rewound(seq)]
    assert index.rewound == of_seqs(rewound), markers
    # What has no marker of the stream is still to come, or an event that no marker speaks of.
    silent = {*plain.markers, *rewound, *folds}
    live = [seq for seq in seqs if seq not in silent]
    assert index.live == union((*of_seqs(live), (plain.last_seq + 1, FOREVER))), markers
    assert fold_statuses(markers) == {
        seq: plain.status(seq) for seq, marker in markers if isinstance(marker, Fold)
    }, markers
    assert set(index.staged) == {
        seq
        for seq, marker in markers
        if isinstance(marker, Fold) and plain.has_effect(seq) and plain.is_staged(seq)
    }, markers


@pytest.mark.parametrize("layout", [AFTER, BETWEEN], ids=["after", "between"])
def test_every_short_stream_is_resolved_as_the_rules_say(layout: Layout) -> None:
    for length in range(1, len(layout.markers) + 1):
        for markers in streams(length, layout):
            check(markers, layout)


def check_added(markers: list[tuple[int, Marker]], layout: Layout) -> int:
    """Check that adding the last marker to the index before says what resolving all says; return
    whether there was a fold to add."""
    *earlier, (seq, last) = markers
    if not isinstance(last, Fold):
        return 0
    before = resolve(earlier)
    # What is rewound is a hole of every fold that is made.
    sections = tuple(
        replace(section, covers=left)
        for section in last.sections
        for left in [
            layout.ranges(
                (
                    number
                    for number, at in enumerate(layout.events, start=1)
                    if contains(section.covers, at)
                    and layout.lane_of(at) == section.lane
                    and not contains(before.rewound, at)
                ),
                seq,
            )
        ]
        if left
    )
    fold = replace(last, sections=sections)
    # Only markers in the span of the fold and beside it are known.
    seqs = [at for at in layout.markers if at < seq]
    covered = [pair for section in sections for pair in section.covers]
    events = [at for at in layout.events if at < seq]
    low = max((at for at in events if covered and at < min(covered)[0]), default=0)
    high = min((at for at in events if covered and at > max(covered)[1]), default=seq)
    silent = Silent(of_seqs(at for at in seqs if low < at < high))
    assert before.with_fold(seq, fold, silent) == resolve([*earlier, (seq, fold)]), markers
    return 1


@pytest.mark.parametrize("layout", [AFTER, BETWEEN], ids=["after", "between"])
def test_adding_a_fold_is_resolving_all_markers(layout: Layout) -> None:
    added = sum(
        check_added(markers, layout)
        for length in range(1, len(layout.markers) + 1)
        for markers in streams(length, layout)
    )

    assert added > 1_000


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
