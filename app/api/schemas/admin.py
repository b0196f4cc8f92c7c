"""Tenants, keys and the audit log on the wire."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeAlias
from uuid import UUID

from fastapi import Path
from pydantic import BaseModel, Field, StringConstraints, model_validator

from app.api.schemas.fields import (
    MAX_PAGE,
    SESSION_ID_PATTERN,
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
TenantId: TypeAlias = Annotated[str, Path(alias="tenant", pattern=SESSION_ID_PATTERN)]
KeyId: TypeAlias = Annotated[UUID, Path(alias="id")]
RateText: TypeAlias = Annotated[str, StringConstraints(max_length=20)]
Quota: TypeAlias = Annotated[int, Field(ge=0, le=MAX_QUOTA)]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=MAX_PAGE)]
Scope: TypeAlias = Literal["events:write", "events:read", "compile", "admin", "metrics", "operator"]


class QuotasFields(RequestModel):
    """What a tenant may store; null: without a limit."""

    sessions: Quota | None = None
    events: Quota | None = None
    bytes: Quota | None = None


class NewTenantRequest(RequestModel):
    """A tenant to make."""

    id: TenantIdText
    rate_limit: RateText | None = None
    quotas: QuotasFields = QuotasFields()

    @property
    def domain_quotas(self) -> Quotas:
        """The quotas."""
        return Quotas(**self.quotas.model_dump())


class TenantPatch(RequestModel):
    """A merge patch of a tenant; null takes a limit away."""

    rate_limit: RateText | None = None
    quotas: QuotasFields | None = None
    disabled: bool = False

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


class UsageAnswer(BaseModel):
    """What a tenant stores."""

    sessions: int
    events: int
    bytes: int


class QuotasAnswer(BaseModel):
    """What a tenant may store."""

    sessions: int | None
    events: int | None
    bytes: int | None


class TenantAnswer(BaseModel):
    """A tenant."""

    id: str
    rate_limit: str | None
    quotas: QuotasAnswer
    disabled: bool
    created_at: datetime
    #: Counted now; only when one tenant is asked for.
    usage: UsageAnswer | None = None


class TenantsPage(BaseModel):
    """A page of tenants."""

    data: list[TenantAnswer]
    next: str | None
    has_more: bool


class PageQuery(QueryModel):
    """A page."""

    limit: Limit = 100
    after: str | None = None


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

    #: None: the caller's own tenant.
    tenant_id: TenantIdText | None = None
    name: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00]*$")] = ""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=10)]
    rate_limit: RateText | None = None
    #: None: until it is revoked.
    ttl_s: Annotated[int, Field(ge=1, le=MAX_TTL_S)] | None = None

    @model_validator(mode="after")
    def _scopes_once(self) -> Self:
        if len(set(self.scopes)) != len(self.scopes):
            raise ValueError("a scope is named twice")
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


class KeyAnswer(BaseModel):
    """A key, without its secret."""

    id: str
    tenant_id: str
    name: str
    scopes: list[str]
    rate_limit: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    valid: bool


class ShownKeyAnswer(KeyAnswer):
    """A key that was just made; the secret is told this once."""

    key: str


class KeysPage(BaseModel):
    """A page of keys."""

    data: list[KeyAnswer]
    next: str | None
    has_more: bool


class KeysQuery(PageQuery):
    """Whose keys."""

    #: None: the caller's own tenant.
    tenant_id: TenantIdText | None = None


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

    #: None: the caller's own tenant; for an operator, all.
    tenant_id: TenantIdText | None = None
    action: Word | None = None
    session_id: SessionIdText | None = None


class AuditAnswer(BaseModel):
    """What was done."""

    id: int
    tenant_id: str
    action: str
    actor: str
    target: str
    reason: str
    details: JsonObject | None
    session_uid: str | None
    events: int | None
    created_at: datetime


class AuditPage(BaseModel):
    """A page of the audit log, newest first."""

    data: list[AuditAnswer]
    next: str | None
    has_more: bool


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


class FindingAnswer(BaseModel):
    """Something that is wrong."""

    kind: str
    seq: int | None
    detail: str


class VerifyAnswer(BaseModel):
    """What a check of a session found."""

    ok: bool
    findings: list[FindingAnswer]
    events: int
    replies_proved: int
    replies_not_proved: int


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
    }
