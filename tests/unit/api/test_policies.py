"""What the document says of a policy is what is taken."""

from typing import Any

import pytest

from app.api.schemas.policies import MEANINGS, PolicyRequest, group_schema
from app.core.errors import InvalidInputError
from app.core.policy import (
    SHARED_KEYS,
    STRATEGY_KEYS,
    SUMMARIZER_KEYS,
    policy_schemas,
    validate_policy,
)

GROUPS = policy_schemas()
#: Needed beside a key of `compaction`.
BESIDE: dict[str, Any] = {
    "interval": {"compaction_interval": 1, "overlap_size": 0},
    "threshold": {"token_threshold": 1, "event_retention_size": 1},
    "window": {"window_size": 1},
    "auto": {},
}


def _with(group: str, key: str, value: Any) -> dict[str, Any]:
    if group != "compaction" or key == "strategy":
        return {group: {key: value}}
    # What all but `none` share goes with any.
    named = (name for name in BESIDE if key in STRATEGY_KEYS[name])
    strategy = next(named, "auto")
    return {group: {"strategy": strategy, **BESIDE[strategy], key: value}}


def test_every_group_and_key_is_documented_and_no_other() -> None:
    assert set(GROUPS) == set(MEANINGS) == set(PolicyRequest.model_fields)
    for group in GROUPS:
        assert set(group_schema(group).get("properties", {})) == set(MEANINGS[group])
    strategies = {key for keys in STRATEGY_KEYS.values() for key in keys}
    assert set(MEANINGS["compaction"]) == {"strategy", *SHARED_KEYS, *strategies}
    assert set(MEANINGS["summarizer"]) == set(SUMMARIZER_KEYS)


@pytest.mark.parametrize(
    ("group", "key"), [(group, key) for group, keys in MEANINGS.items() for key in keys]
)
def test_what_the_document_allows_is_taken_and_what_it_does_not_is_refused(
    group: str, key: str
) -> None:
    schema = group_schema(group)["properties"][key]
    taken = [schema[name] for name in ("default", "minimum", "maximum") if name in schema]
    refused = [None, [], {}, schema.get("exclusiveMinimum", [])]
    refused += [schema["minimum"] - 1] if "minimum" in schema else []
    refused += [schema["maximum"] + 1] if "maximum" in schema else []
    if "enum" in schema:
        refused.append("another")
    if schema.get("minLength"):
        refused.append("")
    if key != "strategy":
        taken += schema.get("enum", [])
    for value in taken:
        validate_policy(_with(group, key, value))
    for value in refused:
        with pytest.raises(InvalidInputError):
            validate_policy(_with(group, key, value))
