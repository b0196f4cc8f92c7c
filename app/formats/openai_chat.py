"""OpenAI Chat Completions, both ways: messages to native events, contents to a request.

In: one message gives one event. A tool message answers by id alone, so the response's name is empty
when the message does not say it; the log finds the call. System and developer messages in the
conversation stay where they are, as events of the user that say so in ``custom_metadata``. What
frameworks write in this shape is read too: AutoGen's ``tool_responses``, SWE-agent's
``tool_call_ids``, Inspect's calls with the function's name for a function, and its images.

Out, where the provider has no place for what we have:

    reasoning                  left out: this API does not take it back
    media of a tool result     a user message after the results: a tool message is text only
    a failed tool result       its content is ``{"error": ...}``: there is no flag for it
    files that are text        a text part; PDF is a ``file``; other files are left out
    model-made media           left out: an assistant message is text only
    code run at the provider   text with the code or its output in a fence

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
)
from app.core.errors import InvalidEventError
from app.formats.fields import (
    Notes,
    json_array,
    lines_of,
    read_object,
    read_string,
    refuse_deep,
    refuse_members,
    string_or_empty,
)
from app.formats.identifiers import fit_identifier
from app.formats.media import (
    IMAGE_TYPES,
    PDF,
    bare_mime_type,
    decode_text,
    is_web_url,
    mime_type_of,
    split_data_url,
)
from app.formats.openai_chat_rules import (
    AUDIO_FORMATS,
    MAX_CALL_ID_LENGTH,
    MAX_NAME_LENGTH,
    is_json,
    is_part_accepted,
    validate,
)
from app.formats.openai_images import image_detail, image_of
from app.formats.tools import openai_parameters_of, read_tool, tool_name
from app.formats.unread import Kinds, members, unread
from app.formats.wording import code_words, left_out_words, said

__all__ = ["OPENAI_CHAT", "OpenAIChat", "convert_item", "validate"]

JsonObject: TypeAlias = dict[str, Json]

_PROVIDER: Final = "openai"

# ---------------------------------------------------------------------------------------- inbound

#: What is read of parts, and of messages; where a cache ends is decided for each request.
_READ_PARTS: Final = Kinds(
    {
        **dict.fromkeys(
            ("input_text", "output_text", "text"),
            members("type", "text", "cache_control", "prompt_cache_breakpoint"),
        ),
        **dict.fromkeys(
            ("image", "image_url"),
            members(
                "type",
                "detail",
                "cache_control",
                "prompt_cache_breakpoint",
                image=members("url", "detail"),
                image_url=members("url", "detail"),
            ),
        ),
        "input_audio": members(
            "type", "prompt_cache_breakpoint", input_audio=members("data", "format")
        ),
        "file": members(
            "type", "prompt_cache_breakpoint", file=members("file_data", "file_id", "filename")
        ),
        "refusal": members("type", "refusal"),
    }
)
_READ_CALL: Final = members(
    "arguments",
    "id",
    "index",
    "type",
    custom=members("input", "name"),
    function=members("arguments", "name"),
)
_READ_PROMPT: Final = members("id", "name", "role", content=_READ_PARTS)
_READ_RESULT: Final = members(
    "error",
    "function",
    "id",
    "name",
    "role",
    "tool_call_id",
    "tool_call_ids",
    "type",
    content=_READ_PARTS,
    tool_responses=members("content", "error", "function", "name", "role", "tool_call_id", "type"),
)
_READ: Final = Kinds(
    {
        "assistant": members(
            "audio",
            "id",
            "name",
            "reasoning",
            "reasoning_content",
            "refusal",
            "role",
            content=_READ_PARTS,
            function_call=members("arguments", "name"),
            tool_calls=_READ_CALL,
        ),
        **dict.fromkeys(("developer", "system", "user"), _READ_PROMPT),
        **dict.fromkeys(("function", "tool"), _READ_RESULT),
    },
    tag="role",
)


def convert_item(item: Json, *, agent: str, notes: Notes | None = None) -> list[JsonObject]:
    """Return the native events of one message.

    Args:
        item: the message, as parsed JSON.
        agent: the author of what the model said and of its tools' results.
        notes: collects what of the item is not read.

    Raises:
        InvalidEventError: the message has no shape that this API knows; the pointer is relative to
            the item.
    """
    refuse_deep(item)
    message = read_object(item, "")
    refuse_members(message, ("parts",), "a Chat Completions message")
    if notes is not None:
        notes.extend(unread(message, _READ))
    role = message.get("role")
    match role:
        case "user":
            return [_event(message, author="user", role="user", parts=_content_parts(message))]
        case "system" | "developer":
            event = _event(message, author="user", role="user", parts=_content_parts(message))
            return [_with_metadata(event, "source_role", role)]
        case "assistant":
            return [_assistant_event(message, agent)]
        case "tool" | "function":
            return [_event(message, author=agent, role="user", parts=_response_parts(message))]
        case _:
            raise InvalidEventError(
                "role must be user, assistant, tool, function, system or developer",
                pointer="/role",
            )


def _event(message: JsonObject, *, author: str, role: str, parts: list[Json]) -> JsonObject:
    event: JsonObject = {"author": author, "content": {"role": role, "parts": parts}}
    name = message.get("name")
    if isinstance(name, str) and name and message.get("role") not in ("tool", "function"):
        return _with_metadata(event, "source_name", name)
    return event


def _with_metadata(event: JsonObject, key: str, value: str) -> JsonObject:
    metadata = event.setdefault("custom_metadata", {})
    assert isinstance(metadata, dict)
    metadata[key] = value
    return event


def _assistant_event(message: JsonObject, agent: str) -> JsonObject:
    parts = _reasoning_parts(message)
    parts += _content_parts(message)
    refusal = _optional_string(message, "refusal")
    if refusal:
        parts.append(_refusal_part(refusal))
    audio = message.get("audio")
    if isinstance(audio, dict):
        parts.append(_opaque("audio", audio, text=string_or_empty(audio.get("transcript"))))
    parts += _call_parts(message)
    event = _event(message, author=agent, role="model", parts=parts)
    response_id = _optional_string(message, "id")
    if response_id:
        event["response_id"] = response_id
    return event


def _reasoning_parts(message: JsonObject) -> list[Json]:
    # DeepSeek and Kimi call it reasoning_content, OpenRouter and vLLM reasoning.
    for key in ("reasoning_content", "reasoning"):
        text = message.get(key)
        if isinstance(text, str) and text:
            return [{"text": text, "thought": True}]
    return []


def _content_parts(message: JsonObject) -> list[Json]:
    content = message.get("content")
    if content is None:
        return []
    if isinstance(content, str):
        return [{"text": content}]
    if isinstance(content, dict):
        return [_content_part(content, "/content")] if content else []
    if isinstance(content, list):
        return [_content_part(part, f"/content/{i}") for i, part in enumerate(content)]
    raise InvalidEventError("content must be a string, a list of parts or null", pointer="/content")


def _content_part(value: Json, pointer: str) -> JsonObject:
    if isinstance(value, str):
        return {"text": value}
    part = read_object(value, pointer)
    kind = read_string(part.get("type"), f"{pointer}/type")
    match kind:
        case "text" | "input_text" | "output_text":
            return {"text": read_string(part.get("text"), f"{pointer}/text")}
        case "image_url" | "image":
            return _image_part(part, kind, pointer)
        case "input_audio":
            return _audio_part(part, pointer)
        case "file":
            return _file_part(part, pointer)
        case "refusal":
            return _refusal_part(read_string(part.get("refusal"), f"{pointer}/refusal"))
        case _:
            return _opaque(kind, part)


def _image_part(part: JsonObject, kind: str, pointer: str) -> JsonObject:
    image = part.get(kind)
    if not isinstance(image, dict):
        return image_of(read_string(image, f"{pointer}/{kind}"), part, pointer)
    url = read_string(image.get("url"), f"{pointer}/{kind}")
    return image_of(url, image, f"{pointer}/{kind}")


def _audio_part(part: JsonObject, pointer: str) -> JsonObject:
    audio = read_object(part.get("input_audio"), f"{pointer}/input_audio")
    data = read_string(audio.get("data"), f"{pointer}/input_audio/data")
    audio_format = read_string(audio.get("format"), f"{pointer}/input_audio/format")
    return {
        "inline_data": {
            "mime_type": "audio/mpeg" if audio_format == "mp3" else f"audio/{audio_format}",
            "data": data,
        }
    }


def _file_part(part: JsonObject, pointer: str) -> JsonObject:
    file = read_object(part.get("file"), f"{pointer}/file")
    name = string_or_empty(file.get("filename"))
    data = file.get("file_data")
    if not isinstance(data, str):
        # Uploaded there: the id means nothing to anyone else.
        return _opaque("file", part, text=f"[file {name}]" if name else "")
    mime_type, encoded = split_data_url(data) or (mime_type_of(name) or PDF, data)
    inline: JsonObject = {"mime_type": mime_type, "data": encoded}
    if name:
        inline["display_name"] = name
    return {"inline_data": inline}


def _refusal_part(text: str) -> JsonObject:
    return _opaque("refusal", {"type": "refusal", "refusal": text}, text=text)


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


def _call_parts(message: JsonObject) -> list[Json]:
    tool_calls = message.get("tool_calls")
    if tool_calls is not None and not isinstance(tool_calls, list):
        raise InvalidEventError("tool_calls must be a list", pointer="/tool_calls")
    parts: list[Json] = [
        _call_part(read_object(call, f"/tool_calls/{i}"), f"/tool_calls/{i}")
        for i, call in enumerate(tool_calls or [])
    ]
    legacy = message.get("function_call")
    if legacy is not None:
        function = read_object(legacy, "/function_call")
        parts.append(_function_part(function, "/function_call", call_id=None))
    return parts


def _call_part(call: JsonObject, pointer: str) -> JsonObject:
    call_id = _optional_string(call, "id", pointer)
    custom = call.get("custom")
    if call.get("type") == "custom" and isinstance(custom, dict):
        name = read_string(custom.get("name"), f"{pointer}/custom/name")
        arguments: JsonObject = {"input": custom.get("input")}
        return {"function_call": _identified({"name": name, "args": arguments}, call_id)}
    if isinstance(call.get("function"), str):
        named: JsonObject = {"name": call["function"], "arguments": call.get("arguments")}
        return _function_part(named, pointer, call_id=call_id)
    function = read_object(call.get("function"), f"{pointer}/function")
    return _function_part(function, f"{pointer}/function", call_id=call_id)


def _function_part(function: JsonObject, pointer: str, *, call_id: str | None) -> JsonObject:
    name = read_string(function.get("name"), f"{pointer}/name")
    arguments = function.get("arguments")
    args = {} if arguments is None else arguments
    return {"function_call": _identified({"name": name, "args": args}, call_id)}


def _identified(value: JsonObject, call_id: str | None) -> JsonObject:
    return value if call_id is None else {"id": call_id, **value}


def _response_parts(message: JsonObject) -> list[Json]:
    """Return the results of a tool message: one, but for frameworks that put several into one."""
    responses = message.get("tool_responses")
    if isinstance(responses, list) and responses:
        return [
            _response_part(read_object(one, f"/tool_responses/{i}"), f"/tool_responses/{i}")
            for i, one in enumerate(responses)
        ]
    ids = message.get("tool_call_ids")
    if isinstance(ids, list) and ids and message.get("tool_call_id") is None:
        return [_response_part({**message, "tool_call_id": call_id}) for call_id in ids]
    return [_response_part(message)]


def _response_part(message: JsonObject, pointer: str = "") -> JsonObject:
    function = string_or_empty(message.get("function"))
    texts: list[str] = []
    media: list[Json] = []
    for part in _content_parts(message):
        assert isinstance(part, dict)
        text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
        elif "opaque" in part:
            texts.append(canonical_json(part["opaque"]))
        else:
            media.append(part)
    response: JsonObject = {
        "name": _optional_string(message, "name", pointer) or function,
        "response": lines_of(texts),
    }
    if media:
        response["parts"] = media
    if message.get("error"):
        response["is_error"] = True
    call_id = _optional_string(message, "tool_call_id", pointer)
    return {"function_response": _identified(response, call_id)}


def _optional_string(holder: JsonObject, key: str, pointer: str = "") -> str | None:
    value = holder.get(key)
    return None if value is None else read_string(value, f"{pointer}/{key}")


# --------------------------------------------------------------------------------------- outbound

_TEXT_HEAD: Final = '{"type":"text","text":'
_BREAKPOINT: Final = '"prompt_cache_breakpoint":{"mode":"explicit"}'
#: A text cannot end so: its quotes are escaped.
_MARKED_END: Final = f",{_BREAKPOINT}}}"


@dataclass(frozen=True, slots=True)
class OpenAIChat:
    """The Chat Completions format. See the module for what has no place in it."""

    name: str = "openai_chat"
    history_field: str = "messages"
    merges_turns: bool = False
    needs_alternation: bool = False
    #: The API itself is lenient, several compatible ones are not (PROVIDERS.md §9.6).
    refuses_blank_text: bool = True
    refuses_thought_last: bool = False
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
            case _ if part.thought:
                return False
            case Text():
                return bool(part.text.strip())
            case Opaque():
                return _is_verbatim(part, role) or bool(part.text.strip())
            case InlineData() | FileData():
                return role == "user" and _is_taken(part)
            case ExecutableCode() | CodeExecutionResult():
                return True

    def keeps(self, part: Opaque, role: Role) -> bool:
        return part.provider != _PROVIDER or _is_verbatim(part, role)

    def render_part(self, part: Part, role: Role) -> str:
        """Return the part's JSON text. Total: what the format does not say is rendered too."""
        match part:
            case Text():
                return _text_fragment(part.text)
            case FunctionCall():
                return _call_fragment(part)
            case FunctionResponse():
                return _response_fragment(part)
            case InlineData() | FileData():
                return _media_fragment(part)
            case ExecutableCode() | CodeExecutionResult():
                return _text_fragment(code_words(part))
            case Opaque():
                return part.raw if _is_verbatim(part, role) else _text_fragment(part.text)

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
        return f"{text[:-1]},{_BREAKPOINT}}}"

    def render_request(
        self,
        contents: Sequence[RenderedContent],
        *,
        system: str,
        tools: str,
        model: str,
        marks: HeadMarks = NO_MARKS,
    ) -> dict[str, str]:
        """Return ``messages`` and ``tools``. The system text is the first message.

        What the format does not say is left out, should it have been rendered.
        """
        del model  # Nothing here depends on it.
        messages = [_system(system, is_marked=marks.system is not None)] if system else []
        messages += _messages([said(self, content) for content in contents])
        body = {"messages": json_array(messages)}
        if tools not in ("", "[]"):
            body["tools"] = tools
        if marks.key:
            body["prompt_cache_key"] = json_string(marks.key)
        return body


