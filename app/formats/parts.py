"""Parts: native JSON to Part and back.

    {"text": "hi"}                                            Text("hi")
    {"functionCall": {"name": "f", "args": {"a": 1}}}         FunctionCall(None, "f", '{"a":1}')
    {"function_call": {"name": "f", "args": "{\\"a\\": 1}"}}    the same, with args_text '{"a": 1}'

Beside Gemini's fields a part may hold our own: ``signature_provider``, ``openai_item``,
``anthropic_block``, ``bedrock_block``, ``opaque``, and inside calls and results ``args_text``,
``response_text``, ``is_error``, ``long_running``.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, cast

from msgspec import Struct

from app.core.canonical import Json, canonical_json, is_clean, json_string
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
from app.core.errors import InvalidEventError
from app.formats.fields import Fields, Notes, Shape, is_deep, json_array, json_object
from app.formats.gemini_rules import is_base64

#: Call ids and tool names are indexed; a B-tree entry holds no more than about 2,700 bytes.
MAX_NAME_BYTES: Final = 1024

#: Who signed a part when it does not say.
DEFAULT_SIGNER: Final = "gemini"

#: Tools that run at Gemini; their parts are echoed as they came.
SERVER_TOOL_TYPES: Final = ("tool_call", "tool_response")

#: Fields of a part that add to its kind. Those in the mapping have known members.
_EXTRA_SHAPES: Final[Mapping[str, Shape | None]] = {
    "video_metadata": Shape("video metadata", "start_offset", "end_offset", "fps"),
    "media_resolution": Shape("a media resolution", "level", "num_tokens"),
    "part_metadata": None,
    "audio_transcription": None,
    "media_processing": None,
    "speech_metadata": None,
    # What an item of the Responses API is known by beside what the part says, and how closely an
    # image is to be looked at.
    "openai_item": Shape("an OpenAI item", "id", "type", "phase", "namespace", "detail"),
    # What a block of these says beside what the part does.
    "anthropic_block": Shape(
        "an Anthropic block", "citations", "context", "caller", "toolset_name"
    ),
    "bedrock_block": Shape("a Bedrock block", "citations", "context"),
}
#: Of them Gemini's own.
GEMINIS_EXTRAS: Final = _EXTRA_SHAPES.keys() - {"anthropic_block", "bedrock_block", "openai_item"}

_CONTENT = Shape("content", "role", "parts")
_PART = Shape(
    "a part",
    "text",
    "thought",
    "thought_signature",
    "signature_provider",
    "inline_data",
    "file_data",
    "function_call",
    "function_response",
    "executable_code",
    "code_execution_result",
    "opaque",
    *SERVER_TOOL_TYPES,
    *_EXTRA_SHAPES,
)
_FUNCTION_CALL = Shape(
    "a function call",
    "id",
    "name",
    "args",
    "args_text",
    "long_running",
    "partial_args",
    "will_continue",
)
_FUNCTION_RESPONSE = Shape(
    "a function response",
    "id",
    "name",
    "response",
    "response_text",
    "is_error",
    "parts",
    "will_continue",
    "scheduling",
)
_RESPONSE_MEDIA = Shape(
    "a part of a function response",
    "inline_data",
    "file_data",
    "media_processing",
    "openai_item",
    "anthropic_block",
    "bedrock_block",
)
_INLINE_DATA = Shape("inline data", "mime_type", "data", "display_name")
_FILE_DATA = Shape("file data", "file_uri", "mime_type", "display_name")
_EXECUTABLE_CODE = Shape("executable code", "code", "language", "id")
_CODE_RESULT = Shape("a code execution result", "outcome", "output", "id")
_OPAQUE = Shape("an opaque part", "provider", "type", "raw", "text")

_BASE64 = re.compile(r"[A-Za-z0-9+/]*")
_URL_SAFE = str.maketrans("-_", "+/", "\r\n\t ")


class ParsedContent(Struct, frozen=True):
    """A content, read."""

    role: str
    parts: tuple[Part, ...]


def parse_content(value: Json, pointer: str = "", notes: Notes | None = None) -> ParsedContent:
    """Read a content object.

    Args:
        value: the content; a role that is not given is empty.
        pointer: where it stands, for errors and notes.
        notes: collects what could not be taken as it came.
    """
    fields = _CONTENT.read_strictly(value, pointer, [] if notes is None else notes)
    role = fields.identifier("role", max_bytes=MAX_NAME_BYTES) or ""
    if role == "assistant":
        fields.note("role", "read as model")
        role = "model"
    parts: list[Part] = []
    for index, item in enumerate(fields.array("parts")):
        parts.extend(parse_part(item, f"{fields.at('parts')}/{index}", fields.notes))
    return ParsedContent(role, tuple(parts))


def parse_part(value: Json, pointer: str = "", notes: Notes | None = None) -> tuple[Part, ...]:
    """Read a part; one that holds several kinds becomes several.

    Raises:
        InvalidEventError: a field has the wrong type, lacks, or is unknown.
    """
    fields = _PART.read_strictly(value, pointer, [] if notes is None else notes)
    kinds = [key for key in fields if key in _READERS]
    if len(kinds) > 1:
        kinds = _several(kinds, fields)
    parts = [_READERS[key](fields, key) for key in kinds] or [Text(text="")]
    if len(fields) <= len(kinds):
        return tuple(parts)
    thought = fields.flag("thought")
    if thought:
        parts = [replace(part, thought=True) for part in parts]
    return _signed(fields, parts)


def _several(kinds: list[str], fields: Fields) -> list[str]:
    """Return the kinds of a part that holds several, in the order in which they are read."""
    if fields.value("text") == "":
        kinds.remove("text")
    if len(kinds) > 1:
        fields.notes.append((fields.pointer, "holds several kinds; read as one part for each"))
    return [key for key in _READERS if key in kinds]


def _signed(fields: Fields, parts: list[Part]) -> tuple[Part, ...]:
    """Give the signature to the call, which is what providers sign; extras to the first part."""
    signature = fields.text("thought_signature")
    signer = fields.identifier("signature_provider", max_bytes=MAX_NAME_BYTES) or DEFAULT_SIGNER
    if signature and signer == DEFAULT_SIGNER and not is_base64(signature):
        fields.note("thought_signature", f"{signer}'s are base64; read as absent")
        signature = None
    if signature:
        calls = (i for i, part in enumerate(parts) if isinstance(part, FunctionCall))
        at = next(calls, 0)
        parts[at] = replace(parts[at], signature=signature, signed_by=signer)
    if extra := _extra(fields):
        parts[0] = replace(parts[0], extra=extra)
    return tuple(parts)


def _extra(fields: Fields) -> str | None:
    texts: list[tuple[str, str]] = []
    for key, shape in _EXTRA_SHAPES.items():
        if key not in fields:
            continue
        value: Json = fields.mapping(key)
        if shape is not None:
            known = shape.read_strictly(value, fields.at(key), fields.notes)
            value = {name: known.value(name) for name in known}
        texts.append((key, fields.canonical(key, value)))
    return json_object(texts) if texts else None


def _text(fields: Fields, key: str) -> Part:
    return Text(text=fields.text(key) or "")


def _function_call(outer: Fields, key: str) -> Part:
    fields = _FUNCTION_CALL.read_strictly(outer.value(key), outer.at(key), outer.notes)
    name = fields.identifier("name", max_bytes=MAX_NAME_BYTES)
    if not name:
        raise fields.wrong("name", "a function call needs a name")
    for streamed in ("partial_args", "will_continue"):
        if fields.value(streamed):
            fields.note(streamed, "belongs to a stream and is not kept in the call")
    args, args_text = _args(fields)
    return FunctionCall(
        id=fields.identifier("id", max_bytes=MAX_NAME_BYTES) or None,
        name=name,
        args=args,
        args_text=args_text,
        long_running=fields.flag("long_running"),
    )


def _args(fields: Fields) -> tuple[str, str | None]:
    """Return the arguments as the text of an object, and verbatim when they came as a string."""
    key = "args_text" if "args_text" in fields else "args"
    value = fields.value(key)
    if value is None:
        return "{}", None
    if isinstance(value, str):
        text = fields.text(key) or ""
        return _args_of_text(fields, key, text), text
    if isinstance(value, dict):
        return fields.canonical(key, value), None
    fields.note(key, "arguments that are no object are read as _raw")
    return canonical_json({"_raw": fields.canonical(key, value)}), None


def _args_of_text(fields: Fields, key: str, text: str) -> str:
    if not text.strip():
        return "{}"
    parsed = parse_strict_json(text)
    if isinstance(parsed, dict):
        return fields.canonical(key, parsed)
    fields.note(key, "arguments that are no object are read as _raw")
    return canonical_json({"_raw": text})


def _function_response(outer: Fields, key: str) -> Part:
    fields = _FUNCTION_RESPONSE.read_strictly(outer.value(key), outer.at(key), outer.notes)
    for streamed in ("will_continue", "scheduling"):
        if fields.value(streamed):
            fields.note(streamed, "belongs to a stream and is not kept in the response")
    response, response_text = _response(fields)
    media = [
        _response_media(item, f"{fields.at('parts')}/{index}", fields.notes)
        for index, item in enumerate(fields.array("parts"))
    ]
    return FunctionResponse(
        id=fields.identifier("id", max_bytes=MAX_NAME_BYTES) or None,
        name=fields.identifier("name", max_bytes=MAX_NAME_BYTES) or "",
        response=response,
        response_text=response_text,
        is_error=fields.flag("is_error"),
        media=tuple(media),
    )


def _response(fields: Fields) -> tuple[str, str | None]:
    """Return the result as the text of an object, and verbatim when it came as a string."""
    text = fields.text("response_text")
    value = fields.value("response")
    if isinstance(value, dict):
        return fields.canonical("response", value), text
    if isinstance(value, str):
        text = fields.text("response") or ""
    if text is not None:
        return canonical_json({"output": text}), text
    if value is None:
        return "{}", None
    return json_object([("output", fields.canonical("response", value))]), None


def _response_media(value: Json, pointer: str, notes: Notes) -> InlineData | FileData:
    fields = _RESPONSE_MEDIA.read_strictly(value, pointer, notes)
    part: InlineData | FileData
    if "inline_data" in fields:
        part = _inline_data(fields, "inline_data")
    elif "file_data" in fields:
        part = _file_data(fields, "file_data")
    else:
        raise InvalidEventError("needs inline_data or file_data", pointer=pointer)
    extra = _extra(fields)
    return part if extra is None else replace(part, extra=extra)


def _inline_data(outer: Fields, key: str) -> InlineData:
    fields = _INLINE_DATA.read_strictly(outer.value(key), outer.at(key), outer.notes)
    mime_type = fields.text("mime_type")
    if not mime_type:
        mime_type = "application/octet-stream"
        fields.note("mime_type", f"not given; read as {mime_type}")
    return InlineData(
        mime_type=mime_type, data=_base64(fields), display_name=fields.text("display_name")
    )


def _base64(fields: Fields) -> str:
    """Return the bytes in the standard alphabet, padded."""
    value = fields.value("data")
    if not isinstance(value, str):
        raise fields.wrong("data", "must be a base64 string")
    bare = value.translate(_URL_SAFE).rstrip("=")
    if not _BASE64.fullmatch(bare) or len(bare) % 4 == 1:
        raise fields.wrong("data", "must be base64")
    return bare + "=" * (-len(bare) % 4)


def _file_data(outer: Fields, key: str) -> FileData:
    fields = _FILE_DATA.read_strictly(outer.value(key), outer.at(key), outer.notes)
    file_uri = fields.text("file_uri")
    if not file_uri:
        raise fields.wrong("file_uri", "file data needs a URI")
    return FileData(
        file_uri=file_uri,
        mime_type=fields.text("mime_type"),
        display_name=fields.text("display_name"),
    )


def _executable_code(outer: Fields, key: str) -> Part:
    fields = _EXECUTABLE_CODE.read_strictly(outer.value(key), outer.at(key), outer.notes)
    _note_code_id(fields)
    return ExecutableCode(
        code=fields.text("code") or "", language=fields.text("language") or "LANGUAGE_UNSPECIFIED"
    )


def _code_execution_result(outer: Fields, key: str) -> Part:
    fields = _CODE_RESULT.read_strictly(outer.value(key), outer.at(key), outer.notes)
    _note_code_id(fields)
    return CodeExecutionResult(
        outcome=fields.text("outcome") or "OUTCOME_UNSPECIFIED", output=fields.text("output") or ""
    )


def _note_code_id(fields: Fields) -> None:
    if "id" in fields:
        fields.note("id", "the id of a code execution is not sent again")


def _opaque(outer: Fields, key: str) -> Part:
    fields = _OPAQUE.read_strictly(outer.value(key), outer.at(key), outer.notes)
    provider = fields.identifier("provider", max_bytes=MAX_NAME_BYTES)
    kind = fields.identifier("type", max_bytes=MAX_NAME_BYTES)
    if not provider or not kind:
        raise fields.wrong("type" if provider else "provider", "an opaque part needs it")
    return Opaque(
        provider=provider, type=kind, raw=_opaque_raw(fields), text=fields.text("text") or ""
    )


def _opaque_raw(fields: Fields) -> str:
    """Return the block's own JSON text: as sent when it came as text that can be emitted."""
    value = fields.value("raw")
    text = fields.text("raw") if isinstance(value, str) else None
    block = value if text is None else parse_strict_json(text)
    if not isinstance(block, dict):
        raise fields.wrong("raw", "must be the block: an object, or its JSON text")
    return text.strip() if text is not None and is_clean(block) else fields.canonical("raw", block)


