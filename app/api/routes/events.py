"""The log: append, read back, rewind, pin."""

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Response

from app.api.answers import json_answer, text_answer
from app.api.bodies import JsonBody, json_body, request_body
from app.api.cursors import make_cursor, read_cursor
from app.api.dependencies import (
    Caller,
    IfMatch,
    ServicesHere,
    SessionHere,
    SessionWrite,
    bearer_key,
    check_scope,
    expected,
    requires,
    writes,
)
from app.api.direct import DirectRoute
from app.api.event_stream import MEDIA_TYPE, EventStream
from app.api.schemas.events import (
    AppendAnswer,
    AppendRequest,
    EventAnswer,
    EventsPage,
    EventsQuery,
    InvocationAnswer,
    PinsAnswer,
    PinsRequest,
    ReaderQuery,
    RewindRequestBody,
    StreamQuery,
    append_answer,
    event_text,
    events_page_text,
    invocation_text,
    pins_answer,
)
from app.api.schemas.fields import MAX_SEQ, Seq, Word
from app.core.copying import replace
from app.core.errors import InvalidInputError
from app.core.lanes import Reader
from app.core.policy import validate_policy
from app.ports import Principal
from app.services.append_events import Append
from app.services.pin_events import PinChange
from app.services.prepare_events import NATIVE, SentBatch

router: Final = APIRouter(route_class=DirectRoute)

CAN_READ: Final = [Depends(requires("events:read"))]
CAN_WRITE: Final = [Depends(requires("events:write"))]
WriteHere = Annotated[SessionWrite, Depends(writes("events:write"))]
KEPT: Final = ("events", "items")
LAST_EVENT_ID: Final = "/header/Last-Event-ID"
_SEQ: Final = re.compile(r"[0-9]{1,19}")

AppendBody = Annotated[JsonBody[AppendRequest], Depends(json_body(AppendRequest, kept=KEPT))]
RewindBody = Annotated[JsonBody[RewindRequestBody], Depends(json_body(RewindRequestBody))]
PinsBody = Annotated[JsonBody[PinsRequest], Depends(json_body(PinsRequest))]
UnpinBody = Annotated[JsonBody[PinsRequest], Depends(json_body(PinsRequest, is_optional=True))]


@router.post(
    "/v1/sessions/{sid}/events",
    status_code=201,
    response_model=AppendAnswer,
    openapi_extra=request_body(AppendRequest),
)
async def append_events(
    bundle: ServicesHere,
    to: WriteHere,
    body: AppendBody,
) -> Response:
    """Append events, all of them or none; repeats are answered with their seq."""
    result = await bundle.append_events(
        Append(
            key=to.key,
            batch=batch_of(body),
            expected_seq=expected(body.model.expected_seq, to.expected_seq),
            create=body.model.create.to_domain() if body.model.create is not None else None,
            idempotent=to.idempotency.of(body.digest),
        )
    )
    return json_answer(
        append_answer(result),
        status=201,
        head_seq=result.head_seq,
        is_replayed=result.is_replayed,
    )


def batch_of(body: JsonBody[AppendRequest]) -> SentBatch:
    """Return what is to be appended, with the text of each element."""
    request = body.model
    if request.create is not None and request.create.policy is not None:
        validate_policy(request.create.policy, "/create/policy")
    if request.events is not None:
        return SentBatch(items=body.items["events"])
    source_format = "adk" if request.format in (None, NATIVE) else str(request.format)
    return SentBatch(
        items=body.items["items"],
        pointer="/items",
        source_format=source_format,
        agent=request.agent or "",
    )


@router.get("/v1/sessions/{sid}/events", response_model=EventsPage)
async def list_events(
    bundle: ServicesHere,
    key: SessionHere,
    caller: Caller,
    query: Annotated[EventsQuery, Query()],
) -> Response:
    """List events as they were sent, with what has become of them."""
    _check_reader(caller, query.reader)
    if query.last is not None and (query.after or query.before):
        raise InvalidInputError("last goes with no cursor", pointer="/query/last")
    binding = _binding(query)
    after_seq, before_seq = query.after_seq, query.before_seq
    if query.after is not None:
        position = _seq_of(read_cursor(query.after, binding, pointer="/query/after"))
        if query.order == "asc":
            after_seq = max(position, after_seq or 0)
        else:
            before_seq = min(position, before_seq or MAX_SEQ)
    if query.before is not None:
        position = _seq_of(read_cursor(query.before, binding, pointer="/query/before"))
        # A cursor stands behind the event that it names, which therefore comes before it.
        if query.order == "asc":
            before_seq = min(position + 1, before_seq or MAX_SEQ)
        else:
            after_seq = max(position - 1, after_seq or 0)
    wanted = query.to_domain(after_seq=after_seq, before_seq=before_seq)
    page = await bundle.read_events.page(key, wanted, as_of_seq=query.as_of_seq)
    cursor = None
    if page.has_more and page.last_seq is not None and query.last is None:
        cursor = make_cursor([page.last_seq + _step_back(query)], binding)
    if query.is_back:
        page = replace(page, events=page.events[::-1])
    return text_answer(events_page_text(page, cursor), head_seq=page.head_seq)


def _binding(query: EventsQuery) -> dict[str, Any]:
    return query.model_dump(exclude={"after", "before", "limit"})


def _step_back(query: EventsQuery) -> int:
    """Return how far from the first event of a page the cursor stands that is before it."""
    if not query.is_back:
        return 0
    return -1 if query.order == "asc" else 1


def _seq_of(position: list[Any]) -> int:
    if len(position) != 1 or not isinstance(position[0], int):
        raise InvalidInputError("not a cursor", pointer="/query/after")
    return position[0]


