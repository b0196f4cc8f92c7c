"""Whether a fold may be due, told from counts alone.

Too early an answer costs a look by the planner, which counts for itself; too late a one is made up
for at the next moment. So what is cheap is enough here, and the log is not read.
"""

from dataclasses import dataclass
from typing import Final

from app.core.compaction.policy import CompactionPolicy, Moment

#: By what part a session has to grow after a refusal, before the same is tried again.
GROWTH_AFTER_REFUSAL: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a session's row counts."""

    live_events: int = 0
    #: Of live events and shown summaries, in all lanes.
    tokens_live: int = 0
    #: Completed invocations that no interval fold has been planned for.
    invocations_new: int = 0
    #: Tokens when a fold was refused; 0 when nothing speaks against one.
    tokens_tried: int = 0


def due_moment(
    policy: CompactionPolicy, counters: Counters, *, projected_tokens: int = 0
) -> Moment | None:
    """Return the first moment of the policy that may have come, None for none.

    Args:
        policy: of the session.
        counters: as they stand.
        projected_tokens: of a whole request, where one was just compiled.
    """
    tokens = _tokens(policy, counters, projected_tokens)
    for moment in policy.moments:
        if moment == "threshold" and _is_large(policy, counters, tokens):
            return moment
        if moment == "interval" and counters.invocations_new >= policy.compaction_interval:
            return moment
    return None


def is_held_back(
    policy: CompactionPolicy, counters: Counters, *, projected_tokens: int = 0
) -> bool:
    """Tell whether a fold by size would be due, had not the last try at it found nothing."""
    tokens = _tokens(policy, counters, projected_tokens)
    goes_by_size = "threshold" in policy.moments
    return goes_by_size and _is_tried(counters, tokens) and _is_over(policy, counters, tokens)


def _tokens(policy: CompactionPolicy, counters: Counters, projected_tokens: int) -> int:
    """Return what is compared with the trigger; nothing where only a request has a window."""
    if policy.strategy == "auto" and not policy.has_window and not projected_tokens:
        return 0
    return max(counters.tokens_live, projected_tokens)


def _is_large(policy: CompactionPolicy, counters: Counters, tokens: int) -> bool:
    return not _is_tried(counters, tokens) and _is_over(policy, counters, tokens)


def _is_tried(counters: Counters, tokens: int) -> bool:
    tried = counters.tokens_tried
    return bool(tried) and tokens < tried + max(1, int(tried * GROWTH_AFTER_REFUSAL))


def _is_over(policy: CompactionPolicy, counters: Counters, tokens: int) -> bool:
    if policy.strategy == "window":
        return counters.live_events > policy.window_size
    trigger = policy.trigger_tokens
    return trigger is not None and tokens >= trigger