def _server_tool(fields: Fields, key: str) -> Part:
    raw = json_object([(key, fields.canonical(key, fields.mapping(key)))])
    return Opaque(provider="gemini", type=key, raw=raw)


#: In the order in which the kinds of one part are read.
_READERS: Final[Mapping[str, Callable[[Fields, str], Part]]] = {
    "text": _text,
    "inline_data": _inline_data,
    "file_data": _file_data,
    "executable_code": _executable_code,
    "code_execution_result": _code_execution_result,
    "function_call": _function_call,
    "function_response": _function_response,
    "opaque": _opaque,
    **dict.fromkeys(SERVER_TOOL_TYPES, _server_tool),
}


def parse_strict_json(text: str) -> Json:
    """Return the value of a JSON text; None when it is none, is ``null``, or is nested too deep.

    Strict: ``NaN`` and ``Infinity`` are not JSON, and providers refuse them.
    """
    try:
        value = cast("Json", json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError):
        return None
    return None if is_deep(value) else value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def part_to_native(part: Part) -> dict[str, Json]:
    """Return the native JSON object of a part; :func:`parse_part` reads it back as it was."""
    return cast("dict[str, Json]", json.loads(native_part_text(part)))


def native_part_text(part: Part) -> str:
    """Return the native JSON text of a part, in snake_case. Canonical pieces go in untouched."""
    fields = [_native_kind(part)]
    if part.thought:
        fields.append(("thought", "true"))
    if part.signature is not None:
        fields.append(("thought_signature", json_string(part.signature)))
        if part.signed_by not in (None, DEFAULT_SIGNER):
            fields.append(("signature_provider", json_string(part.signed_by)))
    return _with_extra(json_object(fields), part)


