import pytest

from app.core.branch import is_visible_from, line_up, segments, tagged_segments


def test_empty_branch_has_no_segments() -> None:
    assert segments("") == ()
    assert segments("root.planner") == ("root", "planner")


def test_line_up_ends_at_the_root() -> None:
    assert line_up("a.b") == ("a.b", "a", "")
    assert line_up("") == ("",)


@pytest.mark.parametrize(
    ("reader", "event", "is_visible"),
    [
        ("", "root.a", True),
        ("root.a", "", True),
        ("root.a", "root.a", True),
        ("root.a.b", "root.a", True),
        ("root.a.b", "root", True),
        ("root", "root.a", False),
        ("root.a", "root.b", False),
        # adk-python#2948: names that begin alike.
        ("root.agent_10", "root.agent_1", False),
        ("root.agent_1", "root.agent_10", False),
        ("root.a10.b", "root.a1", False),
    ],
)
def test_a_reader_sees_its_own_line_upward_in_whole_segments(
    reader: str,
    event: str,
    is_visible: bool,  # noqa: FBT001
) -> None:
    assert is_visible_from(reader, event) is is_visible


def test_tag_stands_after_the_last_at_sign() -> None:
    assert list(tagged_segments("root.t@c1.mail@host@7.n")) == [("t", "c1"), ("mail@host", "7")]
    assert list(tagged_segments("")) == []
