"""Fit call ids and tool names into what a provider accepts: deterministic, no two become one.

    fit_identifier("functions.search:0", limit=64)  ->  "functions_search_0_1f2c0a7b"

What fits is left alone, so an id comes back to the provider that made it as it was. What does not
is changed as little as possible and gets a piece of its own hash, so that two that would look alike
afterwards stay two. Nothing is ever read out of an id.
"""

import re
from hashlib import sha256
from typing import Final

_OUTSIDE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_LENGTH: Final = 8


def fit_identifier(text: str, *, limit: int, any_character: bool = False) -> str:
    """Return the text within ``[a-zA-Z0-9_-]`` (unless any character is accepted) and the limit."""
    fitted = text if any_character else _OUTSIDE.sub("_", text)
    if fitted == text and 0 < len(text) <= limit:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{fitted[: limit - _HASH_LENGTH - 1]}_{digest}"
