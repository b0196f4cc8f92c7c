"""`foldline config check`: print the settings as resolved, secrets masked, or what is wrong."""

import argparse

from app.settings import load_settings, masked
from app.wiring import model_rules


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `check`, the only thing to do so far."""
    parser.add_argument("action", choices=["check"])


def run(arguments: argparse.Namespace) -> int:
    """Print every variable with its value."""
    del arguments
    settings = load_settings()
    # What a setting names must be usable as well.
    model_rules(settings)
    for name, value in masked(settings).items():
        print(f"{name}={value}")
    return 0
