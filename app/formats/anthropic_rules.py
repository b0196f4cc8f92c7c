"""What Messages refuses: the rules of ``spec/PROVIDERS.md`` §1 and §9 on one request.

One generator per rule or place; a rule's slug says what must hold. The checks take any JSON: what
is no request at all is told as ``shape``, never as an exception.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from app.core.canonical import Json
from app.formats.media import IMAGE_TYPES, PDF, is_web_url
from app.formats.violations import Violation, is_filled

Violations: TypeAlias = Iterator[Violation]
JsonObject: TypeAlias = dict[str, Json]

MAX_CALL_ID_LENGTH: Final = 64
MAX_NAME_LENGTH: Final = 64
MAX_BREAKPOINTS: Final = 4


# 128 is what current models take; we emit no more than 64, which every one takes.
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_ROLES: Final = frozenset({"assistant", "system", "user"})
#: What a block may say beside what its kind is for.
MORE: Final[Mapping[str, Mapping[str, type]]] = {
    "document": {"citations": dict, "context": str},
    "text": {"citations": list},
    "tool_use": {"caller": dict, "toolset_name": str},
}
_THINKING: Final = frozenset({"redacted_thinking", "thinking"})
#: Models that continue a last assistant message; every later one refuses it (Opus and Sonnet 4.6,
#: anthropics/skills, 2026-11-29). Anything unknown counts as later.
_TAKES_PREFILL: Final = re.compile(
    r"claude-(?:2|instant|3|(?:opus|sonnet|haiku)-4(?:-[0-5])?(?:-\d{8}|@\d{8}|-latest|-v\d.*|$))"
)


def validate(request: Json, *, model: str = "") -> tuple[Violation, ...]:
    """Return every rule that the request breaks, in the order of the request.

    Args:
        request: the body, as parsed JSON. Fields that are no part of the history are not looked at.
        model: whether the last message may be the assistant's depends on it; without a model, no.
    """
    if not isinstance(request, dict):
        return (Violation("shape", ""),)
    return (
        *_system(request.get("system"), "/system"),
        *_messages(request.get("messages"), model),
        *_tools(request.get("tools")),
        *_breakpoints(request),
    )


def _system(value: Json, path: str) -> Violations:
    if value is None:
        return
    if isinstance(value, str):
        yield from _text(value, path)
    elif isinstance(value, list):
        for index, block in enumerate(value):
            if not isinstance(block, dict) or block.get("type") != "text":
                yield Violation("system_is_text", f"{path}/{index}")
            else:
                yield from _text(block.get("text"), f"{path}/{index}/text")
    else:
        yield Violation("shape", path)


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
            yield from _message(message, path)
    yield from _order(value, model)
    yield from _pairing(value)


def _message(message: JsonObject, path: str) -> Violations:
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        yield Violation("role_known", f"{path}/role")
        return
    content = message.get("content")
    path = f"{path}/content"
    if role == "system":
        yield from _system(content, path)
    elif isinstance(content, str):
        yield from _text(content, path)
    elif isinstance(content, list):
        if not content:
            yield Violation("content_not_empty", path)
        for index, block in enumerate(content):
            yield from _block(block, role, f"{path}/{index}")
        if role == "assistant" and content and _type(content[-1]) in _THINKING:
            yield Violation("thinking_not_last", f"{path}/{len(content) - 1}")
    else:
        yield Violation("shape", path)


def _type(block: Json) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def _block(block: Json, role: str, path: str) -> Violations:
    if not isinstance(block, dict) or not _type(block):
        yield Violation("shape", path)
        return
    yield from says_more(block, path)
    match _type(block):
        case "text":
            yield from _text(block.get("text"), f"{path}/text")
        case "thinking" | "redacted_thinking":
            yield from _thinking(block, role, path)
        case "tool_use":
            if role != "assistant":
                yield Violation("call_by_assistant", path)
            yield from _call(block, path)
        case "tool_result":
            if role != "user":
                yield Violation("result_by_user", path)
            yield from _result(block, path)
        case "image" | "document" as kind:
            if role != "user":
                yield Violation("media_by_user", path)
            yield from _media(block, kind, path)
        case kind if kind.endswith(("_tool_use", "_tool_result")) and role != "assistant":
            yield Violation("server_tool_by_assistant", path)


def says_more(block: JsonObject, path: str = "") -> Violations:
    """Yield what is wrong with what a block says beside what its kind is for."""
    for key, known in MORE.get(_type(block), {}).items():
        value = block.get(key)
        if value is not None and not isinstance(value, known):
            yield Violation("shape", f"{path}/{key}")


def is_block_accepted(block: Json, role: str) -> bool:
    """Tell whether a block breaks no rule of its own in a message of this role."""
    return next(_block(block, role, ""), None) is None


def _text(value: Json, path: str) -> Violations:
    if not isinstance(value, str):
        yield Violation("shape", path)
    elif not value.strip():
        yield Violation("text_not_blank", path)


def _thinking(block: JsonObject, role: str, path: str) -> Violations:
    if role != "assistant":
        yield Violation("thinking_by_assistant", path)
    if block["type"] == "redacted_thinking":
        if not isinstance(block.get("data"), str) or not block["data"]:
            yield Violation("thinking_signed", path)
        return
    if not isinstance(block.get("thinking"), str):
        yield Violation("shape", f"{path}/thinking")
    if not isinstance(block.get("signature"), str) or not block["signature"]:
        yield Violation("thinking_signed", path)


def _call(block: JsonObject, path: str) -> Violations:
    yield from _call_id(block.get("id"), f"{path}/id")
    yield from _name(block.get("name"), f"{path}/name")
    if not isinstance(block.get("input"), dict):
        yield Violation("input_is_object", f"{path}/input")


def _call_id(value: Json, path: str) -> Violations:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        yield Violation("call_id_charset", path)
    elif len(value) > MAX_CALL_ID_LENGTH:
        yield Violation("call_id_length", path)


def _name(value: Json, path: str) -> Violations:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        yield Violation("tool_name", path)


def _result(block: JsonObject, path: str) -> Violations:
    yield from _call_id(block.get("tool_use_id"), f"{path}/tool_use_id")
    content = block.get("content")
    if isinstance(content, list):
        for index, inner in enumerate(content):
            yield from _result_block(inner, f"{path}/content/{index}")
    elif content is not None and not isinstance(content, str):
        yield Violation("shape", f"{path}/content")


def _result_block(block: Json, path: str) -> Violations:
    kind = _type(block)
    if not isinstance(block, dict):
        yield Violation("shape", path)
        return
    yield from says_more(block, path)
    if kind == "text":
        yield from _text(block.get("text"), f"{path}/text")
    elif kind in ("image", "document"):
        yield from _media(block, kind, path)
    elif kind not in ("browser_state", "search_result", "tool_reference"):
        yield Violation("block_fits_result", path)


def _media(block: JsonObject, kind: str, path: str) -> Violations:
    source = block.get("source")
    if not isinstance(source, dict):
        yield Violation("shape", f"{path}/source")
    elif not _is_source_accepted(source, kind):
        yield Violation("media_accepted", f"{path}/source")


def _is_source_accepted(source: JsonObject, kind: str) -> bool:
    match source.get("type"):
        case "base64":
            accepted = IMAGE_TYPES if kind == "image" else {PDF}
            return source.get("media_type") in accepted and is_filled(source.get("data"))
        case "url":
            url = source.get("url")
            return isinstance(url, str) and is_web_url(url)
        case "file":
            return is_filled(source.get("file_id"))
        case "text":
            is_plain = source.get("media_type") == "text/plain"
            return kind == "document" and is_plain and is_filled(source.get("data"))
        case "content":
            return kind == "document" and bool(source.get("content"))
        case _:
            return False


def _order(messages: Sequence[Json], model: str) -> Violations:
    """The user speaks first and last, and the two take turns."""
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    if roles[0] != "user":
        yield Violation("first_role_user", "/messages/0/role")
    spoken = [(index, role) for index, role in enumerate(roles) if role != "system"]
    for (_, before), (index, role) in pairwise(spoken):
        if before == role:
            yield Violation("roles_alternate", f"/messages/{index}/role")
    for index, role in enumerate(roles):
        if role == "system" and not _may_stand(roles, index):
            yield Violation("system_place", f"/messages/{index}/role")
    last = len(roles) - 1
    if roles[last] != "assistant":
        return
    if not _TAKES_PREFILL.search(model):
        yield Violation("last_role_user", f"/messages/{last}/role")
    elif _last_text(messages[last])[-1:].isspace():
        yield Violation("last_text_trimmed", f"/messages/{last}/content")


def _may_stand(roles: Sequence[Json], index: int) -> bool:
    """Tell whether a system message in the conversation follows the user and ends its turn."""
    after = roles[index + 1] if index + 1 < len(roles) else "assistant"
    return index > 0 and roles[index - 1] == "user" and after == "assistant"


def _last_text(message: Json) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        last = content[-1] if content else None
        content = last.get("text") if isinstance(last, dict) else None
    return content if isinstance(content, str) else ""


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
        for call_id, at in _ids(message, "tool_use", "id", path):
            if call_id in called:
                yield Violation("call_id_unique", f"{at}/id")
            called.add(call_id)
            open_ids[call_id] = at
    yield from (Violation("call_answered", at) for at in open_ids.values())


def _answers(message: JsonObject, open_ids: dict[str, str], path: str) -> Violations:
    answered: set[str] = set()
    for call_id, at in _ids(message, "tool_result", "tool_use_id", path):
        if call_id in open_ids:
            del open_ids[call_id]
            answered.add(call_id)
        else:
            rule = "call_answered_once" if call_id in answered else "result_has_call"
            yield Violation(rule, f"{at}/tool_use_id")
    has_words = False
    for index, block in enumerate(_blocks(message)):
        if _type(block) != "tool_result":
            has_words = True
        elif has_words:
            yield Violation("results_first", f"{path}/{index}")


def _ids(message: JsonObject, kind: str, key: str, path: str) -> Iterator[tuple[str, str]]:
    for index, block in enumerate(_blocks(message)):
        value = block.get(key) if isinstance(block, dict) else None
        if _type(block) == kind and isinstance(value, str):
            yield value, f"{path}/{index}"


def _blocks(message: JsonObject) -> Sequence[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else ()


def _tools(value: Json) -> Violations:
    if value is None:
        return
    if not isinstance(value, list):
        yield Violation("shape", "/tools")
        return
    names: list[Json] = []
    for index, tool in enumerate(value):
        path = f"/tools/{index}"
        if not isinstance(tool, dict):
            yield Violation("shape", path)
            continue
        name = tool.get("name")
        yield from _name(name, f"{path}/name")
        schema = tool.get("input_schema")
        is_own = tool.get("type") in (None, "custom")
        if is_own and (not isinstance(schema, dict) or schema.get("type") != "object"):
            yield Violation("tool_schema", f"{path}/input_schema")
        if name in names:
            yield Violation("tool_name_unique", f"{path}/name")
        names.append(name)


# Cache markers, in the order in which the provider renders the request.


def _breakpoints(request: JsonObject) -> Violations:
    has_short = False
    for count, (marker, block, path) in enumerate(_markers(request), start=1):
        if count > MAX_BREAKPOINTS:
            yield Violation("breakpoint_count", path)
        text = block.get("text")
        if _type(block) in _THINKING or (isinstance(text, str) and not text):
            yield Violation("breakpoint_place", path)
        is_long = marker.get("ttl") == "1h"
        if is_long and has_short:
            yield Violation("breakpoint_ttl_order", path)
        has_short = has_short or not is_long


def _markers(request: JsonObject) -> Iterator[tuple[JsonObject, JsonObject, str]]:
    for holder, path in _holders(request):
        if not isinstance(holder, dict):
            continue
        marker = holder.get("cache_control")
        if isinstance(marker, dict):
            yield marker, holder, f"{path}/cache_control"


def _holders(request: JsonObject) -> Iterator[tuple[Json, str]]:
    for key in ("tools", "system"):
        value = request.get(key)
        for index, block in enumerate(value if isinstance(value, list) else ()):
            yield block, f"/{key}/{index}"
    messages = request.get("messages")
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        for index, block in enumerate(_blocks(message) if isinstance(message, dict) else ()):
            path = f"/messages/{number}/content/{index}"
            yield block, path
            inner = block.get("content") if isinstance(block, dict) else None
            is_result = _type(block) == "tool_result"
            for at, item in enumerate(inner if is_result and isinstance(inner, list) else ()):
                yield item, f"{path}/content/{at}"
    # The automatic marker stands on the last block and takes a slot of its own.
    yield request, ""
