"""Tenants, keys and the audit log on the wire."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeAlias
from uuid import UUID

from fastapi import Path
from pydantic import Field, StringConstraints, model_validator

from app.api.schemas.fields import (
    MAX_PAGE,
    SESSION_ID_PATTERN,
    AnswerModel,
    FieldRuleError,
    JsonObject,
    QueryModel,
    RequestModel,
    SessionIdText,
    Word,
)
from app.core.limits import Quotas, Stored
from app.ports import ApiKey, AuditEntry, Principal, Tenant
from app.services.manage_keys import ShownKey, WantedKey
from app.services.manage_tenants import TenantChange
from app.services.verify_sessions import SessionReport

#: Fits a Postgres bigint.
MAX_QUOTA = 2**62
MAX_TTL_S = 100 * 366 * 24 * 3600
MAX_OVERLAP_S = 90 * 24 * 3600

TenantIdText: TypeAlias = Annotated[str, StringConstraints(pattern=SESSION_ID_PATTERN)]
TenantId: TypeAlias = Annotated[
    str, Path(alias="tenant", pattern=SESSION_ID_PATTERN, description="Id of a tenant.")
]
KeyId: TypeAlias = Annotated[UUID, Path(alias="id", description="Id of a key.")]
RateText: TypeAlias = Annotated[str, StringConstraints(max_length=20)]
Quota: TypeAlias = Annotated[int, Field(ge=0, le=MAX_QUOTA)]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=MAX_PAGE)]
Scope: TypeAlias = Literal["events:write", "events:read", "compile", "admin", "metrics", "operator"]


class QuotasFields(RequestModel):
    """What a tenant may store; null: without a limit."""

    sessions: Quota | None = None
    """The most sessions; null: no limit."""
    events: Quota | None = None
    """The most stored events of all sessions; null: no limit."""
    bytes: Quota | None = None
    """The most bytes of stored event bodies; null: no limit."""


class NewTenantRequest(RequestModel):
    """A tenant to make."""

    id: TenantIdText
    """Chosen by the operator."""
    rate_limit: RateText | None = None
    """Requests of all its keys together, as in `100/s`; null: no limit."""
    quotas: QuotasFields = QuotasFields()
    """What it may store."""

    @property
    def domain_quotas(self) -> Quotas:
        """The quotas."""
        return Quotas(**self.quotas.model_dump())


class TenantPatch(RequestModel):
    """A merge patch of a tenant; null takes a limit away."""

    rate_limit: RateText | None = None
    """Requests of all its keys together, as in `100/s`; null: no limit."""
    quotas: QuotasFields | None = None
    """What it may store; what is named of it changes."""
    disabled: bool = False
    """Whether its keys are refused."""

    def to_domain(self, tenant_id: str) -> TenantChange:
        """Return the change of a tenant."""
        named = self.model_dump(include=self.model_fields_set - {"quotas"})
        quotas: dict[str, int | None] = {}
        if "quotas" in self.model_fields_set:
            quotas = (
                dict.fromkeys(QuotasFields.model_fields)
                if self.quotas is None
                else self.quotas.model_dump(include=self.quotas.model_fields_set)
            )
        return TenantChange(tenant_id=tenant_id, members=named, quotas=quotas)


class UsageAnswer(AnswerModel):
    """What a tenant stores."""

    sessions: int
    """Sessions that there are."""
    events: int
    """Events that are stored."""
    bytes: int
    """Bytes of the stored event bodies."""


class QuotasAnswer(AnswerModel):
    """What a tenant may store."""

    sessions: int | None
    """The most sessions; null: no limit."""
    events: int | None
    """The most stored events; null: no limit."""
    bytes: int | None
    """The most bytes of stored event bodies; null: no limit."""


class TenantAnswer(AnswerModel):
    """A tenant."""

    id: str
    """As the operator chose it."""
    rate_limit: str | None
    """Requests of all its keys together, as in `100/s`; null: no limit."""
    quotas: QuotasAnswer
    """What it may store."""
    disabled: bool
    """Whether its keys are refused."""
    created_at: datetime
    """RFC 3339, UTC."""
    usage: UsageAnswer | None = None
    """Counted now; only when one tenant is asked for."""


class TenantsPage(AnswerModel):
    """A page of tenants."""

    data: list[TenantAnswer]
    """Tenants."""
    next: str | None
    """Cursor for `after` of the page that follows; null on the last page."""
    has_more: bool
    """Whether anything follows this page."""


class PageQuery(QueryModel):
    """A page."""

    limit: Limit = 100
    """The most entries of a page."""
    after: str | None = None
    """Cursor that a page answered as `next`; it goes with the same filters and order."""


def tenant_answer(tenant: Tenant, usage: Stored | None = None) -> dict[str, Any]:
    """Return a tenant as it is answered."""
    quotas = tenant.quotas
    answer: dict[str, Any] = {
        "id": tenant.id,
        "rate_limit": tenant.rate_limit,
        "quotas": {"sessions": quotas.sessions, "events": quotas.events, "bytes": quotas.bytes},
        "disabled": tenant.is_disabled,
        "created_at": tenant.created_at.isoformat(),
    }
    if usage is not None:
        answer["usage"] = {
            "sessions": usage.sessions,
            "events": usage.events,
            "bytes": usage.bytes,
        }
    return answer


class NewKeyRequest(RequestModel):
    """A key to make."""

    tenant_id: TenantIdText | None = None
    """Null: the caller's own tenant."""
    name: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00]*$")] = ""
    """For people; need not be unique."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=10)]
    """What the key opens."""
    rate_limit: RateText | None = None
    """Requests of this key, as in `100/s`; null: the server's default."""
    ttl_s: Annotated[int, Field(ge=1, le=MAX_TTL_S)] | None = None
    """Seconds until it ends; null: until it is revoked."""

    @model_validator(mode="after")
    def _scopes_once(self) -> Self:
        if len(set(self.scopes)) != len(self.scopes):
            raise FieldRuleError("a scope is named twice", "scopes")
        return self

    def to_domain(self, by: Principal) -> WantedKey:
        """Return the key that is wanted."""
        return WantedKey(
            tenant_id=self.tenant_id or by.tenant_id,
            name=self.name,
            scopes=self.scopes,
            rate_limit=self.rate_limit,
            ttl_s=self.ttl_s,
        )


