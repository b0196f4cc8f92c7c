"""The markers of a log, which the partial index finds among any number of events."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, LiteralString

from app.core.events import Marker
from app.core.index import Index
from app.core.ranges import FOREVER, Ranges
from app.ports import SessionKey
from app.storage.codec import pack_multirange, unpack_marker
from app.storage.connection import PgConnection, Row, fetch


@dataclass(frozen=True, slots=True)
class LoggedMarker:
    """A marker of the log."""

    seq: int
    marker: Marker
    #: Numbers of the lanes of a fold's sections.
    section_lanes: Sequence[int]


_MARKERS: Final[LiteralString] = """
    SELECT seq, marker, section_lanes
    FROM events
    WHERE session_uid = $1 AND seq <= $2 AND seq > $3 AND marker IS NOT NULL
    ORDER BY seq
"""


async def logged_markers(
    connection: PgConnection,
    key: SessionKey,
    up_to_seq: int = FOREVER,
    *,
    after_seq: int = 0,
) -> Sequence[LoggedMarker]:
    """Return the markers up to a seq and after another, oldest first."""
    return [
        _logged(row) for row in await fetch(connection, _MARKERS, key.uid, up_to_seq, after_seq)
    ]


def _logged(row: Row) -> LoggedMarker:
    return LoggedMarker(row["seq"], unpack_marker(row["marker"]), row["section_lanes"] or ())


_FOLDS: Final[LiteralString] = """
    SELECT e.seq, e.marker, e.section_lanes
    FROM unnest($2::bigint[]) AS wanted (seq)
    CROSS JOIN LATERAL (
        SELECT e.seq, e.marker, e.section_lanes
        FROM events AS e
        WHERE e.session_uid = $1 AND e.seq >= wanted.seq AND e.seq <= wanted.seq
        ORDER BY e.seq
        OFFSET 0
    ) AS e
    ORDER BY e.seq
"""


async def logged_folds(
    connection: PgConnection, key: SessionKey, seqs: Iterable[int]
) -> Sequence[LoggedMarker]:
    """Return the folds at these seqs, oldest first."""
    wanted = sorted(set(seqs))
    rows = await fetch(connection, _FOLDS, key.uid, wanted) if wanted else ()
    return [_logged(row) for row in rows]


_MARKERS_BUT_FOLDS: Final[LiteralString] = """
    SELECT seq, marker
    FROM events
    WHERE
        session_uid = $1
        AND marker IS NOT NULL
        AND kind NOT IN ('compaction', 'activation')
    ORDER BY seq
"""


async def markers_but_folds(connection: PgConnection, key: SessionKey) -> Sequence[LoggedMarker]:
    """Return the markers that are neither folds nor activations, oldest first."""
    return [
        LoggedMarker(row["seq"], unpack_marker(row["marker"]), ())
        for row in await fetch(connection, _MARKERS_BUT_FOLDS, key.uid)
    ]


# The level is the member of a packed fold after its sections.
_NEWEST_FOLDS: Final[LiteralString] = """
    SELECT seq, marker, section_lanes
    FROM events
    WHERE
        session_uid = $1
        AND marker IS NOT NULL
        AND kind = 'compaction'
        AND (marker::json ->> 4)::integer = 1
        AND NOT seq = ANY ($3::bigint[])
        AND NOT seq <@ $4::text::int8multirange
    ORDER BY seq DESC
    LIMIT $2
"""


async def newest_folds(
    connection: PgConnection,
    key: SessionKey,
    *,
    limit: int,
    leave_out: Iterable[int],
    rewound: Ranges,
) -> Sequence[LoggedMarker]:
    """Return the newest folds of the first level but for those left out and what is rewound, newest
    first."""
    if not limit:
        return ()
    rows = await fetch(
        connection, _NEWEST_FOLDS, key.uid, limit, sorted(leave_out), pack_multirange(rewound)
    )
    return [_logged(row) for row in rows]


def shown_lanes(index: Index, markers: Sequence[LoggedMarker]) -> Sequence[int]:
    """Return the number of each shown section's lane."""
    lanes_by_fold = {logged.seq: logged.section_lanes for logged in markers}
    return [lanes_by_fold[shown.fold_seq][shown.section_index] for shown in index.sections]
