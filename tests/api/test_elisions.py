"""Elisions over HTTP: bodies give way to stubs, and come back."""

from typing import Any

import pytest

from tests.api.conftest import Api, call, model, response, user

LONG = "a long line of a log " * 50
STUB = "[1050 characters left out: expand seq 3 to read them]"


async def session(api: Api) -> str:
    """Make a session with a long result at seq 3."""
    path = await api.session()
    await api.append(
        path, user("read it"), call("read", "c1"), response("read", "c1", LONG), model("done")
    )
    return path


async def compiled(api: Api, path: str, **fields: Any) -> dict[str, Any]:
    """Compile for OpenAI and return the answer."""
    body = {"agent": "agent", "format": "openai_chat", **fields}
    answer = await api.post(f"{path}/compile", body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def result(body: dict[str, Any]) -> str:
    """Return the text of the tool's message."""
    text: str = next(m["content"] for m in body["request"]["messages"] if m["role"] == "tool")
    return text


async def test_an_elided_result_is_a_stub_until_it_is_undone(api: Api) -> None:
    path = await session(api)
    whole = await compiled(api, path)
    answer = await api.post(f"{path}/elisions", {"seqs": [3]})
    assert (answer.status_code, answer.headers["ETag"]) == (201, '"5"')
    marker = answer.json()
    assert (marker["seq"], marker["status"]) == (5, "marker")
    assert marker["actions"]["elision"] == {"seqs": [3], "keep_chars": 0}

    short = await compiled(api, path)
    assert result(short) == STUB
    assert short["tokens"]["total"] < whole["tokens"]["total"]

    undone = await api.post(f"{path}/elisions/5/undo")
    assert (undone.status_code, undone.json()["seq"]) == (201, 6)
    assert (await compiled(api, path))["request"] == whole["request"]
    assert result(await compiled(api, path, as_of_seq=5)) == STUB
    assert (await compiled(api, path, as_of_seq=4))["request"] == whole["request"]


async def test_what_is_elided_already_is_answered_and_not_elided_again(api: Api) -> None:
    path = await session(api)
    body = {"seqs": [3], "keep_chars": 6}
    first = await api.post(f"{path}/elisions", body)
    again = await api.post(f"{path}/elisions", body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    # More of it, or another event beside it, is something new.
    for new in ({**body, "keep_chars": 7}, {"seqs": [3, 4], "keep_chars": 7}):
        assert (await api.post(f"{path}/elisions", new)).status_code == 201
    undone = [await api.post(f"{path}/elisions/7/undo") for _ in range(2)]
    assert [answer.status_code for answer in undone] == [201, 200]
    assert (await api.get(path)).json()["head_seq"] == 8


async def test_a_marker_cannot_be_elided_or_pinned_and_is_named_for_what_it_is(api: Api) -> None:
    path = await session(api)
    await api.post(f"{path}/elisions", {"seqs": [3]})
    for kind in ("elisions", "pins"):
        answer = await api.post(f"{path}/{kind}", {"seqs": [5]})
        assert answer.status_code == 422
        assert "seq 5 is a marker (elision)" in answer.json()["detail"]


async def test_the_log_keeps_the_body_and_a_search_finds_it(api: Api) -> None:
    path = await session(api)
    await api.post(f"{path}/elisions", {"seqs": [3], "keep_chars": 6})
    assert result(await compiled(api, path)).startswith("a long\n[1044 characters")
    event = (await api.get(f"{path}/events/3")).json()
    assert event["status"] == "live"
    assert LONG in str(event)
    hits = (await api.post(f"{path}/recall", {"query": "line of a log"})).json()["hits"]
    assert [hit["seq"] for hit in hits] == [3]
    opened = (await api.post(f"{path}/expand", {"from_seq": 3, "to_seq": 3})).json()
    assert LONG in str(opened["events"])


async def test_explain_and_the_cache_name_the_elision(api: Api) -> None:
    path = await session(api)
    before = await compiled(api, path)
    reply = model(
        "more",
        compiled_seq=before["compiled_seq"],
        compiled_fingerprint=before["fingerprint"],
    )
    await api.append(path, reply, user("go on"))
    await api.post(f"{path}/elisions", {"seqs": [3]})
    after = await compiled(api, path, explain=True)
    assert after["cache"]["break_reason"] == "elision"
    assert after["cache"]["break_seq"] == 7
    rows = {row["seq"]: row for row in after["events"] if "seq" in row}
    assert (rows[3]["action"], rows[3]["pass"], rows[3]["by_seq"]) == ("stubbed", "elision", 7)


async def test_a_compile_may_expand_an_elision(api: Api) -> None:
    path = await session(api)
    whole = await compiled(api, path)
    await api.post(f"{path}/elisions", {"seqs": [3]})
    assert (await compiled(api, path, expand=[5]))["request"] == whole["request"]


async def test_what_cannot_be_elided_is_refused_whole(api: Api) -> None:
    path = await session(api)
    await api.post(f"{path}/pins", {"seqs": [1]})
    wrong: list[tuple[list[int], str]] = [
        ([3, 1], "/seqs/1"),
        ([3, 5], "/seqs/1"),
        ([3, 99], "/seqs/1"),
        ([], "/seqs"),
        ([0], "/seqs/0"),
    ]
    for seqs, pointer in wrong:
        answer = await api.post(f"{path}/elisions", {"seqs": seqs})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert await api.head_seq(path) == 5


@pytest.mark.parametrize(
    ("body", "keep_chars"),
    [
        ("y" * 445, 400),
        ('a"b\n' * 105, 400),
        ('{"k":"v"},\n' * 430, 4_600),
        ("y" * 50, 0),
        # Fewer characters, and no fewer tokens.
        (" " * 1_000, 0),
    ],
)
@pytest.mark.parametrize("format_name", ["gemini", "openai_chat", "anthropic"])
async def test_an_elision_never_makes_a_request_larger(
    api: Api, body: str, keep_chars: int, format_name: str
) -> None:
    path = await api.session()
    said = response("read", "c1", {"r": body})
    await api.append(path, user("read it"), call("read", "c1"), said, model("done"))
    whole = await compiled(api, path, format=format_name)

    answer = await api.post(f"{path}/elisions", {"seqs": [3], "keep_chars": keep_chars})

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/seqs")
    assert (await compiled(api, path, format=format_name))["request"] == whole["request"]


async def test_what_is_as_short_as_its_stub_is_not_elided(api: Api) -> None:
    path = await session(api)
    for body in ({"seqs": [1, 4]}, {"seqs": [2]}, {"seqs": [3], "keep_chars": 1040}):
        answer = await api.post(f"{path}/elisions", body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/seqs")
        assert "nothing is left out" in answer.json()["detail"]
    assert await api.head_seq(path) == 4
    # One body that gives way is enough; the short ones beside it stay as they are.
    assert (await api.post(f"{path}/elisions", {"seqs": [1, 3]})).status_code == 201


async def test_an_elision_that_keeps_all_brings_the_body_back(api: Api) -> None:
    path = await session(api)
    whole = await compiled(api, path)
    await api.post(f"{path}/elisions", {"seqs": [3]})
    kept = await api.post(f"{path}/elisions", {"seqs": [3], "keep_chars": len(LONG)})
    assert kept.status_code == 201
    assert (await compiled(api, path))["request"] == whole["request"]


async def test_only_an_elision_is_undone_there(api: Api) -> None:
    path = await session(api)
    await api.post(f"{path}/pins", {"seqs": [1]})
    for seq in (1, 5, 77):
        assert (await api.post(f"{path}/elisions/{seq}/undo")).status_code == 404
    assert (await api.post("/v1/sessions/none/elisions/1/undo")).status_code == 404
    assert (await api.post("/v1/sessions/none/elisions", {"seqs": [1]})).status_code == 404


async def test_an_elision_is_conditional_and_idempotent(api: Api) -> None:
    path = await session(api)
    stale = await api.post(f"{path}/elisions", {"seqs": [3], "expected_seq": 3})
    assert stale.status_code == 412
    headers = {"Idempotency-Key": "once"}
    first = await api.post(f"{path}/elisions", {"seqs": [3]}, headers=headers)
    again = await api.post(f"{path}/elisions", {"seqs": [3]}, headers=headers)
    assert (first.json(), again.headers["Idempotent-Replayed"]) == (again.json(), "true")
    assert await api.head_seq(path) == 5


async def test_a_caller_cannot_write_the_marker_itself(api: Api) -> None:
    path = await session(api)
    event = {"author": "user", "actions": {"elision": {"seqs": [3]}}}
    answer = await api.post(f"{path}/events", {"events": [event]})
    assert answer.status_code == 422
