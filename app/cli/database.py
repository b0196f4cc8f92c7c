"""The database of a command: the one of the settings, else an embedded one while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.settings import Settings
from app.storage.embedded import EmbeddedPostgres


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
