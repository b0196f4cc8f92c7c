"""What the Responses API refuses: the rules of ``spec/PROVIDERS.md`` §3 and §9 on one request.

One generator per rule or place; a rule's slug says what must hold. The checks take any JSON: what
is no request at all is told as ``shape``, never as an exception.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from app.core.canonical import Json
from app.formats.media import IMAGE_TYPES, is_web_url, split_data_url
from app.formats.openai_chat_rules import MAX_BREAKPOINTS, MAX_NAME_LENGTH, is_json
from app.formats.violations import Violation, is_filled

Violations: TypeAlias = Iterator[Violation]
JsonObject: TypeAlias = dict[str, Json]

#: Longer ids are refused with ``string_above_max_length``.
MAX_CALL_ID_LENGTH: Final = 64

#: Calls that the client answers, and the item that answers each.
OUTPUT_TYPES: Final = {
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "function_call": "function_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
}
#: What the model produced and the provider answered by itself.
SERVER_TOOL_TYPES: Final = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_approval_request",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
#: What stands in the history and is neither said nor called.
_OTHER_TYPES: Final = frozenset(
    {
        "additional_tools",
        "compaction",
        "compaction_trigger",
        "configuration_update",
        "item_reference",
        "mcp_approval_response",
        "message",
        "reasoning",
    }
)
#: Items that keep their own text when they are sent again. A trigger is no history: it asks for
#: something, once.
VERBATIM_TYPES: Final = SERVER_TOOL_TYPES | (_OTHER_TYPES - {"compaction_trigger", "message"})
#: Prefixes of the ids that the API checks (OpenAI's error texts, 2026-11-29).
ID_PREFIXES: Final = {"function_call": "fc", "message": "msg", "reasoning": "rs"}

_ITEM_TYPES: Final = (
    SERVER_TOOL_TYPES | _OTHER_TYPES | OUTPUT_TYPES.keys() | frozenset(OUTPUT_TYPES.values())
)
_CALL_TYPES: Final = {output: call for call, output in OUTPUT_TYPES.items()}
#: What the model makes, and what reasoning may therefore stand before.
_MODEL_TYPES: Final = SERVER_TOOL_TYPES | OUTPUT_TYPES.keys()
_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_LENGTH}}}")
_ROLES: Final = frozenset({"assistant", "developer", "system", "user"})
_INPUT_PARTS: Final = frozenset({"input_file", "input_image", "input_text"})
_PARTS_BY_ROLE: Final = {
    "assistant": frozenset({"output_text", "refusal"}),
    "developer": _INPUT_PARTS,
    "system": _INPUT_PARTS,
    "user": _INPUT_PARTS,
}
#: Families that do not reason; every other model does or may. (OpenAI's model list, 2026-11-29)
_NEVER_REASONS: Final = re.compile(r"(?:.*/)?(?:ft:)?(?:chatgpt|gpt-3|gpt-4)")
#: Models that take neither sampling parameters nor ``effort: none`` (from GPT-6.2 on).
_SAMPLES_ALONE: Final = re.compile(r"(?:.*/)?gpt-(?:6\.[2-9]|[7-9]|\d\d)")


def reasons(model: str) -> bool:
    """Tell whether a model is known to reason; one without a name is not."""
    return bool(model) and not _NEVER_REASONS.match(model)


def validate(request: Json, *, model: str = "") -> tuple[Violation, ...]:
    """Return every rule that the request breaks, in the order of the request.

    Args:
        request: the body, as parsed JSON.
        model: what goes with its reasoning and which parameters it takes depend on it.
    """
    if not isinstance(request, dict):
        return (Violation("shape", ""),)
    return (
        *_request(request, model),
        *_input(request, model),
        *_tools(request.get("tools")),
        *_breakpoints(request.get("input")),
    )


def _request(request: JsonObject, model: str) -> Violations:
    instructions = request.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        yield Violation("shape", "/instructions")
    if request.get("previous_response_id") is not None and request.get("conversation") is not None:
        yield Violation("one_conversation", "/conversation")
    if not _SAMPLES_ALONE.match(model):
        return
    for key in ("temperature", "top_p", "top_logprobs"):
        if request.get(key) is not None:
            yield Violation("sampling_left_to_model", f"/{key}")
    reasoning = request.get("reasoning")
    if isinstance(reasoning, dict) and reasoning.get("effort") == "none":
        yield Violation("effort_accepted", "/reasoning/effort")


def _input(request: JsonObject, model: str) -> Violations:
    value = request.get("input")
    if isinstance(value, str):
        yield from _text(value, "/input")
        return
    if not isinstance(value, list):
        yield Violation("shape", "/input")
        return
    is_continued = any(
        request.get(key) is not None for key in ("previous_response_id", "conversation")
    )
    if not value and not is_continued:
        yield Violation("input_not_empty", "/input")
    for index, item in enumerate(value):
        yield from _item(item, f"/input/{index}")
    for index, item in enumerate(value[:-1]):
        if _type(item) == "compaction_trigger":
            yield Violation("trigger_last", f"/input/{index}")
    yield from _pairing(value, is_continued=is_continued)
    yield from _reasoning_order(value, model)
    if request.get("store") is False:
        yield from _stored_nowhere(value)


def _type(item: Json) -> str:
    """Return the type of an item; a message may leave it out."""
    if not isinstance(item, dict):
        return ""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference" if "id" in item else ""
    return kind if isinstance(kind, str) else ""


def _item(item: Json, path: str) -> Violations:
    if not isinstance(item, dict):
        yield Violation("shape", path)
        return
    kind = _type(item)
    if kind not in _ITEM_TYPES:
        yield Violation("item_known", f"{path}/type")
        return
    yield from _item_id(item, kind, path)
    match kind:
        case "message":
            yield from _message(item, path)
        case "reasoning":
            yield from _reasoning(item, path)
        case "compaction":
            if not is_filled(item.get("encrypted_content")):
                yield Violation("shape", f"{path}/encrypted_content")
        case "item_reference":
            if not is_filled(item.get("id")):
                yield Violation("shape", f"{path}/id")
        case "function_call" | "custom_tool_call":
            yield from _call_id(item.get("call_id"), f"{path}/call_id")
            yield from _name(item.get("name"), f"{path}/name")
            yield from _said_to_tool(item, kind, path)
        case _ if kind in OUTPUT_TYPES:
            yield from _call_id(_called(item), f"{path}/call_id")
        case "function_call_output" | "custom_tool_call_output":
            yield from _call_id(item.get("call_id"), f"{path}/call_id")
            yield from _output(item.get("output"), f"{path}/output")
        case _ if kind in _CALL_TYPES:
            yield from _call_id(_called(item), f"{path}/call_id")


def is_item_accepted(item: Json) -> bool:
    """Tell whether an item breaks no rule of its own."""
    return next(_item(item, ""), None) is None


def _item_id(item: JsonObject, kind: str, path: str) -> Violations:
    item_id = item.get("id")
    if item_id is None:
        return
    prefix = ID_PREFIXES.get(kind, "")
    if kind == "message" and item.get("role") != "assistant":
        prefix = ""
    if not isinstance(item_id, str) or not item_id.startswith(prefix):
        yield Violation("item_id_fits_type", f"{path}/id")


def _message(item: JsonObject, path: str) -> Violations:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        yield Violation("role_known", f"{path}/role")
        return
    content = item.get("content")
    path = f"{path}/content"
    if isinstance(content, str):
        yield from _text(content, path)
    elif isinstance(content, list):
        if not content:
            yield Violation("content_not_empty", path)
        for index, part in enumerate(content):
            yield from _part(part, _PARTS_BY_ROLE[role], f"{path}/{index}")
    else:
        yield Violation("shape", path)


def _part(part: Json, accepted: frozenset[str], path: str) -> Violations:
    if not isinstance(part, dict):
        yield Violation("shape", path)
        return
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in accepted:
        yield Violation("part_fits_role", path)
        return
    match kind:
        case "refusal":
            yield from _text(part.get("refusal"), f"{path}/refusal")
        case "input_image":
            if not _is_image(part):
                yield Violation("media_accepted", path)
        case "input_file":
            if not _is_file(part):
                yield Violation("media_accepted", path)
        case _:
            yield from _text(part.get("text"), f"{path}/text")


def is_part_accepted(part: Json, role: str) -> bool:
    """Tell whether a content part breaks no rule of its own in a message of this role."""
    return next(_part(part, _PARTS_BY_ROLE[role], ""), None) is None


def _text(text: Json, path: str) -> Violations:
    if not isinstance(text, str):
        yield Violation("shape", path)
    elif not text:
        yield Violation("text_not_empty", path)


def _is_image(part: JsonObject) -> bool:
    url = part.get("image_url")
    if not isinstance(url, str):
        return is_filled(part.get("file_id"))
    inline = split_data_url(url)
    return is_web_url(url) if inline is None else inline[0] in IMAGE_TYPES and bool(inline[1])


def _is_file(part: JsonObject) -> bool:
    url = part.get("file_url")
    if isinstance(url, str):
        return is_web_url(url)
    if is_filled(part.get("file_id")):
        return True
    # What is sent in the request is told apart by its name.
    return is_filled(part.get("file_data")) and is_filled(part.get("filename"))


def _reasoning(item: JsonObject, path: str) -> Violations:
    if not isinstance(item.get("summary"), list):
        yield Violation("shape", f"{path}/summary")
    content = item.get("content")
    if content is not None and not isinstance(content, list):
        yield Violation("shape", f"{path}/content")
    if not is_filled(item.get("encrypted_content")) and not is_filled(item.get("id")):
        yield Violation("reasoning_identified", path)


def _said_to_tool(item: JsonObject, kind: str, path: str) -> Violations:
    if kind == "custom_tool_call":
        if not isinstance(item.get("input"), str):
            yield Violation("shape", f"{path}/input")
        return
    arguments = item.get("arguments")
    if not isinstance(arguments, str) or not is_json(arguments):
        yield Violation("arguments_are_json_text", f"{path}/arguments")


def _call_id(value: Json, path: str) -> Violations:
    if not isinstance(value, str) or not value:
        yield Violation("call_id_present", path)
    elif len(value) > MAX_CALL_ID_LENGTH:
        yield Violation("call_id_length", path)


def _name(value: Json, path: str) -> Violations:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        yield Violation("function_name", path)


def _output(value: Json, path: str) -> Violations:
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from _part(part, _INPUT_PARTS, f"{path}/{index}")
    elif not isinstance(value, str):
        # A tool may well give nothing, but it has to say so.
        yield Violation("shape", path)


def _called(item: JsonObject) -> Json:
    """Return the id that pairs an item; a local shell's output has it under another name."""
    call_id = item.get("call_id")
    return item.get("id") if call_id is None and _type(item).startswith("local_shell") else call_id


