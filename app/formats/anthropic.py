"""Anthropic Messages, both ways: messages to native events, contents to a request.

In: a message gives one event, a user message that mixes tool results with words one per run of
either, because results are authored by the agent. Blocks of tools that run at the provider, and all
that we do not know, are kept verbatim as ``opaque``.

Out, where the provider has no place for what we have:

    thinking without its own signature   left out: nobody may sign for it
    media of other kinds than images,    left out; inside a tool result told in words
    PDF and text
    model-made media                     left out: an assistant message shows none
    code run at another provider         text with the code or its output in a fence

Checked against the SDK's request types (anthropic 2.14) on 2026-11-29.
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
from app.formats.anthropic_rules import (
    MAX_CALL_ID_LENGTH,
    MAX_NAME_LENGTH,
    MORE,
    is_block_accepted,
    says_more,
    validate,
)
from app.formats.fields import (
    Notes,
    json_array,
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
    UNKNOWN_IMAGE,
    bare_mime_type,
    decode_text,
    encode_text,
    is_image_or_document,
    mime_type_of,
)
from app.formats.tools import named_and_described, parameters_of, read_tool
from app.formats.unread import Kinds, Members, members, unread
from app.formats.wording import code_words, left_out_words, native_event, said, user_events

__all__ = ["ANTHROPIC", "Anthropic", "convert_item", "validate"]

JsonObject: TypeAlias = dict[str, Json]

_PROVIDER: Final = "anthropic"
#: The citation that must be sent back, and says all that it is about.
_LASTING_CITATION: Final = "web_search_result_location"
#: What a caller may not smuggle past the rules of pairing and signing.
_MODELLED: Final = frozenset({"text", "thinking", "tool_result", "tool_use"})

# ---------------------------------------------------------------------------------------- inbound

#: What is read of blocks, and of messages; where a cache ends is decided for each request.
_READ_IMAGE: Final = members(
    "cache_control", "type", source=members("data", "file_id", "media_type", "type", "url")
)
_READ_DOCUMENT: Final = members(
    "cache_control",
    "citations",
    "context",
    "title",
    "type",
    source=members("content", "data", "file_id", "media_type", "type", "url"),
)
_READ_BLOCKS: Final = Kinds(
    {
        "text": members(
            "cache_control",
            "text",
            "type",
            citations=Kinds(
                {_LASTING_CITATION: Members({}, keeps_others=True)}, keeps_others=False
            ),
        ),
        "thinking": members("signature", "thinking", "type"),
        "tool_use": members(
            "cache_control", "caller", "id", "input", "name", "toolset_name", "type"
        ),
        "tool_result": members(
            "cache_control",
            "is_error",
            "tool_use_id",
            "type",
            content=Kinds(
                {
                    "text": members("cache_control", "text", "type"),
                    "image": _READ_IMAGE,
                    "document": _READ_DOCUMENT,
                }
            ),
        ),
        "image": _READ_IMAGE,
        "document": _READ_DOCUMENT,
    }
)
_READ: Final = members(
    "id",
    "model",
    "role",
    # How the answer came about is no part of what was said.
    "container",
    "context_management",
    "stop_details",
    "stop_reason",
    "stop_sequence",
    "type",
    "usage",
    content=_READ_BLOCKS,
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
    refuse_members(message, ("parts", "tool_calls"), "a Messages message")
    if notes is not None:
        notes.extend(unread(message, _READ))
    match message.get("role"):
        case "user":
            return user_events(_parts(message), agent)
        case "assistant":
            return [_assistant_event(message, agent)]
        case "system":
            event = native_event("user", "user", _parts(message))
            event["custom_metadata"] = {"source_role": "system"}
            return [event]
        case _:
            raise InvalidEventError("role must be user, assistant or system", pointer="/role")


def _assistant_event(message: JsonObject, agent: str) -> JsonObject:
    event = native_event(agent, "model", _parts(message))
    response_id = message.get("id")
    if response_id is not None:
        event["response_id"] = read_string(response_id, "/id")
    model = message.get("model")
    if isinstance(model, str) and model:
        event["model_version"] = model
    return event


def _parts(message: JsonObject) -> list[Json]:
    content = message.get("content")
    if content is None:
        return []
    if isinstance(content, str):
        return [{"text": content}]
    if isinstance(content, dict):
        return [_part(content, "/content")]
    if isinstance(content, list):
        return [_part(block, f"/content/{i}") for i, block in enumerate(content)]
    raise InvalidEventError("content must be a string or a list of blocks", pointer="/content")


def _part(value: Json, pointer: str) -> JsonObject:
    if isinstance(value, str):
        return {"text": value}
    block = read_object(value, pointer)
    kind = read_string(block.get("type"), f"{pointer}/type")
    match kind:
        case "text":
            return _text_part(block, pointer)
        case "thinking":
            return _thinking_part(block, pointer)
        case "redacted_thinking":
            return {**_opaque(block, kind), "thought": True}
        case "tool_use":
            return _call_part(block, pointer)
        case "tool_result":
            return _response_part(block, pointer)
        case "image":
            return _image_part(block, pointer)
        case "document":
            return _document_part(block, pointer)
        case _:
            return _opaque(block, kind, text=_told(block))


def _text_part(block: JsonObject, pointer: str) -> JsonObject:
    text = read_string(block.get("text"), f"{pointer}/text")
    cited = block.get("citations")
    # Others name places in this request, which may not be there in a later one.
    kept: list[Json] = [
        one
        for one in (cited if isinstance(cited, list) else ())
        if isinstance(one, dict) and one.get("type") == _LASTING_CITATION
    ]
    return _with_block({"text": text}, {"citations": kept} if kept and text.strip() else {})


def _with_block(part: JsonObject, known: JsonObject) -> JsonObject:
    """Return a part with what its block says beside what the part does."""
    return {**part, "anthropic_block": known} if known else part


def _thinking_part(block: JsonObject, pointer: str) -> JsonObject:
    text = read_string(block.get("thinking", ""), f"{pointer}/thinking")
    part: JsonObject = {"text": text, "thought": True}
    signature = block.get("signature")
    if isinstance(signature, str) and signature:
        part["thought_signature"] = signature
        part["signature_provider"] = _PROVIDER
    return part


def _call_part(block: JsonObject, pointer: str) -> JsonObject:
    arguments = block.get("input")
    call: JsonObject = {
        "name": read_string(block.get("name"), f"{pointer}/name"),
        "args": {} if arguments is None else arguments,
    }
    call_id = block.get("id")
    if call_id is not None:
        call["id"] = read_string(call_id, f"{pointer}/id")
    known: JsonObject = {}
    caller = block.get("caller")
    # The model itself goes without saying.
    if caller is not None and read_object(caller, f"{pointer}/caller").get("type") != "direct":
        known["caller"] = caller
    if (toolset := block.get("toolset_name")) is not None:
        known["toolset_name"] = read_string(toolset, f"{pointer}/toolset_name")
    return _with_block({"function_call": call}, known)


def _response_part(block: JsonObject, pointer: str) -> JsonObject:
    texts, media = _result_content(block.get("content"), f"{pointer}/content")
    response: JsonObject = {"name": "", "response": lines_of(texts)}
    call_id = block.get("tool_use_id")
    if call_id is not None:
        response["id"] = read_string(call_id, f"{pointer}/tool_use_id")
    if block.get("is_error") is True:
        response["is_error"] = True
    if media:
        response["parts"] = media
    return {"function_response": response}


def _result_content(content: Json, pointer: str) -> tuple[list[str], list[Json]]:
    """Return the texts and the media of a tool result; blocks of other kinds are told as JSON."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [content], []
    blocks = content if isinstance(content, list) else [content]
    texts: list[str] = []
    media: list[Json] = []
    for index, block in enumerate(blocks):
        part = _part(block, f"{pointer}/{index}" if isinstance(content, list) else pointer)
        text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
        elif "inline_data" in part or "file_data" in part:
            media.append(part)
        else:
            texts.append(canonical_json(block))
    return texts, media


