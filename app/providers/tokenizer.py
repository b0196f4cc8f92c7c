"""The offline tokenizer: o200k, which is near enough for every family once sums are calibrated."""

import hashlib
from typing import Final

from bpe_openai import _bindings  # type: ignore[import-untyped]

from app.core.canonical import clean_text

ENCODING: Final = "o200k_base"
#: The library holds the interpreter while it encodes. A thread that only noted when it ran stood
#: still for 61 ms while a million characters of prose were encoded (32 ms of CPU), for 185 ms with
#: random letters and digits (100 ms of CPU). So a thread alone frees nobody; in pieces of this
#: size, of 1 to 3 ms each, others run between two.
PIECE_CHARACTERS: Final = 16_384
#: Texts whose count is remembered, at some 150 bytes each.
MAX_REMEMBERED: Final = 16_384


class Tokenizer:
    """Counts tokens; knows no special tokens, so every text is only text."""

    def __init__(self) -> None:
        # Not the library's class around it, which cannot count but by making a list of the tokens:
        # a quarter more time. Takes 0.8 s, once per process.
        self._encoding = _bindings.tokenizer_for_encoding(ENCODING)

    @property
    def method(self) -> str:
        """How the tokens were counted, for the caller."""
        return ENCODING

    def count(self, text: str) -> int:
        """Return the number of tokens; of a long text, up to one too many per piece."""
        if len(text) <= PIECE_CHARACTERS:
            return self._count(text)
        return sum(
            self._count(text[start : start + PIECE_CHARACTERS])
            for start in range(0, len(text), PIECE_CHARACTERS)
        )

    def _count(self, text: str) -> int:
        try:
            return int(self._encoding.count(text))
        except UnicodeEncodeError:
            return int(self._encoding.count(clean_text(text)))


class RememberedCounts:
    """Counts what comes again with every compile: system text, tools, instructions, what stays of
    elided bodies. By the text's hash, which takes a fiftieth of the time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens_by_hash: dict[bytes, int] = {}

    def count(self, text: str) -> int:
        """Return the number of tokens, as the tokenizer counts them."""
        key = _hash(text)
        tokens = self._tokens_by_hash.get(key)
        if tokens is None:
            tokens = self._tokenizer.count(text)
            if len(self._tokens_by_hash) >= MAX_REMEMBERED:
                self._tokens_by_hash.clear()
            self._tokens_by_hash[key] = tokens
        return tokens

    def known(self, text: str) -> int | None:
        """Return the count of a text that is remembered, without counting any."""
        return self._tokens_by_hash.get(_hash(text))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
