"""The deterministic summary: statements picked from the events by what they are made of.

    user: "Set up the service. Never touch the billing tables."    events
    bot:  call read_file ... "port = 8080"
    ------------------------------------------------------------
    ## Rules                                                       section
    - Never touch the billing tables. [1]
    ## Facts
    - read_file: "port = 8080" [3]
    ## Story
    - user: "Set up the service." → read_file [1-3]

Needs no model and no network, gives the same text everywhere, and works on any language: which
statements are rules, wishes or decisions it knows by the function words of some
(:mod:`app.core.compaction.cues`), which are facts by the identifiers, numbers and names in them. It
is the default, and what is left when a model fails. The ledger that it makes is also what a model's
summary is held to.

The user's statements count more than an agent's, these more than a tool's; only a user can make a
rule. All rules are kept. Of the rest, those of the previous summary stay as long as they fit, then
come the new ones by score.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.core.compaction.cues import (
    class_of,
    is_emphatic,
    is_heading,
    is_open_question,
    is_prose,
    is_strong_rule,
    is_update,
    label_of,
    points_back,
    tells_of_something,
)
from app.core.compaction.ledger import (
    HEADER,
    CountTokens,
    LedgerClass,
    LedgerLine,
    SectionText,
    by_class,
    cap_ledger,
    citation,
    joined_lines,
    line_text,
    parse_section,
    quoted_text,
)
from app.core.compaction.prompt import Said, Speaker, said
from app.core.compaction.statements import (
    Statement,
    exact_tokens,
    is_negative,
    masked,
    names,
    one_line,
    overlap,
    says_something,
    statements,
    words,
)
from app.core.events import Events
from app.core.ranges import Ranges, of_seqs, union

#: What a section may take by default: this part of what it covers, and never more than so many
#: tokens. A section that grew with the history would be no summary.
COVERED_SHARE: Final = 0.25
MIN_SECTION_TOKENS: Final = 120
MAX_SECTION_TOKENS: Final = 4_000
#: Rules and what else the user said with weight may take more, up to this part of what is covered.
MAX_COVERED_SHARE: Final = 0.75
#: What the story may take of a section when the ledger wants the room too.
STORY_SHARE: Final = 0.2
#: Characters of a quotation in the story.
STORY_QUOTE: Final = 100
#: What is read of one long text: the beginning and the end. A larger result is data to be looked
#: up, and reading all of it would take longer than it is worth.
MAX_READ_CHARACTERS: Final = 24_000
#: What new lines may take of a ledger that is full of carried ones.
NEW_SHARE: Final = 0.3

#: Nobody types more at once: a longer text was pasted, and its single statements weigh less.
TYPED_CHARACTERS: Final = 1_500
#: What a person types tells something, in whatever language, unless it is shorter than this.
TYPED_WORDS: Final = 4
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
#: An update takes the place of the line that is most about the same, from this likeness on.
_SUPERSEDED_WORDS: Final = 0.45
#: "## Open questions" and its line break.
HEADING_TOKENS: Final = 5
#: Said so often in one span, it is a formula.
_FORMULA: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many tokens a section may take."""

    #: What it aims at.
    tokens: int
    #: What it may never exceed, for rules.
    most_tokens: int


