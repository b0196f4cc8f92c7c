"""A value with some fields changed: ``copy.replace`` of Python 3.13."""

import dataclasses
from typing import Any, TypeVar

from msgspec import Struct, structs

T = TypeVar("T")


def replace(value: T, /, **changes: Any) -> T:  # noqa: ANN401  each field's own type
    """Return a copy of a struct or dataclass with these fields changed."""
    if isinstance(value, Struct):
        return structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]
