"""Where a log stands, read in one statement and without a lock."""

# Statements that share a piece are put together from constants, as LiteralString proves.
# ruff: noqa: S608

from collections.abc import Collection
from typing import Final, LiteralString

from app.core.branch import line_up
from app.core.compaction.due import Counters
from app.core.invocations import InvocationFacts, Newest
from app.core.resolve import LaneFacts
from app.ports import CompactionStanding, LogHead, SessionKey
from app.storage.codec import unpack_index, unpack_json, unpack_replies
from app.storage.compaction_counters import BEGUN, COUNTED, OPEN_CALLS
from app.storage.connection import PgConnection, Row, fetch
from app.storage.facts import lane_of

# One row for each lane, one without where none is of interest.
_READ_HEAD: Final[LiteralString] = (
    """
    SELECT
        s.head_seq, s.last_rewind_seq, s.invocation_id, s.is_invocation_complete,
        s.index::text AS index, s.live::text AS live, s.rewound::text AS rewound,
        """
    + COUNTED
    + """,
        begun.first_seq, begun.isolation_scope AS begun_scope, begun.branch AS begun_branch,
        begun.open_calls,
        (
            SELECT coalesce(max(n.lane), 0) FROM lanes AS n WHERE n.session_uid = s.session_uid
        ) AS lane_count,
        l.lane, l.isolation_scope, l.branch, l.tool_names, l.node_path, l.last_seq,
        l.replies::text AS replies
    FROM sessions AS s
    LEFT JOIN LATERAL (
        SELECT
            begun.seq AS first_seq, l.isolation_scope, l.branch,
            ARRAY(SELECT ARRAY[asked.seq, asked.part_index] """
    + OPEN_CALLS
    + """) AS open_calls
        FROM (VALUES (nullif(s.invocation_id, ''))) AS wanted (invocation_id)"""
    + BEGUN
    + """
    ) AS begun ON true
    LEFT JOIN lanes AS l
        ON
            l.session_uid = $1
            AND EXISTS (
                SELECT
                FROM unnest($2::text[], $3::text[]) AS w (isolation_scope, branch)
                WHERE
                    w.branch = l.branch
                    AND w.isolation_scope IS NOT DISTINCT FROM l.isolation_scope
            )
    WHERE s.session_uid = $1
"""
)


async def read_head(
    connection: PgConnection, key: SessionKey, standings: Collection[tuple[str | None, str]]
) -> LogHead | None:
    """As :meth:`app.ports.EventLog.read_head`."""
    places = {(scope, branch) for scope, standing in standings for branch in line_up(standing)}
    scopes, branches = [scope for scope, _ in places], [branch for _, branch in places]
    rows = await fetch(connection, _READ_HEAD, key.uid, scopes, branches)
    if not rows or rows[0]["live_events"] is None or rows[0]["tokens_live"] is None:
        return None
    row = rows[0]
    return LogHead(
        head_seq=row["head_seq"],
        index=unpack_index(row["index"], row["live"], row["rewound"]),
        last_rewind_seq=row["last_rewind_seq"],
        lanes={
            lane_of(each): LaneFacts(
                each["lane"], each["last_seq"], unpack_replies(each["replies"])
            )
            for each in rows
            if each["lane"] is not None
        },
        lane_count=row["lane_count"],
        standings=frozenset(standings),
        newest=Newest(
            invocation_id=row["invocation_id"], is_complete=row["is_invocation_complete"]
        ),
        begun=_begun(row),
        open_calls=frozenset((seq, part_index) for seq, part_index in row["open_calls"] or ()),
        standing=CompactionStanding(
            incarnation=row["incarnation"],
            policy=unpack_json(row["policy"]),
            app_policy=unpack_json(row["app_policy"]),
            counters=Counters(
                live_events=row["live_events"],
                tokens_live=row["tokens_live"],
                invocations_new=row["invocations_new"],
                tokens_tried=row["tokens_tried"],
            ),
        ),
        policy_text=row["policy"],
        app_policy_text=row["app_policy"],
    )


def _begun(row: Row) -> InvocationFacts | None:
    if row["first_seq"] is None:
        return None
    return InvocationFacts(
        first_seq=row["first_seq"],
        isolation_scope=row["begun_scope"],
        branch=row["begun_branch"],
        has_open_calls=bool(row["open_calls"]),
    )
