"""Around every request: its id, the last error handler, and compressed answers. Plain ASGI."""

import gzip
import time
from collections.abc import Callable
from typing import Final
from uuid import uuid4

import structlog
import zstandard
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import internal_error

#: Smaller answers gain nothing.
MIN_COMPRESSED_BYTES: Final = 1024
#: Speed matters more than the last percent.
GZIP_LEVEL: Final = 3
ZSTD_LEVEL: Final = 3
MAX_REQUEST_ID_CHARACTERS: Final = 128

log = structlog.get_logger(__name__)


class RequestContext:
    """Binds the request's id, echoes it, and answers what nothing else caught."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        trace = headers.get("traceparent")
        status = 0
        started_s = time.perf_counter()

        async def send_with_ids(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer["X-Request-Id"] = request_id
                if trace:
                    answer["traceparent"] = trace
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, send_with_ids)
            # The top handler: a bug answers 500 and tells nothing.
            except Exception:
                log.exception("request_failed")
                if not status:
                    await internal_error(scope["path"])(scope, receive, send_with_ids)
            log.debug(
                "request_handled",
                method=scope["method"],
                # The template, not the path: ids are the caller's.
                route=getattr(scope.get("route"), "path", None),
                status=status,
                duration_ms=round((time.perf_counter() - started_s) * 1000, 1),
            )


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    is_usable = given.isascii() and given.isprintable()
    if given and is_usable and len(given) <= MAX_REQUEST_ID_CHARACTERS:
        return given
    return uuid4().hex


class Compression:
    """Compresses answers for who asks. All our answers are whole when they start."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        encoding = _wanted_encoding(Headers(scope=scope).get("accept-encoding", ""))
        if encoding is None:
            await self.app(scope, receive, send)
            return
        start: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start is None:
                await send(message)
                return
            body = message.get("body", b"")
            answer = MutableHeaders(scope=start)
            is_whole = not message.get("more_body", False)
            if is_whole and len(body) >= MIN_COMPRESSED_BYTES and "content-encoding" not in answer:
                body = ENCODERS[encoding](body)
                answer["Content-Encoding"] = encoding
                answer["Content-Length"] = str(len(body))
                message = {**message, "body": body}
            answer.add_vary_header("Accept-Encoding")
            await send(start)
            start = None
            await send(message)

        await self.app(scope, receive, send_compressed)


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, GZIP_LEVEL, mtime=0)


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)


#: In the order of preference.
ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {"zstd": _zstd, "gzip": _gzip}


def _wanted_encoding(accepted: str) -> str | None:
    """Return the encoding that the caller takes and that we prefer, None for plain."""
    taken: set[str] = set()
    for item in accepted.split(","):
        name, _, parameters = item.strip().partition(";")
        is_refused = parameters.replace(" ", "").lower() in ("q=0", "q=0.0", "q=0.00", "q=0.000")
        if not is_refused:
            taken.add(name.strip().lower())
    return next((name for name in ENCODERS if name in taken), None)
