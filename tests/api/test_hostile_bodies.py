"""Hostile bodies: every place of a good body of every writing route holds every hostile value once.

Whatever comes, the answer is typed and no 500, and the session still compiles afterwards.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from app.main import ROUTERS
from tests.api.conftest import Api, call, model, response, user

DEEP: Final = 60

#: Values as JSON text: some of them no encoder of ours would write.
HOSTILE: Final = [
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "-0.0",
    "1e308",
    "1e400",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1" + "0" * 400,
    "NaN",
    "Infinity",
    '""',
    '" "',
    '"\\u0000"',
    '"a\\u0000b"',
    '"\\ud800"',
    '"\\udfff\\ud800"',
    '"\\u202e\\ufeff\\u200b"',
    '"../../etc/passwd"',
    '"\'; DROP TABLE events; --"',
    '"${jndi:ldap://127.0.0.1/x}"',
    '"%s%n%x{0}{{7*7}}"',
    '"' + "x" * 20_000 + '"',
    '"' + "\\u0301" * 2_000 + '"',
    '"(a+)+$"',
    '"2026-02-30T25:61:61Z"',
    '"NaN"',
    "[]",
    "[[]]",
    "[null]",
    "[" + ",".join(["0"] * 2_000) + "]",
    "{}",
    '{"": ""}',
    '{"__proto__": {"admin": true}}',
    '{"a": 1, "a": 2}',
    '{"$ref": "#"}',
    "[" * DEEP + "]" * DEEP,
    '{"a":' * DEEP + "1" + "}" * DEEP,
]

#: Bodies as bytes, for every route.
RAW: Final = [
    b"",
    b" ",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"{",
    b"{}}",
    b"{}{}",
    b"[]",
    b'"{}"',
    b"null",
    b"nan",
    b"{'a': 1}",
    b'{"a": 1,}',
    b'{"a": "\xc3\x28"}',
    b'{"a": "\xed\xa0\x80"}',
    b'{"a": "\x01"}',
    b'{"\\ud800": 1}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"-" * 10_000,
    b"1" * 100_000,
    b'{"events": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
]

EVENT: Final = {
    "id": "e1",
    "invocation_id": "i1",
    "author": "agent",
    "branch": "root.agent",
    "timestamp": 1.5,
    "content": {
        "role": "model",
        "parts": [
            {"text": "hi", "thought": True, "thought_signature": "c2ln"},
            {"function_call": {"id": "c9", "name": "f", "args": {"a": [1]}}},
            {"inline_data": {"mime_type": "image/png", "data": "aGk="}},
        ],
    },
    "actions": {"state_delta": {"k": 1}, "artifact_delta": {"f": 1}},
    "usage_metadata": {"prompt_token_count": 5},
    "long_running_tool_ids": ["c9"],
    "custom_metadata": {"a": 1},
}
ITEMS: Final = {
    "anthropic": {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    "openai_chat": {
        "role": "assistant",
        "content": "hi",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    },
    "openai_responses": {
        "type": "function_call",
        "call_id": "c",
        "name": "f",
        "arguments": "{}",
    },
    "gemini": {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
    "bedrock": {
        "role": "assistant",
        "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}],
    },
    "adk": {"author": "user", "content": {"role": "user", "parts": [{"text": "hi"}]}},
}
COMPILE: Final = {
    "agent": "agent",
    "branch": "root",
    "format": "gemini",
    "model": "gemini-3.1-pro",
    "instruction": {"static": "s", "dynamic": "d {k}", "global": "g", "description": "x"},
    "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
    "budget": {"max_input_tokens": 10_000, "reserve_output_tokens": 10},
    "inject": [{"text": "now", "keep": False}],
    "thinking": "auto",
    "base_fingerprint": "0" * 64,
    "min_seq": 1,
    "explain": True,
}

#: By route: a good body. `{}` is the path of a session.
BODIES: Final[list[tuple[str, str, Any]]] = [
    ("PUT", "{}-new", {
        "app_name": "a", "user_id": "u", "state": {"k": 1}, "metadata": {"m": 1}, "ttl_s": 60,
        "policy": {"compaction": {"strategy": "interval", "compaction_interval": 2,
                                  "overlap_size": 0}},
    }),
    ("PATCH", "{}", {"metadata": {"m": 1}, "policy": {"pins": {"max_tokens": 100}}}),
    ("POST", "{}/events", {"events": [EVENT], "expected_seq": 3}),
    *[
        ("POST", "{}/events", {"format": name, "items": [item], "agent": "agent"})
        for name, item in ITEMS.items()
    ],
    ("POST", "{}/compile", COMPILE),
    ("POST", "/v1/compile", {"format": "anthropic", "events": [EVENT]}),
    ("POST", "{}/compile:diff", {"a": {"format": "gemini"}, "b": {"as_of_seq": 1}}),
    ("POST", "{}/rewind", {"to_seq": 3}),
    ("POST", "{}/rewind", {"before_invocation_id": "i1"}),
    ("POST", "{}/pins", {"seqs": [1]}),
    ("DELETE", "{}/pins", {"seqs": [1]}),
    ("POST", "{}/elisions", {"seqs": [2], "keep_chars": 10}),
    ("POST", "{}/summaries", {
        "covers": {"from_seq": 1, "to_seq": 1}, "content": "They said hello.", "level": 1,
    }),
    ("POST", "{}/compactions", {"mode": "range", "from_seq": 1, "to_seq": 2}),
    ("POST", "{}/recall", {
        "query": "h.*", "mode": "regex", "limit": 5, "reader": {"agent": "agent", "branch": "b"},
    }),
    ("POST", "{}/expand", {"from_seq": 1, "to_seq": 3, "max_tokens": 100}),
    ("POST", "{}/usage", {"fingerprint": "0" * 64, "usage": {"input_tokens": 5}}),
    ("POST", "{}/usage", {"fingerprint": "0" * 64, "error": {"status": 400, "body": {"e": 1}}}),
    ("POST", "{}/fork", {"at_seq": 1, "new_id": "n", "metadata": {}}),
    ("PUT", "/v1/apps/a/policy", {"compaction": {"strategy": "none"}}),
    ("POST", "/v1/tokens", {"format": "gemini", "contents": [{"parts": [{"text": "hi"}]}]}),
    ("POST", "/v1/tokens", {"text": "hi"}),
    ("POST", "/v1/validate", {"format": "anthropic", "request": {"messages": []}}),
    ("POST", "/v1/admin/tenants", {
        "id": "hostile", "rate_limit": "9/s", "quotas": {"sessions": 1, "events": 1, "bytes": 1},
    }),
    ("PATCH", "/v1/admin/tenants/nobody", {
        "rate_limit": "9/s", "quotas": {"events": 1}, "disabled": True,
    }),
    ("POST", "/v1/admin/keys", {
        "tenant_id": "hostile", "name": "n", "scopes": ["compile"], "rate_limit": "9/s",
        "ttl_s": 60,
    }),
    ("POST", "/v1/admin/keys/00000000-0000-4000-8000-000000000000/rotate", {"overlap_s": 60}),
]  # fmt: skip
IDS: Final = [f"{method} {path} {index}" for index, (method, path, _) in enumerate(BODIES)]


def _variants(value: Any) -> Iterator[str]:
    """Yield the value as JSON with one of its places replaced by each hostile value."""
    yield from HOSTILE
    if isinstance(value, dict):
        for name, member in value.items():
            for variant in _variants(member):
                rest = {key: other for key, other in value.items() if key != name}
                yield f"{{{json.dumps(name)}: {variant}{_following(rest)}"
        # A place that nothing knows.
        yield f'{{"unknown": 1{_following(value)}'
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for variant in _variants(item):
                texts = [json.dumps(other) for other in value]
                texts[index] = variant
                yield f"[{', '.join(texts)}]"


def _following(members: dict[str, Any]) -> str:
    return "".join(f", {json.dumps(k)}: {json.dumps(v)}" for k, v in members.items()) + "}"


async def _session(api: Api) -> str:
    path = await api.session()
    await api.append(path, user("hello", id="u1"), call("f", "c1"), response("f", "c1"))
    await api.append(path, model("hi", id="m1"))
    return path


async def _send(api: Api, method: str, path: str, body: str | bytes) -> None:
    answer = await api.call(method, path, body)
    assert answer.status_code < 500, f"{method} {path} {body[:2000]!r}: {answer.text}"
    if not answer.is_success:
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["code"] != "internal"
        if problem["code"] == "invalid_request" and answer.status_code == 422:
            assert problem["errors"], f"{body[:2000]!r}: no field is named: {answer.text}"


async def _still_works(api: Api, path: str) -> None:
    """Check that the session takes an event, and compiles for everyone."""
    await api.append(path, user("still here"))
    for name in ITEMS:
        if name != "adk":
            answer = await api.post(f"{path}/compile", {"format": name, "agent": "agent"})
            assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("method", "template", "body"), BODIES, ids=IDS)
async def test_every_place_takes_every_hostile_value(
    api: Api, method: str, template: str, body: Any
) -> None:
    path = await _session(api)
    for variant in _variants(body):
        await _send(api, method, template.format(path), variant)
    await _still_works(api, path)


@pytest.mark.parametrize(("method", "template", "body"), BODIES, ids=IDS)
async def test_every_route_takes_bytes_that_are_no_body(
    api: Api, method: str, template: str, body: Any
) -> None:
    del body
    path = await _session(api)
    for raw in RAW:
        await _send(api, method, template.format(path), raw)
    await _still_works(api, path)


def test_every_route_with_a_body_is_here() -> None:
    here = {(method, path.replace("{}", "/v1/sessions/{sid}")) for method, path, _ in BODIES}
    here |= {("PUT", "/v1/sessions/{sid}"), ("PUT", "/v1/apps/{app}/policy")}
    here |= {("PATCH", "/v1/admin/tenants/{tenant}"), ("POST", "/v1/admin/keys/{id}/rotate")}
    writing = {
        (method, str(getattr(route, "path", "")))
        for router in ROUTERS
        for route in router.routes
        for method in getattr(route, "methods", ())
        if method in ("POST", "PUT", "PATCH")
    }
    without_a_body = {
        ("POST", path)
        for path in (
            "/v1/sessions/{sid}/compactions/{seq}/activate",
            "/v1/sessions/{sid}/compactions/{seq}/undo",
            "/v1/sessions/{sid}/elisions/{seq}/undo",
            "/v1/jobs/{id}/cancel",
            "/v1/admin/sessions/{sid}/verify",
        )
    }
    assert writing - here - without_a_body == set()
