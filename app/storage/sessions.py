"""Sessions, their state and policies: made, changed, forked and erased.

Whoever changes the state of a session holds the lock of its row (``PgEventLog.lock_session``).
"""

# Statements that share a piece are put together from constants, as LiteralString proves.

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from app.core.canonical import Json, canonical_json, clean_text
from app.core.index import Index
from app.core.session_state import evolve, split_state
from app.ports import LockedSession, NewSession, SessionKey, SessionRow
from app.storage.codec import unpack_index, unpack_json
from app.storage.connection import PgConnection, Row, allow_time, fetch, fetch_one
from app.storage.fork import fork_session
from app.storage.state import replayed_state


class PgSessions:
    """:class:`app.ports.Sessions` on Postgres."""

    async def create(self, connection: PgConnection, key: SessionKey, new: NewSession) -> bool:
        return await _create(connection, key, new)

    async def get(self, connection: PgConnection, key: SessionKey) -> SessionRow | None:
        row = await fetch_one(connection, _GET, key.uid)
        return None if row is None else _session_row(row)

    async def list(
        self,
        connection: PgConnection,
        tenant_id: str,
        *,
        app_name: str | None,
        user_id: str | None,
        updated_after: datetime | None,
        metadata: Mapping[str, str],
        after: tuple[datetime, str] | None,
        limit: int,
        descending: bool,
    ) -> Sequence[SessionRow]:
        rows = await fetch(
            connection,
            _LIST_NEWEST if descending else _LIST_OLDEST,
            tenant_id,
            app_name,
            user_id,
            updated_after,
            canonical_json(dict(metadata)),
            *(after or (None, None)),
            limit,
        )
        return [_session_row(row) for row in rows]

    async def update(
        self,
        connection: PgConnection,
        key: SessionKey,
        *,
        policy: Json,
        metadata: Mapping[str, Json],
        ttl_s: int | None,
    ) -> None:
        await fetch(
            connection,
            _UPDATE,
            key.uid,
            _nullable_json(policy),
            canonical_json(dict(metadata)),
            ttl_s,
        )

    async def apply_state(
        self,
        connection: PgConnection,
        key: SessionKey,
        session: LockedSession,
        delta: Mapping[str, Json],
    ) -> None:
        scoped = split_state(delta)
        if scoped.session:
            row = await fetch_one(connection, _SESSION_STATE, key.uid)
            state = unpack_json(row["state"]) if row else {}
            await _set_state(connection, key, evolve(state, scoped.session))
        await _set_app_state(connection, key.tenant_id, session.app_name, scoped.app)
        user = (session.app_name, session.user_id)
        await _set_user_state(connection, key.tenant_id, user, scoped.user)

    async def rewind_state(self, connection: PgConnection, key: SessionKey, index: Index) -> None:
        await _set_state(connection, key, await replayed_state(connection, key, index))

    async def state(
        self, connection: PgConnection, tenant_id: str, app_name: str, user_id: str | None = None
    ) -> Mapping[str, Json]:
        if user_id is None:
            rows = await fetch(connection, _APP_STATE, tenant_id, app_name)
        else:
            rows = await fetch(connection, _USER_STATE, tenant_id, app_name, user_id)
        return {row["key"]: unpack_json(row["value"]) for row in rows}

    async def erase_user_state(
        self, connection: PgConnection, tenant_id: str, app_name: str, user_id: str
    ) -> int:
        return len(await fetch(connection, _ERASE_USER_STATE, tenant_id, app_name, user_id))

    async def fork(
        self,
        connection: PgConnection,
        key: SessionKey,
        new_key: SessionKey,
        *,
        at_seq: int,
        metadata: Mapping[str, Json],
    ) -> bool:
        return await fork_session(connection, key, new_key, at_seq=at_seq, metadata=metadata)

    async def erase(
        self, connection: PgConnection, key: SessionKey, *, actor: str, reason: str
    ) -> bool:
        await allow_time(connection)
        row = await fetch_one(connection, _ERASE, key.uid, actor, reason)
        return bool(row and row["is_erased"])

    async def expired(self, connection: PgConnection, *, limit: int) -> Sequence[UUID]:
        return [row["session_uid"] for row in await fetch(connection, _EXPIRED, limit)]

    async def erase_expired(self, connection: PgConnection, uid: UUID, *, actor: str) -> bool:
        await allow_time(connection)
        # Appends lock the session first, and then say when it expires.
        await fetch(connection, _LOCK_TO_ERASE, uid)
        row = await fetch_one(connection, _ERASE_EXPIRED, uid, actor, "expired")
        return bool(row and row["is_erased"])

    async def app_policy(self, connection: PgConnection, tenant_id: str, app_name: str) -> Json:
        row = await fetch_one(connection, _APP_POLICY, tenant_id, app_name)
        policy: Json = None if row is None else unpack_json(row["policy"])
        return policy

    async def set_app_policy(
        self, connection: PgConnection, tenant_id: str, app_name: str, policy: Json
    ) -> None:
        await fetch(connection, _SET_APP_POLICY, tenant_id, app_name, canonical_json(policy))


