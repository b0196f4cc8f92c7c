"""Policies on the wire. What is valid in one is the core's to say (``core/policy.py``), and so is
what the document says of its keys, but for their meaning."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field, WithJsonSchema

from app.api.schemas.fields import AnswerModel, JsonObject, RequestModel, cleaned
from app.core.canonical import Json
from app.core.compaction.policy import CompactionPolicy, SummarizerPolicy
from app.core.policy import STRATEGY_KEYS, policy_schemas

_COMPACTION: Final = CompactionPolicy()
#: What a key says that is not there; a strategy's needed keys have no default.
_DEFAULTS: Final[Mapping[str, Json]] = {
    "strategy": _COMPACTION.strategy,
    "trigger_ratio": _COMPACTION.trigger_ratio,
    "summary_ratio": _COMPACTION.summary_ratio,
    "preserve_recent": _COMPACTION.preserve_recent,
    "fanout": _COMPACTION.fanout,
    "pin_first": _COMPACTION.pin_first,
    "activation": "staged" if _COMPACTION.is_staged else "immediate",
    "worth_check": _COMPACTION.has_worth_check,
    "kind": SummarizerPolicy().kind,
}
MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "compaction": {
        "strategy": "When to fold, and what; the other keys go with some strategies only.",
        "compaction_interval": "So many complete invocations make a fold.",
        "overlap_size": "So many invocations of the fold before are read again.",
        "token_threshold": "From so many tokens of a compile on it folds.",
        "event_retention_size": "So many of the newest live events stay.",
        "window_size": "Beyond so many live events the oldest are folded.",
        "trigger_ratio": "Part of the window that may fill.",
        "summary_ratio": "Part of the live tokens that one fold takes.",
        "preserve_recent": "So many of the newest live events stay.",
        "context_window": "Tokens of the window; what the compiled model takes counts if less.",
        "fanout": "So many folds of one level become one of the next.",
        "pin_first": "So many of the first events are never folded.",
        "activation": "`staged`: a fold is used once the provider's cache is cold.",
        "worth_check": "Fold only what is more than the last summary took.",
    },
    "summarizer": {
        "kind": "Who writes: `extractive` needs no model, the others are providers. With `none` "
        "nothing is folded, and only the caller's own summaries stand for anything.",
        "model": "That the provider is asked for.",
        "prompt": "Added to ours.",
        "temperature": "That the provider is asked for.",
        "max_input_tokens": "More than that is summarized in pieces.",
        "max_output_tokens": "The most that a summary may take.",
        "timeout_s": "Seconds that one call may take.",
    },
    "offload": {},
    "pins": {"max_tokens": "The most that pins may take; without it, a fifth of the window."},
}


def group_schema(group: str) -> JsonObject:
    """Return the JSON Schema of a group: what validates it, and what its keys mean."""
    schema: JsonObject = dict(policy_schemas()[group])
    if "properties" in schema:
        schema["properties"] = {
            key: {**inner, "description": _told(group, key), **_default(key)}
            for key, inner in schema["properties"].items()
        }
    return schema


def _told(group: str, key: str) -> str:
    strategies = [name for name, keys in STRATEGY_KEYS.items() if key in keys]
    used_by = f" Of {', '.join(strategies)}." if strategies else ""
    return MEANINGS[group][key] + used_by


def _default(key: str) -> JsonObject:
    return {"default": _DEFAULTS[key]} if key in _DEFAULTS else {}


def _without_default(schema: JsonObject) -> None:
    del schema["default"]


#: A group that is not named has no value: the app's or the server's counts.
_NOT_NAMED: Final[Any] = Field(default=None, json_schema_extra=_without_default)
_Compaction: TypeAlias = Annotated[Any, WithJsonSchema(group_schema("compaction"))]
_Summarizer: TypeAlias = Annotated[Any, WithJsonSchema(group_schema("summarizer"))]
_Offload: TypeAlias = Annotated[Any, WithJsonSchema(group_schema("offload"))]
_Pins: TypeAlias = Annotated[Any, WithJsonSchema(group_schema("pins"))]

#: A kind, or a whole group.
SummarizerChoice: TypeAlias = Annotated[
    str | JsonObject,
    WithJsonSchema(
        {
            "anyOf": [
                policy_schemas()["summarizer"]["properties"]["kind"],
                group_schema("summarizer"),
            ]
        }
    ),
]


class PolicyRequest(RequestModel):
    """A policy; each group is checked as a whole."""

    compaction: _Compaction = _NOT_NAMED
    """When to fold, and what: `strategy` and the keys that it uses."""
    summarizer: _Summarizer = _NOT_NAMED
    """What writes summaries: `kind` and its terms."""
    offload: _Offload = _NOT_NAMED
    """Does not exist yet: only null is taken. Large results are stored and compiled whole."""
    pins: _Pins = _NOT_NAMED
    """How many tokens pins may take: `max_tokens`."""

    def to_domain(self) -> dict[str, Json]:
        """Return the groups that were named."""
        value = cleaned({name: getattr(self, name) for name in self.model_fields_set})
        assert isinstance(value, dict)
        return {name: value[name] for name in type(self).model_fields if name in value}


class PolicyAnswer(AnswerModel):
    """A policy."""

    compaction: dict[str, Any] | None = None
    """When to fold, and what."""
    summarizer: dict[str, Any] | None = None
    """What writes summaries."""
    offload: dict[str, Any] | None = None
    """Without effect; only policies of before it was refused have it."""
    pins: dict[str, Any] | None = None
    """How many tokens pins may take."""
