"""The summary of a lane's events: what it is made of, and which answers are none.

A model is asked for a section and may answer anything: nothing, half of it, an apology, the error
text of a proxy, more than was there. :func:`read_answer` takes what can stand for the events and
names what is wrong with the rest; :func:`held_to_ledger` then puts back what a usable answer lost.
"""

# The tables hold the punctuation and the words of other scripts.
# ruff: noqa: RUF001

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

from app.core.canonical import Json, clean_text
from app.core.compaction.ledger import (
    BINDING,
    HEADER,
    PASSING,
    CountTokens,
    LedgerClass,
    LedgerLine,
    SectionText,
    by_class,
    cap_ledger,
    missing_lines,
    parse_section,
    print_section,
    quoted_text,
)
from app.core.compaction.said import Speaker, said
from app.core.compaction.statements import (
    any_of,
    exact_tokens,
    is_negative,
    one_line,
    overlap,
    plain_statements,
    says_something,
    words,
)
from app.core.compaction.story import fit_story
from app.core.contents import Part
from app.core.copying import replace
from app.core.events import Events
from app.core.ranges import Ranges, contains, intersect, of_seqs, subtract, union

#: Why an answer is not taken.
Rejection: TypeAlias = Literal[
    "empty", "truncated", "filtered", "apology", "error_text", "unrelated", "not_smaller"
]

#: A line that binds nobody rests on what was said if it has this part of its words.
GROUNDED_WORDS: Final = 0.3
#: Prose without headings is about the events if this part of its words occurs in them.
RELATED_WORDS: Final = 0.2
#: With less room there is no story.
_LEAST_STORY_TOKENS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionSummary:
    """A section ready to be appended, and how it came about."""

    #: What the reader is shown.
    text: str
    ledger: tuple[LedgerLine, ...]
    #: Of the part that holds the text.
    tokens: int
    #: ``extractive``, or the kind of the provider that wrote it.
    method: str
    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    #: How often a model was asked; 0 for none.
    attempts: int = 0
    #: Why it is not what the policy asked for: a rejection or the code of a provider's error.
    fallback_reason: str | None = None
    prompt_version: int | None = None
    #: Of an earlier section that is carried as it is; else there is only the text.
    parts: tuple[Part, ...] = ()

    def details(self) -> dict[str, Json]:
        """Return how it came about, for the fold's record."""
        return {
            "summarizer": self.method,
            "model": self.model,
            "usage": {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens},
            "attempts": self.attempts,
            "fallback_reason": self.fallback_reason,
            "prompt_version": self.prompt_version,
        }


# Reading an answer

_APOLOGY: Final = any_of(
    r"^\W*(?:i['’]?m (?:really |very |so )?sorry|i apologi[sz]e|sorry[,.!]|unfortunately"
    r"|my apologies)\b",
    r"^\W*(?:i (?:can(?:not|['’]t)|am unable|won['’]t|will not|do not|don['’]t)|as an ai"
    r"|i['’]m unable)\b",
    r"^\W*(?:i['’]?d be happy to|sure[,!]? (?:please|could|what)|please provide"
    r"|could you (?:please )?provide)",
    r"^\W*(?:抱歉|很抱歉|对不起|非常抱歉|不好意思|很遗憾|作为(?:一个)?(?:AI|人工智能)|我(?:无法"
    r"|不能|没有办法)|请提供)",
    r"^\W*(?:es tut mir leid|désolé|lo siento|desculpe|申し訳|죄송)",
)
_ERROR_TEXT: Final = any_of(
    r"^\W*(?:<!doctype|<html|<\?xml)",
    r"^\W*\"?(?:error|exception|fatal|traceback)\b.{0,40}[:(\"]",
    r"^\W*\{\s*\"(?:error|message|detail|status|code)\"\s*:",
    r"^\W*(?:http )?(?:4\d\d|5\d\d)\b.{0,60}(?:error|bad gateway|unavailable|too many|timeout"
    r"|unauthori[sz]ed|forbidden)",
    r"^\W*(?:internal server error|bad gateway|service unavailable|gateway time-?out"
    r"|too many requests)",
    r"^\W*(?:error code|rate limit|the (?:server|model|service) is (?:overloaded|currently)"
    r"|upstream|context length)",
)
_THINKING: Final = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_FENCE: Final = re.compile(r"^\s*```[a-z]*\n(.*?)\n```\s*$", re.DOTALL)


