"""Sessions on the wire."""

from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, Field

from app.api.schemas.fields import (
    MAX_PAGE,
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
from app.core.session_state import split_state
from app.ports import NewSession, SessionKey
from app.services.sessions import SessionChange, SessionView

TtlSeconds: TypeAlias = Annotated[int, Field(ge=1, le=100 * 366 * 24 * 3600)]


def _clean_object(value: JsonObject) -> JsonObject:
    result = cleaned(value)
    assert isinstance(result, dict)
    return result


CleanObject: TypeAlias = Annotated[JsonObject, AfterValidator(_clean_object)]


class NewSessionRequest(RequestModel):
    """What a session is made with."""

    app_name: Word
    user_id: Word
    state: CleanObject = Field(default_factory=dict)
    policy: CleanObject | None = None
    metadata: CleanObject = Field(default_factory=dict)
    ttl_s: TtlSeconds | None = None

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
    metadata: CleanObject | None = None
    ttl_s: TtlSeconds | None = None

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
    at_seq: Position | None = None
    metadata: CleanObject = Field(default_factory=dict)


class SessionsQuery(QueryModel):
    """Which sessions to list; further parameters are `metadata.<key>=<text>`."""

    app_name: Word | None = None
    user_id: Word | None = None
    updated_after: datetime | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    order: Order = "desc"
    after: str | None = None


class SessionStats(BaseModel):
    """Sizes of a session."""

    events: int
    live_events: int
    tokens_raw: int
    tokens_live: int
    compactions: int


class SessionAnswer(BaseModel):
    """A session."""

    id: str
    app_name: str
    user_id: str
    head_seq: int
    state: dict[str, Any]
    policy: dict[str, Any] | None
    metadata: dict[str, Any]
    ttl_s: int | None = None
    forked_from: str | None = None
    created_at: datetime
    updated_at: datetime
    stats: SessionStats
    warnings: list[Warned] = []


class SessionsPage(BaseModel):
    """A page of sessions."""

    data: list[SessionAnswer]
    next: str | None
    has_more: bool


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
