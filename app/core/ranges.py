"""Sets of seqs as sorted, disjoint, closed ranges: ``((1, 4), (7, 7))`` is {1, 2, 3, 4, 7}.

A fold over a hundred thousand events is one pair here. An open end is :data:`FOREVER`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, TypeAlias

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = tuple[Range, ...]

#: Larger than any seq; the upper end of what is still to come. Fits a Postgres bigint.
FOREVER: Final = 2**62

EMPTY: Final[Ranges] = ()


def union(ranges: Iterable[Range]) -> Ranges:
    """Return the union of ranges in any order; empty ones (from > to) count for nothing."""
    merged: list[Range] = []
    for start, end in sorted(pair for pair in ranges if pair[0] <= pair[1]):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def subtract(ranges: Ranges, others: Ranges) -> Ranges:
    """Return what is in ``ranges`` and not in ``others``."""
    if not others:
        return ranges
    left: list[Range] = []
    position = 0
    for start, end in ranges:
        at = start
        while position < len(others) and others[position][1] < start:
            position += 1
        index = position
        while index < len(others) and others[index][0] <= end:
            if others[index][0] > at:
                left.append((at, others[index][0] - 1))
            at = max(at, others[index][1] + 1)
            index += 1
        if at <= end:
            left.append((at, end))
    return tuple(left)


def intersect(ranges: Ranges, others: Ranges) -> Ranges:
    """Return what is in both."""
    return subtract(ranges, subtract(ranges, others))


def contains(ranges: Ranges, seq: int) -> bool:
    """Tell whether a seq is in the set."""
    index = bisect_right(ranges, (seq, FOREVER)) - 1
    return index >= 0 and ranges[index][1] >= seq


def size(ranges: Ranges) -> int:
    """Return how many seqs the set holds."""
    return sum(end - start + 1 for start, end in ranges)


def of_seqs(seqs: Iterable[int]) -> Ranges:
    """Return the set of these seqs."""
    return union((seq, seq) for seq in seqs)


class Silent:
    """Seqs at which nothing stands to be read: markers. A range may run over them.

        (1, 4) (6, 9)    with 5 silent    is (1, 9), of 8 events

    What is folded again and again would otherwise keep a gap for every fold that there was.
    """

    __slots__ = ("_counts", "_ends", "_starts")

    def __init__(self, seqs: Ranges) -> None:
        self._starts = [start for start, _ in seqs]
        self._ends = [end for _, end in seqs]
        self._counts = [0, *accumulate(end - start + 1 for start, end in seqs)]

    def bridge(self, ranges: Ranges) -> Ranges:
        """Return the set in its one form: every range begins and ends with an event, and only
        events stand between two of them."""
        bridged: list[Range] = []
        for start, end in ranges:
            first, last = self._next_event(start), self._last_event(end)
            if first > last:
                continue
            if bridged and self._next_event(bridged[-1][1] + 1) >= first:
                bridged[-1] = (bridged[-1][0], last)
            else:
                bridged.append((first, last))
        return tuple(bridged)

    def count_events(self, ranges: Ranges) -> int:
        """Return how many seqs of the set are not silent."""
        return sum(self._until(end) - self._until(start - 1) for start, end in ranges)

    def _until(self, seq: int) -> int:
        """Return how many seqs up to this one are not silent."""
        at = bisect_right(self._starts, seq)
        beyond = max(0, self._ends[at - 1] - seq) if at else 0
        return seq - (self._counts[at] - beyond)

    def _next_event(self, seq: int) -> int:
        at = bisect_right(self._starts, seq) - 1
        return max(seq, self._ends[at] + 1) if at >= 0 else seq

    def _last_event(self, seq: int) -> int:
        at = bisect_right(self._starts, seq) - 1
        return self._starts[at] - 1 if at >= 0 and seq <= self._ends[at] else seq


class Taken:
    """A set that grows: what was given away already.

    Giving away ``n`` ranges one after the other takes about ``n`` steps, and not ``n * n``, as it
    would with :func:`union` and :func:`subtract`.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Ranges = EMPTY) -> None:
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]

    def take(self, ranges: Ranges) -> Ranges:
        """Add these, and return what of them was not there yet."""
        fresh: list[Range] = []
        for start, end in ranges:
            first, last = self._touched(start, end)
            fresh.extend(self._gaps(start, end, first, last))
            merged = (start, end)
            if first < last:
                merged = (min(start, self._starts[first]), max(end, self._ends[last - 1]))
            self._starts[first:last] = [merged[0]]
            self._ends[first:last] = [merged[1]]
        return tuple(fresh)

    def left(self, ranges: Ranges) -> Ranges:
        """Return what of these is not there."""
        return tuple(
            gap
            for start, end in ranges
            for gap in self._gaps(start, end, *self._touched(start, end))
        )

    def _touched(self, start: int, end: int) -> tuple[int, int]:
        """Return which ranges overlap with this one or are next to it."""
        return bisect_left(self._ends, start - 1), bisect_right(self._starts, end + 1)

    def _gaps(self, start: int, end: int, first: int, last: int) -> Iterator[Range]:
        at = start
        for index in range(first, last):
            if self._starts[index] > at:
                yield at, self._starts[index] - 1
            at = max(at, self._ends[index] + 1)
        if at <= end:
            yield at, end
