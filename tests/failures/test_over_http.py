"""What other session services lost, mixed up or mistook, asked of this one over HTTP."""

from typing import Any

from tests.api.conftest import Api, call, client_of, model, response, settings_for, user


async def events_of(api: Api, path: str, query: str = "") -> list[dict[str, Any]]:
    answer = await api.get(f"{path}/events?{query}")
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


async def compiled(api: Api, path: str, **fields: Any) -> dict[str, Any]:
    answer = await api.post(f"{path}/compile", {"agent": "agent", "format": "anthropic", **fields})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_events_are_read_in_the_order_in_which_they_were_appended(api: Api) -> None:
    # adk-python#453, #6272: events of one second were read back in the order of their ids.
    path = await api.session()
    await api.append(path, user("first", id="z1", timestamp=100))
    await api.append(path, user("second", id="y2", timestamp=100))
    await api.append(path, user("third", id="x3", timestamp=50))

    assert [event["id"] for event in await events_of(api, path)] == ["z1", "y2", "x3"]


async def test_after_a_time_includes_it_and_the_newest_are_the_newest(api: Api) -> None:
    # adk-python#911
    path = await api.session()
    await api.append(path, *(user(str(n), id=f"e{n}", timestamp=n) for n in (1, 2, 3)))

    assert [event["id"] for event in await events_of(api, path, "after_time=2")] == ["e2", "e3"]
    assert [event["id"] for event in await events_of(api, path, "last=2")] == ["e2", "e3"]


async def test_same_event_id_in_two_sessions_is_two_events(api: Api) -> None:
    # adk-python#1341: events were looked up by session id alone.
    one, other = await api.session(), await api.session()
    await api.append(one, user("of one", id="e1"))
    answer = await api.append(other, user("of the other", id="e1"))

    assert answer["appended"][0]["duplicate"] is False
    (event,) = await events_of(api, other)
    assert event["content"]["parts"] == [{"text": "of the other"}]


async def test_writer_that_has_not_seen_the_newest_event_is_told(api: Api) -> None:
    # adk-python#4751: reload and continue corrupted concurrent runs.
    path = await api.session()
    await api.append(path, user("a"))
    etag = (await api.get(path)).headers["etag"]
    by_a = await api.post(f"{path}/events", {"events": [user("by a")]}, headers={"If-Match": etag})
    by_b = await api.post(f"{path}/events", {"events": [user("by b")]}, headers={"If-Match": etag})

    assert (by_a.status_code, by_b.status_code) == (201, 412)
    assert by_b.json()["code"] == "head_moved"
    assert by_b.json()["head_seq"] == 2


async def test_stale_writer_is_found_even_when_the_clock_stands(api: Api) -> None:
    # adk-python, reproduced: an event with the session's own update time left the marker unchanged.
    path = await api.session()
    await api.append(path, user("a", timestamp=100))
    await api.append(path, user("b", timestamp=100))
    answer = await api.post(
        f"{path}/events", {"events": [user("c", timestamp=100)], "expected_seq": 1}
    )

    assert answer.status_code == 412


async def test_fold_in_mid_workflow_does_not_refuse_the_answer(api: Api) -> None:
    # adk-python#6691
    path = await api.session()
    await api.append(path, user("a", invocation_id="i1", branch="wf"))
    first = model("b", author="a1", invocation_id="i1", branch="wf.a1")
    await api.append(path, first)
    body = {"covers": {"from_seq": 1, "to_seq": 1}, "content": "They began.", "branch": "wf"}
    assert (await api.post(f"{path}/summaries", body)).status_code == 201

    second = model("c", author="a2", invocation_id="i1", branch="wf.a2", compiled_seq=2)
    answer = await api.append(path, second, expected_seq=2)
    assert answer["head_seq"] == 4

    # What somebody said is not passed over, nor is any other marker.
    for between in (user("wait"), None):
        head_seq = (await api.get(path)).json()["head_seq"]
        if between is not None:
            await api.append(path, between)
        else:
            await api.post(f"{path}/pins", {"seqs": [2]})
        late = {"events": [model("d")], "expected_seq": head_seq}
        assert (await api.post(f"{path}/events", late)).status_code == 412


async def test_repeating_an_append_after_a_lost_answer_stores_nothing_twice(api: Api) -> None:
    path = await api.session()
    batch = [user("a", id="e1"), model("b", id="e2")]
    first = await api.append(path, *batch, expected_seq=0)
    again = await api.append(path, *batch, expected_seq=0)

    assert [item["seq"] for item in again["appended"]] == [1, 2]
    assert [item["duplicate"] for item in again["appended"]] == [True, True]
    assert again["head_seq"] == first["head_seq"] == 2


async def test_state_given_at_creation_survives_a_rewind(api: Api) -> None:
    # adk-python#4933
    path = await api.session(user_id="state_given_at_creation_survives_a_", state={"tenant": 1})
    delta = {"actions": {"state_delta": {"step": 1}}}
    await api.append(path, user("a", invocation_id="i1", **delta))
    await api.post(f"{path}/rewind", {"before_invocation_id": "i1"})

    assert (await api.get(f"{path}/state")).json() == {"tenant": 1}


