"""What markers do to the log. Most cases are built by appending, so that markers are real ones."""

from collections.abc import Iterable, Mapping

import pytest

from app.core.errors import CompactionRangeError, InvalidEventError
from app.core.events import Event, Fold, Marker, Rewind, Section, Undo
from app.core.index import UNTOUCHED, FoldStatus, Index, effective_markers, fold_statuses, resolve
from app.core.lanes import ROOT_LANE, Lane
from app.core.ranges import FOREVER, Ranges
from app.core.resolve import Log
from tests.builders import (
    activate,
    call,
    elide,
    fold,
    fold_of,
    log,
    model,
    pin,
    response,
    rewind,
    section,
    text,
    undo,
    unpin,
    user,
)


def turns(count: int) -> list[Event]:
    """Return that many turns of two events; turn n has the invocation ``in``."""
    return [
        event
        for number in range(1, count + 1)
        for event in (
            user(f"u{number}", invocation_id=f"i{number}"),
            model(f"m{number}", invocation_id=f"i{number}"),
        )
    ]


def live(done: Log) -> list[int]:
    return [event.seq for event in done.events if done.index.is_live(event.seq)]


def rewound(done: Log) -> list[int]:
    return [seq for start, end in done.index.rewound for seq in range(start, end + 1)]


def shown(index: Index) -> dict[int, Ranges]:
    """Return what belongs to each fold that is shown."""
    belongs: dict[int, Ranges] = {}
    for item in index.sections:
        belongs[item.fold_seq] = (*belongs.get(item.fold_seq, ()), *item.belongs)
    return belongs


def statuses(done: Log) -> Mapping[int, FoldStatus]:
    return fold_statuses(list(markers_of(done)))


def markers_of(done: Log) -> Iterable[tuple[int, Marker]]:
    return ((event.seq, event.marker) for event in done.events if event.marker is not None)


def a_fold(covers: Ranges, *, lane: Lane = ROOT_LANE) -> Fold:
    return Fold(covers[0][0], covers[-1][1], (Section(lane, covers, (text("s"),)),))


# Without markers


def test_log_without_markers_is_all_live() -> None:
    assert resolve([]) == UNTOUCHED
    assert UNTOUCHED.live == ((1, FOREVER),)
    assert UNTOUCHED.fold_of(1) is None


def test_what_comes_after_the_last_marker_is_live_without_another_look() -> None:
    index = log(*turns(2), fold(1, 2)).index

    assert index.is_live(6)
    assert index.is_live(10**12)


def test_markers_may_come_in_any_order() -> None:
    done = log(*turns(3), fold(1, 2), rewind("i3"), pin(3), undo(8))
    markers = list(markers_of(done))

    assert resolve(reversed(markers)) == resolve(markers) == done.index


# Rewinds


def test_rewind_undoes_its_target_and_all_that_follows_up_to_itself() -> None:
    done = log(*turns(3), rewind("i2"), user("u4"))

    assert live(done) == [1, 2, 8]
    assert rewound(done) == [3, 4, 5, 6]


def test_marker_itself_is_not_live() -> None:
    done = log(*turns(1), pin(1), undo(3), fold(1, 2), rewind(to_seq=1))

    assert live(done) == [1]


def test_rewind_to_a_seq_keeps_that_seq() -> None:
    assert live(log(*turns(2), rewind(to_seq=2))) == [1, 2]


def test_rewind_inside_a_rewound_span_has_no_effect() -> None:
    # The second rewind undoes the first, and with it what the first had undone comes back.
    done = log(*turns(2), rewind("i1"), user("u3", invocation_id="i3"), rewind(to_seq=4))

    assert live(done) == [1, 2, 3, 4]


def test_rewind_to_before_a_rewind_covers_what_that_one_had_undone() -> None:
    done = log(*turns(2), rewind("i2"), user("u3"), rewind("i1"), user("u4"))

    assert live(done) == [8]


def test_two_rewinds_side_by_side_both_hold() -> None:
    done = log(*turns(2), rewind("i2"), *turns(1), rewind(to_seq=5), user("u"))

    assert live(done) == [1, 2, 9]


