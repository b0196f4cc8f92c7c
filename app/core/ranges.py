"""Sets of seqs as sorted, disjoint, closed ranges: ``((1, 4), (7, 7))`` is {1, 2, 3, 4, 7}.

A fold over a hundred thousand events is one pair here. An open end is :data:`FOREVER`.
"""

from bisect import bisect_right
from collections.abc import Iterable
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
