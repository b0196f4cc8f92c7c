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
            own = count(name) + count(response) + sum(map(_media_tokens, media))
        case InlineData() | FileData():
            own = _media_tokens(part)
        case ExecutableCode(code=code):
            own = count(code)
        case CodeExecutionResult(output=output):
            own = count(output)
        case Opaque(text=text, raw=raw):
            own = count(text or raw)
    return own + PART_OVERHEAD


def text_size(parts: Iterable[Part]) -> int:
    """Return how many characters will be counted: what decides where the counting runs."""
    return sum(_characters(part) for part in parts)


def _media_tokens(part: InlineData | FileData) -> int:
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
