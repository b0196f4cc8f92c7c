"""Looking for text in a session's originals: masked or not, by words or by a pattern.

A session is looked through from its newest event back, in chunks, each a statement with what is
left of the time; so a search takes bounded time whatever the session's size, and a pattern that the
engine cannot get through ends where its time does. Patterns run in Postgres, whose engine can be
stopped.

What is searched is the text of each part as `codec.py` packs it, without thoughts and media. There
is no index: see `migrations/README.md`.
"""

# Statements that share a piece are put together from constants, as LiteralString proves.
# ruff: noqa: S608

import heapq
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, LiteralString, TypeAlias

import asyncpg

from app.core.canonical import json_string
from app.core.copying import replace
from app.core.errors import InvalidInputError, StorageUnavailableError
from app.core.lanes import ANYONE
from app.core.ranges import Ranges, intersect
from app.core.recall import TERMS_WEIGHT
from app.ports import SearchHit, SearchQuery, SearchResult, SessionKey
from app.storage.codec import pack_multirange
from app.storage.connection import PgConnection, Row, fetch
from app.storage.live_read import VISIBLE_LANES, reader_values

#: Events of one statement. About 0.2 s for words, on rows of half a kilobyte.
CHUNK_EVENTS: Final = 20_000
#: A pattern is tried on nothing first: one that is wrong, or too large to be compiled in this time,
#: is refused before any event is read.
_TRIAL_S: Final = 1.0


#: Score, seq, hit.
_Ranked: TypeAlias = tuple[float, int, SearchHit]


class PgEventSearch:
    """:class:`app.ports.EventSearch` on Postgres."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        """Take what measures the time of a search."""
        self._monotonic_s = monotonic_s

    async def search(
        self,
        connection: PgConnection,
        key: SessionKey,
        query: SearchQuery,
        *,
        timeout_s: float,
    ) -> SearchResult:
        until_s = self._monotonic_s() + timeout_s
        if not query.terms:
            query = replace(query, text=_as_postgres(query.text))
            await _try_pattern(connection, query.text)
        best: list[_Ranked] = []
        is_cut = False
        looked_from = query.ranges[-1][1] + 1 if query.ranges else 1
        for span in _chunks(query.ranges):
            left_s = until_s - self._monotonic_s()
            rows = await _in_time(connection, key, query, span=span, left_s=left_s)
            if rows is None:
                if not best and looked_from > query.ranges[-1][1]:
                    raise _too_slow(query)
                return SearchResult(_hits(best), looked_from, is_complete=False)
            is_cut = is_cut or len(best) + len(rows) > query.limit
            best = _better(best, rows, query.limit)
            looked_from = span[0]
            if len(best) == query.limit and best[0][0] >= 1.0:
                # Older ones cannot be better, and of equal ones the newest count.
                is_cut = is_cut or looked_from > query.ranges[0][0]
                break
        if not is_cut:
            return SearchResult(_hits(best), 1, is_complete=True)
        # What a pattern matches is all alike, newest first; what was left of words may be anywhere.
        oldest = best[0][1] if best and not query.terms else 1
        return SearchResult(_hits(best), oldest, is_complete=False)


def _too_slow(query: SearchQuery) -> Exception:
    if query.terms:
        return StorageUnavailableError("the search found no time")
    return InvalidInputError("the pattern takes too long", pointer="/query")


def _chunks(ranges: Ranges) -> Iterator[tuple[int, int]]:
    """Yield spans that hold the ranges, newest first."""
    if not ranges:
        return
    first, end = ranges[0][0], ranges[-1][1]
    while end >= first:
        start = max(first, end - CHUNK_EVENTS + 1)
        if intersect(ranges, ((start, end),)):
            yield start, end
        end = start - 1


def _better(best: Sequence[_Ranked], rows: Sequence[Row], limit: int) -> list[_Ranked]:
    """Return the best of both, the worst first."""
    found = [(row["score"], row["seq"], _hit(row)) for row in rows]
    return sorted(heapq.nlargest(limit, [*best, *found], key=_rank), key=_rank)


def _rank(ranked: _Ranked) -> tuple[float, int]:
    return ranked[:2]


def _hit(row: Row) -> SearchHit:
    return SearchHit(
        seq=row["seq"], kind=row["kind"], snippet=row["snippet"], score=round(row["score"], 4)
    )


def _hits(best: Sequence[_Ranked]) -> tuple[SearchHit, ...]:
    return tuple(hit for _, _, hit in reversed(best))


_SET_TIMEOUT: Final[LiteralString] = "SELECT set_config('statement_timeout', $1, true)"
_TRIAL: Final[LiteralString] = "SELECT '' ~ $1 AS is_match"


#: A bracket expression, or an escape outside of one.
_PIECE: Final = re.compile(
    r"(?P<brackets>\[\^?\]?(?:\\.|\[[:.=].*?[:.=]\]|[^\]\\])*\])|\\(?P<escaped>.)", re.DOTALL
)
#: Word boundaries as nearly everyone writes them; to Postgres a backspace and a backslash.
_BOUNDARIES: Final = {"b": r"\y", "B": r"\Y"}


def _as_postgres(pattern: str) -> str:
    """Return the pattern in Postgres' words."""
    if pattern.startswith("***"):
        # It says itself how it is to be read.
        return pattern
    return _PIECE.sub(lambda piece: _BOUNDARIES.get(piece["escaped"], piece[0]), pattern)