def _pairing(items: Sequence[Json], *, is_continued: bool) -> Violations:
    """Each call is answered once, after it, by the item of its kind; not necessarily directly."""
    calls: dict[str, tuple[str, str]] = {}
    answered: set[str] = set()
    for index, item in enumerate(items):
        kind = _type(item)
        call_id = _called(item) if isinstance(item, dict) else None
        if not isinstance(call_id, str) or kind not in OUTPUT_TYPES | _CALL_TYPES:
            continue
        path = f"/input/{index}/call_id"
        if kind in OUTPUT_TYPES:
            if call_id in calls:
                yield Violation("call_id_unique", path)
            calls[call_id] = (kind, f"/input/{index}")
        elif call_id in answered:
            yield Violation("call_answered_once", path)
        elif call_id in calls:
            answered.add(call_id)
            if not _answers(kind, calls[call_id][0]):
                yield Violation("output_fits_call", f"/input/{index}/type")
        elif not is_continued:
            yield Violation("result_has_call", path)
    for call_id, (_, path) in calls.items():
        if call_id not in answered:
            yield Violation("call_answered", path)


def _answers(kind: str, called: str) -> bool:
    # Codex answers a local shell as a function.
    return _CALL_TYPES[kind] == called or (called, kind) == (
        "local_shell_call",
        "function_call_output",
    )


