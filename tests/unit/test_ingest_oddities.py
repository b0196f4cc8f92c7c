"""What recorded sessions are really like, one small input of our own for each oddity.

The recordings themselves are in ``test_real_sessions.py``; here it is said what must become of each
thing that is strange in them.
"""

import json
from typing import Any

import pytest

from app.core.canonical import Json
from app.core.contents import Text
from app.core.errors import InvalidEventError
from app.core.resolve import Log
from app.formats import CONVERTERS, FORMATS
from app.formats.adk import parse_event
from tests.compiling import (
    AGENT,
    HISTORIES,
    append,
    append_items,
    body_of,
    compile_for,
    parse_items,
    violations_of,
)

JsonObject = dict[str, Any]
every_format = pytest.mark.parametrize("name", sorted(FORMATS))


def user(content: Json = "go", **fields: Json) -> JsonObject:
    return {"role": "user", "content": content, **fields}


def assistant(content: Json = "ok", *calls: Json, **fields: Json) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": content, **fields}
    return {**message, "tool_calls": list(calls)} if calls else message


def called(call_id: Json, name: str = "f", arguments: Json = "{}") -> JsonObject:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def answered(call_id: Json, content: Json = "done", **fields: Json) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def native(author: str, *parts: Json, **fields: Json) -> JsonObject:
    role = "model" if author == AGENT and not any(_is_result(part) for part in parts) else "user"
    return {"author": author, "content": {"role": role, "parts": list(parts)}, **fields}


def _is_result(part: Json) -> bool:
    return isinstance(part, dict) and "function_response" in part


def call_part(name: str = "f", **fields: Json) -> JsonObject:
    return {"function_call": {"name": name, "args": {}, **fields}}


def result_part(name: str = "f", response: Json = "done", **fields: Json) -> JsonObject:
    return {"function_response": {"name": name, "response": response, **fields}}


def chat(*messages: Json) -> Log:
    return append_items("openai_chat", messages)


def sent(log: Log, name: str = "openai_chat") -> list[Any]:
    """Return the messages of a compile, which must be valid."""
    result = compile_for(log, name)
    assert violations_of(result, name) == ()
    messages: list[Any] = body_of(result, name)[HISTORIES.get(name, "contents")]
    return messages


def rules(log: Log, name: str = "openai_chat") -> list[str]:
    """Return what was repaired, the user texts at the tail aside."""
    repairs = compile_for(log, name).repairs
    own = ("tail_nudge", "unsigned_call")
    return [repair.rule for repair in repairs if repair.rule not in own]


def roles(messages: list[Any]) -> list[str]:
    return [message["role"] for message in messages]


# Ids


def test_one_id_for_several_calls_of_a_session_is_made_unique_and_pairs_with_the_nearest() -> None:
    log = chat(
        user(),
        *(
            message
            for number in range(4)
            for message in (
                assistant(None, called("again", arguments=f'{{"n": {number}}}')),
                answered("again", f"result {number}"),
            )
        ),
    )
    messages = sent(log)
    pairs = list(zip(messages[1::2], messages[2::2], strict=True))
    ids = [asked["tool_calls"][0]["id"] for asked, _ in pairs]
    assert len(set(ids)) == 4
    assert ids[0] == "again"
    assert [given["tool_call_id"] for _, given in pairs] == ids
    assert [given["content"] for _, given in pairs] == [f"result {n}" for n in range(4)]


@every_format
def test_one_id_for_two_parallel_calls_answers_them_in_turn(name: str) -> None:
    log = chat(
        user(),
        assistant(None, called("twin", "f"), called("twin", "g")),
        answered("twin", "of f"),
        answered("twin", "of g"),
    )
    assert rules(log, name) == []
    text = json.dumps(sent(log, name))
    assert text.index("of f") < text.index("of g")


@every_format
def test_calls_without_ids_pair_by_name_in_order(name: str) -> None:
    log = append_items(
        "adk",
        [
            native("user", {"text": "go"}),
            native(AGENT, call_part("f", args={"n": 1}), call_part("f", args={"n": 2})),
            native(AGENT, result_part("f", "first"), result_part("f", "second")),
        ],
    )
    assert rules(log, name) == []
    text = json.dumps(sent(log, name))
    assert text.index("first") < text.index("second")


