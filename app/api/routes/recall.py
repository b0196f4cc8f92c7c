"""Originals: look for them, open summaries down to them, leave them out and bring them back."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Response

from app.api.answers import json_answer, text_answer
from app.api.bodies import JsonBody, json_body, request_body
from app.api.dependencies import (
    Caller,
    Idempotency,
    IfMatch,
    ServicesHere,
    SessionHere,
    check_scope,
    expected,
    requires,
)
from app.api.marker_answers import marker_answer
from app.api.schemas.events import EventAnswer
from app.api.schemas.fields import SeqInPath
from app.api.schemas.recall import (
    ElisionRequestBody,
    ExpandAnswer,
    ExpandRequest,
    ReaderFields,
    RecallAnswer,
    RecallRequest,
    expand_text,
    recall_answer,
)
from app.ports import Principal
from app.services.elide_events import NewElision

router: Final = APIRouter()

CAN_WRITE: Final = [Depends(requires("events:write"))]

ElisionBody = Annotated[JsonBody[ElisionRequestBody], Depends(json_body(ElisionRequestBody))]
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


@router.post(
    "/v1/sessions/{sid}/elisions",
    dependencies=CAN_WRITE,
    status_code=201,
    response_model=EventAnswer,
    responses={200: {"model": EventAnswer}},
    openapi_extra=request_body(ElisionRequestBody),
)
async def elide_events(
    bundle: ServicesHere,
    key: SessionHere,
    body: ElisionBody,
    header: Idempotency,
    head_in_header: IfMatch,
) -> Response:
    """Read events as stubs, without their bodies, from now on."""
    wanted = NewElision(
        key=key,
        seqs=body.model.seqs,
        keep_chars=body.model.keep_chars,
        expected_seq=expected(body.model.expected_seq, head_in_header),
        idempotent=header.of(body.digest),
    )
    return await marker_answer(bundle, key, await bundle.elide_events(wanted))


@router.post(
    "/v1/sessions/{sid}/elisions/{seq}/undo",
    dependencies=CAN_WRITE,
    status_code=201,
    response_model=EventAnswer,
    responses={200: {"model": EventAnswer}},
)
async def undo_elision(
    bundle: ServicesHere, key: SessionHere, seq: SeqInPath, header: Idempotency
) -> Response:
    """Bring the bodies back."""
    result = await bundle.elide_events.undo(key, seq, idempotent=header.of(b""))
    return await marker_answer(bundle, key, result)


def _check_reader(caller: Principal, reader: ReaderFields | None) -> None:
    # What a reader may see, its own runner may read; everything is for an operator.
    check_scope(caller, *(("events:read",) if reader is None else ("events:read", "compile")))
