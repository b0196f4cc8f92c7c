"""Pins, summaries, undo, activation, over HTTP."""

import json
from typing import Any

import pytest

from tests.api.conftest import Api, call, model, response, user


async def texts(api: Api, path: str, **fields: Any) -> list[str]:
    """Return the texts that a compile sends."""
    body = (await api.post(f"{path}/compile", {"format": "native", **fields})).json()
    return [part.get("text", "") for turn in body["request"]["contents"] for part in turn["parts"]]


async def four(api: Api) -> str:
    path = await api.session()
    await api.append(path, user("a"), model("b"), user("c"), model("d"))
    return path


async def fold(api: Api, path: str, **fields: Any) -> dict[str, Any]:
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "in brief", **fields}
    answer = await api.post(f"{path}/summaries", body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    del found["warnings"]
    return found


async def test_a_summary_that_saves_nothing_is_taken_with_a_warning(api: Api) -> None:
    path = await four(api)
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "much more than was said " * 9}
    answer = await api.post(f"{path}/summaries", body)

    assert answer.status_code == 201
    found = answer.json()
    assert found["tokens_after"] > found["tokens_before"]
    (warning,) = found["warnings"]
    assert warning["pointer"] == "/content"
    assert (
        f"{found['tokens_after']} tokens in place of {found['tokens_before']}" in warning["detail"]
    )
    assert (await texts(api, path))[0].startswith("much more")


async def test_a_summary_is_compared_with_what_is_read_in_its_place(api: Api) -> None:
    path = await api.session()
    await api.append(path, *(user(f"m{number} " * 200) for number in range(4)))
    covers = {"from_seq": 1, "to_seq": 4}
    wordy = "long again " * 300
    staged = {"covers": covers, "content": wordy, "activation": "staged"}

    first = await api.post(f"{path}/summaries", {"covers": covers, "content": "short"})
    longer = await api.post(f"{path}/summaries", {"covers": covers, "content": wordy})
    shorter = await api.post(f"{path}/summaries", {"covers": covers, "content": "short again"})
    later = await api.post(f"{path}/summaries", staged)

    assert (first.json()["warnings"], shorter.json()["warnings"]) == ([], [])
    for answer, before in ((longer, first), (later, shorter)):
        found = answer.json()
        assert found["tokens_after"] < found["tokens_before"]
        (warning,) = found["warnings"]
        tokens = f"{found['tokens_after']} tokens in place of {before.json()['tokens_after']}"
        assert tokens in warning["detail"]


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        ("in\x00 brief", "/content"),
        ("in\ud800 brief", "/content"),
        ({"parts": [{"text": "in\x00 brief"}]}, "/content/parts/0/text"),
        ({"role": "model", "parts": [{"text": "in brief"}]}, "/content/role"),
        ({"role": "assistant", "parts": [{"text": "in brief"}]}, "/content/role"),
        ({"role": "system", "parts": [{"text": "in brief"}]}, "/content/role"),
    ],
)
async def test_what_is_changed_of_a_summary_is_told(
    api: Api, content: str | dict[str, Any], pointer: str
) -> None:
    path = await api.session()
    await api.append(path, user("a " * 200), model("b " * 200))
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": content}

    found = (await api.post(f"{path}/summaries", json.dumps(body).encode())).json()

    assert [warning["pointer"] for warning in found["warnings"]] == [pointer]
    assert found["sections"][0]["content"]["role"] == "user"


async def test_what_is_undone_or_active_already_is_answered_and_not_done_again(api: Api) -> None:
    path = await four(api)
    await fold(api, path, activation="staged")
    for action, seq in (("activate", 6), ("undo", 7)):
        first = await api.post(f"{path}/compactions/5/{action}")
        again = await api.post(f"{path}/compactions/5/{action}")
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json() == again.json()
        assert (again.json()["seq"], again.headers["ETag"]) == (seq, f'"{seq}"')
    # An undo that was undone itself has no effect, so it can be done again.
    await api.post(f"{path}/compactions/7/undo")
    third = await api.post(f"{path}/compactions/5/undo")
    assert (third.status_code, third.json()["seq"]) == (201, 9)


async def test_a_caller_s_summary_stands_for_what_it_covers(api: Api) -> None:
    path = await four(api)
    found = await fold(api, path)
    assert found["seq"] == 5
    assert (found["covers"], found["holes"], found["status"]) == ([[1, 2]], [], "active")
    assert found["tokens_before"] > 0
    assert found["tokens_after"] > 0
    section = found["sections"][0]
    assert section["lane"] == {"isolation_scope": None, "branch": ""}
    assert section["content"]["parts"] == [{"text": "in brief"}]
    assert section["status"] == "active"
    assert await texts(api, path) == ["in brief", "c", "d"]
    assert (await api.get(f"{path}/compactions/5")).json() == found
    listed = (await api.get(f"{path}/compactions")).json()
    assert (listed["data"], listed["has_more"]) == ([found], False)
    stats = (await api.get(path)).json()["stats"]
    assert (stats["events"], stats["live_events"], stats["compactions"]) == (5, 2, 1)