@pytest.mark.parametrize("call_id", ["tool:0|{}", "a/b c", '"', "ü" * 30, "x" * 300, "0"])
@every_format
def test_nothing_is_read_out_of_an_id(name: str, call_id: str) -> None:
    log = chat(user(), assistant(None, called(call_id)), answered(call_id))
    assert rules(log, name) == []
    assert sent(log, name)


@pytest.mark.parametrize(
    "result",
    [
        {"role": "tool", "content": "done", "tool_call_ids": ["a"]},
        {"role": "tool", "content": "x", "tool_responses": [answered("a")]},
        {"role": "function", "name": "f", "content": "done"},
    ],
)
def test_id_that_stands_elsewhere_or_nowhere_still_pairs(result: Json) -> None:
    log = chat(user(), assistant(None, called("a")), result)
    assert rules(log) == []
    assert sent(log)[-1] == {"role": "tool", "tool_call_id": "a", "content": "done"}


@pytest.mark.parametrize("call_id", [7, 1.5, True, ["a"], {"id": "a"}])
def test_id_that_is_no_string_is_refused_at_its_place(call_id: Json) -> None:
    with pytest.raises(InvalidEventError) as caught:
        parse_event(native(AGENT, call_part("f", id=call_id)))
    assert caught.value.pointer == "/content/parts/0/function_call/id"


@every_format
def test_result_in_the_very_event_of_its_call_answers_it(name: str) -> None:
    both: Json = {
        "author": AGENT,
        "content": {"role": "model", "parts": [call_part(id="a"), result_part(id="a")]},
    }
    log = append_items("adk", [native("user", {"text": "go"}), both])
    assert rules(log, name) == []
    assert sent(log, name)


@every_format
def test_result_with_neither_id_nor_name_answers_the_open_call(name: str) -> None:
    result = native("user", {"function_response": {"response": {"ok": 1}}})
    log = append_items(
        "adk", [native("user", {"text": "go"}), native(AGENT, call_part(id="a")), result]
    )
    assert rules(log, name) == []


# Orphans


@every_format
def test_interrupted_call_is_closed_and_reported(name: str) -> None:
    log = chat(user(), assistant("let me see", called("a")), user("stop"), assistant("stopped"))
    assert rules(log, name) == ["synthetic_result"]
    assert "no result was recorded" in json.dumps(sent(log, name))


@every_format
def test_session_that_ends_on_an_open_call_says_that_it_is_pending(name: str) -> None:
    log = chat(user(), assistant(None, called("a")))
    result = compile_for(log, name)
    assert [(one.call_id, one.name, one.seq) for one in result.pending] == [("a", "f", 2)]
    assert violations_of(result, name) == ()


@every_format
def test_call_interrupted_directly_before_a_compaction_stays_out_of_it(name: str) -> None:
    compaction: Json = {
        "start_timestamp": 1,
        "end_timestamp": 3,
        "compacted_content": {"role": "model", "parts": [{"text": "what was"}]},
    }
    events: list[Json] = [
        native("user", {"text": "go"}, timestamp=1),
        native(AGENT, {"text": "ok"}, timestamp=2),
        native(AGENT, call_part(id="a"), timestamp=3),
        {"author": "user", "timestamp": 4, "actions": {"compaction": compaction}},
        native("user", {"text": "go on"}, timestamp=5),
    ]
    log = append_items("adk", events)
    text = json.dumps(sent(log, name))
    assert "what was" in text
    assert "no result was recorded" in text
    assert '"ok"' not in text


@every_format
def test_result_without_a_call_is_dropped_and_reported(name: str) -> None:
    log = chat(user(), answered("never"), assistant())
    assert rules(log, name) == ["orphan_result"]
    assert "never" not in json.dumps(sent(log, name))


# Parallel calls


def interleaved() -> Log:
    """Return one message spread over three items, each answered before the next."""
    items: list[Json] = [user()]
    for number in range(3):
        call: Json = {"type": "tool_use", "id": f"t{number}", "name": "f", "input": {"n": number}}
        result: Json = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"r{number}"}
        items += [{"role": "assistant", "id": "msg_1", "content": [call]}, user([result])]
    return append_items("anthropic", items)


