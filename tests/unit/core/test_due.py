"""When a fold may be due, told from counts alone."""

from typing import Any

import pytest

from app.core.compaction.due import Counters, due_moment, is_held_back
from app.core.compaction.policy import CompactionPolicy


def _policy(strategy: Any, **fields: Any) -> CompactionPolicy:
    return CompactionPolicy(strategy=strategy, **fields)


INTERVAL = _policy("interval", compaction_interval=3, overlap_size=1)
THRESHOLD = _policy("threshold", token_threshold=1000, event_retention_size=4)
BOTH = _policy("both", token_threshold=1000, compaction_interval=3)


@pytest.mark.parametrize(
    ("policy", "counters", "moment"),
    [
        (INTERVAL, Counters(invocations_new=2, tokens_live=10**9), None),
        (INTERVAL, Counters(invocations_new=3), "interval"),
        (THRESHOLD, Counters(tokens_live=999, invocations_new=50), None),
        (THRESHOLD, Counters(tokens_live=1000), "threshold"),
        (BOTH, Counters(tokens_live=1000, invocations_new=3), "threshold"),
        (BOTH, Counters(tokens_live=999, invocations_new=3), "interval"),
        (_policy("window", window_size=4), Counters(live_events=4), None),
        (_policy("window", window_size=4), Counters(live_events=5), "threshold"),
        (_policy("auto", context_window=1000), Counters(tokens_live=849), None),
        (_policy("auto", context_window=1000), Counters(tokens_live=850), "threshold"),
        (_policy("none"), Counters(tokens_live=10**9, invocations_new=10**6), None),
    ],
)
def test_each_strategy_has_its_moment(
    policy: CompactionPolicy, counters: Counters, moment: str | None
) -> None:
    assert due_moment(policy, counters) == moment


def test_the_size_of_a_whole_request_counts_where_it_is_known() -> None:
    counters = Counters(tokens_live=400)

    assert due_moment(THRESHOLD, counters, projected_tokens=1000) == "threshold"


def test_where_nobody_knows_the_window_only_a_request_is_too_large() -> None:
    chosen = _policy("auto", has_window=False)
    counters = Counters(tokens_live=10**9)

    assert due_moment(chosen, counters) is None
    assert due_moment(chosen, counters, projected_tokens=1) == "threshold"


def test_what_was_refused_is_not_due_again_before_it_has_grown() -> None:
    assert due_moment(THRESHOLD, Counters(tokens_live=2000, tokens_tried=2000)) is None
    assert due_moment(THRESHOLD, Counters(tokens_live=2099, tokens_tried=2000)) is None
    assert due_moment(THRESHOLD, Counters(tokens_live=2100, tokens_tried=2000)) == "threshold"


def test_a_refused_threshold_leaves_the_interval_its_turn() -> None:
    counters = Counters(tokens_live=2000, tokens_tried=2000, invocations_new=3)

    assert due_moment(BOTH, counters) == "interval"


def test_what_is_large_and_was_tried_is_held_back() -> None:
    tried = Counters(tokens_live=2000, tokens_tried=2000)

    assert is_held_back(THRESHOLD, tried)
    assert is_held_back(
        THRESHOLD, Counters(tokens_live=10, tokens_tried=2000), projected_tokens=2000
    )
    assert not is_held_back(THRESHOLD, Counters(tokens_live=2000))
    assert not is_held_back(THRESHOLD, Counters(tokens_live=10, tokens_tried=2000))
    assert not is_held_back(THRESHOLD, Counters(tokens_live=2100, tokens_tried=2000))
