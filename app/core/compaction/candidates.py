"""The lines that a ledger may take of events, each with how much it weighs.

    user: "Set the service up. Never touch the billing tables."
        rule  "Never touch the billing tables."                weight of a user's rule
    read_file returned "port = 8080"
        fact  read_file: "port = 8080"                         weight of a tool's value

The user's statements count more than an agent's, these more than a tool's; only a user can make a
rule.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.compaction.cues import (
    asks,
    class_of,
    is_bare,
    is_emphatic,
    is_heading,
    is_open_question,
    is_prose,
    is_small_talk,
    is_strong_rule,
    label_of,
    points_back,
    tells_of_something,
    told_words,
)
from app.core.compaction.ledger import LedgerClass, LedgerLine, own_text, quoted_text
from app.core.compaction.said import Said, Speaker, said
from app.core.compaction.statements import (
    Statement,
    exact_tokens,
    is_negative,
    names,
    one_line,
    overlap,
    statements,
    unbroken,
    word_count,
    words,
)
from app.core.copying import replace
from app.core.events import Events
from app.core.ranges import Ranges, of_seqs, union

#: What is read of one long text: the beginning and the end. A larger result is data to be looked
#: up, and reading all of it would take longer than it is worth.
MAX_READ_CHARACTERS: Final = 24_000
#: Nobody types more at once: a longer text was pasted, and its single statements weigh less.
TYPED_CHARACTERS: Final = 1_500
#: What a person types tells something, in whatever language, unless it is shorter than this.
TYPED_WORDS: Final = 4
#: Few statements are typed beside what agents and tools say, and nobody else remembers them: they
#: weigh, also without any word that says what kind of statement they are.
TYPED_SCORE: Final = 2.5
#: Before a question that was answered, and is kept for what it tells.
SETTLED: Final = "(answered)"
#: Shorter numbers and names in a question say nothing that is worth a line.
LEAST_NAME_CHARACTERS: Final = 3
#: What an answer is kept with of its question.
MAX_QUESTION_CHARACTERS: Final = 100
#: Statements of one line are joined up to this length.
MAX_JOINED_CHARACTERS: Final = 320

_ROLE_SCORE: Final = {Speaker.USER: 2.0, Speaker.AGENT: 0.5, Speaker.TOOL: 0.0}
_LEAST_SCORE: Final = {Speaker.USER: 2.5, Speaker.AGENT: 2.5, Speaker.TOOL: 1.75}
_CLASS_SCORE: Final = {
    LedgerClass.RULE: 3.0,
    LedgerClass.PREFERENCE: 2.5,
    LedgerClass.STATE: 2.0,
    LedgerClass.DECISION: 2.0,
    LedgerClass.QUESTION: 1.0,
    LedgerClass.FACT: 0.0,
}
#: From this score on a line may take the room of the story.
_WEIGHTY: Final = 3.9
_MAX_EXACT_SCORE: Final = 3.0
#: An agent that says again what the user said adds nothing.
_ECHO_WORDS: Final = 0.7
#: Said so often in one span, it is a formula.
_FORMULA: Final = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that the ledger may take."""

    line: LedgerLine
    score: float
    #: The statement, without name and quotation.
    text: str
    speaker: Speaker
    #: A person typed it, prose or not; it is not pasted.
    is_typed: bool = False

    @property
    def is_weighty(self) -> bool:
        """Tell whether it may take the room of the story and of what others said."""
        return self.speaker is Speaker.USER and self.score >= _WEIGHTY


def candidates(events: Events, summary: str | None) -> list[Candidate]:
    """Return what the ledger may take, oldest first.

    Args:
        events: of one lane, oldest first.
        summary: somebody's account of what came before, read like an agent's words.
    """
    found: dict[tuple[LedgerClass, str], Candidate] = {}
    times: Counter[str] = Counter()
    sayings = [_Saying.of(one) for event in events for one in said(event)]
    if summary:
        sayings.insert(0, _Saying(Speaker.AGENT, "summary", (), _read(summary)))
    answered = _answered(sayings)
    for number, saying in enumerate(sayings):
        # Up to half a point for being new, so that of equals the newer comes first.
        newness = 0.5 * number / len(sayings)
        before = sayings[number - 1] if number else None
        for draft in _drafts(saying, before, is_answered=answered[number]):
            one = _candidate(saying, draft, newness)
            key = (one.line.kind, one.line.text.casefold())
            times[one.text.casefold()] += 1
            known = found.get(key)
            if known is not None:
                seqs = union((*known.line.seqs, *one.line.seqs))
                one = replace(one, line=replace(known.line, seqs=seqs))
            found[key] = one
    return _without_echoes(
        replace(one, score=one.score - (1.5 if times[one.text.casefold()] >= _FORMULA else 0.0))
        for one in found.values()
    )


