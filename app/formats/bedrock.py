"""Bedrock Converse, both ways: messages to native events, contents to a request.

In: a message gives one event, a user message that mixes tool results with words one per run of
either, because results are authored by the agent. Whole answers of Converse are read too. Blocks
that only this API knows are kept verbatim as ``opaque``; cache points are dropped.

Out, where the provider has no place for what we have:

    thinking without its own signature   left out: nobody may sign for it
    media of other kinds and places      left out; inside a tool result told in words
    model-made media                     left out: an assistant message shows none
    code run at another provider         text with the code or its output in a fence

and where it wants what we do not have:

    a text beside a document             the document's name
    names that tell documents apart      their event's seq or their call behind the name
    tools where the history has calls    one that says that there is none to call
    results without words beside them    for models that need it, a word of the assistant between
    so many and so large media           a text in place of the oldest of too many, and of too large

Bytes are base64, as the HTTP API takes them; boto3 wants them decoded. Checked against botocore's
model of Converse (1.44) on 2026-11-29.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, TypeAlias

from app.core.canonical import Json, canonical_json, json_string
from app.core.compile.inputs import NO_MARKS, HeadMarks, RenderedContent, RenderedPart
from app.core.compile.media import LimitedMedia, MediaKind
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
from app.formats.bedrock_rules import (
    FORMATS_BY_KIND,
    LIMITED_KINDS,
    MAX_CALL_ID_LENGTH,
    MAX_DOCUMENT_NAME_LENGTH,
    MAX_NAME_LENGTH,
    MORE,
    RESULT_BLOCKS,
    is_block_accepted,
    is_s3_uri,
    kind_of,
    media_limits,
    says_rightly,
    takes_results_alone,
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
from app.formats.media import bare_mime_type, decode_text, encode_text
from app.formats.tools import named_and_described, parameters_of, read_tool
from app.formats.unread import Kinds, Members, members, unread
from app.formats.wording import code_words, left_out_words, native_event, said, user_events

__all__ = ["BEDROCK", "Bedrock", "convert_item", "validate"]

JsonObject: TypeAlias = dict[str, Json]

_PROVIDER: Final = "bedrock"
_MEDIA: Final = frozenset(FORMATS_BY_KIND)
_FORMAT: Final = re.compile(r"[A-Za-z0-9_.+-]{1,64}")

# ---------------------------------------------------------------------------------------- inbound

#: What is read of blocks, messages and answers; blocks of other kinds are kept as they are.
_READ_MEDIA: Final = members(
    "format",
    "name",
    source=members("bytes", "content", "text", s3Location=members("uri")),
)
_READ_RESULT: Final = members(
    "status",
    "toolUseId",
    "type",
    content=Members(
        {
            "audio": _READ_MEDIA,
            "document": Members({**_READ_MEDIA.known, **dict.fromkeys(MORE)}),
            "image": _READ_MEDIA,
            "video": _READ_MEDIA,
        },
        keeps_others=True,
    ),
)
_READ_CALL: Final = members("input", "name", "toolUseId", "type")
_READ_THOUGHT: Final = members("redactedContent", reasoningText=members("signature", "text"))
_READ_MESSAGE: Final = Kinds(
    {
        "assistant": members(
            "metadata",
            "role",
            content=Members(
                {"reasoningContent": _READ_THOUGHT, "toolUse": _READ_CALL}, keeps_others=True
            ),
        ),
        "user": members(
            "metadata", "role", content=Members({"toolResult": _READ_RESULT}, keeps_others=True)
        ),
    },
    tag="role",
)
#: How an answer came about is no part of what was said.
_READ_ANSWER: Final = Members({"output": members(message=_READ_MESSAGE)}, keeps_others=True)


def convert_item(item: Json, *, agent: str, notes: Notes | None = None) -> list[JsonObject]:
    """Return the native events of one message, or of a whole answer.

    Args:
        item: the message, as parsed JSON.
        agent: the author of what the model said and of its tools' results.
        notes: collects what of the item is not read.

    Raises:
        InvalidEventError: the message has no shape that this API knows; the pointer is relative to
            the item.
    """
    refuse_deep(item)
    value = read_object(item, "")
    refuse_members(value, ("parts", "tool_calls"), "a Converse message")
    is_answer = "output" in value and "role" not in value
    if notes is not None:
        notes.extend(unread(value, _READ_ANSWER if is_answer else _READ_MESSAGE))
    if is_answer:
        return [_answer_event(value, read_object(value["output"], "/output"), agent)]
    match value.get("role"):
        case "user":
            return user_events(_parts(value, ""), agent)
        case "assistant":
            return [_assistant_event(value, agent, "")]
        case "system":
            event = native_event("user", "user", _parts(value, ""))
            event["custom_metadata"] = {"source_role": "system"}
            return [event]
        case _:
            raise InvalidEventError("role must be user, assistant or system", pointer="/role")


def _answer_event(answer: JsonObject, output: JsonObject, agent: str) -> JsonObject:
    message = read_object(output.get("message"), "/output/message")
    event = _assistant_event(message, agent, "/output/message")
    metadata = answer.get("ResponseMetadata")
    response_id = metadata.get("RequestId") if isinstance(metadata, dict) else None
    if isinstance(response_id, str) and response_id:
        event["response_id"] = response_id
    if usage := _usage(answer.get("usage")):
        event["usage_metadata"] = usage
    return event


def _usage(value: Json) -> JsonObject:
    """Return the counts as ADK's; what was read from the cache is part of the prompt there."""
    if not isinstance(value, dict):
        return {}
    read, written = value.get("cacheReadInputTokens"), value.get("cacheWriteInputTokens")
    parts = [one for one in (value.get("inputTokens"), read, written) if isinstance(one, int)]
    counts = {
        "prompt_token_count": sum(parts) if parts else None,
        "cached_content_token_count": read,
        "candidates_token_count": value.get("outputTokens"),
        "total_token_count": value.get("totalTokens"),
    }
    return {key: count for key, count in counts.items() if isinstance(count, int)}