_CREATE: Final[LiteralString] = """
    WITH made AS (
        INSERT INTO sessions (session_uid, tenant_id, session_id, app_name, user_id, policy)
        VALUES ($1, $2, $3, $4, $5, $6::text::json)
        ON CONFLICT (session_uid) DO NOTHING
        RETURNING session_uid
    )
    INSERT INTO session_details (
        session_uid, base_state, state, metadata, ttl_s, expires_at, forked_from
    )
    SELECT
        made.session_uid, $7::text::json, $7::text::json, $8::text::jsonb, $9::bigint,
        statement_timestamp() + $9::bigint * interval '1 second', $10
    FROM made
    RETURNING session_uid
"""


async def _create(connection: PgConnection, key: SessionKey, new: NewSession) -> bool:
    made = await fetch_one(
        connection,
        _CREATE,
        key.uid,
        key.tenant_id,
        key.session_id,
        new.app_name,
        new.user_id,
        _nullable_json(new.policy),
        canonical_json(dict(new.state)),
        canonical_json(dict(new.metadata)),
        new.ttl_s,
        new.forked_from,
    )
    if made is None:
        return False
    await _set_app_state(connection, key.tenant_id, new.app_name, new.app_state)
    user = (new.app_name, new.user_id)
    await _set_user_state(connection, key.tenant_id, user, new.user_state)
    return True


# The counts of what is live are kept by appends, and made anew with every marker. Rows of before
# there were any are counted here, without summaries.
_COUNTED: Final[LiteralString] = """
    SELECT
        s.session_uid, s.tenant_id, s.session_id, s.incarnation, s.app_name, s.user_id, s.head_seq,
        s.index::text AS index, s.live::text AS live, s.rewound::text AS rewound,
        s.policy::text AS policy, s.tokens_raw, s.compactions, s.updated_at, d.state::text AS state,
        d.metadata::text AS metadata, d.ttl_s, d.forked_from, d.created_at,
        coalesce(s.live_events, counted.events) AS live_events,
        coalesce(s.tokens_live, counted.tokens) AS tokens_live
    FROM sessions AS s
    JOIN session_details AS d ON d.session_uid = s.session_uid
    CROSS JOIN LATERAL (
        SELECT count(*) AS events, coalesce(sum(e.tokens), 0)::bigint AS tokens
        FROM unnest(
            CASE WHEN s.live_events IS NULL OR s.tokens_live IS NULL THEN s.live END
        ) AS span
        CROSS JOIN LATERAL (
            SELECT e.tokens
            FROM events AS e
            WHERE
                e.session_uid = s.session_uid
                AND e.seq >= lower(span)
                AND e.seq < coalesce(upper(span), 9223372036854775807)
            ORDER BY e.seq
            OFFSET 0
        ) AS e
    ) AS counted
"""
_GET: Final[LiteralString] = (
    _COUNTED
    + """
    WHERE s.session_uid = $1
"""
)


