"""Events, rewinds and pins on the wire."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from app.api.schemas.fields import (
    MAX_PAGE,
    AnswerModel,
    BranchPath,
    FieldRuleError,
    Order,
    Position,
    QueryModel,
    RequestModel,
    ScopeName,
    Seq,
    Warned,
    Word,
    only_one_of,
)
from app.api.schemas.sessions import NewSessionRequest
from app.core.canonical import Json, canonical_json, json_string
from app.core.errors import InvalidInputError
from app.core.events import EventKind
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

AFTER_TIME: Final = "/query/after_time"

ImportFormat = Literal[
    "adk", "native", "gemini", "openai_chat", "openai_responses", "anthropic", "bedrock"
]


class AppendRequest(RequestModel):
    """Events in ADK's shape, or items of a provider's format."""

    events: list[Any] | None = None
    """Events in ADK's shape, either case; these or `items`."""
    format: ImportFormat | None = None
    """Of the items."""
    items: list[Any] | None = None
    """Messages or items of a provider, sessions or events of ADK."""
    agent: Word | None = None
    """Author of the model's messages among the items; null: the session's `app_name`."""
    expected_seq: Position | None = None
    """Seq at which the head must still be, else 412; as `If-Match` says it. Folds that came since,
    and their activations, are passed over: they are made in the background."""
    create: NewSessionRequest | None = None
    """What the session is made with, if there is none; of another app or user: 412."""

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        only_one_of(self, "events", "items")
        if self.items is not None and self.format is None:
            raise FieldRuleError("items need one", "format")
        if self.events is not None and self.format is not None:
            raise FieldRuleError("belongs to items; events are native", "format")
        return self


class Appended(AnswerModel):
    """What became of one event."""

    id: str
    """Of the event."""
    seq: int | None
    """Its place in the log, from 1; null of a partial one."""
    tokens: int
    """Our count of all its parts."""
    duplicate: bool
    """Whether it was there already, with this body."""
    item: int
    """Index of what it was made of, in `events` or `items`."""
    stored: bool | None = None
    """False of a partial event, which never is."""


class ScheduledAnswer(AnswerModel):
    """Whether a fold became due, and the job that sees to it."""

    scheduled: bool
    """Whether a fold became due."""
    reason: str | None = None
    """What made it due, as a word."""
    job_id: str | None = None
    """To ask for at `/v1/jobs/{id}`."""


class AppendAnswer(AnswerModel):
    """What an append did."""

    appended: list[Appended]
    """One entry for each event, in order."""
    head_seq: int
    """The last seq of the log."""
    warnings: list[Warned]
    """What could not be taken as it came."""
    compaction: ScheduledAnswer
    """Whether a fold became due."""


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
    try:
        return parse_time(number, AFTER_TIME)
    except InvalidInputError:
        detail = "must be RFC 3339, or epoch seconds or milliseconds"
        raise InvalidInputError(detail, pointer=AFTER_TIME) from None


class ReaderQuery(QueryModel):
    """Whose view is wanted; none of them: an operator's."""

    reader_agent: Word | None = Field(default=None, alias="reader.agent")
    """Only what this agent may see."""
    reader_branch: BranchPath | None = Field(default=None, alias="reader.branch")
    """Only what an agent of this branch may see; empty: all branches."""
    reader_scope: ScopeName | None = Field(default=None, alias="reader.isolation_scope")
    """Only what an agent of this isolation scope may see."""

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
    """Only events after this one."""
    before_seq: Position | None = None
    """Only events before this one."""
    after_time: Annotated[float, BeforeValidator(_time)] | None = None
    """Not before this time: RFC 3339, or epoch seconds or milliseconds."""
    last: Annotated[int, Field(ge=1, le=MAX_PAGE)] | None = None
    """The newest so many; in log order unless `order` says otherwise, whatever `limit` says."""
    author: Word | None = None
    """Only events of this author."""
    branch: BranchPath | None = None
    """Only events of this very branch."""
    invocation_id: Word | None = None
    """Only events of this invocation."""
    kind: EventKind | None = None
    """Only messages, or only markers of one kind."""
    status: Literal["live", "masked", "rewound", "marker"] | None = None
    """Only events that are read so at the head."""
    as_of_seq: Position | None = None
    """The log as it was at this seq."""
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    """The most entries of a page."""
    order: Order = "asc"
    """By seq."""
    after: str | None = None
    """Cursor that a page answered as `next`; it goes with the same filters and order."""
    before: str | None = None
    """Cursor of a page: the page just before that one, in the same order; its `next` then goes on
    as `before`. Beside `after` it only ends what is listed."""

    @property
    def is_back(self) -> bool:
        """Tell whether pages are asked for that come before one another."""
        return self.before is not None and self.after is None

    def to_domain(self, *, after_seq: int | None, before_seq: int | None) -> EventFilter:
        """Return the filter, with the bounds that follow from cursors; a page before another is
        listed from its end."""
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
            descending=(self.order == "desc") is not self.is_back,
        )


