"""Usage objects of every provider."""

from typing import Any

import pytest

from app.core.usage import Usage, read_usage


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {
                "input_tokens": 12,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 88,
                "output_tokens": 5,
            },
            (1_000, 5, 900, 88),
        ),
        (
            {
                "inputTokens": 12,
                "cacheReadInputTokens": 0,
                "cacheWriteInputTokens": 988,
                "outputTokens": 5,
                "totalTokens": 1005,
            },
            (1_000, 5, 0, 988),
        ),
        (
            {
                "prompt_tokens": 1_000,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 896, "cache_write_tokens": 104},
            },
            (1_000, 5, 896, 104),
        ),
        (
            {
                "input_tokens": 1_000,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": 0},
            },
            (1_000, 5, 0, None),
        ),
        (
            {"promptTokenCount": 1_000, "cachedContentTokenCount": 700, "candidatesTokenCount": 5},
            (1_000, 5, 700, None),
        ),
        ({"prompt_token_count": 1_000}, (1_000, None, None, None)),
        (
            {
                "input_tokens": 1_000,
                "cached_tokens": 7,
                "cache_write_tokens": 3,
                "output_tokens": 5,
            },
            (1_000, 5, 7, 3),
        ),
    ],
)
def test_every_providers_usage_is_read(value: dict[str, Any], expected: tuple[Any, ...]) -> None:
    usage = read_usage(value)
    read = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
    assert read == expected


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"input_tokens": None},
        {"input_tokens": -1},
        {"input_tokens": True},
        {"input_tokens": "9"},
    ],
)
def test_what_is_no_count_is_not_said(value: dict[str, Any]) -> None:
    assert read_usage(value) == Usage()
