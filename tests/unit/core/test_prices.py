"""Prices of input: what is read from a cache, what is written to it, and large requests."""

import pytest

from app.core.prices import input_price
from app.providers.model_rules import load_model_rules

RULES = load_model_rules()


@pytest.mark.parametrize(
    ("model", "tokens", "cached", "ttl", "expected"),
    [
        ("claude-sonnet-5", 10_000, 0, "5m", 0.025),
        ("claude-sonnet-5", 10_000, 0, "1h", 0.04),
        ("claude-sonnet-5", 10_000, 8_000, "5m", 0.0016 + 0.005),
        # Too short to be cached, and more than the request has.
        ("claude-sonnet-5", 10_000, 1_000, "5m", 0.025),
        ("claude-sonnet-5", 10_000, 99_000, "5m", 0.002),
        # Writing costs nothing beside the input; large requests cost more.
        ("gpt-5.4", 10_000, 8_000, "1h", 0.002 + 0.005),
        ("gemini-3.1-pro", 300_000, 200_000, "5m", 0.08 + 0.4),
    ],
)
def test_input_is_priced_by_the_rule(
    model: str, tokens: int, cached: int, ttl: str, expected: float
) -> None:
    rule = RULES.find(model)
    assert rule is not None
    price = input_price(rule, tokens, cached_tokens=cached, ttl=ttl)  # type: ignore[arg-type]
    assert price == pytest.approx(expected)


def test_without_a_known_price_none_is_said() -> None:
    rule = RULES.find("gpt-unheard-of")
    assert rule is not None
    assert input_price(rule, 10_000) is None
