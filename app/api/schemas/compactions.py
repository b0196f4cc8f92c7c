"""Summaries and compactions on the wire."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from app.api.schemas.events import warning_answer
from app.api.schemas.fields import (
    MAX_PAGE,
    MAX_SEQ,
    AnswerModel,
    BranchPath,
    Position,
    QueryModel,
    RequestModel,
    ScopeName,
    Seq,
    WaitMs,
    Warned,
    only_one_of,
)
from app.api.schemas.policies import SummarizerChoice
from app.core.canonical import Json
from app.core.contents import Part
from app.core.errors import InvalidInputError
from app.core.events import USER
from app.core.policy import validate_policy
from app.formats.adk import parse_content, part_to_native
from app.ports import Job, SessionKey
from app.services.compaction_jobs import Asked, Mode
from app.services.fold_events import CallersSummary, FoldView, SectionView
from app.services.idempotency import IdempotentRequest
from app.services.prepare_events import Note

#: More than this is no summary of a part of a session any more.
MAX_SEQS = 10_000
MAX_LEVEL = 100

#: What is answered of how a fold came about.
DETAILS: Final = (
    "summarizer",
    "model",
    "duration_ms",
    "moment",
    "usage",
    "attempts",
    "fallback_reason",
)

FoldStatusText = Literal["staged", "active", "superseded", "rewound", "undone"]


class Span(RequestModel):
    """A closed span of the log."""

    from_seq: Seq
    """The first event."""
    to_seq: Seq
    """The last event."""


class SummaryRequest(RequestModel):
    """A summary that the caller made, of one lane."""

    covers: Span | None = None
    """The span that the summary stands for; this or `seqs`."""
    seqs: Annotated[list[Seq], Field(min_length=1, max_length=MAX_SEQS)] | None = None
    """The events that the summary stands for."""
    content: str | dict[str, Any]
    """The summary: a text, or a content without calls and thoughts, which is read as the user's; an
    opaque block needs its text twin."""
    level: Annotated[int, Field(ge=1, le=MAX_LEVEL)] = 1
    """1 of events, higher of summaries."""
    branch: BranchPath = ""
    """The lane of the events; others in the span stay live."""
    isolation_scope: ScopeName | None = None
    """The lane of the events; null: outside of any scope."""
    activation: Literal["immediate", "staged"] = "immediate"
    """`staged` is used later, when it is activated."""
    expected_seq: Position | None = None
    """Seq at which the head must still be, else 412; as `If-Match` says it."""

    @model_validator(mode="after")
    def _names_what_it_covers(self) -> Self:
        only_one_of(self, "covers", "seqs")
        if self.covers is not None and self.covers.from_seq > self.covers.to_seq:
            raise InvalidInputError("from_seq is above to_seq", pointer="/covers/from_seq")
        return self

    def to_domain(
        self, key: SessionKey, expected_seq: int | None, idempotent: IdempotentRequest | None
    ) -> CallersSummary:
        """Return the summary."""
        seqs = self.seqs or []
        span = (min(seqs), max(seqs)) if seqs else (0, 0)
        if self.covers is not None:
            span = (self.covers.from_seq, self.covers.to_seq)
        parts, notes = self._content()
        return CallersSummary(
            key=key,
            from_seq=span[0],
            to_seq=span[1],
            seqs=self.seqs,
            parts=parts,
            level=self.level,
            branch=self.branch,
            isolation_scope=self.isolation_scope,
            is_staged=self.activation == "staged",
            expected_seq=expected_seq,
            idempotent=idempotent,
            notes=notes,
        )

    def _content(self) -> tuple[tuple[Part, ...], tuple[Note, ...]]:
        """Return the parts, and what could not be taken as it came."""
        told: Json = self.content
        if isinstance(told, str):
            told = {"role": USER, "parts": [{"text": told}]}
        notes: list[tuple[str, str]] = []
        content = parse_content(told, "/content", notes)
        if content.role not in ("", USER):
            notes = [note for note in notes if note[0] != "/content/role"]
            notes.append(("/content/role", "a summary is read as the user's"))
        if isinstance(self.content, str):
            notes = [("/content", detail) for _, detail in notes]
        return content.parts, tuple(Note(pointer, detail) for pointer, detail in notes)


class CompactionsQuery(QueryModel):
    """Which compactions to list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    """The most entries of a page."""
    after: str | None = None
    """Cursor that a page answered as `next`; it goes with the same filters and order."""