@dataclass(frozen=True, slots=True)
class _Saying:
    speaker: Speaker
    name: str
    seqs: Ranges
    text: str

    @classmethod
    def of(cls, one: Said) -> "_Saying":
        saying = cls(one.speaker, one.name, of_seqs((one.seq,)), _read(one.text))
        if not saying.is_typed:
            return saying
        text = unbroken(saying.text, short_words=TYPED_WORDS, limit=MAX_JOINED_CHARACTERS)
        return replace(saying, text=text)

    @property
    def is_long(self) -> bool:
        """Tell whether it is more than anybody types at once."""
        return len(self.text) > TYPED_CHARACTERS

    @property
    def is_typed(self) -> bool:
        """Tell whether a person typed it."""
        return self.speaker is Speaker.USER and not self.is_long


def _read(text: str) -> str:
    if len(text) <= MAX_READ_CHARACTERS:
        return text
    return f"{text[: MAX_READ_CHARACTERS * 3 // 4]}\n{text[-MAX_READ_CHARACTERS // 4 :]}"


def _question_of(saying: _Saying | None) -> str:
    """Return what an agent asks at the end of what it says, empty for nothing."""
    if saying is None or saying.speaker is not Speaker.AGENT:
        return ""
    told = [statement.text for statement in statements(saying.text)]
    return one_line(told[-1], MAX_QUESTION_CHARACTERS) if told and asks(told[-1]) else ""


def _answered(sayings: Sequence[_Saying]) -> list[bool]:
    """Tell of each saying whether the other side, people or agents, spoke after it."""
    later: set[Speaker] = set()
    answered = []
    for saying in reversed(sayings):
        answered.append(bool(later - {saying.speaker}))
        if saying.speaker is not Speaker.TOOL:
            later.add(saying.speaker)
    return answered[::-1]


@dataclass(frozen=True, slots=True)
class _Draft:
    """Statements of one line that belong together."""

    speaker: Speaker
    kind: LedgerClass
    text: str
    #: Without the label that its heading repeats.
    told: str
    score: float

    def and_then(self, other: "_Draft") -> "_Draft":
        kind = max(self.kind, other.kind, key=_CLASS_SCORE.__getitem__)
        return _Draft(
            self.speaker,
            kind,
            f"{self.text} {other.text}",
            f"{self.told} {other.told}",
            max(self.score, other.score),
        )


def _drafts(saying: _Saying, before: _Saying | None, *, is_answered: bool) -> Iterator[_Draft]:
    """Yield what the ledger may take of a saying.

    "The cap is $5. Never exceed it." is one line: a statement that points back, or is of the same
    kind, stays with the one before it.

    Args:
        saying: what is said.
        before: what was said just before.
        is_answered: the other side spoke after it.
    """
    if _is_bare_answer(saying) and (question := _question_of(before)):
        yield _answer_draft(saying, question)
        return
    heading: LedgerClass | None = None
    held: _Draft | None = None
    for statement in statements(saying.text):
        if statement.starts_line:
            heading = label_of(statement.text)[1]
        draft = _draft(saying, statement, heading, is_answered=is_answered)
        if held is not None and draft is not None and _belongs(held, draft, statement):
            held = held.and_then(draft)
            continue
        if held is not None:
            yield held
        held = draft
    if held is not None:
        yield held


def _is_bare_answer(saying: _Saying) -> bool:
    """Tell whether all that a person says is a value, which means nothing without its question."""
    text = saying.text
    if saying.speaker is not Speaker.USER or word_count(text) >= TYPED_WORDS or asks(text):
        return False
    return bool(exact_tokens(text) or told_words(text))


def _answer_draft(saying: _Saying, question: str) -> _Draft:
    text = one_line(saying.text)
    score = _shape_score(text) + _ROLE_SCORE[Speaker.USER] + TYPED_SCORE
    told = f"{text} (asked: {question})"
    return _Draft(Speaker.USER, class_of(text) or LedgerClass.FACT, text, told, score)


