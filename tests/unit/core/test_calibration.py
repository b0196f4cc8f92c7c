"""Learning how a provider counts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.calibration import (
    STEP_PERCENT,
    Calibration,
    Learnt,
    calibration_of,
    is_believable,
    limit_after_overflow,
)
from app.providers.model_rules import load_model_rules

OPUS = load_model_rules().find("claude-opus-5-5")


def taught(*reports: tuple[int, int]) -> Learnt:
    learnt = Learnt()
    for ours, theirs in reports:
        learnt = learnt.report(ours=ours, theirs=theirs)
    return learnt


def test_a_tokenizer_of_130_percent_is_learnt_within_five_reports() -> None:
    noisy = [(1_000, 1_330), (5_000, 6_400), (9_000, 11_900), (12_000, 15_500), (20_000, 26_000)]
    learnt = taught(*noisy)
    assert abs(learnt.percent - 130) <= STEP_PERCENT
    calibration = calibration_of(learnt, OPUS)
    assert calibration.is_learnt
    assert abs(calibration.tokens(10_000) - 13_000) <= calibration.error(13_000)


@given(
    st.floats(0.5, 3.0),
    st.lists(st.tuples(st.integers(1_000, 10**6), st.floats(-0.02, 0.02)), min_size=5, max_size=9),
)
def test_whatever_the_tokenizer_five_reports_are_enough(
    factor: float, reports: list[tuple[int, float]]
) -> None:
    learnt = taught(*((ours, round(ours * factor * (1 + noise))) for ours, noise in reports))
    assert abs(learnt.percent / 100 - factor) <= 0.02 + 0.02 * factor + 0.01


@example(factor=3.875, first_off=0.04, later=0, ours=1_000)
@given(
    st.floats(0.3, 3.9),
    st.floats(-0.05, 0.05),
    st.integers(0, 30),
    st.integers(1_000, 10**6),
)
def test_a_provider_that_counts_evenly_stays_within_the_error_bound(
    factor: float, first_off: float, later: int, ours: int
) -> None:
    # Beyond these a report is not believed, and teaches nothing.
    first = min(3.99, max(0.26, factor * (1 + first_off)))
    learnt = taught((10**6, round(10**6 * first)), *[(10**6, round(10**6 * factor))] * later)
    calibration = calibration_of(learnt, None)
    told = calibration.tokens(ours)
    assert abs(told - ours * factor) <= calibration.error(told) + 1


def test_what_is_used_lags_behind_and_the_bound_says_so() -> None:
    """48 stands while 50 is learnt: that is four in a hundred."""
    learnt = taught((10**6, 480_000), *[(10**6, 500_000)] * 40)
    calibration = calibration_of(learnt, None)
    assert learnt.percent == 48
    assert calibration.tokens(10_000) + calibration.error(4_800) >= 5_000


def test_the_percentage_stays_while_reports_agree_with_it() -> None:
    learnt = taught(*[(10_000, 13_000)] * 5)
    for theirs in (13_100, 12_900, 13_150, 12_850):
        learnt = learnt.report(ours=10_000, theirs=theirs)
        assert learnt.percent == 130


def test_a_model_that_changes_its_tokenizer_is_learnt_anew() -> None:
    learnt = taught(*[(10_000, 10_000)] * 20)
    for _ in range(15):
        learnt = learnt.report(ours=10_000, theirs=13_500)
    assert abs(learnt.percent - 135) <= STEP_PERCENT + 1


def test_what_cannot_be_this_request_teaches_nothing() -> None:
    learnt = taught((10_000, 12_000))
    for ours, theirs in ((10_000, 90_000), (10_000, 100), (50, 80), (0, 10)):
        assert learnt.report(ours=ours, theirs=theirs) == learnt


def test_without_reports_the_rule_counts_and_without_a_rule_our_own() -> None:
    assert OPUS is not None
    assert calibration_of(None, OPUS).percent == OPUS.tokenizer.percent
    refused = calibration_of(Learnt(limit_tokens=5), OPUS)
    assert (refused.limit_tokens, refused.percent) == (5, OPUS.tokenizer.percent)
    assert calibration_of(None, None) == Calibration()


def test_reports_that_agree_narrow_the_error() -> None:
    steady = calibration_of(taught(*[(10_000, 13_000)] * 6), OPUS)
    wild = calibration_of(taught(*[(10_000, 13_000), (10_000, 16_000)] * 3), OPUS)
    assert steady.error_percent < wild.error_percent
    assert steady.error_percent < calibration_of(None, OPUS).error_percent


@given(st.integers(1, 10**7), st.integers(25, 400))
def test_what_fits_our_budget_fits_the_models(tokens: int, percent: int) -> None:
    calibration = Calibration(percent=percent)
    assert calibration.tokens(calibration.budget(tokens)) <= tokens


def test_a_limit_is_what_the_provider_says_less_the_reserve() -> None:
    limit = limit_after_overflow(input_limit=200_000, reserve_tokens=32_000, refused_tokens=1)
    assert limit == 168_000


def test_a_reserve_never_takes_most_of_a_small_window() -> None:
    limit = limit_after_overflow(input_limit=8_000, reserve_tokens=64_000, refused_tokens=9_000)
    assert limit == 6_000


def test_a_refusal_without_a_number_takes_a_tenth_off() -> None:
    limit = limit_after_overflow(input_limit=None, reserve_tokens=9, refused_tokens=10_000)
    assert limit == 9_000


def test_a_larger_request_that_is_taken_raises_the_limit_again() -> None:
    learnt = Learnt().refused(9_000)
    assert learnt.accepted(8_000).limit_tokens == 9_000
    assert learnt.accepted(9_500).limit_tokens == 9_500
    assert Learnt().accepted(9_500).limit_tokens is None


@pytest.mark.parametrize(
    ("limit", "actual", "ours", "is_so"),
    [
        (200_000, 214_000, 190_000, True),
        (None, None, 190_000, True),
        (8_192, None, 9_000, True),
        # Nobody's window.
        (5, 9, 6, False),
        (0, None, 50_000, False),
        # Of another request: ours was of a few words.
        (3_000, 4_200, 12, False),
        (128_000, 129_000, 1_800, False),
        # Framing alone makes much of a small difference.
        (1_000, 1_010, 200, True),
    ],
)
def test_only_what_can_be_of_the_request_is_believed(
    limit: int | None, actual: int | None, ours: int, *, is_so: bool
) -> None:
    assert is_believable(limit, actual, ours=ours) is is_so
