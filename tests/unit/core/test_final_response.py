"""ADK's rule for what ends an invocation."""

import pytest

from app.core.contents import CodeExecutionResult
from app.core.events import Event
from app.core.final_response import is_final_response
from tests.builders import call, event, model, response, rewind, user


@pytest.mark.parametrize(
    ("said", "is_final"),
    [
        (model("done"), True),
        (user("done"), False),
        (call("f", id="c1"), False),
        (response("c1"), False),
        (call("f", id="c1", long_running_ids=frozenset({"c1"})), True),
        (response("c1", skips_summarization=True), True),
        (event(author="bot", error_code="BAD"), True),
        (call("f", id="c1", error_code="BAD"), False),
        (event(CodeExecutionResult(outcome="OK", output="1"), author="bot"), False),
        (rewind("i1"), False),
    ],
)
def test_what_ends_an_invocation(said: Event, *, is_final: bool) -> None:
    assert is_final_response(said) is is_final
