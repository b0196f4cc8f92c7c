"""When a session's requests were last read by a provider, as far as the database knows.

By the database's own clock on both sides: what a replica's clock says does not matter.
"""

from typing import Final, LiteralString

from app.ports import CacheUse, SessionKey
from app.storage.connection import PgConnection, fetch_one


class PgCacheUses:
    """:class:`app.ports.CacheUses` on Postgres."""

    async def last(self, connection: PgConnection, key: SessionKey) -> CacheUse | None:
        row = await fetch_one(connection, _LAST, key.uid)
        if row is None or row["idle_s"] is None:
            return None
        return CacheUse(idle_s=row["idle_s"], ttl_s=row["ttl_s"])


# Of several models of a session, the cache that lives longest counts.
_LAST: Final[LiteralString] = """
    SELECT
        extract(
            EPOCH FROM statement_timestamp() - greatest(request.compiled_at, reply.created_at)
        )::float8 AS idle_s,
        request.ttl_s
    FROM (
        SELECT max(r.compiled_at) AS compiled_at, max(r.ttl_s) AS ttl_s
        FROM compiled_requests AS r
        WHERE r.session_uid = $1
    ) AS request
    CROSS JOIN (
        SELECT max((newest.value ->> 0)::bigint) AS seq
        FROM lanes AS l
        CROSS JOIN LATERAL json_each(l.replies) AS newest (author, value)
        WHERE l.session_uid = $1
    ) AS replied
    LEFT JOIN LATERAL (
        SELECT e.created_at
        FROM events AS e
        WHERE e.session_uid = $1 AND e.seq >= replied.seq AND e.seq <= replied.seq
        ORDER BY e.seq
        OFFSET 0
    ) AS reply ON true
"""