def _reasoning_order(items: Sequence[Json], model: str) -> Violations:
    """Reasoning goes with what it led to, and what it led to goes with it."""
    open_path = ""
    is_reasoned = False
    for index, item in enumerate(items):
        kind = _type(item)
        path = f"/input/{index}"
        if kind == "reasoning":
            open_path, is_reasoned = open_path or path, True
            continue
        is_models = kind in _MODEL_TYPES or (
            kind == "message" and isinstance(item, dict) and item.get("role") == "assistant"
        )
        if not is_models:
            if open_path:
                yield Violation("reasoning_followed", open_path)
            open_path, is_reasoned = "", False
            continue
        open_path = ""
        has_id = isinstance(item, dict) and item.get("id") is not None
        # What is only known under its id is looked up with what led to it.
        if kind in ID_PREFIXES and has_id and not is_reasoned and reasons(model):
            yield Violation("reasoning_kept", f"{path}/id")
    if open_path:
        yield Violation("reasoning_followed", open_path)


def _stored_nowhere(items: Sequence[Json]) -> Violations:
    """With ``store: false`` nothing can be named that is not in the request."""
    for index, item in enumerate(items):
        is_empty = isinstance(item, dict) and not is_filled(item.get("encrypted_content"))
        if _type(item) == "item_reference" or (_type(item) == "reasoning" and is_empty):
            yield Violation("item_in_request", f"/input/{index}")


def _tools(value: Json) -> Violations:
    if value is None:
        return
    if not isinstance(value, list):
        yield Violation("shape", "/tools")
        return
    names: list[Json] = []
    for index, tool in enumerate(value):
        path = f"/tools/{index}"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or not isinstance(kind, str):
            yield Violation("shape", path)
            continue
        if kind not in ("custom", "function"):
            continue
        name = tool.get("name")
        yield from _name(name, f"{path}/name")
        parameters = tool.get("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            yield Violation("tool_schema", f"{path}/parameters")
        if name in names:
            yield Violation("tool_name_unique", f"{path}/name")
        names.append(name)


def _breakpoints(items: Json) -> Violations:
    """Explicit cache breakpoints: on what was sent to the model, and only so many are written."""
    count = 0
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict):
            continue
        for key in ("content", "output"):
            parts = item.get(key)
            for at, part in enumerate(parts if isinstance(parts, list) else ()):
                if not isinstance(part, dict) or part.get("prompt_cache_breakpoint") is None:
                    continue
                path = f"/input/{index}/{key}/{at}/prompt_cache_breakpoint"
                count += 1
                if count > MAX_BREAKPOINTS:
                    yield Violation("breakpoint_count", path)
                if item.get("role") == "assistant":
                    yield Violation("breakpoint_place", path)