@every_format
def test_calls_of_one_message_interleaved_with_their_results_are_one_turn(name: str) -> None:
    messages = sent(interleaved(), name)
    assert rules(interleaved(), name) == []
    if name == "openai_responses":
        kinds = [item["type"] for item in messages[1:]]
        assert kinds == ["function_call"] * 3 + ["function_call_output"] * 3
        return
    assert roles(messages)[:2] in (["user", "assistant"], ["user", "model"])
    turn = json.dumps(messages[1]).replace("\\", "").replace(" ", "")
    assert all(f'{{"n":{number}}}' in turn for number in range(3))


def test_results_of_an_interleaved_message_stand_in_call_order() -> None:
    (_, turn, results) = sent(interleaved(), "anthropic")
    assert [block["id"] for block in turn["content"]] == ["t0", "t1", "t2"]
    assert [block["tool_use_id"] for block in results["content"]] == ["t0", "t1", "t2"]


@every_format
def test_results_in_another_order_are_sent_in_call_order(name: str) -> None:
    log = chat(
        user(),
        assistant(None, called("a"), called("b"), called("c")),
        answered("c", "of c"),
        answered("a", "of a"),
        answered("b", "of b"),
    )
    text = json.dumps(sent(log, name))
    assert text.index("of a") < text.index("of b") < text.index("of c")
    assert rules(log, name) == []


@every_format
def test_timestamps_that_run_backwards_change_no_order(name: str) -> None:
    events = [native("user", {"text": f"m{n}"}, timestamp=1_000_000 - n) for n in range(3)]
    text = json.dumps(sent(append_items("native", events), name))
    assert text.index("m0") < text.index("m1") < text.index("m2")


def test_tree_of_parents_is_not_followed_and_said_so() -> None:
    parsed = parse_event({**native("user", {"text": "go"}), "parentUuid": "x"})
    assert parsed.notes == (("/parentUuid", "unknown key, ignored"),)


# Content


@every_format
def test_null_content_beside_calls_makes_no_text(name: str) -> None:
    log = chat(user(), assistant(None, called("a")), answered("a"))
    assert [type(part).__name__ for part in log.events[1].parts] == ["FunctionCall"]
    assert sent(log, name)


@pytest.mark.parametrize("blank", ["", " ", "\n\t ", None, [], {}])
@every_format
def test_blank_messages_leave_no_trace_where_the_provider_refuses_them(
    name: str, blank: Json
) -> None:
    log = chat(user(), assistant(blank), user(blank), assistant("said"), user("more"))
    messages = sent(log, name)
    assert len(log.events) == 5
    if FORMATS[name].refuses_blank_text:
        spoken = [message for message in messages if message["role"] != "user"]
        assert len(spoken) == 1


@every_format
def test_message_that_was_aborted_before_its_first_word_is_kept_in_the_log_alone(
    name: str,
) -> None:
    log = chat(user("first"), assistant([]), user("second"))
    assert log.events[1].parts == ()
    assert all(message["role"] == "user" for message in sent(log, name))


@pytest.mark.parametrize("empty", ["", None, [], {}])
@every_format
def test_empty_result_still_answers(name: str, empty: Json) -> None:
    log = chat(user(), assistant(None, called("a")), answered("a", empty), user("next"))
    assert rules(log, name) == []
    assert sent(log, name)


@every_format
def test_string_list_and_object_in_one_field_say_the_same(name: str) -> None:
    part: Json = {"type": "text", "text": "hello"}
    contents: list[Json] = ["hello", [part], part, ["hello"]]
    assert len({json.dumps(sent(chat(user(one)), name)) for one in contents}) == 1


@pytest.mark.parametrize(
    ("arguments", "emitted", "as_object"),
    [
        ('{"b":  1, "a": 2}', '{"b":  1, "a": 2}', {"b": 1, "a": 2}),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}', {"b": 1, "a": 2}),
        ({}, "{}", {}),
        (None, "{}", {}),
        ("null", "null", {"_raw": "null"}),
        ('"text"', '"text"', {"_raw": '"text"'}),
        ("ls -la", '{"_raw":"ls -la"}', {"_raw": "ls -la"}),
        ('{"a": 1', '{"_raw":"{\\"a\\": 1"}', {"_raw": '{"a": 1'}),
        ('{"n": 123456789012345678901234567890}',) * 2 + ({"n": 123456789012345678901234567890},),
    ],
)
def test_arguments_of_every_kind_travel(arguments: Json, emitted: str, as_object: Json) -> None:
    log = chat(user(), assistant(None, called("a", arguments=arguments)), answered("a"))
    assert sent(log)[1]["tool_calls"][0]["function"]["arguments"] == emitted
    assert sent(log, "anthropic")[1]["content"][0]["input"] == as_object


