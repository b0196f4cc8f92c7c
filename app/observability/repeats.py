"""What happens again and again is told once in an interval, with how often it happened."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

INTERVAL_S: Final = 60.0
#: Kinds that are known at a time; of more, what was told longest ago is forgotten.
MAX_KINDS: Final = 100


@dataclass(slots=True)
class _Told:
    at_s: float
    #: Since then.
    times: int = 0


class Repeats:
    """Tells when it is time to tell of a kind of thing."""

    def __init__(
        self, *, interval_s: float = INTERVAL_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = interval_s
        self._now_s = now_s
        #: What was told longest ago first.
        self._told: dict[Hashable, _Told] = {}

    def count(self, kind: Hashable) -> int:
        """Count one more; return how often it happened since it was told last, this one included.

        Returns:
            0 while it is not yet time to tell of it again.
        """
        now_s = self._now_s()
        told = self._told.get(kind)
        if told is not None and now_s - told.at_s < self._interval_s:
            told.times += 1
            return 0
        times = 1 if told is None else told.times + 1
        self._told.pop(kind, None)
        self._told[kind] = _Told(now_s)
        if len(self._told) > MAX_KINDS:
            del self._told[next(iter(self._told))]
        return times
