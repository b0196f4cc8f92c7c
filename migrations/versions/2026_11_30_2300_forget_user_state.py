"""Let the service erase the state of a user.

Why: it outlives the user's sessions, and nothing took it away.
Locks: none; a grant.
"""

from typing import Final

from alembic import op

revision: Final = "0009"
down_revision: Final = "0008"
branch_labels: Final = None
depends_on: Final = None

GRANTS: Final = """
    DO $$
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'foldline_app') THEN
            RETURN;
        END IF;
        GRANT DELETE ON user_states TO foldline_app;
    END
    $$
"""


def upgrade() -> None:
    """Grant it."""
    op.execute(GRANTS)


def downgrade() -> None:
    """Refuse: a log is not given up by going back a release."""
    raise NotImplementedError("migrations only go forward")
