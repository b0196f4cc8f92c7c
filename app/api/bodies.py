"""Request bodies: read with a limit, decoded, and parsed strictly into a request model.

The limit is on the decoded size and is checked while decoding, so a small body cannot become a
large one in memory.
"""

import asyncio
import hashlib
import io
import re
import zlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import zstandard
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect

from app.api.errors import UnsupportedMediaTypeError
from app.api.schemas.fields import FieldRuleError
from app.core.errors import MalformedBodyError, TooLargeError
from app.core.json_text import RawItem, parse_object

M = TypeVar("M", bound=BaseModel)

LIMIT_NAME: Final = "max_batch_bytes"
IDENTITY: Final = "identity"
#: Below this a body is parsed in some 2 ms; above, it is parsed beside the event loop.
MAX_BYTES_ON_LOOP: Final = 65_536
#: Frames of our own clients need far less; a frame may ask for gigabytes.
MAX_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
#: Of a gzip body, what is decoded at a time.
GZIP_PIECE_BYTES: Final = 4096
#: What stands behind a zstd body while it is decoded; no JSON ends like this.
_END_TEXT: Final = b"\0the end of the body"
_END: Final = zstandard.ZstdCompressor(write_checksum=True).compress(_END_TEXT)
JSON_TYPE: Final = "application/json"
_ESCAPED_BYTE: Final = re.compile("[\udc80-\udcff]")
#: Where the schema of a request model is kept for the OpenAPI document.
REQUEST_MODELS: Final[dict[str, type[BaseModel]]] = {}


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large a body may be."""

    #: Decoded.
    max_batch_bytes: int


@dataclass(frozen=True, slots=True)
class JsonBody(Generic[M]):
    """A parsed request body."""

    model: M
    #: Elements of the lists whose text is kept, by member.
    items: dict[str, list[RawItem]]
    #: SHA-256 of the decoded body, for idempotency keys.
    digest: bytes


def json_body(
    model: type[M], *, kept: Collection[str] = (), is_optional: bool = False
) -> Callable[[Request], Awaitable[JsonBody[M]]]:
    """Return the dependency that reads a body of this model.

    Args:
        model: what the body must be.
        kept: members that are lists whose elements' text is kept.
        is_optional: no body at all counts as an empty object.
    """
    REQUEST_MODELS[model.__name__] = model

    async def read(request: Request) -> JsonBody[M]:
        data = await read_body(request, limit=request.app.state.limits.max_batch_bytes)
        if not data and is_optional:
            data = b"{}"
        elif not _is_json(request.headers.get("content-type", "")):
            raise UnsupportedMediaTypeError(f"the body must be {JSON_TYPE}")
        if len(data) <= MAX_BYTES_ON_LOOP:
            return parse(data)
        return await asyncio.to_thread(parse, data)

    def parse(data: bytes) -> JsonBody[M]:
        members = parse_object(_text(data, kept), kept=kept)
        items = {name: members[name] for name in kept if isinstance(members.get(name), list)}
        values = {
            name: [item.value for item in value] if name in items else value
            for name, value in members.items()
        }
        try:
            parsed = model.model_validate(values)
        except ValidationError as error:
            raise _as_request_error(error, values) from None
        return JsonBody(parsed, items, hashlib.sha256(data).digest())

    return read


def request_body(model: type[BaseModel], *, is_required: bool = True) -> dict[str, Any]:
    """Return what OpenAPI says of a body that a dependency reads."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {JSON_TYPE: {"schema": schema}}
    return {"requestBody": {"required": is_required, "content": content}}


async def read_body(request: Request, *, limit: int) -> bytes:
    """Return the decoded body.

    Raises:
        TooLargeError: it has more bytes than the limit, before or after decoding.
        UnsupportedMediaTypeError: its encoding is not supported.
        MalformedBodyError: it is not what its encoding says.
    """
    encoding = request.headers.get("content-encoding", IDENTITY).strip().lower() or IDENTITY
    if encoding != IDENTITY and encoding not in DECODERS:
        raise UnsupportedMediaTypeError(f"content encoding {encoding!r} is not supported")
    chunks: list[bytes] = []
    size_bytes = 0
    try:
        async for chunk in request.stream():
            size_bytes += len(chunk)
            if size_bytes > limit:
                raise TooLargeError(limit_name=LIMIT_NAME, limit=limit)
            chunks.append(chunk)
    except ClientDisconnect:
        raise MalformedBodyError("the body ended early") from None
    data = b"".join(chunks)
    if encoding != IDENTITY:
        # Nobody knows before how large it becomes.
        data = await asyncio.to_thread(DECODERS[encoding], data, limit + 1)
    if len(data) > limit:
        raise TooLargeError(limit_name=LIMIT_NAME, limit=limit)
    return data


