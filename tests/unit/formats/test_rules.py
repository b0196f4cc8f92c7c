"""The file of model rules: what a number needs, how families extend, how names are found."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from app.core.model_rules import plain_name, rule_from_text
from app.formats.rules.loader import RulesError, parse_rules
from app.providers.model_rules import load_model_rules

RULES = load_model_rules()


def written(*families: dict[str, Any], date: str = "2026-01-01") -> str:
    return json.dumps({"rules_date": date, "sources": {"s": "a source"}, "families": families})


def family(name: str = "f", **facts: Any) -> dict[str, Any]:
    return {"family": name, "provider": "p", "match": [name], **facts}


def test_the_rules_that_come_with_the_service_are_dated_and_can_be_read() -> None:
    assert RULES.date == "2026-11-29"
    assert RULES.currency == "USD"
    assert {rule.provider for rule in RULES.rules} == {"anthropic", "bedrock", "gemini", "openai"}


def test_every_rule_survives_its_own_text() -> None:
    for rule in RULES.rules:
        assert rule_from_text(rule.text) == rule


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-opus-4-8-20260101", "claude-opus-4-8"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("anthropic.claude-haiku-5-5", "claude-haiku-5-5"),
        ("anthropic/claude-sonnet-4.6", "claude-sonnet-4-6"),
        ("claude-opus-4-7", "claude-opus-4-7"),
        ("anthropic/claude-opus-4.7", "claude-opus-4-7"),
        ("us.anthropic.claude-opus-4-7-v1:0", "claude-opus-4-7-bedrock"),
        ("bedrock/converse/anthropic.claude-opus-4-7", "claude-opus-4-7-bedrock"),
        ("anthropic.claude-opus-4-9", "claude-unknown"),
        ("claude-opus-4-9", "claude-unknown"),
        ("claude-opus-6", "claude-unknown"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("openai/gpt-5-mini", "gpt-5-mini"),
        ("gpt-5.6", "gpt-5.6"),
        ("gpt-5.7", "gpt-unknown"),
        ("gpt-5-chat-latest", "gpt-5-chat"),
        ("models/gemini-3.1-pro-preview", "gemini-3.1-pro"),
        ("publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini-2.5-flash-lite", "gemini-2.5-flash-lite"),
        ("us.amazon.nova-lite-v1:0", "nova-lite"),
    ],
)
def test_a_model_is_found_in_every_spelling_and_a_new_version_is_another_model(
    model: str, expected: str
) -> None:
    rule = RULES.find(model)
    assert rule is not None
    assert rule.family == expected


@pytest.mark.parametrize("model", ["", "llama-4", "my-model", "o9"])
def test_of_an_unknown_model_nothing_is_assumed(model: str) -> None:
    assert RULES.find(model) is None


def test_the_rule_for_unknown_models_of_a_maker_names_no_window() -> None:
    for model in ("claude-next", "gpt-next", "gemini-next"):
        rule = RULES.find(model)
        assert rule is not None
        assert rule.budget_tokens() is None
        assert rule.prices is None


def test_the_default_budget_is_the_window_less_the_reserve() -> None:
    rule = RULES.find("gpt-5")
    assert rule is not None
    assert rule.budget_tokens() == 400_000 - 128_000


def test_a_larger_request_may_have_other_prices() -> None:
    rule = RULES.find("claude-haiku-5-5")
    assert rule is not None
    prices = [rule.prices_of(tokens) for tokens in (100_000, 100_001)]
    assert [each.input for each in prices if each] == [0.1, 0.5]


def test_plain_names_lose_paths_regions_and_makers() -> None:
    assert plain_name("projects/p/models/Gemini-3-Pro") == "gemini-3-pro"
    assert plain_name("eu.anthropic.claude-opus-5") == "claude-opus-5"


def test_a_family_says_only_what_differs_from_the_one_it_extends() -> None:
    base = {
        "family": "base",
        "provider": "p",
        "window_tokens": [10, "s"],
        "cache": {"kind": ["markers", "s"], "min_tokens": [5, "s"]},
    }
    rules = parse_rules(written(base, family("f", extends="base", cache={"min_tokens": [7, "s"]})))
    (rule,) = rules.rules
    assert rule.window_tokens == 10
    assert (rule.cache.kind, rule.cache.min_tokens) == ("markers", 7)


def test_a_file_laid_over_ours_wins_and_gives_the_date() -> None:
    over = written(
        {"family": "gpt-5", "window_tokens": [64_000, "s"], "output_reserve_tokens": [1, "s"]},
        family("my-model", window_tokens=[9_000, "s"]),
        date="2027-02-03",
    )
    mine = parse_rules(written(family("gpt-5", window_tokens=[400_000, "s"])), over)
    assert mine.date == "2027-02-03"
    found = [mine.find(name) for name in ("gpt-5", "my-model")]
    assert [rule.budget_tokens() for rule in found if rule] == [63_999, 9_000]


@pytest.mark.parametrize(
    ("facts", "where"),
    [
        ({"window_tokens": 10}, "f.window_tokens"),
        ({"window_tokens": [10, "nowhere"]}, "no such source"),
        ({"window_tokens": [-1, "s"]}, "must not be negative"),
        ({"window_tokens": ["10", "s"]}, "wrong kind"),
        ({"window_tokens": [True, "s"]}, "wrong kind"),
        ({"is_reasoning_bound": [1, "s"]}, "wrong kind"),
        ({"windows": [10, "s"]}, "unknown key windows"),
        ({"cache": {"kind": ["magic", "s"]}}, "f.cache.kind"),
        ({"media": {"image": {"rule": ["area", "s"]}}}, "f.media.image"),
        ({"window_tokens": [5, "s"], "output_reserve_tokens": [5, "s"]}, "leaves nothing"),
        ({"tokenizer": {"percent": [0, "s"]}}, "f.tokenizer.percent"),
        ({"extends": "nobody"}, "extends no other family"),
        ({"extends": "f"}, "extends no other family"),
        ({"prices": {"input": [1, "s"]}}, "output"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told_with_its_place(
    facts: dict[str, Any], where: str
) -> None:
    with pytest.raises(RulesError, match=where):
        parse_rules(written(family(**facts)))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rules_date": "today"}', '{"rules_date": "2026-01-01"}']
)
def test_a_file_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(RulesError):
        parse_rules(text)


def _facts(value: Any) -> Iterator[str]:
    """Yield the source of every fact."""
    match value:
        case [_, str(source)]:
            yield source
        case dict():
            for key, inner in value.items():
                if key not in ("match", "family", "extends", "provider"):
                    yield from _facts(inner)


def test_every_source_is_of_a_kind_has_a_date_and_is_used() -> None:
    document = json.loads(
        files("app.formats.rules").joinpath("model_rules.json").read_text(encoding="utf-8")
    )
    sources = document["sources"]
    for name, text in sources.items():
        assert re.match(r"(S|D|T|K|ours): ", text), name
        assert re.search(r"\d{4}-\d{2}-\d{2}", text), name
        # What is known from experience alone says so.
        if text.startswith("K: "):
            assert "not checked again" in text, name
    used = {source for each in document["families"] for source in _facts(each)}
    assert used == set(sources)
