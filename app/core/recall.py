"""What a query looks for: the words of a text that an event has to hold.

    terms_of('order 58-1140 "held at the hub"')     order | 58-1140 | held at the hub
    terms_of("订单被扣留")                            订单 | 单被 | 被扣 | 扣留

A word is found as a piece of text, in whatever case. Where a script has no blanks between its
words, pairs of neighbouring characters stand for them, so that a question finds the sentence that
shares most of its words with it.
"""

import re
from typing import Final

#: Of one query; what comes after is noise.
MAX_TERMS: Final = 32
#: Part of the terms that an event must hold.
LEAST_SHARE: Final = 0.5
#: What the terms count for; the rest is for the query as it stands, in one piece.
TERMS_WEIGHT: Final = 0.9

# Han, kana: scripts that write without blanks. Hangul has them.
_UNSPACED: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_PIECE: Final = re.compile(rf'"([^"]+)"|([{_UNSPACED}]+)|([^\s"{_UNSPACED}]+)')
#: Punctuation around a word is the sentence's, not the word's; inside it is (58-1140, a/b.py).
_AROUND: Final = ".,;:!?()[]{}<>'`…。，、；：！？（）「」『』《》“”‘’"  # noqa: RUF001


def terms_of(query: str) -> tuple[str, ...]:
    """Return what the query looks for, each once, in its order; empty when it names nothing."""
    terms: dict[str, None] = {}
    for quoted, unspaced, word in _PIECE.findall(query):
        if unspaced:
            terms.update(dict.fromkeys(_pairs(unspaced)))
        elif found := (quoted or word.strip(_AROUND)).strip():
            terms[found] = None
    return tuple(terms)[:MAX_TERMS]


def least_matches(count: int) -> int:
    """Return how many of so many terms an event must hold."""
    return max(1, -(-count // round(1 / LEAST_SHARE)))


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]
