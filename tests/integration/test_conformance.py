"""What survives compaction, by the canaries of compaction-conformance-kit, held to what we tell.

The kit plants rules, constraints, facts, goals and preferences in a session, has it compacted five
times, and looks for their exact words after every round.

The budgets of the kit's benchmark are 10, 20 and 30% of the session in characters. The planted
statements alone are 19% of its sessions, so at 10% no compaction can keep them as they were said
(the kit's own best keeps 40%): every rule is still kept there.
"""

# The kit has no types.
# mypy: disable-error-code="import-untyped"

from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from compaction_kit.benchmark import run_budget_benchmark
from compaction_kit.canaries import CanaryType
from compaction_kit.testing import assert_no_flags, check_compactor

from app.cli.service_process import running_service
from tests.benchmarks.survival import (
    KINDS,
    WAIT_MS,
    Alone,
    KitRow,
    OverHttp,
    characters_left,
    kit_rows,
    lowest,
    runs_of,
)
from tests.planting import ROUNDS

#: A last section takes at most this part of all that it stands for, in characters.
MOST_LEFT: Final = 0.45
#: Below this part of a session the canaries do not fit.
LEAST_BUDGET: Final = 0.2
RULES: Final = (CanaryType.SAFETY_RULE.value, CanaryType.HARD_CONSTRAINT.value)
ROWS: Final = list(kit_rows())
NAMES: Final = [row.name if row.budget is None else f"{row.name} {row.budget:.0%}" for row in ROWS]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with running_service() as url, httpx.Client(base_url=url, timeout=WAIT_MS / 1000) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_every_kind_survives_every_round_over_http(client: httpx.Client, row: KitRow) -> None:
    runs = runs_of(row, lambda: OverHttp(client))

    assert all(len(run.rounds) == ROUNDS for run in runs)
    assert all(one.within_budget for run in runs for one in run.rounds)
    survived = lowest(runs)
    if row.budget is not None and row.budget < LEAST_BUDGET:
        assert [survived[rule] for rule in RULES] == [1.0, 1.0]
    else:
        assert survived == dict.fromkeys(KINDS, 1.0)
    assert all(characters_left(run) < MOST_LEFT for run in runs)


def test_the_kits_own_check_raises_no_flag() -> None:
    assert_no_flags(check_compactor(Alone(), rounds=ROUNDS, budget_fraction=LEAST_BUDGET))


@pytest.mark.parametrize("fraction", [0.2, 0.3])
def test_the_kits_own_benchmark_finds_everything(fraction: float) -> None:
    benchmark = run_budget_benchmark({"foldline": Alone}, budgets=(fraction,), rounds=ROUNDS)

    (entry,) = benchmark["entries"]
    assert entry["budget_compliant"]
    assert entry["randomized"]["overall_final_survival"] == 1.0
    assert entry["semantic"]["distinct_pair_rate"] == 1.0