def _assistant_event(message: JsonObject, agent: str, pointer: str) -> JsonObject:
    event = native_event(agent, "model", _parts(message, pointer))
    # Strands keeps what the answer cost with the message.
    metadata = message.get("metadata")
    if isinstance(metadata, dict) and (usage := _usage(metadata.get("usage"))):
        event["usage_metadata"] = usage
    return event


def _parts(message: JsonObject, pointer: str) -> list[Json]:
    content = message.get("content")
    pointer = f"{pointer}/content"
    if content is None:
        return []
    if isinstance(content, str):
        return [{"text": content}]
    if not isinstance(content, list):
        raise InvalidEventError("content must be a list of blocks", pointer=pointer)
    is_model = message.get("role") == "assistant"
    parts: list[Json] = []
    for index, value in enumerate(content):
        block = read_object(value, f"{pointer}/{index}")
        if kind_of(block) != "cachePoint":
            parts.append(_part(block, f"{pointer}/{index}", is_model=is_model))
    return parts


def _part(block: JsonObject, pointer: str, *, is_model: bool) -> JsonObject:
    kind = kind_of(block)
    if not kind:
        raise InvalidEventError("a block has one member, which says what it is", pointer=pointer)
    value = block[kind]
    pointer = f"{pointer}/{kind}"
    if kind == "text":
        return {"text": read_string(value, pointer)}
    inner = read_object(value, pointer)
    # A tool that runs there answers within the assistant's message.
    if kind == "toolUse" and inner.get("type") is None:
        return _call_part(inner, pointer)
    if kind == "toolResult" and not is_model:
        return _response_part(inner, pointer)
    if kind == "reasoningContent":
        return _reasoning_part(block, inner, pointer)
    if kind in _MEDIA:
        return _media_part(block, inner, kind, pointer)
    return _opaque(block, kind, text=_told(inner))


def _reasoning_part(block: JsonObject, reasoning: JsonObject, pointer: str) -> JsonObject:
    said = reasoning.get("reasoningText")
    if said is None:
        return {**_opaque(block, "reasoningContent"), "thought": True}
    inner = read_object(said, f"{pointer}/reasoningText")
    text = read_string(inner.get("text", ""), f"{pointer}/reasoningText/text")
    part: JsonObject = {"text": text, "thought": True}
    signature = inner.get("signature")
    if isinstance(signature, str) and signature:
        part["thought_signature"] = signature
        part["signature_provider"] = _PROVIDER
    return part


def _call_part(call: JsonObject, pointer: str) -> JsonObject:
    arguments = call.get("input")
    value: JsonObject = {
        "name": read_string(call.get("name"), f"{pointer}/name"),
        "args": {} if arguments is None else arguments,
    }
    call_id = call.get("toolUseId")
    if call_id is not None:
        value["id"] = read_string(call_id, f"{pointer}/toolUseId")
    return {"function_call": value}


