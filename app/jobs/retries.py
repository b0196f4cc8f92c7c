"""How long a job that failed waits before it is tried again."""

from typing import Final

from app.core.errors import ProviderRateLimitedError

BASE_S: Final = 2.0
LONGEST_S: Final = 300.0


def retry_delay_s(attempts: int, error: Exception, chance: float) -> float:
    """Return the delay: doubled with every attempt, and spread so that many do not come together.

    Args:
        attempts: so far, at least 1.
        error: of the last one; what a provider asked to wait is waited.
        chance: from 0 to 1.
    """
    longest_s: float = min(BASE_S * 2 ** min(attempts - 1, 16), LONGEST_S)
    delay_s = longest_s * (0.5 + chance / 2)
    if isinstance(error, ProviderRateLimitedError) and error.retry_after_s is not None:
        return max(delay_s, error.retry_after_s)
    return delay_s
