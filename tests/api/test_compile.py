"""Compile over HTTP: options, positions, deltas, inputs, explanations, comparison."""

import asyncio
import json
from typing import Any, Final

import pytest

from tests.api.conftest import Api, call, client_of, model, response, settings_for, user
from tests.images import png

FORMATS = ["gemini", "openai_chat", "anthropic", "native"]


async def compiled(api: Api, path: str, **fields: Any) -> dict[str, Any]:
    answer = await api.post(f"{path}/compile", fields)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def talk(api: Api) -> str:
    path = await api.session()
    await api.append(path, user("hello"), model("hi"), user("and now?"))
    return path


async def test_compile_answers_the_provider_s_own_body(api: Api) -> None:
    body = await compiled(api, await talk(api), agent="agent")
    assert body["request"]["contents"] == [
        {"role": "user", "parts": [{"text": "hello"}]},
        {"role": "model", "parts": [{"text": "hi"}]},
        {"role": "user", "parts": [{"text": "and now?"}]},
    ]
    assert (body["head_seq"], body["compiled_seq"], body["prefix_count"]) == (3, 3, 2)
    assert body["pending"] == []
    assert body["cache"]["break_reason"] is None


@pytest.mark.parametrize("name", FORMATS)
async def test_what_is_compiled_is_valid_for_its_provider(api: Api, name: str) -> None:
    path = await api.session()
    await api.append(path, user("x"), call("f", "c1"), response("f", "c1"), user("y"))
    tools = [{"name": "f", "description": "d", "parameters": {"type": "object"}}]
    fields = {"agent": "agent", "format": name, "system": "Be brief.", "tools": tools}
    request = (await compiled(api, path, **fields))["request"]
    answer = await api.post("/v1/validate", {"format": name, "request": request})
    assert answer.json() == {"valid": True, "violations": []}


async def test_the_same_compile_gives_the_same_bytes(api: Api) -> None:
    path = await talk(api)
    first, second = await compiled(api, path), await compiled(api, path)
    for body in (first, second):
        body.pop("timing_ms")
    assert first == second


async def test_tokens_are_counted_by_segment(api: Api) -> None:
    path = await talk(api)
    await api.post(f"{path}/pins", {"seqs": [1]})
    tools = [{"name": "f", "parameters": {"type": "object"}}]
    tokens = (await compiled(api, path, system="Be brief.", tools=tools))["tokens"]
    counts = tokens["by_segment"]
    assert min(counts[name] for name in ("system", "tools", "history", "pins")) > 0
    assert tokens["total"] == sum(counts.values())
    assert tokens["method"] == "o200k_base"