def test_rewinding_twice_to_one_invocation_goes_to_where_it_first_stood() -> None:
    done = log(*turns(2), rewind("i2"), user("again", invocation_id="i2"), rewind("i2"))

    assert live(done) == [1, 2]


def test_rewind_takes_a_fold_in_its_span_and_gives_back_what_it_masked() -> None:
    done = log(*turns(2), fold(1, 2), user("u3", invocation_id="i3"), rewind(to_seq=4))

    assert live(done) == [1, 2, 3, 4]
    assert done.index.sections == ()
    assert statuses(done) == {5: "rewound"}


def test_fold_over_what_was_rewound_covers_the_rest() -> None:
    done = log(*turns(2), rewind("i2"), fold(1, 5), user("u"))

    assert shown(done.index) == {6: ((1, 2),)}
    assert rewound(done) == [3, 4]


def test_what_was_rewound_when_the_fold_was_made_is_live_when_the_rewind_is_undone() -> None:
    done = log(*turns(2), rewind("i2"), fold(1, 5), undo(5))

    assert live(done) == [3, 4]


# Undo


def test_undo_of_a_fold_gives_its_events_back() -> None:
    done = log(*turns(2), fold(1, 2), undo(5))

    assert live(done) == [1, 2, 3, 4]
    assert statuses(done) == {5: "undone"}


def test_undo_of_an_undo_restores_the_fold() -> None:
    done = log(*turns(2), fold(1, 2), undo(5), undo(6))

    assert live(done) == [3, 4]
    assert statuses(done) == {5: "active"}


def test_undoing_twice_is_undoing_once() -> None:
    done = log(*turns(2), fold(1, 2), undo(5), undo(5))

    assert live(done) == [1, 2, 3, 4]


def test_of_two_undos_both_must_be_undone() -> None:
    done = log(*turns(2), fold(1, 2), undo(5), undo(5), undo(7))

    assert live(done) == [1, 2, 3, 4]


def test_undo_of_a_rewind_restores_what_it_undid() -> None:
    done = log(*turns(2), rewind("i2"), undo(5))

    assert live(done) == [1, 2, 3, 4]
    assert rewound(done) == []


def test_undo_of_a_rewind_restores_the_folds_in_its_span() -> None:
    done = log(*turns(3), fold(1, 2), rewind(to_seq=4), undo(8))

    assert live(done) == [3, 4, 5, 6]
    assert statuses(done) == {7: "active"}


def test_undo_in_a_rewound_span_has_no_effect() -> None:
    done = log(*turns(2), fold(1, 2), undo(5), user("u3"), rewind(to_seq=5))

    assert live(done) == [3, 4]
    assert statuses(done) == {5: "active"}


def test_undo_of_a_rewind_that_took_an_undo_along_brings_that_undo_back() -> None:
    done = log(*turns(2), fold(1, 2), undo(5), rewind(to_seq=5), undo(7))

    assert live(done) == [1, 2, 3, 4]


def test_effective_markers_are_told() -> None:
    done = log(*turns(2), fold(1, 2), undo(5), pin(3), rewind(to_seq=6), user("u"))

    assert effective_markers(markers_of(done)) == {6, 8}


# Belonging


def test_event_belongs_to_the_fold_that_covers_most() -> None:
    index = log(*turns(3), fold(1, 2), fold(1, 4)).index

    assert shown(index) == {8: ((1, 4),)}


def test_age_does_not_matter_to_belonging() -> None:
    # Not strictly inside the older fold, so it may cover what is masked.
    index = log(*turns(4), fold(1, 6), fold(5, 8)).index

    assert shown(index) == {9: ((1, 6),), 10: ((7, 8),)}


def test_of_equally_large_folds_the_newest_is_shown() -> None:
    done = log(*turns(2), fold(1, 2, "old"), fold(1, 2, "new"))

    assert shown(done.index) == {6: ((1, 2),)}
    assert statuses(done) == {5: "superseded", 6: "active"}