OPENAI_CHAT: Final = OpenAIChat()


def _system(text: str, *, is_marked: bool) -> str:
    if not is_marked:
        return _message("system", json_string(text))
    return _message("system", f"[{_TEXT_HEAD}{json_string(text)},{_BREAKPOINT}}}]")


def _text_fragment(text: str) -> str:
    return f"{_TEXT_HEAD}{json_string(text)}}}"


def _is_verbatim(part: Opaque, role: Role) -> bool:
    """Tell whether the block is one of this API's and may stand in this role."""
    if part.provider != _PROVIDER or part.type != ("refusal" if role == "model" else "file"):
        return False
    block = json.loads(part.raw)
    is_named = isinstance(block, dict) and block.get("type") == part.type
    return is_named and is_part_accepted(block, "assistant" if role == "model" else "user")


def _call_fragment(call: FunctionCall) -> str:
    sent = call.args_text
    arguments = sent if sent is not None and is_json(sent) else call.args
    name = fit_identifier(call.name, limit=MAX_NAME_LENGTH)
    return (
        f'{{"id":{json_string(call.id or "")},"type":"function","function":'
        f'{{"name":{json_string(name)},"arguments":{json_string(arguments)}}}}}'
    )


def _response_fragment(response: FunctionResponse) -> str:
    """Return a tool message; with media an array of it and the parts of the user message after."""
    sent = response.response_text
    text = response.response if sent is None else sent
    if response.is_error:
        text = f'{{"error":{json_string(text) if sent is not None else text}}}'
    message = (
        f'{{"role":"tool","tool_call_id":{json_string(response.id or "")},'
        f'"content":{json_string(text)}}}'
    )
    attached = _attached_fragments(response)
    return f"[{message}{_tail(attached)}" if attached else message


