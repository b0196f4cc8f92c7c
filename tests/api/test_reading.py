"""Reading the log back: filters, pages, statuses, readers, invocations, rewinds."""

from typing import Any

import pytest

from tests.api.conftest import Api, call, model, response, user


async def seqs(api: Api, path: str, query: str = "") -> list[int]:
    answer = await api.get(f"{path}/events?{query}")
    assert answer.status_code == 200, answer.text
    return [event["seq"] for event in answer.json()["data"]]


async def a_log(api: Api) -> str:
    """Return a session of three invocations, the first folded, the third rewound."""
    path = await api.session()
    await api.append(
        path,
        user("a", invocation_id="i1", timestamp=100, id="first"),
        model("b", invocation_id="i1", timestamp=101),
        user("c", invocation_id="i2", timestamp=102, branch="root.sub"),
        model("d", invocation_id="i2", timestamp=103),
    )
    body = {"covers": {"from_seq": 1, "to_seq": 2}, "content": "They said a and b."}
    assert (await api.post(f"{path}/summaries", body)).status_code == 201
    await api.append(path, user("e", invocation_id="i3", timestamp=104))
    assert (await api.post(f"{path}/rewind", {"before_invocation_id": "i3"})).status_code == 201
    return path


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [1, 2, 3, 4, 5, 6, 7]),
        ("after_seq=2", [3, 4, 5, 6, 7]),
        ("before_seq=3", [1, 2]),
        ("after_seq=1&before_seq=4", [2, 3]),
        ("last=2", [6, 7]),
        ("last=2&before_seq=5", [3, 4]),
        ("author=agent", [2, 4]),
        ("branch=root.sub", [3]),
        ("invocation_id=i2", [3, 4]),
        ("kind=compaction", [5]),
        ("kind=message&author=user", [1, 3, 6]),
        ("status=live", [3, 4]),
        ("status=masked", [1, 2]),
        ("status=rewound", [6]),
        ("status=marker", [5, 7]),
        ("after_time=103&kind=message", [4, 6]),
        ("after_time=1970-01-01T00:01:43Z&kind=message", [4, 6]),
        ("as_of_seq=4&status=live", [1, 2, 3, 4]),
        ("as_of_seq=6&status=live", [3, 4, 6]),
        ("order=desc&limit=2", [7, 6]),
    ],
)
async def test_events_are_filtered(api: Api, query: str, expected: list[int]) -> None:
    assert await seqs(api, await a_log(api), query) == expected


async def test_an_event_says_what_masks_it(api: Api) -> None:
    path = await a_log(api)
    events = (await api.get(f"{path}/events")).json()["data"]
    assert [(event["status"], event["masked_by"]) for event in events] == [
        ("masked", 5),
        ("masked", 5),
        ("live", None),
        ("live", None),
        ("marker", None),
        ("rewound", None),
        ("marker", None),
    ]


