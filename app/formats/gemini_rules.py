"""What generateContent refuses: the rules of ``spec/PROVIDERS.md`` §4 and §9 on one request.

A rule's slug says what must hold. The checks take any JSON in either spelling: what is no request
at all is told as ``shape``, never as an exception.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from app.core.canonical import Json, is_clean
from app.formats.fields import camel, is_deep, pointer_to
from app.formats.tools import others_keys
from app.formats.violations import Violation

Violations: TypeAlias = Iterator[Violation]
JsonObject: TypeAlias = dict[str, Json]

MAX_NAME_LENGTH: Final = 64
NAME: Final = re.compile(rf"[a-zA-Z_][a-zA-Z0-9_.:-]{{0,{MAX_NAME_LENGTH - 1}}}")

_MEDIA: Final = re.compile(
    r"(?:image/(?!svg)|audio/|video/|text/)[^\s/;,]+"
    r"|application/(?:pdf|json|javascript|x-javascript|x-python)",
    re.IGNORECASE,
)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
#: Families from Gemini 3 on (ai.google.dev/gemini-api/docs/thought-signatures, 2026-11-29).
_NEEDS_SIGNATURES: Final = re.compile(r"(?:^|/)gemini-(?:[3-9]|[1-9][0-9])")
_LINK: Final = re.compile(r"(?:https?|gs)://\S+", re.IGNORECASE)

#: What a part may be. It is exactly one of them.
_KINDS: Final = (
    "text",
    "inline_data",
    "file_data",
    "function_call",
    "function_response",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
)
_KIND_BY_KEY: Final[Mapping[str, str]] = {
    spelling: kind for kind in _KINDS for spelling in (kind, camel(kind))
}


def part_kind(value: Json) -> str:
    """Return what a part is, in snake_case; empty when it is nothing, or several things."""
    present = _present(value) if isinstance(value, dict) else []
    return _KIND_BY_KEY[present[0]] if len(present) == 1 else ""


def is_part_accepted(value: Json, role: str) -> bool:
    """Tell whether a part breaks no rule of its own in a turn of this role."""
    return all(next(_part(part, role), None) is None for part in _parts([value], ""))


def is_base64(text: str) -> bool:
    """Tell whether a text may be bytes, in either alphabet; of no bytes it is not."""
    return bool(_BASE64.fullmatch(text))


def takes_mime_type(mime_type: str) -> bool:
    """Tell whether media of this type is accepted."""
    return bool(_MEDIA.fullmatch(mime_type.partition(";")[0].strip()))


def takes_uri(uri: str) -> bool:
    """Tell whether media can be referenced so."""
    return bool(_LINK.fullmatch(uri))


@dataclass(frozen=True, slots=True)
class _Part:
    """A part with its kind; the value is what the kind's key holds."""

    path: str
    kind: str
    value: Json
    fields: JsonObject


@dataclass(frozen=True, slots=True)
class _Turn:
    path: str
    role: str
    parts: tuple[_Part, ...]

    def of(self, kind: str) -> tuple[_Part, ...]:
        return tuple(part for part in self.parts if part.kind == kind)


def validate(request: Json, *, model: str = "") -> tuple[Violation, ...]:
    """Return every rule that the request breaks.

    Args:
        request: the body, as parsed JSON. Fields beside history, cache, system text and tools are
            not looked at.
        model: whether the current turn's calls must be signed depends on it.
    """
    if not isinstance(request, dict) or is_deep(request):
        return (Violation("shape", ""),)
    clean = () if is_clean(request) else (Violation("text_can_be_sent", ""),)
    return (
        *clean,
        *_contents(request, model),
        *_cached(request),
        *_system(request),
        *_tools(request.get("tools")),
    )


def _contents(request: JsonObject, model: str) -> Violations:
    value = request.get("contents")
    if not isinstance(value, list):
        yield Violation("shape", "/contents")
        return
    if not value:
        yield Violation("contents_not_empty", "/contents")
    turns: list[_Turn] = []
    for index, content in enumerate(value):
        path = f"/contents/{index}"
        parts = content.get("parts") if isinstance(content, dict) else None
        if not isinstance(content, dict) or not isinstance(parts, list):
            yield Violation("shape", path)
            continue
        turn = _Turn(path, _role(content.get("role")), tuple(_parts(parts, path)))
        turns.append(turn)
        yield from _turn(turn, content)
    if _get(request, "cached_content") is None:
        yield from _order(turns)
        yield from _pairing(turns)
    else:
        # What stands before the first one is not here: it may be a call that the first one answers.
        yield from _order(turns, is_continued=True)
        is_answer = bool(turns) and bool(turns[0].of("function_response"))
        yield from _pairing(turns[1:] if is_answer else turns, is_continued=True)
    if _NEEDS_SIGNATURES.search(model):
        yield from _call_signatures(turns)


