"""What models have read and written for a tenant's summaries, by day.

Guarantee: tokens are counted before they are spent, in one statement that sees what every other
worker has counted, so that together they never pass the limit. A worker that dies between counting
and spending leaves too much counted, never too little. The day is the database's, in UTC.
"""

from datetime import date
from typing import Final, LiteralString

from app.storage.connection import PgConnection, fetch, fetch_one


class PgSummarySpend:
    """:class:`app.ports.SummarySpend` on Postgres."""

    async def reserve(
        self, connection: PgConnection, tenant_id: str, *, tokens: int, most_tokens: int
    ) -> date | None:
        row = await fetch_one(connection, _RESERVE, tenant_id, tokens, most_tokens)
        return row["day"] if row else None

    async def correct(
        self, connection: PgConnection, tenant_id: str, day: date, *, tokens: int
    ) -> None:
        await fetch(connection, _CORRECT, tenant_id, day, tokens)

    async def spent(self, connection: PgConnection, tenant_id: str) -> int:
        row = await fetch_one(connection, _SPENT, tenant_id)
        return row["tokens"] if row else 0

    async def forget(self, connection: PgConnection, *, older_than_days: int, limit: int) -> int:
        return len(await fetch(connection, _FORGET, older_than_days, limit))


_RESERVE: Final[LiteralString] = """
    INSERT INTO summary_spend AS s (tenant_id, day, requests, tokens)
    SELECT $1::text, (statement_timestamp() AT TIME ZONE 'UTC')::date, 1, $2::bigint
    WHERE $2::bigint <= $3::bigint
    ON CONFLICT (tenant_id, day) DO UPDATE
    SET requests = s.requests + 1, tokens = s.tokens + excluded.tokens
    WHERE s.tokens + excluded.tokens <= $3::bigint
    RETURNING s.day
"""

_CORRECT: Final[LiteralString] = """
    UPDATE summary_spend
    SET tokens = tokens + $3::bigint
    WHERE tenant_id = $1 AND day = $2
    RETURNING day
"""

_SPENT: Final[LiteralString] = """
    SELECT tokens
    FROM summary_spend
    WHERE tenant_id = $1 AND day = (statement_timestamp() AT TIME ZONE 'UTC')::date
"""

_FORGET: Final[LiteralString] = """
    DELETE FROM summary_spend AS s
    USING (
        SELECT o.tenant_id, o.day
        FROM summary_spend AS o
        WHERE o.day < (statement_timestamp() AT TIME ZONE 'UTC')::date - $1::integer
        ORDER BY o.day
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE s.tenant_id = old.tenant_id AND s.day = old.day
    RETURNING s.day
"""