class CompactionRequest(RequestModel):
    """What to fold now, by the policy or by hand."""

    mode: Mode = "auto"
    """What to fold: what the policy's rule of this name says, or a span of the caller's."""
    from_seq: Seq | None = None
    """Of `range`: the first event; null: the oldest."""
    to_seq: Seq | None = None
    """Of `range`: the last event; null: the newest."""
    keep_last: Annotated[int, Field(ge=1, le=MAX_SEQ)] | None = None
    """Of `range`: so many of the newest live events stay."""
    branch: BranchPath | None = None
    """Of `range`: only events of this branch."""
    summarizer: SummarizerChoice | None = None
    """In place of the policy's: a kind, or an object as in a policy."""
    wait_ms: WaitMs = 0
    """How long to wait for the fold before answering 202, in milliseconds."""

    @model_validator(mode="after")
    def _names_a_range_by_its_mode(self) -> Self:
        for field in ("from_seq", "to_seq", "keep_last", "branch"):
            if self.mode != "range" and getattr(self, field) is not None:
                raise InvalidInputError("belongs to mode range", pointer=f"/{field}")
        if self.from_seq and self.to_seq and self.from_seq > self.to_seq:
            raise InvalidInputError("from_seq is above to_seq", pointer="/from_seq")
        return self

    def to_domain(self) -> Asked:
        """Return what is asked for.

        Raises:
            InvalidInputError: the summarizer is none.
        """
        summarizer = self.summarizer
        if isinstance(summarizer, str):
            summarizer = {"kind": summarizer}
        if summarizer is not None:
            validate_policy({"summarizer": summarizer})
        return Asked(
            mode=self.mode,
            from_seq=self.from_seq,
            to_seq=self.to_seq,
            keep_last=self.keep_last,
            branch=self.branch,
            summarizer=summarizer,
        )


class UnfoldedAnswer(AnswerModel):
    """Nothing was folded, and why."""

    folded: Literal[0]
    """None were."""
    reason: str
    """Why, as a word."""
    detail: str
    """Why, in words."""
    job_id: str | None = None
    """The job that looked; null: none was needed."""


class JobLeft(AnswerModel):
    """The job that folds."""

    job_id: str
    """To ask for at `/v1/jobs/{id}`."""


class LedgerLineAnswer(AnswerModel):
    """A line that is carried from fold to fold."""

    class_: str = Field(alias="class")
    """Rule, constraint, fact, decision, state, preference or question."""
    text: str
    """As it is carried from fold to fold."""
    seqs: list[tuple[int, int]]
    """The events that it comes from, as closed ranges of seqs, oldest first."""


class UsageAnswer(AnswerModel):
    """What the model read and wrote."""

    input_tokens: int
    """What the summarizer's model read, by its provider's count."""
    output_tokens: int
    """What it wrote."""


class LaneAnswer(AnswerModel):
    """A lane."""

    isolation_scope: str | None
    """Null: outside of any scope."""
    branch: str
    """Dotted agent path; empty: the root."""


class SectionAnswer(AnswerModel):
    """What a fold says of one lane."""

    lane: LaneAnswer
    """Whose events it stands for."""
    covers: list[tuple[int, int]]
    """Events that belong to it, as closed ranges of seqs, oldest first."""
    content: dict[str, Any]
    """What is read in their place."""
    ledger: list[LedgerLineAnswer]
    """Lines that code carries from fold to fold."""
    tokens: int
    """Our count of the content."""
    status: FoldStatusText
    """Whether the section is used, and if not why."""


