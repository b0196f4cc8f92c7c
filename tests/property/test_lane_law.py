"""No one sees what is not theirs, over logs of many lanes with folds of many sections.

What a reader may see is said here once more, from the specification, so that a mistake in
:meth:`app.core.lanes.Reader.sees` is no excuse for itself.
"""

import re

from hypothesis import given
from hypothesis import strategies as st

from app.core.lanes import Lane, Reader
from app.core.resolve import Log
from app.formats import FORMATS
from tests.property.compiling import compiled, live_part, parts_of
from tests.property.strategies import LANES, Step, build

READERS = (
    Reader(agent="a"),
    Reader(agent="t"),
    Reader(),
    Reader(agent="a", branch="r"),
    Reader(agent="a", branch="r.x"),
    Reader(agent="a", branch="r.xy"),
    Reader(agent="a", branch="r.t@c1"),
    Reader(agent="a", isolation_scope="s"),
    Reader(agent="a", isolation_scope="s", branch="r.x"),
)
PLACES = (*set(LANES), Lane(branch="r.xy"), Lane(isolation_scope="s", branch="r"))
KINDS = ("user", "model", "model", "call", "result", "fold", "fold", "timed", "undo", "rewind_to")

_EVENT = re.compile(r"(?<!sum)\[(\d+)\|([^|]*)\|([^\]]*)\]")
_SUMMARY = re.compile(r"sum\[\d+\|([^|]*)\|([^\]]*)\]")


@st.composite
def logs(draw: st.DrawFn) -> Log:
    step = st.builds(
        Step,
        kind=st.sampled_from(KINDS),
        author=st.sampled_from(("a", "b")),
        lane=st.sampled_from(sorted(PLACES, key=repr)),
        ids=st.lists(st.sampled_from(("c1", "c2")), min_size=1, max_size=2).map(tuple),
        first=st.integers(0, 3),
        second=st.integers(4, 9),
        flavour=st.sampled_from((2, 3, 5, 8)),
    )
    return build(draw(st.lists(step, min_size=6, max_size=16)))[1]


def may_see(reader: Reader, scope: str, branch: str) -> bool:
    """Say it as the specification does: scope exactly, branch upward in whole segments."""
    if scope != (reader.isolation_scope or ""):
        return False
    ours, theirs = reader.branch.split("."), branch.split(".")
    return not reader.branch or not branch or ours[: len(theirs)] == theirs


def is_inside_a_tool(log: Log, reader: Reader, seq: int, branch: str) -> bool:
    """Tell whether the event is a message inside a call that came before it."""
    names = {
        name
        for name, call_id in re.findall(r"(\w+)@(\w+)", branch)
        if call_id in {part.id for event in log.events[: seq - 1] for part in event.calls}
    }
    return not reader.branch and bool(names - {reader.agent})


def text_for(log: Log, reader: Reader, **options: object) -> str:
    result = compiled(log.events, log.index, reader, "native", **options)
    return "\n".join(part for _, part in parts_of(result))


@given(logs(), st.sampled_from(("stable", "adk")))
def test_only_what_the_reader_may_see_is_sent(log: Log, preset: str) -> None:
    for reader in READERS:
        text = text_for(log, reader, preset=preset)
        for seq, scope, branch in _EVENT.findall(text):
            assert may_see(reader, scope, branch)
            assert not is_inside_a_tool(log, reader, int(seq), branch)
        for scope, branch in _SUMMARY.findall(text):
            assert may_see(reader, scope, branch)


@given(logs())
def test_everything_that_the_reader_may_see_is_sent_or_summarised(log: Log) -> None:
    for reader in READERS:
        sent = {int(seq) for seq, _, _ in _EVENT.findall(text_for(log, reader, narration="name"))}
        for event in log.events:
            if event.marker is not None or event.responses or not log.index.is_live(event.seq):
                continue
            if may_see(reader, event.lane.isolation_scope or "", event.lane.branch):
                is_hidden = is_inside_a_tool(log, reader, event.seq, event.lane.branch)
                assert is_hidden or event.seq in sent


@given(logs(), st.sampled_from(sorted(FORMATS)))
def test_what_the_reader_may_not_see_changes_nothing_that_it_reads(
    log: Log, format_name: str
) -> None:
    for reader in READERS:
        everything = compiled(log.events, log.index, reader, format_name)
        own = compiled(live_part(log, reader), log.index, reader, format_name)
        assert own.chain == everything.chain
