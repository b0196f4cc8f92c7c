"""The examples of the README: each `curl` with the answer that is printed below it.

An answer may be shortened: what it shows must be there, ``"..."`` stands for any value, and members
that it does not show may be there too. Lists are shown whole.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

README: Final = Path(__file__).parents[2] / "README.md"
ANY: Final = "..."
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """A request and what is said to be answered."""

    method: str
    path: str
    body: Any
    answer: Any


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    text = README.read_text(encoding="utf-8")
    return [body for name, body in _BLOCK.findall(text) if name == language]


def examples() -> Iterator[Example]:
    """Yield each `curl` block that has a JSON block below it."""
    found = _BLOCK.findall(README.read_text(encoding="utf-8"))
    for (language, body), (next_language, next_body) in pairwise(found):
        if language == "sh" and body.startswith("curl ") and next_language == "json":
            yield _example(body, json.loads(next_body))


def programs() -> Iterator[tuple[str, str]]:
    """Yield each Python block with the text below it, which is what it prints."""
    found = _BLOCK.findall(README.read_text(encoding="utf-8"))
    for (language, body), (next_language, next_body) in pairwise(found):
        if language == "python" and next_language == "text":
            yield body, next_body


def commands() -> Iterator[list[str]]:
    """Yield the shell commands of the README, one by one, comments left out."""
    for block in blocks("sh"):
        if not block.startswith("curl "):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    yield words


def _example(command: str, answer: Any) -> Example:
    words = iter(shlex.split(command.replace("\\\n", " "))[1:])
    method, path, body = "GET", "", None
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "--json":
            body = json.loads(next(words))
            method = "POST" if method == "GET" else method
        else:
            path = re.sub(r"^localhost:8080", "", word)
    return Example(method, path, body, answer)


def mismatch(shown: Any, answered: Any, pointer: str = "") -> str | None:
    """Return where an answer is not as shown, or None."""
    if shown == ANY:
        return None
    if isinstance(shown, dict) and isinstance(answered, dict):
        for key, value in shown.items():
            if key not in answered:
                return f"{pointer}/{key} is missing"
            found = mismatch(value, answered[key], f"{pointer}/{key}")
            if found is not None:
                return found
        return None
    if isinstance(shown, list) and isinstance(answered, list) and len(shown) == len(answered):
        for number, (value, other) in enumerate(zip(shown, answered, strict=True)):
            found = mismatch(value, other, f"{pointer}/{number}")
            if found is not None:
                return found
        return None
    return None if shown == answered else f"{pointer} is {answered!r}, not {shown!r}"
