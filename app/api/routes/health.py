"""Whether the process lives, may get traffic, and what it is."""

from typing import Any, Final, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from app import __version__
from app.api.answers import json_answer
from app.api.dependencies import ServicesHere
from app.core.compile.pipeline import PIPELINE_VERSION
from app.core.policy import DEFAULT_POLICY
from app.formats import CONVERTERS, FORMATS
from app.services.check_health import Health

router: Final = APIRouter()


class HealthAnswer(BaseModel):
    """The answer of a probe."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str]


class CapabilitiesAnswer(BaseModel):
    """What this service can do."""

    compile_formats: list[str]
    import_formats: list[str]
    presets: list[str]


class InfoAnswer(BaseModel):
    """What is running."""

    version: str
    pipeline_version: str
    schema_revision: str | None
    rules_date: str
    summarizer: str
    capabilities: CapabilitiesAnswer


@router.get("/livez", response_model=HealthAnswer)
async def livez() -> Response:
    """Tell that the process answers; a lost database is no reason to restart it."""
    return json_answer({"status": "ok", "checks": {}})


@router.get("/readyz", responses={200: {"model": HealthAnswer}, 503: {"model": HealthAnswer}})
async def readyz(request: Request, bundle: ServicesHere) -> Response:
    """Tell whether traffic may come: the database answers, and the process is not draining."""
    if getattr(request.app.state, "draining", False):
        return _health_answer(Health(is_ready=False, checks={"process": "is draining"}))
    return _health_answer(await bundle.check_health())


@router.get("/startupz", responses={200: {"model": HealthAnswer}, 503: {"model": HealthAnswer}})
async def startupz(bundle: ServicesHere) -> Response:
    """Tell whether the start is over: the database answers and its schema is migrated."""
    return _health_answer(await bundle.check_health())


def _health_answer(health: Health) -> Response:
    status = "ok" if health.is_ready else "unavailable"
    checks: dict[str, Any] = dict(health.checks)
    body: dict[str, Any] = {"status": status, "checks": checks}
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