def _role(role: Json) -> str:
    """Return the role; the legacy role of tool results is the user's."""
    return "user" if role == "function" else str(role)


def _parts(parts: list[Json], path: str) -> Iterator[_Part]:
    for index, part in enumerate(parts):
        at = f"{path}/parts/{index}"
        fields = part if isinstance(part, dict) else {}
        present = _present(fields)
        if len(present) == 1:
            yield _Part(at, _KIND_BY_KEY[present[0]], fields[present[0]], fields)
        else:
            kind = "merged" if present else "none"
            yield _Part(at, kind, None, fields)


def _present(fields: JsonObject) -> list[str]:
    return [key for key in fields if key in _KIND_BY_KEY and fields[key] is not None]


def _turn(turn: _Turn, content: JsonObject) -> Violations:
    if content.get("role") not in ("user", "model", "function"):
        yield Violation("role_known", f"{turn.path}/role")
    if not turn.parts:
        yield Violation("content_not_empty", turn.path)
    for part in turn.parts:
        yield from _part(part, turn.role)


def _part(part: _Part, role: str) -> Violations:
    yield from _signature(part)
    if not isinstance(part.fields.get("thought", False), bool | None):
        yield Violation("shape", f"{part.path}/thought")
    match part.kind:
        case "none":
            yield Violation("part_not_empty", part.path)
        case "merged":
            yield Violation("part_has_one_kind", part.path)
        case "text":
            yield from _text(part)
        case "inline_data" | "file_data":
            yield from _media(part.value, part.kind, part.path)
        case "function_call":
            yield from _call(part, role)
        case "function_response":
            yield from _response(part, role)
        case _ if not isinstance(part.value, dict):
            yield Violation("shape", part.path)


def _get(value: Json, key: str) -> Json:
    """Return a member of an object in either spelling; None of anything else."""
    if not isinstance(value, dict):
        return None
    found = value.get(key)
    return value.get(camel(key)) if found is None else found


def _signature(part: _Part) -> Violations:
    signature = _get(part.fields, "thought_signature")
    if signature is None:
        return
    if not isinstance(signature, str) or not is_base64(signature):
        yield Violation("signature_is_base64", part.path)
    if part.kind == "merged":
        # What was signed was one of the pieces.
        yield Violation("signed_part_unmerged", part.path)


def _text(part: _Part) -> Violations:
    if not isinstance(part.value, str):
        yield Violation("shape", f"{part.path}/text")
    elif not part.value and _get(part.fields, "thought_signature") is None:
        yield Violation("text_not_empty", f"{part.path}/text")


def _media(value: Json, kind: str, path: str) -> Violations:
    mime_type = _get(value, "mime_type")
    if kind == "inline_data":
        data = _get(value, "data")
        is_taken = isinstance(data, str) and is_base64(data) and mime_type is not None
    else:
        uri = _get(value, "file_uri")
        is_taken = isinstance(uri, str) and takes_uri(uri)
    if mime_type is not None:
        is_taken = is_taken and isinstance(mime_type, str) and takes_mime_type(mime_type)
    if not is_taken:
        yield Violation("media_accepted", path)


def _call(part: _Part, role: str) -> Violations:
    if role != "model":
        yield Violation("call_by_model", part.path)
    yield from _name(part)
    if not isinstance(_get(part.value, "args") or {}, dict):
        yield Violation("args_are_object", part.path)


def _response(part: _Part, role: str) -> Violations:
    if role != "user":
        yield Violation("response_by_user", part.path)
    yield from _name(part)
    if not isinstance(_get(part.value, "response"), dict):
        yield Violation("response_is_object", part.path)
    media = _get(part.value, "parts") or []
    for index, item in enumerate(media if isinstance(media, list) else [None]):
        path = f"{part.path}/parts/{index}"
        kinds = [kind for kind in ("inline_data", "file_data") if _get(item, kind) is not None]
        if len(kinds) != 1:
            yield Violation("media_accepted", path)
        else:
            yield from _media(_get(item, kinds[0]), kinds[0], path)


