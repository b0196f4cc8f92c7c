"""Routes that take a name with a slash in it, sent as `%2F`.

    /v1/apps/a%2Fb/users/org%2Fada/state     app `a/b`, user `org/ada`

A server decodes the path before it is routed, and then a slash in a name looks like one between
names: the app `a/users/b` would be read as the user `b` of the app `a`. So these are matched as
they were sent, and each name is decoded by itself.
"""

from collections.abc import MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from fastapi.routing import APIRoute
from starlette.routing import Match

Scope: TypeAlias = MutableMapping[str, Any]


class EncodedPathRoute(APIRoute):
    """A route of which every parameter is one segment of the path, whatever it holds."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the path as it was sent, where that tells more than the decoded one."""
        sent = scope.get("raw_path") or b""
        if b"%2f" not in sent.lower():
            return super().matches(scope)
        match, child = super().matches({**scope, "path": sent.decode("ascii", "replace")})
        if match is not Match.NONE:
            params = child["path_params"]
            child["path_params"] = {
                name: unquote(value) if isinstance(value, str) else value
                for name, value in params.items()
            }
        return match, child