def _with_extra(text: str, part: Part) -> str:
    return f"{text[:-1]},{part.extra[1:]}" if part.extra else text


def _native_kind(part: Part) -> tuple[str, str]:
    match part:
        case Text():
            return "text", json_string(part.text)
        case FunctionCall():
            return "function_call", _native_call(part)
        case FunctionResponse():
            return "function_response", _native_response(part)
        case InlineData() | FileData():
            return _native_media(part)
        case ExecutableCode():
            fields = [("language", json_string(part.language)), ("code", json_string(part.code))]
            return "executable_code", json_object(fields)
        case CodeExecutionResult():
            fields = [("outcome", json_string(part.outcome)), ("output", json_string(part.output))]
            return "code_execution_result", json_object(fields)
        case Opaque():
            return _native_opaque(part)


def _native_call(part: FunctionCall) -> str:
    fields = [("id", json_string(part.id))] if part.id is not None else []
    fields += [("name", json_string(part.name)), ("args", part.args)]
    if part.args_text is not None:
        fields.append(("args_text", json_string(part.args_text)))
    if part.long_running:
        fields.append(("long_running", "true"))
    return json_object(fields)


def _native_response(part: FunctionResponse) -> str:
    fields = [("id", json_string(part.id))] if part.id is not None else []
    fields += [("name", json_string(part.name)), ("response", part.response)]
    if part.response_text is not None:
        fields.append(("response_text", json_string(part.response_text)))
    if part.is_error:
        fields.append(("is_error", "true"))
    if part.media:
        media = json_array(
            _with_extra(json_object([_native_media(item)]), item) for item in part.media
        )
        fields.append(("parts", media))
    return json_object(fields)


