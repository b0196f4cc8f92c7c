"""Requests that were compiled lately, and what providers' reports of them taught.

Guarantee: a request's report is learnt from once, however it comes in; and two reports of one
tenant and model never overwrite each other, because the row is locked from reading to writing.
"""

from typing import Final, LiteralString
from uuid import UUID

from app.core.calibration import Learnt
from app.ports import CompiledRequest, SessionKey
from app.storage.connection import PgConnection, Row, fetch, fetch_one


class PgTokenReports:
    """:class:`app.ports.TokenReports` on Postgres."""

    async def forgive_loss(self, connection: PgConnection) -> None:
        await fetch(connection, "SET LOCAL synchronous_commit = off")

    async def remember(
        self,
        connection: PgConnection,
        key: SessionKey,
        incarnation: UUID,
        request: CompiledRequest,
    ) -> None:
        await fetch(
            connection,
            _REMEMBER,
            key.uid,
            request.fingerprint,
            request.model,
            request.tokens,
            request.cached_tokens,
            request.base_fingerprint,
            request.is_broken,
            request.ttl_s,
            incarnation,
        )

    async def find(
        self, connection: PgConnection, key: SessionKey, fingerprint: str
    ) -> CompiledRequest | None:
        row = await fetch_one(connection, _FIND, key.uid, fingerprint)
        if row is None:
            return None
        return CompiledRequest(
            fingerprint=fingerprint,
            model=row["model"],
            tokens=row["tokens"],
            cached_tokens=row["cached_tokens"],
            base_fingerprint=row["base_fingerprint"],
            is_broken=row["is_broken"],
            ttl_s=row["ttl_s"],
            since_base_s=row["since_base_s"],
        )

    async def claim(self, connection: PgConnection, key: SessionKey, fingerprint: str) -> bool:
        return await fetch_one(connection, _CLAIM, key.uid, fingerprint) is not None

    async def learnt(self, connection: PgConnection, tenant_id: str, model: str) -> Learnt | None:
        row = await fetch_one(connection, _LEARNT, tenant_id, model)
        return None if row is None else _learnt(row)

    async def lock_learnt(self, connection: PgConnection, tenant_id: str, model: str) -> Learnt:
        # There may be no row to lock yet, and two first reports must not both make it.
        await fetch(connection, _MAKE, tenant_id, model)
        row = await fetch_one(connection, _LOCK, tenant_id, model)
        assert row is not None
        return _learnt(row)

    async def keep_learnt(
        self, connection: PgConnection, tenant_id: str, model: str, learnt: Learnt
    ) -> None:
        await fetch(
            connection,
            _KEEP,
            tenant_id,
            model,
            learnt.reports,
            learnt.ratio,
            learnt.deviation,
            learnt.percent,
            learnt.limit_tokens,
        )

    async def forget(self, connection: PgConnection, tenant_id: str, model: str) -> bool:
        return await fetch_one(connection, _FORGET, tenant_id, model) is not None


def _learnt(row: Row) -> Learnt:
    return Learnt(
        reports=row["reports"],
        ratio=row["ratio"],
        deviation=row["deviation"],
        percent=row["percent"],
        limit_tokens=row["limit_tokens"],
    )


# What a model call answers within the day is reported within the day. Only a session that compiles
# on keeps its rows few; one that stops has them until it is erased.
_REMEMBER: Final[LiteralString] = """
    WITH forgotten AS (
        DELETE FROM compiled_requests
        WHERE
            session_uid = $1
            AND compiled_at < statement_timestamp() - interval '1 day'
            AND fingerprint <> $2
    )
    INSERT INTO compiled_requests (
        session_uid, fingerprint, model, tokens, cached_tokens, base_fingerprint, is_broken, ttl_s
    )
    SELECT $1, $2, $3, $4, $5, $6, $7, $8
    FROM (
        SELECT
        FROM sessions AS s
        WHERE s.session_uid = $1 AND s.incarnation = $9
        FOR KEY SHARE
    ) AS still_there
    ON CONFLICT (session_uid, fingerprint) DO UPDATE SET
        compiled_at = statement_timestamp()
"""

_FIND: Final[LiteralString] = """
    SELECT
        request.model,
        request.tokens,
        request.cached_tokens,
        request.base_fingerprint,
        request.is_broken,
        request.ttl_s,
        extract(EPOCH FROM request.compiled_at - base.compiled_at)::float8 AS since_base_s
    FROM compiled_requests AS request
    LEFT JOIN compiled_requests AS base
        ON base.session_uid = request.session_uid
        AND base.fingerprint = request.base_fingerprint
    WHERE request.session_uid = $1 AND request.fingerprint = $2
"""

_CLAIM: Final[LiteralString] = """
    UPDATE compiled_requests
    SET is_reported = true
    WHERE session_uid = $1 AND fingerprint = $2 AND NOT is_reported
    RETURNING fingerprint
"""

_LEARNT: Final[LiteralString] = """
    SELECT reports, ratio, deviation, percent, limit_tokens
    FROM calibrations
    WHERE tenant_id = $1 AND model = $2
"""

_MAKE: Final[LiteralString] = """
    INSERT INTO calibrations (tenant_id, model, reports, ratio, deviation, percent)
    VALUES ($1, $2, 0, 1, 0, 100)
    ON CONFLICT (tenant_id, model) DO NOTHING
"""

_LOCK: Final[LiteralString] = """
    SELECT reports, ratio, deviation, percent, limit_tokens
    FROM calibrations
    WHERE tenant_id = $1 AND model = $2
    FOR UPDATE
"""

_KEEP: Final[LiteralString] = """
    UPDATE calibrations
    SET
        reports = $3,
        ratio = $4,
        deviation = $5,
        percent = $6,
        limit_tokens = $7,
        updated_at = statement_timestamp()
    WHERE tenant_id = $1 AND model = $2
"""

_FORGET: Final[LiteralString] = """
    DELETE FROM calibrations
    WHERE tenant_id = $1 AND model = $2
    RETURNING model
"""