def test_superseded_fold_returns_when_what_superseded_it_is_undone() -> None:
    done = log(*turns(3), fold(1, 2), fold(1, 4), undo(8))

    assert shown(done.index) == {7: ((1, 2),)}
    assert live(done) == [3, 4, 5, 6]
    assert statuses(done) == {7: "active", 8: "undone"}


def test_superseded_fold_returns_when_what_superseded_it_is_rewound() -> None:
    done = log(*turns(3), fold(1, 2), fold(1, 4), user("u4"), rewind(to_seq=7))

    assert shown(done.index) == {7: ((1, 2),)}


def test_superseded_fold_returns_when_a_pin_makes_the_other_one_smaller() -> None:
    done = log(*turns(2), fold(2, 3, "old"), fold(1, 2, "new"), pin(1))

    assert shown(done.index) == {5: ((2, 3),)}
    assert live(done) == [1, 4]
    assert statuses(done) == {5: "active", 6: "superseded"}


def test_partly_overlapping_folds_share_what_they_cover() -> None:
    index = log(*turns(3), fold(1, 4), fold(4, 6)).index

    assert shown(index) == {7: ((1, 4),), 8: ((5, 6),)}
    assert [item.at_seq for item in index.sections] == [1, 5]


def test_what_a_section_covers_of_its_lane_counts_and_not_the_whole_fold() -> None:
    done = log(
        user("a"),
        user("b", branch="r"),
        user("c", branch="r"),
        user("d"),
        fold_of(1, 3, section("root"), section("r", branch="r")),
        fold(1, 4),
    )

    # The second goes on from the root's section alone: were the lanes counted together, it would
    # be superseded by what it goes on from, and the log no shorter for it.
    assert shown(done.index) == {5: ((2, 3),), 6: ((1, 1), (4, 4))}


def test_belonging_is_decided_lane_by_lane() -> None:
    root, branch = a_fold(((1, 1), (3, 3))), a_fold(((2, 2),), lane=Lane(branch="r"))

    index = resolve([(4, root), (5, branch)])

    assert [(item.fold_seq, item.lane.branch, item.belongs) for item in index.sections] == [
        (4, "", ((1, 1), (3, 3))),
        (5, "r", ((2, 2),)),
    ]


def test_section_is_read_where_its_first_event_stood() -> None:
    index = log(
        user("a", branch="r"),
        user("b"),
        user("c", branch="r"),
        fold_of(1, 3, section("root"), section("r", branch="r")),
    ).index

    assert [(item.lane.branch, item.at_seq) for item in index.sections] == [("r", 1), ("", 2)]


def test_fold_of_tells_which_fold_masks_an_event() -> None:
    index = log(*turns(3), fold(1, 2), fold(3, 4)).index

    assert [index.fold_of(seq) for seq in range(1, 9)] == [7, 7, 8, 8, None, None, None, None]


def test_live_rewound_masked_and_markers_are_disjoint_and_everything() -> None:
    done = log(*turns(4), fold(1, 3), pin(2), rewind("i4"), fold(3, 5), user("u"))
    masked = {
        seq for pairs in shown(done.index).values() for a, b in pairs for seq in range(a, b + 1)
    }
    markers = {seq for seq, _ in markers_of(done)}
    sets = [set(live(done)), set(rewound(done)) - markers, masked, markers]

    assert sum(map(len, sets)) == len(set().union(*sets)) == len(done.events)


# Pins


def test_pin_opens_a_hole_in_an_earlier_fold() -> None:
    done = log(*turns(3), fold(1, 4), pin(2))

    assert live(done) == [2, 5, 6]
    assert shown(done.index) == {7: ((1, 1), (3, 4))}
    assert done.index.pinned == ((2, 2),)


def test_pin_opens_no_hole_in_a_later_fold_made_over_an_unpinned_event() -> None:
    done = log(*turns(2), pin(2), unpin(2), fold(1, 3))

    assert live(done) == [4]


