"""What a part counts."""

import pytest

from app.core.contents import (
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    Text,
)
from app.core.tokens import MEDIA_TOKENS, PART_OVERHEAD, REFERENCED_FILE_TOKENS, part_tokens

IMAGE = InlineData(mime_type="image/png", data="A" * 4000)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Text(text="x" * 10), 10),
        (Text(text=""), 0),
        (FunctionCall(id="c", name="ff", args='{"a":1}'), 2 + 7),
        (FunctionResponse(id="c", name="ff", response="{}"), 2 + 2),
        (FunctionResponse(id="c", name="f", response="{}", media=(IMAGE,)), 3 + 1000),
        (ExecutableCode(code="xx", language="PYTHON"), 2),
        (CodeExecutionResult(outcome="OK", output="xxx"), 3),
        (Opaque(provider="anthropic", type="t", raw='{"x":1}'), 7),
        (Opaque(provider="anthropic", type="t", raw='{"x":1}', text="tt"), 2),
        (FileData(file_uri="gs://x"), REFERENCED_FILE_TOKENS),
        (IMAGE, MEDIA_TOKENS["image"]),
        (InlineData(mime_type="audio/mp3", data="A" * 4000), 6),
        (InlineData(mime_type="text/plain", data="A" * 4000), 750),
    ],
)
def test_a_part_counts_what_it_says_and_a_little_more(part: Part, expected: int) -> None:
    assert part_tokens(part, len) == expected + PART_OVERHEAD
