"""`foldline migrate`: bring the database's schema to the newest revision, then end."""

import argparse
import asyncio

from app.cli.database import running_database
from app.observability.logging import configure_logging
from app.settings import load_settings
from app.storage.migrate import head_revision, migrate


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no arguments: the database is a setting."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Migrate the database of the settings, or the embedded one."""
    del arguments
    settings = load_settings()
    configure_logging(level=settings.log_level, line_format=settings.log_format)
    with running_database(settings) as url:
        asyncio.run(migrate(url))
    print(f"the schema is at {head_revision()}")
    return 0
