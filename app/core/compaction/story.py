"""The story of a section: a line for each stretch from one message of the user to the next.

user: "Set the service up." → read_file x2 → bot: "It listens on 8080." [1-9]
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.core.compaction.ledger import CountTokens, citation, quoted_text
from app.core.compaction.said import Said, Speaker, is_credential, said
from app.core.compaction.statements import one_line, statements
from app.core.events import Events
from app.core.ranges import of_seqs

#: Characters of a quotation in the story.
STORY_QUOTE: Final = 100


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


@dataclass(slots=True)
class _Episode:
    """What happened from one message of the user to the next."""

    asked: str = ""
    tools: Counter[str] = field(default_factory=Counter)
    answered: str = ""
    answerer: str = ""
    seqs: list[int] = field(default_factory=list)


def story_of(events: Events) -> Iterator[str]:
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
        if is_credential(event):
            continue
        for one in said(event):
            if one.speaker is Speaker.USER and (episode.tools or episode.answered):
                yield episode
                episode = _Episode()
            episode.seqs.append(one.seq)
            _tell(episode, one)
        for call in event.calls:
            episode.tools[one_line(call.name, 60)] += 1
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
