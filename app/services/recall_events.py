"""Recall: look for text in a session's originals, folded away or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.core.errors import InvalidInputError, SessionNotFoundError
from app.core.index import Index
from app.core.lanes import Reader
from app.core.ranges import Ranges, intersect, subtract, union
from app.core.recall import least_matches, terms_of
from app.ports import (
    Connection,
    Database,
    EventLog,
    EventSearch,
    LockedSession,
    Meter,
    SearchHit,
    SearchQuery,
    SearchResult,
    SessionKey,
)

#: What is looked at. ``all`` is what was not undone: live events and masked ones.
Scope: TypeAlias = Literal["all", "live", "masked", "rewound"]
SearchMode: TypeAlias = Literal["text", "regex"]

#: How long a search may take; a part of a large session is better than nothing after a minute.
RECALL_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What to look for."""

    key: SessionKey
    query: str
    mode: SearchMode = "text"
    scope: Scope = "all"
    limit: int = 10
    #: Only events before this seq: to go on where a search ended.
    before_seq: int | None = None
    #: Whose view; None: an operator's.
    reader: Reader | None = None


@dataclass(frozen=True, slots=True)
class RecalledEvent:
    """An event that holds what was looked for."""

    hit: SearchHit
    #: The fold whose summary stands for it now.
    summary_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What was found."""

    #: Best first.
    hits: tuple[RecalledEvent, ...]
    #: False when something was left out.
    is_complete: bool
    #: Where to go on, as ``before_seq``; None when nothing was left out, or it may stand anywhere.
    next_before_seq: int | None
    head_seq: int


class RecallEvents:
    """Searches the log of a session."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        search: EventSearch,
        meter: Meter,
        timeout_s: float = RECALL_TIMEOUT_S,
    ) -> None:
        self._database = database
        self._log = log
        self._search = search
        self._meter = meter
        self._timeout_s = timeout_s

    async def __call__(self, wanted: Recall) -> Recalled:
        """Search.

        Raises:
            SessionNotFoundError: there is no such session.
            InvalidInputError: the query names nothing, or its pattern cannot be used.
        """
        async with self._database.snapshot() as connection:
            session = await self._log.find_session(connection, wanted.key)
            if session is None:
                raise SessionNotFoundError
            result = await self.search(connection, wanted, _ranges(wanted, session))
        found = "ok" if result.hits else "empty"
        self._meter.recalled("recall", found if result.is_complete else "partial", tokens=0)
        return Recalled(
            hits=tuple(RecalledEvent(hit, session.index.fold_of(hit.seq)) for hit in result.hits),
            is_complete=result.is_complete,
            next_before_seq=None
            if result.is_complete or result.searched_from_seq <= 1
            else result.searched_from_seq,
            head_seq=session.head_seq,
        )

    async def search(self, connection: Connection, wanted: Recall, ranges: Ranges) -> SearchResult:
        """Search in a transaction that another service has open, among these seqs.

        Raises:
            InvalidInputError: the query names nothing, or its pattern cannot be used.
        """
        terms = _terms(wanted)
        is_text = wanted.mode == "text"
        query = SearchQuery(
            ranges=ranges,
            reader=wanted.reader,
            limit=wanted.limit,
            text=wanted.query.replace('"', "").strip() if is_text else wanted.query,
            terms=terms,
            least_matches=least_matches(len(terms)),
        )
        return await self._search.search(connection, wanted.key, query, timeout_s=self._timeout_s)


def _terms(wanted: Recall) -> Sequence[str]:
    if wanted.mode == "regex":
        return ()
    terms = terms_of(wanted.query)
    if not terms:
        raise InvalidInputError("the query names no word", pointer="/query")
    return terms


def _ranges(wanted: Recall, session: LockedSession) -> Ranges:
    last = session.head_seq if wanted.before_seq is None else wanted.before_seq - 1
    return intersect(scope_ranges(session.index, wanted.scope), ((1, min(last, session.head_seq)),))


def scope_ranges(index: Index, scope: Scope) -> Ranges:
    """Return the seqs of a scope; live ones go on for ever."""
    match scope:
        case "live":
            return index.live
        case "rewound":
            return index.rewound
        case "masked":
            return union(pair for shown in index.sections for pair in shown.belongs)
        case "all":
            return subtract(union((*index.live, *scope_ranges(index, "masked"))), index.rewound)
