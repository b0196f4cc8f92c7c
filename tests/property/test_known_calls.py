"""What a response means is the same to who knows only the newest calls that wait, or it asks."""

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import InvalidInputError
from app.core.events import Event
from app.core.resolve import CallFacts, CallsUnknownError, Facts, Resolver
from tests.builders import call, model, response, rewind
from tests.property.strategies import LANES, Step, build, steps


def only_waiting(facts: Facts, *, since: int) -> Facts:
    """Return facts that know the calls after a seq that nothing answers, and no other."""
    calls: dict[str, list[CallFacts]] = {}
    for call_id, known in copy.deepcopy(facts.calls_by_id).items():
        waiting = [call for call in known if call.seq > since and not call.answers]
        if waiting:
            calls[call_id] = waiting
    return Facts(
        head_seq=facts.head_seq,
        lanes=copy.deepcopy(facts.lanes),
        lane_count=facts.lane_count,
        index=facts.index,
        last_rewind_seq=facts.last_rewind_seq,
        calls_by_id=calls,
        knows_older_calls=False,
    )


#: Few ids in few places, so that calls are mistaken for each other where they can be.
MISTAKEN: Final = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(("call", "call", "result", "result", "model", "rewind_to")),
        lane=st.sampled_from((LANES[0], LANES[3], LANES[4])),
        ids=st.sampled_from((("c1",), ("c1",), ("c1", "c1"), ("c2",))),
        first=st.integers(0, 2),
    ),
    min_size=3,
    max_size=9,
)


@settings(max_examples=500)
@given(drawn=steps(max_size=20) | MISTAKEN, since=st.integers(0, 5))
def test_an_event_is_the_same_or_asks_for_older_calls(drawn: Sequence[Step], since: int) -> None:
    sent, _ = build(drawn)
    resolver = Resolver(Facts())
    for each in sent:
        said: Event | None = None
        if each.request is None:
            few = Resolver(only_waiting(resolver.facts, since=since))
            with suppress(CallsUnknownError, InvalidInputError):
                said = few.add(each)
        whole = resolver.add(each)
        assert said is None or said == whole


@pytest.mark.parametrize(
    ("others", "is_known"),
    [
        ([], True),
        # Another call is newer, and waits as well.
        ([call("search", id="c2")], True),
        # Answered: it is not among those that wait.
        ([response("c1")], False),
    ],
)
def test_what_waits_in_the_same_place_is_known(others: list[Event], *, is_known: bool) -> None:
    resolver = Resolver(Facts())
    for each in (call("search", id="c1"), *others):
        resolver.add(each)
    few = Resolver(only_waiting(resolver.facts, since=0))

    if is_known:
        (owner,) = few.add(response("c1")).owners
        assert owner is not None
        assert owner.seq == 1
    else:
        with pytest.raises(CallsUnknownError):
            few.add(response("c1"))


def test_who_knows_a_call_by_name_alone_asks_for_the_older_ones() -> None:
    resolver = Resolver(Facts())
    resolver.add(call("search"))
    few = Resolver(only_waiting(resolver.facts, since=0))

    with pytest.raises(CallsUnknownError):
        few.add(response(None))


def test_a_branch_of_a_call_that_is_not_known_asks_for_it() -> None:
    few = Resolver(only_waiting(Facts(), since=0))

    with pytest.raises(CallsUnknownError):
        few.add(model("hi", branch="root.tool@c1"))


def test_a_call_that_is_rewound_is_not_taken_for_an_older_one() -> None:
    resolver = Resolver(Facts())
    for each in (call("search", id="c1"), call("search", id="c1"), rewind(to_seq=1)):
        resolver.add(each)
    few = Resolver(only_waiting(resolver.facts, since=1))

    with pytest.raises(CallsUnknownError):
        few.add(response("c1"))