async def _try_pattern(connection: PgConnection, pattern: str) -> None:
    await fetch(connection, _SET_TIMEOUT, str(int(_TRIAL_S * 1000)))
    try:
        with _pattern_errors():
            await fetch(connection, _TRIAL, pattern)
    except asyncpg.QueryCanceledError as error:
        raise InvalidInputError("the pattern takes too long", pointer="/query") from error


@contextmanager
def _pattern_errors() -> Iterator[None]:
    """Translate what a pattern is refused for; some only turn out as they are matched."""
    try:
        yield
    except asyncpg.InvalidRegularExpressionError as error:
        raise InvalidInputError(f"no pattern: {error.args[0]}", pointer="/query") from error
    except (asyncpg.InternalServerError, asyncpg.OutOfMemoryError) as error:
        # Repetitions of repetitions: more states than Postgres can hold in one piece.
        raise InvalidInputError("no pattern: it is too complex", pointer="/query") from error


async def _in_time(
    connection: PgConnection,
    key: SessionKey,
    query: SearchQuery,
    *,
    span: tuple[int, int],
    left_s: float,
) -> Sequence[Row] | None:
    """Return the hits of a chunk, None when its time ran out."""
    if left_s <= 0:
        return None
    await fetch(connection, _SET_TIMEOUT, str(max(1, int(left_s * 1000))))
    try:
        if query.terms:
            return await _search(connection, key, query, span)
        with _pattern_errors():
            return await _search(connection, key, query, span)
    except asyncpg.QueryCanceledError:
        return None


# By the layout of `codec.py`: a part is [kind, base, field, ...], and a base of 1 or that begins
# with true is that of a thought.
_SAID: Final[LiteralString] = """
        SELECT
            p.position,
            CASE (p.part ->> 0)::integer
                WHEN 0 THEN 'text'
                WHEN 1 THEN 'function_call'
                WHEN 2 THEN 'function_response'
                WHEN 3 THEN 'inline_data'
                WHEN 4 THEN 'file_data'
                WHEN 5 THEN 'executable_code'
                WHEN 6 THEN 'code_execution_result'
                ELSE 'opaque'
            END AS kind,
            CASE (p.part ->> 0)::integer
                WHEN 0 THEN p.part ->> 2
                WHEN 1 THEN concat_ws(' ', p.part ->> 3, p.part ->> 4)
                WHEN 2 THEN coalesce(p.part ->> 5, p.part ->> 4)
                WHEN 3 THEN p.part ->> 4
                WHEN 4 THEN concat_ws(' ', p.part ->> 4, p.part ->> 2)
                WHEN 5 THEN p.part ->> 2
                WHEN 6 THEN p.part ->> 3
                ELSE p.part ->> 5
            END AS said
        FROM json_array_elements(e.derived::json -> 1) WITH ORDINALITY AS p (part, position)
        WHERE p.part ->> 1 <> '1' AND p.part -> 1 ->> 0 IS DISTINCT FROM 'true'
        UNION ALL
        SELECT t.position, 'transcription', e.derived::json ->> t.position
        FROM (VALUES (9), (10)) AS t (position)
"""

