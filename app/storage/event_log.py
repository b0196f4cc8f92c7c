"""The append-only log of a session: locked, appended to and listed.

Guarantee: whoever appends holds the lock of the session's row from :meth:`PgEventLog.lock_session`
to the commit, so seqs are dense, and what was loaded under the lock still stands when it is used.
``PRIMARY KEY (session_uid, seq)`` is the backstop.
"""

# Statements that share a piece are put together from constants, as LiteralString proves.
# ruff: noqa: S608

from collections.abc import Collection, Mapping, Sequence
from typing import Final, LiteralString
from uuid import UUID

from app.core.canonical import clean_text
from app.core.compile.explicit_cache import CacheRecord
from app.core.compile.trace import EventTrace
from app.core.errors import StorageError
from app.core.events import Fold, Marker
from app.core.index import Index
from app.core.lanes import ANYONE, Reader
from app.core.ranges import FOREVER, Ranges, intersect, union
from app.core.resolve import Facts, Needs
from app.ports import (
    EventFilter,
    LockedSession,
    LoggedEvent,
    LogHead,
    LogRead,
    NewEvent,
    ReadBefore,
    SessionKey,
)
from app.storage import live_read
from app.storage.cache_records import newest_cache_records
from app.storage.codec import (
    Derive,
    pack_index,
    pack_multirange,
    unpack_index,
    unpack_json,
    unpack_marker,
)
from app.storage.compaction_counters import PgCompactionCounters
from app.storage.connection import PgConnection, Row, fetch, fetch_one
from app.storage.facts import load_facts, refresh_facts
from app.storage.insert_events import append_at, insert
from app.storage.live_read import VISIBLE_LANES
from app.storage.log_head import read_head
from app.storage.markers import logged_markers
from app.storage.unread import read_unread

COUNTERS: Final = PgCompactionCounters()


