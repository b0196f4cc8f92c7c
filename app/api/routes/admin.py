"""Tenants, keys and the audit log: for administrators of a tenant, and operators of all."""

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Response

from app.api.answers import json_answer
from app.api.bodies import JsonBody, json_body, request_body
from app.api.cursors import make_cursor, read_cursor
from app.api.dependencies import Caller, ServicesHere, SessionHere, requires
from app.api.encoded_paths import EncodedPathRoute
from app.api.schemas.admin import (
    AuditPage,
    AuditQuery,
    KeyAnswer,
    KeyId,
    KeysPage,
    KeysQuery,
    NewKeyRequest,
    NewTenantRequest,
    PageQuery,
    RotateRequest,
    ShownKeyAnswer,
    TenantAnswer,
    TenantId,
    TenantPatch,
    TenantsPage,
    VerifyAnswer,
    audit_answer,
    key_answer,
    shown_key_answer,
    tenant_answer,
    verify_answer,
)
from app.api.schemas.fields import Word
from app.core.errors import InvalidInputError
from app.core.ids import session_uid
from app.services.manage_keys import OPERATOR, reachable_tenant

router: Final = APIRouter(route_class=EncodedPathRoute)

CAN_ADMINISTER: Final = [Depends(requires("admin"))]
CAN_OPERATE: Final = [Depends(requires(OPERATOR))]

RotateBody = Annotated[JsonBody[RotateRequest], Depends(json_body(RotateRequest, is_optional=True))]


@router.post(
    "/v1/admin/tenants",
    dependencies=CAN_OPERATE,
    status_code=201,
    response_model=TenantAnswer,
    openapi_extra=request_body(NewTenantRequest),
)
async def create_tenant(
    bundle: ServicesHere,
    caller: Caller,
    body: Annotated[JsonBody[NewTenantRequest], Depends(json_body(NewTenantRequest))],
) -> Response:
    """Make a tenant, with its limits."""
    model = body.model
    tenant = await bundle.tenants.create(
        model.id, rate_limit=model.rate_limit, quotas=model.domain_quotas, by=caller
    )
    return json_answer(tenant_answer(tenant), status=201)


@router.get("/v1/admin/tenants", dependencies=CAN_OPERATE, response_model=TenantsPage)
async def list_tenants(bundle: ServicesHere, query: Annotated[PageQuery, Query()]) -> Response:
    """List tenants by their id."""
    binding = {"list": "tenants"}
    after = None
    if query.after is not None:
        (after,) = _position(query.after, binding, str)
    found = await bundle.tenants.list(after=after, limit=query.limit + 1)
    page = found[: query.limit]
    cursor = make_cursor([page[-1].id], binding) if len(found) > query.limit else None
    return _page([tenant_answer(tenant) for tenant in page], cursor)


@router.get("/v1/admin/tenants/{tenant}", dependencies=CAN_OPERATE, response_model=TenantAnswer)
async def get_tenant(bundle: ServicesHere, tenant_id: TenantId) -> Response:
    """Return a tenant, and what it stores now."""
    view = await bundle.tenants.get(tenant_id)
    return json_answer(tenant_answer(view.tenant, view.usage))


@router.patch(
    "/v1/admin/tenants/{tenant}",
    dependencies=CAN_OPERATE,
    response_model=TenantAnswer,
    openapi_extra=request_body(TenantPatch),
)
async def change_tenant(
    bundle: ServicesHere,
    caller: Caller,
    tenant_id: TenantId,
    body: Annotated[JsonBody[TenantPatch], Depends(json_body(TenantPatch))],
) -> Response:
    """Change a tenant's limits by merge patch, disable it or let it in again."""
    tenant = await bundle.tenants.change(body.model.to_domain(tenant_id), by=caller)
    return json_answer(tenant_answer(tenant))


@router.post(
    "/v1/admin/keys",
    dependencies=CAN_ADMINISTER,
    status_code=201,
    response_model=ShownKeyAnswer,
    openapi_extra=request_body(NewKeyRequest),
)
async def create_key(
    bundle: ServicesHere,
    caller: Caller,
    body: Annotated[JsonBody[NewKeyRequest], Depends(json_body(NewKeyRequest))],
) -> Response:
    """Make a key; it is shown in this answer and never again."""
    shown = await bundle.keys.create(body.model.to_domain(caller), by=caller)
    return json_answer(shown_key_answer(shown), status=201)


