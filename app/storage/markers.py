"""The markers of a log, which the partial index finds among any number of events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, LiteralString

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.events import Marker
from app.core.index import Index
from app.core.ranges import FOREVER
from app.ports import SessionKey
from app.storage.codec import unpack_marker
from app.storage.database import fetch


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
    connection: AsyncConnection,
    key: SessionKey,
    up_to_seq: int = FOREVER,
    *,
    after_seq: int = 0,
) -> Sequence[LoggedMarker]:
    """Return the markers up to a seq and after another, oldest first."""
    return [
        LoggedMarker(row["seq"], unpack_marker(row["marker"]), row["section_lanes"] or ())
        for row in await fetch(connection, _MARKERS, key.uid, up_to_seq, after_seq)
    ]


def shown_lanes(index: Index, markers: Sequence[LoggedMarker]) -> Sequence[int]:
    """Return the number of each shown section's lane."""
    lanes_by_fold = {logged.seq: logged.section_lanes for logged in markers}
    return [lanes_by_fold[shown.fold_seq][shown.section_index] for shown in index.sections]