class PgEventLog:
    """:class:`app.ports.EventLog` on Postgres."""

    def __init__(self, derive: Derive) -> None:
        """Take what derives an event from its raw text, for rows of an older version."""
        self._derive = derive

    async def lock_session(self, connection: PgConnection, key: SessionKey) -> LockedSession | None:
        return await _lock(connection, key)

    async def find_session(self, connection: PgConnection, key: SessionKey) -> LockedSession | None:
        return _locked(await fetch_one(connection, _FIND_SESSION, key.uid))

    async def has_only_folds_after(
        self, connection: PgConnection, key: SessionKey, seq: int
    ) -> bool:
        row = await fetch_one(connection, _HAS_MORE_THAN_FOLDS, key.uid, seq)
        assert row is not None
        return not row["has_more"]

    async def load_facts(
        self,
        connection: PgConnection,
        key: SessionKey,
        session: LockedSession | LogHead,
        needs: Needs,
    ) -> Facts:
        return await load_facts(connection, key, session, needs)

    async def refresh_facts(
        self, connection: PgConnection, key: SessionKey, session: LockedSession, facts: Facts
    ) -> None:
        await refresh_facts(connection, key, session, facts)

    async def find_events(
        self, connection: PgConnection, key: SessionKey, ids: Sequence[str]
    ) -> Mapping[str, tuple[int, bytes, int]]:
        return await _find(connection, key, ids)

    async def append(
        self,
        connection: PgConnection,
        key: SessionKey,
        rows: Sequence[NewEvent],
        facts: Facts,
    ) -> None:
        if not rows:
            return
        if not await insert(connection, key, rows, facts):
            raise StorageError("the session's head is not where its lock's holder left it")
        connection.appended.add(key.uid)
        if any(row.event.marker is not None for row in rows):
            await _move_index(connection, key, facts)
            await COUNTERS.recount(connection, key, _shown_tokens(rows, facts))

    async def read_head(
        self,
        connection: PgConnection,
        key: SessionKey,
        standings: Collection[tuple[str | None, str]],
    ) -> LogHead | None:
        return await read_head(connection, key, standings)

    async def append_at(
        self,
        connection: PgConnection,
        key: SessionKey,
        rows: Sequence[NewEvent],
        facts: Facts,
        *,
        head: LogHead,
        then: LogHead,
        ids: Sequence[str],
    ) -> bool:
        is_done = await append_at(connection, key, rows, facts, head=head, then=then, ids=ids)
        if is_done:
            connection.appended.add(key.uid)
        return is_done

    async def read_live(
        self,
        connection: PgConnection,
        key: SessionKey,
        reader: Reader,
        *,
        model: str = "",
        before: ReadBefore | None = None,
    ) -> LogRead | None:
        return await live_read.read_live(
            connection, key, reader, derive=self._derive, model=model, before=before
        )

    async def read_at(
        self, connection: PgConnection, key: SessionKey, reader: Reader, as_of_seq: int
    ) -> LogRead | None:
        return await live_read.read_at(
            connection,
            key,
            reader,
            as_of_seq=as_of_seq,
            markers=await logged_markers(connection, key, as_of_seq),
            derive=self._derive,
        )

    async def read_all(
        self,
        connection: PgConnection,
        key: SessionKey,
        as_of_seq: int | None = None,
        *,
        reader: Reader = ANYONE,
    ) -> LogRead | None:
        if as_of_seq is None:
            return await live_read.read_all(connection, key, reader, self._derive)
        return await live_read.read_all_at(
            connection,
            key,
            reader,
            as_of_seq=as_of_seq,
            markers=await logged_markers(connection, key, as_of_seq),
            derive=self._derive,
        )

    async def read_unread(
        self,
        connection: PgConnection,
        key: SessionKey,
        reader: Reader,
        read: LogRead,
        *,
        up_to_seq: int,
    ) -> Sequence[EventTrace]:
        return await read_unread(connection, key, reader, read, up_to_seq=up_to_seq)

    async def heads(
        self, connection: PgConnection, uids: Sequence[UUID]
    ) -> Mapping[UUID, tuple[UUID, int]]:
        rows = await fetch(connection, _HEADS, list(uids))
        return {row["session_uid"]: (row["incarnation"], row["head_seq"]) for row in rows}

    async def list_events(
        self, connection: PgConnection, key: SessionKey, wanted: EventFilter, index: Index
    ) -> Sequence[LoggedEvent]:
        return await _list(connection, key, wanted, index)

    async def get_event(
        self, connection: PgConnection, key: SessionKey, seq_or_id: int | str
    ) -> LoggedEvent | None:
        return await _get(connection, key, seq_or_id)

    async def count_tokens(self, connection: PgConnection, key: SessionKey, ranges: Ranges) -> int:
        return await _count_tokens(connection, key, ranges)

    async def markers(
        self,
        connection: PgConnection,
        key: SessionKey,
        up_to_seq: int | None = None,
        *,
        after_seq: int = 0,
    ) -> Sequence[tuple[int, Marker]]:
        up_to_seq = FOREVER if up_to_seq is None else up_to_seq
        found = await logged_markers(connection, key, up_to_seq, after_seq=after_seq)
        return [(logged.seq, logged.marker) for logged in found]

    async def cache_records(
        self, connection: PgConnection, key: SessionKey, reader: Reader, up_to_seq: int
    ) -> Sequence[CacheRecord]:
        return await newest_cache_records(connection, key, reader, up_to_seq)

    async def event_seqs(
        self, connection: PgConnection, key: SessionKey, invocation_id: str
    ) -> Sequence[int]:
        return await _event_seqs(connection, key, invocation_id)


# The timeout is set before the row is locked: the scan below the lock needs the row of `waiting`.
# It ends before the statement's own timeout would. No stronger lock is taken: a fork holds the row
# against erasure (FOR KEY SHARE) while it copies, and appends go on.
_LOCK_SESSION: Final[LiteralString] = """
    WITH waiting AS MATERIALIZED (SELECT set_config('lock_timeout', '4s', true))
    SELECT
        s.incarnation, s.app_name, s.user_id, s.head_seq, s.index::text AS index,
        s.live::text AS live, s.rewound::text AS rewound, s.policy::text AS policy,
        s.last_rewind_seq, s.invocation_id, s.is_invocation_complete
    FROM waiting
    CROSS JOIN sessions AS s
    WHERE s.session_uid = $1
    FOR NO KEY UPDATE OF s
"""


