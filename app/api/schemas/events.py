"""Events, rewinds and pins on the wire."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from app.api.schemas.fields import (
    MAX_PAGE,
    BranchPath,
    Order,
    Position,
    QueryModel,
    RequestModel,
    Seq,
    Warned,
    Word,
)
from app.api.schemas.sessions import NewSessionRequest
from app.core.canonical import Json, canonical_json, json_string
from app.core.json_text import split_members
from app.core.lanes import Reader
from app.formats.adk import parse_time
from app.ports import EventFilter
from app.services.append_events import AppendResult
from app.services.pin_events import Pins
from app.services.prepare_events import SERVER_KEYS, Note
from app.services.read_events import EventPage, EventView
from app.services.resume_invocation import InvocationView
from app.services.schedule_compaction import Scheduled

ImportFormat = Literal[
    "adk", "native", "gemini", "openai_chat", "openai_responses", "anthropic", "bedrock"
]


class AppendRequest(RequestModel):
    """Events in ADK's shape, or items of a provider's format."""

    events: list[Any] | None = None
    format: ImportFormat | None = None
    items: list[Any] | None = None
    #: Author of the model's messages among the items.
    agent: Word | None = None
    expected_seq: Position | None = None
    create: NewSessionRequest | None = None

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        if (self.events is None) == (self.items is None):
            raise ValueError("exactly one of events and items is needed")
        if self.items is not None and self.format is None:
            raise ValueError("items need a format")
        if self.events is not None and self.format is not None:
            raise ValueError("format belongs to items; events are native")
        return self


class Appended(BaseModel):
    """What became of one event."""

    id: str
    seq: int | None
    tokens: int
    duplicate: bool
    item: int
    stored: bool | None = None


class ScheduledAnswer(BaseModel):
    """Whether a fold became due, and the job that sees to it."""

    scheduled: bool
    reason: str | None = None
    job_id: str | None = None


class AppendAnswer(BaseModel):
    """What an append did."""

    appended: list[Appended]
    head_seq: int
    warnings: list[Warned]
    compaction: ScheduledAnswer


def append_answer(result: AppendResult) -> dict[str, Any]:
    """Return what an append did, as it is answered."""
    appended: list[dict[str, Any]] = []
    for each in result.appended:
        entry: dict[str, Any] = {
            "id": each.id,
            "seq": each.seq,
            "tokens": each.tokens,
            "duplicate": each.is_duplicate,
            "item": each.item,
        }
        if each.seq is None:
            entry["stored"] = False
        appended.append(entry)
    return {
        "appended": appended,
        "head_seq": result.head_seq,
        "warnings": [warning_answer(note) for note in result.notes],
        "compaction": scheduled_answer(result.compaction),
    }


def scheduled_answer(scheduled: Scheduled) -> dict[str, Any]:
    """Return whether a fold became due, as an append answers it."""
    if not scheduled.is_due:
        return {"scheduled": False}
    return {"scheduled": True, "reason": scheduled.reason, "job_id": scheduled.job_id}


def warning_answer(note: Note) -> dict[str, str]:
    """Return a note as it is answered."""
    return {"pointer": note.pointer, "detail": note.detail}


def _time(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        number: Json = float(value)
    except ValueError:
        number = value
    # A plus sign that was not escaped arrives as a blank.
    if isinstance(number, str):
        number = number.replace(" ", "+") if "T" in number else number
    return parse_time(number, "/query/after_time")


class ReaderQuery(QueryModel):
    """Whose view is wanted; none of them: an operator's."""

    reader_agent: Word | None = Field(default=None, alias="reader.agent")
    reader_branch: BranchPath | None = Field(default=None, alias="reader.branch")
    reader_scope: Word | None = Field(default=None, alias="reader.isolation_scope")

    @property
    def reader(self) -> Reader | None:
        """The reader, None for an operator."""
        if (self.reader_agent, self.reader_branch, self.reader_scope) == (None, None, None):
            return None
        return Reader(
            agent=self.reader_agent or "",
            branch=self.reader_branch or "",
            isolation_scope=self.reader_scope,
        )


