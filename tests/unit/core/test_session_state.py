"""State by prefix."""

from app.core.session_state import evolve, merge_state, split_state


def test_state_is_split_by_prefix_and_temp_is_dropped() -> None:
    scoped = split_state({"app:a": 1, "user:b": 2, "c": 3, "temp:d": 4, "application:e": 5})
    assert (scoped.app, scoped.user) == ({"a": 1}, {"b": 2})
    assert scoped.session == {"c": 3, "application:e": 5}


def test_merging_gives_prefixes_back() -> None:
    assert merge_state({"c": 3}, app={"a": 1}, user={"a": 2}) == {"c": 3, "app:a": 1, "user:a": 2}


def test_a_null_is_a_value_and_temp_is_never_kept() -> None:
    assert evolve({"a": 1, "b": 2}, {"a": None, "temp:x": 1}) == {"a": None, "b": 2}