def test_unpin_leaves_the_hole() -> None:
    done = log(*turns(3), fold(1, 4), pin(2), unpin(2))

    assert live(done) == [2, 5, 6]
    assert done.index.pinned == ()


def test_undo_of_the_pin_closes_the_hole() -> None:
    done = log(*turns(3), fold(1, 4), pin(2), undo(8))

    assert live(done) == [5, 6]
    assert done.index.pinned == ()


def test_undo_of_the_unpin_pins_again() -> None:
    done = log(*turns(1), pin(1), unpin(1), undo(4))

    assert done.index.pinned == ((1, 1),)


def test_pin_covers_the_whole_call_group_in_the_fold() -> None:
    done = log(user("u"), call("t", id="c"), response("c"), model("m"), fold(1, 4), pin(3))

    assert live(done) == [2, 3]


def test_pin_over_all_that_a_fold_covers_leaves_it_superseded() -> None:
    done = log(*turns(2), fold(1, 2), pin(1, 2))

    assert done.index.sections == ()
    assert statuses(done) == {5: "superseded"}


def test_rewound_pin_closes_its_hole() -> None:
    done = log(*turns(3), fold(1, 4), pin(2), user("u4"), rewind(to_seq=7))

    assert live(done) == [5, 6]


def test_pin_of_an_event_that_is_rewound_later_pins_nothing() -> None:
    done = log(*turns(2), pin(3), rewind("i2"), undo(6))

    assert done.index.pinned == ((3, 3),)
    assert log(*turns(2), pin(1), rewind(to_seq=0)).index.pinned == ()


# Staged folds


def test_staged_fold_masks_nothing_until_it_is_activated() -> None:
    staged = [*turns(2), fold_of(1, 2, section("s"), staged=True)]

    waiting, active = log(*staged), log(*staged, activate(5))

    assert (live(waiting), statuses(waiting)) == ([1, 2, 3, 4], {5: "staged"})
    assert (live(active), statuses(active)) == ([3, 4], {5: "active"})


def test_undo_of_the_activation_stages_again() -> None:
    done = log(*turns(2), fold_of(1, 2, section("s"), staged=True), activate(5), undo(6))

    assert live(done) == [1, 2, 3, 4]
    assert statuses(done) == {5: "staged"}


def test_rewound_activation_has_no_effect() -> None:
    done = log(
        *turns(2),
        fold_of(1, 2, section("s"), staged=True),
        activate(5),
        user("u"),
        rewind(to_seq=5),
    )

    assert live(done) == [1, 2, 3, 4]


def test_undone_staged_fold_is_not_used_even_when_activated() -> None:
    done = log(*turns(2), fold_of(1, 2, section("s"), staged=True), undo(5), activate(5))

    assert live(done) == [1, 2, 3, 4]
    assert statuses(done) == {5: "undone"}


def test_time_of_activation_does_not_matter_to_belonging() -> None:
    done = log(*turns(3), fold_of(1, 4, section("large"), staged=True), fold(1, 2), activate(7))

    assert shown(done.index) == {7: ((1, 4),)}


def test_pin_between_staging_and_activation_opens_its_hole_too() -> None:
    done = log(*turns(2), fold_of(1, 3, section("s"), staged=True), pin(2), activate(5))

    assert live(done) == [2, 4]


# A fold strictly inside another


def test_fold_inside_an_active_one_covers_only_what_is_live_there() -> None:
    done = log(*turns(3), fold(1, 5), pin(2), unpin(2), fold(2, 3))

    assert shown(done.index) == {7: ((1, 1), (3, 5)), 10: ((2, 2),)}


def test_fold_inside_an_active_one_that_would_cover_nothing_is_refused() -> None:
    with pytest.raises(CompactionRangeError):
        log(*turns(3), fold(1, 5), fold(2, 3))


# Hand-made markers: what an append would not make, but a stored log may hold


def test_undo_of_what_is_no_marker_changes_nothing() -> None:
    assert resolve([(3, Undo(1))]).live == ((1, 2), (4, FOREVER))


