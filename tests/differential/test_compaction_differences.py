"""Where we fold otherwise than google-adk on purpose: both sides of each, in the smallest stream.

The random streams of `test_compaction.py` do not compare these.
"""

from typing import Any, Final

import pytest

from app.core.compaction.planned import Plan
from app.core.compaction.policy import Moment
from app.core.lanes import Lane
from tests.differential.compacting import Config, SideBySide
from tests.differential.reading import EventJson

pytestmark = pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning")

AGENT: Final = "a"
LONG: Final = "x" * 400


def _said(author: str, *parts: str | dict[str, Any], **fields: Any) -> EventJson:
    role = fields.pop("role", "user" if author == "user" else "model")
    content = [{"text": part} if isinstance(part, str) else part for part in parts]
    return {"author": author, "content": {"role": role, "parts": content}, **fields}


def _call(call_id: str, **fields: Any) -> EventJson:
    return _said(AGENT, {"function_call": {"id": call_id, "name": "t", "args": {}}}, **fields)


def _result(call_id: str, **fields: Any) -> EventJson:
    part = {"function_response": {"id": call_id, "name": "t", "response": {"said": LONG}}}
    return _said(AGENT, part, role="user", **fields)


def _turn(name: str, *between: EventJson) -> list[EventJson]:
    events = [_said("user", LONG), *between, _said(AGENT, LONG)]
    return [{**event, "invocation_id": name} for event in events]


def _both(config: Config, *events: EventJson) -> SideBySide:
    both = SideBySide(config)
    for at, event in enumerate(events, start=1):
        both.append({"id": f"e{at}", "timestamp": float(at), **event})
    return both


def _windows(
    both: SideBySide, moment: Moment = "interval"
) -> tuple[list[int] | None, list[int] | None]:
    adks, ours = both.adk_window(moment, summary_chars=1), both.our_window(moment)
    return (adks and list(adks.seqs), ours and list(ours.seqs))  # type: ignore[return-value]


def test_a_window_holds_no_more_than_the_interval() -> None:
    both = _both(Config(interval=2), *_turn("i1"), *_turn("i2"), *_turn("i3"))
    assert _windows(both) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4])


def test_a_running_invocation_is_not_counted() -> None:
    both = _both(Config(interval=2), *_turn("i1"), _said("user", LONG, invocation_id="i2"))
    assert _windows(both) == ([1, 2, 3], None)


def test_the_question_is_held_back_from_a_fold_by_size() -> None:
    question = _said("user", LONG, invocation_id="i2")
    working = [_call("c", invocation_id="i2"), _result("c", invocation_id="i2")]
    both = _both(Config(threshold=1, retention=2), *_turn("i1"), question, *working)
    assert _windows(both, "threshold") == ([1, 2, 3], [1, 2])


def test_a_call_that_waits_is_stepped_over() -> None:
    # google-adk stops before it: within the newest invocation it may still be answered.
    waiting = {**_call("c"), "author": "b"}
    both = _both(Config(interval=2), *_turn("i1"), *_turn("i2", waiting))
    adks, ours = _windows(both)
    assert adks == [1, 2, 3]
    assert ours is None, "the invocation is open while its call is"
    both.append({**_said("user", "q"), "id": "e6", "timestamp": 6.0, "invocation_id": "i3"})
    assert both.our_window("interval") is not None
    assert _windows(both)[1] == [1, 2, 3, 5]


def test_a_late_result_waits_for_a_fold_of_its_call_too() -> None:
    turn = _turn("i1", _call("c"), _result("c"))
    both = _both(Config(interval=1), *turn)
    assert _windows(both) == ([1, 2, 3, 4], [1, 2, 3, 4])
    both.take()
    late = [_said("user", LONG), _result("c"), _said(AGENT, LONG)]
    for at, event in enumerate(late, start=10):
        both.append({**event, "id": f"e{at}", "timestamp": float(at), "invocation_id": "i2"})
    # google-adk folds the result alone, and restores its call from the log when it is read.
    assert _windows(both) == ([6, 7, 8], [6, 8])


def test_the_events_of_one_response_stay_together() -> None:
    split = [_said(AGENT, LONG), _call("c"), _result("c")]
    both = _both(Config(threshold=1, retention=3), *_turn("i1"), *_turn("i2", *split))
    assert _windows(both, "threshold") == ([1, 2, 3, 4], [1, 2, 3])


def test_a_fold_by_size_that_frees_little_is_not_made() -> None:
    big = [_said("user", LONG * 400, invocation_id="i2"), _said(AGENT, LONG, invocation_id="i2")]
    both = _both(Config(threshold=20_000, retention=2), *_turn("i1"), *big)
    assert _windows(both, "threshold") == ([1, 2], None)


def test_every_lane_has_its_own_section() -> None:
    # google-adk's summary of all branches is of none, and tells each what it may not see.
    aside = [{**_said("b", LONG), "branch": "root.b"}, {**_said("c", LONG), "branch": "root.c"}]
    both = _both(Config(interval=1), *_turn("i1", *aside))
    adks = both.adk_window("interval", summary_chars=1)
    assert adks is not None
    assert adks.seqs == (1, 2, 3, 4)
    plan = both.our_plan("interval")
    assert isinstance(plan, Plan)
    assert {section.lane: section.covers for section in plan.sections} == {
        Lane(): ((1, 1), (4, 4)),
        Lane(branch="root.b"): ((2, 2),),
        Lane(branch="root.c"): ((3, 3),),
    }