async def test_a_call_without_a_result_is_pending(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x"), call("f", "c1"))
    body = await compiled(api, path, agent="agent")
    assert body["pending"] == [{"call_id": "c1", "name": "f", "seq": 2}]
    assert body["repairs"]


async def test_an_empty_session_gives_nothing_and_says_so(api: Api) -> None:
    body = await compiled(api, await api.session())
    assert body["request"]["contents"] == []
    assert body["warnings"] == ["empty_contents"]


# Positions


async def test_a_past_position_compiles_to_what_it_was(api: Api) -> None:
    path = await talk(api)
    then = await compiled(api, path)
    await api.post(
        f"{path}/summaries", {"covers": {"from_seq": 1, "to_seq": 2}, "content": "in brief"}
    )
    await api.append(path, user("more"))
    again = await compiled(api, path, as_of_seq=3)
    assert (again["request"], again["fingerprint"]) == (then["request"], then["fingerprint"])
    assert (again["compiled_seq"], again["head_seq"]) == (3, 5)


async def test_positions_beyond_the_head_are_refused(api: Api) -> None:
    path = await talk(api)
    answer = await api.post(f"{path}/compile", {"as_of_seq": 4})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/as_of_seq")
    answer = await api.post(f"{path}/compile", {"min_seq": 4})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_yet_visible")
    assert answer.json()["head_seq"] == 3
    assert (await api.post(f"{path}/compile", {"min_seq": 3})).status_code == 200


async def test_a_wait_for_a_seq_ends_when_it_arrives(database_url: str) -> None:
    async with client_of(settings_for(database_url, min_seq_wait_ms=20_000)) as client:
        api = Api(client)
        path = await talk(api)
        waiting = asyncio.create_task(compiled(api, path, min_seq=4))
        await asyncio.sleep(0.05)
        await api.append(path, user("there"))
        assert (await waiting)["head_seq"] == 4


# Delta


async def test_a_base_that_holds_gets_only_what_follows(api: Api) -> None:
    path = await talk(api)
    base = await compiled(api, path, system="Be brief.")
    await api.append(path, model("now this"), user("thanks"))
    delta = await compiled(api, path, system="Be brief.", base_fingerprint=base["fingerprint"])
    assert delta["base_count"] == 3
    assert delta["request"] == {
        "contents": [
            {"role": "model", "parts": [{"text": "now this"}]},
            {"role": "user", "parts": [{"text": "thanks"}]},
        ]
    }


async def test_nothing_changed_gives_nothing(api: Api) -> None:
    path = await talk(api)
    base = await compiled(api, path)
    same = await compiled(api, path, base_fingerprint=base["fingerprint"])
    assert (same["request"], same["base_count"]) == ({}, 3)


async def test_a_base_of_nothing_gets_everything(api: Api) -> None:
    path = await talk(api)
    scoped = {"system": "Be brief.", "isolation_scope": "i1"}
    base = await compiled(api, path, **scoped)
    assert base["request"]["contents"] == []
    await api.append(path, {**user("inside"), "isolation_scope": "i1"})
    whole = await compiled(api, path, **scoped)
    rest = await compiled(api, path, **scoped, base_fingerprint=base["fingerprint"])
    assert (rest["base_count"], rest["request"]) == (0, whole["request"])
    assert "system_instruction" in rest["request"]


async def test_a_base_that_broke_gets_everything(api: Api) -> None:
    path = await talk(api)
    base = await compiled(api, path, system="Be brief.")
    other = await compiled(api, path, system="Be long.", base_fingerprint=base["fingerprint"])
    assert other["base_count"] == 0
    assert len(other["request"]["contents"]) == 3


@pytest.mark.parametrize("response_id", ["r1", "r2"])
async def test_a_delta_says_whether_it_goes_on_with_the_last_turn(
    api: Api, response_id: str
) -> None:
    path = await api.session()
    await api.append(path, user("hi"), model("a", response_id="r1"))
    base = await compiled(api, path, format="openai_chat")
    await api.append(path, model("b", response_id=response_id))
    delta = await compiled(api, path, format="openai_chat", base_fingerprint=base["fingerprint"])
    assert delta["base_count"] == 2
    assert delta["request"]["messages"] == [{"role": "assistant", "content": "b"}]
    assert delta["continues_turn"] is (response_id == "r1")


async def test_a_text_that_only_one_request_has_is_to_be_taken_off(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("hi"))
    told = {"format": "anthropic", "instruction": {"static": "You are S.", "dynamic": "Be {mood?}"}}
    base = await compiled(api, path, **told)
    assert base["warnings"] == []
    [held] = base["request"]["messages"]
    same = await compiled(api, path, **told, base_fingerprint=base["fingerprint"])
    assert (same["base_count"], same["continues_turn"]) == (1, True)
    assert same["warnings"] == ["ephemeral_moves"]
    assert same["request"]["messages"] == [{"role": "user", "content": held["content"][1:]}]
    # Under `adk` it does not stand last, so nothing can be put behind.
    told["preset"], told["format"] = "adk", "gemini"
    base = await compiled(api, path, **told)
    whole = await compiled(api, path, **told, base_fingerprint=base["fingerprint"])
    assert (whole["base_count"], whole["request"]) == (0, base["request"])


# Breaks


async def reply_to(api: Api, path: str, **fields: Any) -> None:
    base = await compiled(api, path, agent="agent", **fields)
    reply = model(
        "a reply",
        compiled_seq=base["compiled_seq"],
        compiled_fingerprint=base["fingerprint"],
    )
    await api.append(path, reply, user("next"))


async def test_an_unbroken_reply_reports_no_break(api: Api) -> None:
    path = await talk(api)
    await reply_to(api, path)
    body = await compiled(api, path, agent="agent")
    assert (body["cache"]["break_reason"], body["cache"]["break_seq"]) == (None, None)
    assert 0 < body["cache"]["shared_prefix_tokens"] < body["tokens"]["total"]


async def test_a_fold_under_a_reply_is_named_as_the_break(api: Api) -> None:
    path = await talk(api)
    await reply_to(api, path)
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "in brief"}
    fold = (await api.post(f"{path}/summaries", body)).json()
    found = (await compiled(api, path, agent="agent"))["cache"]
    assert (found["break_reason"], found["break_seq"]) == ("compaction", fold["seq"])


