from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.core.ranges import (
    EMPTY,
    FOREVER,
    Ranges,
    Silent,
    contains,
    intersect,
    of_seqs,
    size,
    subtract,
    union,
)

sets = st.sets(st.integers(1, 30), max_size=12)


def seqs(ranges: Ranges) -> set[int]:
    return {seq for start, end in ranges for seq in range(start, end + 1)}


def is_normal(ranges: Ranges) -> bool:
    """Sorted, not empty, and with a gap before each following one."""
    return all(start <= end for start, end in ranges) and all(
        ranges[number][1] + 1 < ranges[number + 1][0] for number in range(len(ranges) - 1)
    )


def test_ranges_that_touch_or_overlap_become_one() -> None:
    assert union([(4, 6), (1, 3), (9, 9), (5, 7)]) == ((1, 7), (9, 9))


def test_range_that_ends_before_it_starts_counts_for_nothing() -> None:
    assert union([(5, 4), (7, 7)]) == ((7, 7),)


def test_range_inside_another_adds_nothing() -> None:
    assert union([(1, 9), (3, 4)]) == ((1, 9),)


def test_hole_splits_a_range_in_two() -> None:
    assert subtract(((1, 9),), ((4, 5),)) == ((1, 3), (6, 9))


def test_one_hole_may_reach_over_several_ranges() -> None:
    assert subtract(((1, 3), (5, 7), (9, 11)), ((2, 10),)) == ((1, 1), (11, 11))


def test_open_end_stays_open() -> None:
    assert subtract(((1, FOREVER),), ((3, 4),)) == ((1, 2), (5, FOREVER))
    assert contains(((5, FOREVER),), 10**15)


def test_both_ends_are_included() -> None:
    ranges = ((2, 4), (7, 7))

    assert [seq for seq in range(1, 9) if contains(ranges, seq)] == [2, 3, 4, 7]


def test_nothing_is_in_no_range() -> None:
    assert not contains(EMPTY, 1)
    assert size(EMPTY) == 0


@given(sets)
def test_set_of_seqs_reads_back(wanted: set[int]) -> None:
    ranges = of_seqs(wanted)

    assert seqs(ranges) == wanted
    assert is_normal(ranges)
    assert size(ranges) == len(wanted)
    assert {seq for seq in range(32) if contains(ranges, seq)} == wanted


@given(sets, sets)
def test_operations_are_those_of_sets(first: set[int], second: set[int]) -> None:
    for given_ranges, expected in _operations(first, second):
        assert seqs(given_ranges) == expected
        assert is_normal(given_ranges)


def _operations(first: set[int], second: set[int]) -> Iterable[tuple[Ranges, set[int]]]:
    ours, theirs = of_seqs(first), of_seqs(second)
    yield union((*ours, *theirs)), first | second
    yield subtract(ours, theirs), first - second
    yield intersect(ours, theirs), first & second


def test_a_range_runs_over_what_is_silent_and_ends_with_what_is_not() -> None:
    silent = Silent(((2, 3), (5, 5), (9, 9)))

    assert silent.bridge(((1, 1), (4, 4), (6, 7), (9, 9))) == ((1, 7),)
    assert silent.bridge(((2, 4), (8, 9))) == ((4, 4), (8, 8))
    assert silent.bridge(((3, 3),)) == EMPTY


@given(sets, sets)
def test_bridging_adds_only_what_is_silent_and_there_is_one_form_of_a_set(
    one: set[int], silent: set[int]
) -> None:
    known = Silent(of_seqs(silent))
    bridged = known.bridge(of_seqs(one))

    assert is_normal(bridged)
    assert seqs(bridged) - silent == one - silent
    assert all(not {start, end} & silent for start, end in bridged)
    assert known.bridge(bridged) == bridged == known.bridge(of_seqs(one - silent))
    # Between two ranges stands something that is not silent.
    for (_, end), (start, _) in pairwise(bridged):
        assert set(range(end + 1, start)) - silent
    assert known.count_events(of_seqs(one)) == len(one - silent)
