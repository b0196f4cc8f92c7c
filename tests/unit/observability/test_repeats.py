"""What is told again, and when."""

from app.observability.repeats import MAX_KINDS, Repeats


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_happens_often_is_told_once_in_an_interval_with_how_often() -> None:
    clock = Clock()
    repeats = Repeats(interval_s=10, now_s=clock)

    assert [repeats.count("a") for _ in range(4)] == [1, 0, 0, 0]
    clock.now_s = 10
    assert [repeats.count("a") for _ in range(2)] == [4, 0]


def test_each_kind_has_its_own_interval() -> None:
    repeats = Repeats(now_s=Clock())

    assert [repeats.count(kind) for kind in ("a", "b", "a", "b")] == [1, 1, 0, 0]


def test_no_more_kinds_are_kept_than_may_be() -> None:
    repeats = Repeats(now_s=Clock())
    for number in range(MAX_KINDS + 1):
        repeats.count(number)

    assert repeats.count(MAX_KINDS) == 0
    assert repeats.count(0) == 1