async def test_a_fold_over_the_newest_reply_itself_is_named_as_the_break(api: Api) -> None:
    path = await talk(api)
    await reply_to(api, path)
    body = {"covers": {"from_seq": 1, "to_seq": 4}, "content": "in brief"}
    fold = (await api.post(f"{path}/summaries", body)).json()
    for fields in ({}, {}, {"explain": True}, {"as_of_seq": fold["seq"]}):
        found = (await compiled(api, path, agent="agent", **fields))["cache"]
        assert (found["break_reason"], found["break_seq"]) == ("compaction", fold["seq"])
        assert found["shared_prefix_tokens"] == 0
    # A new reply stands on what is there now.
    await reply_to(api, path)
    assert (await compiled(api, path, agent="agent"))["cache"]["break_reason"] is None


async def test_a_fold_over_a_reply_that_does_not_name_its_compile_is_named_as_well(
    api: Api,
) -> None:
    path = await talk(api)
    await reply_to(api, path)
    await api.append(path, model("and more"), user("on"))
    body = {"covers": {"from_seq": 1, "to_seq": 6}, "content": "in brief"}
    fold = (await api.post(f"{path}/summaries", body)).json()
    for fields in ({}, {}, {"explain": True}, {"as_of_seq": fold["seq"]}):
        found = (await compiled(api, path, agent="agent", **fields))["cache"]
        assert (found["break_reason"], found["break_seq"]) == ("compaction", fold["seq"])
    await api.append(path, model("a reply"), user("next"))
    assert (await compiled(api, path, agent="agent"))["cache"]["break_reason"] is None
    # What went was the reply alone.
    await api.post(f"{path}/rewind", {"to_seq": fold["seq"]})
    assert (await compiled(api, path, agent="agent"))["cache"]["break_reason"] is None


async def test_a_fold_under_a_reply_that_does_not_name_its_compile_is_the_break(api: Api) -> None:
    path = await talk(api)
    await reply_to(api, path)
    await api.append(path, model("and more"), user("on"))
    body = {"covers": {"from_seq": 1, "to_seq": 4}, "content": "in brief"}
    fold = (await api.post(f"{path}/summaries", body)).json()
    for fields in ({}, {}, {"explain": True}, {"as_of_seq": fold["seq"]}):
        found = (await compiled(api, path, agent="agent", **fields))["cache"]
        assert (found["break_reason"], found["break_seq"]) == ("compaction", fold["seq"])
    # The next one was compiled from what is read now.
    await api.append(path, model("and that"), user("go on"))
    assert (await compiled(api, path, agent="agent"))["cache"]["break_reason"] is None


async def test_a_rewind_of_the_newest_reply_is_the_break_if_what_it_stood_on_went_too(
    api: Api,
) -> None:
    path = await talk(api)
    await reply_to(api, path)
    await api.post(f"{path}/rewind", {"to_seq": 3})
    # The question that the reply answered is asked again: its request still begins this one.
    found = (await compiled(api, path, agent="agent"))["cache"]
    assert (found["break_reason"], found["break_seq"]) == (None, None)
    assert found["shared_prefix_tokens"] > 0

    marker = (await api.post(f"{path}/rewind", {"to_seq": 2})).json()
    await api.append(path, user("something else"))
    found = (await compiled(api, path, agent="agent"))["cache"]
    assert (found["break_reason"], found["break_seq"]) == ("rewind", marker["seq"])
    assert found["shared_prefix_tokens"] > 0


async def test_a_request_that_is_put_together_is_valid_once_old_markers_are_off(api: Api) -> None:
    path = await api.session()
    options = {"agent": "agent", "format": "anthropic", "model": "claude-sonnet-5"}
    options |= {"system": "Be brief. " * 900}
    held: list[dict[str, Any]] = []
    fingerprint = None
    for turn in range(7):
        await api.append(path, user(f"{turn} " + "and so on, " * 1500, invocation_id=f"i{turn}"))
        answer = await compiled(api, path, **options, base_fingerprint=fingerprint)
        assert ("markers_move" in answer["warnings"]) == bool(turn)
        for message in held:
            for block in message["content"]:
                block.pop("cache_control", None)
        held += answer["request"]["messages"]
        whole = await compiled(api, path, **options)
        request = {**whole["request"], "messages": held}
        checked = {"format": "anthropic", "model": "claude-sonnet-5", "request": request}
        assert (await api.post("/v1/validate", checked)).json()["violations"] == []
        assert "cache_control" in held[-1]["content"][-1]
        fingerprint = whole["fingerprint"]
        same = await compiled(api, path, **options, base_fingerprint=fingerprint)
        # Nothing is to be put behind, so nothing is to be taken off.
        assert (same["request"], same["warnings"]) == ({}, [])
        recorded = {"compiled_seq": whole["compiled_seq"], "compiled_fingerprint": fingerprint}
        await api.append(path, model("yes", **recorded))


