"""`foldline migrate`: bring the database's schema to the newest revision, then end.

A newer schema than this release knows is no failure: what is rolled back begins with it.
"""

import argparse
import asyncio

import structlog

from app.cli.database import running_database
from app.observability.logging import configure_logging
from app.settings import Settings, load_settings
from app.storage.migrate import head_revision, migrate

log = structlog.get_logger(__name__)


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no arguments: the database is a setting."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Migrate the database of the settings, or the embedded one."""
    del arguments
    settings = load_settings()
    configure_logging(level=settings.log_level, line_format=settings.log_format)
    with running_database(settings) as url:
        revision = asyncio.run(migrate(url))
    newest = head_revision()
    newer = "" if revision == newest else f", newer than this release, which knows {newest}"
    print(f"the schema is at {revision}{newer}")
    return 0


def migrate_first(settings: Settings, url: str) -> None:
    """Migrate before a service starts, where the settings say so."""
    if not settings.migrates_on_start:
        return
    revision = asyncio.run(migrate(url))
    if revision != head_revision():
        log.info("migration_skipped", schema=revision, newest_known=head_revision())
