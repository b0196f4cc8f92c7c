"""Nothing that has the name or the shape of a credential gets into a summary.

{"api_key": "x7", "page": 2}         {"api_key": "[redacted]", "page": 2}
"use Bearer abcdefghijklmno"         "use [redacted]"
"""

import re
from typing import Final

from app.core.canonical import Json

REDACTED: Final = "[redacted]"

_SECRET_KEY: Final = re.compile(
    r"pass(?:word|wd|phrase|code)|secret|api[-_]?key|access[-_]?key|private[-_]?key|credential"
    r"|^auth(?:orization)?$|auth[-_]?(?:code|response|key)|(?:^|[-_]|[a-z])token$|bearer|cookie",
    re.IGNORECASE,
)
_SECRET_TEXT: Final = re.compile(
    r"\b(?:Bearer|Basic)\s+[\w.~+/=-]{12,}"
    r"|\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abprs]|AKIA|ASIA|AIza|ya29)[-_.]?[\w-]{14,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",
    re.DOTALL | re.ASCII,
)


def without_secrets(text: str) -> str:
    """Return the text with what has the shape of a key or a signed token replaced."""
    return _SECRET_TEXT.sub(REDACTED, text)


def redacted(value: Json) -> Json:
    """Return a JSON value without secrets: by the names of its keys, and by shape."""
    if isinstance(value, dict):
        return {
            key: REDACTED
            if _SECRET_KEY.search(key) and isinstance(item, str | dict | list) and item
            else redacted(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return without_secrets(value) if isinstance(value, str) else value
