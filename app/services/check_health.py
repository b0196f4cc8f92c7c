"""Whether the process can serve: the database answers, with the schema of this release or a newer
one, and so does what the settings call required."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from app.core.copying import replace
from app.core.errors import FoldlineError, StorageError
from app.observability.repeats import Repeats

#: Probes of several load balancers must not take the pool's connections.
CACHE_S: Final = 1.0
TIMEOUT_S: Final = 1.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of one check."""

    is_ready: bool
    #: By check: ``ok``, or what is wrong.
    checks: dict[str, str]
    schema_revision: str | None = None
    #: Why the database does not answer, for whoever runs the service.
    cause: str | None = None
    #: How long the checks took, in milliseconds.
    took_ms: float = 0.0


class CheckHealth:
    """Asks the database for its schema revision."""

    def __init__(
        self,
        *,
        read_revision: Callable[[], Awaitable[str | None]],
        expected_revision: str | None,
        older_revisions: Collection[str] = (),
        required: Mapping[str, Callable[[], Awaitable[bool]]] | None = None,
    ) -> None:
        """Take what the database is asked for, and what else has to answer.

        Args:
            read_revision: returns the revision of the database's schema.
            expected_revision: of this release.
            older_revisions: that come before it. One that is unknown is newer: migrations go only
                forward, and every one works with the release before it.
            required: by name, what tells whether each further thing answers.
        """
        self._older: Final = frozenset(older_revisions)
        self.expected_revision: Final = expected_revision
        self._required = required or {}
        self._read_revision = read_revision
        self._until = 0.0
        self._last: Health | None = None
        self._turn = asyncio.Lock()
        self._told = Repeats()

    async def __call__(self) -> Health:
        """Return the health, at most a second old."""
        async with self._turn:
            if self._last is None or time.monotonic() >= self._until:
                started_s = time.monotonic()
                found = await self._check()
                took_ms = round((time.monotonic() - started_s) * 1000, 1)
                self._tell(found)
                self._last = replace(found, took_ms=took_ms)
                self._until = time.monotonic() + CACHE_S
            return self._last

    def _tell(self, found: Health) -> None:
        """Log why there is to be no traffic, once in an interval, and when there may be again."""
        if found.is_ready:
            if self._last is not None and not self._last.is_ready:
                log.info("ready_again")
            return
        wrong = {name: told for name, told in found.checks.items() if told != "ok"}
        times = self._told.count((*wrong.items(), found.cause))
        if times:
            log.warning("not_ready", checks=wrong, cause=found.cause, times=times)

    async def _check(self) -> Health:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                revision = await self._read_revision()
        except (FoldlineError, TimeoutError) as error:
            checks = {"database": "does not answer"}
            return Health(is_ready=False, checks=checks, cause=_cause(error))
        if revision is None or revision in self._older:
            wanted = self.expected_revision
            schema = f"is at {revision}, {wanted} is expected: run `foldline migrate`"
            checks = {"database": "ok", "schema": schema}
            return Health(is_ready=False, checks=checks, schema_revision=revision)
        checks = {"database": "ok", "schema": "ok"}
        for name, answers in self._required.items():
            checks[name] = "ok" if await answers() else "does not answer"
        is_ready = all(told == "ok" for told in checks.values())
        return Health(is_ready=is_ready, checks=checks, schema_revision=revision)


def _cause(error: FoldlineError | TimeoutError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    return (error.cause if isinstance(error, StorageError) else "") or error.detail
