"""How many requests are answered at a time: what comes beyond is told to come later.

A process that takes everything answers everything late, and callers that gave up ask again. So
there is a bound. Up to it requests wait for the processor and for a connection of the pool, as long
as this many take; beyond it the answer is 503 at once, before anything was read or done.
"""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.errors import error_response
from app.core.errors import OverloadedError

#: What is asked of a session or a tenant; probes and scrapes are answered always.
_PREFIX: Final = "/v1/"
#: Streams stay open, cost little meanwhile, and have limits of their own.
_STREAM: Final = "/events/stream"


class Admission:
    """ASGI: refuses requests beyond so many at a time."""

    def __init__(self, app: ASGIApp, *, most: int) -> None:
        """Take how many requests are answered at a time at most."""
        self.app = app
        self._most = most
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_counted(scope["path"]):
            await self.app(scope, receive, send)
            return
        if self._count >= self._most:
            refusal = error_response(scope["path"], OverloadedError(limit=self._most))
            await refusal(scope, receive, send)
            return
        self._count += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._count -= 1


def _is_counted(path: str) -> bool:
    return path.startswith(_PREFIX) and not path.endswith(_STREAM)