def test_result_that_is_json_inside_a_string_is_not_opened() -> None:
    double = json.dumps({"output": json.dumps({"exit": 0})})
    log = chat(user(), assistant(None, called("a")), answered("a", double))
    assert sent(log)[-1]["content"] == double
    assert sent(log, "anthropic")[-1]["content"][0]["content"] == double


@every_format
def test_long_text_terminal_escapes_and_other_scripts_travel_unchanged(name: str) -> None:
    strange = "\x1b[31mred\x1b[0m\r\n" + "漢字 ☃ \U0001f600 " + "x" * 88_000
    log = chat(user(strange))
    assert strange in list(_strings(sent(log, name)))


@pytest.mark.parametrize("broken", ["nul \x00 here", "lone \ud83d surrogate"])
@every_format
def test_characters_that_no_provider_takes_are_replaced_and_noted(name: str, broken: str) -> None:
    (parsed,) = parse_items("openai_chat", [user(broken)])
    assert parsed.notes
    strings = list(_strings(sent(append([parsed]), name)))
    assert broken.replace("\x00", "\ufffd").replace("\ud83d", "\ufffd") in strings


@every_format
def test_image_that_is_repeated_is_sent_each_time(name: str) -> None:
    picture: Json = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
    }
    log = chat(user([picture]), assistant(), user(["again", picture]))
    assert json.dumps(sent(log, name)).count("iVBORw0KGgo=") == 2


@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_image_that_was_moved_out_by_hash_is_left_out_and_reported(name: str) -> None:
    picture: Json = {"type": "image_url", "image_url": {"url": "attachment://0f3a"}}
    log = chat(user(["look", picture]))
    assert rules(log, name) == ["unsupported_part"]
    assert "attachment" not in json.dumps(sent(log, name))


# Thinking


def thinker() -> Log:
    """Return a session in which two providers thought, signed, unsigned and encrypted."""
    signed: Json = {
        "text": "deep",
        "thought": True,
        "thought_signature": "c2ln",
        "signature_provider": "anthropic",
    }
    call: Json = {**call_part(id="a"), "thought_signature": "Y2FsbA=="}
    encrypted: Json = {"type": "reasoning", "content": None, "encrypted_content": "x"}
    opaque: Json = {"provider": "openai", "type": "reasoning", "raw": encrypted}
    return append_items(
        "native",
        [
            native("user", {"text": "go"}),
            native(AGENT, signed, {"text": "one"}),
            native("user", {"text": "go on"}),
            native(AGENT, {"text": "two", "thought_signature": "Z2Vt"}),
            native(AGENT, call),
            native(AGENT, result_part(id="a")),
            native(AGENT, {"opaque": opaque, "thought": True}, {"text": "three"}),
            native("user", {"text": "go on"}),
            native(AGENT, {"text": "just thinking", "thought": True}, {"text": "four"}),
            native("user", {"text": "end"}),
        ],
    )


@pytest.mark.parametrize(
    ("name", "returned"),
    [("anthropic", {"c2ln"}), ("gemini", {"Z2Vt", "Y2FsbA=="}), ("openai_chat", set())],
)
def test_thinking_returns_to_its_own_provider_only(name: str, returned: set[str]) -> None:
    text = json.dumps(sent(thinker(), name))
    assert {one for one in ("c2ln", "Z2Vt", "Y2FsbA==") if one in text} == returned
    assert "encrypted_content" not in text
    assert all(f'"{said}"' in text for said in ("one", "two", "three", "four"))


@pytest.mark.parametrize("preset", ["stable", "adk"])
@every_format
def test_thinking_of_a_response_that_broke_off_ends_no_turn(name: str, preset: str) -> None:
    signed: Json = {
        "text": "deep",
        "thought": True,
        "thought_signature": "c2ln",
        "signature_provider": "anthropic",
    }
    events: list[Json] = [
        native("user", {"text": "go"}),
        native(AGENT, signed, {"text": "begun"}, signed),
        native("user", {"text": "stop"}),
        native(AGENT, signed),
        native("user", {"text": "again"}),
    ]
    log = append_items("native", events)
    result = compile_for(log, name, preset=preset)
    if preset == "stable":
        assert violations_of(result, name) == ()
    if (name, preset) == ("anthropic", "stable"):
        assert [repair.rule for repair in result.repairs] == ["thought_last", "thought_last"]
        assert json.dumps(body_of(result, name)).count("c2ln") == 1


