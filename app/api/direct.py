"""Routes that ask their dependencies themselves, instead of having FastAPI solve them.

For each request FastAPI works out again what every dependency takes: a tenth of what a compile
costs. Where all that an endpoint takes comes of dependencies that need the request alone, they are
called with it, in order; their signatures are still what the OpenAPI document tells.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from fastapi import Request, Response
from fastapi.params import Depends
from fastapi.routing import APIRoute

FromRequest: TypeAlias = Callable[[Request], Awaitable[Any]]
C = TypeVar("C", bound=Callable[..., Awaitable[Any]])

#: By the dependency whose signature is documented: what gives the same from the request alone.
_DIRECT: Final[dict[Callable[..., Any], FromRequest]] = {}


def direct(documented: C, from_request: FromRequest) -> C:
    """Return a dependency that :class:`DirectRoute` asks another way than FastAPI does.

    Args:
        documented: has every header and parameter in its signature.
        from_request: gives the same, and refuses the same.
    """
    _DIRECT[documented] = from_request
    return documented


class DirectRoute(APIRoute):
    """A route that calls its dependencies directly; any other is FastAPI's as always."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint as a function of the request."""
        calls = None if self.dependencies else _direct_calls(self.endpoint)
        if calls is None:
            return super().get_route_handler()
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint

        async def handle(request: Request) -> Response:
            return await endpoint(**{name: await call(request) for name, call in calls})

        return handle


def _direct_calls(endpoint: Callable[..., Any]) -> list[tuple[str, FromRequest]] | None:
    """Return what gives each argument of an endpoint; None where one needs more than the
    request."""
    hints = get_type_hints(endpoint, include_extras=True)
    calls: list[tuple[str, FromRequest]] = []
    for name in inspect.signature(endpoint).parameters:
        call = _direct_call(hints[name])
        if call is None:
            return None
        calls.append((name, call))
    return calls


def _direct_call(hint: object) -> FromRequest | None:
    found = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    dependency = next((each.dependency for each in found if isinstance(each, Depends)), None)
    if dependency is None:
        return None
    if dependency in _DIRECT:
        return _DIRECT[dependency]
    hints = get_type_hints(dependency)
    takes = [hints.get(name) for name in inspect.signature(dependency).parameters]
    return dependency if takes == [Request] else None
