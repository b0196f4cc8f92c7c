"""Background jobs on the wire."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from app.ports import Job


class JobResult(BaseModel):
    """What a job came to."""

    #: Events that were folded; 0 with the reason why none were.
    folded: int
    #: The fold.
    seq: int | None = None
    reason: str | None = None
    detail: str | None = None


class JobError(BaseModel):
    """Why the last attempt failed."""

    code: str
    detail: str


class JobAnswer(BaseModel):
    """A job."""

    id: str
    session_id: str
    kind: str
    status: Literal["ready", "running", "done", "failed", "dead", "cancelled"]
    attempts: int
    created_at: datetime
    run_at: datetime
    finished_at: datetime | None
    result: JobResult | None
    error: JobError | None


def job_answer(job: Job) -> dict[str, Any]:
    """Return a job as it is answered."""
    result = None
    if job.result is not None:
        result = {key: job.result[key] for key in JobResult.model_fields if key in job.result}
    return {
        "id": str(job.id),
        "session_id": job.key.session_id,
        "kind": job.kind,
        "status": job.status,
        "attempts": job.attempts,
        "created_at": job.created_at.isoformat(),
        "run_at": job.run_at.isoformat(),
        "finished_at": None if job.finished_at is None else job.finished_at.isoformat(),
        "result": result,
        "error": None if job.error is None else dict(job.error),
    }
