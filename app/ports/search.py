"""Search over the events of a session."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.core.lanes import Reader
from app.core.ranges import Ranges
from app.ports.base import Connection, SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What to look for, and where."""

    #: Seqs to look at.
    ranges: Ranges
    #: Whose view; None: an operator's.
    reader: Reader | None
    limit: int
    #: The query as it stands.
    text: str
    #: Words, of which an event must hold so many at least; empty: the text is a pattern.
    terms: Sequence[str] = ()
    least_matches: int = 1
    #: Characters of a snippet, and how many of them stand before what was found.
    snippet_characters: int = 240
    snippet_lead: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """An event that holds what was looked for."""

    seq: int
    #: Kind of the part that holds it, as in ``text`` or ``function_response``.
    kind: str
    snippet: str
    #: From 0 to 1.
    score: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best hits of what was looked at."""

    #: Best first; of equal ones the newest first.
    hits: tuple[SearchHit, ...]
    #: Whatever is not among the hits stands before this; 1 or less: it may stand anywhere.
    searched_from_seq: int
    #: Nothing was left out: neither for want of time, nor beyond the limit.
    is_complete: bool


class EventSearch(Protocol):
    """Looks for text in the originals, newest first, for a limited time."""

    async def search(
        self, connection: Connection, key: SessionKey, query: SearchQuery, *, timeout_s: float
    ) -> SearchResult:
        """Return hits. The connection must be a transaction's.

        Raises:
            InvalidInputError: the pattern cannot be read, or takes too long to be of use.
        """
