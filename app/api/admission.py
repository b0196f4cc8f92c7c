"""How many requests are answered at a time: what comes beyond is told to come later.

A process that takes everything answers everything late, and callers that gave up ask again. So
there is a bound. Up to it requests wait for the processor and for a connection of the pool, as long
as this many take; beyond it the answer is 503 at once, before anything was read or done.

    all places taken -> one of them waits for its body -> it makes room: the newcomer is answered
                     -> none does                      -> the newcomer comes later

Who waits for bytes does no work, and bodies that stop must not shut out who has sent his. So of
those that wait the tenant with the most gives a place up, and the one that has waited longest. The
bound thereby also bounds how many bodies are in memory. A body has its time, too; and an answer
that is ready has no place any more, because how soon it is taken is the client's.
"""

import asyncio
from collections import Counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import error_response
from app.core.errors import BodyTimeoutError, OverloadedError

#: What is asked of a session or a tenant; probes and scrapes are answered always.
_PREFIX: Final = "/v1/"
#: Streams stay open, cost little meanwhile, and have limits of their own.
_STREAM: Final = "/events/stream"


class Admission:
    """ASGI: refuses requests beyond so many at a time, and bodies that take too long."""

    def __init__(self, app: ASGIApp, *, most: int, body_timeout_s: float) -> None:
        """Take how many requests are answered at a time, and how long a body may take to come."""
        self.app = app
        self._most = most
        self._body_timeout_s = body_timeout_s
        #: The oldest first.
        self._admitted: dict[_Admitted, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_counted(scope["path"]):
            await self.app(scope, receive, send)
            return
        if len(self._admitted) >= self._most and not self._makes_room():
            refusal = error_response(scope["path"], OverloadedError(limit=self._most))
            await refusal(scope, receive, send)
            return
        request = _Admitted(scope, receive, timeout_s=self._body_timeout_s)
        self._admitted[request] = None

        async def send_without_a_place(message: Message) -> None:
            self._admitted.pop(request, None)
            if message["type"] == "http.response.start" and request.is_given_up:
                # What still comes on it is the rest of a body.
                message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await send(message)

        try:
            await self.app(scope, request.receive, send_without_a_place)
        finally:
            self._admitted.pop(request, None)

    def _makes_room(self) -> bool:
        """End the wait of one that waits for its body, if there is one."""
        waiting = [request for request in self._admitted if request.is_waiting]
        if not waiting:
            return False
        ((tenant_id, _),) = Counter(request.tenant_id for request in waiting).most_common(1)
        request = next(each for each in waiting if each.tenant_id == tenant_id)
        request.give_up(OverloadedError(limit=self._most))
        del self._admitted[request]
        return True


class _Admitted:
    """A request that has a place, and its body while it comes."""

    def __init__(self, scope: Scope, receive: Receive, *, timeout_s: float) -> None:
        self._scope = scope
        self._receive = receive
        self._timeout_s = timeout_s
        self._until_s: float | None = None
        self._is_whole = False
        self._wait: asyncio.Timeout | None = None
        self._error: BodyTimeoutError | OverloadedError | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether bytes of the body are all that it waits for."""
        return self._wait is not None and not self._wait.expired() and self._error is None

    @property
    def is_given_up(self) -> bool:
        """Whether its body was not waited for to the end."""
        return self._error is not None

    @property
    def tenant_id(self) -> str | None:
        """Whose it is; a body is asked for only after the key."""
        tenant_id: str | None = self._scope.get("state", {}).get("tenant_id")
        return tenant_id

    def give_up(self, error: OverloadedError) -> None:
        """Have the wait end with an error, now."""
        assert self._wait is not None
        self._error = error
        self._wait.reschedule(asyncio.get_running_loop().time())

    async def receive(self) -> Message:
        """Return what comes next.

        Raises:
            BodyTimeoutError: the body's time is over.
            OverloadedError: another needed the place.
        """
        if self._is_whole:
            return await self._receive()
        if self._until_s is None:
            self._until_s = asyncio.get_running_loop().time() + self._timeout_s
        message: Message = {}
        try:
            async with asyncio.timeout_at(self._until_s) as self._wait:
                message = await self._receive()
        except TimeoutError:
            self._error = self._error or BodyTimeoutError(limit_s=self._timeout_s)
        finally:
            self._wait = None
        if self._error is not None:
            raise self._error
        self._is_whole = not message.get("more_body", False)
        return message


def _is_counted(path: str) -> bool:
    return path.startswith(_PREFIX) and not path.endswith(_STREAM)