async def test_changed_options_are_named_as_the_break(api: Api) -> None:
    path = await talk(api)
    await reply_to(api, path, system="Be brief.")
    tools = [{"name": "f", "parameters": {"type": "object"}}]
    expectations: list[tuple[str, dict[str, Any]]] = [
        ("system", {"system": "Be long."}),
        ("tools", {"system": "Be brief.", "tools": tools}),
        ("model", {"system": "Be brief.", "model": "other"}),
    ]
    for reason, fields in expectations:
        found = (await compiled(api, path, agent="agent", **fields))["cache"]
        assert found["break_reason"] == reason


# Inputs


async def test_injected_state_is_an_input_that_can_be_passed_back(api: Api) -> None:
    path = await api.session(state={"name": "Ada", "unused": 1})
    await api.append(path, user("hello"))
    fields = {"instruction": {"dynamic": "You talk to {name}."}}
    first = await compiled(api, path, **fields)
    assert "You talk to Ada." in json.dumps(first["request"]["system_instruction"])
    await api.append(path, user("x", actions={"state_delta": {"name": "Bob"}}))
    now = await compiled(api, path, **fields)
    assert now["inputs"]["digest"] != first["inputs"]["digest"]
    again = await compiled(api, path, inputs=first["inputs"]["digest"], as_of_seq=1, **fields)
    assert again["request"] == first["request"]
    assert again["inputs"] == first["inputs"]


async def test_what_is_not_used_is_no_input(api: Api) -> None:
    path = await api.session(state={"k": 1})
    before = await compiled(api, path)
    await api.append(path, user("x", actions={"state_delta": {"k": 2}}))
    after = await compiled(api, path, inputs=before["inputs"]["digest"])
    assert after["inputs"] == before["inputs"]