def _image_part(block: JsonObject, pointer: str) -> JsonObject:
    source = read_object(block.get("source"), f"{pointer}/source")
    match source.get("type"):
        case "base64":
            return {"inline_data": _inline(source, f"{pointer}/source")}
        case "url":
            url = read_string(source.get("url"), f"{pointer}/source/url")
            mime_type = mime_type_of(url) or UNKNOWN_IMAGE
            return {"file_data": {"file_uri": url, "mime_type": mime_type}}
        case _:
            # Uploaded there: the id means nothing to anyone else.
            return _opaque(block, "image", text="[image]")


def _document_part(block: JsonObject, pointer: str) -> JsonObject:
    source = read_object(block.get("source"), f"{pointer}/source")
    title = string_or_empty(block.get("title"))
    named: JsonObject = {"display_name": title} if title else {}
    part: JsonObject
    match source.get("type"):
        case "base64":
            part = {"inline_data": {**_inline(source, f"{pointer}/source"), **named}}
        case "text":
            text = read_string(source.get("data"), f"{pointer}/source/data")
            data = encode_text(text)
            part = {"inline_data": {"mime_type": "text/plain", "data": data, **named}}
        case "url":
            url = read_string(source.get("url"), f"{pointer}/source/url")
            part = {"file_data": {"file_uri": url, "mime_type": PDF, **named}}
        case _:
            return _opaque(block, "document", text=_told(block))
    known: JsonObject = {}
    if (context := block.get("context")) is not None:
        known["context"] = read_string(context, f"{pointer}/context")
    if (citations := block.get("citations")) is not None:
        known["citations"] = read_object(citations, f"{pointer}/citations")
    return _with_block(part, known)


