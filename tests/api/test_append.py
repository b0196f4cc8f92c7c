"""Appending: dense seqs, repeats, conditions, state, and what is kept as it was sent."""

import asyncio
import json
from typing import Any

import pytest

from tests.api.conftest import Api, call, model, response, user


async def raw_event(api: Api, path: str, seq: int) -> str:
    return (await api.get(f"{path}/events/{seq}")).text


async def test_appended_events_get_dense_seqs_and_read_back_as_sent(api: Api) -> None:
    path = await api.session()
    answer = await api.append(path, user("hello", id="u1"), model("hi there"))
    assert [each["seq"] for each in answer["appended"]] == [1, 2]
    assert answer["appended"][0]["id"] == "u1"
    assert answer["appended"][1]["tokens"] > 0
    assert answer["head_seq"] == 2
    page = (await api.get(f"{path}/events")).json()
    assert page["data"][0]["content"] == {"role": "user", "parts": [{"text": "hello"}]}
    assert [each["status"] for each in page["data"]] == ["live", "live"]
    assert not page["has_more"]


async def test_camel_case_events_are_taken_and_kept_as_sent(api: Api) -> None:
    path = await api.session()
    event = {
        "invocationId": "i1",
        "author": "agent",
        "content": {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f"}}]},
        "longRunningToolIds": ["c"],
        "timestamp": 1764000000.25,
    }
    await api.append(path, event)
    answer = (await api.get(f"{path}/events/1")).json()
    assert {key: answer[key] for key in event} == event


async def test_a_lost_answer_can_be_asked_for_again(api: Api) -> None:
    path = await api.session()
    first = await api.append(path, user("x", id="a"), model("y", id="b"), expected_seq=0)
    again = await api.append(path, user("x", id="a"), model("y", id="b"), expected_seq=0)
    assert [each["seq"] for each in again["appended"]] == [1, 2]
    assert [each["duplicate"] for each in again["appended"]] == [True, True]
    assert [each["duplicate"] for each in first["appended"]] == [False, False]
    assert again["head_seq"] == 2


async def test_a_repeat_in_the_other_spelling_is_a_repeat(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x", id="a", invocation_id="i", custom_metadata={"someKey": 1}))
    again = user("x", id="a", invocationId="i", customMetadata={"someKey": 1})
    assert (await api.append(path, again))["appended"][0]["duplicate"]


async def test_an_event_that_was_read_back_is_a_repeat(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x", id="a", timestamp=1.5))
    event = (await api.get(f"{path}/events/1")).json()
    assert (await api.append(path, event))["appended"][0]["duplicate"]


async def test_an_id_with_another_body_is_refused(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x", id="a"))
    answer = await api.post(f"{path}/events", {"events": [user("z"), user("y", id="a")]})
    assert (answer.status_code, answer.json()["code"]) == (409, "event_id_reused")
    assert answer.json()["errors"][0]["pointer"] == "/events/1"
    assert answer.json()["seq"] == 1
    assert await api.head_seq(path) == 1


async def test_twice_in_one_batch_is_a_duplicate_of_the_first(api: Api) -> None:
    path = await api.session()
    answer = await api.append(path, user("x", id="a"), model("m"), user("x", id="a"))
    assert [each["seq"] for each in answer["appended"]] == [1, 2, 1]
    assert [each["duplicate"] for each in answer["appended"]] == [False, False, True]


async def test_twice_in_one_batch_with_different_bodies_is_refused(api: Api) -> None:
    path = await api.session()
    answer = await api.post(f"{path}/events", {"events": [user("x", id="a"), user("y", id="a")]})
    assert (answer.status_code, answer.json()["code"]) == (409, "event_id_reused")
    assert await api.head_seq(path) == 0


async def test_a_stale_writer_is_told_where_the_head_is(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x"))
    for headers, fields in [({"If-Match": '"0"'}, {}), ({}, {"expected_seq": 0})]:
        body = {"events": [user("y")], **fields}
        answer = await api.post(f"{path}/events", body, headers=headers)
        assert answer.status_code == 412
        assert answer.json()["code"] == "head_moved"
        assert answer.json()["head_seq"] == 1
    assert await api.head_seq(path) == 1


async def test_an_expectation_above_the_head_is_refused(api: Api) -> None:
    path = await api.session()
    answer = await api.post(f"{path}/events", {"events": [user("y")], "expected_seq": 9})
    assert answer.status_code == 412


async def test_a_batch_with_something_new_does_not_win_over_a_stale_expectation(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x", id="a"))
    body = {"events": [user("x", id="a"), user("new")], "expected_seq": 0}
    answer = await api.post(f"{path}/events", body)
    assert answer.status_code == 412


@pytest.mark.parametrize("value", ["abc", '"x"', "12", '"-1"'])
async def test_an_if_match_that_is_no_etag_of_ours_is_refused(api: Api, value: str) -> None:
    path = await api.session()
    answer = await api.post(f"{path}/events", {"events": []}, headers={"If-Match": value})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/header/If-Match"


async def test_the_answer_s_etag_is_the_next_if_match(api: Api) -> None:
    path = await api.session()
    answer = await api.post(f"{path}/events", {"events": [user("x")]})
    headers = {"If-Match": answer.headers["etag"]}
    assert (
        await api.post(f"{path}/events", {"events": [user("y")]}, headers=headers)
    ).status_code == 201


async def test_of_many_writers_with_one_expectation_one_wins(api: Api) -> None:
    path = await api.session()
    bodies = [{"events": [user(str(number))], "expected_seq": 0} for number in range(8)]
    answers = await asyncio.gather(*(api.post(f"{path}/events", body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [201] + [412] * 7
    assert await api.head_seq(path) == 1


async def test_concurrent_writers_get_dense_seqs(api: Api) -> None:
    path = await api.session()
    answers = await asyncio.gather(*(api.append(path, user("a"), user("b")) for _ in range(10)))
    seqs = sorted(each["seq"] for answer in answers for each in answer["appended"])
    assert seqs == list(range(1, 21))


async def test_a_partial_event_is_answered_and_not_stored(api: Api) -> None:
    path = await api.session()
    answer = await api.append(path, model("hel", partial=True, id="p"), model("hello"))
    assert answer["appended"][0] == {
        "id": "p",
        "seq": None,
        "tokens": answer["appended"][0]["tokens"],
        "duplicate": False,
        "item": 0,
        "stored": False,
    }
    assert answer["appended"][1]["seq"] == 1
    assert answer["head_seq"] == 1


async def test_appending_to_nothing_needs_create(api: Api) -> None:
    path = "/v1/sessions/" + "made-by-append" + str(id(api))
    answer = await api.post(f"{path}/events", {"events": [user("x")]})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    create = {"app_name": "a", "user_id": "u", "state": {"k": 1}}
    body = {"events": [user("x")], "create": create}
    assert (await api.post(f"{path}/events", body)).status_code == 201
    assert (await api.post(f"{path}/events", body)).status_code == 201
    session = (await api.get(path)).json()
    assert (session["head_seq"], session["app_name"], session["state"]) == (2, "a", {"k": 1})


async def test_a_refused_append_creates_no_session(api: Api) -> None:
    path = "/v1/sessions/" + "never-made" + str(id(api))
    create = {"app_name": "a", "user_id": "u"}
    body = {"events": [user("x", compiled_seq=9)], "create": create}
    assert (await api.post(f"{path}/events", body)).status_code == 422
    assert (await api.get(path)).status_code == 404


# What is kept as it was sent

ODD = [
    '{"author":"user","content":{"role":"user","parts":[{"text":"a\\u0000b"}]}}',
    '{"author":"user","content":{"role":"user","parts":[{"text":"\\ud83d alone"}]}}',
    '{"author":"user","content":"x","custom_metadata":{"n":123456789012345678901234567890}}',
    '{"author":"user","content":"x","custom_metadata":{"n":1.50, "m":1E5,"m":-0.0}}',
    '{"author":"user","content":"x","custom_metadata":{"n":' + "7" * 6000 + "}}",
    '{"author":"user","content":"\\u00e9\\/ \\u4e2d 中"}',
]


@pytest.mark.parametrize("text", ODD)
async def test_odd_json_is_stored_as_sent(api: Api, text: str) -> None:
    path = await api.session()
    answer = await api.post(f"{path}/events", f'{{"events":[{text}]}}')
    assert answer.status_code == 201, answer.text
    stored = await raw_event(api, path, 1)
    for member in ('"content":', '"custom_metadata":'):
        if member in text:
            tail = text[text.index(member) : -1]
            assert tail.partition(',"custom')[0] in stored
    compiled = await api.post(f"{path}/compile", {})
    assert compiled.status_code == 200
    compiled.json()


async def test_repeated_keys_are_stored_as_sent_and_reported(api: Api) -> None:
    path = await api.session()
    text = '{"author":"user","content":"x","custom_metadata":{"a":1,"a":2},"author":"user"}'
    answer = (await api.post(f"{path}/events", f'{{"events":[{text}]}}')).json()
    assert "author" in answer["warnings"][0]["detail"]
    assert answer["warnings"][0]["pointer"] == "/events/0"
    stored = await raw_event(api, path, 1)
    assert '"custom_metadata":{"a":1,"a":2}' in stored
    assert stored.count('"author":"user"') == 2


async def test_what_cannot_be_emitted_is_reported_and_emitted_validly(api: Api) -> None:
    path = await api.session()
    answer = await api.append(path, user("a\0b"), user("\ud83d"))
    assert [warning["pointer"] for warning in answer["warnings"]] == [
        "/events/0/content/parts/0/text",
        "/events/1/content/parts/0/text",
    ]
    request = (await api.post(f"{path}/compile", {})).json()["request"]
    assert [part["text"] for part in request["contents"][0]["parts"]] == ["a\ufffdb", "\ufffd"]


async def test_big_integers_in_arguments_are_emitted_whole(api: Api) -> None:
    path = await api.session()
    number = 123456789012345678901234567890
    await api.append(path, user("x"), call("f", "c", {"n": number}))
    answer = await api.post(f"{path}/compile", {"agent": "agent"})
    assert f'"n":{number}' in answer.text


# Imported items


async def test_imported_items_say_which_item_made_which_event(api: Api) -> None:
    path = await api.session()
    items = [
        {"role": "user", "content": "what is up?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "fine"},
        {"role": "assistant", "content": "All is fine."},
    ]
    answer = await api.post(f"{path}/events", {"format": "openai_chat", "items": items})
    assert answer.status_code == 201, answer.text
    assert [each["item"] for each in answer.json()["appended"]] == [0, 1, 2, 3]
    events = (await api.get(f"{path}/events")).json()["data"]
    assert [event["author"] for event in events] == ["user", "app", "app", "app"]
    request = (await api.post(f"{path}/compile", {"format": "openai_chat"})).json()["request"]
    assert [message["role"] for message in request["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_several_events_of_one_item_read_back_each_for_itself(api: Api) -> None:
    path = await api.session()
    items = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "done"},
                {"type": "text", "text": "next"},
            ],
        },
    ]
    body = {"format": "anthropic", "items": items, "agent": "helper"}
    appended = (await api.post(f"{path}/events", body)).json()["appended"]
    assert [each["item"] for each in appended] == [0, 1, 2, 2]
    events = (await api.get(f"{path}/events")).json()["data"]
    texts = json.dumps([event["content"] for event in events[2:]])
    assert "function_response" in texts
    assert events[3]["content"]["parts"] == [{"text": "next"}]


async def test_an_adk_session_is_one_item_whose_events_keep_their_own_text(api: Api) -> None:
    path = await api.session()
    event = '{"author":"user","content":"x","customMetadata":{"n":1.50}}'
    body = f'{{"format":"adk","items":[{{"id":"s","events":[{event},{event}]}}]}}'
    answer = await api.post(f"{path}/events", body)
    assert answer.status_code == 201, answer.text
    assert [each["item"] for each in answer.json()["appended"]] == [0, 0]
    assert '"customMetadata":{"n":1.50}' in await raw_event(api, path, 2)


# State


async def test_state_deltas_reach_their_scopes_and_temp_is_never_stored(api: Api) -> None:
    path = await api.session(app_name=f"app-{id(api)}", state={"k": 0, "app:a": 0, "temp:t": 0})
    delta = {"k": 1, "app:a": 2, "user:u": 3, "temp:t": 4, "gone": None}
    answer = await api.append(path, user("x", actions={"state_delta": delta}))
    assert "temp:t" in answer["warnings"][0]["detail"]
    state = (await api.get(f"{path}/state")).json()
    assert state == {"k": 1, "gone": None, "app:a": 2, "user:u": 3}
    app = f"/v1/apps/app-{id(api)}"
    assert (await api.get(f"{app}/state")).json() == {"a": 2}
    assert (await api.get(f"{app}/users/user/state")).json() == {"u": 3}
    stored = (await api.get(f"{path}/events/1")).json()["actions"]["state_delta"]
    assert stored == {"k": 1, "app:a": 2, "user:u": 3, "gone": None}


async def test_a_rewind_restores_the_session_s_state_and_no_other(api: Api) -> None:
    path = await api.session(app_name=f"rw-{id(api)}", state={"tenant": 1})
    first = user("x", invocation_id="i1", actions={"state_delta": {"k": 1}})
    second = user("y", invocation_id="i2", actions={"state_delta": {"k": 2, "app:a": 1}})
    await api.append(path, first, second)
    await api.post(f"{path}/rewind", {"before_invocation_id": "i2"})
    state = (await api.get(f"{path}/state")).json()
    assert state == {"tenant": 1, "k": 1, "app:a": 1}


async def test_a_delta_in_one_batch_after_a_rewind_stands(api: Api) -> None:
    path = await api.session(state={"k": 0})
    await api.append(path, user("x", invocation_id="i1", actions={"state_delta": {"k": 1}}))
    await api.append(
        path,
        {"author": "user", "actions": {"rewind_before_invocation_id": "i1"}},
        user("y", invocation_id="i2", actions={"state_delta": {"m": 2}}),
    )
    assert (await api.get(f"{path}/state")).json() == {"k": 0, "m": 2}


# Idempotency keys


async def test_a_request_with_an_idempotency_key_is_carried_out_once(api: Api) -> None:
    path = await api.session()
    headers = {"Idempotency-Key": "k1"}
    body: dict[str, Any] = {"events": [user("x")]}
    first = await api.post(f"{path}/events", body, headers=headers)
    again = await api.post(f"{path}/events", body, headers=headers)
    assert again.json() == first.json()
    assert again.status_code == 201
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert await api.head_seq(path) == 1


async def test_an_idempotency_key_with_another_body_is_refused(api: Api) -> None:
    path = await api.session()
    headers = {"Idempotency-Key": "k1"}
    await api.post(f"{path}/events", {"events": [user("x")]}, headers=headers)
    answer = await api.post(f"{path}/events", {"events": [user("y")]}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")


async def test_a_failed_request_does_not_use_its_key_up(api: Api) -> None:
    path = await api.session()
    headers = {"Idempotency-Key": "k1"}
    stale = {"events": [user("x")], "expected_seq": 4}
    assert (await api.post(f"{path}/events", stale, headers=headers)).status_code == 412
    good = {"events": [user("x")], "expected_seq": 0}
    assert (await api.post(f"{path}/events", good, headers=headers)).status_code == 201


async def test_one_key_serves_two_routes(api: Api) -> None:
    first, second = await api.session(), await api.session()
    for path in (first, second):
        answer = await api.post(
            f"{path}/events", {"events": [user("x")]}, headers={"Idempotency-Key": "same"}
        )
        assert "idempotent-replayed" not in answer.headers
        assert await api.head_seq(path) == 1


async def test_racing_requests_with_one_key_are_carried_out_once(api: Api) -> None:
    path = await api.session()
    body = {"events": [user("x")]}
    answers = await asyncio.gather(
        *(api.post(f"{path}/events", body, headers={"Idempotency-Key": "race"}) for _ in range(5))
    )
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert await api.head_seq(path) == 1


async def test_rewinds_pins_and_summaries_take_idempotency_keys(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a"), model("b"), user("c"), model("d"))
    requests: list[tuple[str, Any]] = [
        ("pins", {"seqs": [1]}),
        ("summaries", {"covers": {"from_seq": 2, "to_seq": 2}, "content": "s"}),
        ("rewind", {"to_seq": 3}),
    ]
    for name, body in requests:
        headers = {"Idempotency-Key": name}
        first = await api.post(f"{path}/{name}", body, headers=headers)
        assert first.status_code == 201, first.text
        head_seq = await api.head_seq(path)
        again = await api.post(f"{path}/{name}", body, headers=headers)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
        assert await api.head_seq(path) == head_seq


async def test_calls_and_responses_pair_over_http(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x"), call("f", "c1"), response("f", "c1", {"out": 5}))
    request = (await api.post(f"{path}/compile", {"agent": "agent"})).json()["request"]
    assert request["contents"][2]["parts"][0]["functionResponse"]["response"] == {"out": 5}


@pytest.mark.parametrize(
    ("event", "pointer"),
    [
        ({"content": "a", "compiled_seq": 9}, "/compiled_seq"),
        ({"content": "a", "compiledSeq": 9}, "/compiledSeq"),
        (
            {"actions": {"rewindBeforeInvocationId": "none"}},
            "/actions/rewindBeforeInvocationId",
        ),
        ({"author": "user", "content": {"parts": [{"text": 5}]}}, "/content/parts/0/text"),
    ],
)
async def test_what_the_log_refuses_is_named_as_it_was_spelled(
    api: Api, event: Any, pointer: str
) -> None:
    path = await api.session()
    for body, at in (
        ({"events": [user("a"), event]}, "/events/1"),
        ({"format": "adk", "items": [user("a"), event]}, "/items/1"),
        ({"format": "adk", "items": [{"events": [user("a"), event]}]}, "/items/0/events/1"),
    ):
        answer = await api.post(f"{path}/events", body)
        assert answer.status_code == 422, answer.text
        assert [each["pointer"] for each in answer.json()["errors"]] == [at + pointer]
    answer = await api.post("/v1/compile", {"events": [user("a"), event]})
    assert [each["pointer"] for each in answer.json()["errors"]] == [f"/events/1{pointer}"]
    assert await api.head_seq(path) == 0


async def test_contents_to_be_counted_are_named_as_they_were_sent(api: Api) -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "", "arguments": "{}"}}]}
    body = {"format": "openai_chat", "contents": [{"role": "user", "content": "a"}, call]}
    answer = await api.post("/v1/tokens", body)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/contents/1/tool_calls/0/function/name"


@pytest.mark.parametrize("sid", ["a%20b", "%C3%A9", "x" * 129])
async def test_what_is_no_session_id_is_refused_alike_by_every_route(api: Api, sid: str) -> None:
    answers = [
        await api.post(f"/v1/sessions/{sid}/events", {"events": [user("hi")]}),
        await api.post(f"/v1/sessions/{sid}/compile", {}),
        await api.get(f"/v1/sessions/{sid}/events"),
    ]

    assert {answer.status_code for answer in answers} == {422}
    told = [(answer.json()["errors"], answer.json()["detail"]) for answer in answers]
    assert told[0] == told[1] == told[2]
    assert told[0][0][0]["pointer"] == "/path/sid"
