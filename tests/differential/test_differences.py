"""Where we differ from google-adk on purpose: both sides of each, in the smallest log.

The random streams of `test_streams.py` avoid these.
"""

from typing import Any, Final

import pytest

from app.core.errors import RewindTargetError
from tests.differential.reading import (
    EventJson,
    Reading,
    Values,
    adk_contents,
    append,
    our_contents,
)

_DEFAULT: Final = Reading()


def _log(*events: EventJson) -> list[EventJson]:
    """Number the events and let time go by; each is an invocation of its own unless it says."""
    return [
        {"id": f"e{at}", "invocation_id": f"i{at}", "timestamp": float(at), **event}
        for at, event in enumerate(events, start=1)
    ]


def _said(author: str, *parts: str | dict[str, Any], **fields: Any) -> EventJson:
    role = "user" if author == "user" else "model"
    content = [{"text": part} if isinstance(part, str) else part for part in parts]
    return {"author": author, "content": {"role": role, "parts": content}, **fields}


def _call(call_id: str, author: str = "a", **fields: Any) -> EventJson:
    return _said(author, {"function_call": {"id": call_id, "name": "t", "args": {}}}, **fields)


def _result(call_id: str, author: str = "a", said: str = "ok", **fields: Any) -> EventJson:
    part = {"function_response": {"id": call_id, "name": "t", "response": {"said": said}}}
    return {"author": author, "content": {"role": "user", "parts": [part]}, **fields}


def _compaction(start: float, end: float, summary: str, **fields: Any) -> EventJson:
    action = {
        "start_timestamp": start,
        "end_timestamp": end,
        "compacted_content": {"role": "model", "parts": [{"text": summary}]},
    }
    return {"author": "user", "actions": {"compaction": action}, **fields}


def _rewind(before: str) -> EventJson:
    return {"author": "user", "actions": {"rewind_before_invocation_id": before}}


def _told(contents: Values) -> list[str]:
    """Return what each content says, in short: texts, ``call``, ``result(what it says)``."""
    return [" + ".join(map(_part_told, content.get("parts", ()))) for content in contents]


def _part_told(part: dict[str, Any]) -> str:
    if "function_call" in part:
        return "call"
    if "function_response" in part:
        return f"result({part['function_response']['response']['said']})"
    return str(part["text"]).splitlines()[0].split(" below is")[0]


def _both(events: list[EventJson], reading: Reading = _DEFAULT) -> tuple[list[str], list[str]]:
    """Return what google-adk and we say."""
    return _told(adk_contents(events, reading)), _told(our_contents(append(events), reading))


def test_tool_sub_branch_is_decided_by_the_calls_before_the_event() -> None:
    events = _log(_said("a", "progress", branch="t@c1"), _call("c1"), _result("c1"))

    theirs, ours = _both(events)

    # Theirs takes an event back that was sent before; ours never changes what was sent.
    assert theirs == ["call", "result(ok)"]
    assert ours == ["progress", "call", "result(ok)"]


def test_open_call_in_the_range_of_a_compaction_stays() -> None:
    events = _log(
        _said("user", "do it"),
        _call("c1", long_running_tool_ids=["c1"]),
        _compaction(1, 2, "summary"),
    )

    theirs, ours = _both(events)

    assert theirs == ["summary"]
    assert ours == ["call", "summary"]


def test_compaction_hides_its_own_lane_alone() -> None:
    events = _log(
        _said("user", "question"),
        _said("a", "answer", branch="root"),
        _compaction(1, 2, "summary"),
    )

    theirs, ours = _both(events, Reading(branch="root"))

    assert theirs == ["summary"]
    assert ours == ["answer", "summary"]


def test_summary_that_two_others_cover_between_them_is_superseded() -> None:
    events = _log(
        *(_said("user", f"u{number}") for number in range(1, 10)),
        _compaction(1, 4, "first"),
        _compaction(3, 7, "between"),
        _compaction(1, 5, "wider"),
        _compaction(5, 9, "last"),
    )

    theirs, ours = _both(events)

    assert theirs == ["wider", "between", "last"]
    assert ours == ["wider", "last"]


def test_event_that_lands_after_a_compaction_with_an_old_time_stays() -> None:
    events = _log(
        _said("user", "question"),
        _said("a", "answer"),
        _compaction(1, 2, "summary"),
        _said("user", "late", timestamp=1.5),
    )

    theirs, ours = _both(events)

    assert theirs == ["summary"]
    assert ours == ["late", "summary"]


def test_compaction_of_nothing_shows_nothing() -> None:
    events = _log(_said("user", "question"), _compaction(9, 8, "inverted"))

    theirs, ours = _both(events)

    assert theirs == ["question", "inverted"]
    assert ours == ["question"]


