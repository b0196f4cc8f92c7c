"""The offline tokenizer takes every text."""

import pytest

from app.providers.tokenizer import PIECE_CHARACTERS, Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer()


def test_known_counts(tokenizer: Tokenizer) -> None:
    assert tokenizer.count("") == 0
    assert tokenizer.count("hello world") == 2


def test_special_tokens_are_only_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.count("<|endoftext|>") > 1


@pytest.mark.parametrize(
    "text", ["a" * 1_100_000, " " * 1_100_000, "\x1b[0m" * 30_000, "中" * 90_000]
)
def test_texts_of_a_million_characters_are_counted(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.count(text) > 0


def test_pieces_cost_at_most_one_token_each(tokenizer: Tokenizer) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 5000
    whole = len(tokenizer._encoding.encode_ordinary(text))  # noqa: SLF001
    pieces = len(text) // PIECE_CHARACTERS + 1
    assert whole <= tokenizer.count(text) <= whole + pieces
