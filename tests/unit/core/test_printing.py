"""The text form of events and turns."""

import pytest

from app.core.contents import Content, Opaque, PlacedPart, Segment, Text
from app.core.events import Event
from app.core.printing import content_line, event_line, print_events, ranges_text
from app.core.ranges import FOREVER
from tests.builders import (
    activate,
    call,
    event,
    file,
    fold_of,
    image,
    log,
    model,
    pin,
    response,
    rewind,
    section,
    text,
    thought,
    undo,
    unpin,
    user,
)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (user("a\nb"), '0 user: "a\\nb"'),
        (
            user("look", image(), file("gs://b/f")),
            '0 user: "look" + image/png (3 bytes) + file gs://b/f',
        ),
        (model(thought("hm"), "yes"), '0 bot: thought "hm" + "yes"'),
        (call("search", id="c1", args={"q": 1}), '0 bot: call search#c1 {"q":1}'),
        (call("search"), "0 bot: call search {}"),
        (response("c1"), '0 bot: result search#c1 {"result":"ok"}'),
        (user("hi", branch="a.b", scope="s"), '0 user @a.b scope=s: "hi"'),
        (event(text("told"), author="bot", role="user"), '0 bot(user): "told"'),
        (Event(author="bot", role="model", output_transcription="hello"), '0 bot: heard "hello"'),
        (Event(author="bot"), "0 bot: nothing"),
        (
            model(Opaque(provider="anthropic", type="redacted_thinking", raw="{}", text="twin")),
            '0 bot: opaque anthropic redacted_thinking "twin"',
        ),
        (model(Text(text="so", thought=True, signature="abc")), '0 bot: thought "so" signed'),
    ],
)
def test_an_event_is_one_line(said: Event, line: str) -> None:
    assert event_line(said) == line


def test_a_marker_says_what_it_does() -> None:
    built = log(
        user("one"),
        user("two", branch="b"),
        fold_of(1, 2, section("s"), section("t", branch="b"), staged=True),
        activate(3),
        pin(1),
        unpin(1),
        rewind(to_seq=4),
        undo(7),
    )
    assert print_events(built.events[2:]) == [
        '3 user: fold 1-2 staged covers 1 "s"; covers 2 @b "t"',
        "4 user: activate 3",
        "5 user: pin 1",
        "6 user: unpin 1",
        "7 user: rewind from 5",
        "8 user: undo 7",
    ]


def test_a_long_text_is_cut_and_says_how_long_it_is() -> None:
    assert event_line(user("abcdef"), limit=3) == '0 user: "abc…" (6 characters)'
    assert event_line(call("f", args={"long": "argument"}), limit=4).endswith("… (19 characters)")


def test_a_turn_names_the_events_of_its_parts() -> None:
    turn = Content(
        "user",
        (
            PlacedPart(text("one"), seq=4),
            PlacedPart(text("two"), segment=Segment.INJECTED, ephemeral=True),
        ),
        ends_prefix=True,
    )
    assert content_line(turn) == 'user: 4 "one" + -~ [injected] "two" -- prefix'


def test_ranges_are_closed_and_an_open_end_stays_open() -> None:
    assert ranges_text(((1, 4), (7, 7), (9, FOREVER))) == "1-4, 7, 9-"
