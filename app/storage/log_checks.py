"""Re-checking a stored session: everything that is stored twice must say the same.

The log is read in chunks, on one snapshot, so that memory stays flat whatever the session's size.
What was decided at append against earlier events is not decided again, since an older release may
have decided otherwise; it is checked for leading somewhere.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString
from uuid import UUID

from app.core.contents import FunctionCall
from app.core.copying import replace
from app.core.events import Event, Fold, Rewind
from app.core.index import Index, resolve
from app.core.lanes import Lane
from app.core.ranges import Silent, of_seqs
from app.ports import Finding, LogCheck, RecordedReply, SessionKey
from app.storage.codec import (
    DERIVED_VERSION,
    Derive,
    pack_derived,
    pack_index,
    pack_multirange,
    tells_counts,
    tokens_of,
    unpack_event,
    unpack_index,
)
from app.storage.connection import PgConnection, Row, fetch, fetch_one
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

#: Returns the hash of a stored event's body from its text, source format, number within its item
#: and author.
HashOf = Callable[[str, str, int, str], bytes]


@dataclass(slots=True)
class _Sums:
    """What the chunks add up to."""

    last_seq: int = 0
    tokens: int = 0
    size_bytes: int = 0
    folds: int = 0
    first_replies: dict[tuple[str, Lane, str], RecordedReply] = field(default_factory=dict)
    newest_replies: list[RecordedReply] = field(default_factory=list)
    replies: int = 0

    def add_reply(self, reply: RecordedReply) -> None:
        """Remember a reply, if it is one of those."""
        self.replies += 1
        place = (reply.author, reply.lane, reply.fingerprint[:HEAD_DIGITS])
        if len(self.first_replies) < MAX_FIRST_REPLIES:
            self.first_replies.setdefault(place, reply)
        self.newest_replies = [*self.newest_replies, reply][-MAX_NEWEST_REPLIES:]


class PgLogChecks:
    """:class:`app.ports.LogChecks` on Postgres."""

    def __init__(self, derive: Derive, hash_of: HashOf) -> None:
        """Take what derives an event from its text, and what hashes its body."""
        self._derive = derive
        self._hash_of = hash_of

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
        findings: list[Finding] = []
        sums = _Sums()
        while len(findings) < MAX_FINDINGS:
            rows = await fetch(connection, _CHUNK, key.uid, sums.last_seq, CHUNK_EVENTS)
            if not rows:
                break
            calls = await fetch(connection, _CALLS, key.uid, rows[0]["seq"], rows[-1]["seq"])
            calls_by_seq: dict[int, set[tuple[int, str, str]]] = {}
            for call in calls:
                told = (call["part_index"], call["call_id"], call["name"])
                calls_by_seq.setdefault(call["seq"], set()).add(told)
            for row in rows:
                findings += self._check_event(row, sums, calls_by_seq.get(row["seq"], set()))
        findings += await self._check_session(connection, key, session, sums)
        replies = {reply.seq: reply for reply in sums.first_replies.values()}
        replies |= {reply.seq: reply for reply in sums.newest_replies}
        return LogCheck(
            findings=tuple(findings[:MAX_FINDINGS]),
            events=session["head_seq"],
            replies=tuple(replies[seq] for seq in sorted(replies)),
            replies_left=sums.replies - len(replies),
        )

    # Events

    def _check_event(
        self, row: Row, sums: _Sums, calls: set[tuple[int, str, str]]
    ) -> Iterable[Finding]:
        seq = row["seq"]
        if seq != sums.last_seq + 1:
            yield Finding(
                kind="gap", seq=sums.last_seq + 1, detail=f"the next seq that is there is {seq}"
            )
        sums.last_seq = seq
        sums.tokens += row["tokens"]
        sums.size_bytes += len(row["raw"].encode())
        if row["branch"] is None:
            yield Finding(kind="lane", seq=seq, detail=f"there is no lane {row['lane']}")
            return
        lane = Lane(
            row["isolation_scope"], row["branch"], tuple(row["tool_names"]), row["node_path"]
        )
        try:
            event = unpack_event(row, lane, self._derive)
            derived = self._derive(row["raw"], row["source_format"], row["item_part"])
            body_hash = self._hash_of(
                row["raw"], row["source_format"], row["item_part"], row["author"]
            )
        except Exception as error:  # noqa: BLE001  whatever a damaged row does
            yield Finding(kind="unreadable", seq=seq, detail=type(error).__name__)
            return
        sums.folds += isinstance(event.marker, Fold)
        if body_hash != row["body_hash"]:
            yield Finding(kind="body_hash", seq=seq, detail="the body is not what was appended")
        yield from _check_derived(row, event, derived)
        yield from _check_calls(event, calls)
        if event.compiled_fingerprint and event.compiled_seq is not None and event.marker is None:
            sums.add_reply(
                RecordedReply(
                    seq=seq,
                    author=event.author,
                    lane=lane,
                    compiled_seq=event.compiled_seq,
                    fingerprint=event.compiled_fingerprint,
                )
            )

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
        markers = await logged_markers(connection, key)
        findings += _check_index(session, markers)
        findings += await _check_counters(connection, key, session, sums, markers)
        for kind, sql, detail in _WHOLE_LOG:
            for row in await fetch(connection, sql, key.uid):
                findings.append(Finding(kind=kind, seq=row["seq"], detail=detail))
        return findings


def _check_derived(row: Row, event: Event, derived: Event) -> Iterable[Finding]:
    seq = row["seq"]
    if row["kind"] != event.kind:
        yield Finding(kind="kind", seq=seq, detail=f"{row['kind']} is told of a {event.kind}")
    if row["derived_version"] == DERIVED_VERSION and row["derived"] != pack_derived(derived):
        yield Finding(kind="derived", seq=seq, detail="what is derived is not of this body")
    if row["derived_version"] == DERIVED_VERSION and row["tokens"] != tokens_of(event):
        detail = f"{row['tokens']} tokens are told of {tokens_of(event)}"
        yield Finding(kind="tokens", seq=seq, detail=detail)
    owners = [None if owner is None else owner.seq for owner in event.owners]
    if (row["owner_seqs"] or []) != owners:
        yield Finding(kind="owners", seq=seq, detail="the owners are told in two ways")
    if any(owner is not None and not 0 < owner < seq for owner in owners):
        yield Finding(kind="owners", seq=seq, detail="an owner does not stand before its response")


def _check_calls(event: Event, calls: set[tuple[int, str, str]]) -> Iterable[Finding]:
    if event.marker is not None:
        expected = set()
    else:
        expected = {
            (number, part.id or "", part.name)
            for number, part in enumerate(event.parts)
            if isinstance(part, FunctionCall)
        }
    if calls != expected:
        yield Finding(kind="calls", seq=event.seq, detail="the calls are not those of the body")


def _check_index(session: Row, markers: Sequence[LoggedMarker]) -> Iterable[Finding]:
    index = resolve((logged.seq, logged.marker) for logged in markers)
    try:
        stored = unpack_index(session["index"], session["live"], session["rewound"])
        if not tells_counts(session["index"]):
            stored = _as_of_today(stored, index, markers)
        is_same = pack_index(stored) == pack_index(index)
        lanes = list(shown_lanes(index, markers))
    except (ValueError, KeyError, IndexError, TypeError):
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
        s.tokens_live, s.bytes_raw, s.bytes_at_seq,
        EXISTS (SELECT FROM session_details AS d WHERE d.session_uid = $1) AS has_details
    FROM sessions AS s
    WHERE s.session_uid = $1
"""

_CHUNK: Final[LiteralString] = """
    SELECT
        e.seq, e.id, e.kind, e.lane, e.author, e.invocation_id, e.event_at, e.tokens, e.raw,
        e.source_format, e.item_part, e.body_hash, e.derived, e.derived_version, e.resolved,
        e.owner_seqs, e.requested_ids::text AS requested_ids, e.marker,
        l.isolation_scope, l.branch, l.tool_names, l.node_path
    FROM events AS e
    LEFT JOIN lanes AS l ON l.session_uid = e.session_uid AND l.lane = e.lane
    WHERE e.session_uid = $1 AND e.seq > $2
    ORDER BY e.seq
    LIMIT $3
"""

_CALLS: Final[LiteralString] = """
    SELECT seq, part_index, call_id, name
    FROM calls
    WHERE session_uid = $1 AND seq >= $2 AND seq <= $3
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
    WHERE a.session_uid = $1 AND NOT coalesce(a.call_seq = ANY (e.owner_seqs), false)
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
