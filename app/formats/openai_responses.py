"""OpenAI Responses, both ways: items to native events, contents to a request.

In: an item gives one event, a whole response object one for the model's turn. Reasoning and what
ran at the provider are kept verbatim as ``opaque``; a call that the client answers is a call,
whatever its kind, because calls pair. What is left of such an item (its id, its kind, its phase)
stays with the part as ``openai_item``. Lines of a Codex rollout are read too; of what they hold
twice, once.

Out, every part is an item of its own, and neighbours that the user said are one message. What is
only valid beside something else goes with it:

    reasoning                   verbatim, where it carries its encrypted content; what nothing
                                of its response follows is left out by ``merge_turns``
    the id of a call or text    only behind the reasoning of its turn: the provider looks for it
    a custom tool's result      as its call was: of both kinds a call has one

and where the provider has no place for what we have:

    unsigned thoughts           left out
    shell, patch, computer use  function calls of that name, which pair and fold like any other
    a failed tool result        its output is ``{"error": ...}``: there is no flag for it
    files that are text         a text part; PDF is an ``input_file``; other files are left out
    model-made media            left out: an assistant message is text only
    code run at the provider    text with the code or its output in a fence

Checked against the SDK's request types (openai 3.57) on 2026-11-29.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from app.core.canonical import Json, canonical_json, clean_text, json_string
from app.core.compile.inputs import NO_MARKS, HeadMarks, RenderedContent, RenderedPart
from app.core.contents import (
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    Role,
    Text,
    is_thinking,
)
from app.core.copying import replace
from app.core.errors import InvalidEventError
from app.formats.fields import (
    Notes,
    json_array,
    json_object,
    lines_of,
    read_extra,
    read_object,
    read_string,
    refuse_deep,
    refuse_members,
    string_or_empty,
)
from app.formats.identifiers import fit_identifier
from app.formats.media import (
    PDF,
    bare_mime_type,
    decode_text,
    is_image_or_document,
    mime_type_of,
    split_data_url,
)
from app.formats.openai_chat_rules import MAX_NAME_LENGTH, is_json
from app.formats.openai_images import image_detail, image_of
from app.formats.openai_responses_rules import (
    ID_PREFIXES,
    MAX_CALL_ID_LENGTH,
    OUTPUT_TYPES,
    SERVER_TOOL_TYPES,
    VERBATIM_TYPES,
    is_item_accepted,
    is_part_accepted,
    reasons,
    validate,
)
from app.formats.tools import named_and_described, openai_parameters_of, read_tool
from app.formats.unread import Kinds, members, unread
from app.formats.wording import code_words, left_out_words

__all__ = ["OPENAI_RESPONSES", "OpenAIResponses", "convert_item", "validate"]

JsonObject: TypeAlias = dict[str, Json]

_PROVIDER: Final = "openai"
_CUSTOM: Final = "custom_tool_call"
_OUTPUTS: Final = frozenset(OUTPUT_TYPES.values())
_REFUSAL_NOTE: Final = "a refusal is sent as a text, unless it stands behind the reasoning for it"
#: What a client or its user puts into the conversation.
_INPUT_ITEMS: Final = frozenset(
    {"additional_tools", "configuration_update", "item_reference", "mcp_approval_response"}
)

# ---------------------------------------------------------------------------------------- inbound

#: What is read of parts, and of items; where a cache ends is decided for each request.
_READ_PARTS: Final = Kinds(
    {
        **dict.fromkeys(
            ("input_text", "output_text", "text"),
            members("type", "text", "prompt_cache_breakpoint"),
        ),
        **dict.fromkeys(
            ("computer_screenshot", "input_image"),
            members("type", "detail", "file_id", "image_url", "prompt_cache_breakpoint"),
        ),
        "input_file": members(
            "type", "file_data", "file_id", "file_url", "filename", "prompt_cache_breakpoint"
        ),
    }
)
_READ_MESSAGE: Final = members("id", "phase", "role", "status", "type", content=_READ_PARTS)
_READ: Final = Kinds(
    {
        "message": _READ_MESSAGE,
        "function_call": members(
            "arguments", "call_id", "id", "name", "namespace", "status", "type"
        ),
        _CUSTOM: members("call_id", "id", "input", "name", "namespace", "status", "type"),
        **dict.fromkeys(
            _OUTPUTS, members("call_id", "id", "name", "status", "type", output=_READ_PARTS)
        ),
    },
    untagged=_READ_MESSAGE,
)


def convert_item(item: Json, *, agent: str, notes: Notes | None = None) -> list[JsonObject]:
    """Return the native events of one item, whole response, or line of a Codex rollout.

    Args:
        item: the item, as parsed JSON.
        agent: the author of what the model said and of its tools' results.
        notes: collects what of the item is not read.

    Raises:
        InvalidEventError: the item has no shape that this API knows; the pointer is relative to
            the item.
    """
    refuse_deep(item)
    value = read_object(item, "")
    refuse_members(value, ("parts", "tool_calls"), "a Responses item")
    notes = [] if notes is None else notes
    payload = value.get("payload")
    if isinstance(payload, dict) and isinstance(value.get("type"), str):
        if value["type"] == "response_item":
            notes.extend(_notes_on(payload, "/payload"))
        return _rollout_events(value, payload, agent)
    output = value.get("output")
    if isinstance(output, list) and "type" not in value:
        notes.extend(_notes_on(output, "/output"))
        return _response_events(value, output, agent)
    notes.extend(_notes_on(value, ""))
    return [_item_event(value, agent, "")]


def _notes_on(value: Json, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield what of items is not read, and what will not be sent as it came."""
    yield from unread(value, _READ, pointer)
    for number, item in enumerate(value if isinstance(value, list) else [value]):
        content = item.get("content") if isinstance(item, dict) else None
        at = f"{pointer}/{number}" if isinstance(value, list) else pointer
        for index, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict) and part.get("type") == "refusal":
                yield f"{at}/content/{index}", _REFUSAL_NOTE


