"""Intervals with a long overlap go on folding: the planner and the summarizer by code together."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import pytest

from app.core.compaction.facts import Refusal
from app.core.compaction.planned import Plan, PlannedSection
from app.core.compaction.policy import SummarizerPolicy
from app.core.compaction.summary import SectionSummary
from app.core.contents import Text
from app.core.copying import replace
from app.core.errors import SummaryRefusedError
from app.core.events import Event
from app.services.summarize_events import summarize_events
from tests.builders import model, user
from tests.planning import Session, policy
from tests.planting import TOKENS, counted

INVOCATIONS: Final = 40
#: So many invocations are worth a summary beside whatever rules an overlap holds.
MAX_GAP: Final = 12
#: Part of an invocation by its number.
Talk: TypeAlias = Callable[[int], tuple[Event, ...]]


def stops(number: int) -> tuple[Event, ...]:
    told = " ".join(f"Stop {stop}: harbour {number}-{stop}, {stop} km." for stop in range(30))
    return user(f"What is there to see on day {number}?"), model(told)


def formulas(number: int) -> tuple[Event, ...]:
    answer = f"Answer {number}: gate {number} at {number * 2} km. " * 25
    return user(f"Question {number} about pier {number * 3}? " * 3), model(answer)


def rules(number: int) -> tuple[Event, ...]:
    """Say so much that binds that the rules of an overlap do not fit beside one invocation."""
    rule = f"My order {number}-77 must never go by ship {number}. The crate holds {number} lamps."
    return user(rule), model(f"Noted for order {number}. " * 20)


async def summarized(session: Session, section: PlannedSection) -> SectionSummary:
    events = [event for event in session.log.events if event.marker is None]
    return await summarize_events(
        tuple(
            event for event in events if any(low <= event.seq <= end for low, end in section.seqs)
        ),
        seed=None,
        lane=section.lane,
        policy=SummarizerPolicy(),
        provider=None,
        counter=TOKENS,
        most_tokens=section.most_tokens,
        tokens_before=section.tokens_before,
    )


async def fold(session: Session, plan: Plan) -> None:
    """Append the fold of a plan of one lane.

    Raises:
        SummaryRefusedError: its summary saves nothing.
    """
    [section] = plan.sections
    summary = await summarized(session, section)
    assert summary.tokens < section.tokens_before
    parts = (Text(text=summary.text),)
    session.append(Event(author="user", request=plan.fold_request({section.lane: parts})))
    session.size_fold({section.lane: summary.tokens})


@pytest.mark.parametrize("talk", [stops, formulas, rules])
@pytest.mark.parametrize("overlap", [9, 20])
async def test_a_long_overlap_does_not_end_the_folding(talk: Talk, overlap: int) -> None:
    every = policy(
        strategy="interval",
        compaction_interval=1,
        overlap_size=overlap,
        worth_check=False,
    )
    session = Session()
    refusals: Sequence[Refusal] = ()
    folded: list[int] = []
    for number in range(INVOCATIONS):
        said = counted(talk(number))
        session.append(*(replace(event, invocation_id=f"i{number}") for event in said))
        plan = session.plan(every, refusals=refusals)
        if not isinstance(plan, Plan):
            continue
        try:
            await fold(session, plan)
        except SummaryRefusedError:
            refusals = (*refusals, Refusal(plan.covers, session.head_seq))
        else:
            folded.append(number)
    gaps = [later - earlier for earlier, later in pairwise(folded)]
    assert max(gaps) <= MAX_GAP
    assert INVOCATIONS - folded[-1] <= MAX_GAP
