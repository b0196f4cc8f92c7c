"""Recorded sessions happen again, call by call: the whole of each request begins the next one.

What a provider has cached of a request is worth as much as of it stands at the beginning of the
request after. Nothing is folded here, so all of it has to, byte for byte, in every format.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from app.core.compile.breaks import newest_reply
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.compile.projection import Counted, count_result
from app.core.compile.render import chained_parts
from app.core.compile.standing import broken_reply, whole_standing
from app.core.contents import FunctionCall, Part, Text, is_blank
from app.core.copying import replace
from app.core.events import Event
from app.core.lanes import Reader
from app.core.resolve import Facts, Resolver
from app.formats import FORMATS
from tests.compiling import MODELS, RULES, parse_items
from tests.readers import Session, read_all

#: Longer ones take minutes in all formats.
LONG: Final = 110
SYSTEM: Final = "Be brief."
#: What a reply records of its request: position and fingerprint.
Said: TypeAlias = tuple[int, str]


class Replay:
    """A session that happens again, for its agent, in one format."""

    def __init__(self, session: Session, name: str) -> None:
        self._wire = FORMATS[name]
        self._options = CompileOptions(
            reader=Reader(agent=session.agent), model=MODELS.get(name, ""), system=SYSTEM
        )
        self._resolver = Resolver(Facts())
        self.events: list[Event] = []

    def append(self, event: Event) -> None:
        self.events.append(self._resolver.add(event))

    def is_reply(self, event: Event) -> bool:
        return event.is_model and event.author == self._options.reader.agent

    def is_sent(self, part: Part) -> bool:
        """Tell whether a part of a reply is certain to be in the next request."""
        is_said = isinstance(part, FunctionCall) or (isinstance(part, Text) and not part.thought)
        return is_said and not is_blank(part) and self._wire.says(part, "model")

    def compiled(self) -> tuple[CompileResult, Counted]:
        inputs = CompileInput(
            options=self._options,
            format=self._wire,
            index=self._resolver.facts.index,
            compiled_seq=len(self.events),
            system_tokens=1,
            rule=RULES.find(self._options.model),
        )
        result = run_pipeline(tuple(self.events), inputs)
        return result, count_result(result, len, system_tokens=1, tools_tokens=0)

    def shared_tokens(self, result: CompileResult, counted: Counted) -> int:
        """Return what the service answers as ``shared_prefix_tokens``."""
        reply = newest_reply(tuple(self.events), result, self._options.reader)
        assert broken_reply(reply, result, gone=None) is None
        standing = whole_standing(reply, result, gone=None, base_fingerprint=None)
        assert reply is not None
        assert standing.fingerprint == reply.compiled_fingerprint
        return standing.tokens(counted)


def ordinary(session: Session) -> Iterator[Event]:
    """Yield the events as they are appended, without folds and rewinds."""
    for parsed in parse_items(session.format, session.items, agent=session.agent):
        event = parsed.event
        if not parsed.is_partial and event.request is None:
            yield replace(event, part_tokens=(1,) * len(event.parts))


def replayed(session: Session, name: str) -> int:
    """Play a session; return the number of requests that followed another."""
    replay = Replay(session, name)
    before: tuple[CompileResult, Counted] | None = None
    said: Said | None = None
    said_of: dict[str, Said] = {}
    followed, is_shown = 0, False
    for event in ordinary(session):
        if not replay.is_reply(event):
            replay.append(event)
            said = None
            continue
        # What was recorded piece by piece is still one response to one request.
        said = said_of.get(event.response_id or "", said)
        if said is None:
            now = replay.compiled()
            if before is not None and is_shown:
                sent = chained_parts(before[0].rendered)
                parts = [(role, part.text) for role, part in chained_parts(now[0].rendered)]
                assert parts[: len(sent)] == [(role, part.text) for role, part in sent]
                assert replay.shared_tokens(*now) == before[1].total
                followed += 1
            if not now[0].rendered:
                # Of nothing there is no request.
                replay.append(event)
                continue
            before = now
            said = len(replay.events), now[0].fingerprint
            if event.response_id:
                said_of[event.response_id] = said
            is_shown = False
        replay.append(replace(event, compiled_seq=said[0], compiled_fingerprint=said[1]))
        is_shown = is_shown or any(map(replay.is_sent, event.parts))
    return followed


def sessions(data: Path, *, are_long: bool) -> list[Session]:
    return [each for each in read_all(data) if (len(each.items) > LONG) is are_long]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_whole_of_a_request_begins_the_next_one(shared_data: Path, name: str) -> None:
    followed = sum(replayed(each, name) for each in sessions(shared_data, are_long=False))
    assert followed > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_whole_of_a_request_begins_the_next_one_in_long_sessions(
    shared_data: Path, name: str
) -> None:
    followed = sum(replayed(each, name) for each in sessions(shared_data, are_long=True))
    assert followed > 300