def _rollout_events(line: JsonObject, payload: JsonObject, agent: str) -> list[JsonObject]:
    """Read a line: an item or the summary that replaced some; the rest is for Codex's screen."""
    match line.get("type"):
        case "response_item":
            event = _item_event(payload, agent, "/payload")
        case "compacted":
            text = read_string(payload.get("message"), "/payload/message")
            event = _event("user", "user", [{"text": text}])
        case _:
            return []
    if line.get("timestamp") is not None:
        event["timestamp"] = line["timestamp"]
    return [event]


def _response_events(response: JsonObject, output: list[Json], agent: str) -> list[JsonObject]:
    """Read a response: what the model made in it is one event."""
    events: list[JsonObject] = []
    made: list[JsonObject] = []
    for index, item in enumerate(output):
        pointer = f"/output/{index}"
        event = _item_event(read_object(item, pointer), agent, pointer)
        if made and made[-1] is events[-1] and _is_models(event):
            _parts_of(made[-1]).extend(_parts_of(event))
            continue
        events.append(event)
        if _is_models(event):
            made.append(event)
    for event in made:
        _describe(event, response)
    if made and (usage := _usage(response.get("usage"))):
        made[-1]["usage_metadata"] = usage
    return events


def _is_models(event: JsonObject) -> bool:
    content = event["content"]
    return isinstance(content, dict) and content["role"] == "model"


def _parts_of(event: JsonObject) -> list[Json]:
    content = event["content"]
    assert isinstance(content, dict)
    parts = content["parts"]
    assert isinstance(parts, list)
    return parts


def _describe(event: JsonObject, response: JsonObject) -> None:
    """Say of an event which response it belongs to, which model made it and what went wrong."""
    response_id = response.get("id")
    if response_id is not None:
        event["response_id"] = read_string(response_id, "/id")
    model = response.get("model")
    if isinstance(model, str) and model:
        event["model_version"] = model
    error = response.get("error")
    if isinstance(error, dict):
        event["error_code"] = string_or_empty(error.get("code")) or "error"
        event["error_message"] = string_or_empty(error.get("message"))