def _session_row(row: Row) -> SessionRow:
    return SessionRow(
        key=SessionKey(row["tenant_id"], row["session_id"], row["session_uid"]),
        incarnation=row["incarnation"],
        app_name=row["app_name"],
        user_id=row["user_id"],
        head_seq=row["head_seq"],
        state=unpack_json(row["state"]),
        policy=unpack_json(row["policy"]),
        metadata=unpack_json(row["metadata"]),
        ttl_s=row["ttl_s"],
        forked_from=row["forked_from"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        index=unpack_index(row["index"], row["live"], row["rewound"]),
        # Seqs are dense.
        events=row["head_seq"],
        tokens_raw=row["tokens_raw"],
        compactions=row["compactions"],
        live_events=row["live_events"],
        tokens_live=row["tokens_live"],
    )


# The page is found first, so that only its sessions are counted.
_PAGE: Final[LiteralString] = """
    SELECT s.session_uid
    FROM sessions AS s
    JOIN session_details AS d ON d.session_uid = s.session_uid
    WHERE
        s.tenant_id = $1
        AND ($2::text IS NULL OR s.app_name = $2)
        AND ($3::text IS NULL OR s.user_id = $3)
        AND ($4::timestamptz IS NULL OR s.updated_at > $4)
        AND NOT EXISTS (
            SELECT
            FROM json_each_text($5::text::json) AS wanted
            WHERE d.metadata ->> wanted.key IS DISTINCT FROM wanted.value
        )
"""
_LIST_OLDEST: Final[LiteralString] = (
    _COUNTED
    + """
    JOIN ("""
    + _PAGE
    + """
        AND ($6::timestamptz IS NULL OR (s.updated_at, s.session_id) > ($6, $7::text))
        ORDER BY s.updated_at, s.session_id
        LIMIT $8
    ) AS page ON page.session_uid = s.session_uid
    ORDER BY s.updated_at, s.session_id
"""
)
_LIST_NEWEST: Final[LiteralString] = (
    _COUNTED
    + """
    JOIN ("""
    + _PAGE
    + """
        AND ($6::timestamptz IS NULL OR (s.updated_at, s.session_id) < ($6, $7::text))
        ORDER BY s.updated_at DESC, s.session_id DESC
        LIMIT $8
    ) AS page ON page.session_uid = s.session_uid
    ORDER BY s.updated_at DESC, s.session_id DESC
"""
)

# The time to live counts from the last append.
_UPDATE: Final[LiteralString] = """
    WITH changed AS (
        UPDATE sessions
        SET policy = $2::text::json, updated_at = statement_timestamp()
        WHERE session_uid = $1
        RETURNING session_uid, head_seq
    )
    UPDATE session_details AS d
    SET
        metadata = $3::text::jsonb,
        ttl_s = $4::bigint,
        expires_at = coalesce(
            (
                SELECT e.created_at
                FROM events AS e
                WHERE
                    e.session_uid = $1
                    AND e.seq >= changed.head_seq
                    AND e.seq <= changed.head_seq
                ORDER BY e.seq
            ),
            d.created_at
        ) + $4::bigint * interval '1 second'
    FROM changed
    WHERE d.session_uid = changed.session_uid
"""

_SESSION_STATE: Final[LiteralString] = """
    SELECT state::text AS state
    FROM session_details
    WHERE session_uid = $1
"""

_SET_STATE: Final[LiteralString] = """
    UPDATE session_details
    SET state = $2::text::json
    WHERE session_uid = $1
"""


async def _set_state(connection: PgConnection, key: SessionKey, state: Mapping[str, Json]) -> None:
    await fetch(connection, _SET_STATE, key.uid, canonical_json(dict(state)))


_APP_STATE: Final[LiteralString] = """
    SELECT key, value::text AS value
    FROM app_states
    WHERE tenant_id = $1 AND app_name = $2
    ORDER BY key
"""

_USER_STATE: Final[LiteralString] = """
    SELECT key, value::text AS value
    FROM user_states
    WHERE tenant_id = $1 AND app_name = $2 AND user_id = $3
    ORDER BY key
"""

# Locked in the order in which sessions that write them lock them.
_ERASE_USER_STATE: Final[LiteralString] = """
    WITH held AS (
        SELECT key
        FROM user_states
        WHERE tenant_id = $1 AND app_name = $2 AND user_id = $3
        ORDER BY key
        FOR UPDATE
    )
    DELETE FROM user_states AS u
    USING held
    WHERE u.tenant_id = $1 AND u.app_name = $2 AND u.user_id = $3 AND u.key = held.key
    RETURNING u.key
"""

# Sorted keys: sessions that write the same ones lock them in the same order.
_SET_APP_STATE: Final[LiteralString] = """
    INSERT INTO app_states (tenant_id, app_name, key, value)
    SELECT $1, $2, given.key, given.value::json
    FROM unnest($3::text[], $4::text[]) AS given (key, value)
    ON CONFLICT (tenant_id, app_name, key)
        DO UPDATE SET value = excluded.value, updated_at = statement_timestamp()
"""


async def _set_app_state(
    connection: PgConnection, tenant_id: str, app_name: str, state: Mapping[str, Json]
) -> None:
    if state:
        await fetch(connection, _SET_APP_STATE, tenant_id, app_name, *_sorted_columns(state))


_SET_USER_STATE: Final[LiteralString] = """
    INSERT INTO user_states (tenant_id, app_name, user_id, key, value)
    SELECT $1, $2, $3, given.key, given.value::json
    FROM unnest($4::text[], $5::text[]) AS given (key, value)
    ON CONFLICT (tenant_id, app_name, user_id, key)
        DO UPDATE SET value = excluded.value, updated_at = statement_timestamp()
"""


async def _set_user_state(
    connection: PgConnection, tenant_id: str, user: tuple[str, str], state: Mapping[str, Json]
) -> None:
    if state:
        await fetch(connection, _SET_USER_STATE, tenant_id, *user, *_sorted_columns(state))


def _sorted_columns(state: Mapping[str, Json]) -> tuple[Sequence[str], Sequence[str]]:
    # A key becomes text in Postgres, where two keys may be one after cleaning: the last one stands.
    cleaned = {clean_text(key): canonical_json(value) for key, value in state.items()}
    keys = sorted(cleaned)
    return keys, [cleaned[key] for key in keys]


_ERASE: Final[LiteralString] = "SELECT erase_session($1, $2, $3) AS is_erased"

_EXPIRED: Final[LiteralString] = """
    SELECT session_uid
    FROM session_details
    WHERE expires_at < statement_timestamp()
    ORDER BY expires_at
    LIMIT $1
"""

_LOCK_TO_ERASE: Final[LiteralString] = """
    SELECT FROM sessions WHERE session_uid = $1 FOR UPDATE
"""

_ERASE_EXPIRED: Final[LiteralString] = """
    SELECT erase_session(d.session_uid, $2, $3) AS is_erased
    FROM session_details AS d
    WHERE d.session_uid = $1 AND d.expires_at < statement_timestamp()
"""

_APP_POLICY: Final[LiteralString] = """
    SELECT policy::text AS policy
    FROM app_policies
    WHERE tenant_id = $1 AND app_name = $2
"""

_SET_APP_POLICY: Final[LiteralString] = """
    INSERT INTO app_policies (tenant_id, app_name, policy)
    VALUES ($1, $2, $3::text::json)
    ON CONFLICT (tenant_id, app_name)
        DO UPDATE SET policy = excluded.policy, updated_at = statement_timestamp()
"""


def _nullable_json(value: Json) -> str | None:
    return None if value is None else canonical_json(value)