async def test_undo_of_a_rewind_brings_the_state_back(api: Api) -> None:
    path = await api.session(user_id="undo_of_a_rewind_brings_the_state_b", state={"tenant": 1})
    for number in (1, 2):
        delta = {"actions": {"state_delta": {"step": number}}}
        await api.append(path, user("a", invocation_id=f"i{number}", **delta))
    marker = (await api.post(f"{path}/rewind", {"before_invocation_id": "i2"})).json()
    assert (await api.get(f"{path}/state")).json() == {"tenant": 1, "step": 1}

    answer = await api.post(f"{path}/compactions/{marker['seq']}/undo")
    assert answer.status_code == 201, answer.text
    assert (await api.get(f"{path}/state")).json() == {"tenant": 1, "step": 2}


async def test_temporary_state_does_not_come_back_with_a_rewind(api: Api) -> None:
    path = await api.session(user_id="temporary_state_does_not_come_back_")
    delta = {"actions": {"state_delta": {"temp:scratch": 1, "step": 1}}}
    await api.append(path, user("a", invocation_id="i1", **delta))
    await api.append(path, user("b", invocation_id="i2"))
    await api.post(f"{path}/rewind", {"before_invocation_id": "i2"})

    assert (await api.get(f"{path}/state")).json() == {"step": 1}


async def test_rewound_events_are_told_from_live_ones(api: Api) -> None:
    # adk-python#4959: rewound ghosts stood among the events of the session.
    path = await api.session()
    for number in (1, 2):
        turn = {"invocation_id": f"i{number}"}
        await api.append(path, user(f"u{number}", **turn), model(f"m{number}", **turn))
    await api.post(f"{path}/rewind", {"before_invocation_id": "i2"})
    await api.append(path, user("u3", invocation_id="i3"))

    live = await events_of(api, path, "status=live")
    assert [event["invocation_id"] for event in live] == ["i1", "i1", "i3"]
    assert [event["status"] for event in await events_of(api, path)] == [
        "live",
        "live",
        "rewound",
        "rewound",
        "marker",
        "live",
    ]


async def test_partial_events_are_never_stored(api: Api) -> None:
    # adk-python#4609
    path = await api.session()
    answer = await api.append(
        path, call("search", "adk-1") | {"partial": True}, call("search", "adk-2")
    )

    assert [item["seq"] for item in answer["appended"]] == [None, 1]
    assert await api.head_seq(path) == 1


async def test_orphan_is_stored_as_sent_and_reported_at_every_compile(api: Api) -> None:
    # adk-python#6582: the session could never be used again.
    path = await api.session()
    await api.append(path, user("a"), response("search", "orphan-1"), user("b"))

    for _ in range(2):
        body = await compiled(api, path)
        assert [repair["rule"] for repair in body["repairs"]] == ["orphan_result"]
    assert (await events_of(api, path))[1]["content"]["parts"][0]["function_response"]["id"] == (
        "orphan-1"
    )


async def test_summary_holds_no_calls(api: Api) -> None:
    # strands#1160: a call ended up inside the user's summary.
    path = await api.session()
    await api.append(path, user("a"), model("b"))
    parts = [{"text": "s"}, {"function_call": {"id": "c", "name": "t", "args": {}}}]
    answer = await api.post(
        f"{path}/summaries",
        {"covers": {"from_seq": 1, "to_seq": 2}, "content": {"role": "user", "parts": parts}},
    )

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/content/parts/1"
    assert await api.head_seq(path) == 2


async def test_pin_and_fold_are_there_for_the_next_process(api: Api, database_url: str) -> None:
    # strands#4088, #4270: pins vanished on restore, and every process summarised again.
    path = await api.session()
    await api.append(path, *(user(f"u{n}") for n in range(1, 7)))
    assert (await api.post(f"{path}/pins", {"seqs": [2]})).status_code == 201
    body = {"covers": {"from_seq": 1, "to_seq": 4}, "content": "Four things were said."}
    assert (await api.post(f"{path}/summaries", body)).status_code == 201
    here = await compiled(api, path)

    async with client_of(settings_for(database_url)) as client:
        there = await compiled(Api(client), path)

    assert there["fingerprint"] == here["fingerprint"]
    assert there["request"] == here["request"]
    texts = [block["text"] for block in here["request"]["messages"][0]["content"]]
    assert texts == ["Four things were said.", "u2", "u5", "u6"]


async def test_session_killed_on_an_open_call_compiles(api: Api) -> None:
    # strands#2025, openclaw#19048
    path = await api.session()
    await api.append(path, user("a"), call("search", "c1"), user("are you there?"))
    body = await compiled(api, path)

    assert [item["call_id"] for item in body["pending"]] == ["c1"]
    validated = await api.post(
        "/v1/validate",
        {"format": "anthropic", "model": "claude-opus-5", "request": body["request"]},
    )
    assert validated.json() == {"valid": True, "violations": []}
