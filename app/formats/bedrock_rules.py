"""What Converse refuses: the rules of ``spec/PROVIDERS.md`` §5 and §9 on one request.

One generator per rule or place; a rule's slug says what must hold. The checks take any JSON: what
is no request at all is told as ``shape``, never as an exception.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Final, TypeAlias

from app.core.canonical import Json
from app.core.compile.media import MediaKind, MediaLimit, MediaLimits, is_too_large
from app.core.copying import replace
from app.formats.media import PDF
from app.formats.violations import Violation, is_filled

Violations: TypeAlias = Iterator[Violation]
JsonObject: TypeAlias = dict[str, Json]

MAX_CALL_ID_LENGTH: Final = 64
MAX_NAME_LENGTH: Final = 64
MAX_DOCUMENT_NAME_LENGTH: Final = 200
MAX_BREAKPOINTS: Final = 4
#: What a request may hold (AWS' page of API restrictions, and botocore 1.44's words on Message,
#: 2026-11-30). Documents are counted in the whole request. Of images the words may mean a message,
#: and newer models take more: a bound. Which megabyte is meant is not said: the smaller one.
_IMAGES: Final = MediaLimit(most=20, max_bytes=3_750_000, max_edge=8_000)
_DOCUMENTS: Final = MediaLimit(most=5, max_bytes=4_500_000)
LIMITED_KINDS: Final[Mapping[str, MediaKind]] = {"document": "document", "image": "image"}

#: Name of a format to its media type, by kind of block (botocore 1.44's model, 2026-11-29). Of two
#: names of one type the first is sent.
FORMATS_BY_KIND: Final = {
    "image": {
        "gif": "image/gif",
        "jpeg": "image/jpeg",
        "png": "image/png",
        "webp": "image/webp",
    },
    "document": {
        "csv": "text/csv",
        "doc": "application/msword",
        "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "html": "text/html",
        "md": "text/markdown",
        "pdf": "application/pdf",
        "txt": "text/plain",
        "xls": "application/vnd.ms-excel",
        "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    },
    "video": {
        "flv": "video/x-flv",
        "mkv": "video/x-matroska",
        "mov": "video/quicktime",
        "mp4": "video/mp4",
        "mpeg": "video/mpeg",
        "mpg": "video/mpeg",
        "three_gp": "video/3gpp",
        "webm": "video/webm",
        "wmv": "video/x-ms-wmv",
    },
    "audio": {
        "aac": "audio/aac",
        "flac": "audio/flac",
        "m4a": "audio/mp4",
        "mka": "audio/x-matroska",
        "mkv": "audio/x-matroska",
        "mp3": "audio/mpeg",
        "mp4": "audio/mp4",
        "mpeg": "audio/mpeg",
        "mpga": "audio/mpeg",
        "ogg": "audio/ogg",
        "opus": "audio/opus",
        "pcm": "audio/pcm",
        "wav": "audio/wav",
        "webm": "audio/webm",
        "x-aac": "audio/aac",
    },
}
#: Who may send a block; a tool that runs at the provider is the assistant's, result and all.
_ROLES_BY_BLOCK: Final = {
    "audio": ("user",),
    "cachePoint": ("assistant", "system", "user"),
    "citationsContent": ("assistant",),
    "document": ("user",),
    "guardContent": ("system", "user"),
    "image": ("user",),
    "reasoningContent": ("assistant",),
    "searchResult": ("user",),
    "text": ("assistant", "system", "user"),
    "toolAddition": ("system", "user"),
    "toolRemoval": ("system", "user"),
    "toolResult": ("user",),
    "toolUse": ("assistant",),
    "video": ("user",),
}
#: What a result may hold; of media no audio.
RESULT_BLOCKS: Final = frozenset({"document", "image", "json", "searchResult", "text", "video"})
_ROLES: Final = frozenset({"assistant", "system", "user"})
#: What a document may say beside what it is.
MORE: Final = ("citations", "context")

_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]+")
_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_LENGTH}}}")
_S3: Final = re.compile(r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?", re.DOTALL)
_DOCUMENT_NAME: Final = re.compile(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]+")
#: Families that refuse words beside results ("Conversation blocks and tool result blocks cannot be
#: provided in the same turn").
_RESULTS_ALONE: Final = re.compile(r"(?:^|[./])(?:meta\.)?llama")

#: Families for which some documents may be larger (the same page): Claude 4 and later, Nova.
_LARGE_PDF: Final = re.compile(r"claude-(?!2|3|instant|v)")
_LARGE_PDF_AND_DOCX: Final = re.compile(r"(?:^|[./])(?:amazon\.)?nova")


def takes_results_alone(model: str) -> bool:
    """Tell whether a model refuses words in the message that answers its calls."""
    return _RESULTS_ALONE.search(model) is not None


def media_limits(model: str) -> MediaLimits:
    """Return what a request may hold for a model; of an unknown one the least."""
    documents = _DOCUMENTS
    if _LARGE_PDF.search(model):
        documents = replace(_DOCUMENTS, any_size=frozenset({PDF}))
    elif _LARGE_PDF_AND_DOCX.search(model):
        documents = replace(
            _DOCUMENTS, any_size=frozenset({PDF, FORMATS_BY_KIND["document"]["docx"]})
        )
    return {"document": documents, "image": _IMAGES}


def is_s3_uri(uri: str) -> bool:
    """Tell whether the provider can fetch the URI itself."""
    return _S3.fullmatch(uri) is not None


def validate(request: Json, *, model: str = "") -> tuple[Violation, ...]:
    """Return every rule that the request breaks, in the order of the request.

    Args:
        request: the body, as parsed JSON, media in base64. Fields that are no part of the history
            are not looked at.
        model: whether words may stand beside results, and how large documents may be, depends on
            it.
    """
    if not isinstance(request, dict):
        return (Violation("shape", ""),)
    return (
        *_system(request.get("system")),
        *_messages(request.get("messages"), model),
        *_tool_config(request.get("toolConfig"), request.get("messages")),
        *_breakpoints(request),
    )


def _system(value: Json) -> Violations:
    if value is None:
        return
    if not isinstance(value, list):
        yield Violation("shape", "/system")
        return
    for index, block in enumerate(value):
        yield from _block(block, "system", f"/system/{index}")


def _messages(value: Json, model: str) -> Violations:
    if not isinstance(value, list):
        yield Violation("shape", "/messages")
        return
    if not value:
        yield Violation("messages_not_empty", "/messages")
        return
    for index, message in enumerate(value):
        path = f"/messages/{index}"
        if not isinstance(message, dict):
            yield Violation("shape", path)
        else:
            yield from _message(message, model, path)
    yield from _order(value)
    yield from _pairing(value)
    yield from _document_names(value)
    yield from _media_limits(value, media_limits(model))


def _message(message: JsonObject, model: str, path: str) -> Violations:
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        yield Violation("role_known", f"{path}/role")
        return
    content = message.get("content")
    path = f"{path}/content"
    if not isinstance(content, list):
        yield Violation("shape", path)
        return
    if not content:
        yield Violation("content_not_empty", path)
    for index, block in enumerate(content):
        yield from _block(block, role, f"{path}/{index}")
    kinds = [kind_of(block) for block in content]
    if role == "assistant" and kinds and kinds[-1] == "reasoningContent":
        yield Violation("thinking_not_last", f"{path}/{len(kinds) - 1}")
    if "document" in kinds and "text" not in kinds:
        yield Violation("document_has_text", f"{path}/{kinds.index('document')}")
    others = [kind for kind in kinds if kind not in ("cachePoint", "toolResult")]
    if "toolResult" in kinds and others and takes_results_alone(model):
        yield Violation("results_alone", path)


def kind_of(block: Json) -> str:
    """Return the one member that says what a block is; empty when there is none, or several."""
    kinds = [*block] if isinstance(block, dict) else []
    return kinds[0] if len(kinds) == 1 else ""


def _block(block: Json, role: str, path: str) -> Violations:
    kind = kind_of(block)
    if not kind or not isinstance(block, dict):
        yield Violation("shape", path)
        return
    if kind not in _ROLES_BY_BLOCK:
        yield Violation("block_known", path)
        return
    value = block[kind]
    if role not in _ROLES_BY_BLOCK[kind] and not (_runs_there(block) and role == "assistant"):
        yield Violation("block_fits_role", path)
    if kind == "text":
        yield from _text(value, f"{path}/text")
        return
    if not isinstance(value, dict):
        yield Violation("shape", f"{path}/{kind}")
        return
    path = f"{path}/{kind}"
    match kind:
        case "reasoningContent":
            yield from _reasoning(value, path)
        case "toolUse":
            yield from _call(value, path)
        case "toolResult":
            yield from _result(value, path)
        case "audio" | "document" | "image" | "video":
            yield from _media(value, kind, path)


def _runs_there(block: Json) -> bool:
    """Tell whether a call or a result is of a tool that runs at the provider."""
    value = block.get(kind_of(block)) if isinstance(block, dict) else None
    is_tool = kind_of(block) in ("toolResult", "toolUse")
    return is_tool and isinstance(value, dict) and value.get("type") is not None


def is_block_accepted(block: Json, role: str) -> bool:
    """Tell whether a block breaks no rule of its own in a message of this role."""
    alone: JsonObject = {"role": role, "content": [block]}
    found = chain(_block(block, role, ""), _media_limits([alone], media_limits("")))
    return next(found, None) is None


def _text(value: Json, path: str) -> Violations:
    if not isinstance(value, str):
        yield Violation("shape", path)
    elif not value.strip():
        yield Violation("text_not_blank", path)


def _reasoning(value: JsonObject, path: str) -> Violations:
    match kind_of(value):
        case "reasoningText":
            said = value["reasoningText"]
            if not isinstance(said, dict) or not isinstance(said.get("text"), str):
                yield Violation("shape", f"{path}/reasoningText")
            elif not is_filled(said.get("signature")):
                yield Violation("thinking_signed", f"{path}/reasoningText")
        case "redactedContent":
            if not is_filled(value["redactedContent"]):
                yield Violation("thinking_signed", f"{path}/redactedContent")
        case _:
            yield Violation("shape", path)


def _call(value: JsonObject, path: str) -> Violations:
    yield from _call_id(value.get("toolUseId"), f"{path}/toolUseId")
    yield from _name(value.get("name"), f"{path}/name")
    if not isinstance(value.get("input"), dict):
        yield Violation("input_is_object", f"{path}/input")


def _call_id(value: Json, path: str) -> Violations:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        yield Violation("call_id_charset", path)
    elif len(value) > MAX_CALL_ID_LENGTH:
        yield Violation("call_id_length", path)


def _name(value: Json, path: str) -> Violations:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        yield Violation("tool_name", path)


def _result(value: JsonObject, path: str) -> Violations:
    yield from _call_id(value.get("toolUseId"), f"{path}/toolUseId")
    if value.get("status") not in (None, "error", "success"):
        yield Violation("status_known", f"{path}/status")
    content = value.get("content")
    if not isinstance(content, list):
        yield Violation("shape", f"{path}/content")
        return
    for index, block in enumerate(content):
        yield from _result_block(block, f"{path}/content/{index}")


def _result_block(block: Json, path: str) -> Violations:
    kind = kind_of(block)
    if not kind or not isinstance(block, dict):
        yield Violation("shape", path)
    elif kind not in RESULT_BLOCKS:
        yield Violation("block_fits_result", path)
    elif kind == "text":
        yield from _text(block["text"], f"{path}/text")
    elif kind == "json":
        if not isinstance(block["json"], dict):
            yield Violation("json_is_object", f"{path}/json")
    elif kind != "searchResult":
        value = block[kind]
        if isinstance(value, dict):
            yield from _media(value, kind, f"{path}/{kind}")
        else:
            yield Violation("shape", f"{path}/{kind}")


def _media(value: JsonObject, kind: str, path: str) -> Violations:
    source = value.get("source")
    media_format = value.get("format")
    is_told = isinstance(media_format, str) and media_format in FORMATS_BY_KIND[kind]
    # Of a document it may be left to the provider to find out.
    if not is_told and not (kind == "document" and media_format is None):
        yield Violation("media_accepted", f"{path}/format")
    if not _is_source_accepted(source, kind):
        yield Violation("media_accepted", f"{path}/source")
    if kind != "document":
        return
    name = value.get("name")
    fits = isinstance(name, str) and _DOCUMENT_NAME.fullmatch(name)
    if not fits or len(str(name)) > MAX_DOCUMENT_NAME_LENGTH:
        yield Violation("document_name", f"{path}/name")
    for key in MORE:
        if value.get(key) is not None and not says_rightly(value, key):
            yield Violation("shape", f"{path}/{key}")


def says_rightly(document: JsonObject, key: str) -> bool:
    """Tell whether a document says one of :data:`MORE`, and as the provider takes it."""
    value = document.get(key)
    if key == "context":
        return isinstance(value, str)
    return isinstance(value, dict) and isinstance(value.get("enabled"), bool)


def _is_source_accepted(source: Json, kind: str) -> bool:
    if not isinstance(source, dict):
        return False
    match kind_of(source):
        case "bytes":
            return is_filled(source["bytes"])
        case "s3Location":
            location = source["s3Location"]
            uri = location.get("uri") if isinstance(location, dict) else None
            return isinstance(uri, str) and is_s3_uri(uri)
        case "text":
            return kind == "document" and is_filled(source["text"])
        case "content":
            return kind == "document" and bool(source["content"])
        case _:
            return False


def _order(messages: Sequence[Json]) -> Violations:
    """The user speaks first and last, and the two take turns."""
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    if roles[0] != "user":
        yield Violation("first_role_user", "/messages/0/role")
    spoken = [(index, role) for index, role in enumerate(roles) if role != "system"]
    for (_, before), (index, role) in pairwise(spoken):
        if before == role:
            yield Violation("roles_alternate", f"/messages/{index}/role")
    if roles[-1] == "assistant":
        yield Violation("last_role_user", f"/messages/{len(roles) - 1}/role")


def _pairing(messages: Sequence[Json]) -> Violations:
    """Each call is answered once, in the very next message, before anything else there."""
    called: set[str] = set()
    open_ids: dict[str, str] = {}
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") == "system":
            continue
        path = f"/messages/{index}/content"
        if message.get("role") == "user":
            yield from _answers(message, open_ids, path)
        yield from (Violation("call_answered", at) for at in open_ids.values())
        open_ids = {}
        for call_id, at in _ids(message, "toolUse", path):
            if call_id in called:
                yield Violation("call_id_unique", f"{at}/toolUseId")
            called.add(call_id)
            open_ids[call_id] = at
    yield from (Violation("call_answered", at) for at in open_ids.values())


def _answers(message: JsonObject, open_ids: dict[str, str], path: str) -> Violations:
    answered: set[str] = set()
    for call_id, at in _ids(message, "toolResult", path):
        if call_id in open_ids:
            del open_ids[call_id]
            answered.add(call_id)
        else:
            rule = "call_answered_once" if call_id in answered else "result_has_call"
            yield Violation(rule, f"{at}/toolUseId")
    has_words = False
    for index, block in enumerate(_blocks(message)):
        if kind_of(block) == "toolResult":
            if has_words:
                yield Violation("results_first", f"{path}/{index}")
        elif kind_of(block) != "cachePoint":
            has_words = True


def _ids(message: JsonObject, kind: str, path: str) -> Iterator[tuple[str, str]]:
    for index, block in enumerate(_blocks(message)):
        value = block.get(kind) if isinstance(block, dict) else None
        if not isinstance(value, dict) or _runs_there(block):
            continue
        call_id = value.get("toolUseId")
        if isinstance(call_id, str):
            yield call_id, f"{path}/{index}/{kind}"


def _blocks(message: Json) -> Sequence[Json]:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else ()


def _document_names(messages: Sequence[Json]) -> Violations:
    """Documents are told apart by name, in the whole request."""
    names: set[str] = set()
    for document, path in _blocks_of(messages, "document"):
        name = document.get("name")
        if isinstance(name, str):
            if name.lower() in names:
                yield Violation("document_name_unique", f"{path}/name")
            names.add(name.lower())


def _media_limits(messages: Sequence[Json], limits: MediaLimits) -> Violations:
    """A request holds only so many media of a kind, and only so large ones."""
    for kind, limit in limits.items():
        for count, (block, path) in enumerate(_blocks_of(messages, kind), start=1):
            if count > limit.most:
                yield Violation("media_count", path)
            source = block.get("source")
            data = source.get("bytes") if isinstance(source, dict) else None
            mime_type = FORMATS_BY_KIND[kind].get(str(block.get("format")), "")
            if isinstance(data, str) and is_too_large(data, mime_type, limit):
                yield Violation("media_size", f"{path}/source/bytes")


def _blocks_of(messages: Sequence[Json], kind: str) -> Iterator[tuple[JsonObject, str]]:
    """Yield what blocks of a kind hold, also inside results, and where."""
    for number, message in enumerate(messages):
        for index, block in enumerate(_blocks(message)):
            path = f"/messages/{number}/content/{index}"
            yield from _block_in(block, kind, path)
            result = block.get("toolResult") if isinstance(block, dict) else None
            for at, inner in enumerate(_blocks(result)):
                yield from _block_in(inner, kind, f"{path}/toolResult/content/{at}")


def _block_in(block: Json, kind: str, path: str) -> Iterator[tuple[JsonObject, str]]:
    value = block.get(kind) if isinstance(block, dict) else None
    if isinstance(value, dict):
        yield value, f"{path}/{kind}"


def _tool_config(value: Json, messages: Json) -> Violations:
    if value is None:
        for number, message in enumerate(messages if isinstance(messages, list) else ()):
            for index, block in enumerate(_blocks(message)):
                if kind_of(block) in ("toolResult", "toolUse"):
                    path = f"/messages/{number}/content/{index}"
                    yield Violation("tool_config_present", path)
                    return
        return
    tools = value.get("tools") if isinstance(value, dict) else None
    if not isinstance(tools, list):
        yield Violation("shape", "/toolConfig/tools")
        return
    if not tools:
        yield Violation("tools_not_empty", "/toolConfig/tools")
    names: list[Json] = []
    for index, tool in enumerate(tools):
        path = f"/toolConfig/tools/{index}"
        kind = kind_of(tool)
        spec = tool.get(kind) if isinstance(tool, dict) else None
        if kind not in ("cachePoint", "systemTool", "toolSpec") or not isinstance(spec, dict):
            yield Violation("shape", path)
            continue
        if kind == "cachePoint":
            continue
        name = spec.get("name")
        yield from _name(name, f"{path}/{kind}/name")
        if kind == "toolSpec":
            yield from _tool_schema(spec, f"{path}/toolSpec")
        if name in names:
            yield Violation("tool_name_unique", f"{path}/{kind}/name")
        names.append(name)


def _tool_schema(spec: JsonObject, path: str) -> Violations:
    schema = spec.get("inputSchema")
    inner = schema.get("json") if isinstance(schema, dict) else None
    if not isinstance(inner, dict) or inner.get("type") != "object":
        yield Violation("tool_schema", f"{path}/inputSchema")
    if spec.get("description") is not None and not is_filled(spec["description"]):
        yield Violation("text_not_blank", f"{path}/description")


# Cache points, in the order in which the provider renders the request.


def _breakpoints(request: JsonObject) -> Violations:
    has_short = False
    for count, (point, is_first, path) in enumerate(_points(request), start=1):
        if count > MAX_BREAKPOINTS:
            yield Violation("breakpoint_count", path)
        if is_first:
            # It marks the end of what stands before it.
            yield Violation("breakpoint_place", path)
        is_long = point.get("ttl") == "1h"
        if is_long and has_short:
            yield Violation("breakpoint_ttl_order", path)
        has_short = has_short or not is_long


def _points(request: JsonObject) -> Iterator[tuple[JsonObject, bool, str]]:
    config, messages = request.get("toolConfig"), request.get("messages")
    lists: list[tuple[Json, str]] = [
        (config.get("tools") if isinstance(config, dict) else None, "/toolConfig/tools"),
        (request.get("system"), "/system"),
    ]
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        lists.append(([*_blocks(message)], f"/messages/{number}/content"))
    for blocks, path in lists:
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            point = block.get("cachePoint") if isinstance(block, dict) else None
            if isinstance(point, dict):
                yield point, index == 0, f"{path}/{index}"
