"""A compile that goes on from what an earlier one settled gives the same as one of everything.

Every log is compiled at every position, as an agent does it: whole, and from what the compiles
before had settled, with the replies saying truly what they were compiled for. Nothing of the answer
may differ.
"""

from collections.abc import Sequence
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.compile.inputs import Instruction
from app.core.lanes import Lane, Reader
from app.formats import FORMATS
from tests.property.settling import differences
from tests.property.strategies import Step, build, steps
from tests.property.test_lane_law import READERS

ORDINARY: Final = ("user", "user", "model", "call", "call", "result", "result", "mixed")
KINDS: Final = (*ORDINARY, *ORDINARY, "fold", "pin", "elide", "rewind_to", "undo")


def one_lane_logs(
    kinds: Sequence[str] = KINDS, authors: Sequence[str] = ("a",)
) -> st.SearchStrategy[list[Step]]:
    """Draw logs of one lane, of one agent unless others are named: there most is settled."""
    step = st.builds(
        Step,
        kind=st.sampled_from(kinds),
        author=st.sampled_from(authors),
        lane=st.just(Lane()),
        invocation=st.integers(1, 3),
        ids=st.lists(st.sampled_from(("c1", "c2", None)), min_size=1, max_size=2).map(tuple),
        lag=st.sampled_from((None, 0, 0, 0, 1, 2)),
        response_id=st.sampled_from((None, None, None, "r1")),
        first=st.integers(0, 6),
        second=st.integers(0, 6),
        flavour=st.sampled_from((0, 1, 2, 3, 3, 6)),
    )
    return st.lists(step, min_size=4, max_size=14)


formats = st.sampled_from(sorted(FORMATS))
thinking = st.sampled_from(("auto", "auto", "keep", "strip"))


@settings(max_examples=300)
@given(one_lane_logs(), formats, thinking)
# What a response begins with is a thought that is left out; the second of what is left is recorded.
@example(
    [
        Step("user"),
        Step("model", author="a", response_id="r1"),
        Step("call", author="a", ids=("c1",), lag=0, response_id="r1"),
        Step("call", author="a", ids=("c1",), lag=1),
        Step("call", author="a", ids=("c1",)),
        Step("user"),
    ],
    "anthropic",
    "auto",
)
def test_nothing_differs_for_an_agent_in_its_own_lane(
    drawn: Sequence[Step], format_name: str, thinking: str
) -> None:
    log = build(drawn)[1]
    assert list(differences(log, Reader(agent="a"), format_name, thinking=thinking)) == []


@given(steps(), formats, st.sampled_from(READERS))
# A call in the user's role, with a text beside it.
@example(
    [Step("call", ids=("c1",), flavour=8), Step("user"), Step("user")],
    "anthropic",
    Reader(agent="a"),
)
def test_nothing_differs_for_any_reader(
    drawn: Sequence[Step], format_name: str, reader: Reader
) -> None:
    assert list(differences(build(drawn)[1], reader, format_name)) == []


@given(one_lane_logs(), formats)
def test_nothing_differs_beside_an_instruction_that_is_no_part_of_the_history(
    drawn: Sequence[Step], format_name: str
) -> None:
    instruction = Instruction(static="Be kind.", dynamic="It is noon.")
    log = build(drawn)[1]
    found = differences(log, Reader(agent="a"), format_name, instruction=instruction)
    assert list(found) == []


def replying(author: str, response_id: str | None = None) -> Step:
    """An agent answers the newest call `c1`, says something and calls `c1` itself."""
    return Step("mixed", author=author, ids=("c1",), lag=0, response_id=response_id)


@given(
    one_lane_logs(("mixed", "mixed", "mixed", "user", "model", "result", "fold"), ("a", "a", "b")),
    formats,
    st.sampled_from((Reader(agent="a"), Reader())),
)
# The second reply of `a` answers the other's call, and is told as a whole.
@example(
    [Step("user"), replying("b"), replying("a"), replying("a")], "anthropic", Reader(agent="a")
)
# One response before another's and after it.
@example([replying("a", "r1"), replying("b"), replying("a", "r1")], "anthropic", Reader())
def test_nothing_differs_where_agents_answer_each_others_calls(
    drawn: Sequence[Step], format_name: str, reader: Reader
) -> None:
    assert list(differences(build(drawn)[1], reader, format_name)) == []
