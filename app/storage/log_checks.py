"""Re-checking a stored session: everything that is stored twice must say the same.

The log is read in chunks, on one snapshot, so that memory stays flat whatever the session's size.
What was decided at append against earlier events is not decided again, since an older release may
have decided otherwise; it is checked for leading somewhere. `event_checks.py` has the rows of
events and calls; here are the lanes, the answers, and the session's own rows.

Nothing can be compared with what a caller gave beside the log (`app_name`, `user_id`, `metadata`,
`ttl_s`, a policy given at creation, the state to begin with), with the server's times and random
ids, and with what the planner of folds remembers (`is_invocation_complete`, `invocations_new`,
`tokens_tried`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString
from uuid import UUID

from app.core.branch import tagged_segments
from app.core.canonical import Json, canonical_json
from app.core.copying import replace
from app.core.events import Event, Fold, PolicyChange, Rewind
from app.core.ids import session_uid
from app.core.index import Index, resolve
from app.core.lanes import Lane
from app.core.ranges import Ranges, Silent, contains, of_seqs
from app.core.session_state import evolve, split_state
from app.ports import Finding, LogCheck, RecordedReply, SessionKey
from app.storage.codec import (
    SCHEMA_VERSION,
    Derive,
    pack_index,
    pack_multirange,
    tells_counts,
    unpack_event,
    unpack_index,
    unpack_json,
    unpack_multirange,
    unpack_replies,
)
from app.storage.connection import PgConnection, Row, fetch, fetch_one
from app.storage.event_checks import LanesSoFar, ReadAgain, check_event
from app.storage.markers import LoggedMarker, logged_markers, shown_lanes

#: Events of one chunk: a body may be a megabyte.
CHUNK_EVENTS: Final = 100
#: Of one session; more would tell nothing new.
MAX_FINDINGS: Final = 20
#: Replies that are remembered for the check of their fingerprints: of each reader and head the
#: first, and the newest of all.
MAX_FIRST_REPLIES: Final = 50
MAX_NEWEST_REPLIES: Final = 5
HEAD_DIGITS: Final = 24

#: What a damaged row may raise when it is read.
_UNREADABLE: Final = (ValueError, KeyError, IndexError, TypeError)


@dataclass(slots=True)
class _Sums:
    """What the chunks add up to."""

    lanes: LanesSoFar
    #: Session-scoped, by the deltas that are not rewound.
    state: dict[str, Json]
    rewound: Ranges
    #: As the newest event of one says it; None where there is none.
    policy: Json = None
    is_readable: bool = True
    last_seq: int = 0
    tokens: int = 0
    size_bytes: int = 0
    folds: int = 0
    first_replies: dict[tuple[str, Lane, str], RecordedReply] = field(default_factory=dict)
    newest_replies: list[RecordedReply] = field(default_factory=list)
    replies: int = 0

    def add(self, row: Row, event: Event, delta: Mapping[str, Json]) -> None:
        """Take an event in that could be read."""
        self.lanes.add(event, [row["lane"], *(row["section_lanes"] or ())])
        self.folds += isinstance(event.marker, Fold)
        if isinstance(event.marker, PolicyChange):
            # The service wrote it, and so knows its shape.
            self.policy = unpack_json(row["raw"])["actions"]["policy"]
        if delta and not contains(self.rewound, event.seq):
            self.state = evolve(self.state, split_state(delta).session)
        if event.compiled_fingerprint and event.compiled_seq is not None and event.marker is None:
            self._add_reply(
                RecordedReply(
                    seq=event.seq,
                    author=event.author,
                    lane=event.lane,
                    compiled_seq=event.compiled_seq,
                    fingerprint=event.compiled_fingerprint,
                )
            )

    def _add_reply(self, reply: RecordedReply) -> None:
        self.replies += 1
        place = (reply.author, reply.lane, reply.fingerprint[:HEAD_DIGITS])
        if len(self.first_replies) < MAX_FIRST_REPLIES:
            self.first_replies.setdefault(place, reply)
        self.newest_replies = [*self.newest_replies, reply][-MAX_NEWEST_REPLIES:]


class PgLogChecks:
    """:class:`app.ports.LogChecks` on Postgres."""

    def __init__(self, derive: Derive, read_again: ReadAgain) -> None:
        """Take what derives an event of an older release, and what reads a body again."""
        self._derive = derive
        self._read_again = read_again

    async def sessions(
        self,
        connection: PgConnection,
        *,
        tenant_id: str | None,
        after: UUID | None,
        limit: int,
    ) -> Sequence[SessionKey]:
        rows = await fetch(connection, _SESSIONS, tenant_id, after, limit)
        return [SessionKey(row["tenant_id"], row["session_id"], row["session_uid"]) for row in rows]

    async def strays(self, connection: PgConnection) -> Sequence[Finding]:
        found: list[Finding] = []
        for table, sql in _STRAYS.items():
            for row in await fetch(connection, sql):
                detail = f"{table} has rows of session {row['session_uid']}, which is not there"
                found.append(Finding(kind="stray", seq=None, detail=detail))
        return found

    async def check(self, connection: PgConnection, key: SessionKey) -> LogCheck | None:
        session = await fetch_one(connection, _SESSION, key.uid)
        if session is None:
            return None
        lane_rows = await fetch(connection, _LANES, key.uid)
        sums = await _nothing_yet(connection, key, session, lane_rows)
        findings: list[Finding] = []
        while len(findings) < MAX_FINDINGS:
            rows = await fetch(connection, _CHUNK, key.uid, sums.last_seq, CHUNK_EVENTS)
            if not rows:
                break
            findings += await self._check_chunk(connection, key, rows, sums)
        findings += await self._check_session(connection, key, session, sums)
        if sums.last_seq == session["head_seq"]:
            findings += _check_lanes(lane_rows, sums)
        replies = {reply.seq: reply for reply in sums.first_replies.values()}
        replies |= {reply.seq: reply for reply in sums.newest_replies}
        return LogCheck(
            findings=tuple(findings[:MAX_FINDINGS]),
            events=session["head_seq"],
            replies=tuple(replies[seq] for seq in sorted(replies)),
            replies_left=sums.replies - len(replies),
        )

    # Events

    async def _check_chunk(
        self, connection: PgConnection, key: SessionKey, rows: Sequence[Row], sums: _Sums
    ) -> list[Finding]:
        calls_by_seq: dict[int, list[Row]] = {}
        for call in await fetch(connection, _CALLS, key.uid, rows[0]["seq"], rows[-1]["seq"]):
            calls_by_seq.setdefault(call["seq"], []).append(call)
        owner_seqs = {seq for row in rows for seq in row["owner_seqs"] or () if seq is not None}
        found = await fetch(connection, _OWNED, key.uid, sorted(owner_seqs)) if owner_seqs else ()
        owned = {(call["seq"], call["part_index"]): call for call in found}
        findings: list[Finding] = []
        for row in rows:
            findings += self._check_event(row, sums, calls_by_seq.get(row["seq"], []), owned)
        return findings

    def _check_event(
        self,
        row: Row,
        sums: _Sums,
        calls: Sequence[Row],
        owned: Mapping[tuple[int, int], Row],
    ) -> Iterable[Finding]:
        seq = row["seq"]
        if seq != sums.last_seq + 1:
            yield Finding(
                kind="gap", seq=sums.last_seq + 1, detail=f"the next seq that is there is {seq}"
            )
        sums.last_seq = seq
        sums.tokens += row["tokens"]
        sums.size_bytes += len(row["raw"].encode())
        lane = sums.lanes.stored.get(row["lane"])
        if lane is None:
            yield Finding(kind="lane", seq=seq, detail=f"there is no lane {row['lane']}")
            return
        try:
            event = unpack_event(row, lane, self._derive)
            again = self._read_again(
                row["raw"], row["source_format"], row["item_part"], row["author"]
            )
            delta = unpack_json(row["state_delta"]) or {}
        except Exception as error:  # noqa: BLE001  whatever a damaged row does
            sums.is_readable = False
            yield Finding(kind="unreadable", seq=seq, detail=type(error).__name__)
            return
        yield from check_event(row, event, again, lanes=sums.lanes, calls=calls, owned=owned)
        sums.add(row, event, delta)

    # The session's row, and what goes over the whole log

    async def _check_session(
        self, connection: PgConnection, key: SessionKey, session: Row, sums: _Sums
    ) -> list[Finding]:
        findings: list[Finding] = []
        if not session["has_details"]:
            findings.append(Finding(kind="details", seq=None, detail="the details are missing"))
        if sums.last_seq != session["head_seq"]:
            detail = f"the head is said to be at {session['head_seq']}, the log ends at {{}}"
            findings.append(
                Finding(kind="head", seq=session["head_seq"], detail=detail.format(sums.last_seq))
            )
            return findings
        findings += _check_row(key, session, sums)
        if not sums.is_readable:
            # What goes over the whole log would stumble over the same.
            return findings
        markers = await logged_markers(connection, key)
        findings += _check_index(session, markers)
        findings += await _check_counters(connection, key, session, sums, markers)
        for kind, sql, detail in _WHOLE_LOG:
            for row in await fetch(connection, sql, key.uid):
                findings.append(Finding(kind=kind, seq=row["seq"], detail=detail))
        return findings


async def _nothing_yet(
    connection: PgConnection, key: SessionKey, session: Row, lane_rows: Sequence[Row]
) -> _Sums:
    stored = {row["lane"]: _lane(row) for row in lane_rows}
    tags = {tag for lane in stored.values() for _, tag in tagged_segments(lane.branch)}
    first_calls = await fetch(connection, _FIRST_CALLS, key.uid, sorted(tags)) if tags else ()
    return _Sums(
        lanes=LanesSoFar(stored, {row["call_id"]: row["seq"] for row in first_calls}),
        state=unpack_json(session["base_state"]) or {},
        rewound=unpack_multirange(session["rewound"]),
    )


def _lane(row: Row) -> Lane:
    return Lane(row["isolation_scope"], row["branch"], tuple(row["tool_names"]), row["node_path"])


def _check_row(key: SessionKey, session: Row, sums: _Sums) -> Iterable[Finding]:
    """Yield what is wrong with the session's own rows, beside index and counters."""
    expires = (session["ttl_s"] is None, session["expires_at"] is None)
    is_fork = session["forked_from"] is not None
    policy = unpack_json(session["policy"])
    checks = (
        ("session", "the uid is not of this tenant and id", _is_named(key)),
        ("session", "its shape is of no release", session["schema_version"] == SCHEMA_VERSION),
        (
            "session",
            "bytes are counted beyond the head",
            session["bytes_at_seq"] <= session["head_seq"],
        ),
        ("session", "no event is of the invocation that began last", session["has_invocation"]),
        # The policy of a fork is its original's, of whenever it was made.
        (
            "policy",
            "the policy is not what its newest event says",
            is_fork or sums.policy is None or _is_same(policy or {}, sums.policy),
        ),
        (
            "details",
            "their shape is of no release",
            session["details_version"] in (None, SCHEMA_VERSION),
        ),
        ("details", "whether it expires is told in two ways", expires[0] == expires[1]),
        (
            "state",
            "the state is not what the deltas make",
            not sums.is_readable
            or not session["has_details"]
            or _is_same(unpack_json(session["state"]), sums.state),
        ),
    )
    for kind, detail, is_sound in checks:
        if not is_sound:
            yield Finding(kind=kind, seq=None, detail=detail)


