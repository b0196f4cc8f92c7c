"""Copying a session's log up to a position into a session of its own.

The copy keeps seqs and ids and shares nothing afterwards: what a session keeps up beside its log
(lanes, index, state, counters) is worked out again for the position. The original is held against
erasure meanwhile, and appends to it go on.
"""

from collections.abc import Mapping, Sequence
from typing import Final, LiteralString

from app.core.canonical import Json, canonical_json
from app.core.errors import InvalidInputError, SessionNotFoundError
from app.core.events import Fold, Rewind
from app.core.index import Index, resolve
from app.core.lanes import ROOT_LANE
from app.core.resolve import ReplyFacts
from app.ports import SessionKey
from app.storage.codec import pack_index, pack_multirange, pack_replies, unpack_event
from app.storage.compaction_counters import PgCompactionCounters
from app.storage.connection import PgConnection, allow_time, fetch, fetch_one
from app.storage.markers import LoggedMarker, logged_markers, shown_lanes
from app.storage.state import replayed_state

COUNTERS: Final = PgCompactionCounters()

_HOLD: Final[LiteralString] = """
    SELECT head_seq
    FROM sessions
    WHERE session_uid = $1
    FOR KEY SHARE
"""


async def fork_session(
    connection: PgConnection,
    key: SessionKey,
    new_key: SessionKey,
    *,
    at_seq: int,
    metadata: Mapping[str, Json],
) -> bool:
    """Copy what stands up to ``at_seq``; False if the new session exists.

    Raises:
        SessionNotFoundError: there is no such session.
        InvalidInputError: ``at_seq`` is beyond its head.
    """
    held = await fetch_one(connection, _HOLD, key.uid)
    if held is None:
        raise SessionNotFoundError
    if not 0 <= at_seq <= held["head_seq"]:
        raise InvalidInputError(f"the log ends at {held['head_seq']}", pointer="/at_seq")
    await allow_time(connection)
    markers = await logged_markers(connection, key, at_seq)
    index = resolve((logged.seq, logged.marker) for logged in markers)
    if not await _copy_session(connection, key, new_key, at_seq, index=index, markers=markers):
        return False
    await fetch(connection, _COPY_LOG, key.uid, new_key.uid, at_seq)
    await fetch(connection, _COUNT_TOKENS, new_key.uid)
    await COUNTERS.recount(connection, new_key, _shown_tokens(index, markers))
    await _copy_lanes(connection, key, new_key, at_seq)
    state = await replayed_state(connection, key, index, up_to_seq=at_seq)
    await fetch(
        connection,
        _COPY_DETAILS,
        key.uid,
        new_key.uid,
        canonical_json(dict(state)),
        canonical_json(dict(metadata)),
        key.session_id,
    )
    return True


_COPY_SESSION: Final[LiteralString] = """
    INSERT INTO sessions (
        session_uid, tenant_id, session_id, app_name, user_id, policy, head_seq, live, rewound,
        fold_seqs, fold_lanes, index, last_rewind_seq, compactions
    )
    SELECT
        $2, $3, $4, s.app_name, s.user_id, s.policy, $5, $6::text::int8multirange,
        $7::text::int8multirange, $8, $9, $10::text::json, $11, $12
    FROM sessions AS s
    WHERE s.session_uid = $1
    ON CONFLICT (session_uid) DO NOTHING
    RETURNING session_uid
"""


async def _copy_session(
    connection: PgConnection,
    key: SessionKey,
    new_key: SessionKey,
    at_seq: int,
    *,
    index: Index,
    markers: Sequence[LoggedMarker],
) -> bool:
    made = await fetch_one(
        connection,
        _COPY_SESSION,
        key.uid,
        new_key.uid,
        new_key.tenant_id,
        new_key.session_id,
        at_seq,
        pack_multirange(index.live),
        pack_multirange(index.rewound),
        [shown.fold_seq for shown in index.sections],
        shown_lanes(index, markers),
        pack_index(index) if markers else None,
        max((m.seq for m in markers if isinstance(m.marker, Rewind)), default=0),
        sum(isinstance(logged.marker, Fold) for logged in markers),
    )
    return made is not None


