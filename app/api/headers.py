"""Headers of every answer, whatever gave it: what browsers may do with it, and rate limits."""

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Answers are data for programs: no browser shall run, frame, guess or keep them. What a route sets
#: itself stays.
SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: As ASGI has them.
_RAW: Final = tuple(
    (name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()
)


class AnswerHeaders:
    """Adds the headers. The outermost middleware, so that errors have them too."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                given = {name for name, _ in headers.raw}
                headers.raw.extend(each for each in _RAW if each[0] not in given)
                standing = scope.get("state", {}).get("rate_standing")
                if standing is not None and "RateLimit-Limit" not in headers:
                    limits = rate_limit_headers(
                        standing.limit.requests, standing.remaining, standing.reset_s
                    )
                    for name, value in limits.items():
                        headers[name] = value
            await send(message)

        await self.app(scope, receive, send_with_headers)


def rate_limit_headers(requests: int, remaining: int, reset_s: int) -> dict[str, str]:
    """Return what tells a caller where it stands with its limit."""
    return {
        "RateLimit-Limit": str(requests),
        "RateLimit-Remaining": str(remaining),
        "RateLimit-Reset": str(reset_s),
    }
