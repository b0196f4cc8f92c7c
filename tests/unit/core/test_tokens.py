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
from app.core.copying import replace
from app.core.model_rules import MediaRule
from app.core.tokens import (
    AUDIO_BYTES_PER_S,
    COMMON_IMAGE,
    MEDIA_TOKENS,
    PART_OVERHEAD,
    PDF_PAGE_BYTES,
    REFERENCED_FILE_TOKENS,
    VIDEO_BYTES_PER_S,
    counted,
    part_tokens,
)
from app.providers.model_rules import load_model_rules
from tests.images import png

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


def test_what_a_rule_says_of_images_counts_for_images_alone() -> None:
    rule = load_model_rules().find("claude-sonnet-5")
    assert rule is not None
    blind = replace(rule, media=MediaRule())
    sound = InlineData(mime_type="audio/mp3", data="A" * 4000)

    assert counted(sound, 1, rule) == counted(sound, 1, blind)
    assert counted(IMAGE, 1, rule) != counted(IMAGE, 1, blind)


@pytest.mark.parametrize(
    ("mime_type", "size_bytes", "expected"),
    [
        ("application/pdf", 2 * PDF_PAGE_BYTES, 2 * 1_000),
        ("audio/mp3", 3 * AUDIO_BYTES_PER_S, 3 * 10_000),
        ("video/mp4", 6 * VIDEO_BYTES_PER_S, 6 * 100_000),
    ],
)
def test_what_has_a_length_counts_by_its_size(
    mime_type: str, size_bytes: int, expected: int
) -> None:
    media = MediaRule(page_tokens=1_000, audio_tokens_per_s=10_000, video_tokens_per_s=100_000)
    rule = load_model_rules().find("gemini-3-pro")
    assert rule is not None
    rule = replace(rule, media=media, tokenizer=replace(rule.tokenizer, percent=100))
    part = InlineData(mime_type=mime_type, data="A" * (size_bytes * 4 // 3))

    assert counted(part, 1, rule) == expected + PART_OVERHEAD


def test_media_cost_by_the_model_s_rule_wherever_they_stand() -> None:
    rule = load_model_rules().find("claude-sonnet-5")
    small = InlineData(mime_type="image/png", data=png(64, 64))
    result = FunctionResponse(id="c", name="f", response="{}", media=(small, small))
    alone = counted(small, part_tokens(small, len), rule) - PART_OVERHEAD
    text = part_tokens(FunctionResponse(id="c", name="f", response="{}"), len)
    assert alone < MEDIA_TOKENS["image"]
    assert counted(result, part_tokens(result, len), rule) == text + 2 * alone


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "claude-sonnet-5", "gpt-5.2", "gpt-4o"])
def test_a_header_that_claims_more_than_can_be_decoded_is_not_believed(model: str) -> None:
    rule = load_model_rules().find(model)
    common = InlineData(mime_type="image/png", data=png(*COMMON_IMAGE))
    bomb = InlineData(mime_type="image/png", data=png(2**32 - 1, 2**32 - 1))
    largest = InlineData(mime_type="image/png", data=png(13_000, 13_000))

    assert counted(bomb, 1, rule) == counted(common, 1, rule)
    assert counted(largest, 1, rule) != counted(common, 1, rule)
