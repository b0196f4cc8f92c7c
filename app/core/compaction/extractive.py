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
come the new ones by score. What the user typed or said with weight and finds no room is counted in
one line that cites its events.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from app.core.compaction.candidates import Candidate, candidates
from app.core.compaction.ledger import (
    HEADER,
    CountTokens,
    LedgerClass,
    LedgerLine,
    SectionText,
    by_class,
    cap_ledger,
    joined_lines,
    line_text,
    parse_section,
    print_section,
    quoted_text,
    stand_in,
)
from app.core.compaction.said import Speaker
from app.core.compaction.section_budget import Budget
from app.core.compaction.statements import one_line, says_something
from app.core.compaction.story import fit_story, story_of
from app.core.compaction.superseding import without_superseded
from app.core.events import Events

#: What the story may take of a section when the ledger wants the room too.
STORY_SHARE: Final = 0.2
#: What new lines may take of a ledger that is full of carried ones.
NEW_SHARE: Final = 0.3
#: "## Open questions" and its line break.
HEADING_TOKENS: Final = 5


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
    found = candidates(events, seed if carried is None else None)
    carried = carried or SectionText(story=tuple(_foreign_story(seed)))
    known = list(joined_lines(carried.ledger))
    fresh = [one for one in found if one.line not in set(known)]
    known, fresh = without_superseded(known, fresh)
    ledger = _fill(known, fresh, budget, count)
    told = SectionText(by_class(ledger))
    used = count(HEADER) + sum(_cost(line, count) for line in ledger)
    # A full ledger leaves the story its share as long as the section may grow.
    left = min(
        budget.most_tokens - max(used, count(print_section(told))),
        max(budget.tokens - used, int(budget.tokens * STORY_SHARE)),
    )
    story = fit_story((*carried.story, *story_of(events)), left, count)
    return SectionText(told.ledger, story)


def carried_section(seed: str | None) -> SectionText | None:
    """Return the ledger and story of a previous section, None when it has no such form."""
    return parse_section(seed) if seed else None


def _foreign_story(seed: str | None) -> Iterator[str]:
    """Yield the lines of a summary that is not of our form: somebody's account, quoted."""
    for line in (seed or "").splitlines():
        if says_something(line):
            yield quoted_text("summary", one_line(line))


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
    stretch = cap - (budget.tokens - header)
    chosen = _chosen(known, rest, cap - rules, stretch, count)
    counted = _counted(rest, chosen)
    if counted:
        # Their line wants room too: the least of those chosen makes it, not the oldest.
        room = cap - rules - sum(_cost(line, count) for line in counted)
        chosen = _chosen(known, rest, room, stretch, count)
        counted = _counted(rest, chosen)
    new = [one.line for one in fresh if one.line.kind is LedgerClass.RULE or one.line in chosen]
    return cap_ledger((*known, *new, *counted), cap, count)


def _counted(rest: Sequence[Candidate], chosen: set[LedgerLine]) -> tuple[LedgerLine, ...]:
    """Return the line that counts what the user typed or said with weight and found no room."""
    return stand_in(
        [one.line for one in rest if (one.is_weighty or one.is_typed) and one.line not in chosen]
    )


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
    # What others said, and what holds no value, gives way; the cap sees to it.
    firm = sum(cost for line, cost in carried.items() if line.is_firm)
    least = int(room * NEW_SHARE)
    # New lines of no weight take the places of older ones of the same kind, and of no others.
    quoted = sum(cost for line, cost in carried.items() if line.is_quoted)
    left = room - sum(carried.values()) + min(least, quoted)
    left_for_user = room - firm
    # Only what would not be the first to leave again may take the place of a firm line.
    displacing = max(0, least - left_for_user)
    light = stretch + int(room * STORY_SHARE)
    chosen: set[LedgerLine] = set()
    kinds = {line.kind for line in known}
    for one in sorted(rest, key=_rank):
        cost = _cost(one.line, count)
        cost += 0 if one.line.kind in kinds else HEADING_TOKENS
        if one.is_weighty:
            most = left_for_user + (displacing if one.line.is_firm else 0)
        else:
            most = left - (stretch if one.speaker is Speaker.USER else light)
        if cost <= most:
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
