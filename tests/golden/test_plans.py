"""Every golden case of the planner, and that each reason for folding nothing has one."""

from typing import get_args

import pytest

from app.core.compaction.planned import Reason
from app.core.compaction.policy import Moment
from tests.golden.plans import PlanCase, all_plan_cases

cases = pytest.mark.parametrize("case", all_plan_cases(), ids=repr)


@cases
def test_what_is_planned_is_as_written(case: PlanCase, pytestconfig: pytest.Config) -> None:
    lines = case.run()
    if pytestconfig.getoption("--update-golden"):
        case.update(lines)
        return
    assert lines == case.expected, case.why


@cases
def test_a_case_says_why(case: PlanCase) -> None:
    assert case.why.strip().endswith(".")


@cases
def test_the_same_log_is_planned_the_same_again(case: PlanCase) -> None:
    session = case.session()
    assert (
        session.plan(case.policy) == session.plan(case.policy) == case.session().plan(case.policy)
    )


def test_every_moment_and_every_reason_is_shown() -> None:
    lines = [line for case in all_plan_cases() for line in case.expected]
    reasons = {line.split(": ")[1] for line in lines if line.startswith("nothing: ")}
    moments = {line.split(" by ")[1].split(",")[0] for line in lines if line.startswith("fold ")}
    # A refusal is the summarizer's, and a range is a caller's: they are shown over HTTP.
    assert reasons >= set(get_args(Reason)) - {"refused_span", "nothing_live"}
    assert moments >= set(get_args(Moment)) - {"range"}
