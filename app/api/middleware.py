"""Around every request: its id, the last error handler, and compressed answers. Plain ASGI."""

import gzip
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from typing import Final
from uuid import uuid4

import structlog
import zstandard
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import internal_error
from app.observability.meter import Meter
from app.observability.tracing import SpanContext, Tracer, read_traceparent

#: Smaller answers gain nothing.
MIN_COMPRESSED_BYTES: Final = 1024
#: Speed matters more than the last percent.
GZIP_LEVEL: Final = 3
ZSTD_LEVEL: Final = 3
MAX_REQUEST_ID_CHARACTERS: Final = 128
#: What is said in place of the route where no route takes the path.
NO_ROUTE: Final = "none"

log = structlog.get_logger(__name__)


class InFlight:
    """The requests that are being answered now."""

    def __init__(self) -> None:
        self._scopes: dict[int, Scope] = {}
        self._known: set[str] = set()

    def add(self, scope: Scope) -> None:
        """Take a request. Which route it has will be seen in its scope."""
        self._scopes[id(scope)] = scope

    def remove(self, scope: Scope) -> None:
        """Take the end of its answer."""
        self._scopes.pop(id(scope), None)

    def by_route(self) -> Mapping[str, int]:
        """Return how many there are, by route; routes that had some once are told with 0."""
        counts = Counter(map(route_of, list(self._scopes.values())))
        self._known |= counts.keys()
        return {route: counts[route] for route in self._known}


def route_of(scope: Scope) -> str:
    """Return the template of the path, never the path: ids are the caller's."""
    return getattr(scope.get("route"), "path", NO_ROUTE)


class RequestContext:
    """Binds the request's id, echoes it, counts, and answers what nothing else caught."""

    def __init__(
        self, app: ASGIApp, *, meter: Meter, in_flight: InFlight, tracer: Tracer | None = None
    ) -> None:
        """Take, beside what counts, who is told of spans; None: nobody is."""
        self.app = app
        self._meter = meter
        self._tracer = tracer
        self._in_flight = in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self._in_flight.add(scope)
        try:
            await self._traced(scope, receive, send)
        finally:
            self._in_flight.remove(scope)

    async def _traced(self, scope: Scope, receive: Receive, send: Send) -> None:
        trace = Headers(scope=scope).get("traceparent")
        if self._tracer is None:
            with _bound_trace(read_traceparent(trace)):
                await self._answer(scope, receive, send, trace)
            return
        context, token = self._tracer.begin(trace)
        status = 500
        started_s = time.perf_counter()
        try:
            with _bound_trace(context):
                status = await self._answer(scope, receive, send, context.traceparent)
        finally:
            method, route = scope["method"], route_of(scope)
            self._tracer.end(
                context,
                token,
                f"{method} {route}",
                duration_s=time.perf_counter() - started_s,
                attributes={
                    "http.request.method": method,
                    "http.route": route,
                    "http.response.status_code": status,
                },
                is_error=status >= HTTPStatus.INTERNAL_SERVER_ERROR,
            )

    async def _answer(self, scope: Scope, receive: Receive, send: Send, trace: str | None) -> int:
        """Answer; return the status, 0 when nobody was there any more to be answered."""
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        status = answer_bytes = 0
        started_s = time.perf_counter()

        async def send_with_ids(message: Message) -> None:
            nonlocal status, answer_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer["X-Request-Id"] = request_id
                if trace:
                    answer["traceparent"] = trace
            else:
                answer_bytes += len(message.get("body", b""))
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, send_with_ids)
            # The top handler: a bug answers 500 and tells nothing.
            except Exception:
                log.exception("request_failed")
                if not status:
                    await internal_error(scope["path"])(scope, receive, send_with_ids)
            duration_s = time.perf_counter() - started_s
            route = route_of(scope)
            log.debug(
                "request_handled",
                method=scope["method"],
                route=route,
                status=status,
                duration_ms=round(duration_s * 1000, 1),
            )
        # Without a status nobody was there any more to be answered.
        if status:
            self._meter.answered(
                scope["method"],
                route,
                status,
                duration_s=duration_s,
                request_bytes=_length(headers),
                response_bytes=answer_bytes,
            )
        return status


def _bound_trace(context: SpanContext | None) -> AbstractContextManager[object]:
    """Have every line of the log name the trace, if there is one."""
    if context is None:
        return nullcontext()
    return structlog.contextvars.bound_contextvars(trace_id=context.trace_id)


def _length(headers: Headers) -> int | None:
    """Return the size of the body, None where it comes in pieces and nobody has said."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit():
        return int(length)
    return None if "transfer-encoding" in headers else 0


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