async def test_a_summary_can_cover_single_seqs(api: Api) -> None:
    path = await four(api)
    body = {"seqs": [1, 3], "content": {"parts": [{"text": "a and c"}]}}
    found = (await api.post(f"{path}/summaries", body)).json()
    assert (found["covers"], found["holes"]) == ([[1, 1], [3, 3]], [[2, 2]])
    assert await texts(api, path) == ["a and c", "b", "d"]


async def test_a_summary_of_one_branch_leaves_others_live(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("u"), model("x", branch="root.a"), model("y", branch="root.b"))
    body = {"covers": {"from_seq": 1, "to_seq": 3}, "content": "s", "branch": "root.a"}
    found = (await api.post(f"{path}/summaries", body)).json()
    assert (found["covers"], found["holes"]) == ([[2, 2]], [[1, 1], [3, 3]])


async def test_undo_brings_the_originals_back(api: Api) -> None:
    path = await four(api)
    found = await fold(api, path)
    answer = await api.post(f"{path}/compactions/{found['seq']}/undo")
    assert (answer.status_code, answer.json()["status"]) == (201, "marker")
    assert await texts(api, path) == ["a", "b", "c", "d"]
    assert (await api.get(f"{path}/compactions/5")).json()["status"] == "undone"


async def test_a_staged_fold_waits_for_its_activation(api: Api) -> None:
    path = await four(api)
    found = await fold(api, path, activation="staged")
    assert found["status"] == "staged"
    assert await texts(api, path) == ["a", "b", "c", "d"]
    assert (await api.post(f"{path}/compactions/5/activate")).status_code == 201
    assert await texts(api, path) == ["in brief", "c", "d"]
    again = await fold(api, path, covers={"from_seq": 3, "to_seq": 4})
    answer = await api.post(f"{path}/compactions/{again['seq']}/activate")
    assert answer.status_code == 422


async def test_an_undone_fold_is_not_activated_again(api: Api) -> None:
    path = await four(api)
    found = await fold(api, path, activation="staged")
    assert (await api.post(f"{path}/compactions/{found['seq']}/activate")).status_code == 201
    assert (await api.post(f"{path}/compactions/{found['seq']}/undo")).status_code == 201

    answer = await api.post(f"{path}/compactions/{found['seq']}/activate")

    assert answer.status_code == 422
    assert "undone" in answer.json()["errors"][0]["detail"]
    assert await texts(api, path) == ["a", "b", "c", "d"]


async def test_an_undone_fold_is_no_child(api: Api) -> None:
    path = await four(api)
    small = await fold(api, path)
    await api.post(f"{path}/compactions/{small['seq']}/undo")
    large = await fold(api, path, covers={"from_seq": 1, "to_seq": 4}, content="all")
    assert large["children"] == []


async def test_a_larger_fold_supersedes_and_its_undo_restores(api: Api) -> None:
    path = await four(api)
    small = await fold(api, path)
    large = await fold(api, path, covers={"from_seq": 1, "to_seq": 4}, content="all", level=2)
    assert large["children"] == [small["seq"]]
    assert (await api.get(f"{path}/compactions/{small['seq']}")).json()["status"] == "superseded"
    assert await texts(api, path) == ["all"]
    await api.post(f"{path}/compactions/{large['seq']}/undo")
    assert await texts(api, path) == ["in brief", "c", "d"]


async def test_undo_and_activation_need_a_marker(api: Api) -> None:
    path = await four(api)
    for seq in (1, 99):
        for action in ("undo", "activate"):
            answer = await api.post(f"{path}/compactions/{seq}/{action}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await api.get(f"{path}/compactions/1")).status_code == 404
    assert await api.head_seq(path) == 4


OPAQUE = {"opaque": {"provider": "anthropic", "type": "compaction", "raw": "{}"}}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"content": ""}, "/content"),
        ({"content": "  "}, "/content"),
        ({"content": {"parts": []}}, "/content"),
        ({"content": {"parts": [OPAQUE]}}, "/content/parts/0"),
        (
            {"content": {"parts": [{"text": "x"}, {"function_call": {"name": "f"}}]}},
            "/content/parts/1",
        ),
        ({"content": {"parts": [{"text": "x", "thought": True}]}}, "/content/parts/0"),
        (
            {"content": {"parts": [{"text": "x"}, {"text": "y", "thought": True}]}},
            "/content/parts/1",
        ),
        ({"content": 7}, "/content"),
        ({"covers": {"from_seq": 3, "to_seq": 99}}, "/covers"),
        ({"covers": {"from_seq": 0, "to_seq": 2}}, "/covers/from_seq"),
        ({"covers": {"from_seq": 3, "to_seq": 2}}, "/covers/from_seq"),
        ({"covers": {"from_seq": 1, "to_seq": 2, "x": 1}}, "/covers/x"),
        ({"branch": "nobody.there"}, "/covers"),
        ({"level": 0}, "/level"),
        ({"activation": "later"}, "/activation"),
    ],
)
async def test_a_wrong_summary_is_refused_by_name(
    api: Api, fields: dict[str, Any], pointer: str
) -> None:
    path = await four(api)
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "s", **fields}
    answer = await api.post(f"{path}/summaries", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert await api.head_seq(path) == 4


async def test_a_summary_that_is_too_large_is_refused_by_name(api: Api) -> None:
    path = await four(api)
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "x " * 600_000}

    answer = await api.post(f"{path}/summaries", body)

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/content"]


