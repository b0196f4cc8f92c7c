"""Recorded sessions with statements planted in them, handed over in rounds."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from app.core.contents import Text
from app.core.copying import replace
from app.core.events import Event, Events
from app.core.lanes import ROOT_LANE
from app.core.tokens import part_tokens
from app.providers.tokenizer import Tokenizer
from tests import readers
from tests.builders import user
from tests.compiling import append, parse_items
from tests.fakes.canaries import Canary

TOKENS: Final = Tokenizer()
ROUNDS: Final = 5
FAMILIES: Final = (
    readers.claude_code,
    readers.pi,
    readers.codex,
    readers.tau_bench,
    readers.swe_agent,
    readers.inspect_ai,
    readers.bioagent,
    readers.who_and_when,
    readers.openhands,
)
#: Shorter sessions have nothing worth folding five times.
LEAST_EVENTS: Final = 15
SESSIONS_OF_A_FAMILY: Final = 2


def recorded(read: Any, data: Path) -> Iterator[tuple[str, Sequence[Event]]]:
    """Yield the first sessions of a family that are long enough."""
    found = 0
    for session in read(data):
        log_ = append(parse_items(session.format, session.items, agent=session.agent))
        events = [event for event in log_.events if event.marker is None]
        if len(events) >= LEAST_EVENTS:
            yield session.name, events
            found += 1
            if found == SESSIONS_OF_A_FAMILY:
                return


def counted(events: Sequence[Event]) -> Events:
    """Return the events numbered from 1, in one lane, with their tokens."""
    return tuple(
        replace(
            event,
            seq=seq,
            lane=ROOT_LANE,
            part_tokens=tuple(part_tokens(part, TOKENS.count) for part in event.parts),
        )
        for seq, event in enumerate(events, start=1)
    )


def planted(events: Sequence[Event], canaries: Sequence[Canary]) -> Events:
    """Return the events with the canaries spread over the first four fifths of them."""
    step = max(1, len(events) * 4 // 5 // len(canaries))
    left = list(canaries)
    mixed: list[Event] = []
    for number, event in enumerate(events):
        if number % step == 0 and left:
            mixed.append(user(left.pop(0).text))
        mixed.append(event)
    return counted([*mixed, *(user(canary.text) for canary in left)])


def in_rounds(events: Events) -> Iterator[Events]:
    """Yield the events in as many stretches as there are folds."""
    for number in range(ROUNDS):
        yield events[len(events) * number // ROUNDS : len(events) * (number + 1) // ROUNDS]


def told_by(events: Events, canaries: Sequence[Canary]) -> list[Canary]:
    """Return the canaries that are planted in these events."""
    told = {part.text for event in events for part in event.parts if isinstance(part, Text)}
    return [canary for canary in canaries if canary.text in told]


def tokens_of(events: Events) -> int:
    """Return what the events take as they are."""
    return sum(sum(event.part_tokens) for event in events)
