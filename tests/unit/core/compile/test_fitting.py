"""What is not of the log goes by the rules of what is."""

from typing import Any

import pytest

from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult, Instruction
from app.core.compile.pipeline import run_pipeline
from app.core.contents import InlineData, Part, Text
from app.core.lanes import Reader
from app.core.resolve import Log
from app.formats import FORMATS, VALIDATORS
from tests.builders import image, log, model, thought, user
from tests.requests import request_of

SVG = InlineData(mime_type="image/svg+xml", data="AAAA")
providers = pytest.mark.parametrize("name", sorted(VALIDATORS))


def compiled(made: Log, name: str, **options: Any) -> CompileResult:
    inputs = CompileInput(
        options=CompileOptions(**{"reader": Reader(), **options}),
        format=FORMATS[name],
        index=made.index,
        compiled_seq=len(made.events),
    )
    return run_pipeline(made.events, inputs)


@pytest.mark.parametrize("said", [Text(text=""), Text(text=" \n"), SVG], ids=["", "blank", "svg"])
def test_what_opens_a_scope_is_left_out_where_it_cannot_be_sent(said: Part) -> None:
    result = compiled(log(), "anthropic", reader=Reader(isolation_scope="i"), user_content=(said,))
    assert result.rendered == ()
    assert result.warnings == ("empty_contents",)
    rules = [(repair.rule, repair.seq) for repair in result.repairs]
    assert rules == ([("unsupported_part", None)] if said is SVG else [])


def test_only_what_cannot_be_sent_of_an_opening_is_left_out() -> None:
    result = compiled(
        log(),
        "anthropic",
        reader=Reader(isolation_scope="i"),
        user_content=(Text(text="Look:"), SVG, image()),
    )
    [opening] = result.contents
    assert [placed.part for placed in opening.parts] == [Text(text="Look:"), image()]
    assert result.warnings == ()


@providers
def test_media_of_an_instruction_are_sent_where_the_format_has_a_place_for_them(name: str) -> None:
    said = (Text(text="See"), image(), InlineData(mime_type="audio/midi", data="AAAA"), SVG)
    result = compiled(log(user("hi")), name, instruction=Instruction(static_parts=said))
    assert VALIDATORS[name](request_of(result, FORMATS[name]), model="") == ()
    sent = [placed.part for content in result.contents for placed in content.parts]
    assert image() in sent
    left_out = [part for part in said if part not in sent and not isinstance(part, Text)]
    assert [repair.rule for repair in result.repairs] == ["unsupported_part"] * len(left_out)


def test_nothing_of_a_log_that_only_thought_is_told_as_empty() -> None:
    result = compiled(log(model(thought("hm", signed_by="anthropic"))), "anthropic")
    assert (result.rendered, result.warnings) == ((), ("empty_contents",))
    assert result.reasoning.stripped == 1