def _is_named(key: SessionKey) -> bool:
    return key.uid == session_uid(key.tenant_id, key.session_id)


def _is_same(told: Json, made: Json) -> bool:
    """Tell whether two objects are the same text, whatever the order of their keys."""
    if not (isinstance(told, dict) and isinstance(made, dict)):
        return False
    return canonical_json(dict(sorted(told.items()))) == canonical_json(dict(sorted(made.items())))


def _check_lanes(lane_rows: Sequence[Row], sums: _Sums) -> Iterable[Finding]:
    for row in lane_rows:
        number = row["lane"]
        if row["first_seq"] != sums.lanes.first_seqs.get(number):
            detail = f"lane {number} does not begin where its first event stands"
            yield Finding(kind="lane", seq=row["first_seq"], detail=detail)
        try:
            is_same = unpack_replies(row["replies"]) == sums.lanes.replies.get(number, {})
        except _UNREADABLE:
            is_same = False
        if not is_same:
            detail = f"the newest replies of lane {number} are others than it says"
            yield Finding(kind="lane", seq=row["last_seq"], detail=detail)


def _check_index(session: Row, markers: Sequence[LoggedMarker]) -> Iterable[Finding]:
    index = resolve((logged.seq, logged.marker) for logged in markers)
    try:
        stored = unpack_index(session["index"], session["live"], session["rewound"])
        if not tells_counts(session["index"]):
            stored = _as_of_today(stored, index, markers)
        is_same = pack_index(stored) == pack_index(index)
        lanes = list(shown_lanes(index, markers))
    except _UNREADABLE:
        yield Finding(kind="index", seq=None, detail="the index cannot be read")
        return
    pairs: list[tuple[str, Any, Any]] = [
        ("live", session["live"], pack_multirange(index.live)),
        ("rewound", session["rewound"], pack_multirange(index.rewound)),
        ("fold_seqs", session["fold_seqs"], [shown.fold_seq for shown in index.sections]),
        ("fold_lanes", session["fold_lanes"], lanes),
        (
            "last_rewind_seq",
            session["last_rewind_seq"],
            max((m.seq for m in markers if isinstance(m.marker, Rewind)), default=0),
        ),
    ]
    if not is_same:
        yield Finding(kind="index", seq=None, detail="the index is not what the markers make")
    for name, told, made in pairs:
        if told != made:
            detail = f"{name} is told as {told}, the markers make {made}"
            yield Finding(kind="index", seq=None, detail=detail)