async def _lock(connection: PgConnection, key: SessionKey) -> LockedSession | None:
    return _locked(await fetch_one(connection, _LOCK_SESSION, key.uid))


_FIND_SESSION: Final[LiteralString] = """
    SELECT
        s.incarnation, s.app_name, s.user_id, s.head_seq, s.index::text AS index,
        s.live::text AS live, s.rewound::text AS rewound, s.policy::text AS policy,
        s.last_rewind_seq, s.invocation_id, s.is_invocation_complete
    FROM sessions AS s
    WHERE s.session_uid = $1
"""


_HAS_MORE_THAN_FOLDS: Final[LiteralString] = """
    SELECT EXISTS (
        SELECT
        FROM events AS e
        WHERE
            e.session_uid = $1
            AND e.seq > $2
            AND e.kind NOT IN ('compaction', 'activation')
    ) AS has_more
"""


def _locked(row: Row | None) -> LockedSession | None:
    if row is None:
        return None
    return LockedSession(
        incarnation=row["incarnation"],
        app_name=row["app_name"],
        user_id=row["user_id"],
        head_seq=row["head_seq"],
        index=unpack_index(row["index"], row["live"], row["rewound"]),
        policy=unpack_json(row["policy"]),
        last_rewind_seq=row["last_rewind_seq"],
        invocation_id=row["invocation_id"],
        is_invocation_complete=row["is_invocation_complete"],
    )


# For many sessions at once: one look for all that a process follows.
_HEADS: Final[LiteralString] = """
    SELECT session_uid, incarnation, head_seq
    FROM sessions
    WHERE session_uid = ANY ($1::uuid[])
"""

_FIND_EVENTS: Final[LiteralString] = """
    SELECT e.id, e.seq, e.body_hash, e.tokens
    FROM unnest($2::text[]) AS wanted (id)
    CROSS JOIN LATERAL (
        SELECT e.id, e.seq, e.body_hash, e.tokens
        FROM events AS e
        WHERE e.session_uid = $1 AND e.id >= wanted.id AND e.id <= wanted.id
        ORDER BY e.id
        OFFSET 0
    ) AS e
"""


async def _find(
    connection: PgConnection, key: SessionKey, ids: Sequence[str]
) -> Mapping[str, tuple[int, bytes, int]]:
    rows = await fetch(connection, _FIND_EVENTS, key.uid, sorted(set(map(clean_text, ids))))
    return {row["id"]: (row["seq"], row["body_hash"], row["tokens"]) for row in rows}


_MOVE_INDEX: Final[LiteralString] = """
    UPDATE sessions
    SET
        index = $2::text::json,
        live = $3::text::int8multirange,
        rewound = $4::text::int8multirange,
        fold_seqs = $5,
        fold_lanes = $6,
        last_rewind_seq = $7
    WHERE session_uid = $1
"""


async def _move_index(connection: PgConnection, key: SessionKey, facts: Facts) -> None:
    index = facts.index
    await fetch(
        connection,
        _MOVE_INDEX,
        key.uid,
        pack_index(index),
        pack_multirange(index.live),
        pack_multirange(index.rewound),
        [shown.fold_seq for shown in index.sections],
        [facts.lanes[shown.lane].number for shown in index.sections],
        facts.last_rewind_seq,
    )


def _shown_tokens(rows: Sequence[NewEvent], facts: Facts) -> int:
    """Return the tokens of the summaries that are shown now."""
    folds = {seq: marker for seq, marker in facts.markers if isinstance(marker, Fold)}
    # The facts have the batch's own folds as they were resolved, before their texts were counted.
    folds |= {r.event.seq: r.event.marker for r in rows if isinstance(r.event.marker, Fold)}
    return sum(
        folds[shown.fold_seq].sections[shown.section_index].tokens for shown in facts.index.sections
    )


_LOGGED: Final[LiteralString] = """
    SELECT
        e.seq, e.id, e.author, l.branch, e.invocation_id, e.event_at, e.kind, e.raw,
        e.source_format, e.item_part, e.tokens, e.marker, e.created_at
"""

