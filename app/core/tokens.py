"""How many tokens a part takes: our own count, by an offline tokenizer and rough rules for media.

The provider's count differs by model; what is learnt from it corrects sums, never single counts.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

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
from app.core.image_size import image_size
from app.core.model_rules import ImageRule, MediaRule, ModelRule

CountTokens: TypeAlias = Callable[[str], int]

#: What a part costs beyond its text: role, separators, braces and field names of the wire format.
PART_OVERHEAD: Final = 4

#: Tokens per piece of media by the kind of its MIME type, where its size says little: an image is
#: cut into tiles by its pixels, which we do not decode. Between Gemini's 258 and Anthropic's 1,600.
MEDIA_TOKENS: Final = {"image": 1_000}
#: Bytes of encoded media per token, for what grows with its length: audio at 128 kbit/s and 32
#: tokens a second, video at 1 Mbit/s and 300 tokens a second, a page of PDF of 60 kB at 600 tokens.
MEDIA_BYTES_PER_TOKEN: Final = {"audio": 500, "video": 420, "application": 100}
#: Other files are mostly text.
FILE_BYTES_PER_TOKEN: Final = 4
#: Where a model's rule counts by the second or by the page.
AUDIO_BYTES_PER_S: Final = 16_000
VIDEO_BYTES_PER_S: Final = 125_000
PDF_PAGE_BYTES: Final = 60_000
#: A screenshot, in pixels.
COMMON_IMAGE: Final = (1_280, 800)
#: More pixels than decoders take (Pillow's limit against bombs): a header that says so is not
#: believed. One of 16 bytes could claim 2**64 of them.
MAX_PIXELS: Final = 178_956_970
#: A file by reference has no size here.
REFERENCED_FILE_TOKENS: Final = 1_000


def part_tokens(part: Part, count: CountTokens) -> int:
    """Return the tokens of a part."""
    match part:
        case Text(text=text):
            own = count(text)
        case FunctionCall(name=name, args=args):
            own = count(name) + count(args)
        case FunctionResponse(name=name, response=response, media=media):
            own = count(name) + count(response) + sum(map(media_tokens, media))
        case InlineData() | FileData():
            own = media_tokens(part)
        case ExecutableCode(code=code):
            own = count(code)
        case CodeExecutionResult(output=output):
            own = count(output)
        case Opaque(text=text, raw=raw):
            own = count(text or raw)
    return own + PART_OVERHEAD


def fresh_tokens(part: Part, count: CountTokens, rule: ModelRule | None) -> int:
    """Return the tokens of a part that no append counted, by the rules of a model."""
    return counted(part, part_tokens(part, count), rule)


def counted(part: Part, tokens: int, rule: ModelRule | None) -> int:
    """Return a part's tokens by the rules of a model: text as counted at append, media anew.

    Args:
        part: the part.
        tokens: as counted at append.
        rule: of the model; without one, media stay as they were counted.
    """
    if rule is None:
        return tokens
    if isinstance(part, (InlineData, FileData)):
        return _media_by_rule(part, rule) + PART_OVERHEAD
    if isinstance(part, FunctionResponse) and part.media:
        return tokens + sum(_media_by_rule(item, rule) - media_tokens(item) for item in part.media)
    return tokens


def _media_by_rule(part: InlineData | FileData, rule: ModelRule) -> int:
    """Return the tokens of media by a model's rule; by our own where it has none."""
    media = rule.media
    kind = part.mime_type.partition("/")[0] if part.mime_type else ""
    if kind == "image" and media.image is not None:
        own: int | None = _image_tokens(part, media.image)
    elif isinstance(part, FileData):
        own = None
    else:
        own = _lasting_tokens(part, kind, media)
    # Media are told in the model's tokens, and calibration is for text: undo what it will do.
    return media_tokens(part) if own is None else own * 100 // rule.tokenizer.percent


def _lasting_tokens(part: InlineData, kind: str, media: MediaRule) -> int | None:
    """Return the tokens of what has a length, which is guessed by its size; None without a rule."""
    size_bytes = len(part.data) * 3 // 4
    if part.mime_type == "application/pdf" and media.page_tokens is not None:
        return max(1, -(-size_bytes // PDF_PAGE_BYTES)) * media.page_tokens
    if kind == "audio" and media.audio_tokens_per_s is not None:
        return max(1, size_bytes // AUDIO_BYTES_PER_S) * media.audio_tokens_per_s
    if kind == "video" and media.video_tokens_per_s is not None:
        return max(1, size_bytes // VIDEO_BYTES_PER_S) * media.video_tokens_per_s
    return None


def _image_tokens(part: InlineData | FileData, rule: ImageRule) -> int:
    size = image_size(part.data) if isinstance(part, InlineData) else None
    # An image by reference, or of a kind that we cannot read, is taken for a common one.
    if size is None or size[0] * size[1] > MAX_PIXELS:
        size = COMMON_IMAGE
    width, height = size
    if rule.rule == "flat":
        return rule.base_tokens
    if rule.one_tile_edge and max(width, height) <= rule.one_tile_edge:
        return rule.base_tokens + rule.tile_tokens
    width, height = _scaled(width, height, rule)
    if rule.rule == "area":
        return min(-(-width * height // rule.pixels_per_token), rule.max_tokens or width * height)
    tiles = -(-width // rule.tile_edge) * -(-height // rule.tile_edge)
    return rule.base_tokens + tiles * rule.tile_tokens


def _scaled(width: int, height: int, rule: ImageRule) -> tuple[int, int]:
    """Return the size after the provider has made the image smaller, never larger."""
    longer, shorter = max(width, height), min(width, height)
    by_longer = (rule.max_edge, longer) if 0 < rule.max_edge < longer else (1, 1)
    width, height = (max(1, edge * by_longer[0] // by_longer[1]) for edge in (width, height))
    shorter = min(width, height)
    by_shorter = (rule.short_edge, shorter) if 0 < rule.short_edge < shorter else (1, 1)
    width, height = (max(1, edge * by_shorter[0] // by_shorter[1]) for edge in (width, height))
    return width, height


def text_size(parts: Iterable[Part]) -> int:
    """Return how many characters will be counted: what decides where the counting runs."""
    return sum(_characters(part) for part in parts)


def media_tokens(part: InlineData | FileData) -> int:
    """Return the tokens of media by our own rough rule."""
    if isinstance(part, FileData):
        return REFERENCED_FILE_TOKENS
    kind = part.mime_type.partition("/")[0]
    if kind in MEDIA_TOKENS:
        return MEDIA_TOKENS[kind]
    size_bytes = len(part.data) * 3 // 4
    return size_bytes // MEDIA_BYTES_PER_TOKEN.get(kind, FILE_BYTES_PER_TOKEN)


def _characters(part: Part) -> int:
    match part:
        case Text(text=text):
            return len(text)
        case FunctionCall(args=args):
            return len(args)
        case FunctionResponse(response=response):
            return len(response)
        case ExecutableCode(code=code):
            return len(code)
        case CodeExecutionResult(output=output):
            return len(output)
        case Opaque(text=text, raw=raw):
            return len(text or raw)
        case _:
            return 0
