"""Loading what the resolver must know of the log (:mod:`app.core.resolve`), and no more.

A batch that was resolved with these facts equals the same batch resolved by a resolver that saw
every event of the log; a property test holds the two equal. All statements run under the session's
lock, or on one snapshot, and then :func:`refresh_facts` brings them up to date under the lock.
"""

# Statements that share a piece are put together from constants, as LiteralString proves.
# ruff: noqa: S608

from collections.abc import Iterable, Sequence
from typing import Final, LiteralString

from app.core.branch import line_up
from app.core.lanes import Lane
from app.core.ranges import FOREVER
from app.core.resolve import CallFacts, Facts, Header, LaneFacts, Needs
from app.ports import LockedSession, LogHead, SessionKey
from app.storage.codec import unpack_ids, unpack_replies
from app.storage.connection import PgConnection, Row, fetch
from app.storage.markers import logged_folds, logged_markers


async def load_facts(
    connection: PgConnection,
    key: SessionKey,
    session: LockedSession | LogHead,
    needs: Needs,
) -> Facts:
    """Return the facts of the needs.

    The lock that gave ``session`` is still held, or who uses the facts compares the head.
    """
    facts = Facts(
        head_seq=session.head_seq, index=session.index, last_rewind_seq=session.last_rewind_seq
    )
    if session.head_seq == 0:
        return facts
    if needs.has_markers:
        return await _load_for_markers(connection, key, facts, needs)
    calls = [] if needs.is_light else await _call_rows(connection, key, facts, needs)
    call_lanes = sorted({row["lane"] for row in calls})
    _add_calls(calls, facts, await _load_lanes(connection, key, facts, needs, of_calls=call_lanes))
    return facts


async def _load_for_markers(
    connection: PgConnection, key: SessionKey, facts: Facts, needs: Needs
) -> Facts:
    lanes = await _load_lanes(connection, key, facts, needs)
    if needs.has_reversals:
        markers = await logged_markers(connection, key)
        facts.markers.extend((logged.seq, logged.marker) for logged in markers)
    else:
        await _load_shown_folds(connection, key, facts)
    await _load_first_seqs(connection, key, facts, needs)
    await _load_headers(connection, key, facts, needs, lanes)
    _add_calls(await _call_rows(connection, key, facts, needs), facts, lanes)
    # Whether an answer asks the user for something decides whether its call may be folded.
    answers = {seq for calls in facts.calls_by_seq.values() for c in calls for seq in c.answers}
    await _load_missing_headers(connection, key, facts, answers, lanes=lanes)
    return facts


async def _load_shown_folds(connection: PgConnection, key: SessionKey, facts: Facts) -> None:
    """Load the folds that are shown, which are few however long the history is."""
    shown = {section.fold_seq for section in facts.index.sections}
    known = [pair for pair in facts.markers if pair[0] in shown]
    folds = await logged_folds(connection, key, shown.difference(seq for seq, _ in known))
    loaded = ((logged.seq, logged.marker) for logged in folds)
    facts.markers[:] = sorted((*known, *loaded), key=lambda pair: pair[0])


async def refresh_facts(
    connection: PgConnection, key: SessionKey, session: LockedSession, facts: Facts
) -> None:
    """Bring facts for a batch with a fold, loaded at an earlier head, up to the lock's head.

    Reads what was appended since and what that answers, however long the history is.
    """
    since, facts.head_seq = facts.head_seq, session.head_seq
    facts.index, facts.last_rewind_seq = session.index, session.last_rewind_seq
    if since == session.head_seq:
        return
    rows = await fetch(connection, _HEADERS_IN_SPAN, key.uid, since + 1, session.head_seq)
    lanes = await _refresh_lanes(connection, key, facts, {row["lane"] for row in rows})
    _add_headers(rows, facts, lanes)
    if any(row["is_marker"] for row in rows):
        await _load_shown_folds(connection, key, facts)
    fresh = {row["seq"] for row in rows}
    answered = {seq for row in rows for seq in row["owner_seqs"] or () if seq}
    known = {
        (call.seq, call.part_index): call
        for seq in answered
        for call in facts.calls_by_seq.get(seq, ())
    }
    calls = await fetch(
        connection, _CALLS, key.uid, [], [], sorted(fresh | answered), 0, facts.head_seq
    )
    _add_calls([row for row in calls if (row["seq"], row["part_index"]) not in known], facts, lanes)
    for row in calls:
        if (call := known.get((row["seq"], row["part_index"]))) is not None:
            call.answers[:] = row["answer_seqs"]
    answers = {seq for row in calls for seq in row["answer_seqs"]}
    await _load_missing_headers(connection, key, facts, answers, lanes=lanes)