def _usage(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        return {}
    counts = {
        "prompt_token_count": value.get("input_tokens"),
        "cached_content_token_count": _detail(value, "input_tokens_details", "cached_tokens"),
        "candidates_token_count": value.get("output_tokens"),
        "thoughts_token_count": _detail(value, "output_tokens_details", "reasoning_tokens"),
        "total_token_count": value.get("total_tokens"),
    }
    return {key: count for key, count in counts.items() if isinstance(count, int)}


def _detail(usage: JsonObject, key: str, name: str) -> Json:
    details = usage.get(key)
    return details.get(name) if isinstance(details, dict) else None


def _item_event(item: JsonObject, agent: str, pointer: str) -> JsonObject:
    kind = item.get("type")
    if kind is None and ("role" in item or isinstance(item.get("id"), str)):
        kind = "message" if "role" in item else "item_reference"
    kind = read_string(kind, f"{pointer}/type")
    if kind == "message":
        return _message_event(item, agent, pointer)
    if kind in OUTPUT_TYPES:
        return _event(agent, "model", [_call_part(item, kind, pointer)])
    if kind in _OUTPUTS:
        return _event(agent, "user", [_response_part(item, kind, pointer)])
    is_input = kind in _INPUT_ITEMS
    part = _opaque(kind, item, text=_told(item, kind))
    if kind == "reasoning":
        part["thought"] = True
    return _event("user" if is_input else agent, "user" if is_input else "model", [part])


def _event(author: str, role: str, parts: list[Json]) -> JsonObject:
    return {"author": author, "content": {"role": role, "parts": parts}}


def _message_event(item: JsonObject, agent: str, pointer: str) -> JsonObject:
    role = item.get("role")
    parts = _content_parts(item.get("content"), f"{pointer}/content")
    match role:
        case "user":
            return _event("user", "user", parts)
        case "system" | "developer":
            event = _event("user", "user", parts)
            event["custom_metadata"] = {"source_role": role}
            return event
        case "assistant":
            return _event(agent, "model", _with_item(parts, item, "phase"))
        case _:
            raise InvalidEventError(
                "role must be user, assistant, system or developer", pointer=f"{pointer}/role"
            )


def _with_item(parts: list[Json], item: JsonObject, *keys: str) -> list[Json]:
    """Keep with the first part what the item is known by."""
    known = {key: item[key] for key in ("id", *keys) if isinstance(item.get(key), str)}
    first = parts[0] if parts else None
    # A blank text is not sent, and nothing else should have to know why it is there.
    if known and isinstance(first, dict) and str(first.get("text", "-")).strip():
        first["openai_item"] = known
    return parts


def _content_parts(content: Json, pointer: str) -> list[Json]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"text": content}]
    if isinstance(content, list):
        return [_content_part(part, f"{pointer}/{i}") for i, part in enumerate(content)]
    raise InvalidEventError("content must be a string or a list of parts", pointer=pointer)


def _content_part(value: Json, pointer: str) -> JsonObject:
    if isinstance(value, str):
        return {"text": value}
    part = read_object(value, pointer)
    kind = read_string(part.get("type"), f"{pointer}/type")
    match kind:
        case "input_text" | "output_text" | "text":
            return {"text": read_string(part.get("text"), f"{pointer}/text")}
        case "refusal":
            text = read_string(part.get("refusal"), f"{pointer}/refusal")
            return _opaque(kind, part, text=text)
        case "input_image" | "computer_screenshot":
            return _image_part(part, pointer)
        case "input_file":
            return _file_part(part, pointer)
        case _:
            return _opaque(kind, part, text=string_or_empty(part.get("transcript")))


def _image_part(part: JsonObject, pointer: str) -> JsonObject:
    if part.get("image_url") is None:
        # Uploaded there: the id means nothing to anyone else.
        return _opaque("input_image", part, text="[image]")
    return image_of(read_string(part["image_url"], f"{pointer}/image_url"), part, pointer)


def _file_part(part: JsonObject, pointer: str) -> JsonObject:
    name = string_or_empty(part.get("filename"))
    named: JsonObject = {"display_name": name} if name else {}
    if part.get("file_url") is not None:
        url = read_string(part["file_url"], f"{pointer}/file_url")
        return {"file_data": {"file_uri": url, "mime_type": mime_type_of(url) or PDF, **named}}
    data = part.get("file_data")
    if not isinstance(data, str):
        return _opaque("input_file", part, text=f"[file {name}]" if name else "[file]")
    mime_type, encoded = split_data_url(data) or (mime_type_of(name) or PDF, data)
    return {"inline_data": {"mime_type": mime_type, "data": encoded, **named}}


