"""A session's own state, replayed from the deltas that its events carry."""

from collections.abc import Mapping
from typing import Final, LiteralString

from app.core.canonical import Json
from app.core.index import Index
from app.core.ranges import FOREVER
from app.core.session_state import evolve, split_state
from app.ports import SessionKey
from app.storage.codec import pack_multirange, unpack_json
from app.storage.connection import PgConnection, fetch

# One read of both, so that they are of one moment. The base has seq 0.
_STATE_SOURCES: Final[LiteralString] = """
    SELECT 0 AS seq, base_state::text AS delta
    FROM session_details
    WHERE session_uid = $1
    UNION ALL
    SELECT seq, state_delta::text
    FROM events
    WHERE
        session_uid = $1
        AND state_delta IS NOT NULL
        AND seq <= $2
        AND NOT $3::text::int8multirange @> seq
    ORDER BY seq
"""


async def replayed_state(
    connection: PgConnection, key: SessionKey, index: Index, *, up_to_seq: int = FOREVER
) -> Mapping[str, Json]:
    """Return the session-scoped keys: the base state and the deltas that are not rewound."""
    rows = await fetch(
        connection, _STATE_SOURCES, key.uid, up_to_seq, pack_multirange(index.rewound)
    )
    state: dict[str, Json] = {}
    for row in rows:
        state = evolve(state, split_state(unpack_json(row["delta"])).session)
    return state
