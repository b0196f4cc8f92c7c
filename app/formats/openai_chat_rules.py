"""What Chat Completions refuses: the rules of ``spec/PROVIDERS.md`` §2 and §9 on one request.

One generator per rule or place; a rule's slug says what must hold. The checks take any JSON: what
is no request at all is told as ``shape``, never as an exception.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from app.core.canonical import Json
from app.formats.media import IMAGE_TYPES, is_web_url, split_data_url
from app.formats.violations import Violation

Violations: TypeAlias = Iterator[Violation]
JsonObject: TypeAlias = dict[str, Json]

#: Longer ids are refused with ``string_above_max_length``.
MAX_CALL_ID_LENGTH: Final = 40
MAX_NAME_LENGTH: Final = 64
#: Explicit cache breakpoints: the provider writes this many per request.
MAX_BREAKPOINTS: Final = 4

#: Media type to the provider's name of the format.
AUDIO_FORMATS: Final = {
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
    "audio/vnd.wave": "wav",
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
}

_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_LENGTH}}}")
_ROLES: Final = frozenset({"assistant", "developer", "function", "system", "tool", "user"})
_PARTS_BY_ROLE: Final = {
    "assistant": frozenset({"refusal", "text"}),
    "developer": frozenset({"text"}),
    "function": frozenset[str](),
    "system": frozenset({"text"}),
    "tool": frozenset({"text"}),
    "user": frozenset({"file", "image_url", "input_audio", "text"}),
}


def validate(request: Json, *, model: str = "") -> tuple[Violation, ...]:
    """Return every rule that the request breaks, in the order of the request.

    Args:
        request: the body, as parsed JSON. Fields that are no part of the history are not looked at.
        model: nothing here depends on it.
    """
    del model
    if not isinstance(request, dict):
        return (Violation("shape", ""),)
    return (
        *_messages(request.get("messages")),
        *_tools(request.get("tools")),
        *_breakpoints(request.get("messages")),
    )


def _messages(value: Json) -> Violations:
    if not isinstance(value, list):
        yield Violation("shape", "/messages")
        return
    if not value:
        yield Violation("messages_not_empty", "/messages")
    for index, message in enumerate(value):
        path = f"/messages/{index}"
        if not isinstance(message, dict):
            yield Violation("shape", path)
            continue
        yield from _message(message, path)
    yield from _pairing(value)


def _message(message: JsonObject, path: str) -> Violations:
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        yield Violation("role_known", f"{path}/role")
        return
    yield from _content(message, role, path)
    if role == "assistant":
        yield from _tool_calls(message.get("tool_calls"), f"{path}/tool_calls")
    elif message.get("tool_calls") is not None:
        yield Violation("calls_by_assistant", f"{path}/tool_calls")


def _content(message: JsonObject, role: str, path: str) -> Violations:
    content = message.get("content")
    path = f"{path}/content"
    if content is None:
        called = message.get("tool_calls") or message.get("function_call")
        spoken = message.get("refusal") or message.get("audio")
        if role == "function" or (role == "assistant" and (called or spoken)):
            return
        yield Violation("content_present", path)
    elif isinstance(content, str):
        # A tool may well give nothing.
        if not content and role not in ("tool", "function"):
            yield Violation("text_not_empty", path)
    elif isinstance(content, list):
        if not content:
            yield Violation("content_present", path)
        for index, part in enumerate(content):
            yield from _part(part, role, f"{path}/{index}")
    else:
        yield Violation("shape", path)


def _part(part: Json, role: str, path: str) -> Violations:
    if not isinstance(part, dict):
        yield Violation("shape", path)
        return
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PARTS_BY_ROLE[role]:
        yield Violation("part_fits_role", path)
        return
    match kind:
        case "text" | "refusal":
            yield from _text(part.get(kind), f"{path}/{kind}")
        case "image_url":
            yield from _image(part.get("image_url"), f"{path}/image_url")
        case "input_audio":
            yield from _audio(part.get("input_audio"), f"{path}/input_audio")
        case "file":
            yield from _file(part.get("file"), f"{path}/file")


def is_part_accepted(part: Json, role: str) -> bool:
    """Tell whether a content part breaks no rule of its own in a message of this role."""
    return next(_part(part, role, ""), None) is None


def _text(text: Json, path: str) -> Violations:
    if not isinstance(text, str):
        yield Violation("shape", path)
    elif not text:
        yield Violation("text_not_empty", path)


def _image(image: Json, path: str) -> Violations:
    url = image.get("url") if isinstance(image, dict) else None
    if not isinstance(url, str):
        yield Violation("shape", path)
        return
    inline = split_data_url(url)
    if inline is None:
        if not is_web_url(url):
            yield Violation("media_accepted", f"{path}/url")
    elif inline[0] not in IMAGE_TYPES or not inline[1]:
        yield Violation("media_accepted", f"{path}/url")


def _audio(audio: Json, path: str) -> Violations:
    if not isinstance(audio, dict) or not isinstance(audio.get("data"), str):
        yield Violation("shape", path)
    elif audio.get("format") not in ("wav", "mp3") or not audio["data"]:
        yield Violation("media_accepted", path)


def _file(file: Json, path: str) -> Violations:
    if not isinstance(file, dict):
        yield Violation("shape", path)
    elif not isinstance(file.get("file_id"), str) and not isinstance(file.get("file_data"), str):
        yield Violation("media_accepted", path)


def _tool_calls(value: Json, path: str) -> Violations:
    if value is None:
        return
    if not isinstance(value, list):
        yield Violation("shape", path)
        return
    if not value:
        yield Violation("calls_not_empty", path)
    for index, call in enumerate(value):
        yield from _tool_call(call, f"{path}/{index}")
    ids = [call.get("id") for call in value if isinstance(call, dict)]
    for index, call_id in enumerate(ids):
        if call_id in ids[:index]:
            yield Violation("call_id_unique", f"{path}/{index}/id")


def _tool_call(call: Json, path: str) -> Violations:
    if not isinstance(call, dict):
        yield Violation("shape", path)
        return
    yield from _call_id(call.get("id"), f"{path}/id")
    if call.get("type") == "custom":
        return
    function = call.get("function")
    if call.get("type") != "function" or not isinstance(function, dict):
        yield Violation("shape", path)
        return
    yield from _name(function.get("name"), f"{path}/function/name")
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or not is_json(arguments):
        yield Violation("arguments_are_json_text", f"{path}/function/arguments")


def is_json(text: str) -> bool:
    """Tell whether a text is strictly JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        # Any number, however long: nothing is read out of it here.
        json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def _call_id(value: Json, path: str) -> Violations:
    if not isinstance(value, str) or not value:
        yield Violation("call_id_present", path)
    elif len(value) > MAX_CALL_ID_LENGTH:
        yield Violation("call_id_length", path)


