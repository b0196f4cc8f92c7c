"""Whether the process lives, may get traffic, and what it is."""

from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query, Request, Response

from app import __version__, revision
from app.api.answers import json_answer
from app.api.dependencies import ServicesHere, bearer_key, check_scope
from app.api.schemas.fields import AnswerModel, Authorization
from app.core.canonical import Json
from app.core.compile.pipeline import PIPELINE_VERSION
from app.core.policy import DEFAULT_POLICY
from app.formats import CONVERTERS, FORMATS
from app.services.bundle import Services
from app.services.check_health import Health

router: Final = APIRouter()


#: An event loop that is this late makes everyone wait; a new process serves better.
LONGEST_LAG_S: Final = 5.0


class HealthDetails(AnswerModel):
    """What an operator may want to know beside."""

    version: str
    """Of the service."""
    is_draining: bool
    """Whether it takes no new work."""
    event_loop_lag_s: float
    """How late the event loop is, in seconds."""
    checked_in_ms: float | None = None
    """How long the checks took, at most a second ago; null where none was needed."""
    database_error: str | None = None
    """Why the database does not answer: what it or its driver said; null where it answers."""
    schema_revision: str | None = None
    """That the database is at."""
    expected_revision: str | None = None
    """That this version wants."""
    rules_date: str
    """Of the model rules."""


class HealthAnswer(AnswerModel):
    """The answer of a probe."""

    status: Literal["ok", "unavailable"]
    """Of all checks together."""
    checks: dict[str, str]
    """By check: `ok`, or what is wrong."""
    details: HealthDetails | None = None
    """With `verbose` alone."""


PROBE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": HealthAnswer},
    503: {"model": HealthAnswer},
}


async def verbose(
    bundle: ServicesHere,
    *,
    verbose: Annotated[bool, Query(description="Tell details; wants a key.")] = False,
    authorization: Authorization = None,
) -> bool:
    """Tell whether details are wanted; they need a key with the scope ``metrics`` or ``admin``."""
    if verbose:
        check_scope(await bundle.authenticate(bearer_key(authorization)), "metrics", "admin")
    return verbose


Verbose: TypeAlias = Annotated[bool, Depends(verbose)]


class CapabilitiesAnswer(AnswerModel):
    """What this service can do."""

    compile_formats: list[str]
    """What a compile can answer in."""
    import_formats: list[str]
    """What an append takes."""
    presets: list[str]
    """What a compile can be like."""


class InfoAnswer(AnswerModel):
    """What is running."""

    version: str
    """Of the service."""
    revision: str
    """Of the source that it was built from; `unknown` where the build did not say."""
    pipeline_version: str
    """Changes when passes give something else."""
    schema_revision: str | None
    """That the database is at; null: not known."""
    rules_date: str
    """Of the model rules."""
    summarizer: str
    """Of the default policy."""
    capabilities: CapabilitiesAnswer
    """What it takes and gives."""


@router.head("/livez", include_in_schema=False)
@router.get("/livez", responses=PROBE)
async def livez(request: Request, bundle: ServicesHere, *, is_verbose: Verbose) -> Response:
    """Tell that the process answers in time; a lost database is no reason to restart it."""
    lag_s = request.app.state.loop_lag.seconds
    is_live = lag_s < LONGEST_LAG_S
    checks = {"event_loop": "ok" if is_live else f"is {lag_s:.1f} s late"}
    return _health_answer(request, bundle, Health(is_live, checks), is_verbose=is_verbose)


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=PROBE)
async def readyz(request: Request, bundle: ServicesHere, *, is_verbose: Verbose) -> Response:
    """Tell whether traffic may come: what is needed answers, and the process is not draining."""
    health = Health(is_ready=False, checks={"process": "is draining"})
    if not request.app.state.draining:
        health = await bundle.check_health()
    return _health_answer(request, bundle, health, is_verbose=is_verbose)


@router.head("/startupz", include_in_schema=False)
@router.get("/startupz", responses=PROBE)
async def startupz(request: Request, bundle: ServicesHere, *, is_verbose: Verbose) -> Response:
    """Tell whether the start is over: the schema was migrated, and a connection is open.

    Once it is over it stays so: from then on ``/livez`` and ``/readyz`` tell of the process.
    """
    health = STARTED
    if not request.app.state.has_started:
        health = await bundle.check_health()
        request.app.state.has_started = health.is_ready
    return _health_answer(request, bundle, health, is_verbose=is_verbose)


#: What is answered after the start.
STARTED: Final = Health(is_ready=True, checks={"start": "ok"})


def _health_answer(
    request: Request, bundle: Services, health: Health, *, is_verbose: bool
) -> Response:
    body: dict[str, Json] = {
        "status": "ok" if health.is_ready else "unavailable",
        "checks": dict(health.checks),
    }
    if is_verbose:
        state = request.app.state
        body["details"] = {
            "version": __version__,
            "is_draining": state.draining,
            "event_loop_lag_s": round(state.loop_lag.seconds, 3),
            "checked_in_ms": health.took_ms,
            "database_error": health.cause,
            "schema_revision": health.schema_revision,
            "expected_revision": bundle.check_health.expected_revision,
            "rules_date": bundle.rules_date,
        }
    return json_answer(body, status=200 if health.is_ready else 503)


@router.get("/v1/info", response_model=InfoAnswer)
async def info(bundle: ServicesHere) -> Response:
    """Tell what is running."""
    health = await bundle.check_health()
    summarizer = DEFAULT_POLICY["summarizer"]
    assert isinstance(summarizer, dict)
    return json_answer(
        {
            "version": __version__,
            "revision": revision(),
            "pipeline_version": PIPELINE_VERSION,
            "schema_revision": health.schema_revision,
            "rules_date": bundle.rules_date,
            "summarizer": summarizer["kind"],
            "capabilities": {
                "compile_formats": [*sorted(FORMATS)],
                "import_formats": [*sorted(CONVERTERS)],
                "presets": ["stable", "adk"],
            },
        }
    )
