"""Originals: look for them, open summaries down to them."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Response

from app.api.answers import json_answer, text_answer
from app.api.bodies import JsonBody, json_body, request_body
from app.api.dependencies import Caller, ServicesHere, SessionHere, check_scope
from app.api.schemas.recall import (
    ExpandAnswer,
    ExpandRequest,
    ReaderFields,
    RecallAnswer,
    RecallRequest,
    expand_text,
    recall_answer,
)
from app.ports import Principal

router: Final = APIRouter()

RecallBody = Annotated[JsonBody[RecallRequest], Depends(json_body(RecallRequest))]
ExpandBody = Annotated[JsonBody[ExpandRequest], Depends(json_body(ExpandRequest))]


@router.post(
    "/v1/sessions/{sid}/recall",
    response_model=RecallAnswer,
    openapi_extra=request_body(RecallRequest),
)
async def recall_events(
    bundle: ServicesHere, key: SessionHere, caller: Caller, body: RecallBody
) -> Response:
    """Find events by what they say, whether a summary stands for them or not."""
    _check_reader(caller, body.model.reader)
    recalled = await bundle.recall_events(body.model.to_domain(key))
    return json_answer(recall_answer(recalled), head_seq=recalled.head_seq)


@router.post(
    "/v1/sessions/{sid}/expand",
    response_model=ExpandAnswer,
    openapi_extra=request_body(ExpandRequest),
)
async def expand_events(
    bundle: ServicesHere, key: SessionHere, caller: Caller, body: ExpandBody
) -> Response:
    """Open summaries, of any level, or a span, down to the original events."""
    _check_reader(caller, body.model.reader)
    expanded = await bundle.expand_events(body.model.to_domain(key))
    return text_answer(expand_text(expanded), head_seq=expanded.head_seq)


def _check_reader(caller: Principal, reader: ReaderFields | None) -> None:
    # What a reader may see, its own runner may read; everything is for an operator.
    check_scope(caller, *(("events:read",) if reader is None else ("events:read", "compile")))
