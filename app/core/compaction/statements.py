"""Statements of a text, and what in them must survive word for word.

    "Use port 8080. 截止日期是2025年3月4日。"   two statements
    exact: "8080", "2025年3月4日"              identifiers, numbers, paths, dates, quotations
    words: {"use", "port", "截止", "止日", ...}  what two statements are compared by

Everything goes by the shape of the characters, so it works for languages that nobody listed: a
script without blanks is compared by pairs of characters.
"""

# The tables hold the punctuation and the words of other scripts.
# ruff: noqa: RUF001

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: A statement longer than this is cut: it is no statement but data.
MAX_STATEMENT_CHARACTERS: Final = 400
#: Statements with fewer letters say nothing.
MIN_STATEMENT_LETTERS: Final = 2

CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"

_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|"
    r"Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
# ASCII word boundaries: a Chinese character beside a number ends it.
_EXACT: Final = re.compile(
    "|".join(
        (
            r"https?://[^\s\"'<>()\[\]{}，。；、]+[^\s\"'<>()\[\]{}，。；、.,;:!?]",
            r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
            # Quotations that are short enough to be names.
            r"`[^`\n]{1,80}`",
            r"\"[^\"\n]{1,80}\"",
            r"“[^”\n]{1,80}”",
            r"「[^」\n]{1,80}」",
            r"《[^》\n]{1,80}》",
            # Dates and times.
            r"\d{4}年\d{1,2}月(?:\d{1,2}[日号])?",
            r"\d{1,2}月\d{1,2}[日号]",
            r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?Z?)?",
            rf"\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?\b",
            rf"\b\d{{1,2}}(?:st|nd|rd|th)? {_MONTH}(?: \d{{4}})?\b",
            r"\b\d{1,2}:\d{2}(?::\d{2})?(?: ?[ap]m\b)?",
            # Paths and files.
            r"(?:~|\.{1,2}|\b[A-Za-z]:)?[/\\](?:[\w.@-]+[/\\])*[\w.@-]*\w",
            r"\b[\w.-]+(?:/[\w.-]+)+",
            r"\bv?\d+(?:\.\d+)+(?:[-+]?[a-z]\w*)?\b",
            # Money, and numbers with what they count.
            r"[$€£¥￥₹]\s?\d[\d,.]*\d?(?:\s?[kKmMbB]\b|[万亿千百])?",
            r"\b\d[\d,]*(?:\.\d+)*(?:[万亿千百]|[a-zA-Z°]{1,4}\b|%)?[元个天小时分钟秒人次条台页]*",
            # Identifiers: digits and letters mixed, inner capitals, underscores, dots, capitals.
            r"--?[a-z][\w-]+(?==)|--[a-z][\w-]+",
            r"[@#][\w-]+",
            r"\b[A-Za-z]+(?:[-_.:][A-Za-z0-9]+)*[-_.:]\d[\w.-]*",
            r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{2,}\b",
            r"\b\w+(?:_\w+)+\b",
            r"\b[a-z]+(?:[A-Z][a-z0-9]+)+\b",
            r"\b(?:[A-Z][a-z0-9]+){2,}\b",
            r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?:\(\))?",
            r"\b[A-Z][A-Z0-9]{2,}\b",
        )
    ),
    re.ASCII,
)
_NAME: Final = re.compile(r"(?<=[^\s.!?:。！？：] )[A-Z][a-z]+(?: [A-Z][a-z]+)*")

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+|(?<=[。！？])")
#: A full stop after these ends no sentence.
_ABBREVIATION: Final = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|Mr|Mrs|Ms|Dr|No|approx|[A-Z])\.)$")
_BULLET: Final = re.compile(r"^\s*(?:[-*+•·>]+|\d{1,3}[.)、]|[（(]\d{1,3}[)）]|#{1,6})\s*(?=\S)")
_FENCE: Final = re.compile(r"^\s*(?:```|~~~)")
_ENDS: Final = (".", "!", "?", "。", "！", "？")
_BLANKS: Final = re.compile(r"\s+")

_WORD: Final = re.compile(rf"[^\W\d_{CJK}][^\W_{CJK}]*(?:['’]\w+)?|\d+(?:[.,]\d+)*|[{CJK}]+")
_WORD_WITH_BLANKS: Final = re.compile(rf"[^\W_{CJK}]+(?:['’]\w+)?")
_CJK_CHARACTER: Final = re.compile(f"[{CJK}]")
#: What stands between the words of any script: a list, because marks that are parts of words are no
#: letters for regular expressions.
_BETWEEN_WORDS: Final = (
    r"\s.,;:!?'\"()\[\]{}*`\-\u00a1\u00a7\u00ab\u00b6\u00b7\u00bb\u00bf\u0589\u05be\u060c\u061b\u061f"
    r"\u06d4\u0964\u0965\u0f0b-\u0f14\u1361-\u1368\u17d4-\u17d6\u2000-\u206f\u3000-\u303f\u30fb"
)
_PLAIN_PIECE: Final = re.compile(
    # A sign, a number with what divides it, a character that is a word, a word or symbol.
    rf"(?<![^\W_])-(?=[\d.])|\d+(?:[.,:/]\d+)*|[{CJK}]|[^\d{CJK}{_BETWEEN_WORDS}]+"
)
_STOP_WORDS: Final = frozenset(
    re.split(
        r"\s+",
        """the a an and or of to in on at for with by from is are was were be been it its this that
        these those as we you i he she they our your their my me us them will would can could should
        do does did has have had if so than then there here just also but into up out about""",
    )
)


