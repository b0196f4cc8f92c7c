"""One JSON request to a model provider, and what httpx and HTTP say translated into our errors.

The address comes from the settings alone, redirects are not followed, and neither proxies nor
credentials are taken from the environment: nothing that a tenant writes decides where a
conversation is sent. Neither the body nor the answer is ever part of an error's text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import httpx
import orjson

from app.core.errors import (
    ProviderError,
    ProviderRateLimitedError,
    ProviderRejectedError,
    ProviderTimeoutError,
    ProviderUnavailableError,
)
from app.providers.retry import Retries

#: A summary is some thousand tokens; more than this is not one.
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
CONNECT_TIMEOUT_S: Final = 10.0
DEFAULT_TIMEOUT_S: Final = 120.0

#: Statuses of requests that may succeed later, beside all from 500 on.
_LATER: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.CONFLICT})


def new_client() -> httpx.AsyncClient:
    """Return the client that all providers of a process share; close it at the end."""
    return httpx.AsyncClient(follow_redirects=False, trust_env=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonApi:
    """A provider's address, with what every request to it needs."""

    client: httpx.AsyncClient
    #: Without a slash at its end.
    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    #: Of a whole request with its retries, when the prompt does not say.
    timeout_s: float = DEFAULT_TIMEOUT_S
    retries: Retries = field(default_factory=Retries)

    async def post(
        self, path: str, body: Mapping[str, object], *, timeout_s: float | None
    ) -> Mapping[str, Any]:
        """Return the JSON object that the provider answers.

        Raises:
            ProviderError: it answers none.
        """
        limit_s = timeout_s or self.timeout_s

        async def request() -> Mapping[str, Any]:
            return await self._post_once(path, body, limit_s)

        return await self.retries.run(request, timeout_s=limit_s)

    async def _post_once(
        self, path: str, body: Mapping[str, object], timeout_s: float
    ) -> Mapping[str, Any]:
        try:
            async with self.client.stream(
                "POST",
                f"{self.base_url}{path}",
                content=orjson.dumps(body),
                headers={**self.headers, "content-type": "application/json"},
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
            ) as response:
                if response.status_code != HTTPStatus.OK:
                    raise _error_of(response)
                answer = await _read(response)
        except httpx.TimeoutException as error:
            raise ProviderTimeoutError from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            is_unsent = isinstance(error, httpx.ConnectError)
            raise ProviderUnavailableError(
                type(error).__name__, may_have_cost=not is_unsent
            ) from error
        except httpx.InvalidURL as error:
            raise ProviderRejectedError("the provider's URL is not valid") from error
        return _object(answer)


async def _read(response: httpx.Response) -> bytes:
    chunks: list[bytes] = []
    size_bytes = 0
    async for chunk in response.aiter_bytes():
        size_bytes += len(chunk)
        if size_bytes > MAX_ANSWER_BYTES:
            raise ProviderRejectedError("the answer is too long")
        chunks.append(chunk)
    return b"".join(chunks)


def _object(answer: bytes) -> Mapping[str, Any]:
    try:
        value = orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        raise ProviderRejectedError("the answer is not JSON") from error
    if not isinstance(value, dict):
        raise ProviderRejectedError("the answer is not an object")
    if value.get("error"):
        # Some gateways tell of failures with status 200.
        raise ProviderRejectedError("the answer is an error")
    return value


def _error_of(response: httpx.Response) -> ProviderError:
    status = response.status_code
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return ProviderRateLimitedError(retry_after_s=retry_after_s(response.headers))
    if status in _LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ProviderUnavailableError(f"status {status}", may_have_cost=False)
    return ProviderRejectedError(f"status {status}", status=status)


def retry_after_s(headers: httpx.Headers) -> float | None:
    """Return how long the provider asks to wait: in seconds, or until a time by its own clock."""
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        until, now = (parsedate_to_datetime(text) for text in (value, headers.get("date", "")))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None


def answer_text(parts: object, *, key: str = "text") -> str:
    """Return the texts of a list of parts, joined; a string as it is; nothing for anything else."""
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, list):
        return ""
    texts = (part.get(key) for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def member(value: object, *path: str | int) -> object:
    """Return what stands at a path of keys and indexes, None when there is no such place."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def number(value: object, *path: str | int) -> int:
    """Return the count at a path, 0 when there is none, or one that is no count."""
    found = member(value, *path)
    return max(0, found) if isinstance(found, int) and not isinstance(found, bool) else 0
