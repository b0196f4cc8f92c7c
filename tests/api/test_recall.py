"""Recall and expand: the originals, whatever became of them."""

from typing import Any

import httpx
import pytest

from tests.api.conftest import Api, call, key_for, model, response, settings_for, user


async def recall(api: Api, path: str, query: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the hits."""
    answer = await api.post(f"{path}/recall", {"query": query, **fields})
    assert answer.status_code == 200, answer.text
    hits: list[dict[str, Any]] = answer.json()["hits"]
    return hits


def seqs(hits: list[dict[str, Any]]) -> list[int]:
    """Return where the hits stand."""
    return [hit["seq"] for hit in hits]


async def expand(api: Api, path: str, **fields: Any) -> dict[str, Any]:
    """Return the answer of an expand."""
    answer = await api.post(f"{path}/expand", fields)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def fold(api: Api, path: str, first: int, last: int, **fields: Any) -> int:
    """Fold a span and return the fold's seq."""
    body = {"covers": {"from_seq": first, "to_seq": last}, "content": "in short", **fields}
    answer = await api.post(f"{path}/summaries", body)
    assert answer.status_code == 201, answer.text
    seq: int = answer.json()["seq"]
    return seq


# Recall


async def test_words_are_found_in_any_order_and_case(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("Where is ORDER 58-1140?"), model("It is held."))
    hits = await recall(api, path, "order held where")
    assert seqs(hits) == [1]
    assert hits[0]["kind"] == "text"
    assert "58-1140" in hits[0]["snippet"]


async def test_an_event_with_all_the_words_stands_before_one_with_some(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("red green blue"), user("red green"), user("red"))
    hits = await recall(api, path, "red green blue")
    assert seqs(hits) == [1, 2]
    assert hits[0]["score"] == 1.0
    assert hits[1]["score"] < 1.0


async def test_of_equal_hits_the_newest_stands_first(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("blue"), user("blue"), user("blue"))
    assert seqs(await recall(api, path, "blue", limit=2)) == [3, 2]


async def test_a_phrase_in_quotes_is_found_as_it_stands(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("held at the hub"), user("the hub held at noon"))
    assert seqs(await recall(api, path, '"at the hub"')) == [1]


async def test_chinese_is_found_without_blanks_between_words(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("我的订单五八一一四零在哪里"), user("今天天气很好"))
    assert seqs(await recall(api, path, "订单")) == [1]
    assert seqs(await recall(api, path, "订单在哪")) == [1]
    assert await recall(api, path, "退款") == []


async def test_what_was_sent_with_escapes_is_found(api: Api) -> None:
    path = await api.session()
    await api.post(
        f"{path}/events",
        r'{"events": [{"author": "user", "content": "\u8ba2\u5355 says \"go\\now\""}]}',
    )
    assert seqs(await recall(api, path, "订单")) == [1]
    assert seqs(await recall(api, path, r"go\now")) == [1]


async def test_calls_and_results_are_found_and_thoughts_are_not(api: Api) -> None:
    path = await api.session()
    thought = {"role": "model", "parts": [{"text": "secret plan", "thought": True}]}
    await api.append(
        path,
        call("track", "c1", {"order": "58-1140"}),
        response("track", "c1", {"state": "held"}),
        {"author": "agent", "content": thought},
    )
    assert [hit["kind"] for hit in await recall(api, path, "58-1140")] == ["function_call"]
    assert [hit["kind"] for hit in await recall(api, path, "held")] == ["function_response"]
    assert await recall(api, path, "secret") == []


async def test_a_folded_event_is_found_and_says_which_summary_stands_for_it(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("the blue door"), model("noted"), user("the blue gate"))
    fold_seq = await fold(api, path, 1, 2)
    hits = await recall(api, path, "blue")
    assert [(hit["seq"], hit["summary_seq"]) for hit in hits] == [(3, None), (1, fold_seq)]
    assert seqs(await recall(api, path, "blue", scope="live")) == [3]
    assert seqs(await recall(api, path, "blue", scope="masked")) == [1]


async def test_the_text_of_a_summary_is_no_original(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one"), model("two"))
    await fold(api, path, 1, 2, content="unmistakable")
    assert await recall(api, path, "unmistakable") == []


async def test_what_was_rewound_is_only_found_when_asked_for(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("stay"), user("blue"))
    await api.post(f"{path}/rewind", {"to_seq": 1})
    assert await recall(api, path, "blue") == []
    assert seqs(await recall(api, path, "blue", scope="rewound")) == [2]


async def test_a_reader_finds_only_what_it_may_see(api: Api) -> None:
    path = await api.session()
    await api.append(
        path,
        user("blue for all"),
        model("blue for a", branch="root.a"),
        model("blue for b", branch="root.b"),
        model("blue in scope", isolation_scope="s"),
    )
    at_a = {"agent": "agent", "branch": "root.a"}
    assert seqs(await recall(api, path, "blue", reader=at_a)) == [2, 1]
    assert seqs(await recall(api, path, "blue", reader={"isolation_scope": "s"})) == [4]
    assert seqs(await recall(api, path, "blue")) == [4, 3, 2, 1]


async def test_a_pattern_finds_what_it_matches(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("order 58-1140\nis late"), user("order 7"), model("Order 99-1"))
    assert seqs(await recall(api, path, r"order \d+-\d+$", mode="regex")) == []
    assert seqs(await recall(api, path, r"(?n)order \d+-\d+$", mode="regex")) == [1]
    assert seqs(await recall(api, path, r"(?i)order \d+-\d+", mode="regex")) == [3, 1]
    assert seqs(await recall(api, path, r"[一-龥]", mode="regex")) == []


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"\bbour\b", []),
        (r"\bharbour\b", [1]),
        (r"har\Bbour", [1]),
        (r"[\b]", []),
        (r"a\\b", [2]),
        (r"[]\\]\bb", [2]),
        (r"***=harbour", [1]),
    ],
)
async def test_word_boundaries_are_written_as_everywhere(
    api: Api, pattern: str, found: list[int]
) -> None:
    path = await api.session()
    await api.append(path, user("the harbour gate"), user(r"a\b"))
    assert seqs(await recall(api, path, pattern, mode="regex")) == found


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a{9999}", "*", "(x{255}){255}", "(h{1,200}){1,200}"]
)
async def test_a_wrong_pattern_is_refused_and_named(api: Api, pattern: str) -> None:
    path = await api.session()
    await api.append(path, user("one"))
    answer = await api.post(f"{path}/recall", {"query": pattern, "mode": "regex"})
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/query"]


