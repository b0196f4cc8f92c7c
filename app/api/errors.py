"""Error type to status and body: the one table. Bodies are problem+json (RFC 9457).

{"type": "about:blank", "title": "Precondition Failed", "status": 412, "code": "head_moved",
 "detail": "expected the head at 3, it is at 5", "instance": "/v1/sessions/s/events",
 "errors": [], "head_seq": 5}
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import orjson
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.api.headers import rate_limit_headers
from app.core import errors
from app.core.canonical import clean_text
from app.core.json_text import pointer_to

MEDIA_TYPE: Final = "application/problem+json"

#: The most specific class wins.
STATUSES: Final[Mapping[type[errors.FoldlineError], int]] = {
    errors.MalformedBodyError: 400,
    errors.InvalidInputError: 422,
    errors.NotFoundError: 404,
    errors.ConflictError: 409,
    errors.ConcurrentAppendError: 412,
    errors.SessionExistsError: 412,
    errors.IdempotencyMismatchError: 422,
    errors.UnauthenticatedError: 401,
    errors.ForbiddenError: 403,
    errors.TenantDisabledError: 403,
    errors.QuotaExceededError: 403,
    errors.RateLimitedError: 429,
    errors.StreamLimitError: 429,
    errors.BodyTimeoutError: 408,
    errors.TooLargeError: 413,
    errors.BudgetExceededError: 422,
    errors.PipelineError: 422,
    errors.StorageUnavailableError: 503,
    errors.OverloadedError: 503,
    errors.FoldlineError: 500,
}

#: Statuses that the framework raises itself.
CODES: Final[Mapping[int, str]] = {
    400: "invalid_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
}

RETRY_AFTER_S: Final = 1

log = structlog.get_logger(__name__)


class UnsupportedMediaTypeError(errors.InvalidInputError):
    """The body's type or encoding is not supported."""

    code = "unsupported_media_type"


def status_of(error: errors.FoldlineError) -> int:
    """Return the status of an error."""
    if isinstance(error, UnsupportedMediaTypeError):
        return 415
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem(
    request_path: str,
    *,
    status: int,
    code: str,
    detail: str,
    places: Sequence[tuple[str, str]] = (),
    members: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem body.

    Args:
        places: JSON pointers into the request, each with what is wrong there.
        members: typed members beside the standard ones.
    """
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": clean_text(detail),
        "instance": clean_text(request_path),
        "errors": [
            {"pointer": clean_text(pointer), "detail": clean_text(text)} for pointer, text in places
        ],
        **(members or {}),
    }
    return Response(
        orjson.dumps(body, default=str), status, media_type=MEDIA_TYPE, headers=dict(headers or {})
    )


def error_response(path: str, error: errors.FoldlineError) -> Response:
    """Return the answer for one of our errors."""
    status = status_of(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not error.retryable:
        log.error("request_failed", code=error.code, exc_info=error)
        return internal_error(path)
    members = dict(error.members())
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
        members["retry_after_s"] = RETRY_AFTER_S
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        headers["Retry-After"] = str(members["retry_after_s"])
    if isinstance(error, errors.RateLimitedError):
        headers |= rate_limit_headers(error.requests, 0, error.retry_after_s)
    pointer = getattr(error, "pointer", "")
    # The empty pointer is the whole body, of which something is missing.
    is_placed = bool(pointer) or isinstance(error, errors.InvalidInputError)
    places = [(pointer, error.detail)] if is_placed else []
    return problem(
        path,
        status=status,
        code=error.code,
        detail=error.detail,
        places=places,
        members=members,
        headers=headers,
    )


def internal_error(path: str) -> Response:
    """Return the answer for a bug: nothing of it is told."""
    return problem(path, status=500, code="internal", detail="something went wrong on our side")


def add_error_handlers(app: FastAPI) -> None:
    """Make every error of the application a problem body."""
    app.add_exception_handler(errors.FoldlineError, _on_foldline_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


async def _on_foldline_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.FoldlineError)
    return error_response(request.url.path, error)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return validation_problem(request.url.path, error.errors())


def validation_problem(path: str, found: Sequence[Any]) -> Response:
    """Return the answer for what Pydantic found: each place with its message."""
    places = [(_pointer(item["loc"]), str(item["msg"])) for item in found]
    pointer, text = places[0] if places else ("", "the request is not valid")
    detail = f"{pointer.lstrip('/')}: {text}" if pointer else text
    return problem(path, status=422, code="invalid_request", detail=detail, places=places)


def _pointer(location: Sequence[str | int]) -> str:
    # FastAPI says first where the value came from; only bodies are pointed into by path alone.
    source, *rest = location or ("",)
    if source == "body":
        return pointer_to(*rest)
    return pointer_to(*location)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "invalid_request")
    return problem(
        request.url.path,
        status=error.status_code,
        code=code,
        detail=str(error.detail),
        headers=error.headers,
    )
