"""What a compile did not read, in spans: the other part of what ``explain`` tells.

Of a long log that is nearly all of it. Postgres looks at the rows' columns alone, joins neighbours
that are gone alike, and answers the spans: bodies stay where they are.
"""

# Statements are put together from constants here.
# ruff: noqa: S608

from collections.abc import Sequence
from typing import Final, LiteralString

from app.core.compile.trace import PASS_OF_ACTION, EventTrace, rewinds_in_effect
from app.core.lanes import Reader
from app.ports import LogRead, SessionKey
from app.storage.codec import pack_multirange
from app.storage.connection import PgConnection, Row, fetch
from app.storage.live_read import VISIBLE_LANES, reader_values
from app.storage.markers import logged_markers

# $6 the head, $7 live, $8 rewound, $9 seqs that are read though they are not live, $10 to $12 what
# belongs to which fold, by where it begins, $13 and $14 which rewind undid what. Both windows go
# along the primary key, and `width_bucket` halves: folds of many lanes have many ranges.
_UNREAD: Final[LiteralString] = (
    """
    WITH visible AS MATERIALIZED (
        SELECT l.lane FROM lanes AS l WHERE l.session_uid = $1 AND """
    + VISIBLE_LANES
    + """
    ),
    judged AS (
        SELECT
            e.seq, e.id, e.tokens,
            CASE
                WHEN e.kind <> 'message' THEN 'marker'
                WHEN $8::text::int8multirange @> e.seq THEN 'rewound'
                WHEN e.seq = ANY ($9::bigint[]) THEN NULL
                WHEN e.lane NOT IN (SELECT v.lane FROM visible AS v) THEN 'hidden'
                WHEN $7::text::int8multirange @> e.seq THEN NULL
                ELSE 'masked'
            END AS action,
            CASE
                WHEN e.kind <> 'message' THEN e.seq
                WHEN $8::text::int8multirange @> e.seq THEN (
                    SELECT max(r.at)
                    FROM unnest($13::bigint[], $14::bigint[]) AS r (at, since)
                    WHERE r.since <= e.seq AND e.seq < r.at
                )
                WHEN e.lane NOT IN (SELECT v.lane FROM visible AS v) THEN NULL
                WHEN ($11::bigint[])[width_bucket(e.seq, $10::bigint[])] >= e.seq
                    THEN ($12::bigint[])[width_bucket(e.seq, $10::bigint[])]
            END AS by_seq
        FROM events AS e
        WHERE e.session_uid = $1 AND e.seq >= 1 AND e.seq <= $6
        ORDER BY e.seq
    ),
    compared AS (
        SELECT
            j.*,
            (j.action, j.by_seq) IS DISTINCT FROM (
                lag(j.action) OVER (ORDER BY j.seq), lag(j.by_seq) OVER (ORDER BY j.seq)
            ) AS is_first
        FROM judged AS j
    ),
    numbered AS (
        SELECT c.*, count(*) FILTER (WHERE c.is_first) OVER (ORDER BY c.seq) AS span
        FROM compared AS c
    )
    SELECT
        min(n.seq) AS from_seq, max(n.seq) AS to_seq, min(n.id) AS id, n.action, n.by_seq,
        sum(n.tokens)::bigint AS tokens
    FROM numbered AS n
    WHERE n.action IS NOT NULL
    GROUP BY n.span, n.action, n.by_seq
    """
)


async def read_unread(
    connection: PgConnection, key: SessionKey, reader: Reader, read: LogRead, *, up_to_seq: int
) -> Sequence[EventTrace]:
    """Return what became of the events up to a seq that are not among those that were read."""
    index = read.index
    markers = await logged_markers(connection, key, up_to_seq)
    rewinds = rewinds_in_effect([(each.seq, each.marker) for each in markers])
    belongs = sorted(
        (first_seq, last_seq, section.fold_seq)
        for section in index.sections
        for first_seq, last_seq in section.belongs
    )
    rows = await fetch(
        connection,
        _UNREAD,
        key.uid,
        *reader_values(reader),
        up_to_seq,
        pack_multirange(index.live),
        pack_multirange(index.rewound),
        [event.seq for event in read.events if not index.is_live(event.seq)],
        [first_seq for first_seq, _, _ in belongs],
        [last_seq for _, last_seq, _ in belongs],
        [fold_seq for _, _, fold_seq in belongs],
        [at for at, _ in rewinds],
        [since for _, since in rewinds],
    )
    return [_trace(row) for row in rows]


def _trace(row: Row) -> EventTrace:
    action = row["action"]
    is_marker = action == "marker"
    return EventTrace(
        from_seq=row["from_seq"],
        to_seq=row["to_seq"],
        id=row["id"] if row["from_seq"] == row["to_seq"] else "",
        action=action,
        pass_name=None if is_marker else PASS_OF_ACTION[action],
        by_seq=None if is_marker else row["by_seq"],
        # A marker says nothing itself.
        tokens=0 if is_marker else row["tokens"],
    )