def _opaque(kind: str, block: JsonObject, *, text: str = "") -> JsonObject:
    """Keep what no other provider knows; markers of caching are not part of it."""
    kept = {key: value for key, value in block.items() if key != "prompt_cache_breakpoint"}
    return {
        "opaque": {
            "provider": _PROVIDER,
            "type": kind,
            "raw": canonical_json(kept),
            "text": text,
        }
    }


def _told(item: JsonObject, kind: str) -> str:
    """Return what other providers read of what ran at this one; of its reasoning nothing."""
    if kind not in VERBATIM_TYPES or kind in ("reasoning", "compaction", *_INPUT_ITEMS):
        return ""
    keys = ("action", "queries", "name", "arguments", "code", "output", "outputs", "error")
    said = {key: item[key] for key in keys if item.get(key) is not None}
    return f"[{kind.replace('_', ' ')}] {canonical_json(said)}" if said else ""


def _call_part(item: JsonObject, kind: str, pointer: str) -> JsonObject:
    """Return the call; of kinds without a name the kind is its name, and all they say its input."""
    call_id = item.get("call_id")
    if call_id is None and kind == "local_shell_call":
        call_id = item.get("id")
    if kind == "function_call":
        arguments = item.get("arguments")
        args = {} if arguments is None else arguments
    elif kind == _CUSTOM:
        args = {"input": read_string(item.get("input"), f"{pointer}/input")}
    else:
        about = ("call_id", "id", "status", "type")
        args = {key: value for key, value in item.items() if key not in about}
    is_named = kind in ("function_call", _CUSTOM)
    name = item.get("name") if is_named else kind.removesuffix("_call")
    call: JsonObject = {"name": read_string(name, f"{pointer}/name"), "args": args}
    if call_id is not None:
        call["id"] = read_string(call_id, f"{pointer}/call_id")
    known = ("namespace", "type") if kind == _CUSTOM else ("namespace",)
    (part,) = _with_item([{"function_call": call}], item, *known if is_named else ())
    assert isinstance(part, dict)
    return part


def _response_part(item: JsonObject, kind: str, pointer: str) -> JsonObject:
    texts, media = _output(item.get("output"), f"{pointer}/output")
    response: JsonObject = {
        "name": string_or_empty(item.get("name")),
        "response": lines_of(texts),
    }
    call_id = item.get("call_id")
    if call_id is None and kind == "local_shell_call_output":
        call_id = item.get("id")
    if call_id is not None:
        response["id"] = read_string(call_id, f"{pointer}/call_id")
    if media:
        response["parts"] = media
    if item.get("status") == "failed":
        response["is_error"] = True
    part: JsonObject = {"function_response": response}
    if kind == OUTPUT_TYPES[_CUSTOM]:
        part["openai_item"] = {"type": kind}
    return part


def _output(value: Json, pointer: str) -> tuple[list[str], list[Json]]:
    """Return the texts and the media of a result; parts of other kinds are told as JSON."""
    if value is None:
        return [], []
    if isinstance(value, str):
        return [value], []
    texts: list[str] = []
    media: list[Json] = []
    for index, item in enumerate(value if isinstance(value, list) else [value]):
        is_part = isinstance(item, dict) and isinstance(item.get("type"), str)
        at = f"{pointer}/{index}" if isinstance(value, list) else pointer
        part = _content_part(item, at) if is_part else {}
        text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
        elif "inline_data" in part or "file_data" in part:
            media.append(part)
        else:
            texts.append(item if isinstance(item, str) else canonical_json(item))
    return texts, media


# --------------------------------------------------------------------------------------- outbound

_OUTPUT_HEAD: Final = '{"type":"function_call_output",'
_CUSTOM_OUTPUT_HEAD: Final = '{"type":"custom_tool_call_output",'