async def test_unknown_inputs_and_missing_variables_are_refused(api: Api) -> None:
    path = await talk(api)
    answer = await api.post(f"{path}/compile", {"inputs": "0" * 64})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/inputs")
    answer = await api.post(f"{path}/compile", {"instruction": {"dynamic": "{nobody}"}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/instruction/dynamic"


# Append in the same call


async def test_events_can_be_appended_in_the_same_call(api: Api) -> None:
    path = await talk(api)
    body = await compiled(api, path, agent="agent", append=[model("now", id="m"), user("ok")])
    assert [each["seq"] for each in body["appended"]] == [4, 5]
    assert (body["compiled_seq"], len(body["request"]["contents"])) == (5, 5)


async def test_a_replayed_append_compiles_again_as_it_was(api: Api) -> None:
    path = await talk(api)
    headers = {"Idempotency-Key": "k"}
    fields = {"append": [model("now")]}
    first = await api.post(f"{path}/compile", fields, headers=headers)
    await api.append(path, user("later"))
    again = await api.post(f"{path}/compile", fields, headers=headers)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["request"] == first.json()["request"]
    assert again.json()["compiled_seq"] == 4
    assert await api.head_seq(path) == 5


async def test_a_refused_append_compiles_nothing(api: Api) -> None:
    path = await talk(api)
    answer = await api.post(f"{path}/compile", {"append": [user("x"), {"author": 1}]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/append/1/author"
    assert await api.head_seq(path) == 3
    answer = await api.post(f"{path}/compile", {"append": [user("x")], "as_of_seq": 1})
    assert answer.status_code == 422


# Expand and explain


async def test_an_expanded_fold_shows_its_originals(api: Api) -> None:
    path = await talk(api)
    before = await compiled(api, path)
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "in brief"}
    seq = (await api.post(f"{path}/summaries", body)).json()["seq"]
    expanded = await compiled(api, path, expand=[seq])
    assert expanded["request"] == before["request"]
    answer = await api.post(f"{path}/compile", {"expand": [1]})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/expand/0")


async def test_explain_says_what_became_of_every_event(api: Api) -> None:
    path = await talk(api)
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "in brief"}
    await api.post(f"{path}/summaries", body)
    await api.append(path, user("oops", invocation_id="i9"))
    await api.post(f"{path}/rewind", {"before_invocation_id": "i9"})
    plain = await compiled(api, path)
    explained = await compiled(api, path, explain=True)
    assert explained["request"] == plain["request"]
    rows = explained["events"]
    assert (rows[0]["from_seq"], rows[0]["to_seq"], rows[0]["by_seq"]) == (1, 2, 4)
    assert [row["action"] for row in rows] == ["masked", "merged", "marker", "rewound", "marker"]
    assert "events" not in plain


async def test_every_pass_is_timed(api: Api) -> None:
    timing = (await compiled(api, await talk(api)))["timing_ms"]
    assert {"load", "rewind", "tool_pairing", "render"} <= timing.keys()


# Readers


async def test_a_reader_s_compile_shows_only_what_it_may_see(api: Api) -> None:
    path = await api.session()
    await api.append(
        path, user("all"), model("mine", branch="root.a"), model("theirs", branch="root.b")
    )
    text = json.dumps(await compiled(api, path, agent="agent", branch="root.a"))
    assert "mine" in text
    assert "theirs" not in text


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"format": "cobol"}, "/format"),
        ({"preset": "fast"}, "/preset"),
        ({"agent": ""}, "/agent"),
        ({"agent": "a\0"}, "/agent"),
        ({"tools": [1]}, "/tools/0"),
        ({"tools": [{"name": "f", "parameters": []}]}, "/tools/0/parameters"),
        (
            {"tools": [{"name": "f", "parameters": {"type": "string"}}], "preset": "adk"},
            "/tools/0/parameters/type",
        ),
        ({"instruction": {"fixed": "x"}}, "/instruction/fixed"),
        ({"as_of_seq": -1}, "/as_of_seq"),
        ({"as_of_seq": 2**80}, "/as_of_seq"),
        ({"explain": "yes"}, "/explain"),
        ({"nonsense": {}}, "/nonsense"),
        ({"user_content": {"parts": [{"txt": "x"}]}}, "/user_content/parts/0/txt"),
    ],
)
async def test_a_wrong_option_is_named(api: Api, fields: dict[str, Any], pointer: str) -> None:
    answer = await api.post(f"{await talk(api)}/compile", fields)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


# Stateless


