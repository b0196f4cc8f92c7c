"""What a policy may say."""

from typing import Any

import pytest

from app.core.errors import InvalidInputError
from app.core.policy import (
    DEFAULT_POLICY,
    effective_policy,
    merge_patch,
    pin_cap,
    validate_policy,
)


@pytest.mark.parametrize(
    "policy",
    [
        {},
        DEFAULT_POLICY,
        {"compaction": {"strategy": "none"}},
        {"compaction": {"trigger_ratio": 0.7, "context_window": 1000}},
        {
            "compaction": {
                "strategy": "interval",
                "compaction_interval": 3,
                "overlap_size": 0,
                "fanout": 4,
                "worth_check": False,
            }
        },
        {
            "compaction": {
                "strategy": "both",
                "compaction_interval": 3,
                "overlap_size": 1,
                "token_threshold": 100,
                "event_retention_size": 5,
            }
        },
        {"compaction": {"strategy": "window", "window_size": 10, "activation": "staged"}},
        {"summarizer": {"kind": "openai", "model": "m", "temperature": 0, "timeout_s": 1.5}},
        {"offload": None, "pins": {"max_tokens": 0}},
    ],
)
def test_a_policy_is_taken(policy: dict[str, Any]) -> None:
    validate_policy(policy)


@pytest.mark.parametrize(
    ("policy", "pointer"),
    [
        ([], "/policy"),
        ({"compaktion": {}}, "/policy/compaktion"),
        ({"compaction": 1}, "/policy/compaction"),
        ({"compaction": {"strategy": 1}}, "/policy/compaction/strategy"),
        ({"compaction": {"stratgy": "auto"}}, "/policy/compaction/stratgy"),
        ({"compaction": {"fanout": 1}}, "/policy/compaction/fanout"),
        ({"compaction": {"fanout": True}}, "/policy/compaction/fanout"),
        ({"compaction": {"fanout": 10**30}}, "/policy/compaction/fanout"),
        ({"compaction": {"trigger_ratio": 0}}, "/policy/compaction/trigger_ratio"),
        ({"compaction": {"trigger_ratio": 1.1}}, "/policy/compaction/trigger_ratio"),
        ({"summarizer": {"kind": "magic"}}, "/policy/summarizer/kind"),
        ({"summarizer": {"url": "http://x"}}, "/policy/summarizer/url"),
        ({"summarizer": {"model": ""}}, "/policy/summarizer/model"),
        ({"offload": {"threshold_tokens": 100, "preview_tokens": 10}}, "/policy/offload"),
        ({"offload": {}}, "/policy/offload"),
        ({"pins": {"max_tokens": -1}}, "/policy/pins/max_tokens"),
        ({"pins": None}, "/policy/pins"),
    ],
)
def test_a_wrong_policy_is_refused_by_name(policy: Any, pointer: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        validate_policy(policy, "/policy")
    assert caught.value.pointer == pointer


def test_keys_that_a_strategy_does_not_use_are_refused() -> None:
    compaction: Any = {"strategy": "window", "window_size": 3, "token_threshold": 5}
    with pytest.raises(InvalidInputError, match="does not use token_threshold"):
        validate_policy({"compaction": compaction})
    with pytest.raises(InvalidInputError, match="does not use fanout"):
        validate_policy({"compaction": {"strategy": "none", "fanout": 4}})


@pytest.mark.parametrize("missing", ["token_threshold", "event_retention_size"])
def test_pairs_come_together(missing: str) -> None:
    pair: Any = {"token_threshold": 5, "event_retention_size": 2}
    pair.pop(missing)
    with pytest.raises(InvalidInputError, match=missing):
        validate_policy({"compaction": {"strategy": "threshold", **pair}})


def test_a_retention_of_nothing_is_refused() -> None:
    compaction: Any = {"strategy": "threshold", "token_threshold": 5, "event_retention_size": 0}
    with pytest.raises(InvalidInputError):
        validate_policy({"compaction": compaction})


def test_the_most_specific_policy_wins_a_key_whole() -> None:
    session: Any = {"compaction": {"strategy": "none"}}
    app: Any = {"compaction": {"strategy": "auto", "fanout": 4}, "pins": {"max_tokens": 7}}
    assert effective_policy(session, app, None) == {
        "compaction": {"strategy": "none"},
        "pins": {"max_tokens": 7},
    }


def test_pins_take_a_fifth_of_the_window_unless_the_policy_says_otherwise() -> None:
    assert pin_cap({}) == 40_000
    assert pin_cap({"compaction": {"context_window": 1000}}) == 200
    assert pin_cap({"pins": {"max_tokens": 0}}) == 0


def test_a_merge_patch_merges_objects_and_replaces_the_rest() -> None:
    target: Any = {"a": {"b": 1, "c": 2}, "d": [1, 2]}
    assert merge_patch(target, {"a": {"b": None, "e": 3}, "d": [3]}) == {
        "a": {"c": 2, "e": 3},
        "d": [3],
    }
    assert merge_patch(target, 5) == 5
    assert merge_patch("x", {"a": 1}) == {"a": 1}
    assert target == {"a": {"b": 1, "c": 2}, "d": [1, 2]}
