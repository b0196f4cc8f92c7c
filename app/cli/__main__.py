"""The `foldline` command: one word selects what it does, and only that is imported.

A command is a module of this package with `configure(parser)` and `run(arguments)`, which returns
the exit code. Exit codes: 0 done, 1 failed, 2 wrong usage or settings.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, Protocol, cast

from app import __version__, revision
from app.core.errors import FoldlineError, StorageError, StorageUnavailableError
from app.settings import SettingsError

#: Name of the command and of its module, and what it does.
COMMANDS: Final = {
    "serve": "run the HTTP service",
    "worker": "do background jobs, apart from the service",
    "migrate": "bring the database's schema to the newest revision",
    "config": "check the settings",
    "keys": "make keys for callers",
    "verify": "re-check every stored session",
    "compile": "compile a session from a file, offline",
    "demo": "play a session through the whole service",
}


class Command(Protocol):
    """What a command's module has."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; return the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="foldline", description="A context compiler for LLM agents."
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {__version__} ({revision()})"
    )
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    command: Command | None = None
    for name, help_text in COMMANDS.items():
        command_parser = parsers.add_parser(name, help=help_text, description=help_text)
        if argv and argv[0] == name:
            command = cast("Command", import_module(f"app.cli.{name}"))
            command.configure(command_parser)
    arguments = parser.parse_args(argv)
    if command is None:
        parser.error("the command comes first")
    try:
        exit_code = command.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever was reading has seen enough; the interpreter must not try to write the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except FoldlineError as error:
        print(f"foldline {arguments.command}: {_told(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return exit_code


def _told(error: FoldlineError) -> str:
    """Return what went wrong; of the database what it said, which no answer over HTTP has."""
    if not isinstance(error, StorageError) or not error.cause:
        return error.detail
    is_away = isinstance(error, StorageUnavailableError)
    return f"the database {'is not available' if is_away else 'refused'}: {error.cause}"


if __name__ == "__main__":
    sys.exit(main())
