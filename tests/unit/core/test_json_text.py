"""Strict JSON, with the text of what the log keeps."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import MalformedBodyError
from app.core.json_text import parse_json, parse_object, pointer_to, split_members

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(value=VALUES, indent=st.sampled_from([None, 1]), ascii_=st.booleans())
def test_every_json_text_reads_as_json_reads_it(
    value: object, indent: int | None, *, ascii_: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_)
    assert parse_json(text) == json.loads(text)


@given(st.lists(VALUES), st.sampled_from(["", " ", "\n\t"]))
def test_elements_keep_their_exact_text(values: list[object], blank: str) -> None:
    texts = [json.dumps(value) for value in values]
    elements = f"{blank},{blank}".join(texts)
    body = f'{blank}{{{blank}"events"{blank}:{blank}[{blank}{elements}{blank}]{blank}}}{blank}'
    items = parse_object(body, kept=("events",))["events"]
    assert [item.raw for item in items] == texts
    assert [item.value for item in items] == [json.loads(text) for text in texts]


@given(st.dictionaries(st.text(), VALUES))
def test_splitting_an_object_loses_nothing(value: dict[str, object]) -> None:
    text = json.dumps(value)
    assert {key: json.loads(part) for key, part in split_members(text)} == value


def test_repeated_keys_are_split_too() -> None:
    assert split_members('{"a":1, "a" : 2}') == [("a", "1"), ("a", "2")]


def test_a_kept_member_that_is_no_list_is_read_as_it_is() -> None:
    assert parse_object('{"events": {"a": 1}}', kept=("events",)) == {"events": {"a": 1}}


def test_repeated_keys_and_huge_integers_are_noticed_per_element() -> None:
    digits = "9" * 5000
    body = f'{{"events":[{{"a":1}},{{"a":{digits},"b":{{"c":1,"c":2}}}},{{"a":1}}]}}'
    items = parse_object(body, kept=("events",))["events"]
    assert [item.repeated_keys for item in items] == [(), ("c",), ()]
    assert [item.has_huge_integer for item in items] == [False, True, False]
    assert items[1].value["a"] == digits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1, column 1"),
        ('{"a":1,}', "line 1, column 8"),
        ('{\n"a":1\n"b":2}', "line 3, column 1"),
        ('{"a":tru}', "line 1, column 6"),
        ('{"a":1', "line 1, column 7"),
        ('{"a":[1 2]}', "line 1, column 9"),
    ],
)
def test_what_is_malformed_is_located(text: str, said: str) -> None:
    with pytest.raises(MalformedBodyError, match=said):
        parse_object(text)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_words_that_are_no_json_are_refused_where_they_stand(word: str) -> None:
    with pytest.raises(MalformedBodyError, match=word) as caught:
        parse_object(f'{{"events":[1,[{word}]]}}', kept=("events",))
    assert caught.value.pointer == "/events/1"


def test_brackets_in_texts_do_not_count_as_nesting() -> None:
    assert parse_json(json.dumps("[" * 5000)) == "[" * 5000
    assert parse_json(json.dumps([[1]] * 5000)) == [[1]] * 5000


def test_pointers_are_escaped() -> None:
    assert pointer_to("a/b", "~c", 3) == "/a~1b/~0c/3"
