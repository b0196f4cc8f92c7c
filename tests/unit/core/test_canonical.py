import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.canonical import Json, canonical_json, clean_text, is_clean, json_string

REPLACED = "\ufffd"

#: Any text, also such as no provider takes.
texts = st.text(st.characters(exclude_categories=()), max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"b":1,"a":[true,null]}'),
        (10**30, "1" + "0" * 30),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        ("é漢😀\u2028", '"é漢😀\u2028"'),
        ('"\\\n\x1b[0m', '"\\"\\\\\\n\\u001b[0m"'),
        ("a\x00b", f'"a{REPLACED}b"'),
        ("\ud83d", f'"{REPLACED}"'),
        ({"k\x00": "\udc00"}, f'{{"k{REPLACED}":"{REPLACED}"}}'),
        ([float("nan"), float("inf"), -float("inf")], '["nan","inf","-inf"]'),
    ],
)
def test_value_has_one_text(value: Json, text: str) -> None:
    assert canonical_json(value) == text


def test_key_order_stays_as_it_was_given() -> None:
    assert canonical_json({"z": 1, "a": 2}) == '{"z":1,"a":2}'


def test_every_character_is_written_as_the_library_writes_it() -> None:
    text = "".join(map(chr, range(sys.maxunicode + 1)))

    assert json_string(text) == json.dumps(clean_text(text), ensure_ascii=False)


def test_text_that_spells_an_escape_is_no_escape() -> None:
    assert canonical_json("\\u0000") == '"\\\\u0000"'
    assert is_clean("\\u0000")


@pytest.mark.parametrize("value", ["a\x00", "\ud83d", float("nan"), [{"k": "\x00"}], {"\x00": 1}])
def test_what_is_replaced_is_not_clean(value: Json) -> None:
    assert not is_clean(value)


def test_pair_of_surrogates_in_json_text_is_one_character() -> None:
    assert canonical_json(json.loads('"\\ud83d\\ude00"')) == '"😀"'


@given(values)
def test_text_is_always_valid_json_and_utf_8(value: Any) -> None:
    text = canonical_json(value)
    text.encode()

    again = json.loads(text, parse_constant=_refuse)

    assert canonical_json(again) == text == _library_text(again)
    assert is_clean(again)


@pytest.mark.parametrize("sign", [1, -1])
def test_every_order_of_magnitude_is_written_as_the_library_writes_it(sign: int) -> None:
    numbers = [sign * digits * 10.0**power for digits in (1, 1.25, 9) for power in range(-323, 308)]

    for number in numbers:
        assert canonical_json([number]) == _library_text([number])


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
def test_integers_around_64_bits_keep_every_digit(number: int) -> None:
    assert canonical_json({"n": number}) == f'{{"n":{number}}}'


def _library_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@given(texts)
def test_string_and_cleaned_text_agree(text: str) -> None:
    assert json_string(text) == canonical_json(text)
    assert json.loads(json_string(text)) == clean_text(text)
