"""Inserting a batch, and moving the head of its log, in one statement.

The statement compares before it writes: with the session locked beforehand only where the head is,
as a backstop; without (``append_at``) all that the batch was resolved against. Under READ COMMITTED
that is sound: the UPDATE waits for who holds the row and then looks at the row as it is. What its
sub-queries see is older than that only where somebody appended meanwhile, and then the head is not
where it was.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, LiteralString

from app.core.canonical import canonical_json, clean_text
from app.core.events import Event, Fold, Marker
from app.core.lanes import Lane
from app.core.resolve import Facts, LaneFacts
from app.ports import LogHead, NewEvent, SessionKey
from app.storage.codec import (
    DERIVED_VERSION,
    NO_ARGS,
    SCHEMA_VERSION,
    pack_cache_record,
    pack_derived,
    pack_ids,
    pack_marker,
    pack_replies,
    pack_resolved,
    tokens_of,
)
from app.storage.connection import PgConnection, fetch_one

# The parts of WITH that write all run, and see nothing of each other; they write nothing where
# `moved` has no row. The timeout is set before the row is waited for, and ends before the
# statement's own would.
_INSERT: Final[LiteralString] = """
    WITH waiting AS MATERIALIZED (SELECT set_config('lock_timeout', '4s', true)),
    moved AS (
        UPDATE sessions AS s
        SET
            head_seq = $43,
            tokens_raw = s.tokens_raw + $44,
            compactions = s.compactions + $45,
            live_events = s.live_events + $46,
            tokens_live = s.tokens_live + $47,
            bytes_raw = $49 + CASE
                WHEN s.bytes_at_seq = $42 THEN s.bytes_raw
                ELSE (
                    SELECT coalesce(sum(octet_length(e.raw)), 0)::bigint
                    FROM events AS e
                    WHERE e.session_uid = $1 AND e.seq <= $42
                )
            END,
            bytes_at_seq = $43,
            invocation_id = coalesce($59, s.invocation_id),
            is_invocation_complete = coalesce($60, s.is_invocation_complete),
            invocations_new = s.invocations_new + $61,
            updated_at = statement_timestamp()
        FROM waiting
        WHERE
            s.session_uid = $1
            AND s.head_seq = $42
            AND (
                $50::uuid IS NULL
                OR (
                    s.incarnation = $50
                    AND s.live_events = $53
                    AND s.tokens_live = $54
                    AND s.invocations_new = $55
                    AND s.tokens_tried = $56
                    AND s.policy::text IS NOT DISTINCT FROM $57
                    AND $58 IS NOT DISTINCT FROM (
                        SELECT a.policy::text
                        FROM app_policies AS a
                        WHERE a.tenant_id = s.tenant_id AND a.app_name = s.app_name
                    )
                )
            )
            AND NOT EXISTS (
                SELECT
                FROM unnest($51::text[]) AS own (id)
                CROSS JOIN LATERAL (
                    SELECT e.id
                    FROM events AS e
                    WHERE e.session_uid = $1 AND e.id >= own.id AND e.id <= own.id
                    ORDER BY e.id
                    OFFSET 0
                ) AS e
            )
            AND NOT EXISTS (
                SELECT
                FROM unnest($52::text[]) AS begun (invocation_id)
                CROSS JOIN LATERAL (
                    SELECT e.seq
                    FROM events AS e
                    WHERE
                        e.session_uid = $1
                        AND (e.invocation_id, e.seq) > (begun.invocation_id, 0)
                        AND (e.invocation_id, e.seq) <= (begun.invocation_id, $42)
                    ORDER BY e.invocation_id, e.seq
                    LIMIT 1
                ) AS e
            )
        RETURNING s.head_seq
    ),
    new_events AS (
        INSERT INTO events (
            session_uid, seq, id, kind, lane, author, invocation_id, event_at, tokens, raw,
            source_format, item_part, body_hash, derived, derived_version, resolved, owner_seqs,
            requested_ids, marker, section_lanes, state_delta, cache_record, schema_version
        )
        SELECT
            $1, e.seq, e.id, e.kind, e.lane, e.author, e.invocation_id, e.event_at, e.tokens,
            e.raw, e.source_format, e.item_part, e.body_hash, e.derived, $2, e.resolved,
            e.owner_seqs::bigint[], e.requested_ids::json, e.marker, e.section_lanes::integer[],
            e.state_delta::json, e.cache_record, $3
        FROM moved
        CROSS JOIN unnest(
            $4::bigint[], $5::text[], $6::text[], $7::integer[], $8::text[], $9::text[],
            $10::double precision[], $11::integer[], $12::text[], $13::text[], $14::integer[],
            $15::bytea[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[],
            $21::text[], $22::text[], $48::text[]
        ) AS e (
            seq, id, kind, lane, author, invocation_id, event_at, tokens, raw, source_format,
            item_part, body_hash, derived, resolved, owner_seqs, requested_ids, marker,
            section_lanes, state_delta, cache_record
        )
    ),
    new_calls AS (
        INSERT INTO calls (
            session_uid, seq, part_index, call_id, name, lane, author, response_seq, has_args
        )
        SELECT
            $1, c.seq, c.part_index, c.call_id, c.name, c.lane, c.author, c.response_seq, c.has_args
        FROM moved
        CROSS JOIN unnest(
            $23::bigint[], $24::integer[], $25::text[], $26::text[], $27::integer[], $28::text[],
            $29::bigint[], $30::boolean[]
        ) AS c (seq, part_index, call_id, name, lane, author, response_seq, has_args)
    ),
    new_answers AS (
        INSERT INTO answers (session_uid, call_seq, call_part, answer_seq)
        SELECT $1, a.call_seq, a.call_part, a.answer_seq
        FROM moved
        CROSS JOIN unnest($31::bigint[], $32::integer[], $33::bigint[])
            AS a (call_seq, call_part, answer_seq)
    ),
    new_lanes AS (
        INSERT INTO lanes (
            session_uid, lane, isolation_scope, branch, tool_names, node_path, first_seq, last_seq,
            replies
        )
        SELECT
            $1, l.lane, l.isolation_scope, l.branch,
            ARRAY(SELECT json_array_elements_text(l.tool_names::json)), l.node_path, l.first_seq,
            l.last_seq, l.replies::json
        FROM moved
        CROSS JOIN unnest(
            $34::integer[], $35::text[], $36::text[], $37::text[], $38::text[], $39::bigint[],
            $40::bigint[], $41::text[]
        ) AS l (
            lane, isolation_scope, branch, tool_names, node_path, first_seq, last_seq, replies
        )
        ON CONFLICT (session_uid, lane)
            DO UPDATE SET last_seq = excluded.last_seq, replies = excluded.replies
    ),
    later_expiry AS (
        UPDATE session_details
        SET expires_at = statement_timestamp() + ttl_s * interval '1 second'
        FROM moved
        WHERE session_uid = $1 AND ttl_s IS NOT NULL
    )
    SELECT head_seq
    FROM moved
"""


async def insert(
    connection: PgConnection, key: SessionKey, rows: Sequence[NewEvent], facts: Facts
) -> bool:
    """Insert into a session that is locked; tell whether the head was where the rows begin."""
    return await _insert(connection, key, rows, facts, (*_UNCOMPARED, *_STANDING_STILL))


async def append_at(
    connection: PgConnection,
    key: SessionKey,
    rows: Sequence[NewEvent],
    facts: Facts,
    *,
    head: LogHead,
    then: LogHead,
    ids: Sequence[str],
) -> bool:
    """As :meth:`app.ports.EventLog.append_at`."""
    begins = {row.event.invocation_id for row in rows} - {"", head.newest.invocation_id}
    counters = head.standing.counters
    compared = (
        head.standing.incarnation,
        sorted(map(clean_text, ids)),
        sorted(map(clean_text, begins)),
        counters.live_events,
        counters.tokens_live,
        counters.invocations_new,
        counters.tokens_tried,
        head.policy_text,
        head.app_policy_text,
    )
    newest, after = then.newest, then.standing.counters
    completed = after.invocations_new - counters.invocations_new
    advanced = (newest.invocation_id, newest.is_complete, completed)
    return await _insert(connection, key, rows, facts, (*compared, *advanced))


#: What is larger is packed beside the event loop: a row takes 15 microseconds, a megabyte 5 ms.
MAX_ROWS_ON_LOOP: Final = 100
MAX_CHARACTERS_ON_LOOP: Final = 262_144
#: Nothing but the head; the counts of invocations are moved by who holds the lock.
_UNCOMPARED: Final = (None, (), (), None, None, None, None, None, None)
_STANDING_STILL: Final = (None, None, 0)


async def _insert(
    connection: PgConnection,
    key: SessionKey,
    rows: Sequence[NewEvent],
    facts: Facts,
    more: tuple[Any, ...],
) -> bool:
    if len(rows) > MAX_ROWS_ON_LOOP or sum(len(row.raw) for row in rows) > MAX_CHARACTERS_ON_LOOP:
        values = await asyncio.to_thread(_values, rows, facts)
    else:
        values = _values(rows, facts)
    moved = await fetch_one(
        connection, _INSERT, key.uid, DERIVED_VERSION, SCHEMA_VERSION, *values, *more
    )
    return moved is not None


def _values(rows: Sequence[NewEvent], facts: Facts) -> tuple[Any, ...]:
    events = [row.event for row in rows]
    lanes = _touched_lanes(events, facts)
    return (
        *_columns([_event_row(row, facts) for row in rows], 19),
        *_columns([row for event in events for row in _call_rows(event, facts)], 8),
        *_columns([row for event in events for row in _answer_rows(event)], 3),
        *_columns([_lane_row(lane, facts.lanes[lane], events) for lane in lanes], 8),
        events[0].seq - 1,
        events[-1].seq,
        sum(map(tokens_of, events)),
        sum(isinstance(event.marker, Fold) for event in events),
        sum(event.marker is None for event in events),
        sum(tokens_of(event) for event in events if event.marker is None),
        [pack_cache_record(event) for event in events],
        sum(row.size_bytes for row in rows),
    )


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> Iterable[Sequence[Any]]:
    return zip(*rows, strict=True) if rows else ([],) * width


def _event_row(row: NewEvent, facts: Facts) -> tuple[Any, ...]:
    event = row.event
    return (
        event.seq,
        event.id,
        event.kind,
        facts.lanes[event.lane].number,
        event.author,
        event.invocation_id,
        event.timestamp,
        tokens_of(event),
        row.raw,
        row.source_format,
        row.item_part,
        row.body_hash,
        pack_derived(event),
        pack_resolved(event),
        _array([None if owner is None else owner.seq for owner in event.owners]),
        pack_ids(event.requested_ids),
        None if event.marker is None else pack_marker(event.marker),
        _array([facts.lanes[lane].number for lane in _section_lanes(event.marker)]),
        canonical_json(dict(row.state_delta)) if row.state_delta else None,
    )


def _array(numbers: Sequence[int | None]) -> str | None:
    """Return the text of a Postgres array, None for an empty one."""
    if not numbers:
        return None
    return "{" + ",".join("NULL" if n is None else str(n) for n in numbers) + "}"


def _section_lanes(marker: Marker | None) -> Sequence[Lane]:
    return [section.lane for section in marker.sections] if isinstance(marker, Fold) else []


def _call_rows(event: Event, facts: Facts) -> Iterable[tuple[Any, ...]]:
    # The resolver knows the calls of the batch, which no other event of it can have changed.
    if event.marker is not None or not event.calls:
        return
    for call in facts.calls_by_seq[event.seq]:
        part = event.parts[call.part_index]
        yield (
            call.seq,
            call.part_index,
            call.id or "",
            call.name,
            facts.lanes[call.lane].number,
            call.author,
            call.response_seq,
            getattr(part, "args", NO_ARGS) != NO_ARGS,
        )


def _answer_rows(event: Event) -> Iterable[tuple[Any, ...]]:
    """Return the calls that the event answers, each once."""
    answered = {(owner.seq, owner.part_index) for owner in event.owners if owner is not None}
    return [(seq, part_index, event.seq) for seq, part_index in sorted(answered)]


def _touched_lanes(events: Sequence[Event], facts: Facts) -> Sequence[Lane]:
    lanes = {event.lane for event in events}
    for event in events:
        lanes.update(_section_lanes(event.marker))
    return sorted(lanes, key=lambda lane: facts.lanes[lane].number)


def _lane_row(lane: Lane, lane_facts: LaneFacts, events: Sequence[Event]) -> tuple[Any, ...]:
    first = next(e for e in events if e.lane == lane or lane in _section_lanes(e.marker))
    return (
        lane_facts.number,
        lane.isolation_scope,
        lane.branch,
        canonical_json(list(lane.tool_names)),
        lane.node_path,
        # Only used when the lane is new.
        first.seq,
        lane_facts.last_seq,
        pack_replies(lane_facts.replies),
    )
