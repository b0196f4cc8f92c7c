"""The database of a command: the one of the settings, else an embedded one while it runs; and what
a command asks of it first."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from app.core.errors import TenantNotFoundError
from app.observability.logging import configure_logging
from app.services.bundle import Services
from app.settings import Settings
from app.storage.embedded import EmbeddedPostgres

DEFAULT_TENANT: Final = "default"


def keep_quiet(settings: Settings) -> None:
    """Log only bugs, and beside what is printed: a command says itself what went wrong."""
    configure_logging(level="error", line_format=settings.log_format, stream=sys.stderr)


@contextmanager
def running_database(settings: Settings) -> Iterator[str]:
    """Give the URL of a database that runs until the end of the block.

    Raises:
        EmbeddedPostgresError: the embedded server does not start.
    """
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    server = EmbeddedPostgres(settings.data_dir)
    server.start()
    try:
        yield server.socket_url
    finally:
        server.stop()


async def check_tenant(services: Services, tenant_id: str) -> None:
    """Refuse the name of a tenant that was never made.

    Raises:
        TenantNotFoundError: it is one.
    """
    if tenant_id == DEFAULT_TENANT:
        # Where no key is asked for, everything is its; nobody makes it.
        return
    try:
        await services.tenants.get(tenant_id)
    except TenantNotFoundError:
        raise TenantNotFoundError(f"there is no tenant {tenant_id}") from None
