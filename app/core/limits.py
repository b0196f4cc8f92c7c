"""What callers may take: requests in a time, and what a tenant may store."""

import re
from dataclasses import dataclass
from typing import Final

from app.core.errors import InvalidInputError

_SECONDS_BY_UNIT: Final = {"s": 1, "min": 60, "h": 3600}
_RATE: Final = re.compile(r"([1-9][0-9]{0,8})/(s|min|h)")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many requests in a time: a bucket that holds that many, and fills again in that time."""

    requests: int
    per_s: int

    @property
    def text(self) -> str:
        """The limit as it is written, as in ``100/s``."""
        unit = next(name for name, seconds in _SECONDS_BY_UNIT.items() if seconds == self.per_s)
        return f"{self.requests}/{unit}"


def parse_rate_limit(text: str, pointer: str = "") -> RateLimit:
    """Return a limit as it is written: ``100/s``, ``600/min``, ``5000/h``.

    Raises:
        InvalidInputError: with the pointer.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise InvalidInputError("must be as in 100/s, 600/min or 5000/h", pointer=pointer)
    return RateLimit(int(match[1]), _SECONDS_BY_UNIT[match[2]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """What a tenant may store; None: without a limit."""

    sessions: int | None = None
    events: int | None = None
    #: Of the bodies of its events, as they were sent.
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a tenant stores."""

    sessions: int = 0
    events: int = 0
    bytes: int = 0

    def plus(self, other: "Stored") -> "Stored":
        """Return both together."""
        return Stored(
            sessions=self.sessions + other.sessions,
            events=self.events + other.events,
            bytes=self.bytes + other.bytes,
        )