def _attached_fragments(response: FunctionResponse) -> tuple[str, ...]:
    if not response.media:
        return ()
    heading = _text_fragment(f"[attached to the result of {response.name or 'the tool call'}]")
    return (heading, *map(_media_fragment, response.media))


def _tail(fragments: Iterable[str]) -> str:
    return "," + ",".join(fragments) + "]"


def _is_taken(part: InlineData | FileData) -> bool:
    """Tell whether a user message has a place for the media."""
    mime_type = bare_mime_type(part)
    if isinstance(part, FileData):
        return is_web_url(part.file_uri) and mime_type.startswith("image/")
    if not part.data:
        return False
    if mime_type.startswith("text/"):
        return bool((decode_text(part.data) or "").strip())
    return mime_type in IMAGE_TYPES or mime_type in AUDIO_FORMATS or mime_type == PDF


def _media_fragment(part: InlineData | FileData) -> str:
    """Return the part of a user message that carries the media, or tells that it is missing."""
    if not _is_taken(part):
        return _text_fragment(left_out_words(part))
    if isinstance(part, FileData):
        return _image_fragment(part.file_uri, part)
    mime_type = bare_mime_type(part)
    if mime_type in IMAGE_TYPES:
        return _image_fragment(f"data:{mime_type};base64,{part.data}", part)
    if mime_type in AUDIO_FORMATS:
        return (
            f'{{"type":"input_audio","input_audio":{{"data":{json_string(part.data)},'
            f'"format":{json_string(AUDIO_FORMATS[mime_type])}}}}}'
        )
    if mime_type == PDF:
        return (
            f'{{"type":"file","file":{{"file_data":'
            f"{json_string(f'data:{mime_type};base64,{part.data}')},"
            f'"filename":{json_string(part.display_name or "document.pdf")}}}}}'
        )
    return _text_fragment(clean_text(decode_text(part.data) or ""))


