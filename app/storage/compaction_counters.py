"""The counts on a session's row by which compaction is seen to be due.

Whoever changes them holds the lock of the row. They are hints: the planner counts for itself, and a
session of before they existed is counted when it is first asked for.
"""

# Statements that share a piece are put together from constants, as LiteralString proves.
# ruff: noqa: S608

from collections.abc import Mapping, Sequence
from typing import Final, LiteralString

from app.core.compaction.due import Counters
from app.core.invocations import InvocationFacts
from app.ports import CompactionStanding, SessionKey
from app.storage.codec import unpack_json
from app.storage.connection import PgConnection, Row, fetch, fetch_one


class PgCompactionCounters:
    """:class:`app.ports.CompactionCounters` on Postgres."""

    async def invocations(
        self, connection: PgConnection, key: SessionKey, invocation_ids: Sequence[str]
    ) -> Mapping[str, InvocationFacts]:
        rows = await fetch(connection, _INVOCATIONS, key.uid, list(invocation_ids))
        return {
            row["invocation_id"]: InvocationFacts(
                first_seq=row["first_seq"],
                isolation_scope=row["isolation_scope"],
                branch=row["branch"],
                has_open_calls=row["has_open_calls"],
            )
            for row in rows
        }

    async def advance(
        self,
        connection: PgConnection,
        key: SessionKey,
        *,
        invocation_id: str,
        is_complete: bool,
        completed: int,
    ) -> CompactionStanding | None:
        row = await fetch_one(connection, _ADVANCE, key.uid, invocation_id, is_complete, completed)
        return await _counted(connection, key, row)

    async def standing(
        self, connection: PgConnection, key: SessionKey
    ) -> CompactionStanding | None:
        return await _counted(connection, key, await fetch_one(connection, _STANDING, key.uid))

    async def recount(self, connection: PgConnection, key: SessionKey, section_tokens: int) -> None:
        await fetch(connection, _RECOUNT, key.uid, section_tokens)

    async def settle(
        self,
        connection: PgConnection,
        key: SessionKey,
        *,
        invocations_new: int,
        tokens_tried: int,
    ) -> None:
        await fetch(connection, _SETTLE, key.uid, invocations_new, tokens_tried)


# Calls are looked for along the invocation's own events. The bounds by (invocation, seq) leave the
# planner one index, whatever it believes of the table.
OPEN_CALLS: Final[LiteralString] = """
    FROM (
        SELECT e.seq
        FROM events AS e
        WHERE
            e.session_uid = $1
            AND (e.invocation_id, e.seq) >= (wanted.invocation_id, begun.seq)
            AND (e.invocation_id, e.seq) <= (wanted.invocation_id, 9223372036854775807)
        ORDER BY e.invocation_id, e.seq
        OFFSET 0
    ) AS own
    CROSS JOIN LATERAL (
        SELECT c.seq, c.part_index
        FROM calls AS c
        WHERE c.session_uid = $1 AND c.seq >= own.seq AND c.seq <= own.seq
        ORDER BY c.seq, c.part_index
        OFFSET 0
    ) AS asked
    LEFT JOIN LATERAL (
        SELECT true AS is_answered
        FROM answers AS a
        WHERE
            a.session_uid = $1
            AND a.call_seq = asked.seq
            AND a.call_part = asked.part_index
        LIMIT 1
    ) AS answer ON true
    WHERE answer.is_answered IS NULL
"""
#: The first event of each invocation of ``wanted``, and its lane, in the session $1.
BEGUN: Final[LiteralString] = """
    CROSS JOIN LATERAL (
        SELECT e.seq, e.lane
        FROM events AS e
        WHERE
            e.session_uid = $1
            AND (e.invocation_id, e.seq) > (wanted.invocation_id, 0)
            AND (e.invocation_id, e.seq) <= (wanted.invocation_id, 9223372036854775807)
            AND e.marker IS NULL
        ORDER BY e.invocation_id, e.seq
        LIMIT 1
    ) AS begun
    JOIN lanes AS l ON l.session_uid = $1 AND l.lane = begun.lane
"""
_INVOCATIONS: Final[LiteralString] = (
    """
    SELECT
        wanted.invocation_id, begun.seq AS first_seq, l.isolation_scope, l.branch,
        EXISTS (SELECT """
    + OPEN_CALLS
    + """) AS has_open_calls
    FROM unnest($2::text[]) AS wanted (invocation_id)"""
    + BEGUN
)

COUNTED: Final[LiteralString] = """
    s.incarnation, s.policy::text AS policy,
    (
        SELECT a.policy::text
        FROM app_policies AS a
        WHERE a.tenant_id = s.tenant_id AND a.app_name = s.app_name
    ) AS app_policy,
    s.live_events, s.tokens_live, s.invocations_new, s.tokens_tried
"""

_ADVANCE: Final[LiteralString] = (
    """
    UPDATE sessions AS s
    SET
        invocation_id = $2,
        is_invocation_complete = $3,
        invocations_new = s.invocations_new + $4
    WHERE s.session_uid = $1
    RETURNING """
    + COUNTED
)

_STANDING: Final[LiteralString] = (
    "SELECT " + COUNTED + " FROM sessions AS s WHERE s.session_uid = $1"
)

_LIVE: Final[LiteralString] = """
    SELECT count(*) AS events, coalesce(sum(e.tokens), 0)::bigint AS tokens
    FROM unnest((SELECT o.live FROM sessions AS o WHERE o.session_uid = $1)) AS span
    CROSS JOIN LATERAL (
        SELECT e.tokens
        FROM events AS e
        WHERE
            e.session_uid = $1
            AND e.seq >= lower(span)
            AND e.seq < coalesce(upper(span), 9223372036854775807)
        ORDER BY e.seq
        OFFSET 0
    ) AS e
"""

_RECOUNT: Final[LiteralString] = (
    """
    UPDATE sessions AS s
    SET
        live_events = counted.events,
        tokens_live = counted.tokens + $2::bigint,
        tokens_tried = 0
    FROM ("""
    + _LIVE
    + """) AS counted
    WHERE s.session_uid = $1
"""
)


_SETTLE: Final[LiteralString] = """
    UPDATE sessions
    SET invocations_new = $2, tokens_tried = $3
    WHERE session_uid = $1
"""


async def _counted(
    connection: PgConnection, key: SessionKey, row: Row | None
) -> CompactionStanding | None:
    if row is None:
        return None
    live_events, tokens_live = row["live_events"], row["tokens_live"]
    if tokens_live is None or live_events is None:
        # Summaries are left out: a hint, until the next marker counts everything.
        counted = await fetch_one(connection, _LIVE, key.uid)
        assert counted is not None
        live_events, tokens_live = counted["events"], counted["tokens"]
    return CompactionStanding(
        incarnation=row["incarnation"],
        policy=unpack_json(row["policy"]),
        app_policy=unpack_json(row["app_policy"]),
        counters=Counters(
            live_events=live_events,
            tokens_live=tokens_live,
            invocations_new=row["invocations_new"],
            tokens_tried=row["tokens_tried"],
        ),
    )
