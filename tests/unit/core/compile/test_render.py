"""Ids as they are sent, the chain over what is rendered, and what follows a base."""

from typing import Any

import pytest

from app.core.compile.inputs import CompileResult, Instruction
from app.core.compile.render import after, chained_parts
from app.core.contents import calls, responses
from app.core.events import Event
from app.core.lanes import Reader
from tests.builders import call, call_part, fold, log, model, response, response_part, user
from tests.compiling import compile_for
from tests.passing import BOT

DYNAMIC = Instruction(static="Be brief.", dynamic="It is noon.")


def compiled(*events: Event, name: str = "anthropic", **options: Any) -> CompileResult:
    return compile_for(log(*events), name, agent=BOT.agent, **options)


def emitted(result: CompileResult) -> list[tuple[str | None, ...]]:
    """Return the ids of each content: of its calls, or of its responses."""
    ids: list[tuple[str | None, ...]] = []
    for rendered in result.rendered:
        parts = [placed.part for placed in rendered.content.parts]
        if calls(parts) or responses(parts):
            ids.append(
                (*(part.id for part in calls(parts)), *(part.id for part in responses(parts)))
            )
    return ids


# Ids


def test_id_that_is_there_once_is_sent_as_it_is() -> None:
    assert emitted(compiled(call("search", id="toolu_1"), response("toolu_1"))) == [
        ("toolu_1",),
        ("toolu_1",),
    ]


@pytest.mark.parametrize("name", ["anthropic", "openai_chat", "gemini"])
def test_reused_id_gets_the_seq_of_its_event(name: str) -> None:
    events = [
        call("search", id="c"),
        response("c"),
        user("u"),
        call("search", id="c"),
        response("c"),
    ]

    assert emitted(compiled(*events, name=name)) == [("c",), ("c",), ("c_4",), ("c_4",)]


def test_parallel_calls_of_one_id_get_different_ones() -> None:
    three = model(*(call_part("search", id="c") for _ in range(3)))
    answers = (response_part("c") for _ in range(3))
    result = compiled(three, user(*answers, author="bot", role="user"))

    assert emitted(result) == [("c", "c_1", "c_1_2"), ("c", "c_1", "c_1_2")]


def test_made_up_id_that_is_taken_is_made_up_again() -> None:
    events = [
        call("search", id="c_4"),
        response("c_4"),
        call("search", id="c", response_id="q"),
        call("search", id="c", response_id="q"),
        response("c"),
        response("c"),
    ]
    ids = [one for group in emitted(compiled(*events)) for one in group]

    assert ids == ["c_4", "c_4", "c", "c_4_2", "c", "c_4_2"]


@pytest.mark.parametrize("name", ["anthropic", "openai_chat"])
def test_missing_id_is_made_up_where_one_is_needed(name: str) -> None:
    events = [call("search"), response(None), user("u"), call("search"), response(None)]

    assert emitted(compiled(*events, name=name)) == [
        ("call_1",),
        ("call_1",),
        ("call_4",),
        ("call_4",),
    ]


def test_missing_id_stays_missing_where_none_is_needed() -> None:
    events = [call("search"), response(None)]

    assert emitted(compiled(*events, name="gemini")) == [(None,), (None,)]
    assert emitted(compiled(*events, name="gemini", ids="keep")) == [("call_1",), ("call_1",)]


def test_ids_can_be_stripped_only_where_none_is_needed() -> None:
    events = [call("search", id="c"), response("c")]

    assert emitted(compiled(*events, name="gemini", ids="strip")) == [(None,), (None,)]
    assert emitted(compiled(*events, name="anthropic", ids="strip")) == [("c",), ("c",)]


def test_ids_that_become_alike_in_the_providers_charset_stay_different() -> None:
    both = model(call_part("search", id="a.b"), call_part("search", id="a:b"))
    ids = emitted(compiled(both))[0]

    assert len(set(ids)) == 2
    assert all(one is not None and one.replace("_", "").isalnum() for one in ids)


def test_id_of_a_call_depends_only_on_what_stands_before_it() -> None:
    events = [
        call("search", id="c"),
        response("c"),
        user("u"),
        call("search", id="c"),
        response("c"),
    ]
    longer = [*events, user("v"), call("search", id="c"), response("c")]

    assert emitted(compiled(*longer))[:4] == emitted(compiled(*events))


def test_fold_over_an_earlier_call_frees_its_id() -> None:
    events = [
        call("search", id="c"),
        response("c"),
        fold(1, 2),
        call("search", id="c"),
        response("c"),
    ]

    assert emitted(compiled(*events)) == [("c",), ("c",)]


def test_synthetic_result_has_the_id_of_its_call() -> None:
    assert emitted(compiled(call("search"))) == [("call_1",), ("call_1",)]


# The chain


