"""What routes may ask for: the caller, the session's key, conditions, idempotency, the services.

All of them are coroutines: plain functions would each be run in a thread of their own.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import structlog
from fastapi import Depends, Header, Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from app.api.direct import direct
from app.api.schemas.fields import MAX_SEQ, Authorization, SessionId, SessionIdText
from app.core.canonical import clean_text
from app.core.errors import ForbiddenError, InvalidInputError
from app.core.ids import session_uid
from app.ports import Principal, SessionKey
from app.services.bundle import Services
from app.services.idempotency import IdempotentRequest

_ETAG: Final = re.compile(r'(?:W/)?"(\d{1,19})"')
MAX_IDEMPOTENCY_KEY_CHARACTERS: Final = 255
_SESSION_ID: Final[TypeAdapter[str]] = TypeAdapter(SessionIdText)


async def services(request: Request) -> Services:
    """Return the services of the application."""
    bundle: Services = request.app.state.services
    return bundle


ServicesHere: TypeAlias = Annotated[Services, Depends(services)]


async def principal(request: Request, authorization: Authorization = None) -> Principal:
    """Return who is asking, if it may ask now."""
    bundle = await services(request)
    caller = await bundle.authenticate(bearer_key(authorization))
    structlog.contextvars.bind_contextvars(tenant_id=caller.tenant_id)
    request.state.tenant_id = caller.tenant_id
    request.state.rate_standing = await bundle.limit_rates(caller)
    return caller


def bearer_key(authorization: str | None) -> str | None:
    """Return the key of an Authorization header."""
    scheme, _, key = (authorization or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


Caller: TypeAlias = Annotated[Principal, Depends(principal)]


def requires(*scopes: str) -> Callable[[Principal], Awaitable[None]]:
    """Return the dependency that lets only keys with one of these scopes pass."""

    async def check(caller: Caller) -> None:
        check_scope(caller, *scopes)

    return check


def check_scope(caller: Principal, *scopes: str) -> None:
    """Refuse a key that has none of these scopes.

    Raises:
        ForbiddenError: naming the first.
    """
    if not caller.scopes.intersection(scopes):
        raise ForbiddenError(scope=scopes[0])


def key_of(caller: Principal, session_id: str) -> SessionKey:
    """Return a session's key: of the caller's tenant, always."""
    uid = session_uid(caller.tenant_id, session_id)
    return SessionKey(caller.tenant_id, session_id, uid)


async def session_key(caller: Caller, sid: SessionId) -> SessionKey:
    """Return the key of the session in the path."""
    structlog.contextvars.bind_contextvars(session_id=sid)
    return key_of(caller, sid)


SessionHere: TypeAlias = Annotated[SessionKey, Depends(session_key)]


IfMatchHeader: TypeAlias = Annotated[
    str | None,
    Header(alias="If-Match", description="ETag at which the head must still be, else 412."),
]


async def if_match(value: IfMatchHeader = None) -> int | None:
    """Return the head that the writer believes in."""
    if value is None or value.strip() == "*":
        return None
    match = _ETAG.fullmatch(value.strip())
    if match is None or int(match[1]) > MAX_SEQ:
        detail = 'If-Match must be an ETag of this API, as in "12"'
        raise InvalidInputError(detail, pointer="/header/If-Match")
    return int(match[1])


IfMatch: TypeAlias = Annotated[int | None, Depends(if_match)]


def expected(in_body: int | None, in_header: int | None) -> int | None:
    """Return the expectation of a request, which may stand in either place."""
    if in_body is not None and in_header is not None and in_body != in_header:
        raise InvalidInputError("expected_seq and If-Match differ", pointer="/expected_seq")
    return in_header if in_body is None else in_body


@dataclass(frozen=True, slots=True)
class IdempotencyHeader:
    """The idempotency key of a request, if it has one."""

    tenant_id: str
    #: Empty without a key.
    route: str
    idempotency_key: str | None

    def of(self, digest: bytes) -> IdempotentRequest | None:
        """Return the request as the services know it."""
        if self.idempotency_key is None:
            return None
        return IdempotentRequest(
            tenant_id=self.tenant_id,
            route=self.route,
            idempotency_key=self.idempotency_key,
            request_hash=digest,
        )


IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="The same key and body again, within a day, change nothing more, and are"
        " answered as the first time. Of a compile it is about what it appends: the log is compiled"
        " as of then.",
    ),
]


async def idempotency(
    request: Request, caller: Caller, key: IdempotencyKey = None
) -> IdempotencyHeader:
    """Return the idempotency key."""
    if key is None:
        return IdempotencyHeader(caller.tenant_id, "", None)
    is_usable = 0 < len(key) <= MAX_IDEMPOTENCY_KEY_CHARACTERS and clean_text(key) == key
    if not is_usable:
        detail = f"Idempotency-Key must have 1 to {MAX_IDEMPOTENCY_KEY_CHARACTERS} characters"
        raise InvalidInputError(detail, pointer="/header/Idempotency-Key")
    return IdempotencyHeader(caller.tenant_id, f"{request.method} {request.url.path}", key)


Idempotency: TypeAlias = Annotated[IdempotencyHeader, Depends(idempotency)]


@dataclass(frozen=True, slots=True)
class SessionWrite:
    """Who changes which session, and under what conditions."""

    caller: Principal
    key: SessionKey
    idempotency: IdempotencyHeader
    #: From the header; see :func:`expected`.
    expected_seq: int | None


def writes(*scopes: str) -> Callable[..., Awaitable[SessionWrite]]:
    """Return the dependency of routes that change a session, for keys with one of these scopes.

    One for all that such a route asks: what depends on the caller would have the caller solved
    again each time, and that was a tenth of what a compile costs.
    """

    async def read(
        request: Request,
        sid: SessionId,
        authorization: Authorization = None,
        idempotency_key: IdempotencyKey = None,
        match: IfMatchHeader = None,
    ) -> SessionWrite:
        caller = await principal(request, authorization)
        check_scope(caller, *scopes)
        return SessionWrite(
            caller=caller,
            key=await session_key(caller, sid),
            idempotency=await idempotency(request, caller, idempotency_key),
            expected_seq=await if_match(match),
        )

    async def read_directly(request: Request) -> SessionWrite:
        headers = request.headers
        return await read(
            request,
            _checked_sid(request.path_params["sid"]),
            headers.get("authorization"),
            headers.get("idempotency-key"),
            headers.get("if-match"),
        )

    return direct(read, read_directly)


def _checked_sid(sid: str) -> str:
    try:
        return _SESSION_ID.validate_python(sid)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**each, "loc": ("path", "sid")} for each in found]) from None