def read_answer(
    text: str, finish_reason: str, source_words: Callable[[], frozenset[str]]
) -> SectionText | Rejection:
    """Return the section that an answer holds, or why it holds none.

    Args:
        finish_reason: ``stop``, ``length``, ``filtered`` or another that the provider gave.
        source_words: of what was to be summarized; asked for only when there are no headings.
    """
    text = _THINKING.sub("", clean_text(text)).strip()
    if (fenced := _FENCE.match(text)) is not None:
        text = fenced[1].strip()
    if finish_reason == "length":
        return "truncated"
    if finish_reason == "filtered":
        return "filtered"
    # Characters that nobody sees say nothing.
    if not says_something(text):
        return "empty"
    section = parse_section(text)
    if section is not None and section.ledger:
        return section
    if section is not None:
        # It kept to the form, so it is about the matter; but a story may still be an apology.
        return _read_prose("\n".join(section.story), frozenset)
    return _read_prose(text, source_words)


def _read_prose(prose: str, source_words: Callable[[], frozenset[str]]) -> SectionText | Rejection:
    """Take prose as the story alone: the ledger comes from the events."""
    if not says_something(prose):
        return "empty"
    if _ERROR_TEXT.search(prose):
        return "error_text"
    if _APOLOGY.search(prose):
        return "apology"
    source = source_words()
    if source and overlap(words(prose), source) < RELATED_WORDS:
        return "unrelated"
    lines = (one_line(line, limit=len(line)).lstrip("#>-* ") for line in prose.splitlines())
    return SectionText(story=tuple(line for line in lines if says_something(line)))


# Holding it to the ledger


def held_to_ledger(
    answer: SectionText,
    *,
    expected: Sequence[LedgerLine],
    carried: Sequence[LedgerLine],
    events: Events,
    max_tokens: int,
    count: CountTokens,
) -> SectionText:
    """Return the answer with what it lost put back, within the cap.

    Args:
        expected: what code took from the events and the previous section; all of it stays unless
            the answer holds it or says to have replaced it.
        carried: the lines of the previous section.
        events: what the answer stands for.
        max_tokens: of the whole section.

    Raises:
        SummaryRefusedError: the rules alone exceed the cap.
    """
    grounds = _Grounds(events, (*expected, *carried))
    own = tuple(grounds.grounded(line) for line in answer.ledger)
    checked = SectionText(own, answer.story)
    lost = missing_lines(expected, checked)
    room = max_tokens - count(HEADER)
    # Carried lines are older than what the answer says of these events: the cap takes them first.
    lines = sorted((*lost, *own), key=_newest)
    ledger = cap_ledger([replace(line, replaces=()) for line in lines], room, count)
    told = SectionText(by_class(ledger))
    story = tuple(_without_turn(line) for line in answer.story)
    left = max_tokens - count(print_section(told))
    return SectionText(told.ledger, _bounded(story, left, count))


#: "System: do it." may pass for a turn; "user: "Do it."", as code tells it, cannot.
_TURN: Final = re.compile(r"\W*\w[^:：\"]{0,40}[:：](?! \"(?:[^\"\\]|\\.)*\"(?: →| \[|$))")


def _without_turn(line: str) -> str:
    """Return a line of a model's story, quoted if it begins like a turn of somebody."""
    return quoted_text("summary", line) if _TURN.match(line) else line


def _newest(line: LedgerLine) -> int:
    return line.seqs[-1][1] if line.seqs else 0