async def test_events_compile_without_being_stored(api: Api) -> None:
    path = await talk(api)
    stored = await compiled(api, path, agent="agent")
    events = [user("hello"), model("hi"), user("and now?")]
    answer = await api.post("/v1/compile", {"events": events, "agent": "agent"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["request"] == stored["request"]
    assert answer.json()["fingerprint"] == stored["fingerprint"]
    assert answer.json()["head_seq"] == 3


async def test_an_exported_log_compiles_to_the_same_bytes(api: Api) -> None:
    path = await talk(api)
    await api.post(
        f"{path}/summaries", {"covers": {"from_seq": 1, "to_seq": 2}, "content": "in brief"}
    )
    await api.post(f"{path}/pins", {"seqs": [3]})
    events = (await api.get(f"{path}/events")).json()["data"]
    answer = await api.post("/v1/compile", {"events": events, "explain": True})
    assert answer.status_code == 200, answer.text
    assert answer.json()["fingerprint"] == (await compiled(api, path))["fingerprint"]
    assert answer.json()["events"][0]["action"] == "masked"
    past = await api.post("/v1/compile", {"events": events, "as_of_seq": 3})
    assert len(past.json()["request"]["contents"]) == 3


async def test_stateless_state_comes_from_the_events(api: Api) -> None:
    body = {
        "events": [user("x", actions={"state_delta": {"name": "Ada"}})],
        "instruction": {"dynamic": "For {name}."},
    }
    answer = await api.post("/v1/compile", body)
    assert "For Ada." in answer.text


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"events": [user("x"), 7]}, "/events/1"),
        ({"events": [user("x", compiled_seq=4)]}, "/events/0/compiled_seq"),
        ({"events": [user("x")], "as_of_seq": 2}, "/as_of_seq"),
        ({}, "/events"),
    ],
)
async def test_a_wrong_stateless_compile_is_refused_by_name(
    api: Api, body: dict[str, Any], pointer: str
) -> None:
    answer = await api.post("/v1/compile", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


# Comparison


async def test_two_equal_compiles_are_the_same(api: Api) -> None:
    path = await talk(api)
    body = (await api.post(f"{path}/compile:diff", {"a": {}, "b": {"as_of_seq": 3}})).json()
    assert (body["same"], body["first_block"], body["cause"]) == (True, None, None)
    assert body["tokens"]["a"] == body["tokens"]["b"]
    assert body["text"].startswith("The two send the same. ")


async def compared(api: Api, path: str, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    answer = await api.post(f"{path}/compile:diff", {"a": a, "b": b})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_comparison_names_the_event_that_made_the_difference(api: Api) -> None:
    path = await talk(api)
    summary = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "in brief"}
    fold = (await api.post(f"{path}/summaries", summary)).json()
    body = await compared(api, path, {"as_of_seq": 3}, {})
    assert body["same"] is False
    assert body["first_block"] == 0
    assert body["cause"] == {"reason": "compaction", "seq": fold["seq"]}
    a, b = body["tokens"]["a"], body["tokens"]["b"]
    assert body["text"] == (
        "From content 0 on the two differ: a compaction (event 4) took effect."
        ' There a has the text "hello" (event 1), b has the summary "in brief" (event 4).'
        f" a takes {a} tokens, b {b} ({a - b} fewer)."
    )
    assert body["price"] == {"a": None, "b": None, "currency": "USD"}


async def test_a_comparison_says_what_either_costs_with_the_provider_s_cache(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("Where is it? " * 3000))
    options = {"agent": "agent", "format": "anthropic", "model": "claude-sonnet-5"}
    sent = await compiled(api, path, **options)
    reply = model("b", compiled_seq=1, compiled_fingerprint=sent["fingerprint"])
    await api.append(path, reply, user("and?"))
    fold = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "The user asked where it is."}
    await api.post(f"{path}/summaries", fold)
    body = await compared(api, path, {**options, "as_of_seq": 3}, options)
    tokens, shared = body["tokens"], sent["tokens"]["total"]
    # Sonnet 5: 0.2 dollars a million from the cache, 2.5 written to it.
    expected = (shared * 0.2 + (tokens["a"] - shared) * 2.5) / 1e6
    assert body["price"]["a"] == pytest.approx(expected, rel=1e-3)
    assert body["price"]["b"] == pytest.approx(tokens["b"] * 2.5 / 1e6)
    assert body["text"].endswith(f"b {body['price']['b']:.6f}.")


@pytest.mark.parametrize(
    ("a", "b", "cause", "words"),
    [
        (
            {"format": "gemini", "model": "m"},
            {"format": "anthropic", "model": "m"},
            "option",
            "The two are written in different formats, gemini and anthropic",
        ),
        ({"model": "m"}, {"model": "n"}, "model", "The two are for different models, m and n"),
        ({}, {"model": "n"}, "model", "one that is not named and n"),
        (
            {"system": "You help customers."},
            {"system": "You help lions."},
            "system",
            'a has "You help customers.", b has "You help lions."',
        ),
        ({}, {"system": "You help."}, "system", 'a has none, b has "You help."'),
        (
            {"tools": [{"name": "f"}, {"name": "g"}]},
            {"tools": [{"name": "g"}, {"name": "h"}]},
            "tools",
            "only a has f; only b has h",
        ),
        (
            {"tools": [{"name": "f"}]},
            {"tools": [{"name": "f", "description": "d"}]},
            "tools",
            "the same names, described or ordered differently",
        ),
        ({}, {"agent": "somebody"}, "option", "their options differ (agent, branch or scope)"),
        ({"as_of_seq": 2}, {}, "append", "one has what was appended later (from event 3 on)"),
    ],
)
async def test_a_comparison_is_told_in_words(
    api: Api, a: dict[str, Any], b: dict[str, Any], cause: str, words: str
) -> None:
    body = await compared(api, await talk(api), a, b)
    assert body["cause"]["reason"] == cause
    assert words in body["text"]


async def test_a_comparison_names_options_and_appends(api: Api) -> None:
    path = await talk(api)

    async def cause(a: dict[str, Any], b: dict[str, Any]) -> Any:
        return (await api.post(f"{path}/compile:diff", {"a": a, "b": b})).json()["cause"]

    assert await cause({}, {"system": "x"}) == {"reason": "system", "seq": None}
    assert await cause({}, {"agent": "somebody"}) == {"reason": "option", "seq": None}
    assert await cause({"as_of_seq": 2}, {}) == {"reason": "append", "seq": 3}


