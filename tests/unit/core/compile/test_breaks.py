"""Why a reply no longer stands on the request that it answered."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.core.compile.breaks import (
    Break,
    BreakReason,
    cause_between,
    find_break,
    fingerprint_before,
    first_difference,
    gone_reply,
    newest_reply,
)
from app.core.compile.inputs import BudgetAction, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.copying import replace
from app.core.events import Event, Marker
from app.core.index import resolve
from app.core.lanes import Reader
from app.core.resolve import Log
from tests.builders import (
    activate,
    call,
    elide,
    fold,
    fold_of,
    log,
    model,
    pin,
    response,
    rewind,
    section,
    thought,
    undo,
    unpin,
    user,
)
from tests.passing import BOT, inputs_of


def compiled(done: Log, **options: Any) -> CompileResult:
    return run_pipeline(done.events, inputs_of(done, **options))


def up_to(done: Log, seq: int) -> Log:
    events = done.events[:seq]
    return Log(events, resolve(markers_of(events)))


def markers_of(events: Sequence[Event]) -> list[tuple[int, Marker]]:
    return [(event.seq, event.marker) for event in events if event.marker is not None]


def reply(*before: Event, options: dict[str, Any] | None = None, **fields: Any) -> Event:
    """Return a reply that posts back what was compiled for it from the log before it."""
    done = log(*before)
    fields.setdefault("compiled_seq", len(done.events))
    sent = compiled(up_to(done, fields["compiled_seq"]), **(options or {}))
    return model("reply", compiled_fingerprint=sent.fingerprint, **fields)


def with_reply(*before: Event, **fields: Any) -> list[Event]:
    return [*before, reply(*before, **fields)]


def broken(*events: Event, reader: Reader = BOT, **options: Any) -> Break | None:
    done = log(*events)
    now = compiled(done, reader=reader, **options)
    found = newest_reply(done.events, now, reader)
    assert found is not None
    compiled_seq = found.seq - 1 if found.compiled_seq is None else found.compiled_seq
    then = compiled(up_to(done, compiled_seq), reader=reader, **options)
    return find_break(found, now, then, index=done.index, markers=markers_of(done.events))


CUT = (BudgetAction("stubbed", 1, 9),)
LONG = (user("a" * 99), model("b"), user("c"))
HISTORY = (user("a"), model("b", invocation_id="i1"), user("c", invocation_id="i2"))


# Nothing broke


@pytest.mark.parametrize("later", [(), (user("d"),), (user("d"), model("e"), user("f"))])
def test_reply_that_stands_where_it_stood_is_not_broken(later: Sequence[Event]) -> None:
    assert broken(*with_reply(*HISTORY), *later) is None


def test_event_that_landed_in_between_breaks_nothing() -> None:
    before = [*HISTORY, user("in between")]

    assert broken(*with_reply(*before, compiled_seq=3)) is None


def test_late_result_breaks_nothing() -> None:
    before = [user("a"), call("search", id="c1"), user("b")]

    assert broken(*with_reply(*before), response("c1"), user("d")) is None


def test_fold_after_the_reply_of_what_came_after_it_breaks_nothing() -> None:
    events = [*with_reply(*HISTORY), user("d"), model("e"), fold(5, 6)]

    assert broken(*events) is None


def test_fold_before_the_reply_was_compiled_breaks_nothing() -> None:
    assert broken(*with_reply(*HISTORY, fold(1, 2)), user("d")) is None


def test_reply_without_compiled_seq_was_compiled_from_the_log_before_it() -> None:
    posted = replace(reply(*HISTORY), compiled_seq=None)

    assert broken(*HISTORY, posted, user("d")) is None


# What the caller changed


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tools": ('{"name":"t","description":"d","parameters":{}}',)}, "tools"),
        ({"system": "be brief"}, "system"),
        ({"model": "another"}, "model"),
        ({"format_name": "gemini"}, "model"),
        ({"model": "another", "system": "be brief"}, "model"),
        ({"tail_nudge": False}, None),
    ],
)
def test_change_of_the_head_is_named(changed: dict[str, Any], reason: BreakReason | None) -> None:
    found = broken(*with_reply(*HISTORY), user("d"), **changed)

    assert found == (Break(reason) if reason else None)


def test_option_that_changes_what_is_compiled_is_named() -> None:
    before = [user("a"), model("b", author="other"), user("c")]

    assert broken(*with_reply(*before), user("d"), narration="name") == Break("option")


def test_option_goes_before_a_marker_that_came_too() -> None:
    before = [user("a"), model("b", author="other"), user("c")]

    assert broken(*with_reply(*before), fold(1, 2), narration="name") == Break("option")


@pytest.mark.parametrize("cut", ["now", "then"])
def test_where_one_of_the_two_was_cut_it_may_have_been_the_budget(cut: str) -> None:
    done = log(*with_reply(user("a"), model("b", author="other"), user("c")), user("d"))
    now, then = (compiled(each, narration="name") for each in (done, up_to(done, 3)))
    if cut == "now":
        now = replace(now, budget_actions=CUT)
    else:
        then = replace(then, budget_actions=CUT)

    found = find_break(done.events[3], now, then, index=done.index, markers=())

    assert found == Break("budget")


# What the log changed


@pytest.mark.parametrize(
    ("before", "later", "expected"),
    [
        (HISTORY, (fold(1, 2),), Break("compaction", 5)),
        (HISTORY, (fold(1, 2), user("d"), fold(1, 3)), Break("compaction", 7)),
        (
            (*HISTORY, fold_of(1, 2, section("s"), staged=True)),
            (activate(4),),
            Break("compaction", 6),
        ),
        ((*HISTORY, fold(1, 2)), (undo(4),), Break("compaction", 6)),
        ((*HISTORY, fold(1, 2)), (pin(1),), Break("pin", 6)),
        ((*HISTORY, fold(1, 2)), (pin(1), unpin(1)), Break("pin", 6)),
        ((*HISTORY, fold(1, 2), pin(1)), (undo(5),), Break("pin", 7)),
        ((*HISTORY, fold(1, 2), undo(4)), (undo(5),), Break("compaction", 7)),
        ((*HISTORY, rewind("i2"), user("d")), (undo(4),), Break("rewind", 7)),
        (LONG, (elide(1),), Break("elision", 5)),
        ((*LONG, elide(1)), (undo(4),), Break("elision", 6)),
        ((*LONG, elide(1)), (pin(1),), Break("pin", 6)),
        ((*LONG, elide(1)), (elide(1, keep=9),), Break("elision", 6)),
        (HISTORY, (fold(1, 2), undo(5), user("d"), fold(1, 1)), Break("compaction", 8)),
        (HISTORY, (fold(1, 1), user("d"), fold(3, 3)), Break("compaction", 5)),
        (HISTORY, (fold(1, 1), user("d"), pin(6)), Break("compaction", 5)),
        ((*HISTORY, fold(1, 2)), (undo(4), user("d"), pin(7)), Break("compaction", 6)),
    ],
    ids=[
        "fold",
        "rolling fold",
        "activation",
        "undo of a fold",
        "pin",
        "pin and unpin",
        "undo of a pin",
        "undo of an undo",
        "undo of a rewind",
        "elision",
        "undo of an elision",
        "pin of an elided event",
        "second elision of an event",
        "second fold after an undone one",
        "fold that comes first in what is read",
        "pin of something else after a fold",
        "pin of something else after an undo",
    ],
)
def test_marker_that_changed_the_prefix_is_named(
    before: Sequence[Event], later: Sequence[Event], expected: Break
) -> None:
    assert broken(*with_reply(*before), *later) == expected


def test_rewind_that_reply_outlived_is_named() -> None:
    # Compiled before the rewind, landed after it.
    before = [*HISTORY, rewind("i2")]

    assert broken(*with_reply(*before, compiled_seq=3)) == Break("rewind", 4)


def test_marker_that_changed_nothing_before_the_reply_is_not_blamed() -> None:
    before = [user("a"), user("b"), model("first", compiled_seq=1)]
    events = [
        *with_reply(*before, compiled_seq=2),
        user("c"),
        pin(5),
        unpin(5),
        fold(5, 5),
        undo(8),
    ]

    assert broken(*events) == Break("overlap", 4)


def test_response_that_landed_first_is_an_overlap() -> None:
    before = [user("a"), user("b"), model("first", compiled_seq=1)]

    assert broken(*with_reply(*before, compiled_seq=2)) == Break("overlap", 4)


def test_response_of_another_agent_is_no_overlap_to_the_reader() -> None:
    before = [user("a"), model("first", author="other", compiled_seq=1)]

    assert broken(*with_reply(*before, compiled_seq=1)) is None


# Its parts


def test_newest_reply_is_one_that_says_what_it_was_compiled_for() -> None:
    done = log(*with_reply(*HISTORY), user("d"), model("e"))

    found = newest_reply(done.events, compiled(done), BOT)
    assert found is not None
    assert found.seq == 4


@pytest.mark.parametrize(
    "silent",
    [
        model("x", author="other", compiled_fingerprint="f"),
        model("x", branch="r", compiled_fingerprint="f"),
        model(thought("hm"), compiled_fingerprint="f"),
    ],
    ids=["another agent's", "of another lane", "not shown"],
)
def test_what_is_no_shown_reply_of_the_reader_is_passed_over(silent: Event) -> None:
    done = log(*with_reply(*HISTORY), user("d"), silent)

    found = newest_reply(done.events, compiled(done), BOT)
    assert found is not None
    assert found.seq == 4


def test_newest_reply_is_gone_when_it_is_folded() -> None:
    done = log(user("a"), model("b"), user("c"), model("d"))
    folded = log(*done.events, fold(3, 4))

    assert gone_reply(done.events, done.index, BOT) is None
    assert gone_reply(folded.events, folded.index, BOT) == folded.events[3]
    assert gone_reply((), done.index, BOT) is None


def test_log_without_such_a_reply_has_none() -> None:
    done = log(*HISTORY)

    assert newest_reply(done.events, compiled(done), BOT) is None


def test_fingerprint_before_a_reply_is_that_of_what_was_sent() -> None:
    done = log(*with_reply(*HISTORY), user("d"))

    sent = compiled(up_to(done, 3))
    assert fingerprint_before(done.events[3], compiled(done)) == sent.fingerprint


def test_fingerprint_before_a_later_event_of_a_response_is_that_before_the_response() -> None:
    first = reply(*HISTORY, response_id="r")
    second = model("more", response_id="r", compiled_fingerprint=first.compiled_fingerprint)

    assert broken(*HISTORY, first, second, user("d")) is None


def test_first_difference_counts_what_is_shared() -> None:
    first, second = log(*HISTORY), log(*HISTORY[:2], user("else"))
    found = first_difference(compiled(first), compiled(second))

    assert found is not None
    assert found.shared_count == 2
    assert found.first is not None
    assert found.second is not None
    assert first_difference(compiled(first), compiled(first)) is None


def test_first_difference_to_a_longer_one_is_where_the_shorter_ends() -> None:
    found = first_difference(compiled(log(*HISTORY)), compiled(log(*HISTORY, user("d"))))

    assert found is not None
    assert (found.shared_count, found.first) == (3, None)
    assert found.second is not None


def cause(since_seq: int, *events: Event, cut: tuple[BudgetAction, ...] = ()) -> Break | None:
    done = log(*events)
    return cause_between(
        replace(compiled(up_to(done, since_seq)), budget_actions=cut),
        compiled(done),
        index=done.index,
        markers=markers_of(done.events),
        since_seq=since_seq,
    )


def test_cause_between_two_positions_is_the_marker_between_them() -> None:
    assert cause(3, *HISTORY, fold(1, 2), user("d")) == Break("compaction", 4)
    assert cause(4, *HISTORY, fold(1, 2), undo(4)) == Break("compaction", 5)


def test_cut_is_the_cause_where_no_marker_is() -> None:
    assert cause(3, *HISTORY, user("d"), cut=CUT) == Break("budget")
    assert cause(4, *HISTORY, fold(1, 2), undo(4), cut=CUT) == Break("compaction", 5)


def test_without_a_marker_that_changed_something_there_is_no_cause() -> None:
    assert cause(3, *HISTORY, user("d")) is None
    assert cause(3, *HISTORY, user("d"), pin(4)) is None
    assert cause(4, *HISTORY, fold(1, 2), user("d")) is None


def test_what_a_response_began_with_may_have_been_left_out() -> None:
    sent = compiled(log(user("a")))
    said = {
        "compiled_seq": 1,
        "compiled_fingerprint": sent.fingerprint,
        "response_id": "r1",
    }
    done = log(user("a"), model(" \n", **said), model("b", **said), call("f", id="c1", **said))
    reply = done.events[3]
    assert fingerprint_before(reply, compiled(done)) == sent.fingerprint
