"""Reading a log for a compile: what one reader sees now, what it saw at a position, or everything.

The live read is one statement, so that head, index, state and events are of one moment; a second
one follows only where a live result answers a masked call. Its cost
follows the live events of the lanes that the reader sees: a range scan for each visible lane and
live range that overlap, on the index ``(session_uid, lane, -seq)``. Nothing of the masked history
and of other lanes is looked at; a test counts the rows.
"""

# Statements that share a piece are put together from constants, as LiteralString proves.
# ruff: noqa: S608

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, LiteralString, TypeAlias
from uuid import UUID

import orjson

from app.core.calibration import Learnt
from app.core.canonical import Json
from app.core.compaction.due import Counters
from app.core.compile.breaks import gone_reply
from app.core.copying import replace
from app.core.events import Event
from app.core.index import Index, resolve
from app.core.lanes import Lane, Reader
from app.core.ranges import FOREVER, contains, intersect
from app.core.session_state import merge_state
from app.ports import CompactionStanding, LogRead, ReadBefore, ReadBeside, SessionKey
from app.storage.codec import (
    DERIVED_VERSION,
    NO_ARGS,
    Derive,
    pack_multirange,
    unpack_event,
    unpack_index,
    unpack_lane,
)
from app.storage.connection import PgConnection, Row, fetch
from app.storage.markers import LoggedMarker, shown_lanes
from app.storage.state import replayed_state

# `Reader.sees`, for a lane `l`; a test holds the two equal. $2 isolation scope, $3 branch, $4
# agent, $5 node path.
VISIBLE_LANES: Final[LiteralString] = """(
    l.isolation_scope IS NOT DISTINCT FROM $2::text
    AND (
        $3::text = ''
        OR l.branch = ''
        OR l.branch = $3
        OR starts_with($3, l.branch || '.')
    )
    AND l.node_path IN ('', $5::text)
    AND ($3 <> '' OR $4::text = ALL (l.tool_names))
)"""


def reader_values(reader: Reader) -> tuple[str | None, str, str, str]:
    """Return ``$2`` to ``$5`` of :data:`VISIBLE_LANES`."""
    return (reader.isolation_scope, reader.branch, reader.agent, reader.node_path)


# Every row of a read has these columns; what it is says `row_kind`: s session, l lane, o the event
# of the call that opened the scope, e event, r the newest reply if it is not read any more.
# $6 is the version below which an event is derived again, from its raw text.
_ByKind: TypeAlias = defaultdict[str, list[Row]]
_EVENT: Final[LiteralString] = """
    e.seq, e.lane, e.id, e.author, e.invocation_id, e.event_at, e.derived, e.derived_version,
    e.resolved, e.requested_ids::text AS requested_ids, e.marker, e.source_format, e.item_part,
    CASE WHEN e.derived_version < $6 THEN e.raw END AS raw
"""

_SESSION_ROW: Final[LiteralString] = """
    SELECT
        's' AS row_kind, s.head_seq AS seq, NULL::integer AS lane, NULL AS id, NULL AS author,
        NULL AS invocation_id, NULL::double precision AS event_at,
        json_build_array(
            s.incarnation, s.app_name, s.user_id, s.index::text, s.live::text, s.rewound::text,
            d.state,
            (
                SELECT json_object_agg(a.key, a.value)
                FROM app_states AS a
                WHERE a.tenant_id = s.tenant_id AND a.app_name = s.app_name
            ),
            (
                SELECT json_object_agg(u.key, u.value)
                FROM user_states AS u
                WHERE
                    u.tenant_id = s.tenant_id
                    AND u.app_name = s.app_name
                    AND u.user_id = s.user_id
            )
        )::text AS derived,
        NULL::smallint AS derived_version, NULL AS resolved, NULL AS requested_ids,
        NULL AS marker, NULL AS source_format, NULL::integer AS item_part, NULL AS raw
    FROM sessions AS s
    JOIN session_details AS d ON d.session_uid = s.session_uid
    WHERE s.session_uid = $1
"""

