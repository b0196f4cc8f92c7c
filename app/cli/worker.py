"""`foldline worker`: does background jobs, apart from the HTTP service.

On SIGTERM it claims nothing more, finishes what it can within the grace, gives the rest back and
exits 0; a second signal ends it at once.
"""

import argparse
import asyncio
import signal
import sys
from typing import Final

import structlog
from pydantic import SecretStr

from app.cli.database import running_database
from app.cli.migrate import migrate_first
from app.cli.serve import answering_scrapes, bound_metrics_socket
from app.observability.logging import configure_logging
from app.observability.loop_lag import LoopLag
from app.settings import Settings, load_settings
from app.wiring import Telemetry, build_parts, build_telemetry

#: Nobody waits for a worker's statement, and a long session takes a while to read.
STATEMENT_TIMEOUT_S: Final = 60.0
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

log = structlog.get_logger(__name__)


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no arguments: everything is a setting."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Work until told to stop."""
    del arguments
    settings = load_settings()
    configure_logging(level=settings.log_level, line_format=settings.log_format)
    # Until the loop takes the signals over: nothing is begun that would have to be finished.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    telemetry = build_telemetry(settings, service="foldline-worker")
    with (
        bound_metrics_socket(settings) as listener,
        running_database(settings) as url,
        answering_scrapes(telemetry.metrics, listener),
        telemetry.tracing(),
    ):
        migrate_first(settings, url)
        asyncio.run(_work(settings.model_copy(update={"database_url": SecretStr(url)}), telemetry))
    return 0


async def _work(settings: Settings, telemetry: Telemetry) -> None:
    stop = asyncio.Event()
    parts_of_a_worker = build_parts(
        settings,
        telemetry,
        application_name="foldline-worker",
        statement_timeout_s=STATEMENT_TIMEOUT_S,
    )
    loop_lag = LoopLag(telemetry.meter.loop_lagged)
    async with loop_lag.measuring(), parts_of_a_worker as parts:
        loop = asyncio.get_running_loop()

        def end() -> None:
            for each in SIGNALS:
                loop.remove_signal_handler(each)
            log.info("draining_started")
            stop.set()
            parts.worker.wake()

        for each in SIGNALS:
            loop.add_signal_handler(each, end)
        log.info("worker_started")
        async with parts.database_watch.watching():
            await parts.worker.run(stop, grace_s=settings.shutdown_grace_s)
    log.info("worker_stopped")
