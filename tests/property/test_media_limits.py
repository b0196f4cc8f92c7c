"""However many media there are: valid for the provider, the newest are there, and a compile that
goes on from an earlier one gives the same."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.compile.media import count_media
from app.core.compile.pipeline import run_pipeline
from app.core.contents import FunctionResponse, InlineData
from app.core.errors import InvalidInputError
from app.core.events import Event
from app.core.lanes import Reader
from app.core.resolve import Facts, Log, Resolver
from app.formats.bedrock import BEDROCK
from tests.builders import AGENT, call, elide, event, fold, image, model, pin, user
from tests.compiling import violations_of
from tests.property.settling import differences, inputs_of

READER: Final = Reader(agent=AGENT)
PDF: Final = "application/pdf"
LIMITED: Final = BEDROCK.limited_media
MOST: Final = {kind: limit.most for kind, limit in LIMITED.limits_of("").items()}
_step = st.tuples(
    st.sampled_from(("asked", "asked", "result", "said", "pin", "fold", "elide")),
    st.integers(0, 12),
    st.integers(0, 3),
    st.integers(0, 5),
)
steps = st.lists(_step, min_size=1, max_size=9)


def _media(images: int, documents: int, number: int) -> tuple[InlineData, ...]:
    return (
        *(image(f"{number:02}{n:02}") for n in range(images)),
        *(image(f"{number:02}{n:02}", PDF) for n in range(documents)),
    )


def _log(drawn: Sequence[tuple[str, int, int, int]]) -> Log:
    """Append the steps; what a caller would be refused is left out."""
    resolver = Resolver(Facts())
    events: list[Event] = []
    for number, (kind, images, documents, back) in enumerate(drawn):
        media = _media(images, documents, number)
        for each in _events(kind, number, media, max(1, len(events) - back), len(events)):
            with suppress(InvalidInputError):
                events.append(resolver.add(each))
    return Log(tuple(events), resolver.facts.index)


def _events(
    kind: str, number: int, media: tuple[InlineData, ...], seq: int, head: int
) -> tuple[Event, ...]:
    match kind:
        case "asked":
            asked = user(f"q{number}", *media)
            return asked, model(f"a{number}", compiled_seq=head + 1)
        case "result":
            result = FunctionResponse(
                id=f"c{number}", name="read", response='{"ok":1}', media=media
            )
            return call("read", id=f"c{number}"), event(result, author=AGENT, role="user")
        case "pin":
            return (pin(seq),)
        case "fold":
            return (fold(1, seq),)
        case "elide":
            return (elide(seq),)
        case _:
            return (model(f"s{number}"),)


@settings(deadline=None)
@given(steps)
def test_request_holds_no_more_than_is_taken_and_the_newest(
    drawn: list[tuple[str, int, int, int]],
) -> None:
    made = _log(drawn)
    inputs = inputs_of(made, len(made.events), READER, "bedrock")
    result = run_pipeline(made.events, inputs)
    assert not result.rendered or violations_of(result, "bedrock") == ()
    sent = count_media((p.part for c in result.contents for p in c.parts), LIMITED)
    assert all(sent[kind] <= most for kind, most in MOST.items())
    if not result.budget_actions:
        return
    # What was cut was too much, and no more than one step too much of it is gone.
    assert any(sent[kind] > most - max(1, most // 5) for kind, most in MOST.items())


@settings(deadline=None)
@given(steps)
def test_going_on_gives_the_same(drawn: list[tuple[str, int, int, int]]) -> None:
    assert list(differences(_log(drawn), READER, "bedrock")) == []