def _inline(source: JsonObject, pointer: str) -> JsonObject:
    return {
        "mime_type": read_string(source.get("media_type"), f"{pointer}/media_type"),
        "data": read_string(source.get("data"), f"{pointer}/data"),
    }


def _opaque(block: JsonObject, kind: str, *, text: str = "") -> JsonObject:
    """Keep a block as it is; markers of caching are not part of it."""
    kept = {key: value for key, value in block.items() if key != "cache_control"}
    return {
        "opaque": {
            "provider": _PROVIDER,
            "type": kind,
            "raw": canonical_json(kept),
            "text": text,
        }
    }


def _told(block: JsonObject) -> str:
    """Return what other providers read of a block that only this one knows: its texts."""
    texts = [string_or_empty(block.get("title"))]
    source = block.get("source")
    for content in (block.get("content"), source.get("content") if isinstance(source, dict) else 0):
        for item in content if isinstance(content, list) else [content]:
            text = item.get("text", item.get("title")) if isinstance(item, dict) else item
            texts.append(string_or_empty(text))
    return "\n".join(text for text in texts if text.strip())


# --------------------------------------------------------------------------------------- outbound


@dataclass(frozen=True, slots=True)
class Anthropic:
    """The Messages format. See the module for what has no place in it."""

    name: str = "anthropic"
    history_field: str = "messages"
    #: All results of one assistant message must stand in the one message after it.
    merges_turns: bool = True
    needs_alternation: bool = True
    refuses_blank_text: bool = True
    #: Left by a response that broke off: the block proves what never came.
    refuses_thought_last: bool = True
    needs_ids: bool = True
    limited_media: None = None

    def emit_id(self, call_id: str) -> str:
        return fit_identifier(call_id, limit=MAX_CALL_ID_LENGTH)

    def says(self, part: Part, role: Role) -> bool:
        match part:
            case FunctionCall():
                return role == "model"
            case FunctionResponse():
                return role == "user"
            case Opaque():
                told = not part.thought and bool(part.text.strip())
                return told or _verbatim_block(part, role) is not None
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
        return part.provider != _PROVIDER or _verbatim_block(part, role) is not None

    def render_part(self, part: Part, role: Role) -> str:
        """Return the part's JSON text. Total: what the format does not say is rendered too."""
        match part:
            case Text():
                if part.thought:
                    return _thinking_fragment(part)
                return _with_more(_text_fragment(part.text), part, "text")
            case FunctionCall():
                return _call_fragment(part)
            case FunctionResponse():
                return _response_fragment(part)
            case InlineData() | FileData():
                return _media_fragment(part)
            case ExecutableCode() | CodeExecutionResult():
                return _text_fragment(code_words(part))
            case Opaque():
                return _verbatim_block(part, role) or _text_fragment(part.text)

    def render_tools(self, tools: Sequence[str]) -> str:
        """Return the tools field; both our shape and the provider's are accepted.

        Raises:
            InvalidInputError: a tool is no object with a name.
        """
        return json_array(_tool(text, i) for i, text in enumerate(tools)) if tools else ""

    def takes_marker(self, part: Part, role: Role) -> bool:
        return not part.thought and not isinstance(part, Opaque) and self.says(part, role)

    def with_marker(self, text: str, ttl: str) -> str:
        return f'{text[:-1]},"cache_control":{_marker(ttl)}}}'

    def render_request(
        self,
        contents: Sequence[RenderedContent],
        *,
        system: str,
        tools: str,
        model: str,
        marks: HeadMarks = NO_MARKS,
    ) -> dict[str, str]:
        """Return ``system``, ``messages`` and ``tools``.

        What the format does not say is left out, should it have been rendered.
        """
        del model  # Nothing here depends on it.
        body = {"system": _system(system, marks.system)} if system else {}
        body["messages"] = json_array(_messages(said(self, content) for content in contents))
        if tools not in ("", "[]"):
            # The last tool's object ends where the list does.
            marked = marks.tools and f'{tools[:-2]},"cache_control":{_marker(marks.tools)}}}]'
            body["tools"] = marked or tools
        return body


ANTHROPIC: Final = Anthropic()