# $1 session, $2 to $5 reader, $6 ranges, $7 whether there is a reader, $8 limit, $9 and $10 the
# snippet's characters and lead, $11 query.
_EVENTS: Final[LiteralString] = (
    """
    WITH visible AS MATERIALIZED (
        SELECT l.lane
        FROM lanes AS l
        WHERE l.session_uid = $1 AND (NOT $7::boolean OR """
    + VISIBLE_LANES
    + """)
    ),
    chunk AS (
        SELECT e.seq, e.derived
        FROM unnest($6::text::int8multirange) AS span
        CROSS JOIN LATERAL (
            SELECT e.seq, e.lane, e.derived
            FROM events AS e
            WHERE
                e.session_uid = $1
                AND e.seq >= lower(span)
                AND e.seq < upper(span)
                AND e.marker IS NULL
            ORDER BY e.seq
            OFFSET 0
        ) AS e
        WHERE e.lane IN (SELECT v.lane FROM visible AS v)
    )
"""
)

# The query is looked for in the packed text first, which is a matter of bytes: only events that
# hold one of its words are taken apart. $12 terms, $13 the same as they stand in packed text, or
# none where that differs, $14 the least number of terms, $15 what they weigh.
_BY_TERMS: Final[LiteralString] = (
    _EVENTS
    + """
    SELECT
        hit.seq, hit.kind, hit.score,
        substr(
            hit.said, greatest(1, strpos(lower(hit.said), hit.first_term) - $10::integer),
            $9::integer
        ) AS snippet
    FROM (
        SELECT e.seq, best.kind, best.said, best.score, best.first_term
        FROM chunk AS e
        CROSS JOIN LATERAL (
            SELECT
                said.kind, said.said, matched.first_term,
                $15::double precision * matched.terms / cardinality($12::text[])
                + CASE
                    WHEN strpos(lower(said.said), lower($11::text)) > 0
                    THEN 1 - $15::double precision
                    ELSE 0
                END AS score
            FROM ("""
    + _SAID
    + """) AS said
            CROSS JOIN LATERAL (
                SELECT
                    count(*) AS terms,
                    (array_agg(lower(w.term) ORDER BY w.number))[1] AS first_term
                FROM unnest($12::text[]) WITH ORDINALITY AS w (term, number)
                WHERE strpos(lower(said.said), lower(w.term)) > 0
            ) AS matched
            WHERE matched.terms >= $14::integer
            ORDER BY score DESC, said.position
            LIMIT 1
        ) AS best
        WHERE
            $13::text[] IS NULL
            OR EXISTS (
                SELECT FROM unnest($13::text[]) AS w (term)
                WHERE strpos(lower(e.derived), lower(w.term)) > 0
            )
        ORDER BY best.score DESC, e.seq DESC
        LIMIT $8
    ) AS hit
    ORDER BY hit.score DESC, hit.seq DESC
"""
)

_BY_PATTERN: Final[LiteralString] = (
    _EVENTS
    + """
    SELECT
        hit.seq, hit.kind, 1::double precision AS score,
        substr(
            hit.said, greatest(1, regexp_instr(hit.said, $11::text) - $10::integer), $9::integer
        ) AS snippet
    FROM (
        SELECT e.seq, found.kind, found.said
        FROM chunk AS e
        CROSS JOIN LATERAL (
            SELECT said.kind, said.said
            FROM ("""
    + _SAID
    + """) AS said
            WHERE said.said ~ $11::text
            ORDER BY said.position
            LIMIT 1
        ) AS found
        ORDER BY e.seq DESC
        LIMIT $8
    ) AS hit
    ORDER BY hit.seq DESC
"""
)


async def _search(
    connection: PgConnection, key: SessionKey, query: SearchQuery, span: tuple[int, int]
) -> Sequence[Row]:
    wanted = (
        key.uid,
        *reader_values(query.reader or ANYONE),
        pack_multirange(intersect(query.ranges, (span,))),
        query.reader is not None,
        # One more shows that something is left out.
        query.limit + 1,
        query.snippet_characters,
        query.snippet_lead,
        query.text,
    )
    if not query.terms:
        return await fetch(connection, _BY_PATTERN, *wanted)
    terms = list(query.terms)
    return await fetch(
        connection, _BY_TERMS, *wanted, terms, _as_packed(terms), query.least_matches, TERMS_WEIGHT
    )


def _as_packed(terms: Sequence[str]) -> list[str] | None:
    """Return the terms as packed text has them; None where one is escaped there, perhaps twice."""
    packed = [json_string(term)[1:-1] for term in terms]
    return packed if packed == list(terms) else None
