"""Read a session from a file, in whatever supported shape it comes.

    {"events": [...]}                      a session of ours or of ADK's, with its state
    {"eval_cases": [...]}, [{"query"...}]  ADK's evaluation files
    {"contents": [...]}                    a Gemini request; its system instruction is kept
    {"messages": [...]}                    a Chat Completions, Messages or Converse request
    {"input": [...]}                       a Responses request
    [...]                                  a list of items of any of these
    {...}\\n{...}                           the same list, one item a line

Which it is, is told by the keys of the items; ``format_name`` says it where that is not enough.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from app.core.canonical import Json, canonical_json
from app.core.copying import replace
from app.core.errors import InvalidInputError, MalformedBodyError
from app.core.events import Event
from app.core.json_text import parse_json
from app.core.resolve import Facts, Log, Resolver
from app.core.session_state import evolve
from app.core.tokens import CountTokens, part_tokens
from app.formats import CONVERTERS
from app.formats.bedrock_rules import kind_of
from app.formats.openai_responses_rules import OUTPUT_TYPES, VERBATIM_TYPES
from app.formats.sources import parse_item

JsonObject = dict[str, Json]

#: Keys that only one format's items have.
_KEYS: Final[Mapping[str, str]] = {
    "author": "adk",
    "actions": "adk",
    "eval_cases": "adk",
    "evalCases": "adk",
    "conversation": "adk",
    "user_content": "adk",
    "userContent": "adk",
    "query": "adk",
    "parts": "gemini",
    "candidates": "gemini",
    "response": "gemini",
    "tool_calls": "openai_chat",
    "tool_call_id": "openai_chat",
    "function_call": "openai_chat",
    "refusal": "openai_chat",
}
#: Types that only items of the Responses API have, or lines of a Codex rollout.
_RESPONSES_TYPES: Final = VERBATIM_TYPES | {
    *OUTPUT_TYPES,
    *OUTPUT_TYPES.values(),
    "compacted",
    "event_msg",
    "response_item",
    "session_meta",
    "turn_context",
}
_OPENAI_ROLES: Final = frozenset({"system", "developer", "tool", "function"})
_OPENAI_BLOCKS: Final = frozenset({"image_url", "input_audio", "file", "refusal"})
#: What only a Converse request has beside its messages.
_CONVERSE_FIELDS: Final = ("additionalModelRequestFields", "inferenceConfig", "toolConfig")
_RESPONSES_BLOCKS: Final = frozenset({"input_text", "output_text", "input_image", "input_file"})
_ANTHROPIC_BLOCKS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"}
)
#: Where a whole session keeps its items, and whose it is; None: told by the items.
_HOLDERS: Final[Mapping[str, str | None]] = {
    "events": "adk",
    "contents": "gemini",
    "messages": None,
    "input": "openai_responses",
    "items": None,
}
#: Enough items to tell the format by; long files are not searched to the end.
_TELLING_ITEMS: Final = 1000
_FORMATS: Final = ", ".join(sorted(CONVERTERS))


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A session as it was read: items of one format, and what stood beside them."""

    format_name: str
    items: tuple[Json, ...]
    #: Where the items stand in the file, as a JSON pointer; of lines the empty one.
    pointer: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    state: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppendedFile:
    """The session of a file as a log in memory."""

    log: Log
    state: Mapping[str, Json]
    #: Index of the item that each event comes from, in the order of the events.
    item_of_event: tuple[int, ...]
    #: What could not be taken as it came.
    notes: tuple[str, ...]


def read_session(text: str, *, format_name: str | None = None) -> SessionFile:
    """Return the session that a file's text holds.

    Args:
        text: the whole file.
        format_name: the format of the items; None: told by their keys.

    Raises:
        InvalidInputError: it is not JSON, holds no items, or no format can be told.
    """
    if format_name is not None and format_name not in CONVERTERS:
        raise InvalidInputError(f"unknown format {format_name!r}; known are {_FORMATS}")
    document = _document(text)
    holder = document if isinstance(document, dict) else {}
    for key, holders_format in _HOLDERS.items():
        items = holder.get(key)
        if isinstance(items, list):
            told = format_name or holders_format or _format_beside(holder) or _format_of(items)
            return _with_surroundings(SessionFile(told, tuple(items), f"/{key}"), holder)
    items = document if isinstance(document, list) else [document]
    return SessionFile(format_name or _format_of(items), tuple(items))