def _check_reader(caller: Principal, reader: Reader | None) -> None:
    # What a reader may see, its own runner may read; everything is for an operator.
    check_scope(caller, *(("events:read",) if reader is None else ("events:read", "compile")))


@router.get(
    "/v1/sessions/{sid}/events/stream",
    status_code=200,
    response_class=EventStream,
    responses={200: {"description": "Server-sent events", "content": {MEDIA_TYPE: {}}}},
)
async def stream_events(
    *,
    bundle: ServicesHere,
    key: SessionHere,
    caller: Caller,
    query: Annotated[StreamQuery, Query()],
    authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", description="Seq of the last event received.")
    ] = None,
) -> Response:
    """Follow the log: every event once and in order, after `Last-Event-ID` or `after_seq`; without
    either, what comes from now on."""
    _check_reader(caller, query.reader)
    # A client that has received none may send it empty.
    after_seq = _event_seq(last_event_id) if last_event_id else query.after_seq

    async def check() -> None:
        still = await bundle.authenticate(bearer_key(authorization))
        _check_reader(still, query.reader)

    pointer = LAST_EVENT_ID if last_event_id else "/query/after_seq"
    follower = await bundle.stream_events.open(
        key, reader=query.reader, after_seq=after_seq, pointer=pointer
    )
    return EventStream(follower, check)


def _event_seq(last_event_id: str) -> int:
    if _SEQ.fullmatch(last_event_id) is None or int(last_event_id) > MAX_SEQ:
        raise InvalidInputError("must be a seq", pointer=LAST_EVENT_ID)
    return int(last_event_id)


@router.get("/v1/sessions/{sid}/events/{seq_or_id:path}", response_model=EventAnswer)
async def get_event(
    bundle: ServicesHere,
    key: SessionHere,
    caller: Caller,
    seq_or_id: Annotated[Word, Path(description="Seq or id of an event; digits alone are a seq.")],
    query: Annotated[ReaderQuery, Query()],
) -> Response:
    """Return one event, however it is read now."""
    _check_reader(caller, query.reader)
    is_seq = seq_or_id.isascii() and seq_or_id.isdigit() and int(seq_or_id) <= MAX_SEQ
    wanted = int(seq_or_id) if is_seq else seq_or_id
    view = await bundle.read_events.one(key, wanted, reader=query.reader)
    return text_answer(event_text(view))


@router.get(
    "/v1/sessions/{sid}/invocations/{id:path}",
    dependencies=CAN_READ,
    response_model=InvocationAnswer,
)
async def get_invocation(
    bundle: ServicesHere,
    key: SessionHere,
    invocation_id: Annotated[Word, Path(alias="id", description="Of the invocation.")],
) -> Response:
    """Return where to resume an invocation."""
    return text_answer(invocation_text(await bundle.resume_invocation(key, invocation_id)))


@router.post(
    "/v1/sessions/{sid}/rewind",
    status_code=201,
    response_model=EventAnswer,
    openapi_extra=request_body(RewindRequestBody),
)
async def rewind_session(
    bundle: ServicesHere,
    to: WriteHere,
    body: RewindBody,
) -> Response:
    """Undo an invocation and what followed, or everything after a seq, by another event."""
    result = await bundle.rewind_session(
        to.key,
        before_invocation_id=body.model.before_invocation_id,
        to_seq=body.model.to_seq,
        expected_seq=expected(body.model.expected_seq, to.expected_seq),
        idempotent=to.idempotency.of(body.digest),
    )
    view = await bundle.read_events.one(to.key, result.appended[0].seq or 0)
    return text_answer(
        event_text(view), status=201, head_seq=result.head_seq, is_replayed=result.is_replayed
    )


@router.get("/v1/sessions/{sid}/pins", dependencies=CAN_READ, response_model=PinsAnswer)
async def list_pins(bundle: ServicesHere, key: SessionHere) -> Response:
    """Return what is pinned."""
    pins = await bundle.pin_events.pins(key)
    return json_answer(pins_answer(pins), head_seq=pins.head_seq)


@router.post(
    "/v1/sessions/{sid}/pins",
    status_code=201,
    response_model=PinsAnswer,
    openapi_extra=request_body(PinsRequest),
)
async def pin_events(
    bundle: ServicesHere,
    to: WriteHere,
    body: PinsBody,
) -> Response:
    """Pin events, each with its whole call group: all of them or none."""
    change = PinChange(
        key=to.key,
        seqs=body.model.seqs,
        last_turn=body.model.last_turn,
        first=body.model.first,
        expected_seq=expected(body.model.expected_seq, to.expected_seq),
        idempotent=to.idempotency.of(body.digest),
    )
    pins = await bundle.pin_events.pin(change)
    return json_answer(
        pins_answer(pins), status=201, head_seq=pins.head_seq, is_replayed=pins.is_replayed
    )


@router.delete(
    "/v1/sessions/{sid}/pins",
    dependencies=CAN_WRITE,
    response_model=PinsAnswer,
    openapi_extra=request_body(PinsRequest, is_required=False),
)
async def unpin_events(
    bundle: ServicesHere,
    key: SessionHere,
    body: UnpinBody,
    head_in_header: IfMatch,
    seqs: Annotated[
        list[Seq] | None,
        Query(max_length=1000, description="Pinned events, where there is no body."),
    ] = None,
) -> Response:
    """Let events be folded again; named in the body, or as `seqs` of the query."""
    change = PinChange(
        key=key,
        seqs=seqs if body.model.seqs is None else body.model.seqs,
        last_turn=body.model.last_turn,
        first=body.model.first,
        expected_seq=expected(body.model.expected_seq, head_in_header),
    )
    pins = await bundle.pin_events.unpin(change)
    return json_answer(pins_answer(pins), head_seq=pins.head_seq)