def _response_part(result: JsonObject, pointer: str) -> JsonObject:
    said, media = _result_content(result.get("content"), f"{pointer}/content")
    response: JsonObject = {"name": "", "response": said}
    call_id = result.get("toolUseId")
    if call_id is not None:
        response["id"] = read_string(call_id, f"{pointer}/toolUseId")
    if result.get("status") == "error":
        response["is_error"] = True
    if media:
        response["parts"] = media
    return {"function_response": response}


def _result_content(content: Json, pointer: str) -> tuple[Json, list[Json]]:
    """Return what a tool result says and its media: a lone JSON object as it is, else the texts."""
    if content is None or isinstance(content, str):
        return content or "", []
    if not isinstance(content, list):
        raise InvalidEventError("content must be a list of blocks", pointer=pointer)
    said: list[Json] = []
    media: list[Json] = []
    for index, item in enumerate(content):
        at = f"{pointer}/{index}"
        block = read_object(item, at)
        kind = kind_of(block)
        value = block.get(kind)
        if kind == "text":
            said.append(read_string(value, f"{at}/text"))
        elif kind == "json":
            said.append(value)
        elif kind in _MEDIA:
            media_of = _plain(read_object(value, f"{at}/{kind}"))
            part = _media_part(block, media_of, kind, f"{at}/{kind}")
            if "opaque" in part:
                said.append(block)
            else:
                media.append(part)
        elif kind != "cachePoint":
            said.append(block)
    if len(said) == 1 and isinstance(said[0], dict):
        return said[0], media
    texts = [one if isinstance(one, str) else canonical_json(one) for one in said]
    return lines_of(texts), media


def _plain(media: JsonObject) -> JsonObject:
    """Return media of a result without what keeps them from being media: they are no text."""
    plain: JsonObject = {
        key: media[key] for key in ("format", "name", "source", *MORE) if key in media
    }
    source = media.get("source")
    if isinstance(source, dict):
        plain["source"] = _plain_source(source)
    return plain


def _plain_source(source: JsonObject) -> JsonObject:
    location = source.get("s3Location")
    if isinstance(location, dict) and "uri" in location:
        return {"s3Location": {"uri": location["uri"]}}
    return {key: source[key] for key in ("bytes", "text") if key in source} or source


def _media_part(block: JsonObject, media: JsonObject, kind: str, pointer: str) -> JsonObject:
    media_format = read_string(media.get("format", "txt"), f"{pointer}/format")
    if not _FORMAT.fullmatch(media_format):
        raise InvalidEventError("a format is a short word", pointer=f"{pointer}/format")
    mime_type = FORMATS_BY_KIND[kind].get(media_format, f"{kind}/{media_format}")
    source = read_object(media.get("source"), f"{pointer}/source")
    name = media.get("name")
    named: JsonObject = {"display_name": name} if isinstance(name, str) and name else {}
    more = _more(media) if kind == "document" else {}
    known: JsonObject = {"bedrock_block": more} if more else {}
    is_plain = media.keys() <= {"format", "name", "source", *more}
    match kind_of(source):
        case "bytes" if is_plain:
            data = read_string(source["bytes"], f"{pointer}/source/bytes")
            return {"inline_data": {"mime_type": mime_type, "data": data, **named}, **known}
        case "text" if is_plain:
            data = encode_text(read_string(source["text"], f"{pointer}/source/text"))
            return {"inline_data": {"mime_type": mime_type, "data": data, **named}, **known}
        case "s3Location" if is_plain and kind_of(source["s3Location"]) == "uri":
            location = read_object(source["s3Location"], f"{pointer}/source/s3Location")
            uri = read_string(location["uri"], f"{pointer}/source/s3Location/uri")
            return {"file_data": {"file_uri": uri, "mime_type": mime_type, **named}, **known}
        case _:
            label = f"{kind} {name}" if named else kind
            return _opaque(block, kind, text=_told(source) or f"[{label}]")


def _more(document: JsonObject) -> JsonObject:
    """Return what a document says beside what it is, as far as the provider takes it."""
    return {key: document[key] for key in MORE if says_rightly(document, key)}


def _opaque(block: JsonObject, kind: str, *, text: str = "") -> JsonObject:
    return {
        "opaque": {
            "provider": _PROVIDER,
            "type": kind,
            "raw": canonical_json(block),
            "text": text,
        }
    }


