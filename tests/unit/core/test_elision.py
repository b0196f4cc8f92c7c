"""The stub of each kind of part."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.canonical import Json, canonical_json
from app.core.contents import (
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    Text,
)
from app.core.elision import elide, leaves_out, stub
from tests.builders import elide as elided
from tests.builders import event, log, user

LONG = "x" * 200
NOTE = "[200 characters left out: expand seq 7 to read them]"


def test_a_text_is_its_beginning_and_a_note() -> None:
    assert stub(Text(text=LONG), 7, 0) == Text(text=NOTE)
    note = "[195 characters left out: expand seq 7 to read them]"
    assert stub(Text(text=LONG), 7, 5) == Text(text=f"xxxxx\n{note}")


def test_a_result_keeps_its_call_and_its_failure_and_nothing_of_its_body() -> None:
    part = FunctionResponse(
        id="c",
        name="f",
        response=json.dumps({"output": LONG}),
        response_text=LONG,
        is_error=True,
        extra='{"openai_item":{}}',
        media=(InlineData(mime_type="image/png", data="AAAA"), FileData(file_uri="gs://x")),
    )
    stubbed = stub(part, 7, 0)
    assert isinstance(stubbed, FunctionResponse)
    assert (stubbed.id, stubbed.name, stubbed.is_error) == ("c", "f", True)
    assert (stubbed.media, stubbed.extra) == ((), None)
    notes = "[image/png left out: expand seq 7 to see it]\n[file left out: expand seq 7 to see it]"
    assert stubbed.response_text == f"{NOTE}\n{notes}"
    assert json.loads(stubbed.response) == {"output": stubbed.response_text}


def test_a_short_result_with_media_keeps_its_text() -> None:
    part = FunctionResponse(
        id="c", name="f", response="{}", media=(InlineData(mime_type="image/png", data=""),)
    )
    stubbed = stub(part, 7, 0)
    assert isinstance(stubbed, FunctionResponse)
    assert stubbed.response_text == "{}\n[image/png left out: expand seq 7 to see it]"


def test_the_output_of_code_gives_way() -> None:
    part = CodeExecutionResult(outcome="OK", output=LONG)
    assert stub(part, 7, 0) == CodeExecutionResult(outcome="OK", output=NOTE)


@pytest.mark.parametrize(
    "part",
    [
        Text(text=LONG, thought=True),
        Text(text=LONG, signature="sig"),
        FunctionCall(id="c", name="f", args=json.dumps({"a": LONG})),
        FunctionResponse(id="c", name="f", response="{}"),
        ExecutableCode(code=LONG, language="PYTHON"),
        Opaque(provider="anthropic", type="x", raw=LONG, text=LONG),
        InlineData(mime_type="image/png", data=LONG, signature="sig"),
        Text(text="x" * (len(NOTE) - 1)),
    ],
    ids=repr,
)
def test_what_the_provider_checks_and_what_is_short_stays(part: Part) -> None:
    assert stub(part, 7, 0) is part


def test_keeping_as_much_as_there_is_changes_nothing() -> None:
    part = Text(text=LONG)
    assert stub(part, 7, 200) is part
    assert stub(part, 7, 190) is part


def test_tokens_follow_and_never_grow() -> None:
    long, short = Text(text=LONG * 100), Text(text="short")
    done = log(event(long, short, author="user", part_tokens=(5_000, 2)), elided(1, keep=100))
    first, second = elide(done.events[0], done.index, len).part_tokens
    assert 100 < first < 200
    assert second == 2


def test_a_body_whose_stub_takes_no_fewer_tokens_stays() -> None:
    done = log(event(Text(text=LONG), author="user", part_tokens=(20,)), elided(1))
    assert elide(done.events[0], done.index, lambda _: 16) is done.events[0]
    assert not leaves_out(done.events[0], keep_chars=0, count=lambda _: 16)
    assert leaves_out(done.events[0], keep_chars=0, count=lambda _: 15)


def test_an_event_that_is_not_elided_is_itself() -> None:
    done = log(user(LONG), user(LONG), elided(1))
    assert elide(done.events[1], done.index, len) is done.events[1]


@pytest.mark.parametrize(
    ("body", "keep_chars"),
    [("y" * 445, 400), ('a"b\n' * 105, 400), ('{"k":"v"},\n' * 430, 4_600), ("y" * 50, 0)],
)
def test_a_result_that_would_be_sent_longer_stays(body: str, keep_chars: int) -> None:
    part = FunctionResponse(id="c", name="f", response=canonical_json({"r": body}))
    assert stub(part, 3, keep_chars) is part


_bodies = st.text(alphabet=st.sampled_from('ya"\\\n\x01é🙂 {}')).flatmap(
    lambda piece: st.integers(0, 60).map(lambda times: piece * times)
)


@given(
    said=st.one_of(_bodies, st.dictionaries(st.sampled_from("rs"), _bodies), st.lists(_bodies)),
    keep_chars=st.integers(0, 600),
    is_text=st.booleans(),
)
def test_a_stub_is_never_sent_longer(said: Json, *, keep_chars: int, is_text: bool) -> None:
    text = said if isinstance(said, str) else canonical_json(said)
    response = canonical_json(said if isinstance(said, dict) else {"output": said})
    parts: list[Part] = [
        Text(text=text),
        CodeExecutionResult(outcome="OK", output=text),
        FunctionResponse(
            id="c", name="f", response=response, response_text=text if is_text else None
        ),
    ]
    for part in parts:
        short = stub(part, 12, keep_chars)
        for field in ("text", "output"):
            sent, whole = (getattr(each, field, "") for each in (short, part))
            assert len(canonical_json(sent)) <= len(canonical_json(whole))
        if isinstance(short, FunctionResponse) and isinstance(part, FunctionResponse):
            assert len(short.response) <= len(part.response)
            told, was = (
                each.response if each.response_text is None else each.response_text
                for each in (short, part)
            )
            assert len(canonical_json(told)) <= len(canonical_json(was))
