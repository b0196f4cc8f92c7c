"""Pairing and masking as google-adk does it; `tests/differential` compares with google-adk."""

from collections.abc import Iterable

from app.core.compile.adk.mask import mask
from app.core.compile.adk.pairing import pair
from app.core.compile.inputs import CompileInput, CompileOptions, Report
from app.core.contents import FunctionCall, FunctionResponse, Part, Segment, Text
from app.core.copying import replace
from app.core.events import Event, Events
from app.core.lanes import Reader
from app.core.resolve import Log
from app.formats import FORMATS
from tests.builders import (
    call,
    call_part,
    compaction,
    event,
    fold,
    log,
    model,
    response,
    response_part,
    text,
    user,
)


def inputs_for(done: Log) -> CompileInput:
    return CompileInput(
        options=CompileOptions(reader=Reader(agent="bot"), preset="adk"),
        format=FORMATS["gemini"],
        index=done.index,
        compiled_seq=len(done.events),
    )


def paired(*events: Event, report: Report | None = None) -> list[str]:
    done = log(*events)
    return told(pair(done.events, inputs_for(done), report or Report()))


def masked(done: Log) -> list[str]:
    return told(mask(done.events, inputs_for(done)))


def told(events: Events) -> list[str]:
    for item in events:
        assert len(item.parts) == len(item.part_tokens)
        assert len(item.responses) == len(item.owners)
    return [said(item.parts) for item in events]


def said(parts: Iterable[Part]) -> str:
    return " ".join(map(_part_said, parts))


def _part_said(part: Part) -> str:
    match part:
        case Text(text=words):
            return words
        case FunctionCall():
            return f"{part.name}({part.id})"
        case FunctionResponse():
            return f"{part.id}={part.response}"
        case _:
            raise AssertionError(part)


def result(call_id: str | None, said: int, **fields: object) -> Event:
    return response(call_id, name="t", result={"n": said}, **fields)


def results(*pairs: tuple[str | None, int], extra: str = "") -> Event:
    parts: list[Part] = [response_part(i, name="t", result={"n": n}) for i, n in pairs]
    if extra:
        parts.append(text(extra))
    return event(*parts, author="bot", role="user")


def calls(*ids: str | None, **fields: object) -> Event:
    return model(*(call_part("t", id=call_id) for call_id in ids), **fields)


# Results without a call


def test_result_without_a_call_is_dropped_and_reported() -> None:
    report = Report()

    assert paired(user("a"), result("c9", 1), report=report) == ["a"]
    assert [(repair.rule, repair.seq) for repair in report.repairs] == [("orphan_result", 2)]


def test_result_before_its_call_is_an_orphan() -> None:
    assert paired(result("c1", 1), calls("c1"), result("c1", 2)) == ["t(c1)", 'c1={"n":2}']


def test_text_beside_an_orphan_stays() -> None:
    assert paired(user("a"), results(("c9", 1), extra="and this"), user("b")) == [
        "a",
        "and this",
        "b",
    ]


def test_result_without_an_id_goes_to_a_call_without_one_by_name() -> None:
    assert paired(calls(None), result(None, 1), user("a")) == ["t(None)", 'None={"n":1}', "a"]
    assert paired(call("other"), result(None, 1), user("a")) == ["other(None)", "a"]


# The last event


def test_late_result_at_the_end_takes_what_stood_between_with_it() -> None:
    report = Report()

    assert paired(
        calls("c1"),
        result("c1", 1),
        user("meanwhile"),
        model("yes"),
        result("c1", 2),
        report=report,
    ) == ["t(c1)", 'c1={"n":2}']
    assert [(repair.rule, repair.seq) for repair in report.repairs] == [
        ("replaced", 2),
        ("passed_over", 3),
        ("passed_over", 4),
    ]


def test_results_at_the_end_are_split_over_their_calls() -> None:
    assert paired(
        calls("c1"),
        calls("c2"),
        results(("c2", 2), ("c1", 1), extra="both"),
    ) == ["t(c1)", 'c1={"n":1}', "t(c2)", 'c2={"n":2} both']


def test_text_on_the_way_to_a_late_result_travels_with_it() -> None:
    assert paired(
        calls("c1", "c2"),
        results(("c1", 1), ("c2", 1), extra="started"),
        user("meanwhile"),
        result("c2", 2),
    ) == ["t(c1) t(c2)", 'c1={"n":1} c2={"n":2} started']


def test_text_beside_results_of_another_call_does_not_travel() -> None:
    assert paired(
        calls("c1"),
        calls("c2"),
        results(("c2", 1), extra="of c2"),
        user("meanwhile"),
        result("c1", 2),
    ) == ["t(c1)", 'c1={"n":2}']


# History


def test_late_result_in_the_history_moves_to_its_call() -> None:
    assert paired(
        calls("c1"), result("c1", 1), user("a"), model("b"), result("c1", 2), user("c")
    ) == ["t(c1)", 'c1={"n":2}', "a", "b", "c"]


def test_results_of_parallel_calls_become_one_event() -> None:
    assert paired(calls("c1", "c2"), result("c2", 2), result("c1", 1), user("a")) == [
        "t(c1) t(c2)",
        'c2={"n":2} c1={"n":1}',
        "a",
    ]


def test_result_that_moved_into_another_event_is_not_reported() -> None:
    report = Report()

    paired(calls("c1", "c2"), result("c2", 2), result("c1", 1), user("a"), report=report)

    assert not report.repairs


