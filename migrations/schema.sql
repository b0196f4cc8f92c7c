-- The whole schema as the revisions make it, for reading at a glance. Changed by hand with every
-- revision; tests/migration holds the two equal. The grants to a role of the service's own are in
-- the revisions only.

CREATE TABLE tenants (
    tenant_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    rate_limit text,
    max_sessions bigint,
    max_events bigint,
    max_bytes bigint,
    disabled_at timestamptz,
    CONSTRAINT tenants_pkey PRIMARY KEY (tenant_id)
);

CREATE TABLE api_keys (
    key_id uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id text NOT NULL,
    name text NOT NULL,
    key_hash bytea NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    rate_limit text,
    expires_at timestamptz,
    CONSTRAINT api_keys_pkey PRIMARY KEY (key_id),
    CONSTRAINT api_keys_key_hash_key UNIQUE (key_hash),
    CONSTRAINT api_keys_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants (tenant_id)
);

CREATE TABLE sessions (
    session_uid uuid NOT NULL,
    tenant_id text NOT NULL,
    session_id text NOT NULL,
    app_name text NOT NULL,
    user_id text NOT NULL,
    incarnation uuid NOT NULL DEFAULT gen_random_uuid(),
    head_seq bigint NOT NULL DEFAULT 0,
    live int8multirange NOT NULL DEFAULT '{[1,)}',
    rewound int8multirange NOT NULL DEFAULT '{}',
    fold_seqs bigint[] NOT NULL DEFAULT '{}',
    fold_lanes integer[] NOT NULL DEFAULT '{}',
    index json,
    last_rewind_seq bigint NOT NULL DEFAULT 0,
    tokens_raw bigint NOT NULL DEFAULT 0,
    compactions integer NOT NULL DEFAULT 0,
    policy json,
    schema_version smallint NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    live_events bigint DEFAULT 0,
    tokens_live bigint DEFAULT 0,
    invocation_id text NOT NULL DEFAULT '',
    is_invocation_complete boolean NOT NULL DEFAULT false,
    invocations_new integer NOT NULL DEFAULT 0,
    tokens_tried bigint NOT NULL DEFAULT 0,
    bytes_raw bigint NOT NULL DEFAULT 0,
    bytes_at_seq bigint NOT NULL DEFAULT 0,
    CONSTRAINT sessions_pkey PRIMARY KEY (session_uid),
    CONSTRAINT sessions_head_seq_check CHECK (head_seq >= 0)
);

CREATE TABLE session_details (
    session_uid uuid NOT NULL,
    base_state json NOT NULL,
    state json NOT NULL,
    metadata jsonb NOT NULL,
    ttl_s bigint,
    expires_at timestamptz,
    forked_from text,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    schema_version smallint NOT NULL DEFAULT 1,
    CONSTRAINT session_details_pkey PRIMARY KEY (session_uid)
);

CREATE TABLE lanes (
    session_uid uuid NOT NULL,
    lane integer NOT NULL,
    isolation_scope text,
    branch text NOT NULL,
    tool_names text[] NOT NULL,
    node_path text NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    replies json NOT NULL,
    CONSTRAINT lanes_pkey PRIMARY KEY (session_uid, lane)
);

CREATE TABLE events (
    session_uid uuid NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL,
    kind text NOT NULL,
    lane integer NOT NULL,
    author text NOT NULL,
    invocation_id text NOT NULL,
    event_at double precision NOT NULL,
    tokens integer NOT NULL,
    raw text NOT NULL,
    source_format text NOT NULL,
    item_part integer NOT NULL,
    body_hash bytea NOT NULL,
    derived text NOT NULL,
    derived_version smallint NOT NULL,
    resolved text,
    owner_seqs bigint[],
    requested_ids json,
    marker text,
    section_lanes integer[],
    state_delta json,
    cache_record text,
    schema_version smallint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT events_pkey PRIMARY KEY (session_uid, seq),
    CONSTRAINT events_id_key UNIQUE (session_uid, id),
    CONSTRAINT events_seq_check CHECK (seq >= 1)
);

CREATE TABLE calls (
    session_uid uuid NOT NULL,
    seq bigint NOT NULL,
    part_index integer NOT NULL,
    call_id text NOT NULL,
    name text NOT NULL,
    lane integer NOT NULL,
    author text NOT NULL,
    response_seq bigint NOT NULL,
    has_args boolean NOT NULL,
    CONSTRAINT calls_pkey PRIMARY KEY (session_uid, seq, part_index)
);

CREATE TABLE answers (
    session_uid uuid NOT NULL,
    call_seq bigint NOT NULL,
    call_part integer NOT NULL,
    answer_seq bigint NOT NULL,
    CONSTRAINT answers_pkey PRIMARY KEY (session_uid, call_seq, call_part, answer_seq)
);

CREATE TABLE app_states (
    tenant_id text NOT NULL,
    app_name text NOT NULL,
    key text NOT NULL,
    value json NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT app_states_pkey PRIMARY KEY (tenant_id, app_name, key)
);

CREATE TABLE user_states (
    tenant_id text NOT NULL,
    app_name text NOT NULL,
    user_id text NOT NULL,
    key text NOT NULL,
    value json NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT user_states_pkey PRIMARY KEY (tenant_id, app_name, user_id, key)
);