async def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(api: Api) -> None:
    path = await api.session()
    answer = await api.post(f"{path}/recall", {"query": "one", "mode": "semantic"})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/mode"
    assert "text" in error["detail"]
    assert "regex" in error["detail"]


@pytest.mark.parametrize("query", ["", "   ", "?!", '""', "\u0000"])
async def test_a_query_that_names_nothing_is_refused(api: Api, query: str) -> None:
    path = await api.session()
    answer = await api.post(f"{path}/recall", {"query": query})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/query"


async def test_a_search_goes_on_before_a_seq(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("blue"), user("blue"), user("blue"))
    assert seqs(await recall(api, path, "blue", before_seq=3)) == [2, 1]
    assert await recall(api, path, "blue", before_seq=1) == []


@pytest.mark.parametrize("mode", ["text", "regex"])
async def test_what_the_limit_leaves_out_is_told(api: Api, mode: str) -> None:
    path = await api.session()
    await api.append(path, *(user("blue") for _ in range(5)))
    answers = [
        (await api.post(f"{path}/recall", {"query": "blue", "mode": mode, "limit": limit})).json()
        for limit in (4, 5, 6)
    ]
    assert [len(answer["hits"]) for answer in answers] == [4, 5, 5]
    assert [answer["complete"] for answer in answers] == [False, True, True]
    # What a pattern matches goes on with the next older one.
    assert [answer["next_before_seq"] for answer in answers] == [
        2 if mode == "regex" else None,
        None,
        None,
    ]


async def test_an_empty_session_has_nothing(api: Api) -> None:
    path = await api.session()
    answer = await api.post(f"{path}/recall", {"query": "x"})
    assert answer.json() == {"hits": [], "complete": True, "next_before_seq": None}
    assert await expand(api, path, from_seq=1) == {
        "events": [],
        "truncated": False,
        "next_seq": None,
    }


# Expand


def texts(body: dict[str, Any]) -> list[str]:
    """Return what the originals say."""
    return [event["content"]["parts"][0]["text"] for event in body["events"]]


