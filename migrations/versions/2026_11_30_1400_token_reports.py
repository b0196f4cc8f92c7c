"""Remember what was compiled and what providers reported of it.

Why: a report of usage names a request by its fingerprint alone; what it was expected to take and to
find cached has to be known then, and what is learnt from it is the tenant's, for each model.
Locks: none beyond those of new tables.
"""

from typing import Final

from alembic import op

revision: Final = "0003"
down_revision: Final = "0002"
branch_labels: Final = None
depends_on: Final = None

TABLES: Final = (
    """
    CREATE TABLE compiled_requests (
        session_uid uuid NOT NULL,
        fingerprint text NOT NULL,
        model text NOT NULL,
        tokens bigint NOT NULL,
        cached_tokens bigint NOT NULL,
        base_fingerprint text,
        is_broken boolean NOT NULL,
        ttl_s integer,
        is_reported boolean NOT NULL DEFAULT false,
        compiled_at timestamptz NOT NULL DEFAULT statement_timestamp(),
        CONSTRAINT compiled_requests_pkey PRIMARY KEY (session_uid, fingerprint)
    )
    """,
    """
    CREATE TABLE calibrations (
        tenant_id text NOT NULL,
        model text NOT NULL,
        reports bigint NOT NULL,
        ratio double precision NOT NULL,
        deviation double precision NOT NULL,
        percent integer NOT NULL,
        limit_tokens bigint,
        updated_at timestamptz NOT NULL DEFAULT statement_timestamp(),
        CONSTRAINT calibrations_pkey PRIMARY KEY (tenant_id, model)
    )
    """,
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
        DELETE FROM compiled_requests WHERE session_uid = erased_uid;
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
        GRANT SELECT, INSERT, UPDATE, DELETE ON compiled_requests, calibrations TO foldline_app;
    END
    $$
"""


def upgrade() -> None:
    """Make the tables, and let erasure take what is a session's along."""
    for statement in (*TABLES, ERASURE, GRANTS):
        op.execute(statement)


def downgrade() -> None:
    """Refuse: a log is not given up by going back a release."""
    raise NotImplementedError("migrations only go forward")
