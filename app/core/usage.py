"""What a provider says that a request took, in the words of any of them.

Anthropic   input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens;
            the input is what was neither read from the cache nor written to it
Bedrock     inputTokens, cacheReadInputTokens, cacheWriteInputTokens, outputTokens; likewise
OpenAI      prompt_tokens or input_tokens, with details of what was cached; the input is all
Gemini      prompt_token_count or promptTokenCount, cached_content_token_count; the input is all
ours        input_tokens, cached_tokens, cache_write_tokens, output_tokens; the input is all
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from app.core.canonical import Json

#: No provider counts further; what does is no count.
_MOST: Final = 2**40
_DETAILS: Final = (
    "prompt_tokens_details",
    "input_tokens_details",
    "promptTokensDetails",
    "inputTokensDetails",
)
_PARTIAL_READ: Final = (
    "cache_read_input_tokens",
    "cacheReadInputTokens",
    "cacheReadInputTokenCount",
)
_PARTIAL_WRITE: Final = (
    "cache_creation_input_tokens",
    "cacheWriteInputTokens",
    "cacheWriteInputTokenCount",
)
_INPUT: Final = (
    "prompt_token_count",
    "promptTokenCount",
    "prompt_tokens",
    "input_tokens",
    "inputTokens",
)
_OUTPUT: Final = (
    "output_tokens",
    "completion_tokens",
    "outputTokens",
    "candidates_token_count",
    "candidatesTokenCount",
)
_CACHED: Final = ("cached_tokens", "cached_content_token_count", "cachedContentTokenCount")
_WRITTEN: Final = ("cache_write_tokens",)
_COUNTS: Final = frozenset(
    (*_PARTIAL_READ, *_PARTIAL_WRITE, *_INPUT, *_OUTPUT, *_CACHED, *_WRITTEN)
)
_MUST_BE: Final = f"must be a count of tokens: an integer from 0 to {_MOST - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a request, as its provider counted."""

    #: All of the input, cached or not; None when not said.
    input_tokens: int | None = None
    output_tokens: int | None = None
    #: Of the input, what came from the cache and what was written to it.
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


def read_usage(value: Mapping[str, Json]) -> Usage:
    """Return a usage object's counts; what it does not say, or says wrongly, is None."""
    details = next(
        (each for key in _DETAILS if isinstance(each := value.get(key), dict)), dict[str, Json]()
    )
    both = {**details, **value}
    given = _first(value, _INPUT)
    read, written = _first(value, _PARTIAL_READ), _first(value, _PARTIAL_WRITE)
    if read is not None or written is not None:
        return Usage(
            input_tokens=None if given is None else given + (read or 0) + (written or 0),
            output_tokens=_first(value, _OUTPUT),
            cached_tokens=read or 0,
            cache_write_tokens=written or 0,
        )
    return Usage(
        input_tokens=given,
        output_tokens=_first(value, _OUTPUT),
        cached_tokens=_first(both, _CACHED),
        cache_write_tokens=_first(both, _WRITTEN),
    )


def wrong_counts(value: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield what is told as a count and is none: ``(pointer, what it must be)``."""
    for key, count in value.items():
        if key in _COUNTS and count is not None and not _is_count(count):
            yield f"/{key}", _MUST_BE
    for details in _DETAILS:
        inner = value.get(details)
        # Gemini's details of this name are a list by modality, and say nothing of caches.
        if inner is not None and not isinstance(inner, dict | list):
            yield f"/{details}", "must be an object"
        for key, count in inner.items() if isinstance(inner, dict) else ():
            if key in _COUNTS and count is not None and not _is_count(count):
                yield f"/{details}/{key}", _MUST_BE


def has_counts(value: Mapping[str, Json]) -> bool:
    """Tell whether a usage object says anything that is known here."""
    return any(key in _COUNTS and value[key] is not None for key in value)


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def _first(value: Mapping[str, Json], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        count = value.get(key)
        if isinstance(count, int) and _is_count(count):
            return count
    return None
