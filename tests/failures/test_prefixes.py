"""What made the provider's cache miss, or a part of the request disappear, in other systems."""

from itertools import pairwise
from typing import Any

import pytest

from app.core.compile.inputs import CompileResult, Instruction
from app.core.compile.pipeline import run_pipeline
from app.core.contents import Text
from app.core.events import Event
from app.core.lanes import Reader
from app.core.tokens import part_tokens
from app.formats import FORMATS
from tests.builders import file, image, log, model, user
from tests.compiling import compile_for
from tests.passing import inputs_of, turns_of
from tests.requests import request_of

TURNS = [user("u1"), model("m1"), user("u2"), model("m2"), user("u3")]


def compiled(*events: Event, name: str = "gemini", **options: Any) -> CompileResult:
    return compile_for(log(*events), name, agent="bot", **options)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_changing_instruction_leaves_the_shared_prefix_alone(name: str) -> None:
    # adk-python#6062, #6216: the cache never engaged with a static and a dynamic instruction.
    # adk-python#3227: text that changes with every turn stood in the system text.
    prefixes = []
    for count, minute in ((1, "12:00"), (3, "12:01"), (5, "12:02")):
        instruction = Instruction(static="Be brief.", dynamic=f"It is {minute}.")
        result = compiled(*TURNS[:count], name=name, instruction=instruction)
        assert minute not in result.system
        prefixes.append(result)

    for earlier, later in pairwise(prefixes):
        assert later.chain[: len(earlier.chain)] == earlier.chain
        assert later.prefix_fingerprint in later.chain


def test_static_media_come_first_in_every_turn() -> None:
    # adk-python#6652: they moved behind the history.
    instruction = Instruction(static="Read it.", static_parts=(file("gs://b/contract.pdf"),))
    for count in (1, 3, 5):
        contents = request_of(compiled(*TURNS[:count], instruction=instruction), FORMATS["gemini"])[
            "contents"
        ]
        assert isinstance(contents, list)
        assert "contract.pdf" in str(contents[0])
        assert "contract.pdf" not in str(contents[1:])


def test_fingerprint_holds_model_and_format() -> None:
    # adk-python#6804
    def fingerprint(name: str, model: str) -> str:
        inputs = inputs_of(log(*TURNS), format_name=name, model=model)
        return run_pipeline(log(*TURNS).events, inputs).fingerprint

    names = ("gemini", "anthropic", "native")
    assert len({fingerprint(name, model) for name in names for model in ("a", "b")}) == 6


def test_part_that_is_only_a_signature_stays() -> None:
    # adk-python#3693: Gemini 3 validates it.
    signed = Text(text="", signature="c2ln", signed_by="gemini")
    result = compiled(user("a"), model("b", signed), user("c"))

    body = request_of(result, FORMATS["gemini"], model="gemini-3-pro")
    assert "c2ln" in str(body["contents"])


def test_images_count() -> None:
    # strands: images had no tokens, so they were never in the way.
    assert part_tokens(image(), len) > 100


def test_agents_whose_names_begin_alike_do_not_see_one_another() -> None:
    # adk-python#2948
    done = log(user("a"), model("secret", author="agent_1", branch="root.agent_1"))
    reader = Reader(agent="agent_10", branch="root.agent_10")

    result = run_pipeline(done.events, inputs_of(done, reader=reader, format_name="native"))
    assert turns_of(result) == ['user: 1 "a"']
