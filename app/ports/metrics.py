"""What is counted and timed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.core.compile.breaks import Break
from app.core.compile.inputs import CompileResult
from app.core.errors import FoldlineError
from app.core.index import Index
from app.core.usage import Usage
from app.ports.base import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """What is true of the whole database."""

    #: By kind and status: jobs that are open or did not end well.
    jobs: Mapping[tuple[str, ...], int]
    #: Since when the oldest compaction is due that nobody does.
    compaction_lag_s: float
    oldest_transaction_s: float
    #: By address of a read replica: since when it has nothing new, though there is something; 0
    #: when it has all.
    replica_lag_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How far the primary has written."""

    #: Position in its write-ahead log.
    position: str
    at: datetime


class DatabaseFactsReads(Protocol):
    """Reads them, and sees to it that one process alone does."""

    async def take_lease(
        self, connection: Connection, name: str, holder: UUID, lease_s: float
    ) -> bool:
        """Take or renew a lease; False when it is another's."""

    async def give_back(self, connection: Connection, name: str, holder: UUID) -> None:
        """Give a lease back, if it is the holder's."""

    async def read(self, connection: Connection, kinds: tuple[str, ...]) -> DatabaseFacts:
        """Return what is true now; of lag, for jobs of these kinds."""

    async def written(self, connection: Connection) -> Written:
        """Return how far the primary has written."""

    async def replica_lag_s(self, replica: Connection, written: Written) -> Mapping[str, float]:
        """Return by its address how far back a replica is; nothing when it cannot say."""


class DatabaseMeter(Protocol):
    """Is told what is true of the whole database by the one process that looks."""

    def database_seen(self, facts: DatabaseFacts, *, valid_s: float) -> None:
        """Take what was seen; it counts for so long."""

    def database_unseen(self) -> None:
        """Say nothing from now on: another process does, or nobody knows."""


class RedisMeter(Protocol):
    """Is told what became of Redis."""

    def redis_failed(self, op: str) -> None:
        """Take a command that was not answered, or not in time, and what it was for."""


class Meter(RedisMeter, Protocol):
    """Is told what happened, and counts it. Costs microseconds, never raises, never waits.

    What the values of the words may be is in the table of ``app/observability/metrics.py``.
    """

    def lock_waited(self, op: str, wait_s: float) -> None:
        """Take how long the lock of a session was waited for, and for what."""

    def appended(self, count_by_kind: Mapping[str, int], *, source: str, repeated: int) -> None:
        """Take a batch that is stored: how many of which kind, and how many were there before."""

    def request_repeated(self) -> None:
        """Take a request whose idempotency key had been used for the same one."""

    def append_refused(self, error: FoldlineError) -> None:
        """Take why an append was refused; only conflicts are counted."""

    def compiled(
        self,
        result: CompileResult,
        *,
        wire_format: str,
        cache: str | None,
        timing_ms: Mapping[str, float],
        scanned: int,
        hidden: int,
        index: Index,
        tokens_by_segment: Mapping[str, int],
        shared_tokens: int | None,
        found_break: Break | None,
        is_unchanged: bool,
    ) -> None:
        """Take a compile.

        Args:
            result: what came out.
            wire_format: the provider's.
            cache: what became of going on from an earlier compile: ``hit``, ``miss`` or ``stale``;
                None where it was not tried.
            timing_ms: by stage, in the order in which they ran without a pause.
            scanned: events that were read.
            hidden: of those, events that the reader may not see.
            index: that was compiled with.
            tokens_by_segment: of the request.
            shared_tokens: that the request before begins with; None when there is none before.
            found_break: why the newest reply's prefix does not stand.
            is_unchanged: the caller has all of it.
        """

    def compile_refused(self, outcome: str) -> None:
        """Take a compile without an answer."""

    def usage_reported(
        self, model: str, usage: Usage, *, ttl: str | None, expected: int, miss: str | None
    ) -> None:
        """Take what a provider counted.

        Args:
            model: as the caller names it.
            usage: the provider's count.
            ttl: how long what was written to the cache is kept: ``5m`` or ``1h``; None: unknown.
            expected: tokens that the cache should have had.
            miss: why it had fewer; None when it had them.
        """

    def tokens_estimated(self, model: str, *, ours: int, theirs: int) -> None:
        """Take our estimate of a request and the provider's count of it."""

    def overflowed(self, model: str) -> None:
        """Take a request that was too long for its provider."""

    def compaction_ended(self, *, trigger: str, method: str, outcome: str) -> None:
        """Take the end of a compaction."""

    def folded(
        self, *, method: str, duration_s: float, tokens_before: int, tokens_after: int
    ) -> None:
        """Take a fold: how long its summaries took, and what they save."""

    def summarized(
        self,
        provider: str,
        model: str,
        error: BaseException | None,
        *,
        duration_s: float,
        input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        """Take a request to a model for a summary, and the error that it ended with, if any."""

    def job_ended(self, queue: str, outcome: str, *, waited_s: float, ran_s: float) -> None:
        """Take a job that this worker is done with, whatever becomes of it."""

    def recalled(self, tool: str, outcome: str, *, tokens: int) -> None:
        """Take a search for originals, or an opening of a fold."""