_LANE_COLUMNS: Final[LiteralString] = """
        'l', NULL, l.lane, NULL, NULL, NULL, NULL,
        json_build_array(l.isolation_scope, l.branch, l.tool_names, l.node_path)::text,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""

_OPENING: Final[LiteralString] = """
    SELECT c.seq
    FROM calls AS c
    WHERE
        c.session_uid = $1
        AND (c.call_id, c.seq) > ($2, 0)
        AND (c.call_id, c.seq) <= ($2, log.as_of_seq)
        AND $2 <> ''
        AND c.has_args
    ORDER BY c.call_id, c.seq
    LIMIT 1
"""

_COLUMNS: Final[LiteralString] = """
    e.seq, e.lane, e.id, e.author, e.invocation_id, e.event_at, e.derived, e.derived_version,
    e.resolved, e.requested_ids, e.marker, e.source_format, e.item_part, e.raw
"""

# OFFSET 0 keeps each lateral a scan of its own: without it the planner, once it has statistics,
# joins the whole session and filters. And an order leaves it one index, the one that gives it (see
# `enable_sort` in pool.py): where it believes that a session has one event, it takes any index that
# begins with `session_uid` for as good. Hence two bounds where one column is looked up, since an
# equality makes its order void, and a comparison of rows where two are. Ranges within a lane go by
# -seq: by seq they would be ordered by the primary key as well, and a comparison of rows does not
# end a scan at its second column before Postgres 18.
_BY_SEQ: Final[LiteralString] = (
    """(
        SELECT """
    + _COLUMNS
    + """
        FROM events AS e
        WHERE e.session_uid = $1 AND e.seq >= wanted.seq AND e.seq <= wanted.seq
        ORDER BY e.seq
        OFFSET 0
    )"""
)

_VISIBLE: Final[LiteralString] = (
    """
    visible AS MATERIALIZED (
        SELECT l.lane, l.first_seq, l.last_seq
        FROM lanes AS l
        WHERE l.session_uid = $1 AND """
    + VISIBLE_LANES
    + """
    )
    """
)

# The live events, nearly all of what is read, go straight out: kept aside to be looked at twice,
# they cost half as much again.
_READ: Final[LiteralString] = (
    _VISIBLE
    + """,
    scans AS MATERIALIZED (
        SELECT
            v.lane,
            lower(span) AS from_seq,
            coalesce(upper(span), 9223372036854775807) AS end_seq
        FROM log
        CROSS JOIN LATERAL unnest(log.scanned) AS span
        JOIN visible AS v
            ON v.last_seq >= lower(span) AND (upper_inf(span) OR v.first_seq < upper(span))
    ),
    gone_reply AS (
        SELECT newest.seq
        FROM (
            SELECT max((r.value ->> 0)::bigint) AS seq
            FROM lanes AS l
            CROSS JOIN LATERAL json_each(l.replies) AS r
            WHERE
                l.session_uid = $1
                AND l.branch = $3
                AND l.isolation_scope IS NOT DISTINCT FROM $2
                AND ($4 = '' OR r.key = $4)
        ) AS newest
        CROSS JOIN log
        WHERE newest.seq <= log.as_of_seq AND NOT log.live @> newest.seq
    ),
    opening AS (
        SELECT c.seq
        FROM log
        CROSS JOIN LATERAL ("""
    + _OPENING
    + """) AS c
    ),
    single_events AS MATERIALIZED (
        SELECT wanted.row_kind, """
    + _EVENT
    + """
        FROM (
            SELECT 'e' AS row_kind, f.seq
            FROM log
            CROSS JOIN LATERAL unnest(log.fold_seqs, log.fold_lanes) AS f (seq, lane)
            JOIN visible AS v ON v.lane = f.lane
            UNION
            SELECT 'o', c.seq FROM opening AS c
            UNION
            SELECT 'r', g.seq FROM gone_reply AS g
        ) AS wanted
        CROSS JOIN LATERAL """
    + _BY_SEQ
    + """ AS e
    )
    """
    + _SESSION_ROW
    + """
    UNION ALL
    SELECT """
    + _LANE_COLUMNS
    + """
    FROM lanes AS l
    WHERE
        l.session_uid = $1
        AND l.lane IN (
            SELECT c.lane FROM scans AS c
            UNION
            SELECT e.lane FROM single_events AS e
        )
    UNION ALL
    SELECT 'e', """
    + _EVENT
    + """
    FROM scans AS c
    CROSS JOIN LATERAL (
        SELECT """
    + _COLUMNS
    + """
        FROM events AS e
        WHERE
            e.session_uid = $1
            AND e.lane = c.lane
            AND -e.seq <= -c.from_seq
            AND -e.seq > -c.end_seq
        ORDER BY -e.seq
        OFFSET 0
    ) AS e
    UNION ALL
    SELECT e.row_kind, """
    + _COLUMNS
    + """
    FROM single_events AS e