def _gunzip(data: bytes, most: int) -> bytes:
    decoded, rest = bytearray(), memoryview(data)
    decoder = None
    try:
        while rest and len(decoded) < most:
            # A gzip body may hold several members, one after another.
            if decoder is None or decoder.eof:
                decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            # What is left of a piece is copied each time: of a large one, for thousands of members.
            piece = rest[:GZIP_PIECE_BYTES]
            decoded += decoder.decompress(piece, most - len(decoded))
            left_bytes = len(decoder.unused_data) + len(decoder.unconsumed_tail)
            rest = rest[len(piece) - left_bytes :]
    except zlib.error:
        raise MalformedBodyError("the body is not gzip") from None
    if decoder is not None and not decoder.eof and len(decoded) < most:
        raise MalformedBodyError("the gzip body ends early")
    return bytes(decoded)


def _unzstd(data: bytes, most: int) -> bytes:
    # The decoder does not say whether the last frame was whole. A frame of our own behind it comes
    # out again only then; else it is taken for what is missing, a checksum included.
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    try:
        with decoder.stream_reader(io.BytesIO(data + _END), read_across_frames=True) as reader:
            decoded = reader.read(most + len(_END_TEXT))
    except zstandard.ZstdError:
        raise MalformedBodyError("the body is not zstd, or ends early") from None
    if decoded.endswith(_END_TEXT):
        return decoded.removesuffix(_END_TEXT)
    if len(decoded) < most + len(_END_TEXT):
        raise MalformedBodyError("the zstd body ends early")
    return decoded[:most]


#: Each returns at most so many bytes.
DECODERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "zstd": _unzstd,
}


def _is_json(content_type: str) -> bool:
    if not content_type.strip():
        return True
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == JSON_TYPE or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


def _text(data: bytes, kept: Collection[str]) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        detail = f"not valid UTF-8 at byte {error.start}"
        raise MalformedBodyError(detail, pointer=_bad_element(data, kept)) from None


def _bad_element(data: bytes, kept: Collection[str]) -> str:
    """Return where the first bytes that are not UTF-8 stand, as far as it can be told."""
    try:
        members = parse_object(data.decode(errors="surrogateescape"), kept=kept)
    except MalformedBodyError:
        return ""
    for name, value in members.items():
        elements = value if name in kept and isinstance(value, list) else []
        for number, item in enumerate(elements):
            # Escapes in the text are still escapes: these can only stand for raw bytes.
            if _ESCAPED_BYTE.search(item.raw):
                return f"/{name}/{number}"
    return ""


def _as_request_error(error: ValidationError, body: object) -> RequestValidationError:
    return RequestValidationError(
        [
            {
                "type": item["type"],
                "loc": (
                    "body",
                    *_place(item["loc"], body, is_missing=item["type"] == "missing"),
                    *_named_field(item),
                ),
                "msg": item["msg"].removeprefix("Value error, "),
            }
            for item in error.errors(include_url=False, include_input=False)
        ]
    )


def _named_field(item: ErrorDetails) -> tuple[str, ...]:
    """Return the field that a rule of several tells as wrong."""
    rule = item.get("ctx", {}).get("error")
    return (rule.field,) if isinstance(rule, FieldRuleError) else ()


def _place(location: Sequence[str | int], body: object, *, is_missing: bool) -> list[str | int]:
    """Return the location without the names that Pydantic gives to the members of a union."""
    place: list[str | int] = []
    for number, step in enumerate(location):
        is_last = number == len(location) - 1
        if isinstance(body, dict) and (step in body or (is_missing and is_last)):
            body = body.get(step)
        elif isinstance(body, list) and isinstance(step, int) and step < len(body):
            body = body[step]
        else:
            continue
        place.append(step)
    return place