class StreamQuery(ReaderQuery):
    """Whose view to stream, and from where; `Last-Event-ID` goes before it."""

    after_seq: Position | None = None
    """Begin after this event; without it, and without `Last-Event-ID`, at the head."""


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


class EventAnswer(AnswerModel):
    """An event: its own members as they were sent, with these added."""

    id: str
    """Of the event."""
    seq: int
    """Its place in the log, from 1."""
    status: Literal["live", "masked", "rewound", "marker"]
    """How it is read now."""
    masked_by: int | None
    """The fold that stands for it, by seq."""
    tokens: int
    """Our count of all its parts."""
    author: str
    """`user`, or an agent's name."""
    timestamp: float | str
    """As it was sent, else when it was appended."""


class EventsPage(AnswerModel):
    """A page of events."""

    data: list[EventAnswer]
    """In the order asked for."""
    next: str | None
    """Cursor for `after` of the page that follows; null on the last page."""
    has_more: bool
    """Whether anything follows this page."""


class OpenCallAnswer(AnswerModel):
    """A call without a result."""

    call_id: str | None
    """As the model gave it; null when it gave none."""
    name: str
    """Of the tool."""
    seq: int
    """Of the call's event."""


class InvocationAnswer(AnswerModel):
    """Where to resume an invocation."""

    invocation_id: str
    """As its events name it."""
    complete: bool
    """Whether nothing is left to do."""
    open_calls: list[OpenCallAnswer]
    """Calls without a result."""
    agent_state: dict[str, Any]
    """The newest state that each of its agents left."""
    events: list[EventAnswer]
    """In log order."""


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
    """Undo this invocation and what follows; this or `to_seq`."""
    to_seq: Position | None = None
    """The last event that stays; 0: none does."""
    expected_seq: Position | None = None
    """Seq at which the head must still be, else 412; as `If-Match` says it."""


class PinsRequest(RequestModel):
    """Which events to pin or unpin."""

    seqs: Annotated[list[Seq], Field(max_length=1000)] | None = None
    """Events by seq, each with its whole call group; these, `last_turn` or `first`."""
    last_turn: bool = False
    """The newest user message and all that follows."""
    first: Annotated[int, Field(ge=1, le=1000)] | None = None
    """So many events from the start."""
    expected_seq: Position | None = None
    """Seq at which the head must still be, else 412; as `If-Match` says it."""


class PinAnswer(AnswerModel):
    """A pinned event."""

    seq: int
    """The event."""
    tokens: int
    """Our count of it."""
    marker_seq: int
    """The event that pinned it."""


class PinsAnswer(AnswerModel):
    """What is pinned."""

    pins: list[PinAnswer]
    """By seq."""
    tokens: int
    """All of them together, by our count."""


def pins_answer(pins: Pins) -> dict[str, Any]:
    """Return what is pinned, as it is answered."""
    return {
        "pins": [
            {"seq": pin.seq, "tokens": pin.tokens, "marker_seq": pin.marker_seq}
            for pin in pins.pins
        ],
        "tokens": pins.tokens,
    }
