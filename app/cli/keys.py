"""`foldline keys`: make, list, revoke and rotate bearer keys. A key is printed once."""

import argparse
import asyncio
from typing import Final, TypeVar
from uuid import UUID

from pydantic import BaseModel, SecretStr, ValidationError

from app.api.schemas.admin import NewKeyRequest, RotateRequest
from app.cli.database import DEFAULT_TENANT, check_tenant, keep_quiet, running_database
from app.core.errors import InvalidInputError
from app.ports import ApiKey
from app.services.bundle import Services
from app.services.manage_keys import CLI
from app.settings import Settings, load_settings
from app.wiring import build

M = TypeVar("M", bound=BaseModel)

DEFAULT_SCOPES: Final = "events:write,events:read,compile"
#: Most keys of a list.
MOST_LISTED: Final = 10_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a key; it is shown once")
    create.add_argument("--tenant", default=DEFAULT_TENANT, help="made when it is new")
    create.add_argument("--name", default="", help="what the key is for")
    create.add_argument(
        "--scopes", default=DEFAULT_SCOPES, help=f"separated by commas; {DEFAULT_SCOPES} if absent"
    )
    create.add_argument("--rate-limit", help="as in 100/s; the server's if absent")
    create.add_argument("--ttl-s", type=int, help="seconds until it ends; never if absent")
    listing = actions.add_parser("list", help="list a tenant's keys, without the keys")
    listing.add_argument("--tenant", default=DEFAULT_TENANT)
    revoke = actions.add_parser("revoke", help="end a key now")
    revoke.add_argument("id", type=UUID, help="as `list` prints it")
    rotate = actions.add_parser("rotate", help="make a key with the same rights; shown once")
    rotate.add_argument("id", type=UUID, help="as `list` prints it")
    rotate.add_argument(
        "--overlap-s", type=int, default=3600, help="how long the old one lives on; 3600"
    )


def run(arguments: argparse.Namespace) -> int:
    """Do what the action says."""
    settings = load_settings()
    keep_quiet(settings)
    with running_database(settings) as url:
        settings = settings.model_copy(update={"database_url": SecretStr(url)})
        for line in asyncio.run(_lines(settings, arguments)):
            print(line)
    return 0


async def _lines(settings: Settings, arguments: argparse.Namespace) -> list[str]:
    async with build(settings) as services:
        match arguments.action:
            case "create":
                return [await _create(services, arguments)]
            case "list":
                keys = await services.keys.list(arguments.tenant, after=None, limit=MOST_LISTED)
                if not keys:
                    await check_tenant(services, arguments.tenant)
                return [_line(key) for key in keys]
            case "revoke":
                await services.keys.revoke(arguments.id, by=CLI)
                return [f"{arguments.id} is revoked"]
            case _:
                wanted = _checked(RotateRequest, overlap_s=arguments.overlap_s)
                shown = await services.keys.rotate(arguments.id, overlap_s=wanted.overlap_s, by=CLI)
                return [shown.secret]


async def _create(services: Services, arguments: argparse.Namespace) -> str:
    wanted = _checked(
        NewKeyRequest,
        tenant_id=arguments.tenant,
        name=arguments.name,
        scopes=[scope.strip() for scope in arguments.scopes.split(",") if scope.strip()],
        rate_limit=arguments.rate_limit,
        ttl_s=arguments.ttl_s,
    )
    try:
        return (await services.keys.create(wanted.to_domain(CLI), by=CLI)).secret
    except InvalidInputError as error:
        raise _named(error.pointer.removeprefix("/"), error.detail) from None


def _checked(model: type[M], **values: object) -> M:
    """Return what is asked for, held to what a request over HTTP is.

    Raises:
        InvalidInputError: naming the argument.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        member = str(first["loc"][0]) if first["loc"] else ""
        raise _named(member, first["msg"].removeprefix("Value error, ")) from None


def _named(member: str, detail: str) -> InvalidInputError:
    """Return the error of the argument that becomes a member of a request; of several, of none."""
    option = f"--{member.removesuffix('_id').replace('_', '-')}: " if member else ""
    return InvalidInputError(option + detail)


def _line(key: ApiKey) -> str:
    ends = "never" if key.expires_at is None else key.expires_at.isoformat(timespec="seconds")
    state = "valid" if key.is_valid else "ended"
    return "  ".join([str(key.id), state, f"ends {ends}", ",".join(key.scopes), key.name]).rstrip()
