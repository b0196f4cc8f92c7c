"""The laws that rare logs break once more, over thousands of logs: two that a hundred logs
had not broken for weeks broke at some thousands."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from tests.property import test_budget, test_deltas, test_planner_laws, test_settled

LAWS: tuple[Callable[[], None], ...] = (
    test_planner_laws.test_a_fold_covers_what_was_planned_and_every_fold_makes_the_log_smaller,
    test_planner_laws.test_what_must_stay_stays,
    test_planner_laws.test_a_call_and_its_results_are_folded_together,
    test_planner_laws.test_planning_again_gives_the_same_and_needs_no_more_than_it_says,
    test_planner_laws.test_staged_folds_are_planned_as_if_they_were_active,
    test_planner_laws.test_a_fold_leaves_what_is_read_before_its_span_byte_for_byte,
    test_budget.test_every_compile_fits_its_budget_or_is_refused,
    test_budget.test_what_fits_as_it_is_is_not_cut,
    test_deltas.test_what_is_put_together_is_the_whole_request,
    test_settled.test_nothing_differs_for_any_reader,
    test_settled.test_nothing_differs_where_agents_answer_each_others_calls,
)
DRAWS = 4_000


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law_holds_over_thousands_of_logs(law: Callable[[], None]) -> None:
    settings(max_examples=DRAWS, suppress_health_check=list(HealthCheck))(law)()
