"""The queue of background jobs: inserted, claimed under a lease, renewed, ended.

Guarantees:

- A session has one open job of a kind: the partial unique index ``jobs_open_key``. Ready and
  running are one state to it, so a job whose lease ran out returns to ready and meets no twin.
- Every claim raises the fencing token. Whatever ends, renews or holds a job names the token of its
  claim, so a worker that was away while its lease ran out changes nothing afterwards.
- Claims take turns (an advisory lock of the transaction), so that no tenant has more running than
  its share, however many workers ask at once.

All times are the database's.
"""

# Statements that share a piece are put together from constants, as LiteralString proves.
# ruff: noqa: S608

from collections.abc import Mapping, Sequence
from typing import Final, Literal, LiteralString
from uuid import UUID

from app.core.canonical import Json, canonical_json
from app.core.copying import replace
from app.ports import ClaimLimits, Job, JobStatus, NewJob, SessionKey
from app.storage.codec import unpack_json
from app.storage.connection import PgConnection, Row, fetch, fetch_one

#: A key that no other lock of ours takes: "jobs" and "clam" as eight bytes.
CLAIM_LOCK: Final = int.from_bytes(b"jobsclam", "big")
#: An open job may end between the refused insert and the look for it; then it is inserted again.
ENQUEUE_ATTEMPTS: Final = 5


class PgJobQueue:
    """:class:`app.ports.JobQueue` on Postgres."""

    async def enqueue(self, connection: PgConnection, job: NewJob) -> UUID:
        return await _enqueue(connection, job)

    async def claim(self, connection: PgConnection, limits: ClaimLimits) -> Sequence[Job]:
        return await _claim(connection, limits)

    async def renew(
        self, connection: PgConnection, jobs: Sequence[Job], lease_s: float
    ) -> frozenset[UUID]:
        ids, tokens = [job.id for job in jobs], [job.fencing_token for job in jobs]
        rows = await fetch(
            connection, _RENEW, [job.key.uid for job in jobs], ids, tokens, float(lease_s)
        )
        return frozenset(row["job_id"] for row in rows)

    async def hold(self, connection: PgConnection, job: Job) -> bool:
        return await fetch_one(connection, _HOLD, *_claim_of(job)) is not None

    async def finish(
        self,
        connection: PgConnection,
        job: Job,
        status: Literal["done", "failed", "cancelled"],
        *,
        result: Mapping[str, Json] | None = None,
        error: Mapping[str, Json] | None = None,
    ) -> bool:
        row = await fetch_one(
            connection, _FINISH, *_claim_of(job), status, _packed(result), _packed(error)
        )
        return row is not None

    async def retry(
        self,
        connection: PgConnection,
        job: Job,
        *,
        delay_s: float,
        error: Mapping[str, Json],
        max_attempts: int,
    ) -> JobStatus | None:
        row = await fetch_one(
            connection, _RETRY, *_claim_of(job), float(delay_s), _packed(error), max_attempts
        )
        return row["status"] if row else None

    async def release(self, connection: PgConnection, job: Job) -> bool:
        return await fetch_one(connection, _RELEASE, *_claim_of(job)) is not None

    async def newest(
        self,
        connection: PgConnection,
        key: SessionKey,
        incarnation: UUID,
        kinds: Sequence[str],
    ) -> Job | None:
        row = await fetch_one(connection, _NEWEST, key.uid, incarnation, list(kinds))
        return None if row is None else _job(row)

    async def get(self, connection: PgConnection, tenant_id: str, job_id: UUID) -> Job | None:
        row = await fetch_one(connection, _GET, tenant_id, job_id)
        return None if row is None else _job(row)

    async def cancel(self, connection: PgConnection, tenant_id: str, job_id: UUID) -> Job | None:
        row = await fetch_one(connection, _CANCEL, tenant_id, job_id)
        return await self.get(connection, tenant_id, job_id) if row is None else _job(row)

    async def prune(self, connection: PgConnection, *, older_than_s: float, limit: int) -> int:
        return len(await fetch(connection, _PRUNE, float(older_than_s), limit))


_COLUMNS: Final[LiteralString] = """
    j.job_id, j.tenant_id, j.session_id, j.session_uid, j.incarnation, j.kind,
    j.payload::text AS payload, j.status, j.attempts, j.fencing_token, j.created_at, j.run_at,
    j.finished_at, j.result::text AS result, j.error::text AS error
"""


