"""Policies as values."""

import pytest

from app.core.compaction.policy import CompactionPolicy, SummarizerPolicy
from app.core.policy import DEFAULT_POLICY, validate_policy
from tests.planning import policy


def test_the_servers_default_is_auto_with_extractive_summaries() -> None:
    chosen = CompactionPolicy.of(DEFAULT_POLICY)
    assert (chosen.strategy, chosen.trigger_ratio, chosen.context_window) == ("auto", 0.85, 200_000)
    assert (chosen.fanout, chosen.pin_first, chosen.has_worth_check) == (8, 0, True)
    assert SummarizerPolicy.of(DEFAULT_POLICY).kind == "extractive"


def test_a_policy_without_compaction_is_the_default() -> None:
    assert CompactionPolicy.of({}) == CompactionPolicy(has_window=False)
    assert SummarizerPolicy.of({}) == SummarizerPolicy()


def test_what_a_policy_says_is_taken() -> None:
    whole = {
        "compaction": {
            "strategy": "both",
            "compaction_interval": 3,
            "overlap_size": 1,
            "token_threshold": 900,
            "event_retention_size": 4,
            "fanout": 5,
            "pin_first": 2,
            "activation": "staged",
            "worth_check": False,
        },
        "summarizer": {"kind": "openai", "model": "m", "temperature": 0.5, "timeout_s": 9},
    }
    validate_policy(whole)  # type: ignore[arg-type]
    chosen = CompactionPolicy.of(whole)  # type: ignore[arg-type]
    assert chosen == CompactionPolicy(
        has_window=False,
        strategy="both",
        compaction_interval=3,
        overlap_size=1,
        token_threshold=900,
        event_retention_size=4,
        fanout=5,
        pin_first=2,
        is_staged=True,
        has_worth_check=False,
    )
    summarizer = SummarizerPolicy.of(whole)  # type: ignore[arg-type]
    assert (summarizer.kind, summarizer.model, summarizer.timeout_s) == ("openai", "m", 9)


@pytest.mark.parametrize(
    ("strategy", "moments"),
    [
        ("none", ()),
        ("interval", ("interval", "fanout")),
        ("both", ("threshold", "interval", "fanout")),
        ("window", ("threshold", "fanout")),
        ("auto", ("threshold", "fanout")),
    ],
)
def test_every_strategy_has_its_moments(strategy: str, moments: tuple[str, ...]) -> None:
    assert policy(strategy=strategy).moments == moments


def test_tokens_that_begin_a_fold() -> None:
    assert policy(strategy="auto", context_window=1_000).trigger_tokens == 850
    assert policy(strategy="threshold", token_threshold=70).trigger_tokens == 70
    assert policy(strategy="window", window_size=3).trigger_tokens is None
    assert policy(strategy="interval").trigger_tokens is None


@pytest.mark.parametrize(
    ("own", "of_request", "expected"),
    [
        (None, None, (200_000, False)),
        (None, 111_616, (111_616, True)),
        (50_000, 111_616, (50_000, True)),
        (500_000, 111_616, (111_616, True)),
        (50_000, None, (50_000, True)),
    ],
)
def test_the_smaller_window_of_policy_and_request_counts(
    own: int | None, of_request: int | None, expected: tuple[int, bool]
) -> None:
    said = {"compaction": {"context_window": own}}
    chosen = CompactionPolicy.of(said, window_tokens=of_request)  # type: ignore[arg-type]
    assert (chosen.context_window, chosen.has_window) == expected