_LANES_BY_NUMBER: Final[LiteralString] = """
    SELECT
        l.lane, l.isolation_scope, l.branch, l.tool_names, l.node_path, l.last_seq,
        l.replies::text AS replies
    FROM lanes AS l
    WHERE l.session_uid = $1 AND (l.lane = ANY ($2::integer[]) OR l.lane > $3)
    ORDER BY l.lane
"""


async def _refresh_lanes(
    connection: PgConnection, key: SessionKey, facts: Facts, touched: set[int]
) -> dict[int, Lane]:
    """Load the lanes that events came to, and the new ones; return all lanes by their number."""
    rows = await fetch(connection, _LANES_BY_NUMBER, key.uid, sorted(touched), facts.lane_count)
    for row in rows:
        facts.lanes[lane_of(row)] = LaneFacts(
            row["lane"], row["last_seq"], unpack_replies(row["replies"])
        )
        facts.lane_count = max(facts.lane_count, row["lane"])
    return {known.number: lane for lane, known in facts.lanes.items()}


def lane_of(row: Row) -> Lane:
    """Return the lane of a row of ``lanes``."""
    return Lane(row["isolation_scope"], row["branch"], tuple(row["tool_names"]), row["node_path"])


# A session may have had thousands of lanes, one for each call of a tool that is an agent; few are
# of interest to an append. The count comes with them, or alone.
_LANES: Final[LiteralString] = """
    SELECT
        counted.lane_count, l.lane, l.isolation_scope, l.branch, l.tool_names, l.node_path,
        l.last_seq, l.replies::text AS replies
    FROM (
        SELECT coalesce(max(n.lane), 0) AS lane_count FROM lanes AS n WHERE n.session_uid = $1
    ) AS counted
    LEFT JOIN lanes AS l
        ON
            l.session_uid = $1
            AND (
                $2::boolean
                OR EXISTS (
                    SELECT
                    FROM unnest($3::text[], $4::text[]) AS w (isolation_scope, branch)
                    WHERE
                        w.branch = l.branch
                        AND w.isolation_scope IS NOT DISTINCT FROM l.isolation_scope
                )
                OR EXISTS (
                    SELECT
                    FROM lanes AS c
                    WHERE
                        c.session_uid = $1
                        AND c.lane = ANY ($5::integer[])
                        AND c.branch = l.branch
                        AND c.isolation_scope IS NOT DISTINCT FROM l.isolation_scope
                )
            )
"""


async def _load_lanes(
    connection: PgConnection,
    key: SessionKey,
    facts: Facts,
    needs: Needs,
    *,
    of_calls: Sequence[int] = (),
) -> dict[int, Lane]:
    """Load the lanes that matter, and return lanes by their number."""
    places = {
        (scope, branch) for scope, standing in needs.standings for branch in line_up(standing)
    }
    scopes, branches = [scope for scope, _ in places], [branch for _, branch in places]
    lanes: dict[int, Lane] = {}
    for row in await fetch(
        connection, _LANES, key.uid, needs.has_markers, scopes, branches, list(of_calls)
    ):
        facts.lane_count = row["lane_count"]
        if row["lane"] is None:
            break
        lane = lanes[row["lane"]] = lane_of(row)
        facts.lanes[lane] = LaneFacts(row["lane"], row["last_seq"], unpack_replies(row["replies"]))
    return lanes