_COPY_LOG: Final[LiteralString] = """
    WITH copied_calls AS (
        INSERT INTO calls (
            session_uid, seq, part_index, call_id, name, lane, author, response_seq, has_args
        )
        SELECT
            $2, c.seq, c.part_index, c.call_id, c.name, c.lane, c.author, c.response_seq, c.has_args
        FROM calls AS c
        WHERE c.session_uid = $1 AND c.seq <= $3
    ),
    copied_answers AS (
        INSERT INTO answers (session_uid, call_seq, call_part, answer_seq)
        SELECT $2, a.call_seq, a.call_part, a.answer_seq
        FROM answers AS a
        WHERE a.session_uid = $1 AND a.answer_seq <= $3
    )
    INSERT INTO events (
        session_uid, seq, id, kind, lane, author, invocation_id, event_at, tokens, raw,
        source_format, item_part, body_hash, derived, derived_version, resolved, owner_seqs,
        requested_ids, marker, section_lanes, state_delta, cache_record, schema_version, created_at
    )
    SELECT
        $2, e.seq, e.id, e.kind, e.lane, e.author, e.invocation_id, e.event_at, e.tokens, e.raw,
        e.source_format, e.item_part, e.body_hash, e.derived, e.derived_version, e.resolved,
        e.owner_seqs, e.requested_ids, e.marker, e.section_lanes, e.state_delta, e.cache_record,
        e.schema_version, e.created_at
    FROM events AS e
    WHERE e.session_uid = $1 AND e.seq <= $3
"""

_COUNT_TOKENS: Final[LiteralString] = """
    UPDATE sessions
    SET
        tokens_raw = (
            SELECT coalesce(sum(e.tokens), 0) FROM events AS e WHERE e.session_uid = $1
        ),
        bytes_raw = (
            SELECT coalesce(sum(octet_length(e.raw)), 0)::bigint
            FROM events AS e
            WHERE e.session_uid = $1
        ),
        bytes_at_seq = head_seq,
        invocation_id = coalesce(
            (
                SELECT e.invocation_id
                FROM events AS e
                WHERE e.session_uid = $1 AND e.invocation_id <> ''
                ORDER BY e.seq DESC
                LIMIT 1
            ),
            ''
        )
    WHERE session_uid = $1
"""


def _shown_tokens(index: Index, markers: Sequence[LoggedMarker]) -> int:
    folds = {logged.seq: logged.marker for logged in markers if isinstance(logged.marker, Fold)}
    return sum(
        folds[shown.fold_seq].sections[shown.section_index].tokens for shown in index.sections
    )


# Only a place that was decided makes `resolved` start with an array.
_NEWEST_REPLIES: Final[LiteralString] = """
    SELECT DISTINCT ON (e.lane, e.author)
        e.seq, e.lane, e.id, e.author, e.invocation_id, e.event_at, e.derived, e.derived_version,
        e.resolved, e.requested_ids::text AS requested_ids, e.marker
    FROM events AS e
    WHERE e.session_uid = $1 AND e.resolved LIKE '[[%'
    ORDER BY e.lane, e.author, e.seq DESC
"""

_COPY_LANES: Final[LiteralString] = """
    INSERT INTO lanes (
        session_uid, lane, isolation_scope, branch, tool_names, node_path, first_seq, last_seq,
        replies
    )
    SELECT
        $2, l.lane, l.isolation_scope, l.branch, l.tool_names, l.node_path, l.first_seq,
        coalesce(
            (
                SELECT e.seq
                FROM events AS e
                WHERE e.session_uid = $2 AND e.lane = l.lane AND e.marker IS NULL
                ORDER BY -e.seq
                LIMIT 1
            ),
            0
        ),
        coalesce($4::text::json -> l.lane::text, '{}')
    FROM lanes AS l
    WHERE l.session_uid = $1 AND l.first_seq <= $3
"""


async def _copy_lanes(
    connection: PgConnection, key: SessionKey, new_key: SessionKey, at_seq: int
) -> None:
    replies: dict[int, dict[str, ReplyFacts]] = {}
    for row in await fetch(connection, _NEWEST_REPLIES, new_key.uid):
        # The lane is of no matter for what a reply remembers.
        event = unpack_event(row, ROOT_LANE)
        if event.place is not None:
            replies.setdefault(row["lane"], {})[event.author] = ReplyFacts(
                event.seq, event.place, event.invocation_id, event.response_id, event.compiled_seq
            )
    by_lane = ",".join(f'"{lane}":{pack_replies(newest)}' for lane, newest in replies.items())
    await fetch(connection, _COPY_LANES, key.uid, new_key.uid, at_seq, "{" + by_lane + "}")


_COPY_DETAILS: Final[LiteralString] = """
    INSERT INTO session_details (
        session_uid, base_state, state, metadata, ttl_s, expires_at, forked_from, created_at
    )
    SELECT
        $2, d.base_state, $3::text::json, $4::text::jsonb, d.ttl_s,
        statement_timestamp() + d.ttl_s * interval '1 second', $5,
        (SELECT s.updated_at FROM sessions AS s WHERE s.session_uid = $2)
    FROM session_details AS d
    WHERE d.session_uid = $1
"""
