"""How a provider's token counts relate to ours, learnt for each tenant and model.

    ours 10,000   reported 13,100      a report: 131 of theirs for a hundred of ours
    percent 130                        what counts are multiplied with from then on

Counts decide what a budget cuts, and a cut that moves costs the provider's cache. So what is used
is rounded, and moves only when what was learnt has left it by a step; the first reports count
fully, later ones less and less, down to a fifth.
"""

import math
from dataclasses import dataclass
from typing import Final

from app.core.copying import replace
from app.core.model_rules import ModelRule

#: What is used moves in steps of so many percent.
STEP_PERCENT: Final = 2
#: From so many reports on, each one counts a fifth.
SETTLED_REPORTS: Final = 5
#: A small request is mostly framing, and says little of the tokenizer.
MIN_TOKENS: Final = 200
#: What lies outside is no tokenizer: the report is of another request, or was cut.
MIN_RATIO: Final = 0.25
MAX_RATIO: Final = 4.0
#: No model in use takes less.
LEAST_WINDOW: Final = 1_000
#: Where nothing is known of a model, counts may be off by this.
UNKNOWN_ERROR_PERCENT: Final = 25
#: However well a model is known, framing and rounding stay.
LEAST_ERROR_PERCENT: Final = 2
#: What ratios are off by for being binary fractions.
_EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a compile goes by. An input: it is part of the digest."""

    #: The model's tokens for a hundred of ours.
    percent: int = 100
    #: By how much a calibrated count may be off: as assumed, else twice as far as reports so far
    #: were from their mean, and what rounding adds.
    error_percent: int = UNKNOWN_ERROR_PERCENT
    #: Tokens of input that the model turned out to take; None: as its rule says.
    limit_tokens: int | None = None
    #: Whether it was learnt, not only assumed.
    is_learnt: bool = False

    def tokens(self, ours: int) -> int:
        """Return the model's tokens for a count of ours, rounded up."""
        return -(-ours * self.percent // 100)

    def budget(self, tokens: int) -> int:
        """Return how many of our tokens fit into so many of the model's."""
        return tokens * 100 // self.percent

    def error(self, tokens: int) -> int:
        """Return by how many tokens a calibrated count may be off."""
        return -(-tokens * self.error_percent // 100)


#: What is gone by when nothing is known: our own count.
UNCALIBRATED: Final = Calibration()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What the reports of a tenant and model taught."""

    reports: int = 0
    #: Theirs over ours, and how far single reports were from it.
    ratio: float = 1.0
    deviation: float = 0.0
    #: The ratio as it is used: rounded, and slow to move.
    percent: int = 100
    limit_tokens: int | None = None

    def report(self, *, ours: int, theirs: int) -> "Learnt":
        """Return what is known after a report; itself when the report says nothing."""
        ratio = theirs / ours if ours else 0.0
        if ours < MIN_TOKENS or not MIN_RATIO <= ratio <= MAX_RATIO:
            return self
        reports = self.reports + 1
        weight = max(1 / reports, 1 / SETTLED_REPORTS)
        mean = self.ratio + weight * (ratio - self.ratio) if self.reports else ratio
        off = abs(ratio - self.ratio) if self.reports else 0.0
        return replace(
            self,
            reports=reports,
            ratio=mean,
            deviation=self.deviation + weight * (off - self.deviation),
            percent=_stepped(mean, self.percent, is_first=not self.reports),
        )

    def accepted(self, input_tokens: int) -> "Learnt":
        """Return what is known after a request of this size was taken."""
        if self.limit_tokens is None or input_tokens <= self.limit_tokens:
            return self
        return replace(self, limit_tokens=input_tokens)

    def refused(self, limit_tokens: int) -> "Learnt":
        """Return what is known after a request was refused for its size."""
        return replace(self, limit_tokens=limit_tokens)


def _stepped(ratio: float, current: int, *, is_first: bool) -> int:
    wanted = ratio * 100
    if not is_first and abs(wanted - current) <= STEP_PERCENT:
        return current
    return max(1, round(wanted / STEP_PERCENT) * STEP_PERCENT)


def calibration_of(learnt: Learnt | None, rule: ModelRule | None) -> Calibration:
    """Return what to go by: what was learnt, else what the rule assumes, else our own count."""
    limit_tokens = learnt.limit_tokens if learnt else None
    if learnt is not None and learnt.reports:
        spread = round(200 * learnt.deviation / max(learnt.ratio, MIN_RATIO))
        # What is used is rounded, and may lag behind: two in a hundred of 130, but four of 50.
        ratio = max(learnt.ratio, MIN_RATIO)
        lag = math.ceil(abs(learnt.percent - 100 * ratio) / ratio - _EPSILON)
        # One report alone does not say how far the next will be from it.
        doubt = 2 * LEAST_ERROR_PERCENT if learnt.reports == 1 else 0
        return Calibration(
            percent=learnt.percent,
            error_percent=spread + lag + doubt + LEAST_ERROR_PERCENT,
            limit_tokens=limit_tokens,
            is_learnt=True,
        )
    if rule is None:
        return Calibration(limit_tokens=limit_tokens)
    return Calibration(
        percent=rule.tokenizer.percent,
        error_percent=rule.tokenizer.error_percent,
        limit_tokens=limit_tokens,
    )


def is_believable(limit: int | None, actual: int | None, *, ours: int) -> bool:
    """Tell whether a provider's words on a request that was too long can be of that request.

    Args:
        limit: what it says that it takes; None when it does not say.
        actual: what it says that the request had.
        ours: what the request had by the model's calibrated count.
    """
    if limit is not None and limit < LEAST_WINDOW:
        return False
    if actual is None:
        return True
    low, high = sorted((actual, ours))
    return high <= low * MAX_RATIO or high - low <= LEAST_WINDOW


def limit_after_overflow(
    *, input_limit: int | None, reserve_tokens: int, refused_tokens: int
) -> int:
    """Return how many tokens of input to allow after a refusal.

    Args:
        input_limit: what the provider says that it takes; None when it does not say.
        reserve_tokens: what is left for the answer.
        refused_tokens: of the request that was refused, as well as we know.
    """
    if input_limit is None:
        # It says only that this was too much: a tenth less is the next try.
        return max(1, refused_tokens * 9 // 10)
    return max(1, input_limit - min(reserve_tokens, input_limit // 4))