def test_result_that_a_later_one_replaces_is_reported() -> None:
    report = Report()

    paired(calls("c1"), result("c1", 1), user("a"), result("c1", 2), user("b"), report=report)

    assert [(repair.rule, repair.seq) for repair in report.repairs] == [("replaced", 2)]


def test_repeated_id_gives_each_call_its_own_result() -> None:
    assert paired(
        calls("c1"), result("c1", 1), user("a"), calls("c1"), result("c1", 2), user("b")
    ) == ["t(c1)", 'c1={"n":1}', "a", "t(c1)", 'c1={"n":2}', "b"]


def test_text_between_two_updates_of_one_invocation_is_stale() -> None:
    assert paired(
        calls("c1"), result("c1", 1), model("working on it"), result("c1", 2), user("a")
    ) == ["t(c1)", 'c1={"n":2}', "a"]


def test_text_after_a_request_for_confirmation_is_not_stale() -> None:
    asked = result("c1", 1, requested_ids=frozenset({"c1"}))

    assert paired(calls("c1"), asked, model("may I?"), result("c1", 2), user("a")) == [
        "t(c1)",
        'c1={"n":2}',
        "may I?",
        "a",
    ]


# Calls without a result


def test_call_without_a_result_is_dropped_and_pending() -> None:
    report = Report()

    assert paired(user("a"), calls("c1"), user("b"), report=report) == ["a", "b"]
    assert [repair.rule for repair in report.repairs] == ["unanswered_call"]
    assert [(call.call_id, call.seq) for call in report.pending] == [("c1", 2)]


def test_text_beside_a_dropped_call_stays() -> None:
    assert paired(model("looking", call_part("t", id="c1")), user("a")) == ["looking", "a"]


def test_long_running_call_without_a_result_stays_and_is_pending() -> None:
    report = Report()
    started = calls("c1", long_running_ids=frozenset({"c1"}))

    assert paired(started, user("a"), report=report) == ["t(c1)", "a"]
    assert [call.call_id for call in report.pending] == ["c1"]


def test_call_without_an_id_stays() -> None:
    assert paired(calls(None), user("a")) == ["t(None)", "a"]


def test_log_without_tools_is_left_as_it_is() -> None:
    done = log(user("a"), model("b"))

    assert pair(done.events, inputs_for(done), Report()) is done.events


# Summaries


def test_summary_stands_at_the_end_of_its_times_and_is_the_models() -> None:
    done = log(user("a"), model("b"), user("c"), compaction(1, 2, "s"))

    assert masked(done) == ["s", "c"]
    summary = mask(done.events, inputs_for(done))[0]
    assert (summary.role, summary.author, summary.segment) == ("model", "bot", Segment.SUMMARIES)


def test_summary_keeps_the_role_that_it_came_with() -> None:
    done = log(user("a"), model("b"), compaction(1, 2, "s", role="user"))

    assert [item.role for item in mask(done.events, inputs_for(done))] == ["user"]


def test_fold_made_here_is_the_models_and_stands_where_its_last_event_was() -> None:
    done = log(user("a"), model("b"), user("c"), fold(1, 2, "s"), model("d"))

    assert masked(done) == ["s", "c", "d"]
    assert mask(done.events, inputs_for(done))[0].role == "model"


def test_with_a_summary_everything_is_read_by_time() -> None:
    done = log(user("a"), compaction(1, 1, "s"), user("c", timestamp=9.0), user("b", timestamp=8.0))

    assert masked(done) == ["s", "b", "c"]


def test_masked_call_comes_back_whole_before_its_live_result() -> None:
    done = log(
        calls("c1", "c2"),
        results(("c1", 1), ("c2", 1)),
        compaction(1, 2, "s"),
        user("meanwhile"),
        result("c1", 2),
    )

    assert masked(done) == [
        "s",
        "meanwhile",
        "t(c1) t(c2)",
        'c1={"n":1} c2={"n":1}',
        'c1={"n":2}',
    ]


def test_masked_results_of_several_calls_come_back_once() -> None:
    done = log(
        calls("c1", "c2", "c3"),
        results(("c1", 1), ("c2", 1), ("c3", 1)),
        compaction(1, 2, "s"),
        result("c1", 2),
    )

    assert masked(done) == [
        "s",
        "t(c1) t(c2) t(c3)",
        'c1={"n":1} c2={"n":1} c3={"n":1}',
        'c1={"n":2}',
    ]


def test_masked_call_comes_back_once() -> None:
    done = log(
        calls("c1"),
        result("c1", 1),
        compaction(1, 2, "s"),
        result("c1", 2),
        result("c1", 3),
    )

    assert masked(done) == ["s", "t(c1)", 'c1={"n":2}', 'c1={"n":3}']


def test_open_calls_are_closed_when_asked() -> None:
    done = log(calls("c1", "c2"), result("c1", 1), calls("c3"))
    options = CompileOptions(reader=Reader(agent="bot"), preset="adk", unanswered_calls="close")
    report = Report()
    paired_events = pair(done.events, replace(inputs_for(done), options=options), report)
    answered = {part.id for event in paired_events for part in event.responses}
    assert answered == {"c1", "c2", "c3"}
    assert [call.call_id for call in report.pending] == ["c2", "c3"]
