"""Sessions on the wire."""

from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema

from app.api.schemas.fields import (
    MAX_PAGE,
    AnswerModel,
    JsonObject,
    Order,
    Position,
    QueryModel,
    RequestModel,
    SessionIdText,
    Warned,
    Word,
    cleaned,
)
from app.api.schemas.policies import PolicyRequest
from app.core.session_state import split_state
from app.ports import NewSession, SessionKey
from app.services.sessions import SessionChange, SessionView

TtlSeconds: TypeAlias = Annotated[int, Field(ge=1, le=100 * 366 * 24 * 3600)]


def _clean_object(value: JsonObject) -> JsonObject:
    result = cleaned(value)
    assert isinstance(result, dict)
    return result


CleanObject: TypeAlias = Annotated[JsonObject, AfterValidator(_clean_object)]
PolicyObject: TypeAlias = Annotated[CleanObject, WithJsonSchema(PolicyRequest.model_json_schema())]


class NewSessionRequest(RequestModel):
    """What a session is made with."""

    app_name: Word
    """Fixed for good."""
    user_id: Word
    """Fixed for good."""
    state: CleanObject = Field(default_factory=dict)
    """At the start; `app:` and `user:` keys are shared, `temp:` ones dropped."""
    policy: PolicyObject | None = None
    """When to fold; null: the app's, else the server's."""
    metadata: CleanObject = Field(default_factory=dict)
    """The caller's own, to filter by."""
    ttl_s: TtlSeconds | None = None
    """Seconds from the last append after which it is erased; null: never."""

    def to_domain(self) -> NewSession:
        """Return the new session, its state split by scope."""
        state = split_state(self.state)
        return NewSession(
            app_name=self.app_name,
            user_id=self.user_id,
            state=state.session,
            app_state=state.app,
            user_state=state.user,
            policy=self.policy,
            metadata=self.metadata,
            ttl_s=self.ttl_s,
        )


class SessionPatch(RequestModel):
    """A merge patch: what is not named stays, null takes away."""

    policy: CleanObject | None = None
    """A merge patch of a policy (`PolicyRequest`); null: the app's, else the server's."""
    metadata: CleanObject | None = None
    """A merge patch."""
    ttl_s: TtlSeconds | None = None
    """Seconds from the last append after which it is erased; null: never."""

    def to_domain(self, key: SessionKey, expected_seq: int | None) -> SessionChange:
        """Return the change."""
        return SessionChange(
            key=key,
            named=frozenset(self.model_fields_set),
            policy=self.policy,
            metadata=self.metadata,
            ttl_s=self.ttl_s,
            expected_seq=expected_seq,
        )


class ForkRequest(RequestModel):
    """A new session that begins with the events of this one."""

    new_id: SessionIdText
    """Of the new session; must be free."""
    at_seq: Position | None = None
    """The last event to copy; null: all."""
    metadata: CleanObject = Field(default_factory=dict)
    """Of the new session."""


class SessionsQuery(QueryModel):
    """Which sessions to list; further parameters are `metadata.<key>=<text>`."""

    app_name: Word | None = None
    """Only sessions of this app."""
    user_id: Word | None = None
    """Only sessions of this user."""
    updated_after: datetime | None = None
    """Only sessions that changed after this time: RFC 3339."""
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    """The most entries of a page."""
    order: Order = "desc"
    """By the time of the last change."""
    after: str | None = None
    """Cursor that a page answered as `next`; it goes with the same filters and order."""


class SessionStats(AnswerModel):
    """Sizes of a session."""

    events: int
    """Events of the log, markers among them."""
    live_events: int
    """Events that are read as they are."""
    tokens_raw: int
    """Our count of all events."""
    tokens_live: int
    """Our count of what is read: live events and summaries."""
    compactions: int
    """Folds of the log, used or not."""


class SessionAnswer(AnswerModel):
    """A session."""

    id: str
    """As the caller chose it."""
    app_name: str
    """Whose agents it is of."""
    user_id: str
    """Whom they talk to."""
    head_seq: int
    """The last seq of the log; 0: it is empty."""
    state: dict[str, Any]
    """Session, `app:` and `user:` keys in one view."""
    policy: dict[str, Any] | None
    """Of its own; null: the app's, else the server's."""
    metadata: dict[str, Any]
    """The caller's own."""
    ttl_s: int | None = None
    """Seconds from the last append after which it is erased; null: never."""
    forked_from: str | None = None
    """The session that it began as a copy of."""
    created_at: datetime
    """RFC 3339, UTC."""
    updated_at: datetime
    """Of the last append or change; RFC 3339, UTC."""
    stats: SessionStats
    """Sizes of the log."""
    warnings: list[Warned] = Field(default_factory=list)
    """Where the session was there already: what it has otherwise than asked for."""


class SessionsPage(AnswerModel):
    """A page of sessions."""

    data: list[SessionAnswer]
    """In the order asked for."""
    next: str | None
    """Cursor for `after` of the page that follows; null on the last page."""
    has_more: bool
    """Whether anything follows this page."""


def session_answer(view: SessionView) -> dict[str, Any]:
    """Return a session as it is answered."""
    row = view.row
    answer: dict[str, Any] = {
        "id": row.key.session_id,
        "app_name": row.app_name,
        "user_id": row.user_id,
        "head_seq": row.head_seq,
        "state": dict(view.state),
        "policy": row.policy,
        "metadata": dict(row.metadata),
        "ttl_s": row.ttl_s,
        "created_at": row.created_at.astimezone(UTC).isoformat(),
        "updated_at": row.updated_at.astimezone(UTC).isoformat(),
        "stats": {
            "events": row.events,
            "live_events": row.live_events,
            "tokens_raw": row.tokens_raw,
            "tokens_live": row.tokens_live,
            "compactions": row.compactions,
        },
    }
    if row.forked_from is not None:
        answer["forked_from"] = row.forked_from
    if view.differing:
        answer["warnings"] = [
            {"pointer": f"/{name}", "detail": "the session has another one: PATCH changes it"}
            if name != "state"
            else {"pointer": "/state", "detail": "only events change the state of a session"}
            for name in view.differing
        ]
    return answer