_FIRST_SEQS: Final[LiteralString] = """
    SELECT wanted.invocation_id, first.seq
    FROM unnest($2::text[]) AS wanted (invocation_id)
    CROSS JOIN LATERAL (
        SELECT e.seq
        FROM events AS e
        WHERE
            e.session_uid = $1
            AND (e.invocation_id, e.seq) > (wanted.invocation_id, 0)
            AND (e.invocation_id, e.seq) <= (wanted.invocation_id, $3)
        ORDER BY e.invocation_id, e.seq
        LIMIT 1
    ) AS first
"""


async def _load_first_seqs(
    connection: PgConnection, key: SessionKey, facts: Facts, needs: Needs
) -> None:
    if needs.invocation_ids:
        wanted = (sorted(needs.invocation_ids), facts.head_seq)
        for row in await fetch(connection, _FIRST_SEQS, key.uid, *wanted):
            facts.first_seq_by_invocation[row["invocation_id"]] = row["seq"]


_HEADER: Final[LiteralString] = """
    SELECT
        e.seq, e.lane, e.event_at, e.invocation_id, e.marker IS NOT NULL AS is_marker,
        e.owner_seqs, e.requested_ids::text AS requested_ids
    FROM events AS e
"""
_HEADERS_BY_SEQ: Final[LiteralString] = (
    """
    SELECT e.seq, e.lane, e.event_at, e.invocation_id, e.is_marker, e.owner_seqs, e.requested_ids
    FROM unnest($2::bigint[]) AS wanted (seq)
    CROSS JOIN LATERAL ("""
    + _HEADER
    + """
        WHERE e.session_uid = $1 AND e.seq >= wanted.seq AND e.seq <= wanted.seq
        ORDER BY e.seq
        OFFSET 0
    ) AS e
"""
)
_HEADERS_IN_SPAN: Final[LiteralString] = (
    _HEADER
    + """
    WHERE e.session_uid = $1 AND e.seq BETWEEN $2 AND $3
    ORDER BY e.seq
"""
)
# With the markers that stand beside the span, up to the next event on either side.
_HEADERS_AROUND_SPAN: Final[LiteralString] = (
    _HEADER
    + """
    WHERE
        e.session_uid = $1
        AND e.seq >= coalesce(
            (
                SELECT b.seq
                FROM events AS b
                WHERE b.session_uid = $1 AND b.seq < $2 AND b.marker IS NULL
                ORDER BY b.seq DESC
                LIMIT 1
            ),
            0
        )
        AND e.seq <= coalesce(
            (
                SELECT a.seq
                FROM events AS a
                WHERE a.session_uid = $1 AND a.seq > $3 AND a.marker IS NULL
                ORDER BY a.seq
                LIMIT 1
            ),
            9223372036854775807
        )
    ORDER BY e.seq
"""
)
_HEADERS_BY_TIME: Final[LiteralString] = (
    _HEADER
    + """
    JOIN lanes AS l ON l.session_uid = e.session_uid AND l.lane = e.lane
    WHERE
        e.session_uid = $1
        AND l.isolation_scope IS NOT DISTINCT FROM $2::text
        AND l.branch = $3
        AND e.event_at BETWEEN $4 AND $5
"""
)


async def _load_headers(
    connection: PgConnection, key: SessionKey, facts: Facts, needs: Needs, lanes: dict[int, Lane]
) -> None:
    for start, end in needs.spans:
        rows = await fetch(connection, _HEADERS_AROUND_SPAN, key.uid, *_clipped(start, end))
        _add_headers(rows, facts, lanes)
    for wanted in needs.times:
        _add_headers(await fetch(connection, _HEADERS_BY_TIME, key.uid, *wanted), facts, lanes)
    await _load_missing_headers(connection, key, facts, needs.pinned_seqs, lanes=lanes)


async def _load_missing_headers(
    connection: PgConnection,
    key: SessionKey,
    facts: Facts,
    seqs: Iterable[int],
    *,
    lanes: dict[int, Lane],
) -> None:
    missing = [seq for seq in seqs if 0 < seq < FOREVER and seq not in facts.headers]
    if missing:
        _add_headers(await fetch(connection, _HEADERS_BY_SEQ, key.uid, missing), facts, lanes)


def _clipped(start: int, end: int) -> tuple[int, int]:
    """Return the span within what a bigint holds; what lies outside was never a seq."""
    return max(start, 0), min(end, FOREVER)


