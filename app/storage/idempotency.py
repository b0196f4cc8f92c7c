"""Answers kept for requests that carry an idempotency key.

Guarantee: of requests with one key, one works at a time, and its answer is kept in the transaction
that did the work; so the answer is found if and only if the work stands.
"""

from typing import Final, LiteralString

from app.core.errors import IdempotencyInProgressError
from app.ports import KeptAnswer, SessionKey
from app.storage.connection import PgConnection, fetch, fetch_one


class PgIdempotencyKeys:
    """:class:`app.ports.IdempotencyKeys` on Postgres."""

    async def claim(
        self, connection: PgConnection, tenant_id: str, route: str, idempotency_key: str
    ) -> KeptAnswer | None:
        names = (tenant_id, route, idempotency_key)
        lock = await fetch_one(connection, _LOCK, *names)
        if not (lock and lock["is_taken"]):
            raise IdempotencyInProgressError
        # A statement of its own: its snapshot is younger than the lock, and sees what the last
        # holder committed.
        row = await fetch_one(connection, _FIND, *names)
        return None if row is None else KeptAnswer(row["request_hash"], row["status"], row["body"])

    async def keep(
        self,
        connection: PgConnection,
        tenant_id: str,
        route: str,
        idempotency_key: str,
        answer: KeptAnswer,
        *,
        key: SessionKey | None,
    ) -> None:
        await fetch(
            connection,
            _KEEP,
            tenant_id,
            route,
            idempotency_key,
            answer.request_hash,
            answer.status,
            answer.body,
            None if key is None else key.uid,
        )


# Two keys with one hash only wait for each other. Given back when the transaction ends, however.
_LOCK: Final[LiteralString] = """
    SELECT pg_try_advisory_xact_lock(
        hashtextextended(json_build_array($1::text, $2::text, $3::text)::text, 0)
    ) AS is_taken
"""

_FIND: Final[LiteralString] = """
    SELECT request_hash, status, body
    FROM idempotency_keys
    WHERE
        tenant_id = $1
        AND route = $2
        AND idempotency_key = $3
        AND expires_at > statement_timestamp()
"""

# Overwrites only what has expired: what has not was answered.
_KEEP: Final[LiteralString] = """
    INSERT INTO idempotency_keys (
        tenant_id, route, idempotency_key, request_hash, status, body, session_uid, expires_at
    )
    VALUES ($1, $2, $3, $4, $5, $6, $7, statement_timestamp() + interval '24 hours')
    ON CONFLICT (tenant_id, route, idempotency_key) DO UPDATE SET
        request_hash = excluded.request_hash,
        status = excluded.status,
        body = excluded.body,
        session_uid = excluded.session_uid,
        expires_at = excluded.expires_at
"""