"""
)

# $7 the seqs of the masked calls, $8 where their answers end, $9 the session's incarnation.
_READ_MASKED: Final[LiteralString] = (
    "WITH "
    + _VISIBLE
    + """,
    masked AS MATERIALIZED (
        SELECT """
    + _EVENT
    + """
        FROM (
            SELECT c.seq FROM unnest($7::bigint[]) AS c (seq)
            UNION
            SELECT a.answer_seq
            FROM unnest($7::bigint[]) AS c (seq)
            CROSS JOIN LATERAL (
                SELECT a.answer_seq
                FROM answers AS a
                WHERE a.session_uid = $1 AND a.call_seq >= c.seq AND a.call_seq <= c.seq
                ORDER BY a.call_seq
                OFFSET 0
            ) AS a
            WHERE a.answer_seq <= $8
        ) AS wanted
        CROSS JOIN LATERAL """
    + _BY_SEQ
    + """ AS e
        WHERE
            e.lane IN (SELECT v.lane FROM visible AS v)
            -- A session of this name that was made meanwhile is another one.
            AND (SELECT s.incarnation FROM sessions AS s WHERE s.session_uid = $1) = $9::uuid
    )
    SELECT 'e' AS row_kind, """
    + _COLUMNS
    + """
    FROM masked AS e
    UNION ALL
    SELECT """
    + _LANE_COLUMNS
    + """
    FROM lanes AS l
    WHERE l.session_uid = $1 AND l.lane IN (SELECT e.lane FROM masked AS e)
"""
)

READ_LIVE: Final[LiteralString] = (
    """
    WITH log AS MATERIALIZED (
        SELECT
            s.live,
            CASE
                WHEN known.is_it THEN s.live * int8multirange(int8range($9::bigint + 1, NULL))
                ELSE s.live
            END AS scanned,
            s.rewound,
            CASE WHEN known.is_it THEN '{}' ELSE s.fold_seqs END AS fold_seqs,
            CASE WHEN known.is_it THEN '{}' ELSE s.fold_lanes END AS fold_lanes,
            9223372036854775807 AS as_of_seq
        FROM sessions AS s
        CROSS JOIN LATERAL (
            SELECT
                s.incarnation = $7::uuid
                AND $8::text = encode(
                    sha256(
                        convert_to(
                            s.live::text || ' ' || s.rewound::text || ' '
                            || coalesce(s.index::text, ''),
                            'UTF8'
                        )
                    ),
                    'hex'
                )
        ) AS known (is_it)
        WHERE s.session_uid = $1
    ),
"""
    + _READ
    + """
    UNION ALL
    SELECT
        'c', NULL, NULL, NULL, NULL, NULL, NULL,
        json_build_array(c.reports, c.ratio, c.deviation, c.percent, c.limit_tokens)::text,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM calibrations AS c
    WHERE c.tenant_id = $10::text AND c.model = $11::text
    UNION ALL
    SELECT
        'p', NULL, NULL, NULL, NULL, NULL, NULL,
        json_build_array(
            s.policy,
            (
                SELECT a.policy
                FROM app_policies AS a
                WHERE a.tenant_id = s.tenant_id AND a.app_name = s.app_name
            ),
            s.live_events, s.tokens_live, s.invocations_new, s.tokens_tried
        )::text,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM sessions AS s
    WHERE s.session_uid = $1 AND s.tokens_live IS NOT NULL
