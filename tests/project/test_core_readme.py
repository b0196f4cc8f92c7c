"""The note on the core names every pass, in the order in which they run."""

import re
from pathlib import Path

from app.core.compile.pipeline import PASS_NAMES
from app.core.events import Fold, Undo
from app.core.printing import event_line
from tests.builders import call, fold, log, model, response, undo, user

NOTE = Path(__file__).parents[2] / "app/core/README.md"


def test_every_pass_is_documented_in_its_order() -> None:
    section = NOTE.read_text(encoding="utf-8").partition("\n## The passes\n")[2]
    documented = re.findall(r"^\| `(\w+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert tuple(documented) == PASS_NAMES


def test_the_example_of_the_note_is_a_log() -> None:
    built = log(
        user("where is my order?"),
        call("track", id="c1"),
        response("c1", name="track", result={"state": "held"}),
        model("it is held"),
        fold(1, 4, "the user asked; it is held"),
        user("send it on"),
        undo(5),
    )
    assert isinstance(built.events[4].marker, Fold)
    assert isinstance(built.events[6].marker, Undo)
    assert all(built.index.is_live(seq) for seq in (1, 2, 3, 4, 6))
    text = NOTE.read_text(encoding="utf-8")
    for event in (built.events[0], built.events[5]):
        said = event_line(event).partition(": ")[2]
        assert said in text