# Roles


@pytest.mark.parametrize(
    "role",
    [
        "Orchestrator (-> WebSurfer)",
        "human",
        "toolResult",
        "bashExecution",
        "info",
        "error",
        "",
        None,
        7,
    ],
)
@pytest.mark.parametrize("source", ["anthropic", "openai_chat"])
def test_role_that_the_format_does_not_know_is_refused_by_name(source: str, role: Json) -> None:
    with pytest.raises(InvalidEventError) as caught:
        CONVERTERS[source]({"role": role, "content": "hi"}, agent=AGENT)
    assert caught.value.pointer == "/role"


def test_result_is_the_same_in_a_user_message_in_role_tool_or_authored_by_the_agent() -> None:
    call: Json = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result: Json = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
    logs = [
        append_items(
            "anthropic",
            [user(), {"role": "assistant", "content": [call]}, user([result])],
        ),
        chat(user(), assistant(None, called("a")), answered("a")),
        append_items(
            "adk",
            [
                native("user", {"text": "go"}),
                native(AGENT, call_part(id="a")),
                native(AGENT, result_part(id="a")),
            ],
        ),
    ]
    assert len({json.dumps(sent(log, "anthropic")) for log in logs}) == 1
    assert all(rules(log) == [] for log in logs)


@pytest.mark.parametrize("role", ["system", "developer"])
@every_format
def test_system_message_in_the_middle_or_last_is_told_where_it_stands(name: str, role: str) -> None:
    between: Json = {"role": role, "content": "be brief"}
    last: Json = {"role": role, "content": "be polite"}
    text = json.dumps(
        sent(chat(user("first"), assistant("ok"), between, user("second"), last), name)
    )
    order = [text.index(one) for one in ("first", "be brief", "second", "be polite")]
    assert order == sorted(order)


def test_system_message_between_a_call_and_its_result_does_not_part_them() -> None:
    log = chat(
        user(), assistant(None, called("a")), {"role": "system", "content": "late"}, answered("a")
    )
    assert roles(sent(log)) == ["user", "assistant", "tool", "user"]
    assert rules(log) == []


def test_several_user_messages_in_a_row_stay_apart_or_become_one_turn() -> None:
    log = chat(user("a"), user("b"), user("c"))
    assert [message["content"] for message in sent(log)] == ["a", "b", "c"]
    (turn,) = sent(log, "anthropic")
    assert [block["text"] for block in turn["content"]] == ["a", "b", "c"]


@every_format
def test_session_that_ends_on_the_user_gets_nothing_added(name: str) -> None:
    log = chat(user("a"), assistant("b"), user("c"))
    assert compile_for(log, name).repairs == ()


def test_user_message_that_nobody_wrote_is_the_users_all_the_same() -> None:
    log = chat(user("<environment>linux</environment>"), user("go"))
    assert [event.author for event in log.events] == ["user", "user"]


# Twice


def test_same_content_twice_is_twice_in_the_log() -> None:
    log = chat(user("again"), assistant("ok"), user("again"))
    assert json.dumps(sent(log)).count("again") == 2


def test_second_result_of_a_call_answers_and_the_first_is_reported() -> None:
    log = chat(user(), assistant(None, called("a")), answered("a", "draft"), answered("a", "final"))
    assert rules(log) == ["replaced"]
    assert sent(log)[-1]["content"] == "final"


# Time


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2025-12-08T22:41:05.306Z", 1765233665.306),
        ("2025-12-08T23:41:05.306+01:00", 1765233665.306),
        ("2025-12-08T22:41:05.306123", 1765233665.306123),
        ("2025-12-08 22:41:05", 1765233665.0),
        (1765233665306, 1765233665.306),
        (1765233665.306, 1765233665.306),
        (1765233665, 1765233665.0),
    ],
)
def test_times_of_every_kind_are_one_time(given: Json, seconds: float) -> None:
    parsed = parse_event(native("user", {"text": "go"}, timestamp=given))
    assert parsed.has_timestamp
    assert parsed.event.timestamp == pytest.approx(seconds, abs=1e-6)


