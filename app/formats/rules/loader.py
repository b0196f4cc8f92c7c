"""Read the file of model rules: every number with its source, families that extend others.

    "window_tokens": [1000000, "anthropic-models"]      a value, and the key of its source

A second file of the same shape may be laid over the first: a family that both have is the first's
with the second's values, a family that only the second has comes before the first's.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from app.core.model_rules import ModelRule, ModelRules, rule_of

Family: TypeAlias = Mapping[str, Any]

#: What names, sorts or joins families, and is no fact about a model.
_PLAIN_KEYS: Final = frozenset({"family", "match", "extends", "provider", "is_fallback"})
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_CACHE_KINDS: Final = ("markers", "breakpoints", "automatic", "explicit", "none")
_IMAGE_RULES: Final = ("area", "tiles", "flat")


class RulesError(ValueError):
    """The file cannot be used; the text says what and where."""


def parse_rules(text: str, *overrides: str) -> ModelRules:
    """Return the rules of a file, with those of others laid over it.

    Raises:
        RulesError: a file is not of the shape, or a number has no source.
    """
    documents = [_document(each) for each in (text, *overrides)]
    families: dict[str, Family] = {}
    sources: dict[str, str] = {}
    for document in documents:
        sources |= document["sources"]
        own: dict[str, Family] = {}
        for family in document["families"]:
            name = family["family"]
            if name in own:
                raise RulesError(f"{name}: twice in one file")
            own[name] = _merged(families[name], family) if name in families else family
        families = own | {name: each for name, each in families.items() if name not in own}
    rules = [_rule(name, families, sources) for name in families]
    return ModelRules(
        date=documents[-1]["rules_date"],
        currency=documents[0]["currency"],
        rules=tuple(rule for rule in rules if rule.match),
    )


def _document(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RulesError(f"is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise RulesError("must be an object")
    if not _DATE.fullmatch(str(value.get("rules_date"))):
        raise RulesError("rules_date: must be a date such as 2026-11-29")
    families = value.get("families")
    if not isinstance(families, list) or not all(
        isinstance(each, dict) and isinstance(each.get("family"), str) for each in families
    ):
        raise RulesError("families: must be a list of objects, each with its name as family")
    sources = value.get("sources", {})
    if not isinstance(sources, dict):
        raise RulesError("sources: must be an object")
    return {"currency": "USD", **value, "sources": sources}


def _rule(name: str, families: Mapping[str, Family], sources: Mapping[str, str]) -> ModelRule:
    whole = _extended(name, families, ())
    # Only its own names find a family, not those of what it extends.
    fields = {"match": families[name].get("match", []), "family": name}
    values = {key: value for key, value in whole.items() if key not in ("extends", *fields)}
    try:
        rule = rule_of({**fields, **_plain(values, sources, name)})
    except (TypeError, ValueError) as error:
        raise RulesError(f"{name}: {error}") from error
    _check(rule)
    return rule


def _extended(name: str, families: Mapping[str, Family], seen: tuple[str, ...]) -> Family:
    if name not in families or name in seen:
        raise RulesError(f"{seen[-1] if seen else name}: extends no other family: {name}")
    family = families[name]
    base = family.get("extends")
    if base is None:
        return family
    inherited = {
        key: value
        for key, value in _extended(base, families, (*seen, name)).items()
        if key != "is_fallback"
    }
    return _merged(inherited, family)


def _merged(base: Family, over: Family) -> Family:
    merged = dict(base)
    for key, value in over.items():
        before = merged.get(key)
        both = isinstance(before, dict) and isinstance(value, dict)
        merged[key] = _merged(before, value) if both and isinstance(before, dict) else value
    return merged


def _plain(values: Family, sources: Mapping[str, str], at: str) -> dict[str, Any]:
    """Return the values without their sources."""
    plain: dict[str, Any] = {}
    for key, value in values.items():
        where = f"{at}.{key}"
        if isinstance(value, dict):
            plain[key] = _plain(value, sources, where)
        elif key in _PLAIN_KEYS:
            plain[key] = value
        else:
            plain[key] = _sourced(value, sources, where)
    return plain


def _sourced(value: object, sources: Mapping[str, str], where: str) -> object:
    match value:
        case [fact, str(source)]:
            pass
        case _:
            raise RulesError(f"{where}: must be a value and the key of its source")
    if source not in sources:
        raise RulesError(f"{where}: no such source: {source}")
    kinds = _kinds_of(where)
    if isinstance(fact, bool) is not (kinds is bool) or not isinstance(fact, kinds):
        raise RulesError(f"{where}: has a value of the wrong kind")
    if isinstance(fact, int | float) and fact < 0:
        raise RulesError(f"{where}: must not be negative")
    return fact


def _kinds_of(where: str) -> type | tuple[type, ...]:
    """Return what a fact at this place is made of."""
    *_, parent, key = where.split(".")
    if key in ("kind", "rule"):
        return str
    if key.partition("_")[0] in ("is", "has", "needs", "refuses", "marks"):
        return bool
    return (int, float) if parent == "prices" else int


def _check(rule: ModelRule) -> None:
    """Refuse what the code would trip over later."""
    cache, window = rule.cache, rule.window_tokens
    if cache.kind not in _CACHE_KINDS:
        raise RulesError(f"{rule.family}.cache.kind: must be one of {', '.join(_CACHE_KINDS)}")
    image = rule.media.image
    if image is not None and image.rule not in _IMAGE_RULES:
        raise RulesError(
            f"{rule.family}.media.image.rule: must be one of {', '.join(_IMAGE_RULES)}"
        )
    if image is not None and (
        (image.rule == "area" and not image.pixels_per_token)
        or (image.rule == "tiles" and not image.tile_edge)
    ):
        raise RulesError(f"{rule.family}.media.image: lacks what its rule divides by")
    if window is not None and rule.output_reserve_tokens >= window:
        raise RulesError(f"{rule.family}.output_reserve_tokens: leaves nothing of the window")
    if not all(isinstance(each, str) and each for each in rule.match):
        raise RulesError(f"{rule.family}.match: must be a list of names")
    if rule.tokenizer.percent <= 0:
        raise RulesError(f"{rule.family}.tokenizer.percent: must be positive")
