"""Every invariant, broken once by hand."""

import pytest

from app.core.compile.inputs import RenderedContent, RenderedPart
from app.core.compile.verify import verify
from app.core.contents import Content, Part, PlacedPart, Role, Text
from app.formats import FORMATS
from tests.builders import call_part, response_part, text

Turn = tuple[Role, tuple[Part, ...]]


def user(*parts: Part) -> Turn:
    return ("user", parts)


def model(*parts: Part) -> Turn:
    return ("model", parts)


def broken(*turns: Turn, name: str = "anthropic") -> list[tuple[str, int]]:
    rendered = [
        RenderedContent(
            Content(role, tuple(map(PlacedPart, parts))),
            tuple(RenderedPart(PlacedPart(part), "{}") for part in parts),
        )
        for role, parts in turns
    ]
    return [(found.invariant, found.content_index) for found in verify(rendered, FORMATS[name])]


SAID = user(text("u"))
CALLED = model(call_part("t", id="c1"))
ANSWERED = user(response_part("c1", name="t"))


def test_what_is_right_has_no_violations() -> None:
    both = model(call_part("t", id="c2"), call_part("t", id="c3"))
    answers = user(response_part("c2"), response_part("c3"), text("u"))

    assert broken() == []
    assert broken(SAID, CALLED, ANSWERED, both, answers) == []


def test_call_must_be_answered() -> None:
    assert broken(SAID, CALLED) == [("call_answered", 1), ("last_role_user", 1)]


def test_call_must_be_answered_directly() -> None:
    found = broken(SAID, CALLED, SAID, ANSWERED, name="native")

    assert found == [("call_answered_directly", 2), ("response_without_call", 3)]


def test_response_needs_a_call() -> None:
    assert broken(user(response_part("c1"))) == [("response_without_call", 0)]


def test_responses_stand_in_call_order() -> None:
    both = model(call_part("t", id="c1"), call_part("t", id="c2"))
    answers = user(response_part("c2"), response_part("c1"))

    assert {rule for rule, _ in broken(SAID, both, answers)} == {"responses_in_call_order"}


def test_without_ids_the_order_is_the_pairing() -> None:
    both = model(call_part("t"), call_part("t"))
    answers = user(response_part(None), response_part(None))

    assert broken(SAID, both, answers, name="gemini") == []


def test_call_needs_an_id_where_one_is_needed() -> None:
    assert ("call_has_id", 1) in broken(SAID, model(call_part("t")), user(response_part(None)))


def test_ids_are_unique() -> None:
    found = broken(SAID, CALLED, ANSWERED, CALLED, ANSWERED)

    assert found == [("call_ids_unique", 3)]


def test_content_is_not_empty() -> None:
    assert broken(user()) == [("content_not_empty", 0)]


@pytest.mark.parametrize("blank", ["", "  \n\t"])
def test_text_is_not_blank_where_it_is_refused(blank: str) -> None:
    assert broken(user(text(blank))) == [("text_not_blank", 0)]
    assert broken(user(text(blank)), name="native") == []


def test_blank_text_that_carries_a_signature_is_not_blank() -> None:
    signed = Text(text="", signature="c2ln", signed_by="gemini")

    assert broken(SAID, model(signed), SAID, name="gemini") == []


def test_roles_alternate_from_the_user() -> None:
    assert broken(model(text("m")), SAID) == [("roles_alternate", 0), ("roles_alternate", 1)]
    assert broken(SAID, SAID) == [("roles_alternate", 1)]


def test_last_turn_is_the_users() -> None:
    assert broken(SAID, model(text("m"))) == [("last_role_user", 1)]


def test_format_without_alternation_takes_any_order_of_roles() -> None:
    assert broken(model(text("m")), model(text("n")), SAID, SAID, name="openai_chat") == []


def test_all_violations_are_told_by_position() -> None:
    found = broken(user(text("")), model(text("m")), user(response_part("c1")))

    assert found == [("text_not_blank", 0), ("response_without_call", 2)]