# The ranges hold the status and the bounds on seq; the limit inside each of them keeps its scan
# from reading on. A fold is listed only where all of its lanes are visible: its text tells of all.
_VISIBLE: Final[LiteralString] = (
    """
    WITH visible AS MATERIALIZED (
        SELECT l.lane
        FROM lanes AS l
        WHERE
            l.session_uid = $1
            AND ($7::text IS NULL OR l.branch = $7)
            AND (NOT $8::boolean OR """
    + VISIBLE_LANES
    + """)
    )
    """
    + _LOGGED
    + """
    FROM unnest($6::text::int8multirange) AS span
    CROSS JOIN LATERAL (
        SELECT
            e.session_uid, e.seq, e.id, e.lane, e.author, e.invocation_id, e.event_at, e.kind,
            e.raw, e.source_format, e.item_part, e.tokens, e.marker, e.created_at
        FROM events AS e
        WHERE
            e.session_uid = $1
"""
)
# Along the log, or along an invocation: its events may lie far apart. No equality names the
# invocation, since the order by it would then be that of the primary key as well.
_IN_SPAN: Final[LiteralString] = """
            AND $11::text IS NULL
            AND e.seq >= lower(span)
            AND e.seq < coalesce(upper(span), 9223372036854775807)
"""
_OF_INVOCATION: Final[LiteralString] = """
            AND (e.invocation_id, e.seq) >= ($11::text, lower(span))
            AND (e.invocation_id, e.seq) < ($11, coalesce(upper(span), 9223372036854775807))
"""
_MATCHING: Final[LiteralString] = """
            AND ($9::double precision IS NULL OR e.event_at >= $9)
            AND ($10::text IS NULL OR e.author = $10)
            AND ($12::text IS NULL OR e.kind = $12)
            AND ($13::boolean IS NULL OR (e.marker IS NOT NULL) = $13)
            AND (
                (NOT $8 AND $7 IS NULL)
                OR (
                    e.lane IN (SELECT v.lane FROM visible AS v)
                    AND (
                        NOT $8
                        OR e.section_lanes IS NULL
                        OR e.section_lanes <@ ARRAY(SELECT v.lane FROM visible AS v)
                    )
                )
            )
"""
_OLDEST_FIRST: Final[LiteralString] = """
        LIMIT $14
    ) AS e
    JOIN lanes AS l ON l.session_uid = e.session_uid AND l.lane = e.lane
    ORDER BY e.seq
    LIMIT $14
"""
_NEWEST_FIRST: Final[LiteralString] = """
        LIMIT $14
    ) AS e
    JOIN lanes AS l ON l.session_uid = e.session_uid AND l.lane = e.lane
    ORDER BY e.seq DESC
    LIMIT $14
"""
_LIST_OLDEST: Final[LiteralString] = (
    _VISIBLE + _IN_SPAN + _MATCHING + "ORDER BY e.seq" + _OLDEST_FIRST
)
_LIST_NEWEST: Final[LiteralString] = (
    _VISIBLE + _IN_SPAN + _MATCHING + "ORDER BY e.seq DESC" + _NEWEST_FIRST
)
_LIST_OLDEST_OF_INVOCATION: Final[LiteralString] = (
    _VISIBLE + _OF_INVOCATION + _MATCHING + "ORDER BY e.invocation_id, e.seq" + _OLDEST_FIRST
)
_LIST_NEWEST_OF_INVOCATION: Final[LiteralString] = (
    _VISIBLE
    + _OF_INVOCATION
    + _MATCHING
    + "ORDER BY e.invocation_id DESC, e.seq DESC"
    + _NEWEST_FIRST
)


async def _list(
    connection: PgConnection, key: SessionKey, wanted: EventFilter, index: Index
) -> Sequence[LoggedEvent]:
    is_newest_first = wanted.descending or wanted.last is not None
    rows = await fetch(
        connection,
        _listing(is_newest_first=is_newest_first, of_invocation=wanted.invocation_id is not None),
        key.uid,
        *live_read.reader_values(wanted.reader or ANYONE),
        pack_multirange(_wanted_ranges(wanted, index)),
        wanted.branch,
        wanted.reader is not None,
        wanted.after_time,
        wanted.author,
        wanted.invocation_id,
        wanted.kind,
        None if wanted.status is None else wanted.status == "marker",
        wanted.limit if wanted.last is None else wanted.last,
    )
    events = [_logged(row) for row in rows]
    if is_newest_first and not wanted.descending:
        events.reverse()
    return events[: wanted.limit]


