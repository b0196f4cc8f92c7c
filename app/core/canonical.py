"""The one JSON text that a value has here.

Two processes that hold the same value must emit the same bytes, and a provider must be able to read
them. So: UTF-8 without escapes beyond the needed ones, no blanks, key order as it was given (only
objects that we build ourselves are sorted, by building them sorted), and three things that occur in
real tool output but that providers or Postgres refuse are replaced:

    "a\\u0000b"     a NUL character        becomes U+FFFD
    "\\ud83d"       a lone surrogate       becomes U+FFFD
    1e999, NaN     not a finite number    becomes the text "inf", "-inf" or "nan"
"""

import json
import math
import re
from typing import Final, TypeAlias

import orjson

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

#: Members of a value, at all levels, above which the standard library writes its text in steps.
MAX_MEMBERS_AT_ONCE: Final = 4_096

_UNEMITTABLE = re.compile("[\x00\ud800-\udfff]")
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
)
_encode = _ENCODER.encode
#: What is in a text of orjson's where it may not be the canonical one: a character that cannot be
#: emitted, and numbers near zero (0.00001 for 1e-05, 1e-7 for 1e-07).
_TRACES: Final = ("\\u0000", "0.0000", "e-")


def clean_text(text: str) -> str:
    """Return the text with what cannot be emitted replaced by U+FFFD; most often the text
    itself."""
    return _UNEMITTABLE.sub("\ufffd", text) if is_unemittable(text) else text


def is_unemittable(text: str) -> bool:
    """Tell whether a text holds what cannot be emitted."""
    # The regular expression takes 9 ms for a megabyte, this takes less than one.
    if "\x00" in text:
        return True
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def canonical_json(value: Json) -> str:
    """Return the canonical JSON text of a value. Always valid JSON and valid UTF-8."""
    return emitted_json(value)[0]


def is_clean(value: Json) -> bool:
    """Tell whether a value is emitted as it was sent, with nothing replaced."""
    return emitted_json(value)[1]


def emitted_json(value: Json) -> tuple[str, bool]:
    """Return the canonical JSON text of a value, and whether it is as it was sent: nothing in it
    had to be replaced."""
    # A fifth of the time of the standard library, which is asked where the two may differ. That is
    # found faster in the text than in the value; a false hit costs only time.
    text = _fast_json(value)
    if text is None or _has_traces(text) or ("null" in text and not _is_finite(value)):
        return _library_json(value)
    return text, True


def _fast_json(value: Json) -> str | None:
    """Return the text as orjson writes it; None for what it refuses: lone surrogates, integers of
    more than 64 bits, some 250 levels."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return None


def _has_traces(text: str) -> bool:
    for trace in _TRACES:  # noqa: SIM110  a third of the time of `any`
        if trace in text:
            return True
    return False


def _is_finite(value: Json) -> bool:
    """Tell whether orjson wrote every number: for those that are not finite it writes null."""
    left = [value]
    # Grows while it is walked.
    for item in left:
        if isinstance(item, float):
            if not math.isfinite(item):
                return False
        elif isinstance(item, dict):
            left.extend(item.values())
        elif isinstance(item, (list, tuple)):
            left.extend(item)
    return True


def _library_json(value: Json) -> tuple[str, bool]:
    if _has_many_members(value):
        # In one call no other thread runs: 22 ms for a megabyte of small members.
        cleaned = _clean(value)
        return "".join(_ENCODER.iterencode(cleaned)), cleaned == value
    try:
        text = _encode(value)
    except ValueError:
        return _encode(_clean(value)), False
    # A look at the text again: a hit may be a false one, and cleaning is harmless.
    if "\\u0000" in text or is_unemittable(text):
        cleaned_text = _encode(_clean(value))
        return cleaned_text, cleaned_text == text
    return text, True


def _has_many_members(value: Json) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    count = 0
    while level:
        count += sum(map(len, level))
        if count > MAX_MEMBERS_AT_ONCE:
            return True
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
    return False


def json_string(text: str) -> str:
    """Return the JSON text of a string, quotes included."""
    # An eighth of the time of the library's own, which gives the same; a test compares them.
    if "\x00" not in text:
        try:
            return orjson.dumps(text).decode()
        except TypeError:
            # A lone surrogate.
            pass
    return orjson.dumps(clean_text(text)).decode()


def _clean(value: Json) -> Json:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    return value