def _job(row: Row) -> Job:
    return Job(
        id=row["job_id"],
        key=SessionKey(row["tenant_id"], row["session_id"], row["session_uid"]),
        incarnation=row["incarnation"],
        kind=row["kind"],
        payload=unpack_json(row["payload"]),
        status=row["status"],
        attempts=row["attempts"],
        fencing_token=row["fencing_token"],
        created_at=row["created_at"],
        run_at=row["run_at"],
        finished_at=row["finished_at"],
        result=unpack_json(row["result"]),
        error=unpack_json(row["error"]),
    )


def _packed(value: Mapping[str, Json] | None) -> str | None:
    return None if value is None else canonical_json(dict(value))


_ENQUEUE: Final[LiteralString] = """
    INSERT INTO jobs (tenant_id, session_id, session_uid, incarnation, kind, payload, run_at)
    VALUES (
        $1, $2, $3, $4, $5, $6::text::json,
        statement_timestamp() + $7::double precision * interval '1 second'
    )
    ON CONFLICT (session_uid, kind) WHERE status IN ('ready', 'running') DO NOTHING
    RETURNING job_id
"""

_NEWEST: Final[LiteralString] = (
    "SELECT "
    + _COLUMNS
    + """
    FROM jobs AS j
    WHERE
        j.session_uid = $1
        AND j.incarnation = $2
        AND j.kind = ANY ($3::text[])
        AND j.status = 'done'
    ORDER BY j.finished_at DESC
    LIMIT 1
"""
)

_OPEN_JOB: Final[LiteralString] = """
    SELECT job_id
    FROM jobs
    WHERE session_uid = $1 AND kind = $2 AND status IN ('ready', 'running')
"""


async def _enqueue(connection: PgConnection, job: NewJob) -> UUID:
    key = job.key
    values = (key.tenant_id, key.session_id, key.uid, job.incarnation, job.kind)
    for _ in range(ENQUEUE_ATTEMPTS):
        row = await fetch_one(
            connection, _ENQUEUE, *values, _packed(job.payload), float(job.delay_s)
        ) or await fetch_one(connection, _OPEN_JOB, key.uid, job.kind)
        if row is not None:
            job_id: UUID = row["job_id"]
            return job_id
    raise RuntimeError("an open job is there and not there")


_TAKE_TURN: Final[LiteralString] = "SELECT pg_try_advisory_xact_lock($1) AS is_taken"

# Also the way out for a job that kills whoever runs it.
_TAKE_BACK: Final[LiteralString] = """
    UPDATE jobs AS j
    SET
        status = CASE WHEN j.attempts >= $1 THEN 'dead' ELSE 'ready' END,
        finished_at = CASE WHEN j.attempts >= $1 THEN statement_timestamp() END,
        lease_until = NULL,
        error = '{"code": "lease_lost", "detail": "the worker went away"}'
    FROM (
        SELECT e.session_uid, e.job_id
        FROM jobs AS e
        WHERE e.status = 'running' AND e.lease_until < statement_timestamp()
        FOR UPDATE SKIP LOCKED
    ) AS expired
    WHERE j.session_uid = expired.session_uid AND j.job_id = expired.job_id
"""

# The tenants with something ready are found by jumping along the index, so a long queue of one
# tenant costs the others nothing. `turn` is the number that a tenant would have running with this
# job: whoever has the least comes first.
_CLAIM: Final[LiteralString] = (
    """
    WITH RECURSIVE waiting AS (
        (
            SELECT j.tenant_id
            FROM jobs AS j
            WHERE j.status = 'ready'
            ORDER BY j.tenant_id
            LIMIT 1
        )
        UNION ALL
        SELECT (
            SELECT j.tenant_id
            FROM jobs AS j
            WHERE j.status = 'ready' AND j.tenant_id > w.tenant_id
            ORDER BY j.tenant_id
            LIMIT 1
        )
        FROM waiting AS w
        WHERE w.tenant_id IS NOT NULL
    ),
    candidates AS (
        SELECT due.session_uid, due.job_id, due.run_at, busy.jobs + due.number AS turn
        FROM waiting AS w
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs
            FROM jobs AS r
            WHERE r.status = 'running' AND r.tenant_id = w.tenant_id
        ) AS busy
        CROSS JOIN LATERAL (
            SELECT
                j.session_uid, j.job_id, j.run_at,
                row_number() OVER (ORDER BY j.run_at, j.job_id) AS number
            FROM jobs AS j
            WHERE
                j.status = 'ready'
                AND j.tenant_id = w.tenant_id
                AND j.run_at <= statement_timestamp()
                AND j.kind = ANY ($1::text[])
            ORDER BY j.run_at, j.job_id
            LIMIT $2
        ) AS due
        WHERE busy.jobs + due.number <= $3
        ORDER BY turn, due.run_at, due.job_id
        LIMIT $2
    ),
    taken AS (
        SELECT j.session_uid, j.job_id
        FROM candidates AS c
        JOIN jobs AS j ON j.session_uid = c.session_uid AND j.job_id = c.job_id
        WHERE j.status = 'ready'
        FOR UPDATE OF j SKIP LOCKED
    )
    UPDATE jobs AS j
    SET
        status = 'running',
        attempts = j.attempts + 1,
        fencing_token = j.fencing_token + 1,
        lease_until = statement_timestamp() + $4::double precision * interval '1 second'
    FROM taken
    WHERE j.session_uid = taken.session_uid AND j.job_id = taken.job_id
    RETURNING
        extract(EPOCH FROM statement_timestamp() - j.run_at)::float8 AS waited_s,
    """
    + _COLUMNS
)


