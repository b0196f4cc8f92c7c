"""What a request body may be, whatever it asks for."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import httpx
import pytest
import zstandard

from app.api.bodies import DECODERS
from app.core.errors import MalformedBodyError
from tests.api.conftest import Api, client_of, settings_for, user

MIB = 1024 * 1024


async def refused(
    api: Api, path: str, body: Any, status: int, *, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """Send a body that must be refused, and see that nothing was stored."""
    answer = await api.post(f"{path}/events", body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert await api.head_seq(path) == 0
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert {"type", "title", "detail", "instance", "code", "errors"} <= problem.keys()
    return problem


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        '{"events": [}',
        '{"events": [NaN]}',
        '{"events": [-Infinity]}',
        '{"events": []} trailing',
        '{"events": [], "events": []}',
        "\ufeff{}",
        '{"events": ["\t"]}',
    ],
)
async def test_what_is_not_strict_json_is_malformed(api: Api, body: str) -> None:
    problem = await refused(api, await api.session(), body, 400)
    assert problem["code"] == "invalid_request"


async def test_invalid_utf_8_is_refused_naming_the_event(api: Api) -> None:
    body = b'{"events": [{"author": "user"}, {"author": "us\xff\xfeer"}]}'
    problem = await refused(api, await api.session(), body, 400)
    assert [error["pointer"] for error in problem["errors"]] == ["/events/1"]


async def test_absurd_nesting_is_refused_naming_the_event(api: Api) -> None:
    deep = '{"events": [{"custom_metadata": ' + '{"a":' * 5000 + "1" + "}" * 5001 + "]}"
    problem = await refused(api, await api.session(), deep, 400)
    assert problem["errors"][0]["pointer"] == "/events/0"


async def test_nesting_below_python_s_limit_is_refused_too(api: Api) -> None:
    args = json.loads("[" * 150 + "]" * 150)
    part = {"function_call": {"name": "f", "args": {"a": args}}}
    body = {"events": [{"author": "agent", "content": {"role": "model", "parts": [part]}}]}
    problem = await refused(api, await api.session(), body, 422)
    assert problem["errors"][0]["pointer"].startswith("/events/0")


async def test_unknown_members_are_refused_by_name(api: Api) -> None:
    problem = await refused(api, await api.session(), {"events": [], "evnts": 1}, 422)
    assert problem["errors"][0]["pointer"] == "/evnts"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"events": 3}, "/events"),
        ({"events": [3]}, "/events/0"),
        ({"events": [user("x"), {"author": 7}]}, "/events/1/author"),
        ({"events": [{"author": "user", "content": {"parts": 1}}]}, "/events/0/content/parts"),
        ({"events": [user("x", actions={"nonsense": 1})]}, "/events/0/actions/nonsense"),
        ({"events": [user("x")], "expected_seq": "0"}, "/expected_seq"),
        ({"events": [user("x")], "expected_seq": -1}, "/expected_seq"),
        ({"events": [user("x")], "expected_seq": 2**70}, "/expected_seq"),
        ({"events": [user("x", compiled_seq=5)]}, "/events/0/compiled_seq"),
        ({"format": "cobol", "items": []}, "/format"),
        ({"format": "openai_chat", "items": [{"role": "nobody"}]}, "/items/0/role"),
        ({"format": "openai_chat", "items": [[]]}, "/items/0"),
    ],
)
async def test_a_wrong_field_is_named(api: Api, body: Any, pointer: str) -> None:
    problem = await refused(api, await api.session(), body, 422)
    assert problem["errors"][0]["pointer"] == pointer
    assert problem["code"] == "invalid_request"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"events": [user("x")], "items": [{}], "format": "gemini"},
        {"items": [{"role": "user", "content": "x"}]},
        {"events": [user("x")], "format": "adk"},
    ],
)
async def test_events_and_items_exclude_each_other(api: Api, body: Any) -> None:
    await refused(api, await api.session(), body, 422)


async def test_a_good_event_before_a_bad_one_is_not_stored(api: Api) -> None:
    await refused(api, await api.session(), {"events": [user("x"), {"author": 7}]}, 422)


async def test_a_body_above_the_limit_is_refused_naming_it(api: Api) -> None:
    body = {"events": [user("x" * (11 * MIB))]}
    problem = await refused(api, await api.session(), body, 413)
    assert (problem["code"], problem["limit_name"]) == ("too_large", "max_batch_bytes")
    assert problem["limit"] == 10 * MIB


async def test_an_event_above_the_limit_is_refused_naming_it(api: Api) -> None:
    body = {"events": [user("small"), user("x" * (2 * MIB))]}
    problem = await refused(api, await api.session(), body, 413)
    assert problem["limit_name"] == "max_event_bytes"
    assert problem["errors"][0]["pointer"] == "/events/1"


async def test_too_many_events_are_refused_naming_the_limit(api: Api) -> None:
    problem = await refused(api, await api.session(), {"events": [user("x")] * 501}, 413)
    assert problem["limit_name"] == "max_batch_events"


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", gzip.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("identity", bytes),
    ],
)
async def test_encoded_bodies_are_read(api: Api, encoding: str, encode: Any) -> None:
    path = await api.session()
    body = encode(json.dumps({"events": [user("x")]}).encode())
    answer = await api.post(f"{path}/events", body, headers={"Content-Encoding": encoding})
    assert answer.status_code == 201, answer.text


ENCODE: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
#: By encoding, some kilobytes that become 200 MiB.
BOMBS: Final = [
    ("gzip", gzip.compress(b" " * (200 * MIB))),
    ("zstd", zstandard.ZstdCompressor(level=19).compress(b" " * (200 * MIB))),
]


@pytest.mark.parametrize(("encoding", "bomb"), BOMBS)
async def test_a_bomb_is_refused_at_the_limit(api: Api, encoding: str, bomb: bytes) -> None:
    path = await api.session()
    problem = await refused(api, path, bomb, 413, headers={"Content-Encoding": encoding})
    assert problem["limit_name"] == "max_batch_bytes"


@pytest.mark.parametrize(("encoding", "bomb"), BOMBS)
def test_no_more_of_a_bomb_is_decoded_than_may_be_read(encoding: str, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        decoded = DECODERS[encoding](bomb, MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(decoded) == MIB
    assert peak_bytes < 10 * MIB


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_of_nothing_but_empty_pieces_is_decoded_in_no_time(encoding: str) -> None:
    empty = ENCODE[encoding](b"")
    began_s = time.process_time()
    assert DECODERS[encoding](empty * (4 * MIB // len(empty)), 10 * MIB) == b""
    assert time.process_time() - began_s < 5


async def test_several_gzip_members_are_one_body(api: Api) -> None:
    path = await api.session()
    text = json.dumps({"events": [user("x")]}).encode()
    body = gzip.compress(text[:10]) + gzip.compress(text[10:])
    answer = await api.post(f"{path}/events", body, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_body_that_is_not_what_its_encoding_says_is_malformed(
    api: Api, encoding: str
) -> None:
    body = json.dumps({"events": []}).encode()
    await refused(api, await api.session(), body, 400, headers={"Content-Encoding": encoding})


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_that_is_cut_anywhere_is_malformed(encoding: str) -> None:
    text = json.dumps({"events": [user(f"{number} of many") for number in range(200)]}).encode()
    half, rest = text[:3000], text[3000:]
    body = ENCODE[encoding](half) + ENCODE[encoding](rest)
    border = len(ENCODE[encoding](half))
    decode = DECODERS[encoding]

    assert decode(body, MIB) == text
    assert decode(body[:border], MIB) == half
    for end in (end for end in range(1, len(body)) if end != border):
        with pytest.raises(MalformedBodyError):
            decode(body[:end], MIB)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("most", [99, 100, 101])
def test_a_body_is_decoded_to_its_end_or_as_far_as_it_may_be(encoding: str, most: int) -> None:
    assert DECODERS[encoding](ENCODE[encoding](b"x" * 100), most) == b"x" * min(most, 100)


def test_a_zstd_body_without_a_checksum_is_one() -> None:
    for level in (-5, 1, 19):
        encoder = zstandard.ZstdCompressor(level, write_checksum=False, write_content_size=False)
        assert DECODERS["zstd"](encoder.compress(b"as it was"), MIB) == b"as it was"


async def test_other_encodings_and_types_are_unsupported(api: Api) -> None:
    path = await api.session()
    problem = await refused(api, path, b"x", 415, headers={"Content-Encoding": "br"})
    assert problem["code"] == "unsupported_media_type"
    for media_type in ("text/plain", "json", ";;;", "; charset=utf-8"):
        await refused(api, path, b"{}", 415, headers={"Content-Type": media_type})


async def test_limits_are_settings(database_url: str) -> None:
    settings = settings_for(database_url, max_batch_bytes=2000, max_event_bytes=500)
    async with client_of(settings) as client:
        api = Api(client)
        path = await api.session()
        problem = await refused(api, path, {"events": [user("x" * 3000)]}, 413)
        assert problem["limit"] == 2000
        problem = await refused(api, path, {"events": [user("x" * 600)]}, 413)
        assert problem["limit"] == 500


async def test_answers_are_compressed_when_asked(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("hello " * 1000))
    for encoding in ("gzip", "zstd"):
        answer = await api.get(f"{path}/events", headers={"Accept-Encoding": encoding})
        assert answer.headers["content-encoding"] == encoding
        assert "accept-encoding" in answer.headers["vary"].lower()
        assert answer.json()["data"][0]["seq"] == 1
    plain = await api.get(f"{path}/events", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers


async def test_request_ids_are_echoed_or_made(api: Api) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = await api.get("/livez", headers={"X-Request-Id": "abc", "traceparent": trace})
    assert answer.headers["x-request-id"] == "abc"
    assert answer.headers["traceparent"] == trace
    assert len((await api.get("/livez")).headers["x-request-id"]) == 32
    odd = await api.get("/livez", headers={"X-Request-Id": "a" * 500})
    assert odd.headers["x-request-id"] != "a" * 500


async def test_unknown_paths_and_methods_are_problems(api: Api) -> None:
    missing = await api.get("/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    # No redirect, whose place would be what the Host header says.
    slashed = await api.get("/v1/sessions/")
    assert (slashed.status_code, slashed.json()["code"]) == (404, "not_found")
    wrong = await api.post("/livez")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET"


async def test_a_bug_answers_a_problem_without_details(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("SELECT secret FROM table")

    monkeypatch.setattr("app.services.sessions.ManageSessions.get", broken)
    answer = await Api(client).get("/v1/sessions/x")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"user_content": 7}, "/user_content"),
        ({"instruction": {"static": []}}, "/instruction/static"),
        (
            {"user_content": {"parts": [{"text": "a"}, {"function_call": {"name": "f"}}]}},
            "/user_content/parts/1",
        ),
        (
            {"instruction": {"static": {"parts": [{"text": "a", "thought": True}]}}},
            "/instruction/static/parts/0",
        ),
        ({"budget": {"max_input_tokens": "many"}}, "/budget/max_input_tokens"),
        ({"agent": 1}, "/agent"),
    ],
)
async def test_a_field_of_a_compile_is_named_as_it_was_sent(
    api: Api, body: Any, pointer: str
) -> None:
    path = await api.session()
    answer = await api.post(f"{path}/compile", body)
    assert answer.status_code == 422
    problem = answer.json()
    assert {error["pointer"] for error in problem["errors"]} == {pointer}
    assert "Value error" not in answer.text


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        (
            "/compile",
            {"unanswered_calls": "drop"},
            "unanswered_calls: drop goes with preset adk: stable closes them",
        ),
        (
            "/compile",
            {"budget": {"max_input_tokens": 5, "reserve_output_tokens": 5}},
            "budget/reserve_output_tokens: leaves nothing of max_input_tokens",
        ),
        (
            "/compile",
            {"append": [{"content": "a"}], "as_of_seq": 1},
            "as_of_seq: goes with no append: what is appended comes after it",
        ),
        ("/compile:diff", {"a": {}, "b": {"unanswered_calls": "drop"}}, "b/unanswered_calls: "),
        ("/events", {"items": []}, "format: items need one"),
        ("/events", {"events": [], "items": []}, "items: goes with no events: exactly one of"),
        ("/events", {"events": [], "format": "adk"}, "format: belongs to items; events are native"),
        (
            "/usage",
            {"fingerprint": "a", "usage": {}, "error": {"status": 400}},
            "error: goes with no usage: exactly",
        ),
    ],
)
async def test_a_rule_of_several_fields_names_the_one_to_change(
    api: Api, path: str, body: Any, detail: str
) -> None:
    session = await api.session()
    answer = await api.post(f"{session}{path}", body)
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["detail"].startswith(detail)
    [error] = problem["errors"]
    assert error["pointer"] == "/" + detail.partition(":")[0]


async def test_a_rule_of_the_whole_body_is_told_in_our_words(api: Api) -> None:
    answer = await api.post("/v1/tokens", {})
    assert answer.status_code == 422
    assert answer.json()["detail"] == "exactly one of contents and text is needed"
