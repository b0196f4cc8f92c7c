"""Recall, expand and elide on the wire: originals are read, or left out of what is compiled."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.api.schemas.events import EventAnswer, event_text
from app.api.schemas.fields import (
    MAX_PAGE,
    AnswerModel,
    BranchPath,
    Position,
    QueryText,
    RequestModel,
    ScopeName,
    Seq,
    Word,
)
from app.core.canonical import canonical_json
from app.core.errors import InvalidInputError
from app.core.lanes import Reader
from app.ports import SessionKey
from app.services.expand_events import DEFAULT_MAX_TOKENS, Expanded, Expansion
from app.services.recall_events import Recall, Recalled

MAX_TOKENS = 1_000_000
MAX_KEEP_CHARS = 1_000_000


class ReaderFields(RequestModel):
    """Whose view is wanted."""

    agent: Word | None = None
    """Its name; null: nothing is foreign."""
    branch: BranchPath = ""
    """Dotted agent path; an agent sees its own line upward, and from the root, which is the
    empty path, all of its scope."""
    isolation_scope: ScopeName | None = None
    """Only events of this scope; null: outside of any."""
    node_path: BranchPath = ""
    """Of a graph's node, whose own inputs it sees."""

    def to_domain(self) -> Reader:
        """Return the reader."""
        return Reader(
            agent=self.agent or "",
            branch=self.branch,
            isolation_scope=self.isolation_scope,
            node_path=self.node_path,
        )


class RecallRequest(RequestModel):
    """What to look for."""

    query: QueryText
    """What is looked for."""
    mode: Literal["text", "regex"] = "text"
    """`text`: words or pieces of them, in any order and case; `regex`: a pattern as Postgres reads
    them (advanced regular expressions), of which case matters unless it says `(?i)`."""
    scope: Literal["all", "live", "masked", "rewound"] = "all"
    """`all` is everything that no rewind undid."""
    limit: Annotated[int, Field(ge=1, le=100)] = 10
    """The most hits."""
    before_seq: Seq | None = None
    """Only events before this one: to go on where a search ended."""
    reader: ReaderFields | None = None
    """Only what this reader may see; null: everything."""

    def to_domain(self, key: SessionKey) -> Recall:
        """Return what to look for."""
        return Recall(
            key=key,
            query=self.query,
            mode=self.mode,
            scope=self.scope,
            limit=self.limit,
            before_seq=self.before_seq,
            reader=None if self.reader is None else self.reader.to_domain(),
        )


class HitAnswer(AnswerModel):
    """An event that holds what was looked for."""

    seq: int
    """The event."""
    kind: str
    """What of it matched: `text`, `function_call` and the like."""
    snippet: str
    """The text around the match."""
    score: float
    """Higher is better."""
    summary_seq: int | None = None
    """The fold that stands for the event, if one does."""


class RecallAnswer(AnswerModel):
    """What was found, best first."""

    hits: list[HitAnswer]
    """As many as were asked for, at most."""
    complete: bool
    """False when something was left out: time ran out, or there is more than `limit`."""
    next_before_seq: int | None
    """Where to go on, as `before_seq`; null when nothing is left, or what is left may stand
    anywhere: a larger `limit` finds it."""


def recall_answer(recalled: Recalled) -> dict[str, Any]:
    """Return what was found, as it is answered."""
    return {
        "hits": [
            {
                "seq": each.hit.seq,
                "kind": each.hit.kind,
                "snippet": each.hit.snippet,
                "score": each.hit.score,
                "summary_seq": each.summary_seq,
            }
            for each in recalled.hits
        ],
        "complete": recalled.is_complete,
        "next_before_seq": recalled.next_before_seq,
    }


class ExpandRequest(RequestModel):
    """What to open: summaries, a span, or of summaries what lies within the span."""

    summary_seqs: Annotated[list[Seq], Field(min_length=1, max_length=MAX_PAGE)] | None = None
    """Folds to open; these or a span."""
    from_seq: Seq | None = None
    """The first event of a span."""
    to_seq: Seq | None = None
    """The last event of a span."""
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = DEFAULT_MAX_TOKENS
    """The most tokens of the answer, by our count; at least one event is answered."""
    query: QueryText | None = None
    """Only events that hold these words."""
    reader: ReaderFields | None = None
    """Only what this reader may see; null: everything."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.summary_seqs is None and self.from_seq is None and self.to_seq is None:
            raise ValueError("summary_seqs, from_seq or to_seq is needed")
        if self.from_seq is not None and self.to_seq is not None and self.from_seq > self.to_seq:
            raise InvalidInputError("from_seq is above to_seq", pointer="/from_seq")
        return self

    def to_domain(self, key: SessionKey) -> Expansion:
        """Return what to open."""
        return Expansion(
            key=key,
            summary_seqs=self.summary_seqs,
            from_seq=self.from_seq,
            to_seq=self.to_seq,
            max_tokens=self.max_tokens,
            query=self.query,
            reader=None if self.reader is None else self.reader.to_domain(),
        )


class ElisionRequestBody(RequestModel):
    """Which events to read as stubs."""

    seqs: Annotated[list[Seq], Field(min_length=1, max_length=MAX_PAGE)]
    """Events to be read as stubs."""
    keep_chars: Annotated[int, Field(ge=0, le=MAX_KEEP_CHARS)] = 0
    """So many characters of each body stay."""
    expected_seq: Position | None = None
    """Seq at which the head must still be, else 412; as `If-Match` says it."""


class ExpandAnswer(AnswerModel):
    """Originals in log order."""

    events: list[EventAnswer]
    """The originals, in log order."""
    truncated: bool
    """Whether there is more than was asked for."""
    next_seq: int | None
    """Where the rest begins, as `from_seq`."""


def expand_text(expanded: Expanded) -> str:
    """Return originals as JSON text."""
    events = ",".join(map(event_text, expanded.events))
    truncated = canonical_json(expanded.is_truncated)
    next_seq = canonical_json(expanded.next_seq)
    return f'{{"events":[{events}],"truncated":{truncated},"next_seq":{next_seq}}}'