def section_budget(
    covered_tokens: int, seed_tokens: int = 0, max_output_tokens: int | None = None
) -> Budget:
    """Return the budget of a section.

    Args:
        covered_tokens: of the events that it is made from.
        seed_tokens: of the previous section, which it supersedes and carries.
        max_output_tokens: as the policy has it; then that is the budget.
    """
    if max_output_tokens is not None:
        return Budget(tokens=max_output_tokens, most_tokens=max_output_tokens)
    share = max(MIN_SECTION_TOKENS, int(covered_tokens * COVERED_SHARE))
    tokens = min(MAX_SECTION_TOKENS, seed_tokens + share)
    most = int(covered_tokens * MAX_COVERED_SHARE) + seed_tokens
    return Budget(tokens=tokens, most_tokens=max(tokens, min(MAX_SECTION_TOKENS, most)))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that the ledger may take."""

    line: LedgerLine
    score: float
    #: The statement, without name and quotation.
    text: str
    speaker: Speaker

    @property
    def is_weighty(self) -> bool:
        """Tell whether it may take the room of the story and of what others said."""
        return self.speaker is Speaker.USER and self.score >= _WEIGHTY


def extract_section(
    events: Events, seed: str | None, *, budget: Budget, count: CountTokens
) -> SectionText:
    """Return the section of these events.

    Args:
        events: of one lane, oldest first.
        seed: the text of the section that this one supersedes, ours or anyone's.

    Raises:
        SummaryRefusedError: the rules alone exceed the budget.
    """
    carried = carried_section(seed)
    candidates = _candidates(events, seed if carried is None else None)
    carried = carried or SectionText(story=tuple(_foreign_story(seed)))
    known = list(joined_lines(carried.ledger))
    fresh = [one for one in candidates if one.line not in set(known)]
    known, fresh = _without_superseded(known, fresh)
    ledger = _fill(known, fresh, budget, count)
    used = count(HEADER) + sum(_cost(line, count) for line in ledger)
    # A full ledger leaves the story its share as long as the section may grow.
    left = min(
        budget.most_tokens - used, max(budget.tokens - used, int(budget.tokens * STORY_SHARE))
    )
    return SectionText(by_class(ledger), fit_story((*carried.story, *_story(events)), left, count))


def carried_section(seed: str | None) -> SectionText | None:
    """Return the ledger and story of a previous section, None when it has no such form."""
    return parse_section(seed) if seed else None


def _foreign_story(seed: str | None) -> Iterator[str]:
    """Yield the lines of a summary that is not of our form: somebody's account, quoted."""
    for line in (seed or "").splitlines():
        if says_something(line):
            yield quoted_text("summary", one_line(line))


def fit_story(story: Sequence[str], max_tokens: int, count: CountTokens) -> tuple[str, ...]:
    """Return the newest lines of the story that fit, and the first, which says how it began."""
    if not story:
        return ()
    left = max_tokens - count("## Story\n")
    costs = [count(f"- {line}\n") for line in story]
    kept: set[int] = set()
    for number in (len(story) - 1, 0, *range(len(story) - 2, 0, -1)):
        if number in kept:
            continue
        if costs[number] > left:
            break
        kept.add(number)
        left -= costs[number]
    return tuple(line for number, line in enumerate(story) if number in kept)


# Candidates


def _candidates(events: Events, summary: str | None) -> list[Candidate]:
    found: dict[tuple[LedgerClass, str], Candidate] = {}
    times: Counter[str] = Counter()
    sayings = [_Saying.of(one) for event in events for one in said(event)]
    if summary:
        sayings.insert(0, _Saying(Speaker.AGENT, "summary", (), _read(summary)))
    answered = _answered(sayings)
    for number, saying in enumerate(sayings):
        # Up to half a point for being new, so that of equals the newer comes first.
        newness = 0.5 * number / len(sayings)
        for draft in _drafts(saying, is_answered=answered[number]):
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
        return cls(one.speaker, one.name, of_seqs((one.seq,)), _read(one.text))


def _read(text: str) -> str:
    if len(text) <= MAX_READ_CHARACTERS:
        return text
    return f"{text[: MAX_READ_CHARACTERS * 3 // 4]}\n{text[-MAX_READ_CHARACTERS // 4 :]}"


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


def _drafts(saying: _Saying, *, is_answered: bool) -> Iterator[_Draft]:
    """Yield what the ledger may take of a saying.

    "The cap is $5. Never exceed it." is one line: a statement that points back, or is of the same
    kind, stays with the one before it.
    """
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
    if kind is LedgerClass.QUESTION and is_answered and not is_open_question(text):
        return None
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
    if len(saying.text) > TYPED_CHARACTERS:
        score -= 0.0 if heading is not None else 1.0
    elif speaker is Speaker.USER and len(words(text)) >= TYPED_WORDS:
        score += 1.0
    if score < _LEAST_SCORE[speaker] or is_heading(text):
        return None
    told = text.removeprefix(label).strip() if labelled is not None and not is_data else text
    return _Draft(speaker, kind or LedgerClass.FACT, text, told, score)