def _as_of_today(stored: Index, made: Index, markers: Sequence[LoggedMarker]) -> Index:
    """Return an index of an older shape in today's; what it does not tell is not compared."""
    silent = Silent(of_seqs(marker.seq for marker in markers))
    counts = {(each.fold_seq, each.section_index): each.count for each in made.sections}
    sections = (
        replace(
            each,
            belongs=silent.bridge(each.belongs),
            count=counts.get((each.fold_seq, each.section_index), each.count),
        )
        for each in stored.sections
    )
    return replace(stored, sections=tuple(sections))


async def _check_counters(
    connection: PgConnection,
    key: SessionKey,
    session: Row,
    sums: _Sums,
    markers: Sequence[LoggedMarker],
) -> list[Finding]:
    index = resolve((logged.seq, logged.marker) for logged in markers)
    folds = {logged.seq: logged.marker for logged in markers if isinstance(logged.marker, Fold)}
    section_tokens = sum(
        folds[shown.fold_seq].sections[shown.section_index].tokens for shown in index.sections
    )
    live = await fetch_one(connection, _LIVE, key.uid, pack_multirange(index.live))
    assert live is not None
    pairs = [
        ("tokens_raw", session["tokens_raw"], sums.tokens),
        ("compactions", session["compactions"], sums.folds),
    ]
    # NULL: not counted yet.
    if session["live_events"] is not None:
        pairs.append(("live_events", session["live_events"], live["events"]))
    if session["tokens_live"] is not None:
        pairs.append(("tokens_live", session["tokens_live"], live["tokens"] + section_tokens))
    # A release that knew nothing of it left it behind.
    if session["bytes_at_seq"] == session["head_seq"]:
        pairs.append(("bytes_raw", session["bytes_raw"], sums.size_bytes))
    return [
        Finding(kind="counters", seq=None, detail=f"{name} is {told}, counted are {counted}")
        for name, told, counted in pairs
        if told != counted
    ]


