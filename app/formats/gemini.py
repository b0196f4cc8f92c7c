"""Gemini generateContent, both ways: contents and recorded responses to native events, and back.

In: a content gives one event, or one per run of tool results or other parts, because results are
authored by the agent. A response, whole or as a list of stream chunks, gives one event: pieces of
text that follow each other in different chunks are joined, signed ones never.

Out, where the provider has no place for what we have:

    thinking signed by another provider   left out: nobody may sign for it
    a failed tool result                  its response is ``{"error": ...}``: there is no flag
    media of unknown kinds                left out; in a tool result told in words
    names of media                        left out, except in tool results, which may refer to them
    other providers' blocks               their text twin

Checked against the SDK's request types (google-genai) on 2026-11-29.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final, TypeAlias

from app.core.canonical import Json, canonical_json, json_string
from app.core.compile.inputs import NO_MARKS, HeadMarks, RenderedContent
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
from app.formats.fields import Fields, Notes, Shape, camel, json_array, json_object, refuse_deep
from app.formats.gemini_rules import (
    MAX_NAME_LENGTH,
    NAME,
    is_part_accepted,
    part_kind,
    takes_mime_type,
    takes_uri,
    validate,
)
from app.formats.identifiers import fit_identifier
from app.formats.parts import GEMINIS_EXTRAS, SERVER_TOOL_TYPES
from app.formats.tools import check_is_geminis, named_and_described, read_tool
from app.formats.unread import NOT_READ
from app.formats.wording import left_out_words

__all__ = ["GEMINI", "Gemini", "convert_item", "validate"]

JsonObject: TypeAlias = dict[str, Json]

_PROVIDER: Final = "gemini"
#: What a caller may not smuggle past the rules of pairing and signing.
_MODELLED: Final = frozenset({"function_call", "function_response", "text"})
#: Tools have few names, and are called often.
_KEPT_NAMES: Final = 1024

# ---------------------------------------------------------------------------------------- inbound

_ITEM = Shape(
    "an item",
    "role",
    "parts",
    "contents",
    "response",
    "candidates",
    "prompt_feedback",
    "usage_metadata",
    "model_version",
    "response_id",
    "create_time",
)
_CANDIDATE = Shape(
    "a candidate",
    "content",
    "finish_reason",
    # How the answer came about is no part of what was said.
    "avg_logprobs",
    "finish_message",
    "index",
    "logprobs_result",
    "safety_ratings",
    "token_count",
)
_CONTENT = Shape("a content", "role", "parts")
_FEEDBACK = Shape("prompt feedback", "block_reason")


def convert_item(item: Json, *, agent: str, notes: Notes | None = None) -> list[JsonObject]:
    """Return the native events of an item.

    Args:
        item: a content, a request's ``contents``, a response, the list of chunks of a streamed
            response, or a recorded line ``{"response": ...}`` of either.
        agent: the author of what the model said and of its tools' results.
        notes: collects what of the item is not read.

    Raises:
        InvalidEventError: the item has no shape that this API knows; the pointer is relative to it.
    """
    refuse_deep(item)
    notes = [] if notes is None else notes
    if isinstance(item, list):
        return [_response_event(item, "", agent, notes)]
    fields = _ITEM.read(item, "", notes)
    if "response" in fields:
        response = fields.value("response")
        chunks = response if isinstance(response, list) else [response]
        return [_response_event(chunks, fields.at("response"), agent, notes)]
    if "contents" in fields:
        contents = enumerate(fields.array("contents"))
        return [
            event
            for index, content in contents
            for event in _content_events(content, f"{fields.at('contents')}/{index}", agent)
        ]
    if "candidates" in fields or "prompt_feedback" in fields:
        return [_response_event([item], "", agent, notes)]
    return list(_content_events(item, "", agent))


def _content_events(value: Json, pointer: str, agent: str) -> Iterator[JsonObject]:
    fields = _CONTENT.read_strictly(value, pointer, [])
    role = fields.value("role") or "user"
    parts = fields.array("parts")
    if role == "model":
        yield {"author": agent, "content": {"role": "model", "parts": parts}}
    elif role not in ("user", "function"):
        raise fields.wrong("role", "must be user, model or function")
    else:
        for is_result, run in groupby(parts, _is_result):
            author = agent if is_result else "user"
            yield {"author": author, "content": {"role": "user", "parts": list(run)}}
        if not parts:
            yield {"author": "user", "content": {"role": "user", "parts": []}}


def _is_result(part: Json) -> bool:
    keys = ("functionResponse", "function_response")
    return isinstance(part, dict) and any(part.get(key) is not None for key in keys)


def _response_event(chunks: Sequence[Json], pointer: str, agent: str, notes: Notes) -> JsonObject:
    """Return the one event that the chunks of a response tell of."""
    event: JsonObject = {"author": agent}
    parts: list[Json] = []
    for index, chunk in enumerate(chunks):
        at = f"{pointer}/{index}" if len(chunks) > 1 else pointer
        fields = _ITEM.read(chunk, at, notes)
        _append_parts(parts, _candidate_parts(fields, event))
        for key in ("usage_metadata", "model_version", "response_id"):
            if key in fields:
                event[key] = fields.value(key)
        if "create_time" in fields:
            event.setdefault("timestamp", fields.value("create_time"))
    if parts:
        event["content"] = {"role": "model", "parts": parts}
    elif event.get("finish_reason") not in (None, "STOP"):
        event["error_code"] = event["finish_reason"]
    return event


def _candidate_parts(fields: Fields, event: JsonObject) -> list[Json]:
    """Return the parts of the first candidate, the one that conversations go on from."""
    if "prompt_feedback" in fields:
        feedback = _FEEDBACK.read(fields.value("prompt_feedback"), fields.at("prompt_feedback"), [])
        if "block_reason" in feedback:
            event["error_code"] = feedback.text("block_reason")
    candidates = fields.array("candidates")
    if not candidates:
        return []
    at = fields.at("candidates")
    fields.notes.extend((f"{at}/{number}", NOT_READ) for number in range(1, len(candidates)))
    candidate = _CANDIDATE.read(candidates[0], f"{at}/0", fields.notes)
    for key in candidate.unknown:
        candidate.note(key, NOT_READ)
    if "finish_reason" in candidate:
        event["finish_reason"] = candidate.text("finish_reason")
    if "content" not in candidate:
        return []
    content = _CONTENT.read_strictly(candidate.value("content"), candidate.at("content"), [])
    return content.array("parts")


def _append_parts(parts: list[Json], new: Sequence[Json]) -> None:
    """Append a chunk's parts; text that goes on from the chunk before is one text with it."""
    rest = list(new)
    if parts and rest and (joined := _joined_text(parts[-1], rest[0])) is not None:
        parts[-1] = joined
        rest = rest[1:]
    parts.extend(rest)


