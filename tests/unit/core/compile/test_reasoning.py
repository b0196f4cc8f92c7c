"""Thinking and what was cut in front of it: the goldens of the pass know of no earlier pass."""

from typing import Final

import pytest

from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult, ReasoningCounts
from app.core.compile.pipeline import run_pipeline
from app.core.model_rules import ModelRule
from app.core.resolve import Log
from app.formats import FORMATS
from app.providers.model_rules import load_model_rules
from tests.builders import call, log, model, response, text, thought, user
from tests.passing import BOT

RULES: Final = load_model_rules()


def compiled(*, budget: int | None, rule: ModelRule | None = None) -> CompileResult:
    """Compile two replies that think, the second behind a large result."""
    made = log(
        user("a", part_tokens=(10,)),
        model(thought("hm", signed_by="anthropic"), text("b"), part_tokens=(10, 10)),
        user("c", part_tokens=(10,)),
        call("read", id="c1", part_tokens=(10,)),
        response("c1", name="read", part_tokens=(400,)),
        model(thought("so", signed_by="anthropic"), text("d"), part_tokens=(10, 10)),
        user("e", part_tokens=(10,)),
    )
    inputs = CompileInput(
        options=CompileOptions(reader=BOT),
        format=FORMATS["anthropic"],
        index=made.index,
        compiled_seq=len(made.events),
        budget_tokens=budget,
        rule=rule,
    )
    return run_pipeline(made.events, inputs)


def test_a_cut_in_front_takes_the_thinking_of_a_reply_that_recorded_nothing() -> None:
    assert compiled(budget=None).reasoning == ReasoningCounts(kept=2)
    cut = compiled(budget=200)
    assert [action.seq for action in cut.budget_actions] == [5]
    # The first stands in front of the cut.
    assert cut.reasoning == ReasoningCounts(kept=1, stripped=1, invalidated=1)
    assert [(repair.rule, repair.seq) for repair in cut.repairs] == [("stale_thinking", 6)]


@pytest.mark.parametrize(
    ("name", "is_bound"), [("claude-sonnet-4-5", False), ("claude-opus-5-5", True)]
)
def test_only_models_that_bind_lose_it(name: str, *, is_bound: bool) -> None:
    cut = compiled(budget=200, rule=RULES.find(name))
    assert cut.reasoning.stripped == int(is_bound)
    assert cut.reasoning.invalidated == 1


def test_a_reply_that_was_compiled_without_the_thinking_before_it_stands() -> None:
    said = (
        user("a"),
        model(thought("hm", signed_by="anthropic"), text("b"), compiled_fingerprint="0" * 64),
        user("c"),
    )
    sent = at_head(log(*said))
    assert sent.reasoning == ReasoningCounts(stripped=1, invalidated=1)
    reply = model(
        thought("so", signed_by="anthropic"), text("d"), compiled_fingerprint=sent.fingerprint
    )
    later = at_head(log(*said, reply, user("e")))
    assert later.reasoning == ReasoningCounts(kept=1, stripped=1, invalidated=1)
    assert sent.fingerprint in later.chain


def at_head(made: Log) -> CompileResult:
    inputs = CompileInput(
        options=CompileOptions(reader=BOT),
        format=FORMATS["anthropic"],
        index=made.index,
        compiled_seq=len(made.events),
    )
    return run_pipeline(made.events, inputs)
