"""The prefix law over logs of one agent in one lane, where it has most to lose.

The general laws draw agents, lanes and readers too, so that few of their logs put a late result or
an event that landed in between in front of the reader at all. Here every log does.
"""

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.core.compile.breaks import BreakReason, find_break, gone_reply, is_lost
from app.core.compile.order import is_reply
from app.core.compile.pipeline import run_pipeline
from app.core.events import Event
from app.core.lanes import Lane, Reader
from app.core.resolve import Log
from app.formats import FORMATS
from tests.property.compiling import at, compiled, parts_of
from tests.property.settling import inputs_of, with_replies
from tests.property.strategies import Step, build

READER = Reader(agent="a")
ORDINARY = ("user", "user", "model", "call", "call", "result", "result", "mixed")
MARKING = ("rewind", "rewind_to", "fold", "pin", "unpin", "undo")

formats = st.sampled_from(sorted(FORMATS))


def logs(*lags: int | None, kinds: Sequence[str] = ORDINARY) -> st.SearchStrategy[Log]:
    """Draw logs whose replies were compiled that many events before they landed."""
    step = st.builds(
        Step,
        kind=st.sampled_from(kinds),
        author=st.just("a"),
        lane=st.just(Lane()),
        invocation=st.integers(1, 3),
        ids=st.lists(st.sampled_from(("c1", "c2", None)), min_size=1, max_size=2).map(tuple),
        lag=st.sampled_from(lags),
        response_id=st.sampled_from((None, None, "r1", "r2")) if None in lags else st.none(),
        first=st.integers(0, 6),
        second=st.integers(0, 6),
        # 0 and 1 are empty and blank text, 2 and up say something.
        flavour=st.sampled_from((2, 3, 3, 4, 0)),
    )
    return st.lists(step, min_size=3, max_size=12).map(lambda steps: build(steps)[1])


def broken_prefixes(log: Log, format_name: str) -> Iterator[str]:
    """Yield each reply in front of which something changed without a reason to."""
    for reply in log.events:
        if not is_reply(reply, READER) or reply.place is None:
            continue
        if reply.place.response_seq != reply.seq:
            continue
        compiled_seq = reply.seq - 1 if reply.compiled_seq is None else reply.compiled_seq
        if _is_overtaken(log.events[compiled_seq : reply.seq - 1]):
            continue
        sent = parts_of(compiled(*at(log, compiled_seq), READER, format_name))
        for seq in range(reply.seq, len(log.events) + 1):
            if any(event.marker is not None for event in log.events[compiled_seq:seq]):
                break
            result = compiled(*at(log, seq), READER, format_name)
            if not any(part.seq == reply.seq for item in result.contents for part in item.parts):
                break
            if parts_of(result)[: len(sent)] != sent:
                yield f"reply {reply.seq} of {compiled_seq}, at {seq}"


def _is_overtaken(between: Sequence[Event]) -> bool:
    """Tell whether another response landed first: that one keeps its prefix."""
    return any(is_reply(event, READER) for event in between)


@given(logs(None), formats)
def test_prefix_holds_for_replies_that_do_not_say_what_they_were_compiled_at(
    log: Log, format_name: str
) -> None:
    assert list(broken_prefixes(log, format_name)) == []


@given(logs(0), formats)
def test_prefix_holds_for_replies_that_say_it(log: Log, format_name: str) -> None:
    assert list(broken_prefixes(log, format_name)) == []


@given(logs(1, 2, 3), formats)
def test_prefix_holds_when_events_land_between_a_compile_and_its_reply(
    log: Log, format_name: str
) -> None:
    assert list(broken_prefixes(log, format_name)) == []


@given(logs(None, 0, 1, 2, kinds=(*ORDINARY, *MARKING)), formats)
def test_prefix_holds_between_markers(log: Log, format_name: str) -> None:
    assert list(broken_prefixes(log, format_name)) == []


TAKEN_AWAY: tuple[BreakReason, ...] = ("compaction", "rewind", "pin", "elision", "overlap")


@given(logs(None, 0, 1, 2, kinds=(*ORDINARY, *MARKING, "fold", "rewind_to")), formats)
def test_what_a_reply_stood_on_is_there_or_said_to_be_lost_though_the_reply_is_gone(
    log: Log, format_name: str
) -> None:
    log = with_replies(log, READER, format_name)
    for head in range(1, len(log.events) + 1):
        events, index = at(log, head)
        inputs = inputs_of(log, head, READER, format_name)
        now = run_pipeline(events, inputs)
        reply = gone_reply(events, index, READER)
        if reply is None or reply.compiled_fingerprint is None or reply.compiled_seq is None:
            continue
        then_inputs = inputs_of(log, reply.compiled_seq, READER, format_name)
        then = run_pipeline(at(log, reply.compiled_seq)[0], then_inputs)
        stands = now.chain[: len(then.chain)] == then.chain
        assert is_lost(reply, now) == (not stands)
        if not stands:
            markers = [(event.seq, event.marker) for event in events if event.marker is not None]
            found = find_break(reply, now, then, index=index, markers=markers)
            assert found is not None
            assert found.reason in TAKEN_AWAY
            assert found.seq is not None
            assert reply.compiled_seq < found.seq <= head