@dataclass(frozen=True, slots=True)
class OpenAIResponses:
    """The Responses format. See the module for what has no place in it."""

    name: str = "openai_responses"
    history_field: str = "input"
    merges_turns: bool = False
    needs_alternation: bool = False
    refuses_blank_text: bool = True
    #: Reasoning without the item that it led to is refused.
    refuses_thought_last: bool = True
    needs_ids: bool = True
    limited_media: None = None

    def emit_id(self, call_id: str) -> str:
        return fit_identifier(call_id, limit=MAX_CALL_ID_LENGTH, any_character=True)

    def says(self, part: Part, role: Role) -> bool:
        match part:
            case FunctionCall():
                return role == "model"
            case FunctionResponse():
                return role == "user"
            case Opaque():
                told = not part.thought and bool(part.text.strip())
                return told or _verbatim(part, role) is not None
            case Text() if part.thought:
                return role == "model" and _is_signed(part)
            case _ if part.thought:
                return False
            case Text():
                return bool(part.text.strip())
            case InlineData() | FileData():
                return role == "user" and is_image_or_document(part)
            case ExecutableCode() | CodeExecutionResult():
                return True

    def keeps(self, part: Opaque, role: Role) -> bool:
        return part.provider != _PROVIDER or _verbatim(part, role) is not None

    def render_part(self, part: Part, role: Role) -> str:
        """Return the part's JSON text: an item, or of what the user said a piece of a message.

        Total: what the format does not say is rendered too.
        """
        match part:
            case Text():
                return _reasoning_item(part) if part.thought else _said(part, part.text, role)
            case FunctionCall():
                return _call_item(part)
            case FunctionResponse():
                return _response_item(part)
            case InlineData() | FileData():
                return _media_fragment(part)
            case ExecutableCode() | CodeExecutionResult():
                return _said(part, code_words(part), role)
            case Opaque():
                return _verbatim(part, role) or _said(part, part.text, role)

    def render_tools(self, tools: Sequence[str]) -> str:
        """Return the tools field; both our shape and the provider's are accepted.

        Raises:
            InvalidInputError: a tool is no object with a name.
        """
        return json_array(_tool(text, i) for i, text in enumerate(tools)) if tools else ""

    def takes_marker(self, part: Part, role: Role) -> bool:
        is_piece = isinstance(part, Text | InlineData | FileData)
        return is_piece and role == "user" and self.says(part, role)

    def with_marker(self, text: str, ttl: str) -> str:
        del ttl  # There is one, and it goes without saying.
        return f'{text[:-1]},"prompt_cache_breakpoint":{{"mode":"explicit"}}}}'

    def render_request(
        self,
        contents: Sequence[RenderedContent],
        *,
        system: str,
        tools: str,
        model: str,
        marks: HeadMarks = NO_MARKS,
    ) -> dict[str, str]:
        """Return ``input``, ``instructions`` and ``tools``.

        What the format does not say is left out, should it have been rendered.
        """
        body = {"instructions": json_string(system)} if system else {}
        body["input"] = json_array(_items(self, contents, model))
        if tools not in ("", "[]"):
            body["tools"] = tools
        if marks.key:
            body["prompt_cache_key"] = json_string(marks.key)
        return body


OPENAI_RESPONSES: Final = OpenAIResponses()


def _known(part: Part) -> JsonObject:
    """Return what the part's item was known by."""
    return read_extra(part.extra, "openai_item")


def _known_fields(part: Part, kind: str, *keys: str) -> list[tuple[str, str]]:
    """Return what is sent of it: the id, if it is one of the kind, and the given keys."""
    known = _known(part)
    item_id = known.get("id")
    fits = isinstance(item_id, str) and item_id.startswith(ID_PREFIXES.get(kind, ""))
    wanted = ("id", *keys) if fits else keys
    return [(key, json_string(text)) for key in wanted if isinstance(text := known.get(key), str)]


def _said(part: Part, text: str, role: Role) -> str:
    """Return a text: an assistant message of its own, or a piece of the user's."""
    if role == "user":
        return f'{{"type":"input_text","text":{json_string(text)}}}'
    known = _known_fields(part, "message", "phase")
    content = json_string(text)
    if any(key == "id" for key, _ in known):
        # Only what the provider made has an id, and only this shape of it.
        content = f'[{{"type":"output_text","text":{content},"annotations":[]}}]'
        known.append(("status", '"completed"'))
    return _assistant_message(known, content)


def _assistant_message(known: list[tuple[str, str]], content: str) -> str:
    head = [("type", '"message"'), ("role", '"assistant"')]
    return json_object([*head, *known, ("content", content)])


def _is_signed(part: Text) -> bool:
    return bool(part.signature) and part.signed_by == _PROVIDER


def _reasoning_item(part: Text) -> str:
    """Return reasoning that was kept as a thought: its summary and its proof."""
    summary = f'[{{"type":"summary_text","text":{json_string(part.text)}}}]' if part.text else "[]"
    return json_object(
        [
            ("type", '"reasoning"'),
            *_known_fields(part, "reasoning"),
            ("summary", summary),
            ("encrypted_content", json_string(part.signature or "")),
        ]
    )


