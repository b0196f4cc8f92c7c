"""`foldline config check`: print the settings as resolved, secrets masked, or what is wrong."""

import argparse

from app.settings import load_settings, masked


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `check`, the only thing to do so far."""
    parser.add_argument("action", choices=["check"])


def run(arguments: argparse.Namespace) -> int:
    """Print every variable with its value."""
    del arguments
    for name, value in masked(load_settings()).items():
        print(f"{name}={value}")
    return 0
