"""Foldline: a context compiler for LLM agents."""

from importlib.resources import files

__version__ = "0.1.0"


def revision() -> str:
    """Return the revision of the source, which the build of an image writes beside the package;
    ``unknown`` where nobody did."""
    try:
        return files("app").joinpath("REVISION").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return "unknown"
