"""Let the service forget what was spent on summaries long ago.

Why: a tenant has a row for every day, which nothing ever took away.
Locks: none; a grant.
"""

from typing import Final

from alembic import op

revision: Final = "0008"
down_revision: Final = "0007"
branch_labels: Final = None
depends_on: Final = None

GRANTS: Final = """
    DO $$
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'foldline_app') THEN
            RETURN;
        END IF;
        GRANT DELETE ON summary_spend TO foldline_app;
    END
    $$
"""


def upgrade() -> None:
    """Grant it."""
    op.execute(GRANTS)


def downgrade() -> None:
    """Refuse: a log is not given up by going back a release."""
    raise NotImplementedError("migrations only go forward")
