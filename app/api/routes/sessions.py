"""Sessions, the policies of apps, and state."""

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.answers import json_answer
from app.api.bodies import JsonBody, json_body, request_body
from app.api.cursors import make_cursor, read_cursor
from app.api.dependencies import (
    Caller,
    Idempotency,
    IfMatch,
    ServicesHere,
    SessionHere,
    key_of,
    requires,
)
from app.api.encoded_paths import EncodedPathRoute
from app.api.schemas.fields import Word
from app.api.schemas.policies import PolicyAnswer, PolicyRequest
from app.api.schemas.sessions import (
    ForkRequest,
    NewSessionRequest,
    SessionAnswer,
    SessionPatch,
    SessionsPage,
    SessionsQuery,
    session_answer,
)
from app.core.errors import InvalidInputError
from app.services.sessions import Fork, SessionFilter

router: Final = APIRouter(route_class=EncodedPathRoute)

METADATA_PREFIX: Final = "metadata."
CAN_READ: Final = [Depends(requires("events:read"))]
CAN_WRITE: Final = [Depends(requires("events:write"))]
CAN_ADMINISTER: Final = [Depends(requires("admin"))]

AppInPath: TypeAlias = Annotated[
    Word, Path(alias="app", description="Name of an app; a `/` as `%2F`.")
]
UserInPath: TypeAlias = Annotated[
    Word, Path(alias="user", description="Id of a user; a `/` as `%2F`.")
]


@router.put(
    "/v1/sessions/{sid}",
    dependencies=CAN_WRITE,
    responses={200: {"model": SessionAnswer}, 201: {"model": SessionAnswer}},
    openapi_extra=request_body(NewSessionRequest),
)
async def open_session(
    bundle: ServicesHere,
    key: SessionHere,
    body: Annotated[JsonBody[NewSessionRequest], Depends(json_body(NewSessionRequest))],
    if_none_match: Annotated[
        str | None,
        Header(alias="If-None-Match", description="`*`: only make a session, never get one."),
    ] = None,
) -> Response:
    """Get a session, or create it; with `If-None-Match: *` create only."""
    must_be_new = (if_none_match or "").strip() == "*"
    view = await bundle.sessions.open(key, body.model.to_domain(), must_be_new=must_be_new)
    status = 201 if view.is_new else 200
    return json_answer(session_answer(view), status=status, head_seq=view.row.head_seq)


@router.get("/v1/sessions/{sid}", dependencies=CAN_READ, response_model=SessionAnswer)
async def get_session(bundle: ServicesHere, key: SessionHere) -> Response:
    """Return a session."""
    view = await bundle.sessions.get(key)
    return json_answer(session_answer(view), head_seq=view.row.head_seq)


@router.patch(
    "/v1/sessions/{sid}",
    dependencies=CAN_WRITE,
    response_model=SessionAnswer,
    openapi_extra=request_body(SessionPatch),
)
async def change_session(
    bundle: ServicesHere,
    key: SessionHere,
    body: Annotated[JsonBody[SessionPatch], Depends(json_body(SessionPatch))],
    expected_seq: IfMatch,
) -> Response:
    """Change policy, metadata or time to live by merge patch; a policy change is an event."""
    view = await bundle.sessions.change(body.model.to_domain(key, expected_seq))
    return json_answer(session_answer(view), head_seq=view.row.head_seq)


@router.delete("/v1/sessions/{sid}", dependencies=CAN_WRITE, status_code=204)
async def erase_session(
    bundle: ServicesHere, key: SessionHere, caller: Caller, expected_seq: IfMatch
) -> Response:
    """Erase a session and everything made from it; audited."""
    await bundle.sessions.erase(key, actor=caller.key_id, expected_seq=expected_seq)
    return Response(status_code=204)


@router.get(
    "/v1/sessions",
    dependencies=CAN_READ,
    response_model=SessionsPage,
    openapi_extra={
        "parameters": [
            {
                "in": "query",
                "name": name,
                "description": schema.pop("description"),
                "schema": schema,
                "required": False,
            }
            for name, schema in SessionsQuery.model_json_schema()["properties"].items()
        ]
    },
)
async def list_sessions(bundle: ServicesHere, caller: Caller, request: Request) -> Response:
    """List sessions by their last change; `metadata.<key>=<text>` filters by metadata."""
    query, metadata = _sessions_query(request)
    binding: dict[str, Any] = {
        **query.model_dump(include={"app_name", "user_id", "updated_after", "order"}),
        "metadata": metadata,
    }
    after = None
    if query.after is not None:
        after = _session_position(read_cursor(query.after, binding, pointer="/query/after"))
    views = await bundle.sessions.list_sessions(
        SessionFilter(
            tenant_id=caller.tenant_id,
            app_name=query.app_name,
            user_id=query.user_id,
            updated_after=query.updated_after,
            metadata=metadata,
            after=after,
            limit=query.limit + 1,
            descending=query.order == "desc",
        )
    )
    page = views[: query.limit]
    has_more = len(views) > query.limit
    cursor = None
    if has_more:
        last = page[-1].row
        cursor = make_cursor([last.updated_at.isoformat(), last.key.session_id], binding)
    return json_answer(
        {"data": [session_answer(view) for view in page], "next": cursor, "has_more": has_more}
    )


