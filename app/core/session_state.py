"""State by prefix: ``app:`` and ``user:`` keys have rows of their own, ``temp:`` is never kept.

{"app:a": 1, "user:b": 2, "c": 3, "temp:d": 4}   ->   app {"a": 1}, user {"b": 2}, session {"c": 3}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.core.canonical import Json

APP_PREFIX: Final = "app:"
USER_PREFIX: Final = "user:"
TEMP_PREFIX: Final = "temp:"


@dataclass(frozen=True, slots=True)
class ScopedState:
    """State by scope, keys without their prefixes."""

    session: dict[str, Json] = field(default_factory=dict)
    app: dict[str, Json] = field(default_factory=dict)
    user: dict[str, Json] = field(default_factory=dict)


def split_state(state: Mapping[str, Json]) -> ScopedState:
    """Return the state by scope; ``temp:`` keys are dropped."""
    scoped = ScopedState()
    for key, value in state.items():
        if key.startswith(APP_PREFIX):
            scoped.app[key.removeprefix(APP_PREFIX)] = value
        elif key.startswith(USER_PREFIX):
            scoped.user[key.removeprefix(USER_PREFIX)] = value
        elif not key.startswith(TEMP_PREFIX):
            scoped.session[key] = value
    return scoped


def merge_state(
    session: Mapping[str, Json], *, app: Mapping[str, Json], user: Mapping[str, Json]
) -> dict[str, Json]:
    """Return one view of the three scopes, keys with their prefixes."""
    return {
        **session,
        **{APP_PREFIX + key: value for key, value in app.items()},
        **{USER_PREFIX + key: value for key, value in user.items()},
    }


def evolve(state: Mapping[str, Json], delta: Mapping[str, Json]) -> dict[str, Json]:
    """Return the state after an event's delta. A null is stored as a value: keys never go away."""
    return {**state, **without_temp(delta)}


def has_temp(delta: Mapping[str, Json]) -> bool:
    """Tell whether a delta has what may not be stored."""
    return any(key.startswith(TEMP_PREFIX) for key in delta)


def without_temp(delta: Mapping[str, Json]) -> dict[str, Json]:
    """Return the part of a delta that may be stored."""
    return {key: value for key, value in delta.items() if not key.startswith(TEMP_PREFIX)}