class EventsQuery(ReaderQuery):
    """Which events to list."""

    after_seq: Position | None = None
    before_seq: Position | None = None
    #: Not before this time.
    after_time: Annotated[float, BeforeValidator(_time)] | None = None
    #: The newest so many, in log order.
    last: Annotated[int, Field(ge=1, le=MAX_PAGE)] | None = None
    author: Word | None = None
    branch: BranchPath | None = None
    invocation_id: Word | None = None
    kind: Word | None = None
    status: Literal["live", "masked", "rewound", "marker"] | None = None
    as_of_seq: Position | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    order: Order = "asc"
    after: str | None = None
    before: str | None = None

    def to_domain(self, *, after_seq: int | None, before_seq: int | None) -> EventFilter:
        """Return the filter, with the bounds that follow from cursors."""
        return EventFilter(
            after_seq=after_seq,
            before_seq=before_seq,
            after_time=self.after_time,
            last=self.last,
            author=self.author,
            branch=self.branch,
            invocation_id=self.invocation_id,
            kind=self.kind,
            status=self.status,
            reader=self.reader,
            limit=self.limit if self.last is None else self.last,
            descending=self.order == "desc",
        )


class StreamQuery(ReaderQuery):
    """Whose view to stream, and from where; `Last-Event-ID` goes before it."""

    after_seq: Position | None = None


def event_text(view: EventView) -> str:
    """Return an event as JSON text: its own members as they were sent, and what we know of it."""
    members = split_members(view.body)
    own = [(key, text) for key, text in members if key not in SERVER_KEYS]
    names = {key for key, text in own if text != "null"}
    logged = view.logged
    added: dict[str, Json] = {}
    if "id" not in names:
        added["id"] = logged.id
    added["seq"] = logged.seq
    added["status"] = view.status
    added["masked_by"] = view.masked_by
    added["tokens"] = logged.tokens
    if "author" not in names:
        added["author"] = logged.author
    if "timestamp" not in names:
        added["timestamp"] = logged.timestamp
    pieces = [f"{json_string(key)}:{canonical_json(value)}" for key, value in added.items()]
    pieces += [f"{json_string(key)}:{text}" for key, text in own if key not in added]
    return "{" + ",".join(pieces) + "}"


def events_page_text(page: EventPage, cursor: str | None) -> str:
    """Return a page of events as JSON text."""
    data = ",".join(map(event_text, page.events))
    has_more = "true" if page.has_more else "false"
    return f'{{"data":[{data}],"next":{canonical_json(cursor)},"has_more":{has_more}}}'


class EventAnswer(BaseModel):
    """An event: its own members as they were sent, with these added."""

    id: str
    seq: int
    status: Literal["live", "masked", "rewound", "marker"]
    masked_by: int | None
    tokens: int
    author: str
    timestamp: float | str


class EventsPage(BaseModel):
    """A page of events."""

    data: list[EventAnswer]
    next: str | None
    has_more: bool


class OpenCallAnswer(BaseModel):
    """A call without a result."""

    call_id: str | None
    name: str
    seq: int


class InvocationAnswer(BaseModel):
    """Where to resume an invocation."""

    invocation_id: str
    complete: bool
    open_calls: list[OpenCallAnswer]
    agent_state: dict[str, Any]
    events: list[EventAnswer]


def invocation_text(view: InvocationView) -> str:
    """Return an invocation as JSON text."""
    calls: Json = [
        {"call_id": call.call_id, "name": call.name, "seq": call.seq} for call in view.open_calls
    ]
    head = canonical_json(
        {
            "invocation_id": view.invocation_id,
            "complete": view.is_complete,
            "open_calls": calls,
            "agent_state": dict(view.agent_state),
        }
    )
    events = ",".join(map(event_text, view.events))
    return f'{head[:-1]},"events":[{events}]}}'


class RewindRequestBody(RequestModel):
    """Where to rewind to."""

    before_invocation_id: Word | None = None
    to_seq: Position | None = None
    expected_seq: Position | None = None


class PinsRequest(RequestModel):
    """Which events to pin or unpin."""

    seqs: Annotated[list[Seq], Field(max_length=1000)] | None = None
    last_turn: bool = False
    first: Annotated[int, Field(ge=1, le=1000)] | None = None
    expected_seq: Position | None = None


class PinAnswer(BaseModel):
    """A pinned event."""

    seq: int
    tokens: int
    marker_seq: int


class PinsAnswer(BaseModel):
    """What is pinned."""

    pins: list[PinAnswer]
    tokens: int


def pins_answer(pins: Pins) -> dict[str, Any]:
    """Return what is pinned, as it is answered."""
    return {
        "pins": [
            {"seq": pin.seq, "tokens": pin.tokens, "marker_seq": pin.marker_seq}
            for pin in pins.pins
        ],
        "tokens": pins.tokens,
    }
