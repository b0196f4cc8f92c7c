"""Whether the process can serve: the database answers, and with the schema of this release, and so
does what the settings call required."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.core.errors import FoldlineError

#: Probes of several load balancers must not take the pool's connections.
CACHE_S: Final = 1.0
TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of one check."""

    is_ready: bool
    #: By check: ``ok``, or what is wrong.
    checks: dict[str, str]
    schema_revision: str | None = None


class CheckHealth:
    """Asks the database for its schema revision."""

    def __init__(
        self,
        *,
        read_revision: Callable[[], Awaitable[str | None]],
        expected_revision: str | None,
        required: Mapping[str, Callable[[], Awaitable[bool]]] | None = None,
    ) -> None:
        """Take, beside the database's, what tells whether each further thing answers, by name."""
        self._required = required or {}
        self._read_revision = read_revision
        self._expected = expected_revision
        self._until = 0.0
        self._last: Health | None = None
        self._turn = asyncio.Lock()

    async def __call__(self) -> Health:
        """Return the health, at most a second old."""
        async with self._turn:
            if self._last is None or time.monotonic() >= self._until:
                self._last = await self._check()
                self._until = time.monotonic() + CACHE_S
            return self._last

    async def _check(self) -> Health:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                revision = await self._read_revision()
        except (FoldlineError, TimeoutError):
            return Health(is_ready=False, checks={"database": "does not answer"})
        if revision != self._expected:
            schema = f"is at {revision}, {self._expected} is expected: run `foldline migrate`"
            checks = {"database": "ok", "schema": schema}
            return Health(is_ready=False, checks=checks, schema_revision=revision)
        checks = {"database": "ok", "schema": "ok"}
        for name, answers in self._required.items():
            checks[name] = "ok" if await answers() else "does not answer"
        is_ready = all(told == "ok" for told in checks.values())
        return Health(is_ready=is_ready, checks=checks, schema_revision=revision)
