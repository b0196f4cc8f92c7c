"""Events: what their JSON says, in both spellings, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.canonical import Json, canonical_json
from app.core.contents import FunctionCall, Text
from app.core.errors import InvalidEventError
from app.core.lanes import Lane
from app.formats.adk import ParsedEvent, parse_event


def pointer_of(value: Json) -> str:
    with pytest.raises(InvalidEventError) as caught:
        parse_event(value)
    return caught.value.pointer


def noted(parsed: ParsedEvent) -> list[str]:
    assert parsed.notes == parsed.event.notes
    return [pointer for pointer, _ in parsed.notes]


FULL: dict[str, Json] = {
    "id": "e1",
    "invocation_id": "i1",
    "author": "planner",
    "timestamp": 12.5,
    "content": {
        "role": "model",
        "parts": [{"function_call": {"id": "c1", "name": "f", "args": {"camelCase": 1}}}],
    },
    "actions": {
        "skip_summarization": True,
        "state_delta": {"user:camelCase": 1},
        "artifact_delta": {"f.txt": 0},
        "transfer_to_agent": "other",
        "requested_auth_configs": {"c2": {}},
        "requested_tool_confirmations": {"c3": {"hint": "sure?"}},
    },
    "node_info": {"path": "wf/a"},
    "long_running_tool_ids": ["c1"],
    "branch": "root.planner",
    "isolation_scope": "c9",
    "partial": True,
    "usage_metadata": {"prompt_token_count": 5},
    "input_transcription": {"text": "heard", "finished": True},
    "output_transcription": {"finished": True},
    "error_code": "E",
    "live_session_id": "l",
    "custom_metadata": {"k": 1},
    "compiled_fingerprint": "h",
    "compiled_seq": 4,
    "response_id": "r1",
    "invocation_complete": True,
}


def camel_case(value: Json, depth: int = 0) -> Json:
    """Spell the known keys of FULL in camelCase, not the caller's own."""
    own = {"state_delta", "args", "artifact_delta", "custom_metadata"}
    if isinstance(value, list):
        return [camel_case(item, depth) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key.split("_")[0] + "".join(word.title() for word in key.split("_")[1:]): (
            item if key in own else camel_case(item, depth + 1)
        )
        for key, item in value.items()
    }


def test_every_field_is_read() -> None:
    parsed = parse_event(FULL)
    event = parsed.event
    assert (event.id, event.invocation_id, event.author) == ("e1", "i1", "planner")
    assert event.timestamp == 12.5
    assert event.lane == Lane(isolation_scope="c9", branch="root.planner")
    assert event.node_path == "wf/a"
    assert event.role == "model"
    assert event.parts == (
        FunctionCall(id="c1", name="f", args='{"camelCase":1}', long_running=True),
    )
    assert event.long_running_ids == {"c1"}
    assert event.requested_ids == {"c2", "c3"}
    assert (event.input_transcription, event.output_transcription) == ("heard", "")
    assert event.skips_summarization
    assert event.is_transfer
    assert event.is_live_session
    assert event.error_code == "E"
    assert (event.compiled_seq, event.compiled_fingerprint) == (4, "h")
    assert event.response_id == "r1"
    assert event.request is None
    assert (event.seq, event.part_tokens, event.owners, event.place) == (0, (), (), None)
    assert parsed.state_delta == {"user:camelCase": 1}
    assert parsed.is_partial
    assert parsed.completes_invocation
    assert parsed.has_timestamp
    assert parsed.notes == ()


def test_camel_case_is_read_like_snake_case() -> None:
    spelled = camel_case(FULL)
    assert isinstance(spelled, dict)
    assert "isolationScope" in spelled
    assert parse_event(spelled) == parse_event(FULL)


def test_null_fields_are_absent() -> None:
    assert parse_event(dict.fromkeys(FULL)) == parse_event({})


def test_event_without_timestamp_says_so() -> None:
    parsed = parse_event({"author": "user", "content": "hi"})
    assert not parsed.has_timestamp
    assert parsed.event.timestamp == 0.0


