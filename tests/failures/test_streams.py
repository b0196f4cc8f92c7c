"""Sessions on which other systems sent what a provider refuses, at every position and fold."""

import pytest

from app.core.compile.inputs import CompileResult
from app.core.compile.verify import verify
from app.core.errors import CompactionRangeError
from app.core.resolve import Log
from app.formats import FORMATS, VALIDATORS
from tests.builders import fold
from tests.failures.notation import sent, stored
from tests.passing import BOT
from tests.property.compiling import at, compiled, live_part, parts_of
from tests.requests import request_of

STREAMS = {
    "strands#578": "(U C# R# A)x20",
    "strands#465": "U (C# R#)x6",
    "strands#4341": "U C1 R1:50 C2 R2:900 A U",
    "strands#702": "U A U A U A C1 R1:500",
    "strands#95": "U C1 R1:200j A U C2 R2:200j",
    "strands#611": "U A U A U A U A U A U A U",
    "strands#981": "U C1 R1:900",
    "strands#1160": "U A U A U A U A U A U A",
    "strands#4087": "U^ A^ U A U A U A",
    "strands#4088": "U A U^ A U A U A U A",
    "strands#2025": "U C1 U",
    "strands#1123": "U C1 U A U",
    "strands#4154": "U A RU9 A U",
    "strands#4017": "U C1 R1d A",
    "strands#4187": "U C1,2 R1:900,2:900 A U",
    "strands#3505": "U (C# R#:600)x5",
    "strands, users in a row": "U A U A U A U A",
    "strands, pinned pair": "U C1 R1 C2 R2^ C3 R3 C4 R4",
    "strands, images": "U M A M A M",
    "langchain#38352": "U C1,2 R1,2 R3 A U",
    "langchain#34184": "U A U C1,2,3,4,5,6,7,8 R1,2,3,4,5,6,7,8 A",
    "langchain#39261": "U (C# R#:30)x10",
    "langmem#118": "(U C# R# A)x10",
    "langmem#126": "U C1,2,3 R1,2,3 A U",
    "software-agent-sdk#2255": "U (K C# R#)x60",
    "software-agent-sdk#432": "U C1 R1! A U",
    "claude-code#24670": "R1 A U A U",
    "claude-code#4093": "U A C1 U",
    "openclaw#19048": "U C1 R1 C2 U A U",
    "an image as a result": "U C1 R1i A U",
}
names = pytest.mark.parametrize("name", STREAMS)
formats = pytest.mark.parametrize("format_name", sorted(FORMATS))

#: Of a long stream only some positions are looked at: its turns are all alike.
STEP_OF_LONG = 17


def positions(log: Log) -> range:
    count = len(log.events)
    return range(1, count + 1, 1 if count <= 20 else STEP_OF_LONG)


def check(result: CompileResult, format_name: str) -> None:
    assert verify(result.rendered, FORMATS[format_name]) == ()
    if format_name in VALIDATORS and result.rendered:
        request = request_of(result, FORMATS[format_name])
        assert VALIDATORS[format_name](request, model="") == ()


@names
@formats
def test_every_position_is_valid(name: str, format_name: str) -> None:
    log = stored(STREAMS[name])
    for seq in positions(log):
        check(compiled(*at(log, seq), BOT, format_name), format_name)


@names
@formats
def test_what_a_model_answered_stays_a_prefix(name: str, format_name: str) -> None:
    log = stored(STREAMS[name])
    everything = parts_of(compiled(log.events, log.index, BOT, format_name))
    first_marker = min(
        (event.seq for event in log.events if event.marker is not None), default=len(log.events)
    )
    for event in log.events[:first_marker]:
        if event.place is not None and event.place.response_seq == event.seq:
            before = parts_of(compiled(*at(log, event.seq - 1), BOT, format_name))
            assert everything[: len(before)] == before


@names
@formats
def test_a_fold_of_any_beginning_is_valid(name: str, format_name: str) -> None:
    # What a strategy may cut off is its own matter: whatever is cut, the rest is a request.
    events = sent(STREAMS[name])
    for end in range(1, len(events), 1 if len(events) <= 20 else STEP_OF_LONG):
        try:
            log = stored(STREAMS[name], fold(1, end))
        except CompactionRangeError:
            # All of it is pinned, open, or a marker.
            continue
        result = compiled(log.events, log.index, BOT, format_name)
        check(result, format_name)
        live = compiled(live_part(log, BOT), log.index, BOT, format_name)
        assert live.chain == result.chain