def any_of(*patterns: str) -> re.Pattern[str]:
    """Return the pattern that matches any of these, in either case."""
    return re.compile("|".join(patterns), re.IGNORECASE)


NEGATION: Final = any_of(
    r"\b(?:no|not|never|nor|none|without|\w+n['’]t|cannot|avoid|forbidden|prohibited|refuse"
    r"|stop|don['’]t)\b",
    r"[不无未勿别非禁严没绝]",
    r"\b(?:nicht|kein\w*|niemals?|jamais|pas|sans|nunca|sin|sem)\b",
)


def is_negative(text: str) -> bool:
    """Tell whether the statement denies or forbids something."""
    return NEGATION.search(text) is not None


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, on one line."""

    text: str
    #: It stands in a block of code.
    in_code: bool = False
    #: It begins a line of its own, where a label may stand.
    starts_line: bool = True


def statements(text: str, limit: int = MAX_STATEMENT_CHARACTERS) -> Iterator[Statement]:
    """Yield each statement of a text, cut to a limit."""
    in_code = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_code = not in_code
            continue
        if in_code:
            if says_something(line):
                yield Statement(one_line(line, limit), in_code=True)
            continue
        starts_line = True
        for sentence in _sentences(_BULLET.sub("", line)):
            if says_something(sentence):
                yield Statement(one_line(sentence, limit), starts_line=starts_line)
                starts_line = False


def plain_statements(text: str) -> frozenset[str]:
    """Return each statement in bare words: two that say the same are equal, and no others are.

    "Never push, Ada!" and "never push Ada" are; neither is "never push Ben", "push Ada" or "never
    push Ada 2". Goes by no list of words, so whatever the language, a "not" is not lost.
    """
    plain = (_plain(one.text) for one in statements(text, len(text)) if not one.in_code)
    return frozenset(one for one in plain if one)


def _plain(text: str) -> str:
    return " ".join(_PLAIN_PIECE.findall(unicodedata.normalize("NFKC", text).casefold()))


def unbroken(text: str, *, short_words: int, limit: int) -> str:
    """Return typed text with the short lines that go on with the line before them joined to it.

        The passphrase has two lines:      The passphrase has two lines: blue whale
        blue
        whale

    Args:
        text: of a person; fenced code in it leaves it as it is.
        short_words: a line of fewer words says nothing alone.
        limit: the most characters of a joined line.
    """
    lines = text.splitlines()
    if any(_FENCE.match(line) for line in lines):
        return text
    joined: list[str] = []
    for line in lines:
        before = joined[-1].rstrip() if joined else ""
        goes_on = before.endswith((":", "：")) or (
            word_count(before) >= short_words and not before.endswith(_ENDS)
        )
        is_short = word_count(line) < short_words and any(map(str.isalnum, line))
        is_own = _BULLET.match(line) is not None
        if is_short and not is_own and goes_on and len(before) + len(line) < limit:
            joined[-1] = f"{before} {line.strip()}"
        else:
            joined.append(line)
    return "\n".join(joined)


def one_line(text: str, limit: int = MAX_STATEMENT_CHARACTERS) -> str:
    """Return the text on one line, cut to a limit."""
    text = _BLANKS.sub(" ", text).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def says_something(text: str) -> bool:
    """Tell whether there is more than punctuation."""
    return sum(character.isalnum() for character in text) >= MIN_STATEMENT_LETTERS


def exact_tokens(text: str) -> frozenset[str]:
    """Return what must survive as it is written: identifiers, numbers, paths, dates, quotations."""
    return frozenset(_bare(match[0]) for match in _EXACT.finditer(text)) - {"e.g", "i.e"}


def names(text: str) -> frozenset[str]:
    """Return words that look like names: capitals in the middle of a sentence."""
    return frozenset(_NAME.findall(text))


def words(text: str) -> frozenset[str]:
    """Return what the statement is about, for comparing: words, and pairs of CJK characters."""
    found: set[str] = set()
    for token in _WORD.findall(text.casefold()):
        if re.match(f"[{CJK}]", token):
            found.update(token[at : at + 2] for at in range(max(1, len(token) - 1)))
        elif token not in _STOP_WORDS:
            found.add(_stem(token))
    return frozenset(found)


def word_count(text: str) -> int:
    """Return of about how many words the text is, the small ones included."""
    characters = len(_CJK_CHARACTER.findall(text))
    # Words of scripts without blanks have one or two characters.
    return len(_WORD_WITH_BLANKS.findall(text)) + characters * 2 // 3


def overlap(some: frozenset[str], others: frozenset[str]) -> float:
    """Return which part of ``some`` is in ``others``; 1 for nothing."""
    return len(some & others) / len(some) if some else 1.0


def masked(text: str) -> str:
    """Return the statement with its values left out: what it is about, not what it says."""
    return _EXACT.sub("\ufffc", text).casefold()


def _bare(token: str) -> str:
    return token.strip('`"“”「」《》').rstrip(".,;:")


def _stem(word: str) -> str:
    """Cut the commonest endings, so that a plural or a past tense is the same word."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) > len(ending) + 3:
            return word.removesuffix(ending)
    return word


def _sentences(line: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(line):
        piece = line[start : end.start()]
        if _ABBREVIATION.search(piece):
            continue
        yield line[start : end.end()]
        start = end.end()
    yield line[start:]
