"""What is told of the whole database, by one process alone.

Guarantee: of all who ask for the lease, one has it at a time, by the database's clock; whoever does
not renew it loses it when it runs out.
"""

from collections.abc import Mapping
from typing import Final, LiteralString
from uuid import UUID

from app.ports import DatabaseFacts, Written
from app.storage.connection import PgConnection, fetch, fetch_one

_TAKE: Final[LiteralString] = """
    INSERT INTO leases AS l (name, holder, lease_until)
    VALUES (
        $1, $2, statement_timestamp() + $3::double precision * interval '1 second'
    )
    ON CONFLICT (name) DO UPDATE
    SET holder = excluded.holder, lease_until = excluded.lease_until
    WHERE l.holder = excluded.holder OR l.lease_until < statement_timestamp()
    RETURNING l.holder
"""

_GIVE_BACK: Final[LiteralString] = "DELETE FROM leases WHERE name = $1 AND holder = $2"

# Each part has a partial index of its own: the many jobs that ended well are not looked at.
_JOBS: Final[LiteralString] = """
    SELECT j.kind, j.status, count(*) AS jobs
    FROM (
        SELECT r.kind, r.status FROM jobs AS r WHERE r.status = 'ready'
        UNION ALL
        SELECT r.kind, r.status FROM jobs AS r WHERE r.status = 'running'
        UNION ALL
        SELECT f.kind, f.status FROM jobs AS f WHERE f.status IN ('failed', 'dead')
    ) AS j
    GROUP BY j.kind, j.status
"""

_LAG: Final[LiteralString] = """
    SELECT coalesce(
        extract(EPOCH FROM statement_timestamp() - min(j.run_at)), 0
    )::float8 AS lag_s
    FROM jobs AS j
    WHERE
        j.status = 'ready'
        AND j.kind = ANY ($1::text[])
        AND j.run_at <= statement_timestamp()
"""

# Of other roles' sessions only a monitoring role is told anything; ours are all of one role.
_OLDEST_TRANSACTION: Final[LiteralString] = """
    SELECT coalesce(
        extract(EPOCH FROM clock_timestamp() - min(a.xact_start)), 0
    )::float8 AS age_s
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.backend_type = 'client backend'
"""

_WRITTEN: Final[LiteralString] = """
    SELECT pg_current_wal_lsn()::text AS position, statement_timestamp() AS at
"""

# Asked of the replica. Both times are of the primary's clock: a transaction that is replayed brings
# along when it was committed. A server that follows nobody lacks nothing.
_REPLICA_LAG: Final[LiteralString] = """
    SELECT
        coalesce(host(inet_server_addr()), 'local') || ':' || current_setting('port') AS replica,
        CASE
            WHEN NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= $1::text::pg_lsn THEN 0
            ELSE greatest(
                0, extract(EPOCH FROM $2::timestamptz - pg_last_xact_replay_timestamp())
            )
        END::float8 AS lag_s
"""


class PgDatabaseFacts:
    """:class:`app.ports.DatabaseFactsReads` on Postgres."""

    async def take_lease(
        self, connection: PgConnection, name: str, holder: UUID, lease_s: float
    ) -> bool:
        return await fetch_one(connection, _TAKE, name, holder, float(lease_s)) is not None

    async def give_back(self, connection: PgConnection, name: str, holder: UUID) -> None:
        await fetch(connection, _GIVE_BACK, name, holder)

    async def read(self, connection: PgConnection, kinds: tuple[str, ...]) -> DatabaseFacts:
        jobs = await fetch(connection, _JOBS)
        lag = await fetch_one(connection, _LAG, list(kinds))
        oldest = await fetch_one(connection, _OLDEST_TRANSACTION)
        assert lag is not None
        assert oldest is not None
        return DatabaseFacts(
            jobs={(row["kind"], row["status"]): row["jobs"] for row in jobs},
            compaction_lag_s=lag["lag_s"],
            oldest_transaction_s=oldest["age_s"],
        )

    async def written(self, connection: PgConnection) -> Written:
        row = await fetch_one(connection, _WRITTEN)
        assert row is not None
        return Written(position=row["position"], at=row["at"])

    async def replica_lag_s(self, replica: PgConnection, written: Written) -> Mapping[str, float]:
        row = await fetch_one(replica, _REPLICA_LAG, written.position, written.at)
        assert row is not None
        # It has replayed nothing since it started: it does not know how old what it has is.
        return {} if row["lag_s"] is None else {row["replica"]: row["lag_s"]}