class RotateRequest(RequestModel):
    """How long the old key lives on."""

    overlap_s: Annotated[int, Field(ge=0, le=MAX_OVERLAP_S)] = 3600
    """Seconds that the old key is still valid."""


class KeyAnswer(AnswerModel):
    """A key, without its secret."""

    id: str
    """Names the key; not a secret."""
    tenant_id: str
    """Whose sessions it opens."""
    name: str
    """For people."""
    scopes: list[str]
    """What the key opens."""
    rate_limit: str | None
    """Requests of this key, as in `100/s`; null: the server's default."""
    created_at: datetime
    """RFC 3339, UTC."""
    expires_at: datetime | None
    """When it ends by itself; null: never."""
    revoked_at: datetime | None
    """When it was revoked; null: it was not."""
    valid: bool
    """Whether it opens anything now."""


class ShownKeyAnswer(KeyAnswer):
    """A key that was just made; the secret is told this once."""

    key: str
    """The key itself: shown this once, and kept as a hash."""


class KeysPage(AnswerModel):
    """A page of keys."""

    data: list[KeyAnswer]
    """Keys."""
    next: str | None
    """Cursor for `after` of the page that follows; null on the last page."""
    has_more: bool
    """Whether anything follows this page."""


class KeysQuery(PageQuery):
    """Whose keys."""

    tenant_id: TenantIdText | None = None
    """Not named: the caller's own tenant."""


def key_answer(key: ApiKey) -> dict[str, Any]:
    """Return a key as it is answered."""
    return {
        "id": str(key.id),
        "tenant_id": key.tenant_id,
        "name": key.name,
        "scopes": list(key.scopes),
        "rate_limit": key.rate_limit,
        "created_at": key.created_at.isoformat(),
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
        "revoked_at": None if key.revoked_at is None else key.revoked_at.isoformat(),
        "valid": key.is_valid,
    }


def shown_key_answer(shown: ShownKey) -> dict[str, Any]:
    """Return a key with its secret."""
    return {**key_answer(shown.key), "key": shown.secret}


class AuditQuery(PageQuery):
    """Which acts."""

    tenant_id: TenantIdText | None = None
    """Not named: the caller's own tenant; for an operator, all."""
    action: Word | None = None
    """Only entries of this action."""
    session_id: SessionIdText | None = None
    """Only entries of this session."""


class AuditAnswer(AnswerModel):
    """What was done."""

    id: int
    """Counts up."""
    tenant_id: str
    """Whose things it was about."""
    action: str
    """What was done, as a word."""
    actor: str
    """The id of the key that did it, or a name of the service."""
    target: str
    """What it was done to."""
    reason: str
    """Why, where a reason was given."""
    details: JsonObject | None
    """What else there is to say, by action."""
    session_uid: str | None
    """Of an erased session, what it was stored under."""
    events: int | None
    """Of an erased session, how many events it had."""
    created_at: datetime
    """RFC 3339, UTC."""


class AuditPage(AnswerModel):
    """A page of the audit log, newest first."""

    data: list[AuditAnswer]
    """Entries."""
    next: str | None
    """Cursor for `after` of the page that follows; null on the last page."""
    has_more: bool
    """Whether anything follows this page."""


def audit_answer(entry: AuditEntry) -> dict[str, Any]:
    """Return a row as it is answered."""
    assert entry.created_at is not None
    return {
        "id": entry.id,
        "tenant_id": entry.tenant_id,
        "action": entry.action,
        "actor": entry.actor,
        "target": entry.target,
        "reason": entry.reason,
        "details": entry.details,
        "session_uid": None if entry.session_uid is None else str(entry.session_uid),
        "events": entry.events,
        "created_at": entry.created_at.isoformat(),
    }


class FindingAnswer(AnswerModel):
    """Something that is wrong."""

    kind: str
    """What is wrong, as a word."""
    seq: int | None
    """The event where it shows; null: the session."""
    detail: str
    """In words."""


class VerifyAnswer(AnswerModel):
    """What a check of a session found."""

    ok: bool
    """Whether nothing was found."""
    findings: list[FindingAnswer]
    """What does not fit together."""
    events: int
    """Events that were looked at."""
    replies_proved: int
    """Replies whose recorded fingerprint was compiled again."""
    replies_not_proved: int
    """Replies with a fingerprint whose format or model cannot be told from it."""
    replies_skipped: int
    """Replies with a fingerprint that were not looked at: neither the first of a reader and head
    nor among the newest five, whose requests begin with what the others were compiled for."""


def verify_answer(report: SessionReport) -> dict[str, Any]:
    """Return a report as it is answered."""
    return {
        "ok": not report.findings,
        "findings": [
            {"kind": finding.kind, "seq": finding.seq, "detail": finding.detail}
            for finding in report.findings
        ],
        "events": report.events,
        "replies_proved": report.replies_proved,
        "replies_not_proved": report.replies_not_proved,
        "replies_skipped": report.replies_skipped,
    }
