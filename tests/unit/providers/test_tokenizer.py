"""The offline tokenizer takes every text."""

import bpe_openai  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.tokenizer import ENCODING, PIECE_CHARACTERS, RememberedCounts, Tokenizer

_TOKENIZER = Tokenizer()
_ENCODING = bpe_openai.get_encoding(ENCODING)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return _TOKENIZER


def test_known_counts(tokenizer: Tokenizer) -> None:
    assert tokenizer.count("") == 0
    assert tokenizer.count("hello world") == 2


@given(st.text(max_size=60))
def test_counts_what_the_library_encodes(text: str) -> None:
    assert _TOKENIZER.count(text) == len(_ENCODING.encode_ordinary(text))


@pytest.mark.parametrize("text", ["a\ud83d", "\udc00" * 20_000])
def test_lone_surrogates_are_counted_as_what_is_emitted_for_them(
    tokenizer: Tokenizer, text: str
) -> None:
    assert tokenizer.count(text) == tokenizer.count("\ufffd".join(text.split(text[-1])))


def test_special_tokens_are_only_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.count("<|endoftext|>") > 1


@pytest.mark.parametrize(
    "text", ["a" * 1_100_000, " " * 1_100_000, "\x1b[0m" * 30_000, "中" * 90_000]
)
def test_texts_of_a_million_characters_are_counted(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.count(text) > 0


def test_pieces_cost_at_most_one_token_each(tokenizer: Tokenizer) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 5000
    whole = len(_ENCODING.encode_ordinary(text))
    pieces = len(text) // PIECE_CHARACTERS + 1
    assert whole <= tokenizer.count(text) <= whole + pieces


class Noting(Tokenizer):
    def __init__(self) -> None:
        super().__init__()
        self.counted: list[str] = []

    def count(self, text: str) -> int:
        self.counted.append(text)
        return len(text)


def test_a_text_is_counted_once_and_few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    noting = Noting()
    remembered = RememberedCounts(noting)
    monkeypatch.setattr("app.providers.tokenizer.MAX_REMEMBERED", 2)

    assert [remembered.count(text) for text in ("one", "\ud800", "one", "\ud800")] == [3, 1, 3, 1]
    assert noting.counted == ["one", "\ud800"]
    remembered.count("another")
    remembered.count("one")
    assert noting.counted == ["one", "\ud800", "another", "one"]


def test_what_is_known_is_told_without_counting() -> None:
    noting = Noting()
    remembered = RememberedCounts(noting)

    assert remembered.known("some text") is None
    assert noting.counted == []
    remembered.count("some text")
    assert remembered.known("some text") == 9
    assert noting.counted == ["some text"]
