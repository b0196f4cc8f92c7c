"""`foldline serve`: the HTTP service, with its own Postgres when no other is given.

    bind the address  ->  database  ->  migrate if on  ->  serve  ->  SIGTERM: drain, exit 0

On SIGTERM readiness fails and every answer asks its client to close the connection, so that no
request meets a socket that is just closing; then what is in flight is finished, within the grace.
"""

import argparse
import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from types import FrameType
from typing import Final

import structlog
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.datastructures import State
from starlette.types import Message, Receive, Scope, Send

from app.cli.database import running_database
from app.cli.migrate import migrate_first
from app.main import create_app
from app.observability.listener import listening
from app.observability.logging import configure_logging
from app.observability.metrics import Metrics
from app.settings import PREFIX, Settings, SettingsError, load_settings

log = structlog.get_logger(__name__)

#: Load balancers reuse idle connections for 60 s as a rule; ours must not be closed before.
KEEP_ALIVE_S: Final = 75
#: How long clients with open connections get to hear that they should close them.
DRAIN_S: Final = 1.0
#: What uvicorn's own command returns when the application does not start.
EXIT_NOT_STARTED: Final = 3


class DrainingServer(uvicorn.Server):
    """A server that drains before it closes; a second signal ends it at once."""

    def __init__(self, config: uvicorn.Config, *, state: State) -> None:
        super().__init__(config)
        self._state = state

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain on SIGTERM; on SIGINT, or when already draining, close."""
        if sig != signal.SIGTERM or self._state.draining:
            super().handle_exit(sig, frame)
            return
        self._state.draining = True
        # The signal interrupts some request, whose ids are not ours.
        Context().run(log.info, "draining_started")
        asyncio.get_running_loop().call_later(DRAIN_S, super().handle_exit, sig, frame)


class CloseWhileDraining:
    """ASGI: ask for the connection to be closed in every answer while the server drains."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._state = app.state
        self._state.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start" and self._state.draining:
                message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, send_closing)


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no arguments: everything is a setting."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    del arguments
    settings = load_settings()
    configure_logging(level=settings.log_level, line_format=settings.log_format)
    # Also what uvicorn's repeated signal meets at the end: a drained server has done its work.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with (
        bound_socket(settings) as listener,
        bound_metrics_socket(settings) as metrics_listener,
        running_database(settings) as url,
    ):
        migrate_first(settings, url)
        application = create_app(settings.model_copy(update={"database_url": SecretStr(url)}))
        settle_process()
        with answering_scrapes(application.state.metrics, metrics_listener):
            return serve(application, listener, grace_s=settings.shutdown_grace_s)


def settle_process() -> None:
    """Keep the collector from walking what lives as long as the process, and threads from making
    the event loop wait.

    A compile makes thousands of small values and no cycles, so the default threshold has the
    collector run several times a request for nothing: one eighth of the time of compiling 200
    events.

    A thread that computes gives the interpreter up when it is asked to, which others do after five
    milliseconds of waiting by default. The loop would wait so long each time that it wakes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    sys.setswitchinterval(0.001)


def serve(application: FastAPI, listener: socket.socket, *, grace_s: float) -> int:
    """Run an application on a bound socket; return the exit code."""
    config = uvicorn.Config(
        CloseWhileDraining(application),
        lifespan="on",
        loop="uvloop",
        http="httptools",
        ws="none",
        # Our own middleware logs requests, with their ids and without their queries.
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(grace_s),
    )
    server = DrainingServer(config, state=application.state)
    host, port = listener.getsockname()[:2]
    log.info("serving_started", host=host, port=port)
    server.run(sockets=[listener])
    return 0 if server.started else EXIT_NOT_STARTED


def bound_socket(settings: Settings) -> socket.socket:
    """Bind the address before anything is started, so that a taken port costs nothing.

    It does not listen yet: nobody is left waiting while the database starts.

    Raises:
        SettingsError: the host or the port cannot be had.
    """
    return _bound(settings, settings.port, "PORT")


@contextmanager
def bound_metrics_socket(settings: Settings) -> Iterator[socket.socket | None]:
    """Bind the address of the metrics, if they have one of their own; closed with the block.

    Raises:
        SettingsError: the host or the port cannot be had.
    """
    if settings.metrics_port is None:
        yield None
        return
    with _bound(settings, settings.metrics_port, "METRICS_PORT") as listener:
        yield listener


@contextmanager
def answering_scrapes(metrics: Metrics, listener: socket.socket | None) -> Iterator[None]:
    """Answer scrapes on a socket of their own, if there is one, while the block runs."""
    if listener is None:
        yield
        return
    host, port = listener.getsockname()[:2]
    with listening(metrics, listener):
        log.info("metrics_started", host=host, port=port)
        yield


def _bound(settings: Settings, port: int, name: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise SettingsError({PREFIX + "HOST": f"{settings.host}: {error.strerror}"}) from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise SettingsError(
            {PREFIX + name: f"cannot listen on {settings.host}:{port}: {error.strerror}"}
        ) from error
    return listener