async def _claim(connection: PgConnection, limits: ClaimLimits) -> Sequence[Job]:
    turn = await fetch_one(connection, _TAKE_TURN, CLAIM_LOCK)
    if not (turn and turn["is_taken"]):
        return ()
    # Statements of their own: their snapshots are younger than the lock, and see what the one
    # before took.
    await fetch(connection, _TAKE_BACK, limits.attempts)
    rows = await fetch(
        connection,
        _CLAIM,
        list(limits.kinds),
        limits.jobs,
        limits.per_tenant,
        float(limits.lease_s),
    )
    jobs = (replace(_job(row), waited_s=row["waited_s"]) for row in rows)
    return sorted(jobs, key=lambda job: (job.run_at, job.id))


def _claim_of(job: Job) -> tuple[UUID, UUID, int]:
    return job.key.uid, job.id, job.fencing_token


_HELD: Final[LiteralString] = """
    j.session_uid = $1 AND j.job_id = $2 AND j.fencing_token = $3 AND j.status = 'running'
"""

_RENEW: Final[LiteralString] = """
    UPDATE jobs AS j
    SET lease_until = statement_timestamp() + $4::double precision * interval '1 second'
    FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS held (session_uid, job_id, fencing_token)
    WHERE
        j.session_uid = held.session_uid
        AND j.job_id = held.job_id
        AND j.fencing_token = held.fencing_token
        AND j.status = 'running'
    RETURNING j.job_id
"""

_HOLD: Final[LiteralString] = (
    "SELECT j.job_id FROM jobs AS j WHERE " + _HELD + " FOR NO KEY UPDATE OF j"
)

_FINISH: Final[LiteralString] = (
    """
    UPDATE jobs AS j
    SET
        status = $4,
        result = $5::text::json,
        error = coalesce($6::text::json, j.error),
        lease_until = NULL,
        finished_at = statement_timestamp()
    WHERE """
    + _HELD
    + """
    RETURNING j.job_id
"""
)

_RETRY: Final[LiteralString] = (
    """
    UPDATE jobs AS j
    SET
        status = CASE WHEN j.attempts >= $6 THEN 'dead' ELSE 'ready' END,
        finished_at = CASE WHEN j.attempts >= $6 THEN statement_timestamp() END,
        run_at = statement_timestamp() + $4::double precision * interval '1 second',
        lease_until = NULL,
        error = $5::text::json
    WHERE """
    + _HELD
    + """
    RETURNING j.status
"""
)

_RELEASE: Final[LiteralString] = (
    """
    UPDATE jobs AS j
    SET status = 'ready', attempts = j.attempts - 1, lease_until = NULL
    WHERE """
    + _HELD
    + """
    RETURNING j.job_id
"""
)

_GET: Final[LiteralString] = (
    "SELECT "
    + _COLUMNS
    + """
    FROM jobs AS j
    WHERE j.job_id = $2 AND j.tenant_id = $1
"""
)

_CANCEL: Final[LiteralString] = (
    """
    UPDATE jobs AS j
    SET status = 'cancelled', lease_until = NULL, finished_at = statement_timestamp()
    WHERE j.job_id = $2 AND j.tenant_id = $1 AND j.status IN ('ready', 'running')
    RETURNING """
    + _COLUMNS
)

_PRUNE: Final[LiteralString] = """
    DELETE FROM jobs AS j
    USING (
        SELECT o.session_uid, o.job_id
        FROM jobs AS o
        WHERE o.finished_at < statement_timestamp() - $1::double precision * interval '1 second'
        ORDER BY o.finished_at
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE j.session_uid = old.session_uid AND j.job_id = old.job_id
    RETURNING j.job_id
"""