def _image_fragment(url: str, part: InlineData | FileData) -> str:
    detail = image_detail(part)
    said = f',"detail":"{detail}"' if detail else ""
    return f'{{"type":"image_url","image_url":{{"url":{json_string(url)}{said}}}}}'


def _tool(text: str, index: int) -> str:
    tool = read_tool(text, index)
    if isinstance(tool.get("function"), dict) or tool.get("type") in ("function", "custom"):
        return text
    tool_name(tool, index)
    kept = ("name", "description", "parameters", "strict")
    function = {key: tool[key] for key in kept if tool.get(key) is not None}
    if "parameters" in function:
        function["parameters"] = openai_parameters_of(tool)
    return canonical_json({"type": "function", "function": function})


# Assembling. A message is made of the fragments as they are; nothing here decodes or measures them.


def _messages(contents: Sequence[RenderedContent]) -> Iterator[str]:
    """Yield the messages, in order.

    What a content of results says besides them waits until the last result of the run: a message of
    any other role between two results of one assistant message is refused.
    """
    held: list[str] = []
    for group in _responses_joined(contents):
        if group[0].content.role == "model":
            yield from held
            held = []
            message = _assistant_message([part for one in group for part in one.parts])
            if message:
                yield message
            continue
        results = [part for part in group[0].parts if _is_result(part)]
        if not results:
            yield from held
            held = []
        attached: list[str] = []
        for result in results:
            message, fragments = _split_result(result)
            yield message
            attached += fragments
        others = attached + [part.text for part in group[0].parts if not _is_result(part)]
        if others:
            held.append(_message("user", _content(others)))
    yield from held


