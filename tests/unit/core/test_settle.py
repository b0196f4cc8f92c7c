"""What only few logs have; the law itself is in tests/property/test_settled.py."""

from app.core.compile.pipeline import run_pipeline
from app.core.compile.settle import given_after, settle
from app.core.contents import Opaque
from app.core.copying import replace
from app.core.events import Place
from app.core.lanes import Reader
from tests.builders import call_part, event, fold_of, log, model, response, section, text, user
from tests.property.settling import count, differences, inputs_of

READER = Reader(agent="bot")


def test_a_reply_that_says_nothing_leaves_the_one_before_it_the_newest() -> None:
    done = log(
        user("a"),
        model("b", compiled_seq=1),
        user("c"),
        model("d"),
        user("e"),
        model("f"),
        user("g"),
        model("h"),
    )

    assert list(differences(done, READER, "anthropic")) == []


def test_what_was_repaired_in_a_summary_stays_reported() -> None:
    block = Opaque(provider="elsewhere", type="summary", raw="{}")
    summary = replace(section("so far"), parts=(*section("so far").parts, block))
    done = log(
        user("a"), model("b"), user("c"), model("d"), fold_of(1, 2, summary), user("e"), user("f")
    )

    assert list(differences(done, READER, "openai_chat")) == []


def test_a_call_in_the_users_role_is_a_reply_as_a_whole() -> None:
    called = event(text("x"), call_part("t", id="c1"), text("y"), author="bot", role="user")
    done = log(user("a"), called, user("b"), user("c"))

    assert list(differences(done, READER, "anthropic")) == []


def test_nothing_is_settled_before_the_first_reply() -> None:
    done = log(user("a"), user("b"))
    inputs = inputs_of(done, 2, READER, "gemini")
    result = run_pipeline(done.events, inputs)

    assert settle(done.events, inputs, result, count(result)).until is None


def test_what_is_settled_is_given_up_should_an_event_land_before_it() -> None:
    done = log(user("a"), user("b"), model("c"), user("d"))
    inputs = inputs_of(done, 4, READER, "gemini")
    result = run_pipeline(done.events, inputs)
    settled = settle(done.events, inputs, result, count(result))
    # No append gives such a place.
    late = replace(model("e"), seq=5, place=Place(response_seq=5, after_seq=1, after_any_seq=1))

    assert settled.until is not None
    assert given_after(done.events, settled, inputs) == done.events[2:]
    assert given_after((*done.events, late), settled, inputs) is None


def test_results_of_settled_calls_are_told_as_late() -> None:
    done = log(
        user("a"),
        model("b"),
        event(*model("x").parts, author="bot"),
        user("c"),
        response("c1", name="t"),
        model("d"),
    )

    assert list(differences(done, READER, "anthropic")) == []


def test_what_is_settled_is_given_up_when_the_call_that_opened_the_scope_lands_late() -> None:
    reader = Reader(agent="bot", isolation_scope="s")
    done = log(user("a", scope="s"), model("b", scope="s"), user("c", scope="s"))
    inputs = inputs_of(done, 3, reader, "gemini")
    result = run_pipeline(done.events, inputs)
    settled = settle(done.events, inputs, result, count(result))
    opened = replace(inputs, opening_args='{"task":"find it"}')

    assert settled.until is not None
    assert given_after(done.events, settled, inputs) is not None
    assert given_after(done.events, settled, opened) is None
