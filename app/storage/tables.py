"""The schema, once, as SQLAlchemy Core tables; a test holds the migrations equal to it.

Everything of a session starts with ``session_uid``, which is the distribution key: no statement on
the hot path crosses sessions, and no foreign key crosses tables. What keeps the rows of a session
together is the lock of its ``sessions`` row, under which all of them are written.

``events``, ``calls`` and ``answers`` are the log: triggers (in the migrations) refuse every update
and delete outside ``erase_session()``.
"""

from typing import Final

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import INT8MULTIRANGE, JSONB

metadata: Final = MetaData()

_NOW = text("statement_timestamp()")


def _required(name: str, kind: object, default: str | None = None) -> Column[object]:
    server_default = None if default is None else text(default)
    return Column(name, kind, nullable=False, server_default=server_default)  # type: ignore[arg-type]


def _time(name: str) -> Column[object]:
    # The statement's time, not the transaction's: it follows the order in which the lock was held.
    return Column(name, DateTime(timezone=True), nullable=False, server_default=_NOW)


tenants: Final = Table(
    "tenants",
    metadata,
    _required("tenant_id", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    #: Of all its keys together, as in ``100/s``; NULL: no limit. So for the quotas.
    Column("rate_limit", Text),
    Column("max_sessions", BigInteger),
    Column("max_events", BigInteger),
    #: Of the bodies of its events, as they were sent.
    Column("max_bytes", BigInteger),
    #: Since then its keys open nothing.
    Column("disabled_at", DateTime(timezone=True)),
    PrimaryKeyConstraint("tenant_id", name="tenants_pkey"),
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    _required("key_id", Uuid, "gen_random_uuid()"),
    _required("tenant_id", Text),
    _required("name", Text),
    #: SHA-256 of the key; the key itself is shown once and kept nowhere.
    _required("key_hash", LargeBinary),
    _required("scopes", ARRAY(Text)),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Column("revoked_at", DateTime(timezone=True)),
    #: NULL: the server's.
    Column("rate_limit", Text),
    #: NULL: never.
    Column("expires_at", DateTime(timezone=True)),
    PrimaryKeyConstraint("key_id", name="api_keys_pkey"),
    UniqueConstraint("key_hash", name="api_keys_key_hash_key"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name="api_keys_tenant_id_fkey"),
    Index("api_keys_tenant_idx", "tenant_id", "created_at", "key_id"),
)

#: Narrow, because every append rewrites the row. ``policy`` is here all the same: an append needs
#: it as it is under the lock, and a joined row may be older than the lock.
sessions: Final = Table(
    "sessions",
    metadata,
    _required("session_uid", Uuid),
    _required("tenant_id", Text),
    _required("session_id", Text),
    _required("app_name", Text),
    _required("user_id", Text),
    #: New for every session that is made, also under an id that was erased.
    _required("incarnation", Uuid, "gen_random_uuid()"),
    _required("head_seq", BigInteger, "0"),
    # The index: what the live read needs as columns, the rest as JSON (null: no marker yet).
    _required("live", INT8MULTIRANGE, "'{[1,)}'"),
    _required("rewound", INT8MULTIRANGE, "'{}'"),
    #: One pair for each shown section: its fold's seq, its lane's number.
    _required("fold_seqs", ARRAY(BigInteger), "'{}'"),
    _required("fold_lanes", ARRAY(Integer), "'{}'"),
    Column("index", JSON),
    _required("last_rewind_seq", BigInteger, "0"),
    _required("tokens_raw", BigInteger, "0"),
    _required("compactions", Integer, "0"),
    Column("policy", JSON),
    _required("schema_version", SmallInteger, "1"),
    _time("updated_at"),
    # By these an append sees whether compaction may be due, without reading the log. The planner
    # counts for itself.
    #: Live events and their tokens, shown summaries included; null: not counted yet.
    Column("live_events", BigInteger, server_default=text("0")),
    Column("tokens_live", BigInteger, server_default=text("0")),
    #: The invocation that began last.
    _required("invocation_id", Text, "''"),
    _required("is_invocation_complete", Boolean, "false"),
    #: Invocations that were completed and that no fold has been planned for.
    _required("invocations_new", Integer, "0"),
    #: ``tokens_live`` when a fold was last tried and refused; 0 when nothing speaks against one.
    _required("tokens_tried", BigInteger, "0"),
    #: Bytes of the events' bodies as they were sent, up to ``bytes_at_seq``. Where that is not the
    #: head, a release appended that does not count them: they are counted anew.
    _required("bytes_raw", BigInteger, "0"),
    _required("bytes_at_seq", BigInteger, "0"),
    PrimaryKeyConstraint("session_uid", name="sessions_pkey"),
    CheckConstraint("head_seq >= 0", name="sessions_head_seq_check"),
    Index("sessions_tenant_updated_idx", "tenant_id", "updated_at", "session_id"),
)

session_details: Final = Table(
    "session_details",
    metadata,
    _required("session_uid", Uuid),
    #: Session-scoped keys as given at creation: where a replay of the deltas starts.
    _required("base_state", JSON),
    _required("state", JSON),
    _required("metadata", JSONB),
    Column("ttl_s", BigInteger),
    #: ``ttl_s`` after the last append.
    Column("expires_at", DateTime(timezone=True)),
    Column("forked_from", Text),
    _time("created_at"),
    _required("schema_version", SmallInteger, "1"),
    PrimaryKeyConstraint("session_uid", name="session_details_pkey"),
    Index(
        "session_details_expires_idx",
        "expires_at",
        postgresql_where=text("expires_at IS NOT NULL"),
    ),
)

lanes: Final = Table(
    "lanes",
    metadata,
    _required("session_uid", Uuid),
    #: Number within the session, from 1.
    _required("lane", Integer),
    Column("isolation_scope", Text),
    _required("branch", Text),
    _required("tool_names", ARRAY(Text)),
    _required("node_path", Text),
    #: The event that made the lane; all of its events are at or after it.
    _required("first_seq", BigInteger),
    #: Its newest ordinary event; 0 before the first.
    _required("last_seq", BigInteger),
    _required("replies", JSON),
    PrimaryKeyConstraint("session_uid", "lane", name="lanes_pkey"),
)

events: Final = Table(
    "events",
    metadata,
    _required("session_uid", Uuid),
    _required("seq", BigInteger),
    _required("id", Text),
    #: ``message`` for ordinary events, else what kind of marker it is.
    _required("kind", Text),
    _required("lane", Integer),
    _required("author", Text),
    _required("invocation_id", Text),
    #: Seconds since the epoch, as the event says.
    _required("event_at", Double),
    _required("tokens", Integer),
    #: The JSON text as it was sent (of the item, for imported ones). text, because ``json`` and
    #: ``jsonb`` would refuse or change some of what is sent.
    _required("raw", Text),
    _required("source_format", Text),
    _required("item_part", Integer),
    _required("body_hash", LargeBinary),
    #: What a compile needs and what follows from the event alone (``codec.py``).
    _required("derived", Text),
    _required("derived_version", SmallInteger),
    #: What was decided against earlier events: place and owners.
    Column("resolved", Text),
    #: Seq of the owner of each function response; null elements for orphans.
    Column("owner_seqs", ARRAY(BigInteger)),
    #: Call ids for which the event asks a confirmation or a credential.
    Column("requested_ids", JSON),
    #: The resolved marker.
    Column("marker", Text),
    #: Lanes of a fold's sections.
    Column("section_lanes", ARRAY(Integer)),
    Column("state_delta", JSON),
    #: What a reply says of the explicit cache that its request went on from.
    Column("cache_record", Text),
    #: Of ``resolved`` and ``marker``.
    _required("schema_version", SmallInteger, "1"),
    _time("created_at"),
    PrimaryKeyConstraint("session_uid", "seq", name="events_pkey"),
    UniqueConstraint("session_uid", "id", name="events_id_key"),
    CheckConstraint("seq >= 1", name="events_seq_check"),
    # By -seq, an order that the primary key does not give: see live_read.py.
    Index("events_lane_idx", "session_uid", "lane", text("(- seq)")),
    Index("events_invocation_idx", "session_uid", "invocation_id", "seq"),
    Index("events_marker_idx", "session_uid", "seq", postgresql_where=text("marker IS NOT NULL")),
    Index(
        "events_cache_record_idx",
        "session_uid",
        "lane",
        "seq",
        postgresql_where=text("cache_record IS NOT NULL"),
    ),
    Index(
        "events_state_delta_idx",
        "session_uid",
        "seq",
        postgresql_where=text("state_delta IS NOT NULL"),
    ),
)

calls: Final = Table(
    "calls",
    metadata,
    _required("session_uid", Uuid),
    _required("seq", BigInteger),
    _required("part_index", Integer),
    #: Empty when the model gave none.
    _required("call_id", Text),
    _required("name", Text),
    _required("lane", Integer),
    _required("author", Text),
    _required("response_seq", BigInteger),
    _required("has_args", Boolean),
    PrimaryKeyConstraint("session_uid", "seq", "part_index", name="calls_pkey"),
    Index("calls_call_id_idx", "session_uid", "call_id", "seq"),
    Index("calls_name_idx", "session_uid", "name", "seq"),
)

answers: Final = Table(
    "answers",
    metadata,
    _required("session_uid", Uuid),
    _required("call_seq", BigInteger),
    _required("call_part", Integer),
    _required("answer_seq", BigInteger),
    PrimaryKeyConstraint("session_uid", "call_seq", "call_part", "answer_seq", name="answers_pkey"),
)

app_states: Final = Table(
    "app_states",
    metadata,
    _required("tenant_id", Text),
    _required("app_name", Text),
    #: Without its ``app:``.
    _required("key", Text),
    _required("value", JSON),
    _time("updated_at"),
    PrimaryKeyConstraint("tenant_id", "app_name", "key", name="app_states_pkey"),
)

user_states: Final = Table(
    "user_states",
    metadata,
    _required("tenant_id", Text),
    _required("app_name", Text),
    _required("user_id", Text),
    #: Without its ``user:``.
    _required("key", Text),
    _required("value", JSON),
    _time("updated_at"),
    PrimaryKeyConstraint("tenant_id", "app_name", "user_id", "key", name="user_states_pkey"),
)

app_policies: Final = Table(
    "app_policies",
    metadata,
    _required("tenant_id", Text),
    _required("app_name", Text),
    _required("policy", JSON),
    _time("updated_at"),
    PrimaryKeyConstraint("tenant_id", "app_name", name="app_policies_pkey"),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    _required("tenant_id", Text),
    _required("route", Text),
    _required("idempotency_key", Text),
    _required("request_hash", LargeBinary),
    _required("status", Integer),
    _required("body", Text),
    #: The body is erased with this session.
    Column("session_uid", Uuid),
    _required("expires_at", DateTime(timezone=True)),
    PrimaryKeyConstraint("tenant_id", "route", "idempotency_key", name="idempotency_keys_pkey"),
    Index("idempotency_keys_expires_idx", "expires_at"),
    Index(
        "idempotency_keys_session_idx",
        "session_uid",
        postgresql_where=text("session_uid IS NOT NULL"),
    ),
)

compile_inputs: Final = Table(
    "compile_inputs",
    metadata,
    _required("tenant_id", Text),
    _required("digest", Text),
    #: The session that they were fetched for, and are erased with; all zeros for none.
    _required("session_uid", Uuid),
    _required("body", Text),
    _time("created_at"),
    PrimaryKeyConstraint("tenant_id", "digest", "session_uid", name="compile_inputs_pkey"),
    Index("compile_inputs_session_idx", "session_uid"),
)

#: What was compiled lately, for the reports of usage that will name it (``token_reports.py``).
compiled_requests: Final = Table(
    "compiled_requests",
    metadata,
    _required("session_uid", Uuid),
    _required("fingerprint", Text),
    #: Empty: the caller named none.
    _required("model", Text),
    #: Our count, not calibrated; of the whole request and of what the provider has cached.
    _required("tokens", BigInteger),
    _required("cached_tokens", BigInteger),
    #: Of the request whose cache this one reads; NULL for none.
    Column("base_fingerprint", Text),
    #: The newest reply no longer stood on the request that it answered.
    _required("is_broken", Boolean),
    #: How long the cache lives; NULL when not known.
    Column("ttl_s", Integer),
    #: A report was learnt from already.
    _required("is_reported", Boolean, "false"),
    _time("compiled_at"),
    PrimaryKeyConstraint("session_uid", "fingerprint", name="compiled_requests_pkey"),
)

#: How a provider counts, learnt for each tenant and model (``token_reports.py``).
calibrations: Final = Table(
    "calibrations",
    metadata,
    _required("tenant_id", Text),
    _required("model", Text),
    _required("reports", BigInteger),
    _required("ratio", Double),
    _required("deviation", Double),
    _required("percent", Integer),
    #: Tokens of input that the model turned out to take.
    Column("limit_tokens", BigInteger),
    _time("updated_at"),
    PrimaryKeyConstraint("tenant_id", "model", name="calibrations_pkey"),
)

#: What one process alone does, and which one, until when (``database_facts.py``).
leases: Final = Table(
    "leases",
    metadata,
    _required("name", Text),
    _required("holder", Uuid),
    Column("lease_until", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("name", name="leases_pkey"),
)

#: What models read and wrote for summaries (``summary_spend.py``).
summary_spend: Final = Table(
    "summary_spend",
    metadata,
    _required("tenant_id", Text),
    #: In UTC.
    _required("day", Date),
    _required("requests", BigInteger),
    #: Counted before they are spent, corrected afterwards.
    _required("tokens", BigInteger),
    PrimaryKeyConstraint("tenant_id", "day", name="summary_spend_pkey"),
)

#: Work for later, inserted with what makes it due (``jobs.py``).
jobs: Final = Table(
    "jobs",
    metadata,
    _required("session_uid", Uuid),
    _required("job_id", Uuid, "gen_random_uuid()"),
    _required("tenant_id", Text),
    _required("session_id", Text),
    #: Of the session that the job was made for; another session of the same id is not meant.
    _required("incarnation", Uuid),
    _required("kind", Text),
    _required("payload", JSON),
    _required("status", Text, "'ready'"),
    #: How often it was claimed; a claim that was given back is not counted.
    _required("attempts", Integer, "0"),
    #: Raised with every claim; whoever holds an older one has lost the job.
    _required("fencing_token", BigInteger, "0"),
    _time("run_at"),
    Column("lease_until", DateTime(timezone=True)),
    Column("result", JSON),
    #: ``{code, detail}`` of the last attempt that failed.
    Column("error", JSON),
    _time("created_at"),
    Column("finished_at", DateTime(timezone=True)),
    PrimaryKeyConstraint("session_uid", "job_id", name="jobs_pkey"),
    CheckConstraint(
        "status IN ('ready', 'running', 'done', 'failed', 'dead', 'cancelled')",
        name="jobs_status_check",
    ),
    Index(
        "jobs_open_key",
        "session_uid",
        "kind",
        unique=True,
        postgresql_where=text("status IN ('ready', 'running')"),
    ),
    Index(
        "jobs_ready_idx",
        "tenant_id",
        "run_at",
        "job_id",
        postgresql_where=text("status = 'ready'"),
    ),
    Index(
        "jobs_running_idx",
        "tenant_id",
        "lease_until",
        postgresql_where=text("status = 'running'"),
    ),
    Index(
        "jobs_failed_idx",
        "status",
        "kind",
        postgresql_where=text("status IN ('failed', 'dead')"),
    ),
    Index("jobs_id_idx", "job_id"),
    Index("jobs_finished_idx", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
)

#: What was erased and what administrators did, without content. A trigger refuses every change.
audit_log: Final = Table(
    "audit_log",
    metadata,
    Column("audit_id", BigInteger, Identity(always=True), nullable=False),
    _required("tenant_id", Text),
    Column("session_uid", Uuid),
    _required("action", Text),
    _required("actor", Text),
    _required("reason", Text),
    Column("events", BigInteger),
    _time("created_at"),
    #: What was acted on: the id of a key, a tenant or a job, the name of an app.
    _required("target", Text, "''"),
    #: What was set; never a secret, never content.
    Column("details", JSON),
    PrimaryKeyConstraint("audit_id", name="audit_log_pkey"),
    Index("audit_log_tenant_idx", "tenant_id", "audit_id"),
)
