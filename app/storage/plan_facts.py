"""Reading a log for a compaction: the planner's facts, and the bodies behind them.

What is read follows the live events, and the few masked ones that an overlap reads again; not the
history. All statements run on one snapshot, so that facts and bodies are of one moment.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, LiteralString

from app.core.compaction.facts import (
    PlanFacts,
    Refusal,
    call_ids_of,
    closed_calls,
    plan_event,
    read_again,
    read_again_folds,
    wanted_folds,
)
from app.core.compaction.policy import CompactionPolicy
from app.core.copying import replace
from app.core.elision import elide, kept_characters
from app.core.events import Event, Events, Marker
from app.core.index import Index
from app.core.lanes import Lane
from app.core.ranges import Ranges, intersect, union
from app.core.resolve import Needs, Resolver
from app.core.tokens import CountTokens
from app.ports import CompactionRead, CompactionStanding, LockedSession, SessionKey
from app.storage.codec import DERIVED_VERSION, Derive, pack_multirange, unpack_event, unpack_json
from app.storage.compaction_counters import PgCompactionCounters
from app.storage.connection import PgConnection, fetch
from app.storage.event_log import PgEventLog
from app.storage.markers import logged_folds, markers_but_folds, newest_folds

#: The newest refusals are enough: each counts until its lanes have grown.
MAX_REFUSALS: Final = 50
#: So many characters are counted in some 4 ms; more of them beside the event loop.
MAX_CHARACTERS_ON_LOOP: Final = 16_384


class PgCompactionReads:
    """:class:`app.ports.CompactionReads` on Postgres."""

    def __init__(self, log: PgEventLog, derive: Derive, count: CountTokens) -> None:
        """Take the log, what derives an event from its raw text, and what counts a text's
        tokens."""
        self._log = log
        self._derive = derive
        self._count = count
        self._counters = PgCompactionCounters()

    async def read(
        self,
        connection: PgConnection,
        key: SessionKey,
        choose: Callable[[CompactionStanding], CompactionPolicy],
        *,
        projected_tokens: int | None = None,
    ) -> CompactionRead | None:
        session = await self._log.find_session(connection, key)
        standing = await self._counters.standing(connection, key)
        if session is None or standing is None:
            return None
        policy = choose(standing)
        markers = await _markers(connection, key, session, policy)
        events = await self._events(connection, key, _wanted(session, markers, policy))
        facts = replace(
            await self._facts(connection, key, session, events),
            markers=markers,
            projected_tokens=projected_tokens,
        )
        return CompactionRead(session=session, standing=standing, facts=facts, events=events)

    async def _events(
        self, connection: PgConnection, key: SessionKey, ranges: Ranges
    ) -> Mapping[int, Event]:
        rows = await fetch(connection, _EVENTS, key.uid, pack_multirange(ranges), DERIVED_VERSION)
        lanes: dict[int, Lane] = {}
        for row in rows:
            if row["lane"] not in lanes:
                lanes[row["lane"]] = Lane(
                    row["isolation_scope"],
                    row["branch"],
                    tuple(row["tool_names"]),
                    row["node_path"],
                )
        return {row["seq"]: unpack_event(row, lanes[row["lane"]], self._derive) for row in rows}

    async def _as_read(self, events: Events, index: Index) -> Events:
        """Return the events, elided ones as stubs."""

        def elided() -> Events:
            return tuple(elide(event, index, self._count) for event in events)

        if kept_characters(events, index) <= MAX_CHARACTERS_ON_LOOP:
            return elided()
        return await asyncio.to_thread(elided)

    async def _facts(
        self,
        connection: PgConnection,
        key: SessionKey,
        session: LockedSession,
        events: Mapping[int, Event],
    ) -> PlanFacts:
        lanes = {event.lane for event in events.values()}
        needs = Needs(
            has_markers=True,
            pinned_seqs=frozenset(events),
            call_ids=frozenset(call_id for lane in lanes for call_id in call_ids_of(lane)),
            invocation_ids=frozenset(e.invocation_id for e in events.values() if e.invocation_id),
        )
        facts = await self._log.load_facts(connection, key, session, needs)
        resolver = Resolver(facts)
        last_of_newest = _last_of_newest(session, events)
        return PlanFacts(
            head_seq=session.head_seq,
            events=[
                plan_event(event, completes_invocation=event.seq == last_of_newest)
                for event in await self._as_read(tuple(events.values()), session.index)
            ],
            index=session.index,
            waiting=frozenset(resolver.waiting(facts.calls_by_seq)),
            closed_call_ids=closed_calls(resolver, lanes),
            first_seqs=facts.first_seq_by_invocation,
            refusals=await _refusals(connection, key, session),
        )


async def _markers(
    connection: PgConnection, key: SessionKey, session: LockedSession, policy: CompactionPolicy
) -> Sequence[tuple[int, Marker]]:
    """Return the markers that have a say in what is folded next, oldest first.

    A session that was folded ten thousand times has as many markers, most of them superseded: of
    folds only those are read that are shown, wait, were undone, or may be read again.
    """
    others = await markers_but_folds(connection, key)
    seqs = wanted_folds(session.index, [(each.seq, each.marker) for each in others])
    folds = [
        *await logged_folds(connection, key, seqs),
        *await newest_folds(
            connection,
            key,
            limit=read_again_folds(policy),
            leave_out=seqs,
            rewound=session.index.rewound,
        ),
    ]
    found = {each.seq: each.marker for each in (*others, *folds)}
    return sorted(found.items(), key=lambda pair: pair[0])


def _wanted(
    session: LockedSession, markers: Sequence[tuple[int, Marker]], policy: CompactionPolicy
) -> Ranges:
    log = ((1, session.head_seq),)
    return intersect(union((*session.index.live, *read_again(markers, policy))), log)


def _last_of_newest(session: LockedSession, events: Mapping[int, Event]) -> int | None:
    """Return the newest event of an invocation of which the row knows that it is complete.

    Only the invocation that began last can be incomplete, so no other need be told of.
    """
    if not session.is_invocation_complete:
        return None
    seqs = (seq for seq, e in events.items() if e.invocation_id == session.invocation_id)
    return max(seqs, default=None)


_EVENTS: Final[LiteralString] = """
    SELECT
        e.seq, e.lane, e.id, e.author, e.invocation_id, e.event_at, e.derived, e.derived_version,
        e.resolved, e.requested_ids::text AS requested_ids, e.marker, e.source_format, e.item_part,
        CASE WHEN e.derived_version < $3 THEN e.raw END AS raw,
        l.isolation_scope, l.branch, l.tool_names, l.node_path
    FROM unnest($2::text::int8multirange) AS span
    CROSS JOIN LATERAL (
        SELECT
            e.seq, e.lane, e.id, e.author, e.invocation_id, e.event_at, e.derived,
            e.derived_version, e.resolved, e.requested_ids, e.marker, e.source_format, e.item_part,
            e.raw
        FROM events AS e
        WHERE
            e.session_uid = $1
            AND e.seq >= lower(span)
            AND e.seq < upper(span)
            AND e.marker IS NULL
        ORDER BY e.seq
        OFFSET 0
    ) AS e
    JOIN lanes AS l ON l.session_uid = $1 AND l.lane = e.lane
    ORDER BY e.seq
"""

_REFUSALS: Final[LiteralString] = """
    SELECT j.result::text AS result
    FROM jobs AS j
    WHERE
        j.session_uid = $1
        AND j.incarnation = $2
        AND j.status = 'done'
        AND j.result -> 'refused' IS NOT NULL
    ORDER BY j.finished_at DESC
    LIMIT $3
"""


async def _refusals(
    connection: PgConnection, key: SessionKey, session: LockedSession
) -> Sequence[Refusal]:
    rows = await fetch(connection, _REFUSALS, key.uid, session.incarnation, MAX_REFUSALS)
    refused = [unpack_json(row["result"])["refused"] for row in rows]
    return [
        Refusal(tuple((start, end) for start, end in each["covers"]), each["since_seq"])
        for each in refused
    ]