def test_rewind_of_everything_leaves_what_comes() -> None:
    assert resolve([(5, Rewind(1))]).live == ((6, FOREVER),)


# Elisions


def elided(index: Index) -> dict[int, tuple[int, int]]:
    """Return marker and characters kept of each elided event."""
    return {
        seq: (each.marker_seq, each.keep_chars)
        for each in index.elided
        for start, end in each.seqs
        for seq in range(start, end + 1)
    }


def test_elided_events_stay_live() -> None:
    done = log(*turns(2), elide(1, 3, keep=7))

    assert live(done) == [1, 2, 3, 4]
    assert elided(done.index) == {1: (5, 7), 3: (5, 7)}
    assert done.index.elision_of(2) is None


def test_of_two_elisions_of_an_event_the_newest_counts_until_it_is_undone() -> None:
    events = (*turns(2), elide(1, 2), elide(2, 3, keep=7))

    assert elided(log(*events).index) == {1: (5, 0), 2: (6, 7), 3: (6, 7)}
    assert elided(log(*events, undo(6)).index) == {1: (5, 0), 2: (5, 0)}


def test_a_later_pin_brings_an_elided_event_back_and_undoing_the_pin_elides_it_again() -> None:
    events = (*turns(2), elide(1, 2), pin(1))

    assert elided(log(*events).index) == {2: (5, 0)}
    assert elided(log(*events, unpin(1)).index) == {2: (5, 0)}
    assert elided(log(*events, undo(6)).index) == {1: (5, 0), 2: (5, 0)}


def test_what_is_pinned_cannot_be_elided_before_it_is_unpinned() -> None:
    with pytest.raises(InvalidEventError):
        log(*turns(2), pin(1), elide(2, 1))
    assert elided(log(*turns(2), pin(1), unpin(1), elide(1)).index) == {1: (7, 0)}


@pytest.mark.parametrize("seq", [3, 4, 9])
def test_only_events_of_the_log_can_be_elided(seq: int) -> None:
    with pytest.raises(InvalidEventError):
        log(*turns(1), pin(1), elide(seq))


def test_an_elision_in_a_rewound_span_has_no_effect_and_returns_with_it() -> None:
    events = (*turns(2), elide(1, 3), rewind(to_seq=4))

    assert elided(log(*events).index) == {}
    assert elided(log(*events, undo(6)).index) == {1: (5, 0), 3: (5, 0)}


def test_what_is_rewound_is_not_elided() -> None:
    assert elided(log(*turns(2), elide(1, 3), rewind("i2")).index) == {}
    done = log(*turns(2), rewind("i2"), elide(1, 3))
    assert elided(done.index) == {1: (6, 0)}


# Staged folds


def test_a_staged_fold_waits_until_it_is_activated_undone_or_rewound() -> None:
    events = (*turns(2), fold_of(1, 2, section("s"), staged=True))

    assert log(*events).index.staged == (5,)
    assert log(*events, activate(5)).index.staged == ()
    assert log(*events, activate(5), undo(6)).index.staged == (5,)
    assert log(*events, undo(5)).index.staged == ()
    assert log(*events, rewind(to_seq=4)).index.staged == ()


# What nobody appended


@pytest.mark.parametrize("seq", [6, FOREVER, FOREVER + 3])
def test_a_marker_beyond_every_seq_shows_what_it_would_do(seq: int) -> None:
    done = log(*turns(2), fold(1, 2))
    markers = [(each.seq, each.marker) for each in done.events if each.marker is not None]

    assert resolve([*markers, (seq, Undo(5))]).sections == ()


def test_folding_again_and_again_leaves_one_range() -> None:
    events: list[Event] = []
    for number in range(1, 61):
        events += [user(f"u{number}"), model(f"m{number}"), fold(1, 3 * number - 1)]
    done = log(*events)
    newest = done.events[-1].marker

    assert isinstance(newest, Fold)
    assert newest.sections[0].covers == ((1, 179),)
    assert [section.belongs for section in done.index.sections] == [((1, 179),)]
    assert done.index.live == ((181, FOREVER),)
