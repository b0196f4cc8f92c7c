"""Take what a provider reported of a request."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Response

from app.api.answers import json_answer
from app.api.bodies import JsonBody, json_body, request_body
from app.api.dependencies import ServicesHere, SessionHere, requires
from app.api.schemas.usage import UsageAnswer, UsageBody, usage_answer
from app.core.overflow import read_error

router: Final = APIRouter()


@router.post(
    "/v1/sessions/{sid}/usage",
    dependencies=[Depends(requires("compile"))],
    response_model=UsageAnswer,
    openapi_extra=request_body(UsageBody),
)
async def report_usage(
    bundle: ServicesHere,
    key: SessionHere,
    body: Annotated[JsonBody[UsageBody], Depends(json_body(UsageBody))],
) -> Response:
    """Learn from the usage of a request, or from the error that it was answered with."""
    sent = body.model
    if sent.error is not None:
        reading = read_error(sent.error.status, sent.error.body)
        report = await bundle.report_usage.of_error(key, sent.fingerprint, reading)
    else:
        report = await bundle.report_usage.of_usage(key, sent.fingerprint, sent.counts())
    return json_answer(usage_answer(report))