def _verbatim(part: Opaque, role: Role) -> str | None:
    """Return the text of an item or part of this API, if it is one and may stand in this role."""
    if part.provider != _PROVIDER:
        return None
    if part.type in ("input_file", "input_image", "refusal"):
        return _verbatim_part(part, role)
    if part.type not in VERBATIM_TYPES:
        return None
    raw = json.loads(part.raw)
    if not isinstance(raw, dict):
        return None
    # Answers spell out what they lack, requests may not.
    item = {key: value for key, value in raw.items() if value is not None}
    if item.get("type", "item_reference") != part.type:
        return None
    if part.type == "reasoning" and not (
        part.thought and role == "model" and item.get("encrypted_content")
    ):
        # By its id alone it can only be found where responses are stored.
        return None
    if not is_item_accepted(item):
        return None
    return part.raw if len(item) == len(raw) else canonical_json(item)


def _verbatim_part(part: Opaque, role: Role) -> str | None:
    block = json.loads(part.raw)
    if not isinstance(block, dict) or block.get("type") != part.type:
        return None
    if not is_part_accepted(block, "assistant" if role == "model" else "user"):
        return None
    if part.type == "input_image":
        return canonical_json({"detail": "auto", **block})
    if part.type == "input_file":
        return part.raw
    known = _known_fields(part, "message", "phase")
    if not any(key == "id" for key, _ in known):
        # Without an id an assistant message is text.
        return None
    return _assistant_message([*known, ("status", '"completed"')], f"[{part.raw}]")


def _call_item(call: FunctionCall) -> str:
    name = fit_identifier(call.name, limit=MAX_NAME_LENGTH)
    kind, said = "function_call", ("arguments", json_string(_arguments(call)))
    custom_input = _custom_input(call)
    if custom_input is not None:
        kind, said = _CUSTOM, ("input", json_string(custom_input))
    return json_object(
        [
            ("type", f'"{kind}"'),
            *_known_fields(call, kind, "namespace"),
            ("call_id", json_string(call.id or "")),
            ("name", json_string(name)),
            said,
        ]
    )


def _arguments(call: FunctionCall) -> str:
    sent = call.args_text
    return sent if sent is not None and is_json(sent) else call.args


def _custom_input(call: FunctionCall) -> str | None:
    """Return the text that a custom tool was given; None when the call is a function's."""
    if _known(call).get("type") != _CUSTOM:
        return None
    args = json.loads(call.args)
    text = args.get("input")
    return text if len(args) == 1 and isinstance(text, str) else None


def _response_item(response: FunctionResponse) -> str:
    """Return the result as its call most probably was; :func:`_items` knows better."""
    is_custom = _known(response).get("type") == OUTPUT_TYPES[_CUSTOM]
    head = _CUSTOM_OUTPUT_HEAD if is_custom else _OUTPUT_HEAD
    return (
        f'{head}"call_id":{json_string(response.id or "")},"output":{_output_fragment(response)}}}'
    )


def _output_fragment(response: FunctionResponse) -> str:
    sent = response.response_text
    text = response.response if sent is None else sent
    if response.is_error:
        text = f'{{"error":{json_string(text) if sent is not None else text}}}'
    if not response.media:
        return json_string(text)
    said = f'{{"type":"input_text","text":{json_string(text)}}}'
    parts = [said] if text.strip() and text != "{}" else []
    return json_array([*parts, *map(_media_fragment, response.media)])


def _media_fragment(part: InlineData | FileData) -> str:
    """Return the piece of a message that carries the media, or tells that it is missing."""
    mime_type = bare_mime_type(part)
    if not is_image_or_document(part):
        text = json_string(left_out_words(part, mime_type))
        return f'{{"type":"input_text","text":{text}}}'
    if isinstance(part, FileData):
        if mime_type == PDF:
            return f'{{"type":"input_file","file_url":{json_string(part.file_uri)}}}'
        return _image_fragment(part.file_uri, part)
    if mime_type.startswith("text/"):
        text = json_string(clean_text(decode_text(part.data) or ""))
        return f'{{"type":"input_text","text":{text}}}'
    url = f"data:{mime_type};base64,{part.data}"
    if mime_type == PDF:
        name = json_string(part.display_name or "document.pdf")
        return f'{{"type":"input_file","filename":{name},"file_data":{json_string(url)}}}'
    return _image_fragment(url, part)


