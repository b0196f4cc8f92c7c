"""Violation: one rule of a provider that a request breaks."""

from dataclasses import dataclass
from typing import Protocol

from app.core.canonical import Json


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, and where."""

    #: Stable slug of the rule.
    rule: str
    #: JSON pointer into the request.
    path: str


def is_filled(value: Json) -> bool:
    """Tell whether a value is a text that is not empty."""
    return isinstance(value, str) and bool(value)


class Validator(Protocol):
    """Checks a provider's request body. Never raises, whatever it is given."""

    def __call__(self, request: Json, *, model: str) -> tuple[Violation, ...]:
        """Return every broken rule, in the order of the request."""