def test_masked_call_comes_back_for_a_result_of_its_own_lane() -> None:
    events = _log(
        _call("c1", branch="root"),
        _said("a", "working", branch="root"),
        _call("c1"),
        _compaction(1, 2, "summary", branch="root"),
        _result("c1", branch="root"),
    )

    theirs, ours = _both(events, Reading(branch="root"))

    # An id that was given out twice: theirs takes the newest call, wherever it stands.
    assert theirs == ["summary", "call", "result(ok)"]
    assert ours == ["summary", "call", "call", "result(ok)"]


def test_rewind_of_an_unknown_invocation_is_refused() -> None:
    events = _log(_said("user", "question"), _rewind("nowhere"))

    assert _told(adk_contents(events)) == ["question"]
    with pytest.raises(RewindTargetError):
        append(events)


def test_result_is_foreign_to_no_one_in_particular() -> None:
    events = _log(_said("user", "question"), _call("c1"), _result("c1"))

    theirs, ours = _both(events, Reading(agent=""))

    # Theirs tells the result, so that its call goes as unanswered.
    assert theirs == ["question", "For context: + [a] `t` tool returned result:"]
    assert ours == ["question", "call", "result(ok)"]


def test_absent_arguments_are_told_as_an_empty_object() -> None:
    events = _log(_said("b", {"function_call": {"name": "t"}}))

    (theirs,), (ours,) = adk_contents(events), our_contents(append(events))

    assert "\nNone\n" in theirs["parts"][1]["text"]
    assert "\n{}\n" in ours["parts"][1]["text"]


def test_text_beside_a_foreign_call_does_not_hide_the_call() -> None:
    part = {"text": "looking", "function_call": {"name": "t", "args": {}}}
    events = _log(_said("b", part))

    theirs, ours = _both(events)

    assert theirs == ["For context: + [b] said:"]
    assert ours == ["For context: + [b] said: + [b] called tool `t` with parameters:"]


def test_transcription_is_not_lost_before_one_that_has_content() -> None:
    events = _log(
        {"author": "user", "input_transcription": {"text": "hello"}},
        _said("user", "typed", input_transcription={"text": "typed"}),
    )

    theirs, ours = _both(events)

    assert theirs == ["typed"]
    assert ours == ["hello", "typed"]


# Only in the mode that reads the current turn alone


_CURRENT: Final = Reading(include_contents="none")


def test_current_turn_honours_a_rewind_to_before_it() -> None:
    events = _log(
        _said("user", "first"),
        _said("user", "undone"),
        _rewind("i1"),
    )

    theirs, ours = _both(events, _CURRENT)

    assert theirs == ["undone"]
    assert ours == []


def test_current_turn_does_not_start_at_a_compaction() -> None:
    events = _log(
        _said("user", "old"),
        _said("a", "old answer"),
        _said("user", "new"),
        _compaction(1, 2, "summary"),
        _said("a", "new answer"),
    )

    theirs, ours = _both(events, _CURRENT)

    assert theirs == ["summary", "new answer"]
    assert ours == ["new", "new answer"]


def test_current_turn_keeps_the_task_that_opened_the_scope() -> None:
    task = {"function_call": {"id": "c1", "name": "delegate", "args": {"task": "count"}}}
    events = _log(_said("b", task), _said("a", "counting", isolation_scope="c1"))

    theirs, ours = _both(events, Reading(scope="c1", include_contents="none"))

    assert theirs == []
    assert ours == ['{"task": "count"}']


def test_current_turn_does_not_reach_back_for_a_result_of_another_lane() -> None:
    events = _log(
        _call("c1", branch="root.x"),
        _said("user", "question"),
        _result("c1", "user", branch="root.x"),
    )

    theirs, ours = _both(events, Reading(branch="root.y", include_contents="none"))

    assert theirs == []
    assert ours == ["question"]


def test_current_turn_does_not_reach_back_for_a_result_before_its_call() -> None:
    events = _log(_said("user", "question"), _result("c1", "user"), _call("c1"), _result("c1"))

    theirs, ours = _both(events, _CURRENT)

    assert theirs == []
    assert ours == ["question", "call", "result(ok)"]


def test_current_turn_reaches_back_for_a_result_without_an_id() -> None:
    call = {"function_call": {"name": "t", "args": {}}}
    result = {"function_response": {"name": "t", "response": {"said": "ok"}}}
    events = _log(
        _said("user", "do it"), _said("a", call), _said("user", "well?"), _said("user", result)
    )

    theirs, ours = _both(events, _CURRENT)

    assert theirs == ["well?"]
    assert ours == ["do it", "call", "result(ok)"]


def test_current_turn_hides_the_messages_of_a_tool_called_before_it() -> None:
    events = _log(
        _call("c1", long_running_tool_ids=["c1"]),
        _said("user", "question"),
        _said("a", "progress", branch="t@c1"),
    )

    theirs, ours = _both(events, _CURRENT)

    assert theirs == ["question", "progress"]
    assert ours == ["question"]