def _joined_text(first: Json, second: Json) -> Json:
    if not _is_plain_text(first) or not _is_plain_text(second):
        return None
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    if bool(first.get("thought")) != bool(second.get("thought")):
        return None
    return {**first, "text": f"{first['text']}{second['text']}"}


def _is_plain_text(part: Json) -> bool:
    return (
        isinstance(part, dict)
        and isinstance(part.get("text"), str)
        and all(key in ("text", "thought") or value is None for key, value in part.items())
    )


# --------------------------------------------------------------------------------------- outbound


@dataclass(frozen=True, slots=True)
class Gemini:
    """The format of ``POST models/{model}:generateContent``."""

    name: str = _PROVIDER
    history_field: str = "contents"
    merges_turns: bool = True
    needs_alternation: bool = True
    #: Only empty text is, but white space alone says nothing either.
    refuses_blank_text: bool = True
    refuses_thought_last: bool = False
    needs_ids: bool = False
    limited_media: None = None

    def emit_id(self, call_id: str) -> str:
        """Return the id as it is: any text is accepted."""
        return call_id

    def says(self, part: Part, role: Role) -> bool:
        """Tell whether the format has a place for this part in this role."""
        match part:
            case FunctionCall():
                return role == "model"
            case FunctionResponse():
                return role == "user"
            case Text():
                return _is_ours(part) and bool(part.text or part.signature or part.extra)
            case Opaque():
                return _is_verbatim(part, role) or bool(part.text.strip())
            case InlineData() | FileData():
                return _is_taken(part)
            case ExecutableCode() | CodeExecutionResult():
                return True

    def keeps(self, part: Opaque, role: Role) -> bool:
        """Tell whether a block of this API's is sent as it is."""
        return part.provider != _PROVIDER or _is_verbatim(part, role)

    def render_part(self, part: Part, role: Role) -> str:
        """Return the part's JSON text. Total: what the format does not say is rendered too."""
        text = _kind(part, role)
        if part.thought:
            text = _extended(text, '{"thought":true}')
        if part.signature is not None and part.signed_by == _PROVIDER:
            text = _extended(text, f'{{"thoughtSignature":{json_string(part.signature)}}}')
        return _extended(text, _extra(part.extra)) if part.extra else text

    def render_tools(self, tools: Sequence[str]) -> str:
        """Return the tools field; both our shape and the provider's are accepted.

        Neighbouring tools of ours are the declarations of one tool of Gemini's.

        Raises:
            InvalidInputError: a tool is no object, or ours has no name.
        """
        rendered: list[str] = []
        parsed = [(_tool(text, index), text) for index, text in enumerate(tools)]
        for is_declaration, run in groupby(parsed, lambda pair: pair[0] is not None):
            texts = [text if declaration is None else declaration for declaration, text in run]
            if is_declaration:
                rendered.append(json_object([("functionDeclarations", json_array(texts))]))
            else:
                rendered.extend(texts)
        return json_array(rendered) if rendered else ""

    def takes_marker(self, part: Part, role: Role) -> bool:
        """Return False: caches are either found or made apart."""
        del part, role
        return False

    def with_marker(self, text: str, ttl: str) -> str:
        """Return the part as it is."""
        del ttl
        return text

    def render_request(
        self,
        contents: Sequence[RenderedContent],
        *,
        system: str,
        tools: str,
        model: str,
        marks: HeadMarks = NO_MARKS,
    ) -> dict[str, str]:
        """Return ``contents``, ``system_instruction``, ``tools`` and ``cached_content``."""
        del model  # It is part of the URL.
        said = [_content(content) for content in contents if content.parts]
        body = {"contents": json_array(said)}
        if system:
            body["system_instruction"] = f'{{"parts":[{{"text":{json_string(system)}}}]}}'
        if tools not in ("", "[]"):
            body["tools"] = tools
        if marks.cached_content:
            body["cached_content"] = json_string(marks.cached_content)
        return body