def _responses_joined(contents: Sequence[RenderedContent]) -> Iterator[list[RenderedContent]]:
    """Group neighbouring model contents of one response: parallel calls stay in one message."""
    group: list[RenderedContent] = []
    for one in contents:
        if group and not _is_same_response(group[-1], one):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _is_same_response(left: RenderedContent, right: RenderedContent) -> bool:
    return (
        left.content.role == right.content.role == "model"
        and left.content.response_seq is not None
        and left.content.response_seq == right.content.response_seq
    )


def _is_result(part: RenderedPart) -> bool:
    return isinstance(part.placed.part, FunctionResponse)


def _split_result(rendered: RenderedPart) -> tuple[str, tuple[str, ...]]:
    """Return the tool message and the parts that follow it in a user message."""
    response = rendered.placed.part
    assert isinstance(response, FunctionResponse)
    attached = _attached_fragments(response)
    if not attached:
        return rendered.text, ()
    return rendered.text[1 : -len(_tail(attached))], attached


def _assistant_message(parts: Sequence[RenderedPart]) -> str:
    said = [part.text for part in parts if not isinstance(part.placed.part, FunctionCall)]
    called = [part.text for part in parts if isinstance(part.placed.part, FunctionCall)]
    if not called:
        return _message("assistant", _content(said)) if said else ""
    content = _content(said) if said else "null"
    return f'{{"role":"assistant","content":{content},"tool_calls":[{",".join(called)}]}}'


def _message(role: str, content: str) -> str:
    return f'{{"role":"{role}","content":{content}}}'


def _content(fragments: Sequence[str]) -> str:
    """Return the content: a lone text as a string, which every compatible API takes."""
    is_text = len(fragments) == 1 and fragments[0].startswith(_TEXT_HEAD)
    if is_text and not fragments[0].endswith(_MARKED_END):
        return fragments[0][len(_TEXT_HEAD) : -1]
    return json_array(fragments)