CREATE TABLE app_policies (
    tenant_id text NOT NULL,
    app_name text NOT NULL,
    policy json NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT app_policies_pkey PRIMARY KEY (tenant_id, app_name)
);

CREATE TABLE idempotency_keys (
    tenant_id text NOT NULL,
    route text NOT NULL,
    idempotency_key text NOT NULL,
    request_hash bytea NOT NULL,
    status integer NOT NULL,
    body text NOT NULL,
    session_uid uuid,
    expires_at timestamptz NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, route, idempotency_key)
);

CREATE TABLE compile_inputs (
    tenant_id text NOT NULL,
    digest text NOT NULL,
    session_uid uuid NOT NULL,
    body text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT compile_inputs_pkey PRIMARY KEY (tenant_id, digest, session_uid)
);

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
);

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
);

CREATE TABLE leases (
    name text NOT NULL,
    holder uuid NOT NULL,
    lease_until timestamptz NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (name)
);

CREATE TABLE summary_spend (
    tenant_id text NOT NULL,
    day date NOT NULL,
    requests bigint NOT NULL,
    tokens bigint NOT NULL,
    CONSTRAINT summary_spend_pkey PRIMARY KEY (tenant_id, day)
);

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
);

CREATE TABLE audit_log (
    audit_id bigint GENERATED ALWAYS AS IDENTITY,
    tenant_id text NOT NULL,
    session_uid uuid,
    action text NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    events bigint,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    target text NOT NULL DEFAULT '',
    details json,
    CONSTRAINT audit_log_pkey PRIMARY KEY (audit_id)
);

CREATE INDEX sessions_tenant_updated_idx ON sessions (tenant_id, updated_at, session_id);
CREATE INDEX session_details_expires_idx ON session_details (expires_at)
WHERE expires_at IS NOT NULL;
CREATE INDEX events_lane_idx ON events (session_uid, lane, (- seq));
CREATE INDEX events_invocation_idx ON events (session_uid, invocation_id, seq);
CREATE INDEX events_marker_idx ON events (session_uid, seq) WHERE marker IS NOT NULL;
CREATE INDEX events_cache_record_idx ON events (session_uid, lane, seq)
WHERE cache_record IS NOT NULL;
CREATE INDEX events_state_delta_idx ON events (session_uid, seq)
WHERE state_delta IS NOT NULL;
CREATE INDEX calls_call_id_idx ON calls (session_uid, call_id, seq);
CREATE INDEX calls_name_idx ON calls (session_uid, name, seq);
CREATE INDEX idempotency_keys_expires_idx ON idempotency_keys (expires_at);
CREATE INDEX idempotency_keys_session_idx ON idempotency_keys (session_uid)
WHERE session_uid IS NOT NULL;
CREATE INDEX compile_inputs_session_idx ON compile_inputs (session_uid);
CREATE UNIQUE INDEX jobs_open_key ON jobs (session_uid, kind)
WHERE status IN ('ready', 'running');
CREATE INDEX jobs_ready_idx ON jobs (tenant_id, run_at, job_id) WHERE status = 'ready';
CREATE INDEX jobs_running_idx ON jobs (tenant_id, lease_until) WHERE status = 'running';
CREATE INDEX jobs_failed_idx ON jobs (status, kind) WHERE status IN ('failed', 'dead');
CREATE INDEX jobs_id_idx ON jobs (job_id);
CREATE INDEX jobs_finished_idx ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX audit_log_tenant_idx ON audit_log (tenant_id, audit_id);
CREATE INDEX api_keys_tenant_idx ON api_keys (tenant_id, created_at, key_id);

CREATE FUNCTION refuse_log_change() RETURNS trigger
LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.session_uid::text = current_setting('foldline.erased_session', true) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'rows of % are never changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', HINT = 'erase_session() erases a whole session';
END
$$;

CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events
FOR EACH ROW EXECUTE FUNCTION refuse_log_change();

CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events
FOR EACH STATEMENT EXECUTE FUNCTION refuse_log_change();

CREATE TRIGGER calls_append_only BEFORE UPDATE OR DELETE ON calls
FOR EACH ROW EXECUTE FUNCTION refuse_log_change();

CREATE TRIGGER calls_no_truncate BEFORE TRUNCATE ON calls
FOR EACH STATEMENT EXECUTE FUNCTION refuse_log_change();

CREATE TRIGGER answers_append_only BEFORE UPDATE OR DELETE ON answers
FOR EACH ROW EXECUTE FUNCTION refuse_log_change();

CREATE TRIGGER answers_no_truncate BEFORE TRUNCATE ON answers
FOR EACH STATEMENT EXECUTE FUNCTION refuse_log_change();

CREATE FUNCTION refuse_audit_change() RETURNS trigger
LANGUAGE plpgsql
SET search_path = public, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'rows of audit_log are never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log
FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();

CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log
FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

CREATE FUNCTION erase_session(erased_uid uuid, actor text, reason text) RETURNS boolean
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
$$;

REVOKE ALL ON FUNCTION erase_session(uuid, text, text) FROM PUBLIC;