def _name(value: Json, path: str) -> Violations:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        yield Violation("function_name", path)


def _pairing(messages: Sequence[Json]) -> Violations:
    """Each call is answered once, by a tool message that follows before any other role."""
    open_ids: dict[str, str] = {}
    answered: set[str] = set()
    legacy_name: str | None = None
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        path = f"/messages/{index}"
        role = message.get("role")
        if role == "tool":
            yield from _answer(message.get("tool_call_id"), open_ids, answered, path)
            continue
        if role == "function":
            if legacy_name is None or message.get("name") != legacy_name:
                yield Violation("result_has_call", path)
            legacy_name = None
            continue
        yield from (Violation("call_answered", at) for at in open_ids.values())
        open_ids, answered = dict(_open_calls(message, path)), set()
        call = message.get("function_call") if role == "assistant" else None
        name = call.get("name") if isinstance(call, dict) else None
        legacy_name = name if isinstance(name, str) else None
    yield from (Violation("call_answered", at) for at in open_ids.values())


def _answer(value: Json, open_ids: dict[str, str], answered: set[str], path: str) -> Violations:
    path = f"{path}/tool_call_id"
    yield from _call_id(value, path)
    if not isinstance(value, str):
        return
    if value in open_ids:
        del open_ids[value]
        answered.add(value)
    else:
        yield Violation("call_answered_once" if value in answered else "result_has_call", path)


def _open_calls(message: JsonObject, path: str) -> Iterator[tuple[str, str]]:
    tool_calls = message.get("tool_calls")
    if message.get("role") != "assistant" or not isinstance(tool_calls, list):
        return
    for index, call in enumerate(tool_calls):
        call_id = call.get("id") if isinstance(call, dict) else None
        if isinstance(call_id, str):
            yield call_id, f"{path}/tool_calls/{index}"


def _tools(value: Json) -> Violations:
    if value is None:
        return
    if not isinstance(value, list) or not value:
        yield Violation("tools_not_empty", "/tools")
        return
    names: list[Json] = []
    for index, tool in enumerate(value):
        path = f"/tools/{index}"
        function = tool.get("function", tool.get("custom")) if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            yield Violation("shape", path)
            continue
        name = function.get("name")
        yield from _name(name, f"{path}/function/name")
        parameters = function.get("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            yield Violation("tool_schema", f"{path}/function/parameters")
        if name in names:
            yield Violation("tool_name_unique", f"{path}/function/name")
        names.append(name)


def _breakpoints(messages: Json) -> Violations:
    """Explicit cache breakpoints: on what was sent to the model, and only so many are written."""
    count = 0
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for at, part in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(part, dict) or part.get("prompt_cache_breakpoint") is None:
                continue
            path = f"/messages/{index}/content/{at}/prompt_cache_breakpoint"
            count += 1
            if count > MAX_BREAKPOINTS:
                yield Violation("breakpoint_count", path)
            if isinstance(message, dict) and message.get("role") == "assistant":
                yield Violation("breakpoint_place", path)