_SESSIONS: Final[LiteralString] = """
    SELECT session_uid, tenant_id, session_id
    FROM sessions
    WHERE
        ($1::text IS NULL OR tenant_id = $1)
        AND ($2::uuid IS NULL OR session_uid > $2)
    ORDER BY session_uid
    LIMIT $3
"""

_SESSION: Final[LiteralString] = """
    SELECT
        s.head_seq, s.index::text AS index, s.live::text AS live, s.rewound::text AS rewound,
        s.fold_seqs, s.fold_lanes, s.last_rewind_seq, s.tokens_raw, s.compactions, s.live_events,
        s.tokens_live, s.bytes_raw, s.bytes_at_seq, s.schema_version, s.policy::text AS policy,
        d.session_uid IS NOT NULL AS has_details, d.base_state::text AS base_state,
        d.state::text AS state, d.ttl_s, d.expires_at, d.forked_from,
        d.schema_version AS details_version,
        s.invocation_id = '' OR EXISTS (
            SELECT
            FROM events AS e
            WHERE e.session_uid = $1 AND e.invocation_id = s.invocation_id
        ) AS has_invocation
    FROM sessions AS s
    LEFT JOIN session_details AS d ON d.session_uid = s.session_uid
    WHERE s.session_uid = $1
"""

_LANES: Final[LiteralString] = """
    SELECT
        lane, isolation_scope, branch, tool_names, node_path, first_seq, last_seq,
        replies::text AS replies
    FROM lanes
    WHERE session_uid = $1
    ORDER BY lane
"""

_FIRST_CALLS: Final[LiteralString] = """
    SELECT call_id, min(seq) AS seq
    FROM calls
    WHERE session_uid = $1 AND call_id = ANY ($2::text[])
    GROUP BY call_id
"""

