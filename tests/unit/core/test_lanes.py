from app.core.lanes import ROOT_LANE, Lane, Reader


def test_scope_is_matched_exactly() -> None:
    scoped = Lane(isolation_scope="s")

    assert not Reader().sees(scoped)
    assert not Reader(isolation_scope="s").sees(ROOT_LANE)
    assert not Reader(isolation_scope="t").sees(scoped)
    assert Reader(isolation_scope="s").sees(scoped)


def test_empty_scope_is_not_the_missing_one() -> None:
    assert not Reader().sees(Lane(isolation_scope=""))


def test_node_message_is_seen_by_its_node_alone() -> None:
    addressed = Lane(node_path="wf/n")

    assert Reader(node_path="wf/n").sees(addressed)
    assert not Reader(node_path="wf").sees(addressed)
    assert not Reader().sees(addressed)


def test_messages_inside_a_tool_call_are_hidden_from_readers_at_the_root() -> None:
    inside = Lane(branch="t@c1", tool_names=("t",))

    assert not Reader(agent="bot").sees(inside)
    assert Reader(agent="t").sees(inside)
    assert Reader(agent="bot", branch="t@c1").sees(inside)


def test_every_tool_on_the_way_must_be_the_reader() -> None:
    inside = Lane(branch="t@c1.u@c2", tool_names=("t", "u"))

    assert not Reader(agent="t").sees(inside)


def test_reader_owns_its_own_branch_and_scope_only() -> None:
    reader = Reader(agent="bot", branch="r.x", isolation_scope="s")

    assert reader.owns(Lane(branch="r.x", isolation_scope="s"))
    assert not reader.owns(Lane(branch="r", isolation_scope="s"))
    assert not reader.owns(Lane(branch="r.x"))


def test_what_stands_inside_a_tool_call_belongs_to_whoever_runs_there() -> None:
    lane = Lane(branch="t@c1", tool_names=("t",))

    assert Reader(branch="t@c1").owns(lane)