def test_chain_has_one_link_more_than_parts() -> None:
    result = compiled(user("a"), user("b"), model("c"), user("d"))

    assert len(result.chain) == len(chained_parts(result.rendered)) + 1 == 5
    assert result.fingerprint == result.chain[-1]


def test_merging_turns_changes_nothing_in_the_chain() -> None:
    first = compiled(user("a"), model("b"), user("c"))
    second = compiled(user("a"), model("b"), user("c"), user("d"))

    assert second.chain[: len(first.chain)] == first.chain


def test_repairs_are_a_part_of_the_chain() -> None:
    nudged, bare = (
        compiled(user("a"), model("b")),
        compiled(user("a"), model("b"), tail_nudge=False),
    )

    assert nudged.chain[:-1] == bare.chain


def test_ephemeral_parts_are_hashed_apart() -> None:
    events = [user("a"), model("b"), user("c")]
    noon = compiled(*events, instruction=DYNAMIC)
    night = compiled(*events, instruction=Instruction(static="Be brief.", dynamic="It is night."))

    assert noon.chain == night.chain
    assert noon.sent_fingerprint != night.sent_fingerprint
    assert noon.sent_fingerprint != noon.fingerprint


def test_without_ephemeral_parts_what_is_sent_is_what_is_chained() -> None:
    result = compiled(user("a"))

    assert result.sent_fingerprint == result.fingerprint


@pytest.mark.parametrize(
    "changes",
    [{"system": "s"}, {"tools": ('{"name":"t","description":"d","parameters":{}}',)}],
)
def test_system_and_tools_are_in_every_link(changes: dict[str, Any]) -> None:
    plain, changed = compiled(user("a")), compiled(user("a"), **changes)

    assert not set(plain.chain) & set(changed.chain)


def test_formats_never_share_a_fingerprint() -> None:
    names = ("anthropic", "gemini", "openai_chat", "native")
    links = [set(compiled(user("a"), name=name).chain) for name in names]

    assert len(set().union(*links)) == sum(map(len, links))


def test_options_that_make_the_same_bytes_make_the_same_fingerprint() -> None:
    events = [user("a"), model("b"), user("c")]

    assert compiled(*events, narration="name").chain == compiled(*events).chain


# The prefix


def test_prefix_ends_before_the_last_run_of_user_contents() -> None:
    result = compiled(user("a"), user("b"), model("c"), user("d"), user("e"))

    assert result.prefix_count == 3
    assert result.prefix_fingerprint == result.chain[3]


def test_results_belong_to_the_last_run() -> None:
    result = compiled(user("a"), call("search", id="c1"), response("c1"))

    assert result.prefix_count == 2


def test_nudge_after_the_last_turn_is_outside_the_prefix() -> None:
    assert compiled(user("a"), model("b")).prefix_count == 2


def test_without_a_model_turn_there_is_no_prefix() -> None:
    result = compiled(user("a"), user("b"))

    assert result.prefix_count == 0
    assert result.prefix_fingerprint == result.chain[0]


def test_ephemeral_text_leaves_the_prefix_as_it_is() -> None:
    events = [user("a"), model("b"), user("c")]

    assert compiled(*events, instruction=DYNAMIC).prefix_count == 2


# What follows a base


def texts_after(result: CompileResult, count: int) -> list[tuple[str, int]]:
    return [(content.role, len(content.parts)) for content in after(result.rendered, count)]


def test_nothing_follows_the_whole() -> None:
    result = compiled(user("a"), model("b"), user("c"))

    assert after(result.rendered, len(result.chain) - 1) == ()


def test_everything_follows_nothing() -> None:
    result = compiled(user("a"), model("b"), user("c"))

    assert after(result.rendered, 0) == result.rendered


def test_turn_that_grew_is_answered_with_its_new_parts_alone() -> None:
    result = compiled(user("a"), model("b"), user("c"), user("d"))

    assert texts_after(result, 3) == [("user", 1)]
    assert after(result.rendered, 3)[0].parts[0].placed.seq == 4


def test_ephemeral_parts_always_follow() -> None:
    result = compiled(user("a"), model("b"), user("c"), instruction=DYNAMIC)

    assert [
        part.placed.ephemeral
        for content in after(result.rendered, len(result.chain) - 1)
        for part in content.parts
    ] == [True]


def test_base_and_what_follows_are_the_whole() -> None:
    result = compile_for(
        log(user("a"), model("b"), user("c"), user("d"), model("e")), "gemini", agent="bot"
    )
    parts = chained_parts(result.rendered)
    for count in range(len(parts) + 1):
        assert chained_parts(after(result.rendered, count)) == parts[count:]


def test_reader_of_an_empty_log_gets_a_fingerprint() -> None:
    result = compile_for(log(), "anthropic", agent=Reader().agent)

    assert result.chain == (result.fingerprint,)
    assert result.prefix_count == 0
