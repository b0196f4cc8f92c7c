"""Look at background jobs, and cancel them."""

from uuid import UUID

from app.core.errors import JobNotFoundError
from app.ports import Database, Job, JobQueue


class ManageJobs:
    """The jobs of one's own tenant."""

    def __init__(self, *, database: Database, jobs: JobQueue) -> None:
        self._database = database
        self._jobs = jobs

    async def get(self, tenant_id: str, job_id: UUID) -> Job:
        """Return a job.

        Raises:
            JobNotFoundError: the tenant has no such job.
        """
        async with self._database.connection() as connection:
            job = await self._jobs.get(connection, tenant_id, job_id)
        if job is None:
            raise JobNotFoundError
        return job

    async def cancel(self, tenant_id: str, job_id: UUID) -> Job:
        """Cancel a job if it is open, and return it as it stands then.

        One that runs appends nothing any more, whatever it still does.

        Raises:
            JobNotFoundError: the tenant has no such job.
        """
        async with self._database.transaction() as connection:
            job = await self._jobs.cancel(connection, tenant_id, job_id)
        if job is None:
            raise JobNotFoundError
        return job
