"""Random streams: under preset adk our Gemini contents are google-adk's."""

import json
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import pytest

from app.core.compile.inputs import IncludeContents
from tests.differential.reading import Reading, adk_contents, live_part, our_contents
from tests.differential.streams import (
    Step,
    Stream,
    build,
    draw_reading,
    draw_steps,
    is_avoided,
)

#: Streams a chunk; a chunk is one test, so that they spread over processes.
CHUNK: Final = 50
_DEFAULT_LANE: Final = range(12)
_SLOW_LANE: Final = range(12, 100)

chunks = pytest.mark.parametrize(
    "chunk",
    [*_DEFAULT_LANE, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in _SLOW_LANE)],
)


@pytest.fixture(autouse=True)
def _quiet_adk() -> None:
    """google-adk warns of every orphan, and there are thousands."""
    logging.getLogger("google_adk").setLevel(logging.ERROR)


@chunks
def test_contents_are_those_of_google_adk(chunk: int) -> None:
    _check(chunk, _differs_from_adk)


@chunks
def test_times_out_of_order_do_not_change_the_order(chunk: int) -> None:
    _check(chunk, _differs_from_adk, markers=False, jumbled=True)


@chunks
def test_the_current_turn_is_that_of_google_adk(chunk: int) -> None:
    # Avoided: in this mode google-adk ignores rewinds to before the turn, and takes a compaction,
    # whose author is the user, for the turn's start.
    _check(chunk, _differs_from_adk, markers=False, include_contents="none")


@chunks
def test_reading_only_live_events_gives_the_same(chunk: int) -> None:
    _check(chunk, _differs_when_read_live)


def _differs_from_adk(stream: Stream, reading: Reading) -> bool:
    return our_contents(stream.log, reading) != adk_contents(stream.events, reading)


def _differs_when_read_live(stream: Stream, reading: Reading) -> bool:
    live = live_part(stream.log, reading)
    return our_contents(stream.log, reading, events=live) != our_contents(stream.log, reading)


def _check(
    chunk: int,
    differs: Callable[[Stream, Reading], bool],
    *,
    markers: bool = True,
    jumbled: bool = False,
    include_contents: IncludeContents = "default",
) -> None:
    """Compare the streams of a chunk; tell the smallest form of the first that differs."""
    compared = 0
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        random = Random(seed)  # noqa: S311 - streams, no secrets
        steps = draw_steps(random, markers=markers)
        reading = draw_reading(random, include_contents=include_contents)
        times = random.choices(range(5), k=len(steps)) if jumbled else ()

        def fails(steps: Sequence[Step]) -> bool:
            stream = build(steps, reading, jumbled_times=times)  # noqa: B023 - called below
            return is_avoided(stream, reading) is None and differs(stream, reading)  # noqa: B023

        compared += is_avoided(build(steps, reading, jumbled_times=times), reading) is None
        if fails(steps):
            stream = build(_smallest(steps, fails), reading, jumbled_times=times)
            pytest.fail(_told(seed, stream, reading))
    assert compared > CHUNK // 4


def _smallest(steps: list[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Leave out steps for as long as the rest fails."""
    position = 0
    while position < len(steps):
        fewer = steps[:position] + steps[position + 1 :]
        if fails(fewer):
            steps, position = fewer, 0
        else:
            position += 1
    return steps


def _told(seed: int, stream: Stream, reading: Reading) -> str:
    def listed(items: Sequence[object]) -> str:
        return "".join(f"\n    {json.dumps(item)}" for item in items)

    return (
        f"seed {seed}, {reading}"
        f"\n  events{listed(stream.events)}"
        f"\n  google-adk{listed(adk_contents(stream.events, reading))}"
        f"\n  ours{listed(our_contents(stream.log, reading))}"
        f"\n  ours, live events only"
        f"{listed(our_contents(stream.log, reading, events=live_part(stream.log, reading)))}"
    )