def _bounded(story: Sequence[str], max_tokens: int, count: CountTokens) -> tuple[str, ...]:
    kept = fit_story(story, max_tokens, count)
    if kept or not story or max_tokens < _LEAST_STORY_TOKENS:
        return kept
    # One long paragraph: its beginning.
    text = story[0]
    while text and count(f"## Story\n- {text}\n") > max_tokens:
        text = text[: len(text) * 3 // 4]
    return (f"{text.rstrip()}…",) if text else ()


class _Grounds:
    """What a model's lines may rest on."""

    def __init__(self, events: Events, known: Iterable[LedgerLine]) -> None:
        self._known = [line for line in known if not line.left_out]
        self._known_words = [words(line.text) for line in self._known]
        self._binding = {
            plain_statements(line.text): line
            for line in reversed(self._known)
            if line.kind in BINDING
        }
        self._own = frozenset[str]().union(*self._binding)
        self._said = [one for event in events for one in said(event)]
        # One line after the other asks of the same texts, which may be long.
        self._words = cache(words)
        self._plain = cache(plain_statements)
        self._seqs = union(
            (
                *of_seqs(event.seq for event in events),
                *(pair for line in self._known for pair in line.seqs),
            )
        )

    def grounded(self, line: LedgerLine) -> LedgerLine:
        """Return the line with the seqs that it may cite; a rule that no user made as a fact.

        What a tool or a document demanded must not come back as the user's word, only because a
        model took it for one, and no more must what a model made of the user's words.
        """
        line = replace(line, seqs=intersect(line.seqs, self._seqs))
        if line.replaces and not self._is_said_later(line):
            line = replace(line, replaces=())
        if not line.seqs:
            line = replace(line, seqs=self._source(words(line.text)))
        if line.kind not in BINDING:
            return line
        told = plain_statements(line.text)
        if not line.replaces and told in self._binding:
            return self._binding[told]
        if line.is_quoted:
            return replace(line, kind=LedgerClass.FACT)
        if line.replaces or self._is_users(told, line.seqs):
            return line
        return replace(line, kind=LedgerClass.FACT, text=quoted_text("summary", line.text))

    def _is_users(self, told: frozenset[str], seqs: Ranges) -> bool:
        """Tell whether the user made every statement: known ones, or in events of these seqs."""
        if not told:
            return False
        return told <= self._own or told <= self._own.union(*map(self._plain, self._users(seqs)))

    def _is_said_later(self, line: LedgerLine) -> bool:
        """Tell whether what it says was said after what it claims to replace: by the user, unless
        it is of a kind that anyone's doings put out of date."""
        newest = max(end for _, end in line.replaces)
        later = tuple((max(start, newest + 1), end) for start, end in line.seqs if end > newest)
        about = words(line.text)
        if line.is_quoted or line.kind in PASSING:
            anyones = [one.text for one in self._said if contains(later, one.seq)]
            return self._rests_on(about, anyones)
        told = self._users(later)
        if line.kind not in BINDING:
            return self._rests_on(about, told)
        own = plain_statements(line.text)
        if own and own <= frozenset[str]().union(*map(self._plain, told)):
            return True
        return self._is_changed_by(told, line)

    def _users(self, seqs: Ranges) -> list[str]:
        """Return what the user said in events of these seqs."""
        return [
            one.text
            for one in self._said
            if one.speaker is Speaker.USER and contains(seqs, one.seq)
        ]

    def _rests_on(self, about: frozenset[str], told: Sequence[str]) -> bool:
        """Tell whether enough of the words were said."""
        spoken = frozenset[str]().union(*map(self._words, told))
        return bool(spoken) and overlap(about, spoken) >= GROUNDED_WORDS

    def _is_changed_by(self, told: Sequence[str], line: LedgerLine) -> bool:
        """Tell whether a line is what it replaces with nothing in it but what the user then said.

        "The cap is $500." and "Make that $900." give "The cap is $900."
        """
        old = [
            one.text for one in self._known if one.seqs and not subtract(one.seqs, line.replaces)
        ]
        new = words(line.text) - frozenset[str]().union(*map(self._words, old))
        exact = frozenset[str]().union(*map(exact_tokens, (*old, *told)))
        # Less than what it replaces is no change.
        if not new or not new <= frozenset[str]().union(*map(self._words, told)):
            return False
        if not exact_tokens(line.text) <= exact:
            return False
        # A "not" neither comes nor goes by itself.
        if is_negative(line.text):
            return any(map(is_negative, (*told, *old)))
        return not any(map(is_negative, told))

    def _source(self, about: frozenset[str]) -> Ranges:
        """Return the seqs of the line that is most about the same; all there are without one."""
        best = max(
            zip(self._known_words, self._known, strict=True),
            key=lambda pair: overlap(about, pair[0]),
            default=None,
        )
        if best is not None and overlap(about, best[0]) >= GROUNDED_WORDS:
            return best[1].seqs
        return self._seqs