async def test_an_open_call_is_a_hole(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a"), call("f", "c1"), user("b"))
    found = await fold(api, path, covers={"from_seq": 1, "to_seq": 3})
    assert (found["covers"], found["holes"]) == ([[1, 1], [3, 3]], [[2, 2]])


# Pins


async def test_a_pin_takes_its_whole_call_group(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a"), call("f", "c1"), response("f", "c1"), user("b"))
    answer = await api.post(f"{path}/pins", {"seqs": [3]})
    assert answer.status_code == 201
    pins = answer.json()
    assert [(pin["seq"], pin["marker_seq"]) for pin in pins["pins"]] == [(2, 5), (3, 5)]
    assert pins["tokens"] == sum(pin["tokens"] for pin in pins["pins"])
    assert (await api.get(f"{path}/pins")).json() == pins


async def test_pinned_events_stay_out_of_folds_and_open_older_ones(api: Api) -> None:
    path = await four(api)
    await api.post(f"{path}/pins", {"seqs": [1]})
    found = await fold(api, path)
    assert (found["covers"], found["holes"]) == ([[2, 2]], [[1, 1]])
    await api.post(f"{path}/pins", {"seqs": [2]})
    assert await texts(api, path) == ["a", "b", "c", "d"]


async def test_the_last_turn_and_the_first_events_can_be_pinned(api: Api) -> None:
    path = await four(api)
    last = (await api.post(f"{path}/pins", {"last_turn": True})).json()
    assert [pin["seq"] for pin in last["pins"]] == [3, 4]
    first = (await api.post(f"{path}/pins", {"first": 2})).json()
    assert [pin["seq"] for pin in first["pins"]] == [1, 2, 3, 4]


async def test_unpinned_events_can_be_folded_again(api: Api) -> None:
    path = await four(api)
    await api.post(f"{path}/pins", {"seqs": [1, 2]})
    answer = await api.delete(f"{path}/pins", {"seqs": [1]})
    assert (answer.status_code, [pin["seq"] for pin in answer.json()["pins"]]) == (200, [2])
    answer = await api.delete(f"{path}/pins?seqs=2")
    assert answer.json() == {"pins": [], "tokens": 0}
    assert (await fold(api, path))["covers"] == [[1, 2]]


async def test_pins_above_the_cap_are_refused_whole(api: Api) -> None:
    path = await api.session(policy={"pins": {"max_tokens": 20}})
    await api.append(path, user("short"), user("long " * 50))
    assert (await api.post(f"{path}/pins", {"seqs": [1]})).status_code == 201
    answer = await api.post(f"{path}/pins", {"seqs": [2]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/seqs"
    assert len((await api.get(f"{path}/pins")).json()["pins"]) == 1
    assert await api.head_seq(path) == 3


async def test_the_cap_of_the_app_s_policy_counts(api: Api) -> None:
    name = f"app-{id(api)}"
    await api.put(f"/v1/apps/{name}/policy", {"pins": {"max_tokens": 0}})
    path = await api.session(app_name=name)
    await api.append(path, user("x"))
    assert (await api.post(f"{path}/pins", {"seqs": [1]})).status_code == 422


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"seqs": [99]}, ["/seqs/0"]),
        ({"seqs": [1, 1, 99]}, ["/seqs/2"]),
        ({"seqs": [0]}, ["/seqs/0"]),
        ({"seqs": []}, ["/seqs"]),
        ({"seqs": ["1"]}, ["/seqs/0"]),
        ({}, [""]),
        ({"seqs": [1], "first": 1}, [""]),
        ({"first": 0}, ["/first"]),
    ],
)
async def test_a_wrong_pin_is_refused_by_name(
    api: Api, body: dict[str, Any], pointers: list[str]
) -> None:
    path = await four(api)
    answer = await api.post(f"{path}/pins", body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == pointers
    assert await api.head_seq(path) == 4


async def test_what_is_not_pinned_cannot_be_unpinned(api: Api) -> None:
    path = await four(api)
    answer = await api.delete(f"{path}/pins", {"seqs": [1]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/seqs/0"
