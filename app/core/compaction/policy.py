"""What a policy says of compaction and of summarizers, with the defaults filled in.

The JSON was checked by :mod:`app.core.policy` when it came in; a policy that was stored by an older
release may still hold less than today's, so everything has a default here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from app.core.canonical import Json
from app.core.policy import DEFAULT_CONTEXT_WINDOW

Strategy: TypeAlias = Literal["none", "interval", "threshold", "both", "window", "auto"]
SummarizerKind: TypeAlias = Literal[
    "extractive", "openai", "openai_responses", "anthropic", "gemini", "none"
]

#: When a plan is looked for. ``threshold`` is the moment of every strategy that goes by size:
#: threshold, both, window and auto.
Moment: TypeAlias = Literal["interval", "threshold", "range", "fanout"]

DEFAULT_TRIGGER_RATIO: Final = 0.85
DEFAULT_FANOUT: Final = 8
#: Strands' defaults: so many of the newest stay, and so much of what is there is folded at once.
DEFAULT_PRESERVE_RECENT: Final = 10
DEFAULT_SUMMARY_RATIO: Final = 0.3
#: Strands' window of messages.
DEFAULT_WINDOW_SIZE: Final = 40
#: What all summaries together may take of the size from which on a policy folds. What one fold may
#: take is what the others leave of it, and at least the second part: a section that is cut to
#: nothing would tell nothing.
SUMMARIES_SHARE: Final = 0.5
FOLD_SHARE: Final = 0.125
#: What ``auto`` keeps of the newest events is at most this part.
RECENT_SHARE: Final = 0.2

_MOMENTS: Final[Mapping[Strategy, tuple[Moment, ...]]] = {
    "none": (),
    "interval": ("interval", "fanout"),
    # ADK's order: an interval is only looked for when the threshold gave nothing.
    "both": ("threshold", "interval", "fanout"),
    "threshold": ("threshold", "fanout"),
    "window": ("threshold", "fanout"),
    "auto": ("threshold", "fanout"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When to fold what. Fields that the strategy does not use have their defaults."""

    strategy: Strategy = "auto"
    #: So many new complete invocations make a fold, and so many earlier ones are read again.
    compaction_interval: int = 1
    overlap_size: int = 0
    #: Equal compacts.
    token_threshold: int = DEFAULT_CONTEXT_WINDOW
    #: So many of the newest live events stay.
    event_retention_size: int = 1
    #: Of live events.
    window_size: int = DEFAULT_WINDOW_SIZE
    #: So many of the newest live events stay.
    preserve_recent: int = DEFAULT_PRESERVE_RECENT
    #: Part of the live tokens that one fold takes.
    summary_ratio: float = DEFAULT_SUMMARY_RATIO
    #: Part of the window that may fill before ``auto`` folds.
    trigger_ratio: float = DEFAULT_TRIGGER_RATIO
    context_window: int = DEFAULT_CONTEXT_WINDOW
    #: The policy or a compiled request says what the window is. Where neither does, only a request
    #: can be found too large.
    has_window: bool = True
    #: So many folds of one level, side by side, become one of the next.
    fanout: int = DEFAULT_FANOUT
    #: So many of the session's first events are never folded.
    pin_first: int = 0
    #: Folds are appended unused, and activated when it is cheap.
    is_staged: bool = False
    #: Fold only what holds more than the last summary took.
    has_worth_check: bool = True

    @classmethod
    def of(
        cls, policy: Mapping[str, Json], *, window_tokens: int | None = None
    ) -> "CompactionPolicy":
        """Read the ``compaction`` of a whole policy; what it does not say has the defaults.

        Args:
            policy: as it counts for the session.
            window_tokens: what a request that was compiled may take, which bounds the window; None:
                none was, or nobody knows.
        """
        members = _object(policy, "compaction")
        taken: dict[str, Json] = {
            key: members[key] for key in _NUMBERS if members.get(key) is not None
        }
        windows = [taken.get("context_window"), window_tokens]
        known = [window for window in windows if isinstance(window, int)]
        if known:
            taken["context_window"] = min(known)
        return cls(
            has_window=bool(known),
            strategy=cast("Strategy", members.get("strategy") or "auto"),
            is_staged=members.get("activation") == "staged",
            has_worth_check=members.get("worth_check") is not False,
            **taken,  # type: ignore[arg-type]
        )

    @property
    def moments(self) -> tuple[Moment, ...]:
        """When this policy folds, in the order in which the moments are looked at."""
        return _MOMENTS[self.strategy]

    @property
    def trigger_tokens(self) -> int | None:
        """From how many tokens on it folds; None for strategies that do not go by tokens."""
        if self.strategy in ("threshold", "both"):
            return self.token_threshold
        if self.strategy == "auto":
            return int(self.trigger_ratio * self.context_window)
        return None

    @property
    def full_tokens(self) -> int:
        """What a request may grow to: the trigger, or where there is none, what ``auto`` would
        have."""
        trigger = self.trigger_tokens
        return int(self.trigger_ratio * self.context_window) if trigger is None else trigger

    def most_summary_tokens(self, others_tokens: int) -> int:
        """Return what the sections of one fold may take beside summaries of so many tokens."""
        left = int(SUMMARIES_SHARE * self.full_tokens) - others_tokens
        return max(1, left, int(FOLD_SHARE * self.full_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizerPolicy:
    """What makes the summaries. ``None``: the summarizer's own default."""

    kind: SummarizerKind = "extractive"
    model: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    timeout_s: float | None = None

    @classmethod
    def of(cls, policy: Mapping[str, Json]) -> "SummarizerPolicy":
        """Read the ``summarizer`` of a whole policy."""
        members = _object(policy, "summarizer")
        taken = {key: members[key] for key in _SUMMARIZER_KEYS if members.get(key) is not None}
        return cls(**taken)  # type: ignore[arg-type]


_NUMBERS: Final = (
    "compaction_interval",
    "overlap_size",
    "token_threshold",
    "event_retention_size",
    "window_size",
    "preserve_recent",
    "summary_ratio",
    "trigger_ratio",
    "context_window",
    "fanout",
    "pin_first",
)
_SUMMARIZER_KEYS: Final = (
    "kind",
    "model",
    "prompt",
    "temperature",
    "max_input_tokens",
    "max_output_tokens",
    "timeout_s",
)


def _object(policy: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    value = policy.get(key)
    return value if isinstance(value, dict) else {}
