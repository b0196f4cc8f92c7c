"""What no window holds, in every format: a valid fit or a clear refusal, in bounded time."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.compile.verify import verify
from app.core.errors import BudgetExceededError
from app.core.events import Event
from app.core.resolve import Log
from app.formats import FORMATS, VALIDATORS
from tests.builders import call, image, log, model, pin, response, user
from tests.passing import BOT
from tests.requests import request_of

BUDGET: Final = 4_000
#: Of processor time; a hundredth of it is what they take.
BOUND_S: Final = 20.0


def giant_first_message() -> Sequence[Event]:
    return [
        user("x" * 400_000, part_tokens=(100_000,)),
        model("b"),
        user("c"),
        model("d"),
        user("e"),
    ]


def giant_last_result() -> Sequence[Event]:
    result = response("c", name="read", result={"all": "x" * 400_000}, part_tokens=(100_000,))
    return [user("what is in it?"), call("read", id="c"), result]


def five_hundred_images() -> Sequence[Event]:
    turns: list[Event] = []
    for number in range(500):
        picture = image(data=f"{number:04}")
        turns += [user("look", picture, part_tokens=(1, 1_000)), model(f"seen {number}")]
    return [*turns, user("and now?")]


def five_hundred_images_at_once() -> Sequence[Event]:
    pictures = [image(data=f"{number:04}") for number in range(500)]
    return [user("look", *pictures, part_tokens=(1, *([1_000] * 500)))]


def a_million_tokens() -> Sequence[Event]:
    turns: list[Event] = []
    for number in range(500):
        turns += [
            user(f"q{number}", part_tokens=(500,)),
            call("read", id=f"c{number}", part_tokens=(100,)),
            response(f"c{number}", name="read", part_tokens=(1_000,)),
            model(f"a{number}", part_tokens=(400,)),
        ]
    return [*turns, user("and now?")]


FITS: Final = (
    giant_first_message,
    giant_last_result,
    five_hundred_images,
    five_hundred_images_at_once,
    a_million_tokens,
)


#: Even as stubs, five hundred parts of one message take more.
WIDER: Final = {five_hundred_images_at_once: 15_000}


def compiled(made: Log, name: str, budget: int = BUDGET) -> CompileResult:
    inputs = CompileInput(
        options=CompileOptions(reader=BOT),
        format=FORMATS[name],
        index=made.index,
        compiled_seq=len(made.events),
        budget_tokens=budget,
    )
    return run_pipeline(made.events, inputs)


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("made_of", FITS, ids=[made.__name__ for made in FITS])
def test_a_valid_fit_is_found(made_of: Callable[[], Sequence[Event]], name: str) -> None:
    made = log(*made_of())
    budget = WIDER.get(made_of, BUDGET)
    begun_s = time.process_time()
    result = compiled(made, name, budget)
    assert time.process_time() - begun_s < BOUND_S
    assert sum(p.tokens for c in result.contents for p in c.parts) <= budget
    assert result.budget_actions
    assert verify(result.rendered, FORMATS[name]) == ()
    assert VALIDATORS[name](request_of(result, FORMATS[name]), model="") == ()


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize(
    ("events", "segment"),
    [
        ([user("x", part_tokens=(9_000,))], "history"),
        (
            [*[user("rule", part_tokens=(100,)) for _ in range(90)], pin(*range(1, 91)), user("a")],
            "pins",
        ),
        (five_hundred_images_at_once(), "history"),
    ],
    ids=["giant_only_message", "pins_alone", "images_of_one_message"],
)
def test_what_may_not_be_cut_is_refused_by_its_segment(
    events: Sequence[Event], segment: str, name: str
) -> None:
    with pytest.raises(BudgetExceededError) as caught:
        compiled(log(*events), name)
    assert caught.value.segment == segment
    # Even as stubs, which Converse's limit makes of most images before.
    assert sum(caught.value.by_segment.values()) > 1.8 * BUDGET