async def test_a_summary_opens_to_its_originals_in_order(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one"), model("two"), user("three"))
    seq = await fold(api, path, 1, 2)
    body = await expand(api, path, summary_seqs=[seq])
    assert texts(body) == ["one", "two"]
    assert [event["masked_by"] for event in body["events"]] == [seq, seq]
    assert (body["truncated"], body["next_seq"]) == (False, None)


async def test_a_summary_of_summaries_opens_to_the_same_originals(api: Api) -> None:
    path = await api.session()
    await api.append(path, *(user(str(number)) for number in range(1, 7)))
    first = await fold(api, path, 1, 2)
    await fold(api, path, 3, 4)
    higher = await fold(api, path, 1, 4, level=2)
    assert texts(await expand(api, path, summary_seqs=[higher])) == ["1", "2", "3", "4"]
    assert texts(await expand(api, path, summary_seqs=[first])) == ["1", "2"]


async def test_a_summary_that_was_undone_or_rewound_still_opens(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one"), user("two"))
    seq = await fold(api, path, 1, 2)
    await api.post(f"{path}/rewind", {"to_seq": 1})
    body = await expand(api, path, summary_seqs=[seq])
    assert texts(body) == ["one", "two"]
    assert [event["status"] for event in body["events"]] == ["live", "rewound"]


async def test_a_span_gives_originals_without_markers_and_what_was_undone(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one"), user("two"), user("three"))
    await fold(api, path, 1, 1)
    await api.post(f"{path}/rewind", {"to_seq": 2})
    await api.append(path, user("four"))
    assert texts(await expand(api, path, from_seq=1)) == ["one", "two", "four"]
    assert texts(await expand(api, path, to_seq=1)) == ["one"]


async def test_tokens_end_the_answer_and_it_goes_on_from_there(api: Api) -> None:
    path = await api.session()
    await api.append(path, *(user(f"word {number}") for number in range(1, 6)))
    seq = await fold(api, path, 1, 5)
    found: list[str] = []
    fields: dict[str, Any] = {"summary_seqs": [seq], "max_tokens": 1}
    while True:
        body = await expand(api, path, **fields)
        assert len(body["events"]) == 1
        found += texts(body)
        if not body["truncated"]:
            break
        fields["from_seq"] = body["next_seq"]
    assert found == [f"word {number}" for number in range(1, 6)]


async def test_more_than_a_page_of_originals_comes_whole(api: Api) -> None:
    path = await api.session()
    await api.append(path, *(user(f"{number}") for number in range(1, 251)))
    seq = await fold(api, path, 1, 250)
    body = await expand(api, path, summary_seqs=[seq])
    assert texts(body) == [str(number) for number in range(1, 251)]


async def test_a_query_leaves_only_what_holds_it(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("blue one"), user("red"), user("blue two"))
    seq = await fold(api, path, 1, 3)
    assert texts(await expand(api, path, summary_seqs=[seq], query="blue")) == [
        "blue one",
        "blue two",
    ]
    assert texts(await expand(api, path, summary_seqs=[seq], query="green")) == []


async def test_a_reader_opens_only_the_lanes_that_it_sees(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("all"), model("a", branch="root.a"), model("b", branch="root.b"))
    of_all = await fold(api, path, 1, 3)
    of_b = await fold(api, path, 1, 3, branch="root.b")
    at_a = {"agent": "agent", "branch": "root.a"}
    assert texts(await expand(api, path, from_seq=1, reader=at_a)) == ["all", "a"]
    assert texts(await expand(api, path, summary_seqs=[of_all], reader=at_a)) == ["all"]
    answer = await api.post(f"{path}/expand", {"summary_seqs": [of_b], "reader": at_a})
    assert answer.status_code == 404


async def test_what_is_no_summary_cannot_be_opened(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("one"))
    for seq in (1, 7):
        answer = await api.post(f"{path}/expand", {"summary_seqs": [seq]})
        assert answer.status_code == 404
    assert (await api.post(f"{path}/expand", {})).status_code == 422
    turned = await api.post(f"{path}/expand", {"from_seq": 3, "to_seq": 2})
    assert turned.status_code == 422
    assert turned.json()["errors"][0]["pointer"] == "/from_seq"


# Who may


async def test_another_tenant_finds_no_such_session(
    api: Api, client: httpx.AsyncClient, database_url: str
) -> None:
    path = await api.session()
    await api.append(path, user("blue"))
    stranger = Api(client, await key_for(settings_for(database_url), "other", "events:read"))
    assert (await stranger.post(f"{path}/recall", {"query": "blue"})).status_code == 404
    assert (await stranger.post(f"{path}/expand", {"from_seq": 1})).status_code == 404


async def test_a_key_for_compiling_reads_as_a_reader_only(
    api: Api, client: httpx.AsyncClient, database_url: str
) -> None:
    path = await api.session()
    await api.append(path, user("blue"))
    runner = Api(client, await key_for(settings_for(database_url), "default", "compile"))
    for name, body in (("recall", {"query": "blue"}), ("expand", {"from_seq": 1})):
        assert (await runner.post(f"{path}/{name}", body)).status_code == 403
        as_reader = {**body, "reader": {"agent": "agent"}}
        assert (await runner.post(f"{path}/{name}", as_reader)).status_code == 200
