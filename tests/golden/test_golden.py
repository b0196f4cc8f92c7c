"""Every golden case, and that every pass has some."""

import json

import pytest

from app.core.compile.pipeline import PASS_NAMES, run_pipeline
from app.core.compile.render import request_fields
from app.core.compile.verify import verify
from app.formats import VALIDATORS
from tests.golden.runner import CASES, PIPELINE, PLANS, UNCHANGED, Case, all_cases

cases = pytest.mark.parametrize("case", all_cases(), ids=repr)


@cases
def test_the_output_is_as_written(case: Case, pytestconfig: pytest.Config) -> None:
    lines = case.run()
    if pytestconfig.getoption("--update-golden"):
        case.update(lines)
        return
    assert lines == case.expected, case.why


@cases
def test_a_case_says_why(case: Case) -> None:
    assert case.why.strip().endswith(".")


@cases
def test_the_input_is_left_alone_and_the_answer_is_valid(case: Case) -> None:
    events, inputs = case.inputs()
    result = run_pipeline(events, inputs)
    assert (events, inputs) == case.inputs()
    if inputs.options.preset == "stable" and inputs.options.tail_nudge and result.rendered:
        assert verify(result.rendered, inputs.format) == ()
        fields = request_fields(result, inputs.format, inputs.options)
        request = {name: json.loads(text) for name, text in fields.items()}
        assert VALIDATORS[inputs.format.name](request, model="") == ()


def test_every_folder_is_a_pass() -> None:
    assert {path.name for path in CASES.iterdir()} == {*PASS_NAMES, "lower", PIPELINE, PLANS}


@pytest.mark.parametrize("pass_name", PASS_NAMES)
def test_a_pass_is_shown_at_work_and_at_rest(pass_name: str) -> None:
    outputs = [case.expected for case in all_cases() if case.pass_name == pass_name]
    assert any(output[:1] == [UNCHANGED] for output in outputs)
    assert sum(output[:1] != [UNCHANGED] for output in outputs) >= 2
