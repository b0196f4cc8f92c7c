"""Parts: what native JSON they are read from, and that they are written back as they were."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.canonical import Json, canonical_json, clean_text
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
from app.core.copying import replace
from app.core.errors import InvalidEventError
from app.formats.fields import Notes
from app.formats.parts import native_part_text, parse_content, parse_part, part_to_native


def only(value: Json) -> Part:
    (part,) = parse_part(value)
    return part


def pointer_of(value: Json) -> str:
    with pytest.raises(InvalidEventError) as caught:
        parse_part(value, "/p")
    return caught.value.pointer


def call(**fields: Json) -> FunctionCall:
    part = only({"function_call": {"name": "f", **fields}})
    assert isinstance(part, FunctionCall)
    return part


def response(**fields: Json) -> FunctionResponse:
    part = only({"function_response": {"name": "f", **fields}})
    assert isinstance(part, FunctionResponse)
    return part


SPELLINGS: list[tuple[Json, Json]] = [
    (
        {"inline_data": {"mime_type": "image/png", "data": "AAAA", "display_name": "d"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA", "displayName": "d"}},
    ),
    (
        {"file_data": {"file_uri": "gs://a", "mime_type": "image/png"}},
        {"fileData": {"fileUri": "gs://a", "mimeType": "image/png"}},
    ),
    (
        {"function_call": {"name": "f", "args": {"camelCase": 1}}, "thought_signature": "c2ln"},
        {"functionCall": {"name": "f", "args": {"camelCase": 1}}, "thoughtSignature": "c2ln"},
    ),
    (
        {
            "function_response": {
                "name": "f",
                "response": {},
                "parts": [{"inline_data": {"mime_type": "a/b", "data": ""}}],
            }
        },
        {
            "functionResponse": {
                "name": "f",
                "response": {},
                "parts": [{"inlineData": {"mimeType": "a/b", "data": ""}}],
            }
        },
    ),
    ({"executable_code": {"code": "1"}}, {"executableCode": {"code": "1"}}),
    ({"code_execution_result": {"output": "1"}}, {"codeExecutionResult": {"output": "1"}}),
    (
        {"text": "v", "video_metadata": {"start_offset": "1s"}},
        {"text": "v", "videoMetadata": {"startOffset": "1s"}},
    ),
    ({"tool_call": {"id": "t"}}, {"toolCall": {"id": "t"}}),
]


@pytest.mark.parametrize(("snake", "camel"), SPELLINGS)
def test_both_spellings_are_read_alike(snake: Json, camel: Json) -> None:
    assert parse_part(snake) == parse_part(camel)


def test_null_field_is_absent() -> None:
    assert only({"text": "hi", "thought": None, "function_call": None}) == Text(text="hi")


def test_part_without_kind_is_empty_text() -> None:
    assert only({"thought_signature": "c2ln"}) == Text(
        text="", signature="c2ln", signed_by="gemini"
    )


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ([], "/p"),
        ("hi", "/p"),
        (None, "/p"),
        ({"text": 1}, "/p/text"),
        ({"text": "a", "thought": "yes"}, "/p/thought"),
        ({"text": "a", "thoughtSignature": 1}, "/p/thoughtSignature"),
        ({"txt": "a"}, "/p/txt"),
        ({"a/b~c": 1}, "/p/a~1b~0c"),
        ({"function_call": {"name": "f", "arguments": {}}}, "/p/function_call/arguments"),
        ({"functionCall": {"args": {}}}, "/p/functionCall/name"),
        ({"function_call": {"name": "f", "id": 3}}, "/p/function_call/id"),
        ({"function_call": "f"}, "/p/function_call"),
        ({"function_call": {"name": "f" * 1025}}, "/p/function_call/name"),
        ({"function_response": {"name": "f", "is_error": 1}}, "/p/function_response/is_error"),
        ({"function_response": {"parts": [{}]}}, "/p/function_response/parts/0"),
        ({"function_response": {"parts": {}}}, "/p/function_response/parts"),
        ({"inline_data": {"mime_type": "a/b"}}, "/p/inline_data/data"),
        ({"inline_data": {"mime_type": "a/b", "data": "a*b"}}, "/p/inline_data/data"),
        ({"inline_data": {"mime_type": "a/b", "data": "AAAAA"}}, "/p/inline_data/data"),
        ({"inline_data": {"mime_type": "a/b", "data": "AA=A"}}, "/p/inline_data/data"),
        ({"file_data": {"mime_type": "a/b"}}, "/p/file_data/file_uri"),
        ({"video_metadata": []}, "/p/video_metadata"),
        ({"videoMetadata": {"x": 1}}, "/p/videoMetadata/x"),
        ({"opaque": {"provider": "x", "raw": {}}}, "/p/opaque/type"),
        ({"opaque": {"type": "x", "raw": {}}}, "/p/opaque/provider"),
        ({"opaque": {"provider": "x", "type": "y", "raw": "{"}}, "/p/opaque/raw"),
        ({"opaque": {"provider": "x", "type": "y", "raw": "[]"}}, "/p/opaque/raw"),
        ({"opaque": {"provider": "x", "type": "y", "raw": [1]}}, "/p/opaque/raw"),
        ({"opaque": {"provider": "x", "type": "y"}}, "/p/opaque/raw"),
        ({"text": "a", "functionCall": {}, "function_call": {}}, "/p/function_call"),
    ],
)
def test_wrong_field_is_named(value: Json, pointer: str) -> None:
    assert pointer_of(value) == pointer


def test_object_arguments_keep_order_and_numbers() -> None:
    args: Json = {"z": 1, "a": 123456789012345678901234567890, "f": 1.0}
    assert call(args=args).args == '{"z":1,"a":123456789012345678901234567890,"f":1.0}'
    assert call(args=args).args_text is None


def test_missing_arguments_are_an_empty_object() -> None:
    assert call().args == call(args=None).args == "{}"


def test_string_arguments_are_kept_verbatim_beside_the_object() -> None:
    part = call(args='{"a" : 1,  "a": 2}')
    assert part.args == '{"a":2}'
    assert part.args_text == '{"a" : 1,  "a": 2}'


@pytest.mark.parametrize("text", ["not json", "[1]", "3", '{"a": NaN}', '{"a": "\n"}', "null"])
def test_string_arguments_that_are_no_json_object_are_raw(text: str) -> None:
    part = call(args=text)
    assert json.loads(part.args) == {"_raw": text}
    assert part.args_text == text


def test_blank_string_arguments_are_an_empty_object() -> None:
    assert call(args=" ").args == "{}"


def test_string_arguments_nested_without_end_are_raw() -> None:
    text = '{"a":' * 100_000
    assert json.loads(call(args=text).args) == {"_raw": text}
    closed = '{"a":' * 300 + "1" + "}" * 300
    assert json.loads(call(args=closed).args) == {"_raw": closed}


@pytest.mark.parametrize("args", [[1, {"a": 2}], 3, True])
def test_arguments_of_another_type_are_raw_text(args: Json) -> None:
    part = call(args=args)
    assert json.loads(part.args) == {"_raw": canonical_json(args)}
    assert part.args_text is None


def test_string_result_is_output_and_kept_verbatim() -> None:
    part = response(response='{"a": 1}')
    assert json.loads(part.response) == {"output": '{"a": 1}'}
    assert part.response_text == '{"a": 1}'


@pytest.mark.parametrize("value", [[1, 2], 3, False])
def test_result_of_another_type_is_output(value: Json) -> None:
    part = response(response=value)
    assert json.loads(part.response) == {"output": value}
    assert part.response_text is None


def test_missing_result_is_an_empty_object() -> None:
    assert response().response == response(response=None).response == "{}"


def test_url_safe_base64_becomes_the_standard_alphabet() -> None:
    data = bytes(range(256))
    url_safe = base64.urlsafe_b64encode(data).decode().rstrip("=")
    part = only({"inline_data": {"mime_type": "a/b", "data": url_safe}})
    assert isinstance(part, InlineData)
    assert part.data == base64.b64encode(data).decode()


def test_signature_is_verbatim_in_either_alphabet() -> None:
    for signature in ("a-b_", "a+b/"):
        part = only({"text": "t", "thought_signature": signature})
        assert part.signature == signature


@pytest.mark.parametrize("signature", ["abc!", "a b", "=", "ü"])
def test_signature_of_gemini_that_is_no_base64_is_absent_and_noted(signature: str) -> None:
    notes: Notes = []
    (part,) = parse_part({"text": "a", "thoughtSignature": signature}, "/p", notes)
    assert part == Text(text="a")
    assert [pointer for pointer, _ in notes] == ["/p/thoughtSignature"]
    others = only({"text": "a", "thought_signature": signature, "signature_provider": "anthropic"})
    assert (others.signature, others.signed_by) == (signature, "anthropic")


def test_signature_names_its_provider() -> None:
    part = only({"text": "t", "thought_signature": "s", "signature_provider": "anthropic"})
    assert part.signed_by == "anthropic"


def test_part_of_several_kinds_is_split_and_noted() -> None:
    notes: Notes = []
    value: Json = {
        "function_call": {"name": "f"},
        "text": "calling",
        "thought": True,
        "thought_signature": "c2ln",
    }
    assert parse_part(value, "/p", notes) == (
        Text(text="calling", thought=True),
        FunctionCall(
            id=None, name="f", args="{}", thought=True, signature="c2ln", signed_by="gemini"
        ),
    )
    assert [pointer for pointer, _ in notes] == ["/p"]


def test_empty_text_beside_a_call_is_no_part() -> None:
    assert only({"text": "", "function_call": {"name": "f"}}) == call()


@pytest.mark.parametrize("dirty", ["a\x00b", "a\ud800b"])
def test_text_that_cannot_be_emitted_is_cleaned_and_noted(dirty: str) -> None:
    notes: Notes = []
    assert parse_part({"text": dirty}, "/p", notes) == (Text(text="a\ufffdb"),)
    assert [pointer for pointer, _ in notes] == ["/p/text"]


def test_values_that_cannot_be_emitted_are_replaced_and_noted() -> None:
    notes: Notes = []
    value: Json = {"function_response": {"response": {"a": "\x00", "b": float("inf")}}}
    (part,) = parse_part(value, "/p", notes)
    assert isinstance(part, FunctionResponse)
    assert part.response == '{"a":"\ufffd","b":"inf"}'
    assert [pointer for pointer, _ in notes] == ["/p/function_response/response"]


def test_replacement_character_of_the_caller_is_not_noted() -> None:
    notes: Notes = []
    parse_part({"function_call": {"name": "f", "args": {"a": "\ufffd", "b": "inf"}}}, "", notes)
    assert notes == []


def test_opaque_block_keeps_its_own_text() -> None:
    raw = '{ "type":"compaction", "n": 1.50 }'
    part = only({"opaque": {"provider": "anthropic", "type": "compaction", "raw": raw}})
    assert part == Opaque(provider="anthropic", type="compaction", raw=raw)


def test_opaque_block_given_as_a_value_gets_canonical_text() -> None:
    part = only({"opaque": {"provider": "x", "type": "y", "raw": {"b": 1}, "text": "twin"}})
    assert part == Opaque(provider="x", type="y", raw='{"b":1}', text="twin")


def test_assistant_role_is_read_as_model() -> None:
    assert parse_content({"role": "assistant", "parts": []}).role == "model"


def test_parts_of_a_content_may_be_null() -> None:
    assert parse_content({"role": "user", "parts": None}).parts == ()


texts = st.text().map(clean_text)
scalars: st.SearchStrategy[Json] = st.none() | st.booleans() | st.integers() | texts
objects = st.dictionaries(texts, scalars, max_size=3).map(lambda value: canonical_json({**value}))
names = st.text("abc_-.", min_size=1, max_size=9)
bytes_texts = st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())
media = st.builds(
    InlineData, mime_type=names, data=bytes_texts, display_name=st.none() | texts
) | st.builds(FileData, file_uri=names, mime_type=st.none() | names)
signatures = (
    st.none()
    | st.tuples(names, st.just("anthropic"))
    | st.tuples(st.sampled_from(["c2ln", "a-b_", "a+b/"]), st.just("gemini"))
)


def signed(part: Part, signature: tuple[str, str] | None, *, thought: bool) -> Part:
    by = signature[1] if signature else None
    return replace(
        part, thought=thought, signature=signature[0] if signature else None, signed_by=by
    )


kinds: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=texts, extra=st.sampled_from([None, '{"part_metadata":{"a":1}}'])),
    st.builds(
        FunctionCall, id=st.none() | names, name=names, args=objects, long_running=st.booleans()
    ),
    texts.map(lambda text: call(args=text)),
    st.builds(
        FunctionResponse,
        id=st.none() | names,
        name=names,
        response=objects,
        is_error=st.booleans(),
        media=st.lists(media, max_size=2).map(tuple),
    ),
    texts.map(lambda text: response(response=text)),
    media,
    st.builds(ExecutableCode, code=texts, language=names),
    st.builds(CodeExecutionResult, outcome=names, output=texts),
    st.builds(Opaque, provider=names, type=names, raw=objects, text=texts),
    st.builds(
        Opaque,
        provider=st.just("gemini"),
        type=st.just("tool_call"),
        raw=st.sampled_from(
            (
                '{"tool_call":{"id":"t"}}',
                '{"toolCall":{"id":"t"}}',
                '{"tool_call":{},"new":1}',
                '{"tool_call":5}',
            )
        ),
    ),
)
parts = st.builds(signed, kinds, signatures, thought=st.booleans())


@given(parts)
def test_part_is_written_back_as_it_was(part: Part) -> None:
    notes: Notes = []
    assert parse_part(part_to_native(part), "", notes) == (part,)


@given(parts)
def test_native_text_of_a_part_is_canonical(part: Part) -> None:
    text = native_part_text(part)
    assert text == canonical_json(json.loads(text)) or "1.0" in text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["text", "functionCall", "name", "args", "inline_data", "data", "parts", ""]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_a_part_or_names_what_is_wrong(value: Json) -> None:
    pointer = "/p"
    try:
        parse_part(value, pointer)
    except InvalidEventError as error:
        pointer = error.pointer
    assert pointer.startswith("/p")
