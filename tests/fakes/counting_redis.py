"""Counts what Redis did not answer."""

from collections import Counter


class CountingRedisMeter:
    """:class:`app.ports.RedisMeter` that a test can look at."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()

    def redis_failed(self, op: str) -> None:
        """Count it."""
        self.errors[op] += 1
