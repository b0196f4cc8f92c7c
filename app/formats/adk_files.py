"""Items of ADK's files to native events: events, sessions, evaluation sets old and new.

{"events": [e1, e2]}                                a session: its events, as they are
{"user_content": c, "final_response": c, ...}       an evaluated invocation: user, calls, answers
{"query": "q", "reference": "a", ...}               the same in the form that ADK used first
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from app.core.canonical import Json
from app.core.errors import InvalidEventError
from app.formats.fields import Fields, Notes, Shape

#: A native event's JSON.
EventJson = dict[str, Json]

_ITEM = Shape(
    "an item",
    "events",
    "eval_cases",
    "conversation",
    "data",
    "user_content",
    "query",
    "invocation_id",
    "creation_timestamp",
    "final_response",
    "intermediate_data",
    "expected_tool_use",
    "expected_intermediate_agent_responses",
    "reference",
)
_INTERMEDIATE = Shape(
    "intermediate data",
    "tool_uses",
    "tool_responses",
    "intermediate_responses",
    "invocation_events",
)
_TOOL_USE = Shape("a tool use", "tool_name", "tool_input")
_AGENT_TEXT = Shape("an agent's response", "author", "text")


def convert_item(item: Json, *, agent: str, notes: Notes | None = None) -> list[EventJson]:
    """Return the native events of an item.

    Args:
        item: an event, or a whole session, evaluation set, case or invocation.
        agent: the author of model content in forms that do not name one.
        notes: gets nothing: an event itself tells what of it is not read.
    """
    del notes
    if not isinstance(item, dict):
        raise InvalidEventError("an item must be an object")
    fields = _ITEM.read(item, "", [])
    for key, reader in _READERS.items():
        if key in fields:
            return list(reader(fields, agent))
    if "parts" in item and "content" not in item:
        # A content on its own: the model's own shape, as a compile answers it.
        author = agent if item.get("role") == "model" else "user"
        return [{"author": author, "content": item}]
    return [item]


def _members(key: str) -> Callable[[Fields, str], Iterator[EventJson]]:
    def read(fields: Fields, agent: str) -> Iterator[EventJson]:
        for index, item in enumerate(fields.array(key)):
            try:
                yield from convert_item(item, agent=agent)
            except InvalidEventError as error:
                pointer = f"{fields.at(key)}/{index}{error.pointer}"
                raise InvalidEventError(error.detail, pointer=pointer) from error

    return read


def _invocation(fields: Fields, agent: str) -> Iterator[EventJson]:
    base: EventJson = {}
    if (invocation_id := fields.value("invocation_id")) is not None:
        base["invocation_id"] = invocation_id
    if timestamp := fields.value("creation_timestamp"):
        base["timestamp"] = timestamp
    yield {**base, "author": "user", "content": _with_role(fields.value("user_content"), "user")}
    if "intermediate_data" in fields:
        pointer = fields.at("intermediate_data")
        steps = _INTERMEDIATE.read(fields.value("intermediate_data"), pointer, [])
        for step in _steps(steps, agent):
            yield {**base, **step}
    if "final_response" in fields:
        content = _with_role(fields.value("final_response"), "model")
        yield {**base, "author": agent, "content": content}


def _steps(fields: Fields, agent: str) -> Iterator[EventJson]:
    """Yield what happened between question and answer."""
    for index, event in enumerate(fields.array("invocation_events")):
        if not isinstance(event, dict):
            at = f"{fields.at('invocation_events')}/{index}"
            raise InvalidEventError("must be an object", pointer=at)
        yield {key: event[key] for key in ("author", "content") if key in event}
    if calls := fields.array("tool_uses"):
        parts: list[Json] = [{"function_call": call} for call in calls]
        yield {"author": agent, "content": {"role": "model", "parts": parts}}
    if results := fields.array("tool_responses"):
        parts = [{"function_response": result} for result in results]
        yield {"author": agent, "content": {"role": "user", "parts": parts}}
    for index, pair in enumerate(fields.array("intermediate_responses")):
        if not isinstance(pair, list) or len(pair) != len(("author", "parts")):
            at = f"{fields.at('intermediate_responses')}/{index}"
            raise InvalidEventError("must be a pair of author and parts", pointer=at)
        yield {"author": pair[0], "content": {"role": "model", "parts": pair[1]}}


def _with_role(content: Json, role: str) -> Json:
    return {"role": role, **content} if isinstance(content, dict) else content


def _first_form(fields: Fields, agent: str) -> Iterator[EventJson]:
    yield _said("user", fields.value("query"))
    parts: list[Json] = []
    for index, use in enumerate(fields.array("expected_tool_use")):
        tool = _TOOL_USE.read(use, f"{fields.at('expected_tool_use')}/{index}", [])
        if "tool_name" not in tool:
            raise tool.wrong("tool_name", "a tool use names its tool")
        call: Json = {"name": tool.value("tool_name"), "args": tool.value("tool_input")}
        parts.append({"function_call": call})
    if parts:
        yield {"author": agent, "content": {"role": "model", "parts": parts}}
    key = "expected_intermediate_agent_responses"
    for index, response in enumerate(fields.array(key)):
        told = _AGENT_TEXT.read(response, f"{fields.at(key)}/{index}", [])
        yield _said(told.text("author") or agent, told.value("text"))
    if "reference" in fields:
        yield _said(agent, fields.value("reference"))


def _said(author: str, text: Json) -> EventJson:
    role = "user" if author == "user" else "model"
    return {"author": author, "content": {"role": role, "parts": [{"text": text}]}}


#: By the key that tells one form from another.
_READERS: Final[Mapping[str, Callable[[Fields, str], Iterator[EventJson]]]] = {
    "events": _members("events"),
    "eval_cases": _members("eval_cases"),
    "conversation": _members("conversation"),
    "data": _members("data"),
    "user_content": _invocation,
    "query": _first_form,
}
