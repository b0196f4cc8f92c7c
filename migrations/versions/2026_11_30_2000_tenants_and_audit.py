"""Give tenants and keys limits, keys an end, and the audit log room for what administrators do.

Why: keys are rotated and expire, tenants have quotas and rates of their own, and every act of an
administrator leaves a row that nobody changes. A session's row counts the bytes of its log, for the
quota; the count names the seq that it was made at, so a release that does not know it only makes
it old, never wrong.
Locks: ACCESS EXCLUSIVE on tenants, api_keys, audit_log and sessions for an instant; the new columns
rewrite nothing. The indexes are built CONCURRENTLY, first, so that the rest can be tried again.
"""

from typing import Final

from alembic import op

revision: Final = "0005"
down_revision: Final = "0004"
branch_labels: Final = None
depends_on: Final = None

# A build that was cut off leaves an index that is of no use: it is dropped before the next try.
INDEXES: Final = (
    "DROP INDEX CONCURRENTLY IF EXISTS audit_log_tenant_idx",
    "CREATE INDEX CONCURRENTLY audit_log_tenant_idx ON audit_log (tenant_id, audit_id)",
    "DROP INDEX CONCURRENTLY IF EXISTS api_keys_tenant_idx",
    "CREATE INDEX CONCURRENTLY api_keys_tenant_idx ON api_keys (tenant_id, created_at, key_id)",
)

COLUMNS: Final = (
    "ALTER TABLE tenants ADD COLUMN rate_limit text",
    "ALTER TABLE tenants ADD COLUMN max_sessions bigint",
    "ALTER TABLE tenants ADD COLUMN max_events bigint",
    "ALTER TABLE tenants ADD COLUMN max_bytes bigint",
    "ALTER TABLE tenants ADD COLUMN disabled_at timestamptz",
    "ALTER TABLE api_keys ADD COLUMN rate_limit text",
    "ALTER TABLE api_keys ADD COLUMN expires_at timestamptz",
    "ALTER TABLE audit_log ADD COLUMN target text NOT NULL DEFAULT ''",
    "ALTER TABLE audit_log ADD COLUMN details json",
    "ALTER TABLE sessions ADD COLUMN bytes_raw bigint NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN bytes_at_seq bigint NOT NULL DEFAULT 0",
)

GUARDS: Final = (
    """
    CREATE FUNCTION refuse_audit_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = public, pg_temp
    AS $$
    BEGIN
        RAISE EXCEPTION 'rows of audit_log are never changed or deleted'
            USING ERRCODE = 'restrict_violation';
    END
    $$
    """,
    """
    CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_audit_change()
    """,
    """
    CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()
    """,
)


def upgrade() -> None:
    """Build the indexes, then add the columns and the guards, all or nothing."""
    with op.get_context().autocommit_block():
        for statement in INDEXES:
            op.execute(statement)
    for statement in (*COLUMNS, *GUARDS):
        op.execute(statement)


def downgrade() -> None:
    """Refuse: a log is not given up by going back a release."""
    raise NotImplementedError("migrations only go forward")
