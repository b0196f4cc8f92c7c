"""Background jobs on the wire."""

from datetime import datetime
from typing import Any, Literal

from app.api.schemas.fields import AnswerModel
from app.ports import Job


class JobResult(AnswerModel):
    """What a job came to."""

    folded: int
    """Events that were folded; 0 with the reason why none were."""
    seq: int | None = None
    """The fold."""
    reason: str | None = None
    """Why nothing was folded, as a word."""
    detail: str | None = None
    """Why, in words."""


class JobError(AnswerModel):
    """Why the last attempt failed."""

    code: str
    """As in a problem body."""
    detail: str
    """In words."""


class JobAnswer(AnswerModel):
    """A job."""

    id: str
    """Of the job."""
    session_id: str
    """Whose log it works on."""
    kind: str
    """What it does."""
    status: Literal["ready", "running", "done", "failed", "dead", "cancelled"]
    """`dead` has failed as often as it may."""
    attempts: int
    """How often it was begun."""
    created_at: datetime
    """RFC 3339, UTC."""
    run_at: datetime
    """When it is due, or due again."""
    finished_at: datetime | None
    """When it ended; null: it has not."""
    result: JobResult | None
    """What came of it; null until it is done."""
    error: JobError | None
    """What it failed of last."""


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
