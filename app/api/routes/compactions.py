"""Folds: the caller's summaries, what exists, undo and activation."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Response

from app.api.answers import json_answer
from app.api.bodies import JsonBody, json_body, request_body
from app.api.cursors import make_cursor, read_cursor
from app.api.dependencies import (
    Idempotency,
    ServicesHere,
    SessionHere,
    SessionWrite,
    expected,
    requires,
    writes,
)
from app.api.direct import DirectRoute
from app.api.marker_answers import marker_answer
from app.api.schemas.compactions import (
    CompactionAnswer,
    CompactionRequest,
    CompactionsPage,
    CompactionsQuery,
    JobLeft,
    SummaryAnswer,
    SummaryRequest,
    UnfoldedAnswer,
    compaction_answer,
    nothing_folded,
    summary_answer,
)
from app.api.schemas.events import EventAnswer
from app.api.schemas.fields import SeqInPath
from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.services.request_compaction import Requested

router: Final = APIRouter(route_class=DirectRoute)

CAN_READ: Final = [Depends(requires("events:read"))]
CAN_WRITE: Final = [Depends(requires("events:write"))]
WriteHere = Annotated[SessionWrite, Depends(writes("events:write"))]

CompactionBody = Annotated[
    JsonBody[CompactionRequest], Depends(json_body(CompactionRequest, is_optional=True))
]
SummaryBody = Annotated[JsonBody[SummaryRequest], Depends(json_body(SummaryRequest))]


@router.post(
    "/v1/sessions/{sid}/summaries",
    status_code=201,
    response_model=SummaryAnswer,
    openapi_extra=request_body(SummaryRequest),
)
async def append_summary(
    bundle: ServicesHere,
    to: WriteHere,
    body: SummaryBody,
) -> Response:
    """Fold a part of the log into a summary of the caller's own."""
    expected_seq = expected(body.model.expected_seq, to.expected_seq)
    summary = body.model.to_domain(to.key, expected_seq, to.idempotency.of(body.digest))
    view, result = await bundle.fold_events.append_summary(summary)
    return json_answer(
        summary_answer(view),
        status=201,
        head_seq=result.head_seq,
        is_replayed=result.is_replayed,
    )


@router.post(
    "/v1/sessions/{sid}/compactions",
    dependencies=CAN_WRITE,
    status_code=201,
    response_model=CompactionAnswer,
    responses={200: {"model": UnfoldedAnswer}, 202: {"model": JobLeft}},
    openapi_extra=request_body(CompactionRequest, is_required=False),
)
async def request_compaction(
    bundle: ServicesHere, key: SessionHere, body: CompactionBody, header: Idempotency
) -> Response:
    """Fold now: by the policy, or what the request names."""
    requested = await bundle.request_compaction(
        key,
        body.model.to_domain(),
        wait_ms=body.model.wait_ms,
        idempotent=header.of(body.digest),
    )
    return requested_answer(requested)


def requested_answer(requested: Requested) -> Response:
    """Return the fold, the job that will make it, or why there is none."""
    is_replayed = requested.is_replayed
    if requested.fold is not None:
        body = compaction_answer(requested.fold)
        return json_answer(body, status=201, is_replayed=is_replayed)
    if requested.reason is None:
        return json_answer({"job_id": requested.job_id}, status=202, is_replayed=is_replayed)
    answer: dict[str, Json] = {
        "folded": 0,
        "reason": requested.reason,
        "detail": requested.detail,
        "job_id": requested.job_id,
    }
    return json_answer(answer, is_replayed=is_replayed)


@router.get("/v1/sessions/{sid}/compactions", dependencies=CAN_READ, response_model=CompactionsPage)
async def list_compactions(
    bundle: ServicesHere, key: SessionHere, query: Annotated[CompactionsQuery, Query()]
) -> Response:
    """List the folds of a session, oldest first, whatever became of them."""
    binding: dict[str, Any] = {"list": "compactions"}
    after_seq = 0
    if query.after is not None:
        after_seq = _seq_of(read_cursor(query.after, binding, pointer="/query/after"))
    views = await bundle.fold_events.page(key, after_seq=after_seq, limit=query.limit + 1)
    page = views[: query.limit]
    has_more = len(views) > query.limit
    cursor = make_cursor([page[-1].seq], binding) if has_more else None
    data: list[Json] = [compaction_answer(view) for view in page]
    unfolded = nothing_folded(await bundle.fold_events.last_try(key))
    return json_answer(
        {"data": data, "next": cursor, "has_more": has_more, "nothing_folded": unfolded}
    )


def _seq_of(position: list[Any]) -> int:
    if len(position) != 1 or not isinstance(position[0], int):
        raise InvalidInputError("not a cursor", pointer="/query/after")
    return position[0]


@router.get(
    "/v1/sessions/{sid}/compactions/{seq}",
    dependencies=CAN_READ,
    response_model=CompactionAnswer,
)
async def get_compaction(bundle: ServicesHere, key: SessionHere, seq: SeqInPath) -> Response:
    """Return one fold."""
    return json_answer(compaction_answer(await bundle.fold_events.one(key, seq)))


@router.post(
    "/v1/sessions/{sid}/compactions/{seq}/activate",
    dependencies=CAN_WRITE,
    status_code=201,
    response_model=EventAnswer,
    responses={200: {"model": EventAnswer}},
)
async def activate_compaction(
    bundle: ServicesHere, key: SessionHere, seq: SeqInPath, header: Idempotency
) -> Response:
    """Use a staged fold from now on."""
    result = await bundle.fold_events.activate(key, seq, idempotent=header.of(b""))
    return await marker_answer(bundle, key, result)


@router.post(
    "/v1/sessions/{sid}/compactions/{seq}/undo",
    dependencies=CAN_WRITE,
    status_code=201,
    response_model=EventAnswer,
    responses={200: {"model": EventAnswer}},
)
async def undo_compaction(
    bundle: ServicesHere, key: SessionHere, seq: SeqInPath, header: Idempotency
) -> Response:
    """Take the effect of a fold back, or that of another marker."""
    result = await bundle.fold_events.undo(key, seq, idempotent=header.of(b""))
    return await marker_answer(bundle, key, result)