def _candidate(saying: _Saying, draft: _Draft, newness: float) -> Candidate:
    is_user = draft.speaker is Speaker.USER
    told = draft.told if is_user else quoted_text(saying.name, draft.told)
    line = LedgerLine(draft.kind, told, saying.seqs)
    return Candidate(line, draft.score + newness, draft.text, draft.speaker)


def _kind(saying: _Saying, text: str, heading: LedgerClass | None) -> LedgerClass | None:
    kind = class_of(text)
    if kind is LedgerClass.RULE and not is_strong_rule(text) and not _limits(text):
        kind = None
    if heading is not None and heading is not LedgerClass.FACT and kind is not LedgerClass.RULE:
        kind = heading
    if saying.speaker is Speaker.AGENT and kind in (LedgerClass.RULE, LedgerClass.PREFERENCE):
        # An agent's "must" binds nobody; the sentence may still tell something.
        return None
    return kind


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


# Superseded lines


class _Standing:
    """Lines that a later statement may take the place of, by what they are about."""

    def __init__(self, lines: Iterable[LedgerLine]) -> None:
        self.gone: set[LedgerLine] = set()
        self._exact: dict[LedgerLine, frozenset[str]] = {}
        self._about: dict[LedgerLine, frozenset[str]] = {}
        self._by_shape: dict[str, list[LedgerLine]] = {}
        for line in lines:
            self.add(line)

    def add(self, line: LedgerLine) -> None:
        """Let a line of the user stand; what others said has no say and no place to lose."""
        exact = exact_tokens(line.text)
        if line.is_quoted or line.left_out or not exact:
            return
        self._exact[line] = exact
        self._about[line] = words(line.text) - _value_words(exact)
        self._by_shape.setdefault(masked(line.text), []).append(line)

    def supersede(self, update: Candidate) -> None:
        """Note the lines whose place a statement takes."""
        gone = {
            line
            for line in self._by_shape.get(masked(update.line.text), ())
            if self._is_restated(line, update.line)
        }
        if not gone and is_update(update.text):
            gone = self._most_alike(update)
        self.gone |= gone
        for line in gone & self._about.keys():
            del self._about[line]

    def _is_restated(self, line: LedgerLine, update: LedgerLine) -> bool:
        """Tell whether the update is the same sentence about the same thing with another value.

        "The cap is $5." and "The cap is $7." are; "Node 1 is up." and "Node 2 is up." are not, and
        neither are two lines of one list.
        """
        return (
            line.seqs != update.seqs
            and not self._exact[line] <= exact_tokens(update.text)
            and _shared_beginning(line.text, update.text)
        )

    def _most_alike(self, update: Candidate) -> set[LedgerLine]:
        """Return the line that the update is most about, if it gives another value for it."""
        exact = exact_tokens(update.text)
        about = words(update.text) - _value_words(exact)
        alike = {
            line: len(about & other) / max(1, len(about | other))
            for line, other in self._about.items()
            if exact and not self._exact[line] <= exact
        }
        best = max(alike, key=alike.__getitem__, default=None)
        return {best} if best is not None and alike[best] >= _SUPERSEDED_WORDS else set()


def _without_superseded(
    known: Sequence[LedgerLine], fresh: Sequence[Candidate]
) -> tuple[list[LedgerLine], list[Candidate]]:
    """Leave out lines whose place a later statement of the user says to take."""
    standing = _Standing(known)
    for candidate in fresh:
        if candidate.speaker is Speaker.USER:
            standing.supersede(candidate)
            standing.add(candidate.line)
    gone = standing.gone
    return [line for line in known if line not in gone], [
        one for one in fresh if one.line not in gone
    ]


def _shared_beginning(old: str, new: str) -> bool:
    """Tell whether two statements are the same up to a verb that says what something is."""
    same = next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0
    )
    return tells_of_something(old[:same])


def _value_words(exact: Iterable[str]) -> frozenset[str]:
    return frozenset(word for token in exact for word in words(token))


# Filling the ledger