def _native_media(part: InlineData | FileData) -> tuple[str, str]:
    if isinstance(part, InlineData):
        fields = [("mime_type", json_string(part.mime_type)), ("data", json_string(part.data))]
    else:
        fields = [("file_uri", json_string(part.file_uri))]
        if part.mime_type is not None:
            fields.append(("mime_type", json_string(part.mime_type)))
    if part.display_name is not None:
        fields.append(("display_name", json_string(part.display_name)))
    return ("inline_data" if isinstance(part, InlineData) else "file_data"), json_object(fields)


def _native_opaque(part: Opaque) -> tuple[str, str]:
    prefix = f'{{"{part.type}":'
    if _is_server_tool(part) and part.raw.startswith(prefix):
        return part.type, part.raw.removeprefix(prefix)[:-1]
    fields = [
        ("provider", json_string(part.provider)),
        ("type", json_string(part.type)),
        ("raw", json_string(part.raw)),
        ("text", json_string(part.text)),
    ]
    return "opaque", json_object(fields)


def _is_server_tool(part: Opaque) -> bool:
    """Tell whether the block is what :func:`_server_tool` makes."""
    if part.provider != "gemini" or part.type not in SERVER_TOOL_TYPES:
        return False
    block = json.loads(part.raw)
    return block.keys() == {part.type} and isinstance(block[part.type], dict)