@pytest.mark.parametrize(
    ("event", "author", "role"),
    [
        ({"content": "hi"}, "user", "user"),
        ({"author": "user", "content": "hi"}, "user", "user"),
        ({"author": "bot", "content": "hi"}, "bot", "model"),
    ],
)
def test_string_content_is_a_text_of_its_author(event: Json, author: str, role: str) -> None:
    parsed = parse_event(event).event
    assert (parsed.author, parsed.role) == (author, role)
    assert parsed.parts == (Text(text="hi"),)


def test_event_without_content_has_no_role() -> None:
    assert parse_event({"author": "a"}).event.role is None
    assert parse_event({"author": "a", "content": {"parts": []}}).event.role == ""


def test_node_path_limits_only_user_messages() -> None:
    def lane_path(event: dict[str, Json]) -> str:
        return parse_event({"nodeInfo": {"path": "wf/a"}, **event}).event.lane.node_path

    response: Json = {"role": "user", "parts": [{"functionResponse": {"name": "f"}}]}
    assert lane_path({"author": "user", "content": "hi"}) == "wf/a"
    assert lane_path({"author": "user", "content": response}) == ""
    assert lane_path({"author": "bot", "content": "hi"}) == ""


def test_unknown_key_of_the_event_is_ignored_and_noted() -> None:
    assert noted(parse_event({"author": "a", "content": "b", "options": {}, "a/b": 1})) == [
        "/options",
        "/a~1b",
    ]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (None, ""),
        ([], ""),
        ("hi", ""),
        ({"id": 1}, "/id"),
        ({"id": "a\x00"}, "/id"),
        ({"id": "a" * 513}, "/id"),
        ({"author": "\ud800"}, "/author"),
        ({"invocationId": []}, "/invocationId"),
        ({"branch": 1}, "/branch"),
        ({"isolation_scope": "é" * 600}, "/isolation_scope"),
        ({"timestamp": "soon"}, "/timestamp"),
        ({"timestamp": False}, "/timestamp"),
        ({"content": 3}, "/content"),
        ({"content": []}, "/content"),
        ({"content": {"text": "hi"}}, "/content/text"),
        ({"content": {"role": 1}}, "/content/role"),
        ({"content": {"parts": {}}}, "/content/parts"),
        ({"content": {"parts": ["hi"]}}, "/content/parts/0"),
        ({"content": {"parts": [{}, {"text": 1}]}}, "/content/parts/1/text"),
        ({"content": {"parts": [{"functionCall": {"x": 1}}]}}, "/content/parts/0/functionCall/x"),
        ({"actions": []}, "/actions"),
        ({"actions": {"stateDelta": []}}, "/actions/stateDelta"),
        ({"actions": {"made_up": 1}}, "/actions/made_up"),
        ({"actions": {"skipSummarization": "yes"}}, "/actions/skipSummarization"),
        ({"actions": {"artifactDelta": {"a/b": "1"}}}, "/actions/artifactDelta/a~1b"),
        (
            {"actions": {"requestedToolConfirmations": {"c": {"sure": 1}}}},
            "/actions/requestedToolConfirmations/c/sure",
        ),
        ({"actions": {"requestedAuthConfigs": ["c"]}}, "/actions/requestedAuthConfigs"),
        ({"partial": "no"}, "/partial"),
        ({"longRunningToolIds": [1]}, "/longRunningToolIds/0"),
        ({"nodeInfo": "a"}, "/nodeInfo"),
        ({"inputTranscription": "heard"}, "/inputTranscription"),
        ({"usageMetadata": 5}, "/usageMetadata"),
        ({"compiled_seq": -1}, "/compiled_seq"),
        ({"compiled_seq": 1.0}, "/compiled_seq"),
        ({"compiled_seq": 10**30}, "/compiled_seq"),
        ({"invocation_id": "a", "invocationId": "a"}, "/invocationId"),
    ],
)
def test_wrong_field_is_named(value: Json, pointer: str) -> None:
    assert pointer_of(value) == pointer