def _belongs(held: _Draft, draft: _Draft, statement: Statement) -> bool:
    if statement.starts_line or len(held.told) + len(draft.told) > MAX_JOINED_CHARACTERS:
        return False
    if held.speaker is not draft.speaker:
        return False
    return held.kind is draft.kind or points_back(draft.text)


def _draft(
    saying: _Saying,
    statement: Statement,
    heading: LedgerClass | None,
    *,
    is_answered: bool,
) -> _Draft | None:
    """Return what the ledger may take of a statement, None for nothing.

    Args:
        heading: what the label of its line says that it is.
    """
    text, speaker = statement.text, saying.speaker
    is_data = speaker is Speaker.TOOL or statement.in_code or not is_prose(text)
    kind = None if is_data else _kind(saying, text, heading)
    is_settled = kind is LedgerClass.QUESTION and is_answered and not is_open_question(text)
    if is_settled:
        # Whoever asks tells as well: "Why is order 7741 late?"
        if speaker is not Speaker.USER or not _names_something(text):
            return None
        kind = LedgerClass.FACT
    label, labelled = label_of(text)
    score = _shape_score(text)
    if is_data:
        # Whoever pasted it: code and tables are a tool's, and order nobody about.
        speaker = Speaker.TOOL
    else:
        score += _CLASS_SCORE[kind] if kind is not None else 0.0
        score += 1.5 if heading is not None else 0.5 if label else 0.0
        score += 1.0 if is_emphatic(text) else 0.0
    score += _ROLE_SCORE[speaker]
    if saying.is_long:
        score -= 0.0 if heading is not None else 1.0
    elif speaker is Speaker.USER and _is_worth_typing(text):
        score += TYPED_SCORE
    if score < _LEAST_SCORE[speaker] or is_heading(text):
        return None
    is_told_by_heading = labelled is not None and not is_data and is_bare(label)
    told = text.removeprefix(label).strip() if is_told_by_heading else text
    if is_settled:
        told = f"{SETTLED} {told}"
    return _Draft(speaker, kind or LedgerClass.FACT, text, told, score)


def _candidate(saying: _Saying, draft: _Draft, newness: float) -> Candidate:
    is_user = draft.speaker is Speaker.USER
    told = own_text(draft.told) if is_user else quoted_text(saying.name, draft.told)
    line = LedgerLine(draft.kind, told, saying.seqs)
    return Candidate(line, draft.score + newness, draft.text, draft.speaker, saying.is_typed)


def _kind(saying: _Saying, text: str, heading: LedgerClass | None) -> LedgerClass | None:
    kind = class_of(text)
    if kind is LedgerClass.RULE and not is_strong_rule(text) and not _limits(text):
        kind = None
    says_kind = heading not in (None, LedgerClass.FACT, LedgerClass.QUESTION)
    if says_kind and kind is not LedgerClass.RULE:
        kind = heading
    if saying.speaker is Speaker.AGENT and kind in (LedgerClass.RULE, LedgerClass.PREFERENCE):
        # An agent's "must" binds nobody; the sentence may still tell something.
        return None
    return kind


def _is_worth_typing(text: str) -> bool:
    return word_count(text) >= TYPED_WORDS and not is_small_talk(text)


def _names_something(text: str) -> bool:
    """Tell whether there is more to look up than a small number: "on day 3" is not."""
    return any(len(token) >= LEAST_NAME_CHARACTERS for token in exact_tokens(text))


def _limits(text: str) -> bool:
    return bool(exact_tokens(text)) or is_negative(text)


def _shape_score(text: str) -> float:
    """Score what can be looked up, named or compared, less what a long sentence costs."""
    score = min(_MAX_EXACT_SCORE, 1.0 * len(exact_tokens(text)))
    score += 1.5 if names(text) else 0.0
    score += 1.0 if tells_of_something(text) else 0.0
    return score - len(text) / 250


def _without_echoes(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Leave out what an agent only says after the user."""
    everyone = list(candidates)
    asked = [words(one.text) for one in everyone if one.speaker is Speaker.USER]

    def is_echo(one: Candidate) -> bool:
        said_words = words(one.text)
        return any(overlap(said_words, other) >= _ECHO_WORDS for other in asked)

    return [one for one in everyone if one.speaker is not Speaker.AGENT or not is_echo(one)]
