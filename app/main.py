"""create_app(): assembles the HTTP application, nothing else."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from fastapi import FastAPI

from app import __version__
from app.api.bodies import BodyLimits
from app.api.errors import add_error_handlers
from app.api.middleware import Compression, RequestContext
from app.api.openapi import use_own_document
from app.api.routes import compactions, events, health, jobs, recall, sessions, usage
from app.api.routes import compile as compiling
from app.jobs.worker import running
from app.settings import Settings
from app.wiring import build_parts

ROUTERS: Final = (
    health.router,
    sessions.router,
    events.router,
    compactions.router,
    recall.router,
    compiling.router,
    usage.router,
    jobs.router,
)


def create_app(settings: Settings) -> FastAPI:
    """Return the application. Its services live as long as its lifespan.

    Args:
        settings: with the URL of a migrated database.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            parts = await stack.enter_async_context(build_parts(settings))
            app.state.services = parts.services
            if settings.worker == "embedded":
                worker = running(
                    parts.worker,
                    grace_s=settings.shutdown_grace_s,
                    is_draining=lambda: bool(app.state.draining),
                )
                await stack.enter_async_context(worker)
            yield

    app = FastAPI(
        title="Foldline",
        version=__version__,
        description="A context compiler for LLM agents.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.draining = False
    app.state.limits = BodyLimits(max_batch_bytes=settings.max_batch_bytes)
    use_own_document(app)
    add_error_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(Compression)
    app.add_middleware(RequestContext)
    for router in ROUTERS:
        app.include_router(router)
    return app
