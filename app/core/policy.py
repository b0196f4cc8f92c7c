"""Policy: what a session, an app or the server says of compaction, summarizers, offload and pins.

Unknown keys are refused, and so are keys that the chosen strategy does not use, and offload, which
does not exist yet: a setting that has no effect is a mistake that nobody would notice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.core.json_text import pointer_to


@dataclass(frozen=True, slots=True)
class Check:
    """What a value must be."""

    #: Takes the value and a pointer to it, and raises where it is not.
    run: Callable[[Json, str], None]
    #: The same as a JSON Schema, as far as one can say it.
    schema: Mapping[str, Json]

    def __call__(self, value: Json, pointer: str) -> None:
        """Refuse a value that is not what it must be."""
        self.run(value, pointer)


#: What a session without a policy gets (API.md, "Policy").
DEFAULT_POLICY: Final[dict[str, Json]] = {
    "compaction": {"strategy": "auto"},
    "summarizer": {"kind": "extractive"},
}

#: Tokens of a model's window when nothing names it; Strands assumes the same.
DEFAULT_CONTEXT_WINDOW: Final = 200_000
#: Part of the window that pins may take by default.
DEFAULT_PIN_SHARE: Final = 0.2

_MAX_INTEGER: Final = 2**53


def validate_policy(policy: Json, pointer: str = "") -> None:
    """Refuse a policy that is not one.

    Args:
        policy: as sent.
        pointer: where it stands in the request.

    Raises:
        InvalidInputError: with a pointer to the key.
    """
    members = _object(policy, pointer)
    _check_members(members, _POLICY, pointer)


def policy_schemas() -> dict[str, Mapping[str, Json]]:
    """Return a JSON Schema of each group, of what may be said in it under any strategy."""
    return {group: check.schema for group, check in _POLICY.items()}


def effective_policy(*policies: Json) -> dict[str, Json]:
    """Return the policy that counts: the first that has a top-level key wins it whole.

    Args:
        policies: the most specific first; None for none.
    """
    merged: dict[str, Json] = {}
    for policy in policies:
        if isinstance(policy, dict):
            merged = {**policy, **merged}
    return merged


def merge_patch(target: Json, patch: Json) -> Json:
    """Return the target after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def pin_cap(policy: Mapping[str, Json]) -> int:
    """Return how many tokens may be pinned."""
    pins = policy.get("pins")
    cap = pins.get("max_tokens") if isinstance(pins, dict) else None
    if isinstance(cap, int):
        return cap
    return int(context_window(policy) * DEFAULT_PIN_SHARE)


def context_window(policy: Mapping[str, Json]) -> int:
    """Return the model's window, as far as the policy knows."""
    compaction = policy.get("compaction")
    window = compaction.get("context_window") if isinstance(compaction, dict) else None
    return window if isinstance(window, int) else DEFAULT_CONTEXT_WINDOW


# Checks of single values


def _integer(least: int) -> Check:
    def check(value: Json, pointer: str) -> None:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not is_integer or not least <= cast("int", value) <= _MAX_INTEGER:
            raise InvalidInputError(f"must be an integer from {least} up", pointer=pointer)

    return Check(check, {"type": "integer", "minimum": least, "maximum": _MAX_INTEGER})


def _number(least: float, most: float, *, takes_least: bool = False) -> Check:
    def check(value: Json, pointer: str) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_least = takes_least and value == least
        if not is_number or not (is_least or least < cast("float", value) <= most):
            above = "from" if takes_least else "above"
            raise InvalidInputError(
                f"must be a number {above} {least:g}, at most {most:g}", pointer=pointer
            )

    bound = "minimum" if takes_least else "exclusiveMinimum"
    return Check(check, {"type": "number", bound: least, "maximum": most})


def _one_of(*choices: str) -> Check:
    def check(value: Json, pointer: str) -> None:
        if value not in choices:
            raise InvalidInputError(f"must be one of {', '.join(choices)}", pointer=pointer)

    return Check(check, {"type": "string", "enum": list(choices)})


def _check_text(value: Json, pointer: str) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidInputError("must be a text that is not empty", pointer=pointer)


def _check_flag(value: Json, pointer: str) -> None:
    if not isinstance(value, bool):
        raise InvalidInputError("must be true or false", pointer=pointer)


_TEXT: Final = Check(_check_text, {"type": "string", "minLength": 1})
_FLAG: Final = Check(_check_flag, {"type": "boolean"})


