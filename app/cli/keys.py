"""`foldline keys create`: make a bearer key for a tenant, and print it once."""

import argparse
import asyncio
from typing import Final

from pydantic import SecretStr

from app.cli.database import running_database
from app.settings import Settings, load_settings
from app.wiring import build

DEFAULT_SCOPES: Final = "events:write,events:read,compile"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `create` and its arguments."""
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = commands.add_parser("create", help="make a key; it is shown once")
    create.add_argument("--tenant", default="default", help="made when it is new")
    create.add_argument("--name", default="", help="what the key is for")
    create.add_argument(
        "--scopes", default=DEFAULT_SCOPES, help=f"separated by commas; {DEFAULT_SCOPES} if absent"
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the key."""
    settings = load_settings()
    with running_database(settings) as url:
        settings = settings.model_copy(update={"database_url": SecretStr(url)})
        print(asyncio.run(_create(settings, arguments)))
    return 0


async def _create(settings: Settings, arguments: argparse.Namespace) -> str:
    scopes = [scope.strip() for scope in arguments.scopes.split(",") if scope.strip()]
    async with build(settings) as services:
        return await services.create_key(
            tenant_id=arguments.tenant, name=arguments.name, scopes=scopes
        )
