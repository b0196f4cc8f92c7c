"""What a request will take: the provider's last word on what stands, our count of the rest."""

from typing import Any, Final

import pytest

from app.core.calibration import Calibration
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.compile.projection import Projection, count_result, newest_report, project, scaled
from app.core.copying import replace
from app.core.events import Event
from app.core.resolve import Log
from app.formats import FORMATS
from tests.builders import call, fold, log, model, response, user
from tests.passing import BOT

EVEN: Final = Calibration(percent=100, error_percent=10)
HALF_MORE: Final = Calibration(percent=150, error_percent=10)
SYSTEM, TOOLS = 40, 60


def compiled(made: Log, head: int | None = None) -> CompileResult:
    """Compile the log, or its first events."""
    events = made.events[:head]
    inputs = CompileInput(
        options=CompileOptions(reader=BOT),
        format=FORMATS["anthropic"],
        index=made.index,
        compiled_seq=len(events),
    )
    return run_pipeline(events, inputs)


def reported(made: Log, seq: int, tokens: int, **changes: Any) -> Log:
    """Return the log with a reply that says what it was compiled for and what that took."""
    sent = compiled(made, seq - 1)
    events: list[Event] = list(made.events)
    events[seq - 1] = replace(
        events[seq - 1],
        **{"compiled_fingerprint": sent.fingerprint, "prompt_tokens": tokens, **changes},
    )
    return Log(tuple(events), made.index)


def projected(made: Log, calibration: Calibration = EVEN) -> Projection:
    result = compiled(made)
    counted = count_result(result, len, system_tokens=SYSTEM, tools_tokens=TOOLS)
    return project(counted, result, made.events, BOT, calibration=calibration)


def talk(*tokens: int) -> Log:
    """Return questions and answers of so many tokens each, and a last question."""
    made: list[Event] = []
    for number, count in enumerate(tokens):
        said = model if number % 2 else user
        made.append(said(f"t{number}", part_tokens=(count,)))
    return log(*made)


def test_each_segment_and_every_beginning_is_counted() -> None:
    made = log(
        user("a", part_tokens=(5,)),
        call("f", id="c", part_tokens=(7,)),
        response("c", name="f", part_tokens=(11,)),
        model("b", part_tokens=(13,)),
        user("c", part_tokens=(17,)),
    )
    counted = count_result(compiled(made), len, system_tokens=SYSTEM, tools_tokens=TOOLS)
    assert counted.up_to == (100, 105, 112, 123, 136, 153)
    assert counted.by_segment["history"] == 53
    assert counted.by_segment["system"] == SYSTEM
    assert counted.total == 153


def test_what_the_pipeline_made_is_counted_where_it_stands() -> None:
    """A result that never came has no tokens of the log: the text of it is counted."""
    made = log(user("a", part_tokens=(5,)), call("f", id="c", part_tokens=(7,)))
    counted = count_result(compiled(made), len, system_tokens=0, tools_tokens=0)
    assert counted.up_to[-1] > 12
    assert counted.total == counted.up_to[-1]


def test_without_a_report_all_is_our_count_calibrated() -> None:
    assert projected(talk(10, 20, 30)) == Projection(total=160, error_bound=16)
    assert projected(talk(10, 20, 30), HALF_MORE) == Projection(total=240, error_bound=24)


def test_a_report_that_stands_is_taken_and_only_the_rest_is_ours() -> None:
    found = projected(reported(talk(10, 20, 30), 2, 1_310), HALF_MORE)
    assert found.total == 1_310 + 75
    # What the provider said is exact.
    assert found.error_bound == 8
    assert found.reported is not None
    assert (found.reported.ours, found.reported.theirs) == (110, 1_310)


def test_the_newest_report_counts() -> None:
    made = reported(reported(talk(10, 20, 30, 40, 50), 2, 1_000), 4, 2_000)
    assert projected(made).total == 2_000 + 90


@pytest.mark.parametrize(
    "changes",
    [{"compiled_fingerprint": "0" * 64}, {"compiled_fingerprint": None}, {"prompt_tokens": 0}],
    ids=["of_another_chain", "of_none", "without_a_count"],
)
def test_a_report_that_tells_of_nothing_here_does_not_count(changes: dict[str, Any]) -> None:
    made = reported(talk(10, 20, 30), 2, 1_310, **changes)
    assert projected(made) == Projection(total=160, error_bound=16)


def test_a_report_whose_prefix_was_folded_does_not_count() -> None:
    made = reported(talk(10, 20, 30, 40, 50), 4, 1_310)
    folded = log(*(replace(e, place=None, owners=()) for e in made.events), fold(1, 2, "brief"))
    assert projected(folded).reported is None


def test_a_report_of_another_agent_does_not_count() -> None:
    made = reported(talk(10, 20, 30), 2, 1_310, author="other")
    assert newest_report(compiled(made), made.events, BOT) is None


def test_segments_are_scaled_to_a_total_and_the_largest_takes_what_is_left() -> None:
    assert scaled({"system": 10, "history": 23}, 50) == {"system": 15, "history": 35}
    assert scaled({"system": 0, "history": 0}, 50) == {"system": 0, "history": 0}
    assert scaled({"system": 3}, 3) == {"system": 3}
    assert sum(scaled({"a": 1, "b": 1, "c": 1}, 100).values()) == 100
