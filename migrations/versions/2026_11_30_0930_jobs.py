"""Make the queue of background jobs, and the counters by which compaction is seen to be due.

Why: summaries are made by workers, from jobs that are inserted with the events that make them due.
Locks: ACCESS EXCLUSIVE on sessions for an instant; the new columns rewrite nothing. Sessions that
exist keep NULL in the two counts until they are counted.
"""

from typing import Final

from alembic import op

revision: Final = "0002"
down_revision: Final = "0001"
branch_labels: Final = None
depends_on: Final = None

JOBS: Final = (
    """
    CREATE TABLE jobs (
        session_uid uuid NOT NULL,
        job_id uuid NOT NULL DEFAULT gen_random_uuid(),
        tenant_id text NOT NULL,
        session_id text NOT NULL,
        incarnation uuid NOT NULL,
        kind text NOT NULL,
        payload json NOT NULL,
        status text NOT NULL DEFAULT 'ready',
        attempts integer NOT NULL DEFAULT 0,
        fencing_token bigint NOT NULL DEFAULT 0,
        run_at timestamptz NOT NULL DEFAULT statement_timestamp(),
        lease_until timestamptz,
        result json,
        error json,
        created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
        finished_at timestamptz,
        CONSTRAINT jobs_pkey PRIMARY KEY (session_uid, job_id),
        CONSTRAINT jobs_status_check CHECK (
            status IN ('ready', 'running', 'done', 'failed', 'dead', 'cancelled')
        )
    )
    """,
    # One open job per session and kind, so a lease that ran out goes back to ready without ever
    # meeting a twin.
    """
    CREATE UNIQUE INDEX jobs_open_key ON jobs (session_uid, kind)
    WHERE status IN ('ready', 'running')
    """,
    """
    CREATE INDEX jobs_ready_idx ON jobs (tenant_id, run_at, job_id)
    WHERE status = 'ready'
    """,
    """
    CREATE INDEX jobs_running_idx ON jobs (tenant_id, lease_until)
    WHERE status = 'running'
    """,
    "CREATE INDEX jobs_id_idx ON jobs (job_id)",
    "CREATE INDEX jobs_finished_idx ON jobs (finished_at) WHERE finished_at IS NOT NULL",
)

# Added without a default and given one afterwards: rows that exist stay uncounted, new ones start
# at nothing.
COUNTERS: Final = (
    "ALTER TABLE sessions ADD COLUMN live_events bigint",
    "ALTER TABLE sessions ADD COLUMN tokens_live bigint",
    "ALTER TABLE sessions ALTER COLUMN live_events SET DEFAULT 0",
    "ALTER TABLE sessions ALTER COLUMN tokens_live SET DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN invocation_id text NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN is_invocation_complete boolean NOT NULL DEFAULT false",
    "ALTER TABLE sessions ADD COLUMN invocations_new integer NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN tokens_tried bigint NOT NULL DEFAULT 0",
)

# Replaced in place: a release that runs already calls it by the same name, and loses nothing.
ERASURE: Final = """
    CREATE OR REPLACE FUNCTION erase_session(erased_uid uuid, actor text, reason text)
    RETURNS boolean
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = public, pg_temp
    AS $$
    DECLARE
        owner text;
        size bigint;
    BEGIN
        SELECT tenant_id, head_seq INTO owner, size
        FROM sessions
        WHERE session_uid = erased_uid
        FOR UPDATE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        PERFORM set_config('foldline.erased_session', erased_uid::text, true);
        DELETE FROM answers WHERE session_uid = erased_uid;
        DELETE FROM calls WHERE session_uid = erased_uid;
        DELETE FROM events WHERE session_uid = erased_uid;
        PERFORM set_config('foldline.erased_session', '', true);
        DELETE FROM lanes WHERE session_uid = erased_uid;
        DELETE FROM session_details WHERE session_uid = erased_uid;
        DELETE FROM idempotency_keys WHERE session_uid = erased_uid;
        DELETE FROM compile_inputs WHERE session_uid = erased_uid;
        DELETE FROM jobs WHERE session_uid = erased_uid;
        DELETE FROM sessions WHERE session_uid = erased_uid;
        INSERT INTO audit_log (tenant_id, session_uid, action, actor, reason, events)
        VALUES (owner, erased_uid, 'erase_session', actor, reason, size);
        RETURN true;
    END
    $$
"""

GRANTS: Final = """
    DO $$
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'foldline_app') THEN
            RETURN;
        END IF;
        GRANT SELECT, INSERT, UPDATE, DELETE ON jobs TO foldline_app;
    END
    $$
"""


def upgrade() -> None:
    """Make the table, add the columns, let erasure take the jobs along."""
    for statement in (*JOBS, *COUNTERS, ERASURE, GRANTS):
        op.execute(statement)


def downgrade() -> None:
    """Refuse: a log is not given up by going back a release."""
    raise NotImplementedError("migrations only go forward")
