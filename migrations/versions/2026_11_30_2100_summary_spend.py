"""Count what models read and write for a tenant's summaries, by day.

Why: what a tenant may spend on summaries in a day is bounded, over all workers.
Locks: none beyond those of a new table.
"""

from typing import Final

from alembic import op

revision: Final = "0007"
down_revision: Final = "0006"
branch_labels: Final = None
depends_on: Final = None

TABLE: Final = """
    CREATE TABLE summary_spend (
        tenant_id text NOT NULL,
        day date NOT NULL,
        requests bigint NOT NULL,
        tokens bigint NOT NULL,
        CONSTRAINT summary_spend_pkey PRIMARY KEY (tenant_id, day)
    )
"""

GRANTS: Final = """
    DO $$
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'foldline_app') THEN
            RETURN;
        END IF;
        GRANT SELECT, INSERT, UPDATE ON summary_spend TO foldline_app;
    END
    $$
"""


def upgrade() -> None:
    """Make the table."""
    for statement in (TABLE, GRANTS):
        op.execute(statement)


def downgrade() -> None:
    """Refuse: a log is not given up by going back a release."""
    raise NotImplementedError("migrations only go forward")