def _marker(ttl: str) -> str:
    # Five minutes is what is meant when nothing is said.
    return '{"type":"ephemeral","ttl":"1h"}' if ttl == "1h" else '{"type":"ephemeral"}'


def _system(text: str, ttl: str | None) -> str:
    if ttl is None:
        return json_string(text)
    return f'[{{"type":"text","text":{json_string(text)},"cache_control":{_marker(ttl)}}}]'


def _verbatim_block(part: Opaque, role: Role) -> str | None:
    """Return the text of a block of this API, if it is one and may stand in this role."""
    if part.provider != _PROVIDER or part.type in _MODELLED:
        return None
    block = json.loads(part.raw)
    if not isinstance(block, dict) or block.get("type") != part.type:
        return None
    if not is_block_accepted(block, "assistant" if role == "model" else "user"):
        return None
    # Where the cache ends is decided for the whole request.
    if block.pop("cache_control", None) is not None:
        return canonical_json(block)
    return part.raw


def _is_signed(part: Text) -> bool:
    return bool(part.signature) and part.signed_by == _PROVIDER


def _text_fragment(text: str) -> str:
    return f'{{"type":"text","text":{json_string(text)}}}'


def _thinking_fragment(part: Text) -> str:
    return (
        f'{{"type":"thinking","thinking":{json_string(part.text)},'
        f'"signature":{json_string(part.signature or "")}}}'
    )


def _call_fragment(call: FunctionCall) -> str:
    name = fit_identifier(call.name, limit=MAX_NAME_LENGTH)
    text = (
        f'{{"type":"tool_use","id":{json_string(call.id or "")},'
        f'"name":{json_string(name)},"input":{call.args}}}'
    )
    return _with_more(text, call, "tool_use")


def _response_fragment(response: FunctionResponse) -> str:
    content = _result_fragment(response)
    said = f',"content":{content}' if content else ""
    failed = ',"is_error":true' if response.is_error else ""
    call_id = json_string(response.id or "")
    return f'{{"type":"tool_result","tool_use_id":{call_id}{said}{failed}}}'


def _result_fragment(response: FunctionResponse) -> str:
    """Return the content of a tool result; empty when it has none to show."""
    sent = response.response_text
    text = response.response if sent is None else sent
    if not response.media:
        return json_string(text) if text.strip() else ""
    blocks = [_text_fragment(text)] if text.strip() and text != "{}" else []
    return json_array([*blocks, *map(_media_fragment, response.media)])


def _media_fragment(part: InlineData | FileData) -> str:
    """Return the block that carries the media, or tells that it is missing."""
    mime_type = bare_mime_type(part)
    if not is_image_or_document(part):
        return _text_fragment(left_out_words(part, mime_type))
    if isinstance(part, FileData):
        source = f'{{"type":"url","url":{json_string(part.file_uri)}}}'
    elif mime_type.startswith("text/"):
        text = json_string(clean_text(decode_text(part.data) or ""))
        source = f'{{"type":"text","media_type":"text/plain","data":{text}}}'
    else:
        source = f'{{"type":"base64","media_type":"{mime_type}","data":{json_string(part.data)}}}'
    if mime_type.startswith("image/"):
        return f'{{"type":"image","source":{source}}}'
    return _with_more(_document(source, part.display_name), part, "document")


def _with_more(text: str, part: Part, kind: str) -> str:
    """Return a block of a kind with what it said besides when it came, where that fits."""
    known = read_extra(part.extra, "anthropic_block")
    more = {key: value for key, value in known.items() if key in MORE[kind]}
    if not more or next(says_more({"type": kind, **more}), None) is not None:
        return text
    return f"{text[:-1]},{canonical_json(more)[1:]}"


def _document(source: str, title: str | None) -> str:
    named = f',"title":{json_string(title)}' if title else ""
    return f'{{"type":"document","source":{source}{named}}}'


def _tool(text: str, index: int) -> str:
    tool = read_tool(text, index)
    # A tool of the provider's own is named by its type and has no schema.
    if isinstance(tool.get("input_schema"), dict) or tool.get("type") not in (None, "function"):
        return text
    named = named_and_described(tool, index)
    return canonical_json({**named, "input_schema": parameters_of(tool)})


def _messages(contents: Iterable[RenderedContent]) -> Iterator[str]:
    for one in contents:
        if one.parts:
            role = "assistant" if one.content.role == "model" else "user"
            blocks = json_array(part.text for part in _results_first(one.parts))
            yield f'{{"role":"{role}","content":{blocks}}}'


def _results_first(parts: Sequence[RenderedPart]) -> list[RenderedPart]:
    """Order a user message: words before a tool result are refused."""
    return sorted(parts, key=lambda part: not isinstance(part.placed.part, FunctionResponse))