def _listing(*, is_newest_first: bool, of_invocation: bool) -> LiteralString:
    if of_invocation:
        return _LIST_NEWEST_OF_INVOCATION if is_newest_first else _LIST_OLDEST_OF_INVOCATION
    return _LIST_NEWEST if is_newest_first else _LIST_OLDEST


def _wanted_ranges(wanted: EventFilter, index: Index) -> Ranges:
    first = 1 if wanted.after_seq is None else wanted.after_seq + 1
    last = FOREVER if wanted.before_seq is None else wanted.before_seq - 1
    bounds = union([(first, last)])
    if wanted.seqs is not None:
        bounds = intersect(wanted.seqs, bounds)
    match wanted.status:
        case "live":
            return intersect(index.live, bounds)
        case "masked":
            masked = (pair for shown in index.sections for pair in shown.belongs)
            return intersect(union(masked), bounds)
        case "rewound":
            return intersect(index.rewound, bounds)
        case _:
            return bounds


def _logged(row: Row) -> LoggedEvent:
    return LoggedEvent(
        seq=row["seq"],
        id=row["id"],
        author=row["author"],
        branch=row["branch"],
        invocation_id=row["invocation_id"],
        timestamp=row["event_at"],
        kind=row["kind"],
        raw=row["raw"],
        source_format=row["source_format"],
        item_part=row["item_part"],
        tokens=row["tokens"],
        marker=None if row["marker"] is None else unpack_marker(row["marker"]),
        created_at=row["created_at"],
    )


_GET_BY_SEQ: Final[LiteralString] = (
    _LOGGED
    + """
    FROM events AS e
    JOIN lanes AS l ON l.session_uid = e.session_uid AND l.lane = e.lane
    WHERE e.session_uid = $1 AND e.seq >= $2 AND e.seq <= $2
    ORDER BY e.seq
"""
)
_GET_BY_ID: Final[LiteralString] = (
    _LOGGED
    + """
    FROM events AS e
    JOIN lanes AS l ON l.session_uid = e.session_uid AND l.lane = e.lane
    WHERE e.session_uid = $1 AND e.id >= $2 AND e.id <= $2
    ORDER BY e.id
"""
)


async def _get(
    connection: PgConnection, key: SessionKey, seq_or_id: int | str
) -> LoggedEvent | None:
    if isinstance(seq_or_id, int):
        if not 0 < seq_or_id < FOREVER:
            return None
        row = await fetch_one(connection, _GET_BY_SEQ, key.uid, seq_or_id)
    else:
        row = await fetch_one(connection, _GET_BY_ID, key.uid, clean_text(seq_or_id))
    return None if row is None else _logged(row)


_COUNT_TOKENS: Final[LiteralString] = """
    SELECT coalesce(sum(e.tokens), 0)::bigint AS tokens
    FROM unnest($2::text::int8multirange) AS span
    CROSS JOIN LATERAL (
        SELECT e.tokens
        FROM events AS e
        WHERE
            e.session_uid = $1
            AND e.seq >= lower(span)
            AND e.seq < coalesce(upper(span), 9223372036854775807)
            AND e.marker IS NULL
        ORDER BY e.seq
        OFFSET 0
    ) AS e
"""


async def _count_tokens(connection: PgConnection, key: SessionKey, ranges: Ranges) -> int:
    row = await fetch_one(connection, _COUNT_TOKENS, key.uid, pack_multirange(ranges))
    return row["tokens"] if row else 0


_EVENT_SEQS: Final[LiteralString] = """
    SELECT seq
    FROM events
    WHERE
        session_uid = $1
        AND (invocation_id, seq) > ($2, 0)
        AND (invocation_id, seq) <= ($2, 9223372036854775807)
    ORDER BY invocation_id, seq
"""


async def _event_seqs(
    connection: PgConnection, key: SessionKey, invocation_id: str
) -> Sequence[int]:
    rows = await fetch(connection, _EVENT_SEQS, key.uid, clean_text(invocation_id))
    return [row["seq"] for row in rows]
