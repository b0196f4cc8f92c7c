"""Jobs in the background, and hints that there is something to do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias
from uuid import UUID

from app.core.canonical import Json
from app.ports.base import Connection, SessionKey

JobStatus: TypeAlias = Literal["ready", "running", "done", "failed", "dead", "cancelled"]


class Hints(Protocol):
    """Tells, here and in other processes, that there is something new. Hints may be lost or come
    twice: whoever waits for one looks for itself from time to time."""

    @property
    def is_connected(self) -> bool:
        """Whether hints of other processes arrive."""

    def tell(self, topic: str) -> None:
        """Give a hint. Never waits and never fails."""

    def listen(self, callback: Callable[[str | None], None]) -> Callable[[], None]:
        """Have every hint given to a function, on the event loop; return what ends that.

        None in place of a topic: some may have been lost.
        """


#: The topic of jobs that are due.
JOBS_TOPIC: Final = "jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """Work for later."""

    key: SessionKey
    incarnation: UUID
    kind: str
    payload: Mapping[str, Json] = field(default_factory=dict)
    #: Not before so long from now.
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stands."""

    id: UUID
    key: SessionKey
    incarnation: UUID
    kind: str
    payload: Mapping[str, Json]
    status: JobStatus
    #: Claims so far, the running one included.
    attempts: int
    #: Of the newest claim.
    fencing_token: int
    created_at: datetime
    run_at: datetime
    #: How long it was due before it was claimed; only of one that was claimed just now.
    waited_s: float = 0.0
    finished_at: datetime | None = None
    result: Mapping[str, Json] | None = None
    #: ``code`` and ``detail`` of the newest failure.
    error: Mapping[str, Json] | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether there is still something to do."""
        return self.status in ("ready", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLimits:
    """What a claim may take."""

    kinds: Sequence[str]
    jobs: int
    #: Running at a time for one tenant, over all workers.
    per_tenant: int
    lease_s: float
    #: After so many claims, a job whose lease ran out is dead.
    attempts: int


class JobQueue(Protocol):
    """Jobs with leases. All times are the database's."""

    async def enqueue(self, connection: Connection, job: NewJob) -> UUID:
        """Insert the job, or return the one of the session and kind that is open already."""

    async def claim(self, connection: Connection, limits: ClaimLimits) -> Sequence[Job]:
        """Take due jobs, in a transaction of the caller's: fair between tenants, oldest first.

        Leases that ran out are taken back first. Empty when another claim is under way.
        """

    async def renew(
        self, connection: Connection, jobs: Sequence[Job], lease_s: float
    ) -> frozenset[UUID]:
        """Prolong the leases; return the ids of the jobs that are still held."""

    async def hold(self, connection: Connection, job: Job) -> bool:
        """Lock the row of a job until the transaction ends; False if the claim was lost."""

    async def finish(
        self,
        connection: Connection,
        job: Job,
        status: Literal["done", "failed", "cancelled"],
        *,
        result: Mapping[str, Json] | None = None,
        error: Mapping[str, Json] | None = None,
    ) -> bool:
        """End a job that is held; False if the claim was lost."""

    async def retry(
        self,
        connection: Connection,
        job: Job,
        *,
        delay_s: float,
        error: Mapping[str, Json],
        max_attempts: int,
    ) -> JobStatus | None:
        """Let a job that failed be tried again, or be dead; None if the claim was lost."""

    async def release(self, connection: Connection, job: Job) -> bool:
        """Give a job back as if it had not been claimed; False if the claim was lost."""

    async def newest(
        self, connection: Connection, key: SessionKey, incarnation: UUID, kinds: Sequence[str]
    ) -> Job | None:
        """Return the session's job of these kinds that was done last; None where none is kept."""

    async def get(self, connection: Connection, tenant_id: str, job_id: UUID) -> Job | None:
        """Return a job of the tenant."""

    async def cancel(self, connection: Connection, tenant_id: str, job_id: UUID) -> Job | None:
        """Cancel a job of the tenant if it is open, and return it as it stands."""

    async def prune(self, connection: Connection, *, older_than_s: float, limit: int) -> int:
        """Delete jobs that ended so long ago, and return how many."""