async def test_one_event_is_found_by_seq_and_by_id_even_when_masked(api: Api) -> None:
    path = await a_log(api)
    by_id = (await api.get(f"{path}/events/first")).json()
    assert by_id == (await api.get(f"{path}/events/1")).json()
    assert (by_id["status"], by_id["content"]["parts"]) == ("masked", [{"text": "a"}])
    for missing in ("99", "nobody", "0", "9" * 30):
        answer = await api.get(f"{path}/events/{missing}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_ids_of_digits_and_with_slashes_are_found(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("x", id="77"), user("y", id="a/b"))
    assert (await api.get(f"{path}/events/77")).json()["seq"] == 1
    assert (await api.get(f"{path}/events/a/b")).json()["seq"] == 2


async def test_pages_follow_one_another_in_either_order(api: Api) -> None:
    path = await a_log(api)
    for order, expected in (("asc", [1, 2, 3, 4, 5, 6, 7]), ("desc", [7, 6, 5, 4, 3, 2, 1])):
        found: list[int] = []
        query = f"limit=3&order={order}"
        while True:
            page = (await api.get(f"{path}/events?{query}")).json()
            found += [event["seq"] for event in page["data"]]
            if not page["has_more"]:
                break
            query = f"limit=3&order={order}&after={page['next']}"
        assert found == expected
        assert page["next"] is None


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("query", ["", "&author=user"])
async def test_pages_go_back_the_way_they_came(api: Api, order: str, query: str) -> None:
    path = await api.session()
    await api.append(path, *(each for n in range(10) for each in (user(f"{n}"), model("ok"))))
    asked = f"{path}/events?order={order}&limit=3{query}"
    pages, cursors = await _pages(api, asked, "after", None)
    assert len(pages) > 3

    for page, cursor in zip(pages[:-1], cursors, strict=True):
        back = (await api.get(f"{asked}&before={cursor}")).json()
        assert [event["seq"] for event in back["data"]] == page
    # And on from there, as far as there is something.
    assert (await _pages(api, asked, "before", cursors[-1]))[0] == pages[-2::-1]


async def _pages(
    api: Api, asked: str, name: str, cursor: str | None
) -> tuple[list[list[int]], list[str]]:
    """Return the pages that follow one another by a cursor of this name, and the cursors."""
    pages: list[list[int]] = []
    cursors: list[str] = []
    while True:
        page = (await api.get(f"{asked}&{name}={cursor}" if cursor else asked)).json()
        pages.append([event["seq"] for event in page["data"]])
        assert page["has_more"] is (page["next"] is not None)
        if page["next"] is None:
            return pages, cursors
        cursor = str(page["next"])
        cursors.append(cursor)


async def test_a_cursor_ends_what_another_begins(api: Api) -> None:
    path = await api.session()
    await api.append(path, *(user(f"{n}") for n in range(9)))
    first = (await api.get(f"{path}/events?limit=2")).json()["next"]
    last = (await api.get(f"{path}/events?limit=7")).json()["next"]
    assert await seqs(api, path, f"after={first}&before={last}&limit=3") == [3, 4, 5]
    assert await seqs(api, path, f"after={first}&before={last}") == [3, 4, 5, 6, 7]


async def test_a_cursor_of_other_filters_is_refused(api: Api) -> None:
    path = await a_log(api)
    cursor = (await api.get(f"{path}/events?limit=2")).json()["next"]
    for query in (f"author=user&after={cursor}", f"order=desc&after={cursor}", "after=abc"):
        answer = await api.get(f"{path}/events?{query}")
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/query/after"


@pytest.mark.parametrize(
    "query",
    ["limit=1001", "after_seq=-1", "after_seq=x", f"after_seq={2**70}", "status=dead", "kind=fold",
     "nonsense=1", "after_time=never", "author=%00", "as_of_seq=99"],
)  # fmt: skip
async def test_a_wrong_query_is_named(api: Api, query: str) -> None:
    answer = await api.get(f"{await a_log(api)}/events?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == f"/query/{query.partition('=')[0]}"


@pytest.mark.parametrize("time", ["never", "99999-01-01T00:00:00Z", "1e20"])
async def test_a_wrong_time_is_told_what_is_taken(api: Api, time: str) -> None:
    answer = await api.get(f"{await a_log(api)}/events?after_time={time}")
    detail = "must be RFC 3339, or epoch seconds or milliseconds"
    assert answer.json()["errors"] == [{"pointer": "/query/after_time", "detail": detail}]


@pytest.mark.parametrize(
    ("received", "pointer"), [("", "/query/after_seq"), ("never", "/header/Last-Event-ID")]
)
async def test_a_stream_goes_on_from_the_last_event_received_if_there_is_one(
    api: Api, received: str, pointer: str
) -> None:
    path = f"{await a_log(api)}/events/stream?after_seq=99"
    answer = await api.get(path, headers={"Last-Event-ID": received})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_a_reader_reads_only_what_it_may_see(api: Api) -> None:
    path = await api.session()
    await api.append(
        path,
        user("all"),
        model("mine", branch="root.a"),
        model("theirs", branch="root.b"),
        model("inner", isolation_scope="s1"),
    )
    assert await seqs(api, path, "reader.agent=x&reader.branch=root.a") == [1, 2]
    assert await seqs(api, path, "reader.isolation_scope=s1") == [4]
    hidden = await api.get(f"{path}/events/3?reader.branch=root.a")
    assert hidden.status_code == 404
    assert (await api.get(f"{path}/events/2?reader.branch=root.a")).status_code == 200


async def test_a_fold_of_another_lane_is_not_shown_to_a_reader(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("u"), model("secret", branch="root.b"), user("v"))
    body = {"seqs": [2], "content": "the secret in brief", "branch": "root.b"}
    fold = (await api.post(f"{path}/summaries", body)).json()
    query = "reader.branch=root.a"
    assert fold["seq"] not in await seqs(api, path, query)
    assert (await api.get(f"{path}/events/{fold['seq']}?{query}")).status_code == 404
    assert "secret" not in (await api.get(f"{path}/events?{query}")).text


# Rewinds


async def test_a_rewind_is_an_event(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a", invocation_id="i1"), user("b", invocation_id="i2"))
    answer = await api.post(f"{path}/rewind", {"before_invocation_id": "i2"})
    assert answer.status_code == 201
    marker = answer.json()
    assert (marker["seq"], marker["status"], answer.headers["etag"]) == (3, "marker", '"3"')
    assert marker == (await api.get(f"{path}/events/3")).json()
    assert await seqs(api, path, "status=live") == [1]


async def test_a_rewind_to_a_seq_keeps_that_seq_and_can_be_undone(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("a"), user("b"), user("c"))
    marker = (await api.post(f"{path}/rewind", {"to_seq": 2})).json()
    assert await seqs(api, path, "status=live") == [1, 2]
    await api.post(f"{path}/compactions/{marker['seq']}/undo")
    assert await seqs(api, path, "status=live") == [1, 2, 3]


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"before_invocation_id": "nobody"}, "rewind_target", "/before_invocation_id"),
        ({"to_seq": 2}, "rewind_target", "/to_seq"),
        ({"to_seq": 99}, "rewind_target", "/to_seq"),
        ({}, "invalid_request", ""),
        ({"to_seq": 1, "before_invocation_id": "i"}, "invalid_request", ""),
        ({"to_seq": -1}, "invalid_request", "/to_seq"),
        ({"to": 1}, "invalid_request", "/to"),
    ],
)
async def test_a_rewind_needs_a_target(
    api: Api, body: dict[str, Any], code: str, pointer: str
) -> None:
    path = await api.session()
    await api.append(path, user("a"), user("b"))
    answer = await api.post(f"{path}/rewind", body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert await api.head_seq(path) == 2


async def test_an_appended_adk_rewind_without_target_is_refused(api: Api) -> None:
    path = await api.session()
    event = {"author": "user", "actions": {"rewindBeforeInvocationId": "nobody"}}
    answer = await api.post(f"{path}/events", {"events": [user("x"), event]})
    assert (answer.status_code, answer.json()["code"]) == (422, "rewind_target")
    assert answer.json()["errors"][0]["pointer"].startswith("/events/1")
    assert await api.head_seq(path) == 0


# Invocations


async def test_an_invocation_says_where_to_resume(api: Api) -> None:
    path = await api.session()
    opened = call("f", "c1")
    await api.append(
        path,
        user("go", invocation_id="i1"),
        {**opened, "invocation_id": "i1", "actions": {"agentState": {"step": 1}}},
    )
    view = (await api.get(f"{path}/invocations/i1")).json()
    assert view["complete"] is False
    assert view["open_calls"] == [{"call_id": "c1", "name": "f", "seq": 2}]
    assert view["agent_state"] == {"agent": {"step": 1}}
    assert [event["seq"] for event in view["events"]] == [1, 2]
    await api.append(
        path,
        {**response("f", "c1"), "invocation_id": "i1"},
        model("done", invocation_id="i1", actions={"end_of_agent": True}),
    )
    view = (await api.get(f"{path}/invocations/i1")).json()
    assert (view["complete"], view["open_calls"], view["agent_state"]) == (True, [], {})


async def test_an_invocation_is_complete_when_a_later_one_begins(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("go", invocation_id="i1"))
    assert (await api.get(f"{path}/invocations/i1")).json()["complete"] is False
    await api.append(path, user("other", invocation_id="i2"))
    assert (await api.get(f"{path}/invocations/i1")).json()["complete"] is True
    assert (await api.get(f"{path}/invocations/i2")).json()["complete"] is False


async def test_an_invocation_is_complete_when_an_event_says_so(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("go", invocation_id="i1", invocation_complete=True))
    assert (await api.get(f"{path}/invocations/i1")).json()["complete"] is True


async def test_an_unknown_invocation_is_not_found(api: Api) -> None:
    answer = await api.get(f"{await api.session()}/invocations/nobody")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