GEMINI: Final = Gemini()


def _content(content: RenderedContent) -> str:
    parts = ",".join([part.text for part in content.parts])
    return f'{{"role":"{content.role}","parts":[{parts}]}}'


def _is_ours(part: Text) -> bool:
    """Tell whether the text is not another provider's proof of thinking."""
    if part.signed_by in (None, _PROVIDER):
        return True
    return not part.thought and bool(part.text)


def _is_verbatim(part: Opaque, role: Role) -> bool:
    """Tell whether the block is a part of this API's and may stand in this role."""
    if part.provider != _PROVIDER:
        return False
    value = json.loads(part.raw)
    kind = part_kind(value)
    if kind in _MODELLED or part.type not in (kind, camel(kind)):
        return False
    return is_part_accepted(value, role)


def _is_taken(part: InlineData | FileData) -> bool:
    if isinstance(part, InlineData):
        return bool(part.data) and takes_mime_type(part.mime_type)
    is_known = part.mime_type is None or takes_mime_type(part.mime_type)
    return is_known and takes_uri(part.file_uri)


def _kind(part: Part, role: Role) -> str:
    match part:
        case Text():
            return f'{{"text":{json_string(part.text)}}}'
        case FunctionCall():
            return f'{{"functionCall":{_call(part)}}}'
        case FunctionResponse():
            return f'{{"functionResponse":{_response(part)}}}'
        case InlineData() | FileData():
            return _media(part)
        case ExecutableCode():
            fields = [("language", json_string(part.language)), ("code", json_string(part.code))]
            return json_object([("executableCode", json_object(fields))])
        case CodeExecutionResult():
            fields = [("outcome", json_string(part.outcome)), ("output", json_string(part.output))]
            return json_object([("codeExecutionResult", json_object(fields))])
        case Opaque():
            return _opaque(part, role)