def nested(depth: int) -> Json:
    value: Json = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_refused_at_a_fixed_depth() -> None:
    assert parse_event({"custom_metadata": {"a": nested(99)}}).notes == ()
    deep = pointer_of({"custom_metadata": {"a": nested(100)}})
    assert deep == "/custom_metadata/a" + "/0" * 99


def test_nesting_without_end_is_refused_not_a_crash() -> None:
    assert pointer_of({"content": {"parts": nested(50_000)}}).startswith("/content/parts/0")


def test_state_that_cannot_be_stored_is_cleaned_and_noted() -> None:
    parsed = parse_event({"actions": {"stateDelta": {"a\x00": float("inf"), "b": 10**30}}})
    assert parsed.state_delta == {"a\ufffd": "inf", "b": 10**30}
    assert noted(parsed) == ["/actions/stateDelta"]


def test_numbers_as_json_gives_them_do_not_crash() -> None:
    text = '{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1e999,"b":%s}}}]}}'
    event = parse_event(json.loads(text % ("9" * 400))).event
    assert event.calls[0].args == '{"a":"inf","b":%s}' % ("9" * 400)


def test_input_is_untouched() -> None:
    before = canonical_json(FULL)
    parse_event(FULL)
    assert canonical_json(FULL) == before


keys = st.sampled_from([*FULL, "role", "parts", "text", "functionCall", "compaction", "name", "x"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=15,
)


@given(st.dictionaries(keys, json_values, max_size=6))
def test_any_json_is_an_event_or_names_what_is_wrong(value: dict[str, Json]) -> None:
    pointer = "/"
    try:
        parse_event(value, allow_markers=True)
    except InvalidEventError as error:
        pointer = error.pointer
    assert pointer.startswith("/")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fingerprint", 5),
        ("contents_count", -1),
        ("contents_count", "2"),
        ("contents_count", True),
        ("invocations_used", -1),
        ("invocations_used", 1.5),
        ("cache_name", {}),
        ("expire_time", "tomorrow"),
        ("expire_time", True),
        ("created_at", float("inf")),
    ],
)
def test_what_is_no_metadata_of_a_cache_is_refused_by_its_field(field: str, value: Any) -> None:
    record = {"fingerprint": "f", "contents_count": 2, field: value}
    with pytest.raises(InvalidEventError) as caught:
        parse_event({"content": "a", "cache_metadata": record})
    assert caught.value.pointer == f"/cache_metadata/{field}"


@pytest.mark.parametrize(
    ("record", "missing"), [({}, "fingerprint"), ({"fingerprint": "f"}, "contents_count")]
)
def test_metadata_of_a_cache_that_lacks_what_it_is_known_by_says_nothing(
    record: Any, missing: str
) -> None:
    parsed = parse_event({"content": "a", "cache_metadata": record})
    assert parsed.event.cache_metadata is None
    assert [pointer for pointer, _ in parsed.notes] == [f"/cache_metadata/{missing}"]


def test_counts_that_are_none_are_told_and_ignored() -> None:
    usage: Any = {"promptTokenCount": -5, "candidatesTokenCount": "x", "totalTokenCount": 3}
    parsed = parse_event({"content": "a", "usageMetadata": usage})
    assert parsed.event.prompt_tokens is None
    assert [pointer for pointer, _ in parsed.notes] == [
        "/usageMetadata/promptTokenCount",
        "/usageMetadata/candidatesTokenCount",
    ]


@pytest.mark.parametrize("event", [{}, {"id": "a", "author": "user", "timestamp": 5}])
def test_an_event_that_says_nothing_is_told(event: Any) -> None:
    assert [pointer for pointer, _ in parse_event(event).notes] == [""]


@pytest.mark.parametrize(
    "said", [{"content": ""}, {"actions": {"escalate": True}}, {"error_code": "x"}]
)
def test_an_event_that_says_anything_is_not(said: Any) -> None:
    assert parse_event(said).notes == ()
