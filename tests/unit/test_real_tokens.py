"""How many tokens the recorded sessions have, against what tiktoken counted of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from app.providers.tokenizer import Tokenizer
from tests.readers import read_all

#: tiktoken 0.14.0, o200k_base, on 2026-11-30: every string of every item, each by itself. Its
#: vocabulary is not part of its package, so it is not asked again here; on that day not one of the
#: texts was counted otherwise by ours.
TIKTOKEN_TEXTS: Final = 30_706
TIKTOKEN_TOKENS: Final = 2_117_763
TOLERANCE: Final = 0.02


def texts(value: Any) -> Iterator[str]:
    """Yield the strings in a JSON value that hold anything."""
    if isinstance(value, str):
        yield from [value] if value else []
    elif isinstance(value, list | dict):
        for member in value if isinstance(value, list) else value.values():
            yield from texts(member)


def test_tokens_of_recorded_sessions_are_those_of_tiktoken(shared_data: Path) -> None:
    count = Tokenizer().count
    found = [text for session in read_all(shared_data) for text in texts(session.items)]
    assert len(found) == TIKTOKEN_TEXTS
    ours = sum(map(count, found))
    assert abs(ours - TIKTOKEN_TOKENS) <= TOLERANCE * TIKTOKEN_TOKENS
