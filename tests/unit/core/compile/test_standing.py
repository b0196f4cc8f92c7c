"""How much of the request before still stands: what the provider should have in its cache."""

from app.core.compile.breaks import Break
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.compile.projection import count_result
from app.core.compile.standing import (
    NOTHING_STANDS,
    Standing,
    broken_reply,
    broken_standing,
    whole_standing,
)
from app.core.copying import replace
from app.core.events import Event
from app.core.resolve import Log
from app.formats import FORMATS
from tests.builders import fold, log, model, user
from tests.passing import BOT

FOLDED = Break("compaction", 4)


def compiled(made: Log, head: int | None = None, *, system: str = "") -> CompileResult:
    events = made.events[:head]
    inputs = CompileInput(
        options=CompileOptions(reader=BOT, system=system),
        format=FORMATS["anthropic"],
        index=made.index if head is None else log(*_bare(events)).index,
        compiled_seq=len(events),
    )
    return run_pipeline(events, inputs)


def _bare(events: tuple[Event, ...]) -> list[Event]:
    return [replace(event, place=None, owners=(), seq=0) for event in events]


def talk() -> Log:
    return log(user("a"), model("b"), user("c"), model("d"), user("e"))


def answering(made: Log, seq: int) -> Event:
    """Return the reply at a seq as one that says what it was compiled for."""
    return replace(made.events[seq - 1], compiled_fingerprint=compiled(made, seq - 1).fingerprint)


def test_all_that_the_newest_reply_answered_stands() -> None:
    made = talk()
    reply = answering(made, 4)
    found = whole_standing(reply, compiled(made), gone=None, base_fingerprint=None)
    assert found == Standing(3, reply.compiled_fingerprint)


def test_a_base_of_the_caller_that_reaches_further_is_taken() -> None:
    made = talk()
    result = compiled(made)
    found = whole_standing(answering(made, 2), result, gone=None, base_fingerprint=result.chain[4])
    assert found == Standing(4, result.chain[4])


def test_a_base_that_is_no_prefix_is_not() -> None:
    made = talk()
    reply = answering(made, 4)
    found = whole_standing(reply, compiled(made), gone=None, base_fingerprint="0" * 64)
    assert found == Standing(3, reply.compiled_fingerprint)


def test_without_reply_and_base_nothing_is_known_to_stand() -> None:
    assert (
        whole_standing(None, compiled(talk()), gone=None, base_fingerprint=None) == NOTHING_STANDS
    )
    assert (
        NOTHING_STANDS.tokens(count_result(compiled(talk()), len, system_tokens=9, tools_tokens=9))
        == 0
    )


def test_a_reply_that_stands_on_another_chain_is_told_apart() -> None:
    reply = replace(talk().events[3], compiled_fingerprint="0" * 64)
    assert broken_reply(reply, compiled(talk()), gone=None) is reply
    assert broken_reply(answering(talk(), 4), compiled(talk()), gone=None) is None


def test_of_a_request_that_changed_its_shared_beginning_is_left() -> None:
    made = talk()
    reply = answering(made, 4)
    folded = log(*_bare(made.events), fold(3, 4, "brief"))
    found = broken_standing(reply, compiled(folded), compiled(made, 3), FOLDED)
    # The first question and answer.
    assert found == Standing(2, reply.compiled_fingerprint, FOLDED)


def test_with_another_system_text_nothing_is_left() -> None:
    made = talk()
    reply = answering(made, 4)
    now = compiled(made, system="new")
    assert broken_standing(reply, now, compiled(made, 3), None).parts is None


def test_what_was_sent_then_and_cannot_be_made_again_is_not_compared() -> None:
    made = talk()
    reply = replace(made.events[3], compiled_fingerprint="0" * 64)
    found = broken_standing(reply, compiled(made), compiled(made, 3), FOLDED)
    assert found == Standing(None, "0" * 64, FOLDED)


def test_tokens_are_those_of_what_stands() -> None:
    made = log(user("a", part_tokens=(5,)), model("b", part_tokens=(7,)), user("c"))
    counted = count_result(compiled(made), len, system_tokens=30, tools_tokens=0)
    assert [Standing(parts).tokens(counted) for parts in (0, 1, 2)] == [30, 35, 42]


def test_a_newest_reply_that_is_gone_leaves_nothing_whole() -> None:
    made = talk()
    gone = answering(made, 4)
    rest = compiled(log(*_bare(made.events[:2]), user("x")))
    assert broken_reply(answering(made, 2), rest, gone=gone) is gone


def test_a_reply_that_is_gone_and_names_nothing_counts_where_no_other_is_left() -> None:
    made = talk()
    gone = made.events[3]
    rest = compiled(log(*_bare(made.events[:2]), user("x")))
    assert broken_reply(None, rest, gone=gone) is gone
    assert broken_reply(answering(made, 2), rest, gone=gone) is None