"""
)


async def read_live(
    connection: PgConnection,
    key: SessionKey,
    reader: Reader,
    *,
    derive: Derive,
    model: str,
    before: ReadBefore | None,
) -> LogRead | None:
    """Read what the reader sees now: one statement, one round trip."""
    rows = await _fetch(
        connection,
        READ_LIVE,
        key.uid,
        *reader_values(reader),
        DERIVED_VERSION,
        before.incarnation if before else None,
        before.index_digest if before else None,
        before.after_seq if before else 0,
        key.tenant_id,
        model,
    )
    read = _log_read(key, reader, rows, derive, before=before)
    if read is None:
        return None
    read = await _with_masked(connection, reader, read, derive, as_of_seq=read.head_seq)
    return replace(read, beside=_beside(rows, read.incarnation))


def _beside(rows: _ByKind, incarnation: UUID) -> ReadBeside:
    learnt: Learnt | None = None
    standing: CompactionStanding | None = None
    for row in rows["c"]:
        reports, ratio, deviation, percent, limit_tokens = orjson.loads(row["derived"])
        learnt = Learnt(
            reports=reports,
            ratio=ratio,
            deviation=deviation,
            percent=percent,
            limit_tokens=limit_tokens,
        )
    for row in rows["p"]:
        policy, app_policy, live_events, tokens_live, invocations_new, tokens_tried = json.loads(
            row["derived"]
        )
        standing = CompactionStanding(
            incarnation=incarnation,
            policy=policy,
            app_policy=app_policy,
            counters=Counters(
                live_events=live_events,
                tokens_live=tokens_live,
                invocations_new=invocations_new,
                tokens_tried=tokens_tried,
            ),
        )
    return ReadBeside(learnt=learnt, standing=standing)


_READ_AT: Final[LiteralString] = (
    """
    WITH log AS MATERIALIZED (
        SELECT
            $7::text::int8multirange AS live,
            $7::text::int8multirange AS scanned,
            $8::text::int8multirange AS rewound,
            $9::bigint[] AS fold_seqs,
            $10::integer[] AS fold_lanes,
            $11::bigint AS as_of_seq
    ),
"""
    + _READ
)


async def read_at(
    connection: PgConnection,
    key: SessionKey,
    reader: Reader,
    *,
    as_of_seq: int,
    markers: Sequence[LoggedMarker],
    derive: Derive,
) -> LogRead | None:
    """Read what the reader saw with the head at ``as_of_seq``; the markers are those up to it."""
    index = resolve((marker.seq, marker.marker) for marker in markers)
    rows = await _fetch(
        connection,
        _READ_AT,
        key.uid,
        *reader_values(reader),
        DERIVED_VERSION,
        pack_multirange(intersect(index.live, ((1, as_of_seq),))),
        pack_multirange(index.rewound),
        [shown.fold_seq for shown in index.sections],
        shown_lanes(index, markers),
        as_of_seq,
    )
    state = await replayed_state(connection, key, index, up_to_seq=as_of_seq)
    read = _log_read(key, reader, rows, derive, then=(index, state))
    if read is None:
        return None
    return await _with_masked(connection, reader, read, derive, as_of_seq=as_of_seq)


async def _with_masked(
    connection: PgConnection, reader: Reader, read: LogRead, derive: Derive, *, as_of_seq: int
) -> LogRead:
    """Add the masked calls that live results answer, with what else answered them.

    Few logs have any, so they are a statement of their own. What it reads never changes, so it may
    be of a later moment than the rest; what has come since is left out.
    """
    index = read.index
    owners = {owner.seq for event in read.events for owner in event.owners if owner is not None}
    masked = [seq for seq in owners if _is_masked(index, seq)]
    if not masked:
        return read
    rows = await _fetch(
        connection,
        _READ_MASKED,
        read.key.uid,
        *reader_values(reader),
        DERIVED_VERSION,
        masked,
        as_of_seq,
        read.incarnation,
    )
    lanes = _lanes(rows)
    called = [
        unpack_event(row, lanes[row["lane"]], derive)
        for row in rows["e"]
        if _is_masked(index, row["seq"])
    ]
    events = sorted((*read.events, *called), key=attrgetter("seq"))
    return replace(read, events=tuple(events))


def _is_masked(index: Index, seq: int) -> bool:
    return not index.is_live(seq) and not contains(index.rewound, seq)


_READ_ALL: Final[LiteralString] = (
    _SESSION_ROW
    + """
    UNION ALL
    SELECT """
    + _LANE_COLUMNS
    + """
    FROM lanes AS l
    WHERE l.session_uid = $1
    UNION ALL
    SELECT
        'e', e.seq, e.lane, e.id, e.author, e.invocation_id, e.event_at, e.derived,
        e.derived_version, e.resolved, e.requested_ids::text, e.marker, e.source_format,
        e.item_part, CASE WHEN e.derived_version < $2 THEN e.raw END
    FROM events AS e
    WHERE e.session_uid = $1 AND e.seq <= $3
