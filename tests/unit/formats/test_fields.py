"""How deep a value may be."""

from typing import Any

import pytest

from app.formats.fields import MAX_DEPTH, is_deep


def nested(levels: int, leaf: Any = 1, *, in_objects: bool = False) -> Any:
    """Return a value of so many containers in each other."""
    value = leaf
    for _ in range(levels):
        value = {"a": value} if in_objects else [value]
    return value


@pytest.mark.parametrize("in_objects", [False, True])
@pytest.mark.parametrize(
    # What the fast text cannot say is looked at all the same.
    "leaf",
    [1, "[" * 500, 2**80, "\ud800", float("nan")],
)
def test_as_deep_as_it_may_be_and_one_more(leaf: Any, *, in_objects: bool) -> None:
    assert not is_deep(nested(MAX_DEPTH + 1, leaf, in_objects=in_objects))
    assert is_deep(nested(MAX_DEPTH + 2, leaf, in_objects=in_objects))


def test_what_is_wide_is_not_deep() -> None:
    assert not is_deep([nested(3) for _ in range(1_000)])
    assert is_deep([*(nested(3) for _ in range(1_000)), nested(MAX_DEPTH + 1)])


def test_beyond_what_the_fast_text_can_say() -> None:
    assert is_deep(nested(5_000))
