"""create_app(): assembles the HTTP application, nothing else."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from fastapi import FastAPI

from app import __version__
from app.api.admission import Admission
from app.api.bodies import BodyLimits
from app.api.errors import add_error_handlers
from app.api.headers import AnswerHeaders
from app.api.middleware import Compression, InFlight, RequestContext
from app.api.openapi import use_own_document
from app.api.routes import (
    admin,
    compactions,
    events,
    health,
    jobs,
    metrics,
    recall,
    sessions,
    usage,
)
from app.api.routes import compile as compiling
from app.jobs.worker import running
from app.observability.loop_lag import LoopLag
from app.observability.metrics import Metrics
from app.settings import Settings
from app.wiring import build_parts, build_telemetry

#: They are tried in this order: what agents ask before each model call comes first.
ROUTERS: Final = (
    compiling.router,
    events.router,
    health.router,
    metrics.router,
    sessions.router,
    compactions.router,
    recall.router,
    usage.router,
    jobs.router,
    admin.router,
)


def create_app(settings: Settings) -> FastAPI:
    """Return the application. Its services live as long as its lifespan.

    Args:
        settings: with the URL of a migrated database.
    """

    telemetry = build_telemetry(settings)
    loop_lag = LoopLag(telemetry.meter.loop_lagged)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.enter_context(telemetry.tracing())
            await stack.enter_async_context(loop_lag.measuring())
            parts = await stack.enter_async_context(build_parts(settings, telemetry))
            app.state.services = parts.services
            parts.services.stream_events.is_draining = lambda: bool(app.state.draining)
            if settings.worker == "embedded":
                worker = running(
                    parts.worker,
                    grace_s=settings.shutdown_grace_s,
                    is_draining=lambda: bool(app.state.draining),
                )
                await stack.enter_async_context(worker)
                await stack.enter_async_context(parts.database_watch.watching())
            yield

    app = FastAPI(
        title="Foldline",
        version=__version__,
        description="A context compiler for LLM agents.",
        lifespan=lifespan,
        docs_url=None,
        redirect_slashes=False,
        redoc_url=None,
    )
    app.state.draining = False
    app.state.has_started = False
    app.state.loop_lag = loop_lag
    app.state.metrics = telemetry.metrics
    app.state.limits = BodyLimits(max_batch_bytes=settings.max_batch_bytes)
    use_own_document(app)
    add_error_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(
        Admission, most=settings.max_requests, body_timeout_s=settings.body_timeout_s
    )
    app.add_middleware(Compression)
    app.add_middleware(
        RequestContext,
        meter=telemetry.meter,
        in_flight=_counted_in_flight(telemetry.metrics),
        tracer=telemetry.tracer,
    )
    app.add_middleware(AnswerHeaders)
    for router in ROUTERS:
        if router is not metrics.router or settings.metrics_port is None:
            app.include_router(router)
    return app


def _counted_in_flight(metrics: Metrics) -> InFlight:
    in_flight = InFlight()
    gauge = metrics.gauge("http_requests_in_flight")

    def refresh() -> None:
        for route, count in in_flight.by_route().items():
            gauge.labels(route).set(count)

    metrics.before_scrape(refresh)
    return in_flight