def _object(value: Json, pointer: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise InvalidInputError("must be an object", pointer=pointer)
    return value


def _check_members(members: Mapping[str, Json], checks: Mapping[str, Check], pointer: str) -> None:
    for key, value in members.items():
        at = pointer + pointer_to(key)
        if key not in checks:
            raise InvalidInputError(f"unknown key {key!r}", pointer=at)
        checks[key](value, at)


def _group(checks: Mapping[str, Check]) -> Check:
    def check(value: Json, pointer: str) -> None:
        _check_members(_object(value, pointer), checks, pointer)

    return Check(check, _group_schema(checks))


def _group_schema(checks: Mapping[str, Check]) -> Mapping[str, Json]:
    members: dict[str, Json] = {key: dict(check.schema) for key, check in checks.items()}
    return {"type": "object", "properties": members, "additionalProperties": False}


# The keys

_INTERVAL: Final = ("compaction_interval", "overlap_size")
_THRESHOLD: Final = ("token_threshold", "event_retention_size")

SHARED_KEYS: Final[Mapping[str, Check]] = {
    "fanout": _integer(2),
    "pin_first": _integer(0),
    "activation": _one_of("immediate", "staged"),
    "worth_check": _FLAG,
    "context_window": _integer(1),
}
_CHECKS: Final[Mapping[str, Check]] = {
    **SHARED_KEYS,
    "compaction_interval": _integer(1),
    "overlap_size": _integer(0),
    "token_threshold": _integer(1),
    # A retention of 0 would fold the question that is being answered.
    "event_retention_size": _integer(1),
    "window_size": _integer(1),
    "preserve_recent": _integer(0),
    "summary_ratio": _number(0, 1),
    "trigger_ratio": _number(0, 1),
}
_TRIGGERS: Final = ("preserve_recent", "summary_ratio", "trigger_ratio")
STRATEGY_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "none": (),
    "interval": _INTERVAL,
    "threshold": _THRESHOLD,
    "both": (*_INTERVAL, *_THRESHOLD),
    "window": ("window_size",),
    "auto": _TRIGGERS,
}
#: What a strategy cannot do without; ADK's pairs come together.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "interval": _INTERVAL,
    "threshold": _THRESHOLD,
    "both": (*_INTERVAL, *_THRESHOLD),
    "window": ("window_size",),
}


_STRATEGY: Final = _one_of(*STRATEGY_KEYS)


def _check_compaction(value: Json, pointer: str) -> None:
    members = _object(value, pointer)
    strategy = members.get("strategy", "auto")
    _STRATEGY(strategy, pointer + "/strategy")
    assert isinstance(strategy, str)
    allowed = {**({} if strategy == "none" else SHARED_KEYS), "strategy": _STRATEGY}
    allowed |= {key: _CHECKS[key] for key in STRATEGY_KEYS[strategy]}
    for key in members:
        if key in _CHECKS and key not in allowed:
            detail = f"strategy {strategy} does not use {key}; null takes away what was set before"
            raise InvalidInputError(detail, pointer=pointer + pointer_to(key))
    _check_members(members, allowed, pointer)
    for key in _NEEDED.get(strategy, ()):
        if key not in members:
            raise InvalidInputError(
                f"strategy {strategy} needs {key}", pointer=pointer + pointer_to(key)
            )


def _check_offload(value: Json, pointer: str) -> None:
    if value is not None:
        detail = (
            "does not exist yet: large results are stored and compiled whole; only null is taken"
        )
        raise InvalidInputError(detail, pointer=pointer)


SUMMARIZER_KEYS: Final[Mapping[str, Check]] = {
    "kind": _one_of("extractive", "openai", "openai_responses", "anthropic", "gemini", "none"),
    "model": _TEXT,
    "prompt": _TEXT,
    "temperature": _number(0, 2, takes_least=True),
    "max_input_tokens": _integer(1),
    "max_output_tokens": _integer(1),
    "timeout_s": _number(0, 3600),
}

_POLICY: Final[Mapping[str, Check]] = {
    "compaction": Check(_check_compaction, _group_schema({"strategy": _STRATEGY, **_CHECKS})),
    "summarizer": _group(SUMMARIZER_KEYS),
    "offload": Check(_check_offload, {"type": "null"}),
    "pins": _group({"max_tokens": _integer(0)}),
}