class CompactionAnswer(AnswerModel):
    """A fold."""

    seq: int
    """Of its event."""
    id: str
    """Of its event."""
    covers: list[tuple[int, int]]
    """Events that it stands for, as closed ranges of seqs, oldest first."""
    holes: list[tuple[int, int]]
    """Events of its span that stay live, as closed ranges of seqs, oldest first."""
    level: int
    """1 of events, higher of summaries."""
    children: list[int]
    """Folds that it covers, by seq."""
    tokens_before: int
    """Our count of what it stands for."""
    tokens_after: int
    """Our count of its sections."""
    status: FoldStatusText
    """Whether it is used, and if not why."""
    summarizer: str | None
    """What wrote it: `extractive` or a kind of model; null for a caller's own."""
    model: str | None
    """The model's name; null without one."""
    duration_ms: int | None
    """How long the summary took."""
    moment: str | None
    """What made it due."""
    usage: UsageAnswer | None
    """Tokens of the summarizer's model; null without one."""
    attempts: int | None
    """How often a model was asked; what is sent again after an error counts once."""
    fallback_reason: str | None
    """Why it is not what the policy asked for."""
    sections: list[SectionAnswer]
    """One for each lane."""


class SummaryAnswer(CompactionAnswer):
    """A fold of the caller's own."""

    warnings: list[Warned]
    """What could not be taken as it came, and a summary that is taken though it is no shorter than
    what is read now in its place."""


class NothingFolded(AnswerModel):
    """Why the last look for something to fold found nothing."""

    reason: str
    """Why, as a word."""
    detail: str
    """Why, in words."""
    job_id: str
    """The job that looked."""
    at: datetime
    """When; RFC 3339, UTC."""


class CompactionsPage(AnswerModel):
    """A page of folds."""

    data: list[CompactionAnswer]
    """Oldest first."""
    next: str | None
    """Cursor for `after` of the page that follows; null on the last page."""
    has_more: bool
    """Whether anything follows this page."""
    nothing_folded: NothingFolded | None
    """What the last look came to; null when it found something."""


def nothing_folded(job: Job | None) -> dict[str, Any] | None:
    """Return what a job says that folded nothing; None for one that did, and for none."""
    result = (job.result if job is not None else None) or {}
    if job is None or job.finished_at is None or result.get("folded") or "reason" not in result:
        return None
    return {
        "reason": str(result["reason"]),
        "detail": str(result.get("detail") or ""),
        "job_id": str(job.id),
        "at": job.finished_at.isoformat(),
    }


def compaction_answer(view: FoldView) -> dict[str, Any]:
    """Return a fold as it is answered."""
    return {
        "seq": view.seq,
        "id": view.id,
        "covers": [list(pair) for pair in view.covers],
        "holes": [list(pair) for pair in view.holes],
        "level": view.fold.level,
        "children": list(view.children),
        "tokens_before": view.tokens_before,
        "tokens_after": view.tokens_after,
        "status": view.status,
        **{key: view.details.get(key) for key in DETAILS},
        "sections": [_section(section) for section in view.sections],
    }


def summary_answer(view: FoldView) -> dict[str, Any]:
    """Return a fold of the caller's own as it is answered when it is made."""
    warnings = [warning_answer(note) for note in view.notes]
    return {**compaction_answer(view), "warnings": warnings}


def _section(view: SectionView) -> dict[str, Any]:
    section = view.section
    return {
        "lane": {
            "isolation_scope": section.lane.isolation_scope,
            "branch": section.lane.branch,
        },
        "covers": [list(pair) for pair in section.covers],
        "content": {
            "role": section.role,
            "parts": [part_to_native(part) for part in section.parts],
        },
        "ledger": view.ledger,
        "tokens": section.tokens,
        "status": view.status,
    }
