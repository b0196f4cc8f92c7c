"""What replies say of explicit caches, which a partial index finds among any number of events."""

from collections.abc import Sequence
from typing import Final, LiteralString

from app.core.compile.explicit_cache import MAX_RECORDS, CacheRecord
from app.core.lanes import Reader
from app.ports import SessionKey
from app.storage.codec import unpack_cache_record
from app.storage.connection import PgConnection, fetch

# `Reader.owns`: a few lanes at most, each a scan that ends after as many rows as are wanted.
_NEWEST: Final[LiteralString] = """
    SELECT newest.seq, newest.invocation_id, newest.cache_record
    FROM lanes AS l
    CROSS JOIN LATERAL (
        SELECT e.seq, e.invocation_id, e.cache_record
        FROM events AS e
        WHERE
            e.session_uid = $1
            AND e.lane = l.lane
            AND e.seq <= $2
            AND e.cache_record IS NOT NULL
            AND ($5::text = '' OR e.author = $5)
        ORDER BY e.seq DESC
        LIMIT $6
    ) AS newest
    WHERE l.session_uid = $1 AND l.isolation_scope IS NOT DISTINCT FROM $3::text AND l.branch = $4
    ORDER BY newest.seq DESC
    LIMIT $6
"""


async def newest_cache_records(
    connection: PgConnection, key: SessionKey, reader: Reader, up_to_seq: int
) -> Sequence[CacheRecord]:
    """Return the newest records of the reader's lane up to a seq, newest first, masked or not."""
    rows = await fetch(
        connection,
        _NEWEST,
        key.uid,
        up_to_seq,
        reader.isolation_scope,
        reader.branch,
        reader.agent,
        MAX_RECORDS,
    )
    return [unpack_cache_record(row) for row in rows]