@router.get("/v1/admin/keys", dependencies=CAN_ADMINISTER, response_model=KeysPage)
async def list_keys(
    bundle: ServicesHere, caller: Caller, query: Annotated[KeysQuery, Query()]
) -> Response:
    """List the keys of a tenant, oldest first."""
    tenant_id = reachable_tenant(caller, query.tenant_id)
    binding = {"list": "keys", "tenant_id": tenant_id}
    after = None
    if query.after is not None:
        created_at, key_id = _position(query.after, binding, datetime.fromisoformat, UUID)
        after = (created_at, key_id)
    found = await bundle.keys.list(tenant_id, after=after, limit=query.limit + 1)
    page = found[: query.limit]
    cursor = None
    if len(found) > query.limit:
        cursor = make_cursor([page[-1].created_at.isoformat(), str(page[-1].id)], binding)
    return _page([key_answer(key) for key in page], cursor)


@router.get("/v1/admin/keys/{id}", dependencies=CAN_ADMINISTER, response_model=KeyAnswer)
async def get_key(bundle: ServicesHere, caller: Caller, key_id: KeyId) -> Response:
    """Return a key, without its secret."""
    return json_answer(key_answer(await bundle.keys.get(key_id, by=caller)))


@router.delete("/v1/admin/keys/{id}", dependencies=CAN_ADMINISTER, status_code=204)
async def revoke_key(bundle: ServicesHere, caller: Caller, key_id: KeyId) -> Response:
    """End a key now; other replicas may believe it for ten seconds more."""
    await bundle.keys.revoke(key_id, by=caller)
    return Response(status_code=204)


@router.post(
    "/v1/admin/keys/{id}/rotate",
    dependencies=CAN_ADMINISTER,
    status_code=201,
    response_model=ShownKeyAnswer,
    openapi_extra=request_body(RotateRequest, is_required=False),
)
async def rotate_key(
    bundle: ServicesHere, caller: Caller, key_id: KeyId, body: RotateBody
) -> Response:
    """Make a key with the same rights; the old one ends after `overlap_s`."""
    shown = await bundle.keys.rotate(key_id, overlap_s=body.model.overlap_s, by=caller)
    return json_answer(shown_key_answer(shown), status=201)


@router.delete("/v1/admin/calibrations/{model}", dependencies=CAN_ADMINISTER, status_code=204)
async def forget_model(
    bundle: ServicesHere,
    caller: Caller,
    model: Annotated[Word, Path(description="Name of a model; a `/` as `%2F`.")],
) -> Response:
    """Forget what reports taught of a model: how it counts, and how much it takes."""
    await bundle.forget_model(model, by=caller)
    return Response(status_code=204)


@router.get("/v1/admin/audit", dependencies=CAN_ADMINISTER, response_model=AuditPage)
async def list_audit(
    bundle: ServicesHere, caller: Caller, query: Annotated[AuditQuery, Query()]
) -> Response:
    """List what administrators did and what was erased, newest first."""
    is_for_all = query.tenant_id is None and OPERATOR in caller.scopes
    tenant_id = None if is_for_all else reachable_tenant(caller, query.tenant_id)
    binding: dict[str, Any] = {
        "list": "audit",
        "tenant_id": tenant_id,
        **query.model_dump(include={"action", "session_id"}),
    }
    uid = None
    if query.session_id is not None:
        uid = session_uid(tenant_id or caller.tenant_id, query.session_id)
    before_id = None
    if query.after is not None:
        (before_id,) = _position(query.after, binding, int)
    found = await bundle.read_audit(
        tenant_id,
        action=query.action,
        session_uid=uid,
        before_id=before_id,
        limit=query.limit + 1,
    )
    page = found[: query.limit]
    cursor = make_cursor([page[-1].id], binding) if len(found) > query.limit else None
    return _page([audit_answer(entry) for entry in page], cursor)


@router.post(
    "/v1/admin/sessions/{sid}/verify", dependencies=CAN_ADMINISTER, response_model=VerifyAnswer
)
@router.get(
    "/v1/admin/sessions/{sid}/verify", dependencies=CAN_ADMINISTER, response_model=VerifyAnswer
)
async def verify_session(bundle: ServicesHere, key: SessionHere) -> Response:
    """Compare everything that is stored twice, and prove recorded fingerprints; changes nothing."""
    return json_answer(verify_answer(await bundle.verify_sessions(key)))


def _page(data: list[Any], cursor: str | None) -> Response:
    return json_answer({"data": data, "next": cursor, "has_more": cursor is not None})


def _position(cursor: str, binding: dict[str, Any], *kinds: Any) -> list[Any]:  # noqa: ANN401
    position = read_cursor(cursor, binding, pointer="/query/after")
    try:
        return [kind(value) for kind, value in zip(kinds, position, strict=True)]
    except (TypeError, ValueError):
        raise InvalidInputError("not a cursor", pointer="/query/after") from None
