"""The figures of this process, for a scraper. Not there when they have a port of their own."""

import asyncio
from typing import Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse

from app.api.dependencies import requires

router: Final = APIRouter()


@router.get(
    "/metrics",
    dependencies=[Depends(requires("metrics"))],
    response_class=PlainTextResponse,
)
async def scrape(request: Request) -> Response:
    """Return every metric, in Prometheus' text format or OpenMetrics."""
    accept = request.headers.get("accept", "")
    # Beside the loop: putting a thousand lines together takes as long as some compiles.
    text, content_type = await asyncio.to_thread(request.app.state.metrics.scrape, accept)
    return Response(text, media_type=content_type)