"""
)


async def read_all(
    connection: PgConnection, key: SessionKey, reader: Reader, derive: Derive
) -> LogRead | None:
    """Read every event up to the head, however it is read now."""
    rows = await _fetch(connection, _READ_ALL, key.uid, DERIVED_VERSION, FOREVER)
    return _log_read(key, reader, rows, derive, has_all=True)


async def read_all_at(
    connection: PgConnection,
    key: SessionKey,
    reader: Reader,
    *,
    as_of_seq: int,
    markers: Sequence[LoggedMarker],
    derive: Derive,
) -> LogRead | None:
    """Read every event up to ``as_of_seq``, with the index and state of then."""
    index = resolve((marker.seq, marker.marker) for marker in markers)
    rows = await _fetch(connection, _READ_ALL, key.uid, DERIVED_VERSION, as_of_seq)
    state = await replayed_state(connection, key, index, up_to_seq=as_of_seq)
    return _log_read(key, reader, rows, derive, then=(index, state), has_all=True)


# One shape of rows for all reads, sorted out in one pass.


async def _fetch(connection: PgConnection, statement: LiteralString, *values: object) -> _ByKind:
    rows: _ByKind = defaultdict(list)
    for row in await fetch(connection, statement, *values):
        rows[row["row_kind"]].append(row)
    return rows


def _log_read(
    key: SessionKey,
    reader: Reader,
    rows: _ByKind,
    derive: Derive,
    *,
    then: tuple[Index, Mapping[str, Json]] | None = None,
    before: ReadBefore | None = None,
    has_all: bool = False,
) -> LogRead | None:
    """Return what was read.

    Args:
        key: the session's.
        reader: who reads.
        rows: of one of the statements, by what they are.
        derive: for rows of an older version.
        then: index and session state of an earlier position.
        before: what an earlier read told.
        has_all: every event is among the rows.
    """
    lanes = _lanes(rows)
    events = [unpack_event(row, lanes[row["lane"]], derive) for row in rows["e"]]
    events.sort(key=attrgetter("seq"))
    openings = [unpack_event(row, lanes[row["lane"]], derive) for row in rows["o"]]
    gone = [unpack_event(row, lanes[row["lane"]], derive) for row in rows["r"]]
    for row in rows["s"]:
        # Large integers of the state survive json, not orjson.
        incarnation, app_name, user_id, index, live, rewound, state, app, user = json.loads(
            row["derived"]
        )
        known, digest = UUID(incarnation), _index_digest(index, live, rewound)
        is_rest = before is not None and (known, digest) == (
            before.incarnation,
            before.index_digest,
        )
        if then is not None:
            index_then, state_then = then
        elif before is not None and is_rest:
            index_then, state_then = before.index, state
        else:
            index_then, state_then = unpack_index(index, live, rewound), state
        return LogRead(
            key=key,
            incarnation=known,
            app_name=app_name,
            user_id=user_id,
            head_seq=row["seq"],
            index=index_then,
            events=tuple(events),
            state=merge_state(state_then, app=app or {}, user=user or {}),
            opening_args=_opening_args(openings or events, reader.isolation_scope),
            index_digest=digest,
            is_rest=is_rest,
            gone_reply=gone_reply(events if has_all else gone, index_then, reader),
        )
    return None


def _lanes(rows: _ByKind) -> dict[int, Lane]:
    return {row["lane"]: unpack_lane(orjson.loads(row["derived"])) for row in rows["l"]}


def _index_digest(index: str | None, live: str, rewound: str) -> str:
    """Return what READ_LIVE compares: one answer is not to be taken for another's."""
    text = f"{live} {rewound} {index or ''}"
    return hashlib.sha256(text.encode()).hexdigest()


def _opening_args(events: Iterable[Event], scope: str | None) -> str | None:
    """Return the arguments of the first call that opened the scope, None without one."""
    if not scope:
        return None
    return next(
        (
            call.args
            for event in events
            for call in event.calls
            if call.id == scope and call.args != NO_ARGS
        ),
        None,
    )