def _name(part: _Part) -> Violations:
    name = _get(part.value, "name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield Violation("function_name", part.path)


def _order(turns: Sequence[_Turn], *, is_continued: bool = False) -> Violations:
    if turns and turns[0].role != "user" and not is_continued:
        yield Violation("first_role_user", turns[0].path)
    for previous, turn in pairwise(turns):
        if previous.role == turn.role:
            yield Violation("roles_alternate", turn.path)
    if turns and turns[-1].role != "user":
        yield Violation("last_role_user", turns[-1].path)


def _pairing(turns: Sequence[_Turn], *, is_continued: bool = False) -> Violations:
    """A call turn follows the user's, and the next turn answers it: all of it, in order, first."""
    calls: tuple[_Part, ...] = ()
    for index, turn in enumerate(turns):
        responses = turn.of("function_response")
        yield from _answers(calls, responses, turn)
        calls = turn.of("function_call")
        is_after_user = turns[index - 1].role == "user" if index else is_continued
        if calls and not is_after_user:
            yield Violation("call_after_user", turn.path)
    if calls:
        yield Violation("call_answered", turns[-1].path)


def _call_signatures(turns: Sequence[_Turn]) -> Violations:
    """The first call of each step since the newest question carries a signature."""
    for turn in reversed(turns):
        if turn.role == "user" and any(part.kind != "function_response" for part in turn.parts):
            return
        calls = turn.of("function_call")
        if calls and _get(calls[0].fields, "thought_signature") is None:
            yield Violation("call_signed", calls[0].path)


def _answers(calls: tuple[_Part, ...], responses: tuple[_Part, ...], turn: _Turn) -> Violations:
    if responses and not calls:
        yield Violation("response_after_call", turn.path)
    elif calls and not responses:
        yield Violation("call_answered", turn.path)
    elif len(calls) != len(responses):
        yield Violation("response_count", turn.path)
    for call, response in zip(calls, responses, strict=False):
        if _identity(call) != _identity(response):
            yield Violation("responses_in_call_order", response.path)
    kinds = [part.kind == "function_response" for part in turn.parts]
    if kinds != sorted(kinds, reverse=True):
        yield Violation("responses_first", turn.path)


def _identity(part: _Part) -> tuple[Json, Json]:
    return _get(part.value, "name"), _get(part.value, "id")


def _cached(request: JsonObject) -> Violations:
    """A cache holds the head of the request: it may not be set beside (K)."""
    name = _get(request, "cached_content")
    if name is None:
        return
    if not isinstance(name, str) or not name:
        yield Violation("shape", pointer_to("", "cachedContent"))
    for key in ("system_instruction", "tools", "tool_config"):
        if _get(request, key) is not None:
            yield Violation("cached_head_alone", f"/{key if key in request else camel(key)}")


def _system(request: JsonObject) -> Violations:
    system = _get(request, "system_instruction")
    if system is None:
        return
    path = "/system_instruction" if "system_instruction" in request else "/systemInstruction"
    parts = system.get("parts") if isinstance(system, dict) else None
    texts = [_get(part, "text") for part in parts] if isinstance(parts, list) else []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        yield Violation("system_is_text", path)


def _tools(value: Json) -> Violations:
    if value is None:
        return
    if not isinstance(value, list) or not all(isinstance(tool, dict) and tool for tool in value):
        yield Violation("shape", "/tools")
        return
    names: list[Json] = []
    for index, tool in enumerate(value):
        if isinstance(tool, dict) and others_keys(tool):
            yield Violation("tool_shape", f"/tools/{index}")
            continue
        declarations = _get(tool, "function_declarations")
        path = pointer_to(f"/tools/{index}", "functionDeclarations")
        if declarations is None:
            continue
        if not isinstance(declarations, list) or not declarations:
            yield Violation("tools_not_empty", path)
            continue
        for at, declaration in enumerate(declarations):
            yield from _declaration(declaration, names, f"{path}/{at}")
            names.append(_get(declaration, "name"))


def _declaration(declaration: Json, names: Sequence[Json], path: str) -> Violations:
    name = _get(declaration, "name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield Violation("tool_name", path)
    elif name in names:
        yield Violation("tool_name_unique", path)
    schemas = [_get(declaration, key) for key in ("parameters", "parameters_json_schema")]
    given = [schema for schema in schemas if schema is not None]
    if len(given) > 1 or not all(isinstance(schema, dict) for schema in given):
        yield Violation("tool_schema", path)
