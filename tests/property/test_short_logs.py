"""Every short log over a small alphabet: what random logs may miss, nothing escapes here."""

from collections.abc import Iterator
from itertools import product

import pytest

from app.core.compile.order import is_reply
from app.core.compile.verify import verify
from app.core.errors import InvalidInputError
from app.core.events import Event
from app.core.lanes import Reader
from app.core.resolve import Log, replay
from app.formats import FORMATS
from tests.builders import call, fold, model, response, rewind, timed, user
from tests.property.compiling import compiled, live_part, parts_of

READER = Reader(agent="bot")

#: One letter, one thing that happens. A lower-case twin is a reply compiled one event earlier.
ALPHABET = "UMmCcR"


def _event(letter: str, seq: int) -> Event:
    lagging = {"compiled_seq": max(0, seq - 2)}
    match letter:
        case "U":
            return user(f"u{seq}")
        case "M":
            return model(f"m{seq}")
        case "m":
            return model(f"m{seq}", **lagging)
        case "C":
            return call("t", id="c")
        case "c":
            return call("t", id="c", **lagging)
        case "R":
            return response("c", name="t", result={"seq": seq})
        case "F":
            return fold(1, max(1, seq - 2))
        case _:
            return rewind(to_seq=max(0, seq - 3))


def _logs(alphabet: str, length: int) -> Iterator[tuple[str, Log]]:
    for letters in product(alphabet, repeat=length):
        sent = [_event(letter, seq) for seq, letter in enumerate(letters, start=1)]
        try:
            yield "".join(letters), replay(timed(sent))
        except InvalidInputError:
            continue


def _broken_prefixes(log: Log) -> Iterator[int]:
    for reply in log.events:
        if not is_reply(reply, READER) or reply.place is None:
            continue
        if reply.place.response_seq != reply.seq:
            continue
        at = reply.seq - 1 if reply.compiled_seq is None else reply.compiled_seq
        if any(is_reply(other, READER) for other in log.events[at : reply.seq - 1]):
            continue
        sent = parts_of(compiled(log.events[:at], log.index, READER, "anthropic"))
        for seq in range(reply.seq, len(log.events) + 1):
            later = parts_of(compiled(log.events[:seq], log.index, READER, "anthropic"))
            if later[: len(sent)] != sent:
                yield reply.seq


def _check(alphabet: str, length: int, *, has_markers: bool) -> None:
    for letters, log in _logs(alphabet, length):
        result = compiled(log.events, log.index, READER, "anthropic")
        assert verify(result.rendered, FORMATS["anthropic"]) == (), letters
        live = compiled(live_part(log, READER), log.index, READER, "anthropic")
        assert live.chain == result.chain, letters
        if not has_markers:
            assert not list(_broken_prefixes(log)), letters


@pytest.mark.parametrize("length", range(1, 4))
def test_every_short_log_is_valid_and_keeps_its_prefixes(length: int) -> None:
    _check(ALPHABET, length, has_markers=False)


@pytest.mark.parametrize("length", range(1, 4))
def test_every_short_log_with_folds_and_rewinds_is_valid(length: int) -> None:
    _check("UMCRFW", length, has_markers=True)


@pytest.mark.slow
def test_every_log_of_five_events_is_valid_and_keeps_its_prefixes() -> None:
    _check(ALPHABET, 5, has_markers=False)


@pytest.mark.slow
def test_every_log_of_five_events_with_folds_and_rewinds_is_valid() -> None:
    _check("UMCRFW", 5, has_markers=True)
