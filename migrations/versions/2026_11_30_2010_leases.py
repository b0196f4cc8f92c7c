"""Let one of several workers do what only one should, under a lease.

Why: what is told of the whole database, such as how many jobs wait, must come from one process;
from each of them it would be counted several times. An advisory lock of a session would do the
same, but not behind PgBouncer. What is told is counted every few seconds, so the few jobs that
failed get an index of their own.
Locks: none beyond those of the new table; the index is built CONCURRENTLY.
"""

from typing import Final

from alembic import op

revision: Final = "0006"
down_revision: Final = "0005"
branch_labels: Final = None
depends_on: Final = None

LEASES: Final = """
    CREATE TABLE leases (
        name text NOT NULL,
        holder uuid NOT NULL,
        lease_until timestamptz NOT NULL,
        CONSTRAINT leases_pkey PRIMARY KEY (name)
    )
"""

FAILED_JOBS: Final = """
    CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_failed_idx ON jobs (status, kind)
    WHERE status IN ('failed', 'dead')
"""

GRANTS: Final = """
    DO $$
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'foldline_app') THEN
            RETURN;
        END IF;
        GRANT SELECT, INSERT, UPDATE, DELETE ON leases TO foldline_app;
    END
    $$
"""


def upgrade() -> None:
    """Make the table, then the index."""
    for statement in (LEASES, GRANTS):
        op.execute(statement)
    with op.get_context().autocommit_block():
        op.execute(FAILED_JOBS)


def downgrade() -> None:
    """Refuse: a log is not given up by going back a release."""
    raise NotImplementedError("migrations only go forward")
