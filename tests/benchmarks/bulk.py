"""A long masked history without a million appends: copies of a few events, and the fold over them.

What is inserted is what appends would have left: the rows of one invocation, made by the service,
are copied with seqs, ids, and invocations of their own, and the fold is resolved by the same code.
Only what is derived of a body stays that of the original: call ids repeat.
"""

import json
from typing import Any, Final, LiteralString

import asyncpg

from app.core.contents import Text
from app.core.events import Event, Fold, Section
from app.core.ids import session_uid
from app.core.index import resolve
from app.core.lanes import ROOT_LANE
from app.core.resolve import Facts, LaneFacts
from app.ports import NewEvent, SessionKey
from app.storage.database import PgDatabase
from app.storage.event_log import PgEventLog
from app.storage.pool import create_engine

#: Rows of one statement.
STEP: Final = 50_000

_COPY_EVENTS: Final[LiteralString] = """
    INSERT INTO events (
        session_uid, seq, id, kind, lane, author, invocation_id, event_at, tokens, raw,
        source_format, item_part, body_hash, derived, derived_version, resolved, owner_seqs
    )
    SELECT
        e.session_uid, n, 'e' || (n - 1), e.kind, e.lane, e.author, 'i' || ((n - 1) / $2),
        e.event_at + n, e.tokens,
        replace(e.raw, '"id": "e' || (e.seq - 1) || '"', '"id": "e' || (n - 1) || '"'),
        e.source_format, e.item_part, e.body_hash,
        replace(e.derived, '58-' || (e.seq - 1), '58-' || (n - 1)), e.derived_version, e.resolved,
        CASE WHEN e.owner_seqs IS NULL THEN NULL ELSE ARRAY[n - 1] END
    FROM generate_series($3::bigint, $4::bigint) AS n
    JOIN events AS e ON e.session_uid = $1 AND e.seq = 1 + (n - 1) % $2
"""
_COPY_CALLS: Final[LiteralString] = """
    INSERT INTO calls (
        session_uid, seq, part_index, call_id, name, lane, author, response_seq, has_args
    )
    SELECT
        $1, n, c.part_index, 'call_' || (n - 1), c.name, c.lane, c.author, n, c.has_args
    FROM generate_series($3::bigint, $4::bigint) AS n
    JOIN calls AS c ON c.session_uid = $1 AND c.seq = 1 + (n - 1) % $2
"""
_COPY_ANSWERS: Final[LiteralString] = """
    INSERT INTO answers (session_uid, call_seq, call_part, answer_seq)
    SELECT $1, n, a.call_part, n + 1
    FROM generate_series($3::bigint, $4::bigint) AS n
    JOIN answers AS a ON a.session_uid = $1 AND a.call_seq = 1 + (n - 1) % $2
"""
_MOVE: Final[LiteralString] = """
    UPDATE sessions
    SET head_seq = $2, bytes_at_seq = $2
    WHERE session_uid = $1
"""


async def lengthen(url: str, session_id: str, *, period: int, masked: int, summary: str) -> None:
    """Copy the events of a session that has ``period`` of them until it has ``masked``, and fold
    all."""
    key = SessionKey("default", session_id, session_uid("default", session_id))
    connection = await asyncpg.connect(url)
    try:
        for first in range(period + 1, masked + 1, STEP):
            last = min(masked, first + STEP - 1)
            for statement in (_COPY_EVENTS, _COPY_CALLS, _COPY_ANSWERS):
                await connection.execute(statement, key.uid, period, first, last)
        await connection.execute(_MOVE, key.uid, masked)
    finally:
        await connection.close()
    await _fold(url, key, masked, summary)


async def _fold(url: str, key: SessionKey, masked: int, summary: str) -> None:
    section = Section(ROOT_LANE, ((1, masked),), (Text(text=summary),), tokens=20)
    marker = Fold(1, masked, (section,))
    event = Event(seq=masked + 1, id="fold", author="user", marker=marker)
    facts = Facts(
        head_seq=masked + 1,
        index=resolve([(masked + 1, marker)]),
        lanes={ROOT_LANE: LaneFacts(1, masked)},
        lane_count=1,
        markers=[(masked + 1, marker)],
    )
    row = NewEvent(
        event=event,
        raw=json.dumps({"id": "fold"}),
        source_format="native",
        item_part=0,
        body_hash=bytes(32),
        state_delta={},
    )
    engine = create_engine(url, size=1)
    try:
        async with PgDatabase(engine).transaction() as connection:
            await PgEventLog(_never).append(connection, key, [row], facts)
    finally:
        await engine.dispose()


def _never(*row: Any) -> Event:
    raise AssertionError(row)
