"""Which lines a later statement of the user takes the place of.

"The cap is $500."   "The cap is $900."                  the first goes: another value
"The cap is $500."   "Correction: make the cap $900."    the first goes: announced
"Node 1 is up."      "Node 2 is up."                     both stay: another thing
"My flight is A-1."  "My flight is B-2."                 both stay: there may be two

What has a name of its own, a flight, a ticket or a file, may be one of several; an amount or a date
is the one that counts now.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from app.core.compaction.candidates import Candidate
from app.core.compaction.cues import is_update, tells_of_something
from app.core.compaction.ledger import LedgerLine
from app.core.compaction.said import Speaker
from app.core.compaction.statements import exact_tokens, masked, words

#: An update takes the place of the line that is most about the same, from this likeness on.
_SUPERSEDED_WORDS: Final = 0.45


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
        """Tell whether the update is the same sentence about the same thing with another amount.

        "The cap is $5." and "The cap is $7." are; "Node 1 is up." and "Node 2 is up." are not, and
        neither are two lines of one list.
        """
        lost = self._exact[line] - exact_tokens(update.text)
        return (
            line.seqs != update.seqs
            and bool(lost)
            and all(map(_is_amount, lost))
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


def without_superseded(
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


def _is_amount(token: str) -> bool:
    """Tell whether an exact token is a number of something, and no name."""
    return not any(letter.isascii() and letter.isalpha() for letter in token)


def _value_words(exact: Iterable[str]) -> frozenset[str]:
    return frozenset(word for token in exact for word in words(token))