def append_all(session: SessionFile, *, agent: str, count_tokens: CountTokens) -> AppendedFile:
    """Append the items to an empty log in memory.

    Args:
        session: from :func:`read_session`.
        agent: the author of model items in formats that do not name one.
        count_tokens: the tokenizer.

    Raises:
        InvalidInputError: an item cannot be taken; the pointer leads into the file.
    """
    resolver = Resolver(Facts())
    events: list[Event] = []
    item_of_event: list[int] = []
    notes: list[str] = []
    state = session.state
    convert = partial(CONVERTERS[session.format_name], agent=agent)
    for number, item in enumerate(session.items):
        try:
            for parsed in parse_item(item, convert):
                notes.extend(f"{session.pointer}/{number}{at}: {what}" for at, what in parsed.notes)
                if parsed.is_partial:
                    notes.append(f"{session.pointer}/{number}: a partial event is not stored")
                    continue
                tokens = tuple(part_tokens(part, count_tokens) for part in parsed.event.parts)
                events.append(resolver.add(replace(parsed.event, part_tokens=tokens)))
                item_of_event.append(number)
                state = evolve(state, parsed.state_delta)
        except InvalidInputError as error:
            error.pointer = f"{session.pointer}/{number}{error.pointer}"
            raise
    log = Log(tuple(events), resolver.facts.index)
    return AppendedFile(log, state, tuple(item_of_event), tuple(notes))


def _document(text: str) -> Json:
    """Return the file's value; of several lines that are a value each, the list of them."""
    if not text.strip():
        raise InvalidInputError("the file is empty")
    try:
        return parse_json(text)
    except MalformedBodyError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) == 1 or not _is_value(lines[0][1]):
            raise InvalidInputError(error.detail) from error
    return [_line(number, line) for number, line in lines]


def _is_value(text: str) -> bool:
    try:
        parse_json(text)
    except MalformedBodyError:
        return False
    return True


def _line(number: int, line: str) -> Json:
    try:
        return parse_json(line)
    except MalformedBodyError as error:
        detail = error.detail.replace("at line 1,", f"at line {number},")
        raise InvalidInputError(detail) from error


def _format_of(items: Sequence[Json]) -> str:
    if not items:
        raise InvalidInputError("the file holds no items; say --format for an empty session")
    for key in _HOLDERS:
        if isinstance(items[0], dict) and isinstance(items[0].get(key), list) and len(items) > 1:
            raise InvalidInputError("the file holds several sessions; give one", pointer="/1")
    told = next(filter(None, map(_format_by_keys, islice(items, _TELLING_ITEMS))), None)
    if told is not None:
        return told
    if all(isinstance(item, dict) and "role" in item and "content" in item for item in items):
        # Plain texts look alike in both; this is the older one.
        return "openai_chat"
    raise InvalidInputError(f"no supported format is recognised; say --format, one of {_FORMATS}")


def _format_by_keys(item: Json) -> str | None:
    if isinstance(item, list):
        # The chunks of one streamed response.
        return "gemini"
    if not isinstance(item, dict):
        return None
    if item.get("type") in _RESPONSES_TYPES or item.get("object") == "response":
        return "openai_responses"
    for key, format_name in _KEYS.items():
        if item.get(key) is not None:
            return format_name
    if isinstance(item.get("data"), list):
        return "adk"
    if isinstance(item.get("output"), dict) or _has_untyped_blocks(item.get("content")):
        return "bedrock"
    if item.get("role") in _OPENAI_ROLES:
        return "openai_chat"
    kinds = set(_block_kinds(item.get("content")))
    if kinds & _ANTHROPIC_BLOCKS:
        return "anthropic"
    if kinds & _RESPONSES_BLOCKS:
        return "openai_responses"
    return "openai_chat" if kinds & _OPENAI_BLOCKS else None


def _has_untyped_blocks(content: Json) -> bool:
    """Tell whether blocks say what they are by their one member, as only Converse's do."""
    blocks = content if isinstance(content, list) else []
    return any(isinstance(one, dict) and "type" not in one and kind_of(one) for one in blocks)


def _block_kinds(content: Json) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str):
            yield kind


def _format_beside(holder: JsonObject) -> str | None:
    """Tell the format by what stands beside the messages: only two APIs have a system field."""
    if "messages" not in holder:
        return None
    if any(holder.get(key) is not None for key in _CONVERSE_FIELDS):
        return "bedrock"
    system = holder.get("system")
    blocks = system if isinstance(system, list) else ()
    if any(isinstance(block, dict) and "type" not in block for block in blocks):
        return "bedrock"
    return None if system is None else "anthropic"


def _with_surroundings(session: SessionFile, holder: JsonObject) -> SessionFile:
    state, config = holder.get("state"), holder.get("toolConfig")
    tools = config.get("tools") if isinstance(config, dict) else holder.get("tools")
    system = holder.get("system") or holder.get("system_instruction") or holder.get("instructions")
    return replace(
        session,
        system="\n\n".join(_texts(system or holder.get("systemInstruction"))),
        tools=tuple(canonical_json(tool) for tool in tools) if isinstance(tools, list) else (),
        state=state if isinstance(state, dict) else {},
    )


def _texts(value: Json) -> Iterator[str]:
    """Yield the texts of a system field: a string, blocks, or a content."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts(value.get("text") or value.get("parts"))