def _fill(
    known: Sequence[LedgerLine], fresh: Sequence[Candidate], budget: Budget, count: CountTokens
) -> tuple[LedgerLine, ...]:
    header = count(HEADER)
    lines = [*known, *(one.line for one in fresh)]
    rules = sum(_cost(line, count) for line in lines if line.kind is LedgerClass.RULE)
    # What the user said with weight may take more than the share; the rest gets what is left of it.
    cap = budget.most_tokens - header
    rest = [one for one in fresh if one.line.kind is not LedgerClass.RULE]
    chosen = _chosen(known, rest, cap - rules, cap - (budget.tokens - header), count)
    new = [one.line for one in fresh if one.line.kind is LedgerClass.RULE or one.line in chosen]
    return cap_ledger((*known, *new), cap, count)


def _chosen(
    known: Sequence[LedgerLine],
    rest: Sequence[Candidate],
    room: int,
    stretch: int,
    count: CountTokens,
) -> set[LedgerLine]:
    """Return the best candidates that fit beside the carried lines.

    Args:
        room: without the rules.
        stretch: how much of the room is for weighty statements of the user only.
    """
    carried = {line: _cost(line, count) for line in known if line.kind is not LedgerClass.RULE}
    # What others said gives way to the user's weighty statements; the cap sees to it.
    firm = sum(cost for line, cost in carried.items() if not line.is_quoted)
    least = int(room * NEW_SHARE)
    # New lines of no weight take the places of older ones of the same kind, and of no others.
    left = room - sum(carried.values()) + min(least, sum(carried.values()) - firm)
    left_for_user = max(room - firm, least)
    light = stretch + int(room * STORY_SHARE)
    chosen: set[LedgerLine] = set()
    kinds = {line.kind for line in known}
    for one in sorted(rest, key=_rank):
        cost = _cost(one.line, count)
        cost += 0 if one.line.kind in kinds else HEADING_TOKENS
        kept_free = stretch if one.speaker is Speaker.USER else light
        if cost <= (left_for_user if one.is_weighty else left - kept_free):
            chosen.add(one.line)
            kinds.add(one.line.kind)
            left_for_user -= cost
            left -= cost
    return chosen


def _rank(one: Candidate) -> tuple[bool, bool, bool, float]:
    # A question that nobody answers will be asked again.
    is_question = one.line.kind is LedgerClass.QUESTION
    return not one.is_weighty, one.speaker is not Speaker.USER, is_question, -one.score


def _cost(line: LedgerLine, count: CountTokens) -> int:
    return count(line_text(line)) + 1


# The story


@dataclass(slots=True)
class _Episode:
    """What happened from one message of the user to the next."""

    asked: str = ""
    tools: Counter[str] = field(default_factory=Counter)
    answered: str = ""
    answerer: str = ""
    seqs: list[int] = field(default_factory=list)


def _story(events: Events) -> Iterator[str]:
    """Yield a line for each stretch from one message of the user to the next."""
    for episode in _episodes(events):
        pieces = []
        if episode.asked:
            pieces.append(quoted_text("user", one_line(episode.asked, STORY_QUOTE)))
        if episode.tools:
            pieces.append(_tools_text(episode.tools))
        if episode.answered:
            answer = one_line(episode.answered, STORY_QUOTE)
            pieces.append(quoted_text(episode.answerer, answer))
        if pieces:
            yield " → ".join(pieces) + citation(of_seqs(episode.seqs))


def _episodes(events: Events) -> Iterator[_Episode]:
    episode = _Episode()
    for event in events:
        for one in said(event):
            if one.speaker is Speaker.USER and (episode.tools or episode.answered):
                yield episode
                episode = _Episode()
            episode.seqs.append(one.seq)
            _tell(episode, one)
        for call in event.calls:
            episode.tools[one_line(call.name, 60)] += 1
            episode.seqs.append(event.seq)
    if episode.seqs:
        yield episode


def _tell(episode: _Episode, one: Said) -> None:
    first = next((each.text for each in statements(one.text) if not each.in_code), "")
    if one.speaker is Speaker.USER:
        episode.asked = episode.asked or first
    elif one.speaker is Speaker.AGENT and first:
        episode.answered, episode.answerer = first, one.name


def _tools_text(tools: Mapping[str, int]) -> str:
    return ", ".join(name if times == 1 else f"{name} x{times}" for name, times in tools.items())