def _add_headers(rows: Sequence[Row], facts: Facts, lanes: dict[int, Lane]) -> None:
    for row in rows:
        facts.headers[row["seq"]] = Header(
            seq=row["seq"],
            lane=lanes[row["lane"]],
            timestamp=row["event_at"],
            invocation_id=row["invocation_id"],
            is_marker=row["is_marker"],
            owner_seqs=tuple(row["owner_seqs"] or ()),
            requested_ids=unpack_ids(row["requested_ids"]),
        )


# A result that names nothing answers the nearest open call: one of the newest that nothing answers.
_OPEN_CALLS_LIMIT: Final = 200

# With every call all of its event's: what stands beside a call belongs to its group. Bounds and
# orders as in `live_read.py`.
_CALLS: Final[LiteralString] = """
    WITH wanted AS (
        SELECT c.seq
        FROM unnest($2::text[]) AS w (call_id)
        CROSS JOIN LATERAL (
            SELECT c.seq
            FROM calls AS c
            WHERE
                c.session_uid = $1
                AND (c.call_id, c.seq) > (w.call_id, 0)
                AND (c.call_id, c.seq) <= (w.call_id, $6)
            ORDER BY c.call_id, c.seq
            OFFSET 0
        ) AS c
        UNION
        SELECT c.seq
        FROM unnest($3::text[]) AS w (name)
        CROSS JOIN LATERAL (
            SELECT c.seq
            FROM calls AS c
            WHERE
                c.session_uid = $1
                AND (c.name, c.seq) > (w.name, 0)
                AND (c.name, c.seq) <= (w.name, $6)
            ORDER BY c.name, c.seq
            OFFSET 0
        ) AS c
        UNION
        SELECT w.seq
        FROM unnest($4::bigint[]) AS w (seq)
        UNION
        (
            SELECT c.seq
            FROM calls AS c
            WHERE
                c.session_uid = $1
                AND NOT EXISTS (
                    SELECT FROM answers AS a
                    WHERE
                        a.session_uid = $1
                        AND a.call_seq = c.seq
                        AND a.call_part = c.part_index
                    OFFSET 0
                )
            ORDER BY c.seq DESC
            LIMIT $5
        )
    )
    SELECT
        c.seq, c.part_index, c.call_id, c.name, c.lane, c.author, c.response_seq,
        ARRAY(
            SELECT a.answer_seq
            FROM answers AS a
            WHERE
                a.session_uid = $1
                AND a.call_seq = c.seq
                AND a.call_part = c.part_index
            ORDER BY a.answer_seq
        ) AS answer_seqs
    FROM wanted AS w
    CROSS JOIN LATERAL (
        SELECT
            c.seq, c.part_index, c.call_id, c.name, c.lane, c.author, c.response_seq
        FROM calls AS c
        WHERE c.session_uid = $1 AND c.seq >= w.seq AND c.seq <= w.seq
        ORDER BY c.seq, c.part_index
        OFFSET 0
    ) AS c
    ORDER BY c.seq, c.part_index
"""


async def _call_rows(
    connection: PgConnection, key: SessionKey, facts: Facts, needs: Needs
) -> Sequence[Row]:
    owners = {seq for header in facts.headers.values() for seq in header.owner_seqs if seq}
    return await fetch(
        connection,
        _CALLS,
        key.uid,
        sorted(needs.call_ids),
        sorted(needs.call_names),
        sorted(owners | facts.headers.keys()),
        _OPEN_CALLS_LIMIT if "" in needs.call_names else 0,
        facts.head_seq,
    )


def _add_calls(rows: Sequence[Row], facts: Facts, lanes: dict[int, Lane]) -> None:
    for row in rows:
        call = CallFacts(
            seq=row["seq"],
            part_index=row["part_index"],
            id=row["call_id"] or None,
            name=row["name"],
            lane=lanes[row["lane"]],
            author=row["author"],
            response_seq=row["response_seq"],
            answers=list(row["answer_seqs"]),
        )
        facts.calls_by_id.setdefault(row["call_id"], []).append(call)
        facts.calls_by_seq.setdefault(call.seq, []).append(call)