def _image_fragment(url: str, part: InlineData | FileData) -> str:
    detail = image_detail(part) or "auto"
    return f'{{"type":"input_image","image_url":{json_string(url)},"detail":"{detail}"}}'


def _tool(text: str, index: int) -> str:
    tool = read_tool(text, index)
    # A tool of the provider's own is named by its type.
    if tool.get("type") is not None and not isinstance(tool.get("function"), dict):
        return text
    named = named_and_described(tool, index)
    # Strict unless it says otherwise, and few schemas are written for that.
    strict = {"parameters": openai_parameters_of(tool), "strict": tool.get("strict") is True}
    return canonical_json({"type": "function", **named, **strict})


# Assembling. An item is made of the fragments as they are. What is looked at beside a fragment is
# its own whole turn, which a delta knows as well, and the calls that the same request holds.


def _items(wire: OpenAIResponses, contents: Sequence[RenderedContent], model: str) -> Iterator[str]:
    custom_by_call_id: dict[str, bool] = {}
    for one in contents:
        parts = [part for part in one.parts if wire.says(part.placed.part, one.role)]
        if one.role == "model":
            reasoned = _reasoned(wire, one)
            for part in parts:
                call = part.placed.part
                if isinstance(call, FunctionCall):
                    custom_by_call_id[call.id or ""] = _custom_input(call) is not None
                is_linked = id(part.placed) in reasoned
                yield part.text if is_linked else _without_link(wire, part, model)
            continue
        said: list[str] = []
        for part in parts:
            if _is_piece(part):
                said.append(part.text)
                continue
            yield from _user_message(said)
            said = []
            yield _fitting(part, custom_by_call_id)
        yield from _user_message(said)


def _reasoned(wire: OpenAIResponses, turn: RenderedContent) -> set[int]:
    """Return which parts of the turn, by identity, have its reasoning in front of them.

    Told from the whole turn, of which a delta holds the rest.
    """
    placed = iter(turn.content.parts)
    for one in placed:
        if is_thinking(one.part) and wire.says(one.part, "model"):
            return {id(one), *map(id, placed)}
    return set()


def _without_link(wire: OpenAIResponses, rendered: RenderedPart, model: str) -> str:
    """Return an item without the id under which the provider would look for its reasoning."""
    part = rendered.placed.part
    if "id" in _known(part):
        return wire.render_part(replace(part, extra=_without_id(part.extra)), "model")
    if not isinstance(part, Opaque) or _verbatim(part, "model") is None or not reasons(model):
        return rendered.text
    item = json.loads(rendered.text)
    if part.type not in SERVER_TOOL_TYPES or "id" not in item:
        return rendered.text
    # Codex sends searches and the like without.
    del item["id"]
    return canonical_json(item)


def _without_id(extra: str | None) -> str | None:
    if extra is None:
        return None
    fields = json.loads(extra)
    known = fields.get("openai_item")
    if isinstance(known, dict):
        fields["openai_item"] = {key: value for key, value in known.items() if key != "id"}
    return canonical_json(fields)


def _is_piece(rendered: RenderedPart) -> bool:
    """Tell whether a part of the user's is a piece of a message, not an item of its own."""
    part = rendered.placed.part
    if isinstance(part, FunctionResponse):
        return False
    if isinstance(part, Opaque) and part.type in VERBATIM_TYPES:
        return _verbatim(part, "user") is None
    return True


def _fitting(rendered: RenderedPart, custom_by_call_id: dict[str, bool]) -> str:
    """Return a result as the kind of item that answers its call."""
    part = rendered.placed.part
    if not isinstance(part, FunctionResponse):
        return rendered.text
    is_custom = custom_by_call_id.get(part.id or "")
    if is_custom is None:
        return rendered.text
    _, _, rest = rendered.text.partition(",")
    return (_CUSTOM_OUTPUT_HEAD if is_custom else _OUTPUT_HEAD) + rest


def _user_message(fragments: Iterable[str]) -> Iterator[str]:
    content = json_array(fragments)
    if content != "[]":
        yield f'{{"type":"message","role":"user","content":{content}}}'
