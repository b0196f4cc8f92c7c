"""The laws of compiling, over random logs."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.compile.inputs import CompileResult
from app.core.compile.order import is_reply
from app.core.compile.verify import verify
from app.core.contents import FunctionCall, FunctionResponse, Part, Segment
from app.core.copying import replace
from app.core.events import Elision, Event, Fold, UndoRequest
from app.core.index import resolve
from app.core.lanes import Reader
from app.core.resolve import Log, replay
from app.formats import FORMATS, VALIDATORS
from tests.property.compiling import at, compiled, is_rewound, live_part, parts_of
from tests.property.strategies import Step, build, steps
from tests.requests import request_of

READERS = (
    Reader(agent="a"),
    Reader(agent="b"),
    Reader(),
    Reader(agent="a", branch="r"),
    Reader(agent="a", branch="r.x"),
    Reader(agent="a", isolation_scope="s"),
)
readers = st.sampled_from(READERS)
formats = st.sampled_from(sorted(FORMATS))
presets = st.sampled_from(("stable", "adk"))


@given(steps(), readers, formats, presets)
def test_reading_everything_and_reading_only_what_is_live_compile_to_the_same_bytes(
    drawn: list[Step], reader: Reader, format_name: str, preset: str
) -> None:
    _, log = build(drawn)
    everything = compiled(log.events, log.index, reader, format_name, preset=preset)
    live = compiled(live_part(log, reader), log.index, reader, format_name, preset=preset)
    assert parts_of(everything) == parts_of(live)
    assert everything.chain == live.chain


@given(steps(), readers, formats)
def test_compiling_twice_gives_the_same_and_leaves_the_input_alone(
    drawn: list[Step], reader: Reader, format_name: str
) -> None:
    sent, log = build(drawn)
    before = log.events
    first = compiled(log.events, log.index, reader, format_name)
    again = replay(sent)
    assert again.events == before
    assert compiled(again.events, again.index, reader, format_name) == first


@given(
    steps(),
    readers,
    st.sampled_from(sorted(VALIDATORS)),
    st.sampled_from(("auto", "keep", "strip")),
)
# A call that is marked as a thought, and a result.
@example(
    [Step("user"), Step("call", ids=("c1",), flavour=9), Step("result", ids=("c1",))],
    Reader(agent="a"),
    "anthropic",
    "strip",
)
@example(
    [Step("user"), Step("call", ids=("c1",)), Step("result", ids=("c1",), flavour=9)],
    Reader(agent="a"),
    "gemini",
    "strip",
)
def test_every_format_is_valid_whatever_was_appended(
    drawn: list[Step], reader: Reader, format_name: str, thinking: str
) -> None:
    _, log = build(drawn)
    result = compiled(log.events, log.index, reader, format_name, thinking=thinking)
    assert verify(result.rendered, FORMATS[format_name]) == ()
    request = request_of(result, FORMATS[format_name])
    if result.rendered:
        assert VALIDATORS[format_name](request, model="") == ()


@given(steps(max_size=16), readers, formats)
def test_what_was_compiled_for_a_reply_is_a_prefix_of_every_later_compile(
    drawn: list[Step], reader: Reader, format_name: str
) -> None:
    _, log = build(drawn)
    last_seq = len(log.events)
    for reply, compiled_seq in _replies(log, reader):
        sent = parts_of(compiled(*at(log, compiled_seq), reader, format_name))
        for seq in range(reply.seq, last_seq + 1):
            if _is_excused(log, reader, reply, compiled_seq, seq):
                break
            result = compiled(*at(log, seq), reader, format_name)
            if not _is_shown(result, reply):
                # It said nothing that is sent: no later request stands on it.
                break
            later = parts_of(result)
            assert later[: len(sent)] == sent, f"reply {reply.seq}, compiled at {compiled_seq}"


def _is_shown(result: CompileResult, reply: Event) -> bool:
    return any(
        placed.seq == reply.seq and content.role == "model"
        for content in result.contents
        for placed in content.parts
    )


def _replies(log: Log, reader: Reader) -> Iterator[tuple[Event, int]]:
    """Yield the first event of every response of the reader, and what it was compiled at."""
    for event in log.events:
        if is_reply(event, reader) and event.place and event.place.response_seq == event.seq:
            yield event, event.seq - 1 if event.compiled_seq is None else event.compiled_seq


def _is_excused(log: Log, reader: Reader, reply: Event, compiled_seq: int, seq: int) -> bool:
    """Tell whether something happened that may change what stands before the reply."""
    between = log.events[compiled_seq:seq]
    return any(event.marker is not None for event in between) or any(
        is_reply(other, reader) and other.seq < reply.seq for other in between
    )


@given(steps(), readers, formats, presets)
def test_nothing_of_a_lane_that_the_reader_may_not_see_is_shown(
    drawn: list[Step], reader: Reader, format_name: str, preset: str
) -> None:
    _, log = build(drawn)
    hidden = {
        event.seq for event in log.events if event.marker is None and not reader.sees(event.lane)
    }
    text = "\n".join(
        part
        for _, part in parts_of(compiled(log.events, log.index, reader, format_name, preset=preset))
    )
    shown = {int(seq) for seq in re.findall(r"\[(\d+)\|", text)}
    assert not shown & hidden
    for scope, branch in re.findall(r"sum\[\d+\|([^|]*)\|([^\]]*)\]", text):
        assert any(
            (event.lane.isolation_scope or "", event.lane.branch) == (scope, branch)
            and reader.sees(event.lane)
            for event in log.events
            if event.marker is None
        )


@given(steps(max_size=18), readers)
def test_what_is_live_is_read_with_folds_as_without(drawn: list[Step], reader: Reader) -> None:
    # adk-python#4667. A late result may be one in time again, when the reply that made it late is
    # folded; of what is folded at most such a result's call is read.
    _, log = build(drawn)
    never = [event for event in log.events if not isinstance(event.marker, Fold)]
    index = resolve([(e.seq, e.marker) for e in never if e.marker is not None])
    plain = _read_by_seq(compiled(never, index, reader))
    folded = _read_by_seq(compiled(log.events, log.index, reader))
    answers = Counter(owner for event in never for owner in event.owners)
    for event in never:
        parts, before = folded.get(event.seq, []), plain.get(event.seq, [])
        # Of several results of a call the last one in time answers.
        is_alone = all(owner is None or answers[owner] == 1 for owner in event.owners)
        if log.index.is_live(event.seq) and is_alone:
            assert len(parts) == len(before)
            assert _count(FunctionResponse, parts) >= _count(FunctionResponse, before)
        elif event.marker is None and not log.index.is_live(event.seq):
            assert _count(FunctionCall, parts) == len(parts)


#: One agent's calls, of which some are closed without a result, folded, and answered late.
folded_calls = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(("user", "model", "call", "call", "result", "result", "fold", "fold")),
        ids=st.sampled_from((("c1",), ("c2",), ("c1", "c2"), ("c2", "c3"))),
        first=st.integers(0, 5),
        flavour=st.sampled_from((3, 5)),
    ),
    max_size=14,
)


@given(folded_calls)
def test_a_masked_call_is_read_where_a_live_result_answers_it_in_time(drawn: list[Step]) -> None:
    # adk-python#4667: with the call gone the model was shown a result of nothing.
    _, log = build(drawn)
    read = _read_by_seq(compiled(log.events, log.index, Reader(agent="a")))
    answers = Counter(owner for event in log.events for owner in event.owners)
    wanted: Counter[int] = Counter()
    # Of several results of a call the last one in time answers.
    unsure: set[int] = set()
    for event in log.events:
        owners = [owner for owner in event.owners if owner is not None]
        if not owners or not log.index.is_live(event.seq):
            continue
        if any(answers[owner] > 1 for owner in owners):
            unsure.update(owner.seq for owner in owners)
            continue
        in_time = [owner for owner in owners if not _is_late(log, event, owner.seq)]
        wanted.update(owner.seq for owner in in_time)
        assert _count(FunctionResponse, read.get(event.seq, [])) == len(in_time)
    for seq in wanted.keys() - unsure:
        if not log.index.is_live(seq):
            assert [type(part) for part in read[seq]] == [FunctionCall] * wanted[seq]


def _is_late(log: Log, result: Event, call_seq: int) -> bool:
    """Tell whether a reply that is read stands between a call and its result."""
    response = log.events[call_seq - 1].place
    return any(
        event.is_model and log.index.is_live(event.seq) and event.place != response
        for event in log.events[call_seq : result.seq - 1]
    )


def _read_by_seq(result: CompileResult) -> dict[int, list[Part]]:
    read: dict[int, list[Part]] = {}
    for content in result.contents:
        for placed in content.parts:
            if placed.seq is not None and placed.segment is Segment.HISTORY:
                read.setdefault(placed.seq, []).append(placed.part)
    return read


def _count(kind: type, parts: list[Part]) -> int:
    return sum(isinstance(part, kind) for part in parts)


@given(steps(), readers, formats)
def test_undoing_every_fold_gives_the_log_without_folds(
    drawn: list[Step], reader: Reader, format_name: str
) -> None:
    _, log = build([step for step in drawn if step.kind not in ("rewind", "rewind_to", "undo")])
    folds = [event.seq for event in log.events if isinstance(event.marker, Fold)]
    undone = replay(
        [*_as_sent(log), *(Event(author="user", request=UndoRequest(seq)) for seq in folds)]
    )
    never = [event for event in log.events if event.seq not in folds]
    index = resolve([(e.seq, e.marker) for e in never if e.marker is not None])
    with_undo = compiled(undone.events, undone.index, reader, format_name)
    assert parts_of(with_undo) == parts_of(compiled(never, index, reader, format_name))


@given(steps(), readers, formats, presets)
def test_undoing_every_elision_gives_the_log_without_elisions(
    drawn: list[Step], reader: Reader, format_name: str, preset: str
) -> None:
    _, log = build([step for step in drawn if step.kind not in ("rewind", "rewind_to", "undo")])
    elisions = [event.seq for event in log.events if isinstance(event.marker, Elision)]
    undone = replay(
        [*_as_sent(log), *(Event(author="user", request=UndoRequest(seq)) for seq in elisions)]
    )
    never = [event for event in log.events if event.seq not in elisions]
    index = resolve([(e.seq, e.marker) for e in never if e.marker is not None])
    with_undo = compiled(undone.events, undone.index, reader, format_name, preset=preset)
    assert parts_of(with_undo) == parts_of(
        compiled(never, index, reader, format_name, preset=preset)
    )


@given(steps(), readers, formats, presets)
def test_an_elision_leaves_the_place_and_kind_of_everything_and_never_adds(
    drawn: list[Step], reader: Reader, format_name: str, preset: str
) -> None:
    _, log = build(drawn)
    whole = compiled(log.events, replace(log.index, elided=()), reader, format_name, preset=preset)
    short = compiled(log.events, log.index, reader, format_name, preset=preset)
    assert [role for role, _ in parts_of(short)] == [role for role, _ in parts_of(whole)]
    seqs = [[part.seq for part in content.parts] for content in whole.contents]
    assert [[part.seq for part in content.parts] for content in short.contents] == seqs
    tokens = [part.tokens for content in short.contents for part in content.parts]
    before = [part.tokens for content in whole.contents for part in content.parts]
    assert all(now <= then for now, then in zip(tokens, before, strict=True))


def _as_sent(log: Log) -> list[Event]:
    return [replace(event, place=None, owners=(), marker=None) for event in log.events]


@given(steps(), readers)
def test_every_masked_event_belongs_to_exactly_one_shown_section(
    drawn: list[Step], reader: Reader
) -> None:
    del reader
    _, log = build(drawn)
    for event in log.events:
        if event.marker is not None:
            assert not log.index.is_live(event.seq)
            continue
        owning = [
            section
            for section in log.index.sections
            if any(low <= event.seq <= high for low, high in section.belongs)
        ]
        states = [log.index.is_live(event.seq), is_rewound(log, event.seq), len(owning) == 1]
        assert states.count(True) == 1
        assert all(section.lane == event.lane for section in owning)


@pytest.mark.parametrize("format_name", sorted(FORMATS))
def test_an_empty_log_compiles_to_nothing(format_name: str) -> None:
    result = compiled((), resolve([]), Reader(agent="a"), format_name)
    assert result.rendered == ()
    assert result.warnings == ("empty_contents",)