_CHUNK: Final[LiteralString] = """
    SELECT
        seq, id, kind, lane, author, invocation_id, event_at, tokens, raw, source_format, item_part,
        body_hash, derived, derived_version, resolved, owner_seqs,
        requested_ids::text AS requested_ids, marker, section_lanes,
        state_delta::text AS state_delta, cache_record, schema_version
    FROM events
    WHERE session_uid = $1 AND seq > $2
    ORDER BY seq
    LIMIT $3
"""

_CALLS: Final[LiteralString] = """
    SELECT seq, part_index, call_id, name, lane, author, response_seq, has_args
    FROM calls
    WHERE session_uid = $1 AND seq >= $2 AND seq <= $3
    ORDER BY seq, part_index
"""

_OWNED: Final[LiteralString] = """
    SELECT seq, part_index, call_id, name, lane, author
    FROM calls
    WHERE session_uid = $1 AND seq = ANY ($2::bigint[])
    ORDER BY seq, part_index
"""

_LIVE: Final[LiteralString] = """
    SELECT count(*) AS events, coalesce(sum(e.tokens), 0)::bigint AS tokens
    FROM unnest($2::text::int8multirange) AS span
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

_ANSWERS_NOT_STORED: Final[LiteralString] = """
    SELECT e.seq
    FROM events AS e
    CROSS JOIN LATERAL json_array_elements(e.resolved::json -> 1) AS owner (value)
    WHERE
        e.session_uid = $1
        AND e.resolved IS NOT NULL
        AND json_typeof(owner.value) = 'array'
        AND NOT EXISTS (
            SELECT
            FROM answers AS a
            WHERE
                a.session_uid = $1
                AND a.call_seq = (owner.value ->> 0)::bigint
                AND a.call_part = (owner.value ->> 1)::integer
                AND a.answer_seq = e.seq
        )
    LIMIT 3
"""

_ANSWERS_OF_NOTHING: Final[LiteralString] = """
    SELECT a.answer_seq AS seq
    FROM answers AS a
    LEFT JOIN events AS e ON e.session_uid = a.session_uid AND e.seq = a.answer_seq
    WHERE
        a.session_uid = $1
        AND NOT EXISTS (
            SELECT
            FROM json_array_elements(e.resolved::json -> 1) AS owner (value)
            WHERE
                json_typeof(owner.value) = 'array'
                AND (owner.value ->> 0)::bigint = a.call_seq
                AND (owner.value ->> 1)::integer = a.call_part
        )
    LIMIT 3
"""

_CALLS_OF_NOTHING: Final[LiteralString] = """
    SELECT c.seq
    FROM calls AS c
    WHERE
        c.session_uid = $1
        AND NOT EXISTS (
            SELECT FROM events AS e WHERE e.session_uid = $1 AND e.seq = c.seq
        )
    LIMIT 3
"""

_LANES_BEHIND: Final[LiteralString] = """
    SELECT l.last_seq AS seq
    FROM lanes AS l
    WHERE
        l.session_uid = $1
        AND l.last_seq <> coalesce(
            (
                SELECT e.seq
                FROM events AS e
                WHERE e.session_uid = $1 AND e.lane = l.lane AND e.marker IS NULL
                ORDER BY -e.seq
                LIMIT 1
            ),
            0
        )
    LIMIT 3
"""

#: Kind of the finding, what finds it, what it says.
_WHOLE_LOG: Final[tuple[tuple[str, LiteralString, str], ...]] = (
    ("answers", _ANSWERS_NOT_STORED, "that it answers a call is not stored with the call"),
    ("answers", _ANSWERS_OF_NOTHING, "it is said to answer a call, and does not"),
    ("calls", _CALLS_OF_NOTHING, "there is a call of an event that is not there"),
    ("lane", _LANES_BEHIND, "the newest event of a lane is another than its lane says"),
)

_STRAY_EVENTS: Final[LiteralString] = """
    SELECT DISTINCT e.session_uid
    FROM events AS e
    WHERE NOT EXISTS (SELECT FROM sessions AS s WHERE s.session_uid = e.session_uid)
    LIMIT 10
"""
_STRAY_DETAILS: Final[LiteralString] = """
    SELECT d.session_uid
    FROM session_details AS d
    WHERE NOT EXISTS (SELECT FROM sessions AS s WHERE s.session_uid = d.session_uid)
    LIMIT 10
"""
_STRAYS: Final = {"events": _STRAY_EVENTS, "session_details": _STRAY_DETAILS}