def _told(block: JsonObject) -> str:
    """Return what other providers read of a block that only this one knows: its texts."""
    texts = [block.get("title"), block.get("text")]
    content = block.get("content")
    texts += [
        item.get("text")
        for item in (content if isinstance(content, list) else ())
        if isinstance(item, dict)
    ]
    inner = [text.get("text") if isinstance(text, dict) else text for text in texts]
    return "\n".join(text for text in inner if isinstance(text, str) and text.strip())


# --------------------------------------------------------------------------------------- outbound

#: What makes the request valid where the history has calls and the caller no tools. It never
#: changes, so it costs no cache.
_NO_TOOLS: Final = (
    '{"tools":[{"toolSpec":{"name":"no_tool_available","description":"There is no tool to call.",'
    '"inputSchema":{"json":{"type":"object","properties":{}}}}}]}'
)
#: What the assistant says between results and words, for models that refuse them side by side.
_NOTED: Final = '{"role":"assistant","content":[{"text":"Noted."}]}'
#: What a name may not hold, and what :func:`_named` added when the name was sent before.
_OUTSIDE_NAMES: Final = re.compile(r"[^a-zA-Z0-9()\[\]]+")
_ADDED_TO_NAME: Final = re.compile(r"( [0-9a-f]+-\d+)+$")


def _limited_kind(part: Part) -> MediaKind | None:
    kind: str | None = None
    if isinstance(part, Opaque):
        kind = part.type if _verbatim_block(part, "user") else None
    elif isinstance(part, InlineData | FileData) and _is_taken(part):
        known = _kind_and_format(part)
        kind = known[0] if known else None
    return LIMITED_KINDS.get(kind or "")


_LIMITED_MEDIA: Final = LimitedMedia(_limited_kind, media_limits)


@dataclass(frozen=True, slots=True)
class Bedrock:
    """The Converse format. See the module for what has no place in it."""

    name: str = "bedrock"
    history_field: str = "messages"
    #: All results of one assistant message must stand in the one message after it.
    merges_turns: bool = True
    needs_alternation: bool = True
    refuses_blank_text: bool = True
    refuses_thought_last: bool = True
    needs_ids: bool = True
    limited_media: LimitedMedia = _LIMITED_MEDIA

    def emit_id(self, call_id: str) -> str:
        # Dots and colons are in the model's charset, but not in that of every model behind it.
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
                return role == "user" and _is_taken(part)
            case ExecutableCode() | CodeExecutionResult():
                return True

    def keeps(self, part: Opaque, role: Role) -> bool:
        return part.provider != _PROVIDER or _verbatim_block(part, role) is not None

    def render_part(self, part: Part, role: Role) -> str:
        """Return the part's JSON text: a block, or of a document a list of two.

        Total: what the format does not say is rendered too.
        """
        match part:
            case Text():
                return _reasoning_fragment(part) if part.thought else _text_fragment(part.text)
            case FunctionCall():
                return _call_fragment(part)
            case FunctionResponse():
                return _response_fragment(part)
            case InlineData() | FileData():
                block = _media_fragment(part)
                if not _is_document(part):
                    return block
                return json_array([_label(part.display_name), block])
            case ExecutableCode() | CodeExecutionResult():
                return _text_fragment(code_words(part))
            case Opaque():
                return _verbatim_block(part, role) or _text_fragment(part.text)

    def render_tools(self, tools: Sequence[str]) -> str:
        """Return the tool configuration; both our shape and the provider's are accepted.

        Raises:
            InvalidInputError: a tool is no object with a name.
        """
        if not tools:
            return ""
        return f'{{"tools":{json_array(_tool(text, i) for i, text in enumerate(tools))}}}'

    def takes_marker(self, part: Part, role: Role) -> bool:
        is_named = isinstance(part, InlineData | FileData) and _is_document(part)
        has_named = isinstance(part, FunctionResponse) and any(map(_is_document, part.media))
        if part.thought or isinstance(part, Opaque) or is_named or has_named:
            return False
        return self.says(part, role)

    def with_marker(self, text: str, ttl: str) -> str:
        return f"[{text},{_marker(ttl)}]"

    def render_request(
        self,
        contents: Sequence[RenderedContent],
        *,
        system: str,
        tools: str,
        model: str,
        marks: HeadMarks = NO_MARKS,
    ) -> dict[str, str]:
        """Return ``system``, ``messages`` and ``toolConfig``.

        What the format does not say is left out, should it have been rendered.
        """
        sent = [said(self, content) for content in contents]
        body = {}
        if system:
            marked = [_marker(marks.system)] if marks.system else []
            body["system"] = json_array([_text_fragment(system), *marked])
        body["messages"] = json_array(_messages(sent, model))
        if tools not in ("", "[]"):
            # Its list of tools ends where the object does.
            marked_tools = marks.tools and f"{tools[:-2]},{_marker(marks.tools)}]}}"
            body["toolConfig"] = marked_tools or tools
        elif not marks.has_sent_tools and any(map(_has_tools, sent)):
            body["toolConfig"] = _NO_TOOLS
        return body


