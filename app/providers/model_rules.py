"""Read the model rules: those that come with the service, and a file that is laid over them."""

from importlib.resources import files
from pathlib import Path

from app.core.model_rules import ModelRules
from app.formats.rules.loader import RulesError, parse_rules


def load_model_rules(over: Path | None = None) -> ModelRules:
    """Return the rules.

    Args:
        over: a file whose rules win over ours.

    Raises:
        RulesError: the file cannot be read or used.
    """
    ours = files("app.formats.rules").joinpath("model_rules.json").read_text(encoding="utf-8")
    if over is None:
        return parse_rules(ours)
    try:
        text = over.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RulesError(f"cannot read {over}: {error}") from error
    return parse_rules(ours, text)
