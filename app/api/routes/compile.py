"""Compile, compare, validate, count."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Response

from app.api.answers import json_answer, text_answer
from app.api.bodies import JsonBody, json_body, request_body
from app.api.dependencies import (
    ServicesHere,
    SessionHere,
    SessionWrite,
    check_scope,
    requires,
    writes,
)
from app.api.direct import DirectRoute
from app.api.schemas.checks import (
    CountAnswer,
    TokensBody,
    ValidateAnswer,
    ValidateBody,
    validate_answer,
)
from app.api.schemas.compile import CompileBody, DiffBody, StatelessCompileBody
from app.api.schemas.compile_answer import CompileAnswer, DiffAnswer, compile_text, diff_answer
from app.core.canonical import clean_text
from app.formats import VALIDATORS
from app.services.append_events import Append
from app.services.prepare_events import SentBatch

router: Final = APIRouter(route_class=DirectRoute)

CAN_COMPILE: Final = [Depends(requires("compile"))]

CompileHere = Annotated[JsonBody[CompileBody], Depends(json_body(CompileBody, kept=("append",)))]
StatelessHere = Annotated[
    JsonBody[StatelessCompileBody],
    Depends(json_body(StatelessCompileBody, kept=("events",))),
]


@router.post(
    "/v1/sessions/{sid}/compile",
    response_model=CompileAnswer,
    openapi_extra=request_body(CompileBody),
)
async def compile_session(
    bundle: ServicesHere,
    to: Annotated[SessionWrite, Depends(writes("compile"))],
    body: CompileHere,
) -> Response:
    """Compile a session into a provider's request, after appending what came with it."""
    append = None
    if body.items.get("append"):
        check_scope(to.caller, "events:write")
        append = Append(
            key=to.key,
            batch=SentBatch(items=body.items["append"], pointer="/append"),
            expected_seq=to.expected_seq,
            idempotent=to.idempotency.of(body.digest),
        )
    done = await bundle.compile_session(
        to.key,
        body.model.to_request(),
        append=append,
        compaction_wait_ms=body.model.compaction_wait_ms,
    )
    appended = done.compiled.appended
    return text_answer(
        compile_text(done.compiled, compaction=done.compaction),
        head_seq=done.compiled.head_seq,
        is_replayed=appended is not None and appended.is_replayed,
    )


@router.post(
    "/v1/compile",
    dependencies=CAN_COMPILE,
    response_model=CompileAnswer,
    openapi_extra=request_body(StatelessCompileBody),
)
async def compile_stateless(bundle: ServicesHere, body: StatelessHere) -> Response:
    """Compile events that are stored nowhere."""
    batch = SentBatch(items=body.items["events"], allow_markers=True)
    compiled, notes = await bundle.compile_stateless(batch, body.model.to_request())
    return text_answer(compile_text(compiled, notes))


@router.post(
    "/v1/sessions/{sid}/compile:diff",
    dependencies=CAN_COMPILE,
    response_model=DiffAnswer,
    openapi_extra=request_body(DiffBody),
)
async def compare_compiles(
    bundle: ServicesHere,
    key: SessionHere,
    body: Annotated[JsonBody[DiffBody], Depends(json_body(DiffBody))],
) -> Response:
    """Say where two compiles of a session part, and why."""
    comparison = await bundle.compare_compiles(
        key, body.model.a.to_request("/a"), body.model.b.to_request("/b")
    )
    return json_answer(diff_answer(comparison))


@router.post(
    "/v1/validate",
    dependencies=CAN_COMPILE,
    response_model=ValidateAnswer,
    openapi_extra=request_body(ValidateBody),
)
async def validate_request(
    body: Annotated[JsonBody[ValidateBody], Depends(json_body(ValidateBody))],
) -> Response:
    """Check a provider's request against the provider's rules."""
    validate = VALIDATORS[body.model.format]
    found = validate(body.model.request, model=body.model.model or "")
    return json_answer(validate_answer(found))


@router.post(
    "/v1/tokens",
    dependencies=CAN_COMPILE,
    response_model=CountAnswer,
    openapi_extra=request_body(TokensBody),
)
async def count_tokens(
    bundle: ServicesHere,
    body: Annotated[JsonBody[TokensBody], Depends(json_body(TokensBody))],
) -> Response:
    """Count the tokens of a text, or of contents in a format."""
    counter = bundle.count_tokens
    if body.model.text is not None:
        tokens = await counter.text(clean_text(body.model.text), model=body.model.model)
    else:
        contents = body.model.contents or []
        tokens = await counter.contents(
            contents, source_format=body.model.format, model=body.model.model
        )
    return json_answer({"tokens": tokens, "method": counter.method})