def test_no_time_is_said_to_be_none() -> None:
    assert not parse_event(native("user", {"text": "go"})).has_timestamp


@pytest.mark.parametrize("given", ["yesterday", True, [], {}, "1e400"])
def test_time_that_is_none_is_refused_at_its_place(given: Json) -> None:
    with pytest.raises(InvalidEventError) as caught:
        parse_event(native("user", {"text": "go"}, timestamp=given))
    assert caught.value.pointer == "/timestamp"


@every_format
def test_session_over_days_with_two_kinds_of_time_keeps_its_order(name: str) -> None:
    log = append_items(
        "native",
        [
            native("user", {"text": "monday"}, timestamp="2025-12-08T22:41:05Z"),
            native("user", {"text": "tuesday"}, timestamp=1765320065000),
            native("user", {"text": "untimed"}),
        ],
    )
    text = json.dumps(sent(log, name))
    assert text.index("monday") < text.index("tuesday") < text.index("untimed")


# Compactions, models, streams


@every_format
def test_compaction_of_another_tool_masks_what_it_no_longer_kept(name: str) -> None:
    compaction: Json = {
        "start_timestamp": 1,
        "end_timestamp": 2,
        "compacted_content": {"role": "model", "parts": [{"text": "what was"}]},
    }
    log = append_items(
        "adk",
        [
            native("user", {"text": "old question"}, timestamp=1),
            native(AGENT, {"text": "old answer"}, timestamp=2),
            native("user", {"text": "first kept"}, timestamp=3),
            {"author": "user", "timestamp": 4, "actions": {"compaction": compaction}},
            native("user", {"text": "new"}, timestamp=5),
        ],
    )
    text = json.dumps(sent(log, name))
    order = [text.index(one) for one in ("what was", "first kept", "new")]
    assert order == sorted(order)
    assert "old" not in text


@every_format
def test_change_of_model_in_mid_session_changes_nothing_of_what_was_said(name: str) -> None:
    answers = (
        native(AGENT, {"text": "ok"}, model_version=model) for model in ("one-1", "two-2", None)
    )
    logs = [append_items("native", [native("user", {"text": "go"}), one]) for one in answers]
    assert len({json.dumps(sent(log, name)) for log in logs}) == 1


def test_chunks_of_a_stream_are_not_stored_and_their_sum_is() -> None:
    chunks = [native(AGENT, {"text": piece}, partial=True) for piece in ("he", "llo")]
    parsed = parse_items("native", [*chunks, native(AGENT, {"text": "hello"})])
    assert [one.is_partial for one in parsed] == [True, True, False]
    assert [event.parts for event in append(parsed).events] == [(Text(text="hello"),)]


def _strings(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


# Another format's shape


@pytest.mark.parametrize(
    ("source_format", "item", "pointer"),
    [
        ("openai_chat", {"role": "user", "parts": [{"text": "x"}]}, "/parts"),
        ("openai_responses", {"role": "user", "parts": [{"text": "x"}]}, "/parts"),
        ("openai_responses", {"role": "assistant", "tool_calls": [{"id": "c"}]}, "/tool_calls"),
        ("anthropic", {"role": "user", "parts": [{"text": "x"}]}, "/parts"),
        ("anthropic", {"role": "assistant", "content": "x", "tool_calls": [{}]}, "/tool_calls"),
        ("bedrock", {"role": "user", "parts": [{"text": "x"}]}, "/parts"),
    ],
)
def test_content_in_another_formats_shape_is_refused_and_not_lost(
    source_format: str, item: Json, pointer: str
) -> None:
    with pytest.raises(InvalidEventError) as caught:
        CONVERTERS[source_format](item, agent=AGENT)
    assert caught.value.pointer == pointer


def test_a_content_of_our_own_shape_is_an_event() -> None:
    item: Json = {"role": "model", "parts": [{"text": "x"}]}
    assert CONVERTERS["native"](item, agent=AGENT) == [{"author": AGENT, "content": item}]


def test_content_without_a_role_is_noted() -> None:
    noted = parse_event({"author": "user", "content": {"parts": [{"text": "x"}]}}).notes
    assert noted == (("/content/role", "a content without a role is stored and read by no one"),)