async def test_a_wrong_side_of_a_comparison_is_named(api: Api) -> None:
    path = await talk(api)
    for a, b, pointer in [
        ({}, {"format": "x"}, "/b/format"),
        ({}, {"as_of_seq": 9}, "/b/as_of_seq"),
        ({"expand": [1]}, {}, "/a/expand/0"),
        ({"tools": [{"description": "d"}]}, {}, "/a/tools/0/name"),
        ({}, {"cache": {"explicit": {}}}, "/b/model"),
    ]:
        answer = await api.post(f"{path}/compile:diff", {"a": a, "b": b})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


# Validate and count


async def test_validate_names_the_broken_rule_and_the_place(api: Api) -> None:
    messages = [{"role": "tool", "tool_call_id": "c1", "content": "x"}]
    body = {"format": "openai_chat", "request": {"messages": messages}}
    answer = (await api.post("/v1/validate", body)).json()
    assert answer["valid"] is False
    assert answer["violations"][0]["path"].startswith("/messages")


MODEL: Final = "claude-opus-5"


async def count(api: Api, text: str) -> int:
    """Return our own count of a text."""
    answer = await api.post("/v1/tokens", {"text": text})
    tokens: int = answer.json()["tokens"]
    return tokens


async def test_tokens_of_texts_and_contents_are_counted(api: Api) -> None:
    text = (await api.post("/v1/tokens", {"text": "hello world"})).json()
    assert text == {"tokens": 2, "method": "o200k_base"}
    body = {"format": "openai_chat", "contents": [{"role": "user", "content": "hello world"}]}
    contents = (await api.post("/v1/tokens", body)).json()
    assert contents["tokens"] > 2
    # As the rule of the model assumes: its tokenizer gives half as many again, an image what it
    # says.
    of_model = (await api.post("/v1/tokens", {"text": "hello " * 1_000, "model": MODEL})).json()
    assert of_model["tokens"] == -(-await count(api, "hello " * 1_000) * 3 // 2)
    data_url = f"data:image/png;base64,{png(1_500, 1_000)}"
    picture = [{"type": "image_url", "image_url": {"url": data_url}}]
    body = {"format": "openai_chat", "contents": [{"role": "user", "content": picture}]}
    assert (
        2_000 <= (await api.post("/v1/tokens", {**body, "model": MODEL})).json()["tokens"] < 2_010
    )
    wrong = {"format": "openai_chat", "contents": [{"role": "nobody"}]}
    answer = await api.post("/v1/tokens", wrong)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (
        422,
        "/contents/0/role",
    )
    assert (await api.post("/v1/tokens", {})).status_code == 422


@pytest.mark.parametrize("name", FORMATS)
async def test_verified_compiles_answer_as_ever(database_url: str, name: str) -> None:
    async with client_of(settings_for(database_url, verify_compile=True)) as client:
        api = Api(client)
        path = await api.session()
        await api.append(path, model("first"), call("f", "c1"), call("f", "c1"), user("y"))
        await compiled(api, path, agent="agent", format=name)


# Budget


async def test_a_compile_fits_its_budget_and_says_what_was_cut(api: Api) -> None:
    path = await api.session()
    result = response("read", "c", {"text": "word " * 2_000})
    await api.append(
        path, user("read it"), call("read", "c"), result, model("done"), user("and now?")
    )
    answer = await compiled(api, path, agent="agent", budget={"max_input_tokens": 500})
    assert answer["budget"]["limit"] == 500
    assert answer["budget"]["used"] == answer["tokens"]["total"] <= 500
    assert [cut["action"] for cut in answer["budget"]["actions"]] == ["stubbed"]
    assert [cut["seq"] for cut in answer["budget"]["actions"]] == [3]


async def seven_turns(api: Api) -> str:
    """Return a session of 7 turns of some 60 tokens each, and a question."""
    path = await api.session()
    for number in range(7):
        await api.append(path, user(f"{number} " + "word " * 50), model("so it is " * 5))
    await api.append(path, user("and now?"))
    return path


async def test_a_budget_uses_staged_folds_and_says_what_they_save(api: Api) -> None:
    path = await seven_turns(api)
    body = {"covers": {"from_seq": 1, "to_seq": 10}, "content": "brief", "activation": "staged"}
    assert (await api.post(f"{path}/summaries", body)).status_code == 201
    whole = (await compiled(api, path, agent="agent"))["tokens"]["total"]

    answer = await compiled(
        api, path, agent="agent", budget={"max_input_tokens": whole // 2}, explain=True
    )

    (used,) = answer["budget"]["actions"]
    saved = whole - answer["budget"]["used"]
    assert (used["action"], used["seq"], used["tokens"]) == ("staged_fold", 16, saved)
    row = next(row for row in answer["events"] if row["from_seq"] == 1)
    assert (row["to_seq"], row["action"], row["by_seq"]) == (10, "masked", 16)
    # In this answer alone.
    assert (await compiled(api, path, agent="agent"))["tokens"]["total"] == whole


async def test_what_is_expanded_stays_open_beside_staged_folds_that_a_budget_uses(
    api: Api,
) -> None:
    path = await seven_turns(api)
    for covers, more in (((1, 2), {}), ((5, 14), {"activation": "staged"})):
        span = {"from_seq": covers[0], "to_seq": covers[1]}
        body = {"covers": span, "content": f"brief of {covers[0]}", **more}
        assert (await api.post(f"{path}/summaries", body)).status_code == 201

    answer = await compiled(api, path, agent="agent", budget={"max_input_tokens": 250}, expand=[16])

    assert [used["action"] for used in answer["budget"]["actions"]] == ["staged_fold"]
    texts = json.dumps(answer["request"])
    assert '"0 word' in texts
    assert "brief of 5" in texts
    assert "brief of 1" not in texts


async def test_what_a_budget_drops_is_told_by_the_newest_event_of_it(api: Api) -> None:
    path = await seven_turns(api)
    body = {"covers": {"from_seq": 1, "to_seq": 4}, "content": "brief"}
    assert (await api.post(f"{path}/summaries", body)).status_code == 201

    answer = await compiled(api, path, agent="agent", budget={"max_input_tokens": 200})

    (cut,) = answer["budget"]["actions"]
    assert cut["action"] == "dropped"
    assert 5 <= cut["seq"] <= 14
    texts = json.dumps(answer["request"])
    assert "brief" in texts
    assert f'"{cut["seq"] // 2} word' in texts


async def test_what_cannot_be_cut_is_refused_with_the_tokens_of_each_segment(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("word " * 200))
    body = {"agent": "agent", "budget": {"max_input_tokens": 50}}
    answer = await api.post(f"{path}/compile", body)
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["code"] == "over_budget"
    assert problem["segment"] == "history"
    assert problem["by_segment"]["history"] == problem["required_tokens"] > 50


async def test_a_reserve_alone_is_taken_off_the_model_s_window(api: Api) -> None:
    path = await talk(api)
    limits = []
    for budget in (None, {}, {"reserve_output_tokens": 1_000}, {"max_input_tokens": 9_000}):
        answer = await compiled(api, path, agent="agent", model="gpt-4o", budget=budget)
        limits.append(answer["budget"]["limit"])
    assert limits == [128_000 - 16_384, 128_000 - 16_384, 127_000, 9_000]
    unknown = {"reserve_output_tokens": 1_000}
    answer = await compiled(api, path, agent="agent", model="mine", budget=unknown)
    assert (answer["budget"]["limit"], answer["warnings"]) == (None, ["unknown_window"])
    body = {"agent": "agent", "model": "gpt-4o", "budget": {"reserve_output_tokens": 128_000}}
    refused = await api.post(f"{path}/compile", body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/budget/reserve_output_tokens"


async def test_a_scope_that_is_stored_can_be_read(api: Api) -> None:
    path, scope = await api.session(), "s" * 1_024
    await api.append(path, user("within", isolation_scope=scope))
    answer = await compiled(api, path, isolation_scope=scope)
    assert answer["request"]["contents"] == [{"role": "user", "parts": [{"text": "within"}]}]
    reader = {"isolation_scope": scope}
    found = await api.post(f"{path}/recall", {"query": "within", "reader": reader})
    assert [hit["seq"] for hit in found.json()["hits"]] == [1]
    listed = await api.get(f"{path}/events?reader.isolation_scope={scope}")
    assert len(listed.json()["data"]) == 1


async def test_a_reserve_that_leaves_nothing_is_refused(api: Api) -> None:
    path = await api.session()
    body = {"budget": {"max_input_tokens": 50, "reserve_output_tokens": 50}}
    answer = await api.post(f"{path}/compile", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/budget/reserve_output_tokens"
