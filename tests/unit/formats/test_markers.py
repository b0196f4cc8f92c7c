"""Markers: made and read by the same module."""

import pytest

from app.core.canonical import Json
from app.core.contents import FunctionCall, Opaque, Text
from app.core.errors import InvalidEventError
from app.core.events import (
    ActivationRequest,
    ElisionRequest,
    FoldRequest,
    MarkerRequest,
    PinRequest,
    PolicyRequest,
    RewindRequest,
    SectionRequest,
    TimedCompactionRequest,
    UndoRequest,
    UnpinRequest,
)
from app.formats.adk import parse_event
from app.formats.markers import marker_body, parse_time

SUMMARY = (
    Text(text="what happened"),
    Opaque(provider="anthropic", type="compaction", raw='{"type":"compaction"}', text="twin"),
)
REQUESTS: list[MarkerRequest] = [
    RewindRequest(before_invocation_id="inv2"),
    RewindRequest(to_seq=7),
    RewindRequest(to_seq=0),
    TimedCompactionRequest(1.5, 2.25, SUMMARY, "model", (("inv1", 1.75),)),
    TimedCompactionRequest(1734292270.899412, 1734292271.0, (), "user"),
    FoldRequest(1, 9, (SectionRequest(None, "", SUMMARY),)),
    FoldRequest(
        2,
        90,
        (
            SectionRequest("c1", "root.a", SUMMARY),
            SectionRequest(None, "", (FunctionCall(id="c", name="f", args='{"a":1}'),)),
        ),
        seqs=((2, 5), (9, 9)),
        level=2,
        is_staged=True,
    ),
    PinRequest((3, 1)),
    UnpinRequest((1,)),
    ElisionRequest((4, 2), 100),
    ElisionRequest((1,)),
    UndoRequest(4),
    ActivationRequest(5),
    PolicyRequest(),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=repr)
def test_marker_is_read_as_it_was_made(request_: MarkerRequest) -> None:
    body = marker_body(request_, id="m1", author="user", invocation_id="inv9")
    event = parse_event(body, allow_markers=True).event
    assert event.request == request_
    assert (event.id, event.author, event.invocation_id) == ("m1", "user", "inv9")
    assert event.notes == ()


@pytest.mark.parametrize(
    "key", ["rewind", "fold", "pin", "unpin", "elision", "undo", "activation", "policy"]
)
def test_marker_of_services_is_refused_from_callers(key: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        parse_event({"actions": {key: {}}})
    assert caught.value.pointer == f"/actions/{key}"


@pytest.mark.parametrize(
    ("actions", "pointer"),
    [
        ({"rewind": {}}, "/rewind/to_seq"),
        ({"rewind": {"to_seq": True}}, "/rewind/to_seq"),
        ({"rewind": {"to_seq": 2**63}}, "/rewind/to_seq"),
        ({"pin": {"seqs": [1, 0]}}, "/pin/seqs/1"),
        ({"pin": {"seqs": 1}}, "/pin/seqs"),
        ({"elision": {"seqs": [0]}}, "/elision/seqs/0"),
        ({"elision": {"seqs": [1], "keep_chars": -1}}, "/elision/keep_chars"),
        ({"undo": {"seq": 1}}, "/undo/seq"),
        ({"fold": {"from_seq": 1}}, "/fold/to_seq"),
        ({"fold": {"from_seq": 1, "to_seq": 2, "seqs": [[1]]}}, "/fold/seqs/0"),
        (
            {"fold": {"from_seq": 1, "to_seq": 2, "sections": [{"content": "s"}]}},
            "/fold/sections/0/content",
        ),
        ({"rewindBeforeInvocationId": 1}, "/rewindBeforeInvocationId"),
        ({"compaction": {"startTimestamp": 1, "endTimestamp": 2}}, "/compaction/compacted_content"),
        (
            {"compaction": {"startTimestamp": "x", "endTimestamp": 2, "compactedContent": {}}},
            "/compaction/startTimestamp",
        ),
        (
            {"compaction": {"startTimestamp": 1, "endTimestamp": 2, "compactedContent": []}},
            "/compaction/compactedContent",
        ),
        ({"compaction": {"events": []}}, "/compaction/events"),
        ({"rewindBeforeInvocationId": "i", "pin": {"seqs": [1]}}, "/pin"),
    ],
)
def test_wrong_marker_is_named(actions: Json, pointer: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        parse_event({"actions": actions}, allow_markers=True)
    assert caught.value.pointer == f"/actions{pointer}"


def test_empty_rewind_target_is_no_marker() -> None:
    assert parse_event({"actions": {"rewind_before_invocation_id": ""}}).event.request is None


def test_excluded_events_of_go_are_read() -> None:
    excluded: Json = [{"invocationId": "i", "timestamp": "1970-01-01T00:00:01Z"}]
    compaction: Json = {
        "startTimestamp": 0,
        "endTimestamp": 2,
        "compactedContent": {"role": "model", "parts": [{"text": "s"}]},
        "excludedEvents": excluded,
    }
    request = parse_event({"actions": {"compaction": compaction}}).event.request
    assert request == TimedCompactionRequest(
        0.0, 2.0, (Text(text="s"),), "model", excluded=(("i", 1.0),)
    )


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0.0),
        (1734292270.899412, 1734292270.899412),
        (1734292270899, 1734292270.899),
        (-5, -5.0),
        ("2024-12-15T19:51:10Z", 1734292270.0),
        ("2024-12-15T20:51:10+01:00", 1734292270.0),
        ("2024-12-15T19:51:10.899412", 1734292270.899412),
        ("2024-12-15 19:51:10", 1734292270.0),
    ],
)
def test_time_is_read_in_every_form(value: Json, seconds: float) -> None:
    assert parse_time(value, "") == seconds


@pytest.mark.parametrize(
    "value",
    [
        True,
        None,
        [],
        "",
        "yesterday",
        "2024-12-15",
        "2024-W50-7T10:00:00",
        "1734292270",
        "2024-13-15T00:00:00Z",
        float("nan"),
        float("inf"),
        10**400,
        -(10**400),
        1e14,
        -1e12,
    ],
)
def test_what_is_no_time_is_refused(value: Json) -> None:
    with pytest.raises(InvalidEventError) as caught:
        parse_time(value, "/t")
    assert caught.value.pointer == "/t"


def test_a_section_of_a_lane_that_only_the_planner_can_name_comes_back_whole() -> None:
    section = SectionRequest("s", "root.t@c1", (Text(text="sum"),), ("t",), "wf/node")
    request = FoldRequest(1, 4, (section,))
    body = marker_body(request, id="m", author="user", invocation_id="")
    assert parse_event(body, allow_markers=True).event.request == request
