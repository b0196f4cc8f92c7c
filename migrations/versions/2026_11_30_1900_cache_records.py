"""Find what a reply says of its explicit cache without reading the log.

Why: what to do about a cache is decided by the newest such reply, which may be folded long since.
Rows from before have none: their caches are made anew.
Locks: a moment's exclusive lock on events for the column; none for the index, built concurrently.
"""

from typing import Final

from alembic import op

revision: Final = "0004"
down_revision: Final = "0003"
branch_labels: Final = None
depends_on: Final = None

COLUMN: Final = "ALTER TABLE events ADD COLUMN IF NOT EXISTS cache_record text"
# What is left of a build that broke off is no index that anyone reads.
DROPPED: Final = "DROP INDEX CONCURRENTLY IF EXISTS events_cache_record_idx"
INDEX: Final = """
    CREATE INDEX CONCURRENTLY events_cache_record_idx ON events (session_uid, lane, seq)
    WHERE cache_record IS NOT NULL
"""


def upgrade() -> None:
    """Add the column and its partial index."""
    op.execute(COLUMN)
    with op.get_context().autocommit_block():
        op.execute(DROPPED)
        op.execute(INDEX)


def downgrade() -> None:
    """Refuse: a log is not given up by going back a release."""
    raise NotImplementedError("migrations only go forward")
