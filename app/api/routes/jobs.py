"""Background jobs: look and cancel."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Response

from app.api.answers import json_answer
from app.api.dependencies import Caller, ServicesHere, requires
from app.api.schemas.jobs import JobAnswer, job_answer

router: Final = APIRouter()

CAN_READ: Final = [Depends(requires("events:read"))]
CAN_WRITE: Final = [Depends(requires("events:write"))]

JobId = Annotated[UUID, Path(alias="id", description="Of the job.")]


@router.get("/v1/jobs/{id}", dependencies=CAN_READ, response_model=JobAnswer)
async def get_job(bundle: ServicesHere, caller: Caller, job_id: JobId) -> Response:
    """Return a job of the tenant."""
    return json_answer(job_answer(await bundle.jobs.get(caller.tenant_id, job_id)))


@router.post("/v1/jobs/{id}/cancel", dependencies=CAN_WRITE, response_model=JobAnswer)
async def cancel_job(bundle: ServicesHere, caller: Caller, job_id: JobId) -> Response:
    """Cancel a job if it is open; a fold that is there already stays."""
    return json_answer(job_answer(await bundle.jobs.cancel(caller.tenant_id, job_id)))
