"""The shape of an event, as the OpenAPI document tells it.

For callers alone: what they send is read from its own text (``app/formats/adk.py``), so that it
comes back to the letter, and a test compares the keys. Every key is taken in camelCase too.
"""

from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

#: Both in bytes of UTF-8, of which a character takes up to four.
Name: TypeAlias = Annotated[str, Field(max_length=512)]
PathText: TypeAlias = Annotated[str, Field(max_length=1024)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Blob(_Shape):
    """Media within a part."""

    mime_type: str | None = None
    """As in `image/png`."""
    data: str
    """Base64, of either alphabet."""
    display_name: str | None = None
    """Name of the file."""


class FileReference(_Shape):
    """Media by reference."""

    file_uri: str
    """Where it is."""
    mime_type: str | None = None
    """As in `image/png`; null: as its name says."""
    display_name: str | None = None
    """Name of the file."""


class FunctionCallShape(_Shape):
    """A call of a tool."""

    id: str | None = None
    """As the model gave it."""
    name: str
    """Of the tool."""
    args: dict[str, Any] | str | None = None
    """An object, or its text, which is kept to the letter."""
    args_text: str | None = None
    """The text beside the object."""
    long_running: bool = False
    """The result may come late: the call stays open."""
    partial_args: Any = None
    """Of a stream; not kept."""
    will_continue: bool | None = None
    """Of a stream; not kept."""


class FunctionResponseShape(_Shape):
    """The result of a call."""

    id: str | None = None
    """Of the call; null: the first open call of this name."""
    name: str | None = None
    """Of the tool."""
    response: Any = None
    """An object; anything else is read as its `output`."""
    response_text: str | None = None
    """The text beside the object."""
    is_error: bool = False
    """The call failed."""
    parts: list[dict[str, Any]] | None = None
    """Media: each `inline_data` or `file_data`."""
    will_continue: bool | None = None
    """Of a stream; not kept."""
    scheduling: str | None = None
    """Of a stream; not kept."""


class ExecutableCodeShape(_Shape):
    """Code that ran at the provider."""

    code: str | None = None
    """The code."""
    language: str | None = None
    """As in `PYTHON`."""
    id: str | None = None
    """Not sent again."""


class CodeResultShape(_Shape):
    """What code gave that ran at the provider."""

    outcome: str | None = None
    """As in `OUTCOME_OK`."""
    output: str | None = None
    """What it printed."""
    id: str | None = None
    """Not sent again."""


class OpaqueShape(_Shape):
    """A block of one provider alone."""

    provider: str
    """As a format is named."""
    type: str
    """Of the block."""
    raw: dict[str, Any] | str
    """The block, or its text."""
    text: str | None = None
    """What other providers read of it."""


class PartShape(_Shape):
    """A part: one of the kinds, and what is said of it."""

    text: str | None = None
    """What was said or thought."""
    function_call: FunctionCallShape | None = None
    """A call of a tool."""
    function_response: FunctionResponseShape | None = None
    """The result of a call."""
    inline_data: Blob | None = None
    """Media."""
    file_data: FileReference | None = None
    """Media by reference."""
    executable_code: ExecutableCodeShape | None = None
    """Code that ran at the provider."""
    code_execution_result: CodeResultShape | None = None
    """What it gave."""
    tool_call: dict[str, Any] | None = None
    """A tool that ran at Gemini; echoed as it is."""
    tool_response: dict[str, Any] | None = None
    """Its result; echoed as it is."""
    opaque: OpaqueShape | None = None
    """A block of one provider alone."""
    thought: bool = False
    """The model thought it."""
    thought_signature: str | None = None
    """By which its provider knows it again."""
    signature_provider: str | None = None
    """Who signed it; null: `gemini`."""
    video_metadata: dict[str, Any] | None = None
    """Gemini's."""
    media_resolution: dict[str, Any] | None = None
    """Gemini's."""
    part_metadata: dict[str, Any] | None = None
    """Gemini's."""
    audio_transcription: dict[str, Any] | None = None
    """Gemini's."""
    media_processing: dict[str, Any] | None = None
    """Gemini's."""
    speech_metadata: dict[str, Any] | None = None
    """Gemini's."""
    openai_item: dict[str, Any] | None = None
    """What an item of the Responses API is known by beside what the part says, and the `detail`
    that an image is looked at in."""
    anthropic_block: dict[str, Any] | None = None
    """What a block of Messages says beside what the part does: the `citations` and the `context`
    of a document, the `citations` of a text, the `caller` and the `toolset_name` of a call."""
    bedrock_block: dict[str, Any] | None = None
    """The same of Converse: the `citations` and the `context` of a document."""


class ContentShape(_Shape):
    """What was said, in parts."""

    role: str | None = None
    """`user` or `model`; a content without one is read by no one."""
    parts: list[PartShape] | None = None
    """In their order."""


class ConfirmationShape(_Shape):
    """What is asked of the user before a call."""

    hint: str | None = None
    """Told to the user."""
    confirmed: bool | None = None
    """What the user said."""
    payload: Any = None
    """Of the tool's own."""


class ExcludedEvent(_Shape):
    """An event that a recorded summary leaves out."""

    invocation_id: str
    """Of the event."""
    timestamp: float | str
    """Of the event."""


class RecordedCompaction(_Shape):
    """A summary, as ADK records it."""

    start_timestamp: float | str
    """Of the first event that it stands for."""
    end_timestamp: float | str
    """Of the last."""
    compacted_content: ContentShape
    """The summary."""
    excluded_events: list[ExcludedEvent] | None = None
    """What it does not stand for."""


class ActionsShape(_Shape):
    """What an event changes, as ADK says it."""

    state_delta: dict[str, Any] | None = None
    """By key: `app:` and `user:` keys are shared, `temp:` ones are never stored."""
    artifact_delta: dict[str, int] | None = None
    """Versions by name; kept."""
    transfer_to_agent: str | None = None
    """Who goes on."""
    transfer_reason: str | None = None
    """Kept."""
    skip_summarization: bool | None = None
    """A result that ends its invocation without a further word."""
    requested_tool_confirmations: dict[str, ConfirmationShape] | None = None
    """By call id: these calls wait for the user."""
    requested_auth_configs: dict[str, Any] | None = None
    """By call id: these calls wait for a credential."""
    rewind_before_invocation_id: str | None = None
    """A rewind, as ADK records it."""
    compaction: RecordedCompaction | None = None
    """A summary, as ADK records it."""
    escalate: bool | None = None
    """Kept."""
    end_of_agent: bool | None = None
    """Kept."""
    agent_state: Any = None
    """Kept."""
    route: Any = None
    """Kept."""
    render_ui_widgets: Any = None
    """Kept."""
    set_model_response: Any = None
    """Kept."""


class EventShape(BaseModel):
    """An event. Members that are not named here are kept, and noted in `warnings`."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    id: Name | None = None
    """The caller's own, by which a repeat is known; null: ours."""
    author: Name | None = None
    """`user`, or the agent's name."""
    content: ContentShape | str | None = None
    """What was said; of a plain text the author tells the role."""
    invocation_id: Name | None = None
    """Of the turn that it belongs to, from the user's message to the last answer."""
    invocation_complete: bool | None = None
    """The invocation ends with it, whatever it looks like."""
    timestamp: float | str | None = None
    """Seconds since 1970, or as in RFC 3339; null: now. Order goes by seq."""
    partial: bool | None = None
    """A fragment of a stream: answered, never stored."""
    compiled_seq: Annotated[int, Field(ge=0)] | None = None
    """Of a reply: what the compile that it answers was compiled at."""
    compiled_fingerprint: str | None = None
    """Of a reply: the fingerprint of that compile."""
    response_id: Name | None = None
    """The provider's, of the response that the event is a part of."""
    branch: PathText | None = None
    """The line of agents that it belongs to, as in `root.child`."""
    isolation_scope: PathText | None = None
    """The call id of the scope that it belongs to."""
    node_info: dict[str, Any] | None = None
    """`path` of the workflow's node; `output_for` and `message_as_output` are kept."""
    long_running_tool_ids: list[str] | None = None
    """Calls of which the result may come late."""
    actions: ActionsShape | None = None
    """What it changes."""
    usage_metadata: dict[str, Any] | None = None
    """What the provider reported, in its own shape."""
    cache_metadata: dict[str, Any] | None = None
    """Of an explicit cache: what `cache.lifecycle` answered, `cache_name` and `expire_time`."""
    input_transcription: dict[str, Any] | None = None
    """`text` of what was heard."""
    output_transcription: dict[str, Any] | None = None
    """`text` of what was spoken."""
    error_code: str | None = None
    """Why the model gave nothing."""
    live_session_id: str | None = None
    """Of a live session, whose events are not replies."""
    custom_metadata: dict[str, Any] | None = None
    """The caller's own; kept."""


#: By request model: members whose elements are events.
LISTS_OF_EVENTS: Final = {
    "AppendRequest": "events",
    "CompileBody": "append",
    "StatelessCompileBody": "events",
}


def describe_events(schemas: dict[str, Any], *, ref: str) -> None:
    """Add the shape of an event to a document, and name it where events are sent.

    Args:
        schemas: of the document, by name.
        ref: how one is referred to, with its name left open.
    """
    schema = EventShape.model_json_schema(ref_template=ref)
    schemas |= schema.pop("$defs")
    schemas[EventShape.__name__] = schema
    for model, member in LISTS_OF_EVENTS.items():
        told = schemas[model]["properties"][member]
        lists = [each for each in told.get("anyOf", [told]) if each.get("type") == "array"]
        lists[0]["items"] = {"$ref": ref.format(model=EventShape.__name__)}