def _call(part: FunctionCall) -> str:
    return f'{{{_named(part)},"args":{part.args}}}'


def _response(part: FunctionResponse) -> str:
    text = f'{_named(part)},"response":{_with_notes(_result(part), part)}'
    media = [_media(item, is_named=True) for item in part.media if _is_taken(item)]
    return f'{{{text},"parts":{json_array(media)}}}' if media else f"{{{text}}}"


def _named(part: FunctionCall | FunctionResponse) -> str:
    """Return the members that call and result have alike."""
    name = _name(part.name)
    return name if part.id is None else f'"id":{json_string(part.id)},{name}'


@lru_cache(_KEPT_NAMES)
def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        name = fit_identifier(f"_{name}", limit=MAX_NAME_LENGTH)
    return f'"name":{json_string(name)}'


def _result(part: FunctionResponse) -> str:
    """Return the result's object; of a failed one under the key that Gemini reads as failure."""
    if not part.is_error:
        return part.response
    result = json.loads(part.response)
    if "error" in result:
        return part.response
    failure = result["output"] if list(result) == ["output"] else result
    return canonical_json({"error": failure})


def _with_notes(result: str, part: FunctionResponse) -> str:
    """Return the result's object, which tells of media that are not sent."""
    notes = [left_out_words(item) for item in part.media if not _is_taken(item)]
    if not notes:
        return result
    told = json.loads(result)
    for key in ("output", "error"):
        if list(told) == [key] and isinstance(told[key], str):
            return canonical_json({key: "\n".join([told[key], *notes]).lstrip("\n")})
    return canonical_json({**told, "left_out": [*notes]})


def _media(part: InlineData | FileData, *, is_named: bool = False) -> str:
    if isinstance(part, InlineData):
        kind = "inlineData"
        fields = [("mimeType", json_string(part.mime_type)), ("data", json_string(part.data))]
    else:
        kind = "fileData"
        fields = [("fileUri", json_string(part.file_uri))]
        if part.mime_type is not None:
            fields.append(("mimeType", json_string(part.mime_type)))
    if is_named and part.display_name is not None:
        fields.append(("displayName", json_string(part.display_name)))
    text = json_object([(kind, json_object(fields))])
    return _extended(text, _extra(part.extra)) if is_named and part.extra else text


def _opaque(part: Opaque, role: Role) -> str:
    if not _is_verbatim(part, role):
        return json_object([("text", json_string(part.text))])
    if part.type in SERVER_TOOL_TYPES:
        return part.raw.replace(f'"{part.type}"', f'"{camel(part.type)}"', 1)
    return part.raw


def _extended(text: str, more: str) -> str:
    """Return an object's text with the members of another behind its own."""
    if more == "{}":
        return text
    return more if text == "{}" else f"{text[:-1]},{more[1:]}"


def _extra(text: str) -> str:
    """Return further fields in the provider's spelling; the caller's own keys stay as they are."""
    spelled: JsonObject = {}
    for key, value in json.loads(text).items():
        if key not in GEMINIS_EXTRAS:
            continue
        is_free = key == "part_metadata" or not isinstance(value, dict)
        spelled[camel(key)] = value if is_free else {camel(k): v for k, v in value.items()}
    return canonical_json(spelled)


def _tool(text: str, index: int) -> str | None:
    """Return the declaration of a tool of ours; None for one in the provider's own shape."""
    tool = read_tool(text, index)
    is_ours = tool.get("name") is not None or {"description", "parameters"} & tool.keys()
    if tool and not is_ours:
        check_is_geminis(tool, index)
        return None
    declaration = named_and_described(tool, index)
    if tool.get("parameters") is not None:
        declaration["parametersJsonSchema"] = tool["parameters"]
    return canonical_json(declaration)