BEDROCK: Final = Bedrock()


def _marker(ttl: str) -> str:
    # Five minutes is what is meant when nothing is said.
    said = ',"ttl":"1h"' if ttl == "1h" else ""
    return f'{{"cachePoint":{{"type":"default"{said}}}}}'


def _has_tools(content: RenderedContent) -> bool:
    """Tell whether the content has calls or results, of whoever's tools."""
    return any(
        isinstance(part.placed.part, FunctionCall | FunctionResponse)
        or part.text.startswith(('{"toolUse":', '{"toolResult":'))
        for part in content.parts
    )


def _verbatim_block(part: Opaque, role: Role, suffix: str = "") -> str | None:
    """Return the text of a block of this API, if it is one and may stand in this role.

    Of a document it is a list of two, and its name gets the suffix.
    """
    if part.provider != _PROVIDER or part.type == "text":
        return None
    block = json.loads(part.raw)
    if kind_of(block) != part.type or not isinstance(block[part.type], dict):
        return None
    value = block[part.type]
    # Signing and pairing are for the compiler to see to.
    is_tool = part.type in ("toolResult", "toolUse")
    is_signed = part.type == "reasoningContent" and "redactedContent" not in value
    if is_signed or (is_tool and value.get("type") is None):
        return None
    if part.type == "reasoningContent" and not part.thought:
        return None
    if part.type == "document":
        return _verbatim_document(value, role, suffix)
    is_taken = is_block_accepted(block, "assistant" if role == "model" else "user")
    return part.raw if is_taken and part.type != "cachePoint" else None


def _verbatim_document(document: JsonObject, role: Role, suffix: str) -> str | None:
    """Return a document as it is but for its name, beside a text."""
    name = string_or_empty(document.get("name"))
    block: JsonObject = {"document": {**document, "name": _document_name(name, suffix)}}
    if role == "model" or not is_block_accepted(block, "user"):
        return None
    return json_array([_label(name), canonical_json(block)])


def _is_signed(part: Text) -> bool:
    return bool(part.signature) and part.signed_by == _PROVIDER


def _text_fragment(text: str) -> str:
    return f'{{"text":{json_string(text)}}}'


def _reasoning_fragment(part: Text) -> str:
    return (
        f'{{"reasoningContent":{{"reasoningText":{{"text":{json_string(part.text)},'
        f'"signature":{json_string(part.signature or "")}}}}}}}'
    )


def _call_fragment(call: FunctionCall) -> str:
    name = fit_identifier(call.name, limit=MAX_NAME_LENGTH)
    return (
        f'{{"toolUse":{{"toolUseId":{json_string(call.id or "")},'
        f'"name":{json_string(name)},"input":{call.args}}}}}'
    )


def _response_fragment(response: FunctionResponse, suffix: str = "") -> str:
    status = "error" if response.is_error else "success"
    content = json_array(_result_blocks(response, suffix))
    call_id = json_string(response.id or "")
    return f'{{"toolResult":{{"toolUseId":{call_id},"content":{content},"status":"{status}"}}}}'


def _result_blocks(response: FunctionResponse, suffix: str) -> Iterator[str]:
    """Yield what a result says, as JSON where it was sent as JSON; never nothing, nor blank."""
    sent = response.response_text
    if sent is not None and sent.strip():
        yield _text_fragment(sent)
    elif not response.media or (sent is None and response.response != "{}"):
        yield f'{{"json":{response.response}}}'
    for number, part in enumerate(response.media):
        known = _kind_and_format(part)
        if known is not None and known[0] in RESULT_BLOCKS:
            yield _media_fragment(part, f"{suffix}-{number}" if suffix else "")
        else:
            yield _text_fragment(left_out_words(part))


def _kind_and_format(part: InlineData | FileData) -> tuple[str, str] | None:
    """Return the kind of block that the media is, and its format there; None when it is none."""
    mime_type = bare_mime_type(part)
    for kind, formats in FORMATS_BY_KIND.items():
        for name, known in formats.items():
            if known == mime_type:
                return kind, name
    return ("document", "txt") if mime_type.startswith("text/") else None