def _sessions_query(request: Request) -> tuple[SessionsQuery, dict[str, str]]:
    values: dict[str, str] = {}
    metadata: dict[str, str] = {}
    for name, value in request.query_params.items():
        if "\0" in name + value:
            raise InvalidInputError("must not hold NUL characters", pointer=f"/query/{name}")
        if name.startswith(METADATA_PREFIX):
            metadata[name.removeprefix(METADATA_PREFIX)] = value
        else:
            values[name] = value
    try:
        return SessionsQuery.model_validate(values), metadata
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**item, "loc": ("query", *item["loc"])} for item in found]
        ) from None


def _session_position(position: list[Any]) -> tuple[datetime, str]:
    try:
        updated_at, session_id = position
        return datetime.fromisoformat(updated_at), str(session_id)
    except (TypeError, ValueError):
        raise InvalidInputError("not a cursor", pointer="/query/after") from None


@router.post(
    "/v1/sessions/{sid}/fork",
    dependencies=CAN_WRITE,
    status_code=201,
    response_model=SessionAnswer,
    openapi_extra=request_body(ForkRequest),
)
async def fork_session(
    bundle: ServicesHere,
    key: SessionHere,
    caller: Caller,
    body: Annotated[JsonBody[ForkRequest], Depends(json_body(ForkRequest))],
    header: Idempotency,
) -> Response:
    """Make a session that begins with the first events of this one."""
    view = await bundle.sessions.fork(
        Fork(
            key=key,
            new_key=key_of(caller, body.model.new_id),
            at_seq=body.model.at_seq,
            metadata=body.model.metadata,
            idempotent=header.of(body.digest),
        )
    )
    return json_answer(
        session_answer(view),
        status=201,
        head_seq=view.row.head_seq,
        is_replayed=view.is_replayed,
    )


@router.get("/v1/sessions/{sid}/state", dependencies=CAN_READ)
async def get_state(bundle: ServicesHere, key: SessionHere) -> Response:
    """Return the merged state of a session, keys with their prefixes."""
    view = await bundle.sessions.get(key)
    return json_answer(dict(view.state), head_seq=view.row.head_seq)


@router.get(
    "/v1/apps/{app}/policy",
    dependencies=[Depends(requires("events:read", "admin"))],
    response_model=PolicyAnswer,
)
async def get_app_policy(bundle: ServicesHere, caller: Caller, app_name: AppInPath) -> Response:
    """Return the default policy of an app's sessions."""
    return json_answer(await bundle.apps.policy(caller.tenant_id, app_name))


@router.put(
    "/v1/apps/{app}/policy",
    dependencies=CAN_ADMINISTER,
    response_model=PolicyAnswer,
    openapi_extra=request_body(PolicyRequest),
)
async def put_app_policy(
    bundle: ServicesHere,
    caller: Caller,
    app_name: AppInPath,
    body: Annotated[JsonBody[PolicyRequest], Depends(json_body(PolicyRequest))],
) -> Response:
    """Replace the default policy of an app's sessions."""
    policy = body.model.to_domain()
    await bundle.apps.set_policy(caller.tenant_id, app_name, policy, actor=caller.key_id)
    return json_answer(policy)


@router.get("/v1/apps/{app}/state", dependencies=CAN_READ)
async def get_app_state(bundle: ServicesHere, caller: Caller, app_name: AppInPath) -> Response:
    """Return the raw keys of an app."""
    return json_answer(dict(await bundle.apps.state(caller.tenant_id, app_name)))


@router.get("/v1/apps/{app}/users/{user}/state", dependencies=CAN_READ)
async def get_user_state(
    bundle: ServicesHere,
    caller: Caller,
    app_name: AppInPath,
    user_id: UserInPath,
) -> Response:
    """Return the raw keys of a user of an app."""
    return json_answer(dict(await bundle.apps.state(caller.tenant_id, app_name, user_id)))


@router.delete("/v1/apps/{app}/users/{user}/state", dependencies=CAN_WRITE, status_code=204)
async def erase_user_state(
    bundle: ServicesHere,
    caller: Caller,
    app_name: AppInPath,
    user_id: UserInPath,
) -> Response:
    """Erase the keys of a user of an app, which outlive the user's sessions; audited."""
    await bundle.apps.erase_user_state(caller.tenant_id, app_name, user_id, actor=caller.key_id)
    return Response(status_code=204)
