"""A rough token count for the few words of the pipeline's own; what others wrote is counted."""

from typing import Final

_BYTES_PER_TOKEN: Final = 4


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text is: one for every four bytes of UTF-8, rounded up."""
    return -(-len(text.encode(errors="replace")) // _BYTES_PER_TOKEN)