def _is_taken(part: InlineData | FileData) -> bool:
    """Tell whether a user message has a place for the media."""
    known = _kind_and_format(part)
    if known is None:
        return False
    if isinstance(part, FileData):
        return is_s3_uri(part.file_uri)
    if known[1] == "txt":
        return bool((decode_text(part.data) or "").strip())
    return bool(part.data)


def _is_document(part: Part) -> bool:
    if not isinstance(part, InlineData | FileData) or not _is_taken(part):
        return False
    known = _kind_and_format(part)
    return known is not None and known[0] == "document"


def _label(name: str | None) -> str:
    return _text_fragment(f"[{name or 'document'}]")


def _media_fragment(part: InlineData | FileData, suffix: str = "") -> str:
    """Return the block that carries the media, or tells that it is missing."""
    known = _kind_and_format(part)
    if known is None or not _is_taken(part):
        return _text_fragment(left_out_words(part))
    kind, media_format = known
    own_name = json_string(_document_name(part.display_name, suffix))
    name = f'"name":{own_name},' if kind == "document" else ""
    if isinstance(part, FileData):
        source = f'{{"s3Location":{{"uri":{json_string(part.file_uri)}}}}}'
    else:
        source = f'{{"bytes":{json_string(part.data)}}}'
    block = f'"format":"{media_format}",{name}"source":{source}'
    more = _more(read_extra(part.extra, "bedrock_block")) if kind == "document" else {}
    said = f",{canonical_json(more)[1:-1]}" if more else ""
    return f'{{"{kind}":{{{block}{said}}}}}'


def _document_name(name: str | None, suffix: str) -> str:
    """Return a name in the charset of document names, told apart by where the document stands."""
    bare = _ADDED_TO_NAME.sub("", name or "")
    fitted = _OUTSIDE_NAMES.sub("-", bare).strip("-") or "document"
    added = f" {suffix}" if suffix else ""
    return fitted[: MAX_DOCUMENT_NAME_LENGTH - len(added)] + added


def _tool(text: str, index: int) -> str:
    tool = read_tool(text, index)
    if kind_of(tool) in ("cachePoint", "systemTool", "toolSpec"):
        return text
    named = named_and_described(tool, index)
    schema: JsonObject = {"json": parameters_of(tool)}
    return canonical_json({"toolSpec": {**named, "inputSchema": schema}})


# Assembling. A message is made of the fragments as they are, but for documents, whose names say
# where they stand.


def _messages(contents: Sequence[RenderedContent], model: str) -> Iterator[str]:
    for one in contents:
        if one.role == "model":
            yield from _message("assistant", [part.text for part in one.parts])
            continue
        results: list[str] = []
        words: list[str] = []
        for part in one.parts:
            text = _named(part, one)
            # Words before a tool result are refused.
            if isinstance(part.placed.part, FunctionResponse):
                results.append(text)
            else:
                words.append(text)
        if results and words and takes_results_alone(model):
            yield from _message("user", results)
            yield _NOTED
            results = []
        yield from _message("user", [*results, *words])


def _message(role: str, blocks: Sequence[str]) -> Iterator[str]:
    # A document stands in a list with its text.
    flat = [block[1:-1] if block.startswith("[") else block for block in blocks]
    if flat:
        yield f'{{"role":"{role}","content":{json_array(flat)}}}'


def _named(rendered: RenderedPart, turn: RenderedContent) -> str:
    """Return a part's text, each document of it under a name that no other has."""
    part = rendered.placed.part
    if isinstance(part, FunctionResponse):
        if not any(map(_is_document, part.media)):
            return rendered.text
        # Call ids are unique, but their charset is not that of names.
        return _response_fragment(part, sha256((part.id or "").encode()).hexdigest()[:8])
    if isinstance(part, Opaque) and rendered.text.startswith("["):
        return _verbatim_block(part, "user", _place(rendered, turn)) or rendered.text
    if isinstance(part, InlineData | FileData) and _is_document(part):
        block = _media_fragment(part, _place(rendered, turn))
        return json_array([_label(part.display_name), block])
    return rendered.text


def _place(rendered: RenderedPart, turn: RenderedContent) -> str:
    """Return the seq of a part's event, and which of its parts it is."""
    seq = rendered.placed.seq
    # Counted in the whole turn, of which a delta holds the rest.
    of_event = [placed for placed in turn.content.parts if placed.seq == seq]
    number = next((i for i, placed in enumerate(of_event) if placed is rendered.placed), 0)
    return f"{seq or 0}-{number}"
