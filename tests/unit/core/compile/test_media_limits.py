"""What a provider takes of media: only so many in a request, only so large ones."""

import pytest

from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.compile.render import request_fields
from app.core.contents import FunctionResponse, InlineData, Text
from app.core.copying import replace
from app.core.events import Event
from app.core.resolve import Log
from app.formats.bedrock import BEDROCK, validate
from tests.builders import call, event, image, log, model, pin, user
from tests.images import png
from tests.passing import BOT
from tests.requests import request_of

PDF = "application/pdf"
LARGE_PDF = image("A" * 6_000_004, PDF)
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
LARGE_DOCX = image("A" * 6_000_004, DOCX)


def compiled(made: Log, *, model_name: str = "", budget: int | None = None) -> CompileResult:
    inputs = CompileInput(
        options=CompileOptions(reader=BOT, model=model_name),
        format=BEDROCK,
        index=made.index,
        compiled_seq=len(made.events),
        budget_tokens=budget,
    )
    result = run_pipeline(made.events, inputs)
    request = request_of(result, BEDROCK, model=model_name)
    assert validate(request, model=model_name) == ()
    return result


def kept(result: CompileResult) -> list[int | None]:
    """Return the seqs of the media that are sent."""
    return [
        placed.seq
        for content in result.contents
        for placed in content.parts
        if isinstance(placed.part, InlineData)
    ]


def pictures(count: int) -> list[Event]:
    """Return turns with one image each, of which the model's stand between."""
    return [turn for n in range(count) for turn in (user(image(f"{n:04}")), model(f"m{n}"))]


@pytest.mark.parametrize(
    ("count", "left"), [(19, 19), (20, 20), (21, 17), (24, 20), (25, 17), (28, 20), (500, 20)]
)
def test_images_are_cut_in_steps_and_the_newest_stay(count: int, left: int) -> None:
    result = compiled(log(*pictures(count), user("and now?")))
    assert len(kept(result)) == left
    assert kept(result) == [2 * n + 1 for n in range(count - left, count)]


def test_within_a_step_the_prefix_stands() -> None:
    first = compiled(log(*pictures(21), user("a")))
    later = compiled(log(*pictures(24), user("a")))
    beyond = compiled(log(*pictures(25), user("a")))
    assert later.chain[: len(first.chain) - 1] == first.chain[:-1]
    # The fifth image is the ninth part.
    assert beyond.chain[:9] == first.chain[:9]
    assert beyond.chain[9] != first.chain[9]


def test_the_question_keeps_its_media_before_what_is_older_does() -> None:
    made = log(*pictures(10), user("look", *(image(f"q{n:03}") for n in range(18))))
    assert kept(compiled(made)) == [17, 19, *[21] * 18]


def test_a_question_with_too_many_keeps_its_newest() -> None:
    made = log(user("look", *(image(f"q{n:03}") for n in range(30))))
    result = compiled(made)
    assert len(kept(result)) == 20
    assert [action.action for action in result.budget_actions] == ["stubbed"] * 10
    last = result.contents[0].parts[-1].part
    assert isinstance(last, InlineData)
    assert last.data == "q029"


def test_pins_stay_longest() -> None:
    made = log(*pictures(1), pin(1), user("look", *(image(f"q{n:03}") for n in range(22))))
    assert kept(compiled(made)) == [1, *[4] * 19]


def test_documents_of_results_count_and_their_call_stays_answered() -> None:
    sheets = tuple(image("AAAA", "text/csv") for _ in range(4))
    result = FunctionResponse(
        id="c", name="read", response='{"output":"four"}', response_text="four", media=sheets
    )
    made = log(
        user("read"),
        call("read", id="c"),
        event(result, author="bot", role="user", part_tokens=(50,)),
        model("read"),
        user("and these", *(image("AAAA", PDF) for _ in range(3))),
    )
    answer = compiled(made)
    part = answer.contents[2].parts[0].part
    assert isinstance(part, FunctionResponse)
    assert len(part.media) == 2
    note = "[text/csv left out: bedrock takes 5 documents in a request]"
    assert part.response_text == f"four\n{note}\n{note}"
    assert [(action.action, action.seq) for action in answer.budget_actions] == [("stubbed", 3)]


def test_kinds_are_counted_apart() -> None:
    made = log(
        user("look", *[image("AAAA")] * 20, *(image("AAAA", PDF) for _ in range(5)), "and this")
    )
    assert compiled(made).budget_actions == ()


@pytest.mark.parametrize(
    "medium",
    [
        image("A" * 5_000_004),
        image(png(8_001, 2)),
        image(png(2, 8_001)),
        LARGE_PDF,
        image("A" * 6_000_004, "text/csv"),
    ],
    ids=["heavy", "wide", "tall", "pdf", "csv"],
)
def test_what_is_too_large_is_told_in_words(medium: InlineData) -> None:
    made = log(user("look", medium), model("b"), user("and?"))
    result = compiled(made)
    part = result.contents[0].parts[1].part
    assert isinstance(part, Text)
    assert part.text == f"[{medium.mime_type} left out: larger than bedrock takes]"
    assert [(repair.rule, repair.seq) for repair in result.repairs] == [("media_too_large", 1)]
    # It never comes back, so nothing is cut that was sent before.
    assert result.budget_actions == ()


@pytest.mark.parametrize(
    "medium",
    [image("A" * 5_000_000), image(png(8_000, 8_000)), image("A" * 6_000_000, PDF)],
    ids=["heavy", "wide", "pdf"],
)
def test_what_is_just_small_enough_is_sent(medium: InlineData) -> None:
    assert compiled(log(user("look", medium))).repairs == ()


@pytest.mark.parametrize(
    ("model_name", "medium", "is_taken"),
    [
        ("anthropic.claude-3-haiku-20240307-v1:0", LARGE_PDF, False),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", LARGE_PDF, True),
        ("anthropic.claude-opus-5-v1:0", LARGE_PDF, True),
        ("anthropic.claude-opus-5-v1:0", LARGE_DOCX, False),
        ("us.amazon.nova-pro-v1:0", LARGE_PDF, True),
        ("us.amazon.nova-pro-v1:0", LARGE_DOCX, True),
        ("meta.llama4", LARGE_PDF, False),
    ],
)
def test_some_models_take_larger_documents(
    model_name: str,
    medium: InlineData,
    is_taken: bool,  # noqa: FBT001
) -> None:
    result = compiled(log(user("look", medium)), model_name=model_name)
    assert (result.repairs == ()) is is_taken


def test_what_gave_way_is_not_counted_for_the_budget() -> None:
    turns = [
        turn
        for n in range(40)
        for turn in (
            user("look", image(f"{n:04}"), part_tokens=(1, 1_000)),
            model(f"m{n}"),
        )
    ]
    result = compiled(log(*turns, user("now?")), budget=21_500)
    assert len(kept(result)) == 20
    assert result.budgeted_tokens <= 21_500


def test_size_of_a_part_does_not_decide_what_later_ones_are_called() -> None:
    """A document keeps its name when the one before it is too large to be sent."""
    small = replace(image("AAAA", PDF), display_name="report")
    both = compiled(log(user("look", LARGE_PDF, small)))
    alone = compiled(log(user("look", "[left out]", small)))
    names = [
        request_fields(result, BEDROCK, CompileOptions())["messages"].partition('"name"')[2][:20]
        for result in (both, alone)
    ]
    assert names[0] == names[1] != ""
