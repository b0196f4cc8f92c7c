"""Summaries and compactions on the wire."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, model_validator

from app.api.schemas.events import Warned, warning_answer
from app.api.schemas.fields import (
    MAX_PAGE,
    MAX_SEQ,
    BranchPath,
    Position,
    QueryModel,
    RequestModel,
    Seq,
    WaitMs,
    Word,
)
from app.core.contents import Part, Text
from app.core.policy import validate_policy
from app.formats.adk import parse_content, part_to_native
from app.ports import Job, SessionKey
from app.services.compaction_jobs import Asked, Mode
from app.services.fold_events import CallersSummary, FoldView, SectionView
from app.services.idempotency import IdempotentRequest

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
    to_seq: Seq


class SummaryRequest(RequestModel):
    """A summary that the caller made, of one lane."""

    covers: Span | None = None
    seqs: Annotated[list[Seq], Field(min_length=1, max_length=MAX_SEQS)] | None = None
    content: str | dict[str, Any]
    level: Annotated[int, Field(ge=1, le=MAX_LEVEL)] = 1
    branch: BranchPath = ""
    isolation_scope: Word | None = None
    activation: Literal["immediate", "staged"] = "immediate"
    expected_seq: Position | None = None

    @model_validator(mode="after")
    def _names_what_it_covers(self) -> Self:
        if (self.covers is None) == (self.seqs is None):
            raise ValueError("exactly one of covers and seqs is needed")
        if self.covers is not None and self.covers.from_seq > self.covers.to_seq:
            raise ValueError("covers: from_seq is above to_seq")
        return self

    def to_domain(
        self, key: SessionKey, expected_seq: int | None, idempotent: IdempotentRequest | None
    ) -> CallersSummary:
        """Return the summary."""
        seqs = self.seqs or []
        span = (min(seqs), max(seqs)) if seqs else (0, 0)
        if self.covers is not None:
            span = (self.covers.from_seq, self.covers.to_seq)
        return CallersSummary(
            key=key,
            from_seq=span[0],
            to_seq=span[1],
            seqs=self.seqs,
            parts=self._parts(),
            level=self.level,
            branch=self.branch,
            isolation_scope=self.isolation_scope,
            is_staged=self.activation == "staged",
            expected_seq=expected_seq,
            idempotent=idempotent,
        )

    def _parts(self) -> tuple[Part, ...]:
        if isinstance(self.content, str):
            return (Text(text=self.content),)
        return parse_content(self.content, "/content", []).parts


class CompactionsQuery(QueryModel):
    """Which compactions to list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    after: str | None = None


class CompactionRequest(RequestModel):
    """What to fold now, by the policy or by hand."""

    mode: Mode = "auto"
    from_seq: Seq | None = None
    to_seq: Seq | None = None
    #: So many of the newest live events stay.
    keep_last: Annotated[int, Field(ge=1, le=MAX_SEQ)] | None = None
    #: Only events of this branch.
    branch: BranchPath | None = None
    #: In place of the policy's: a kind, or an object as in a policy.
    summarizer: str | dict[str, Any] | None = None
    wait_ms: WaitMs = 0

    @model_validator(mode="after")
    def _names_a_range_by_its_mode(self) -> Self:
        ranged = (self.from_seq, self.to_seq, self.keep_last, self.branch)
        if self.mode != "range" and ranged != (None,) * len(ranged):
            raise ValueError("from_seq, to_seq, keep_last and branch belong to mode range")
        if self.from_seq and self.to_seq and self.from_seq > self.to_seq:
            raise ValueError("from_seq is above to_seq")
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


class UnfoldedAnswer(BaseModel):
    """Nothing was folded, and why."""

    folded: Literal[0]
    reason: str
    detail: str
    job_id: str | None = None


class JobLeft(BaseModel):
    """The job that folds."""

    job_id: str


class LedgerLineAnswer(BaseModel):
    """A line that is carried from fold to fold."""

    class_: str = Field(alias="class")
    text: str
    seqs: list[tuple[int, int]]


class UsageAnswer(BaseModel):
    """What the model read and wrote."""

    input_tokens: int
    output_tokens: int


class LaneAnswer(BaseModel):
    """A lane."""

    isolation_scope: str | None
    branch: str


class SectionAnswer(BaseModel):
    """What a fold says of one lane."""

    lane: LaneAnswer
    covers: list[tuple[int, int]]
    content: dict[str, Any]
    ledger: list[LedgerLineAnswer]
    tokens: int
    status: FoldStatusText


class CompactionAnswer(BaseModel):
    """A fold."""

    seq: int
    id: str
    covers: list[tuple[int, int]]
    holes: list[tuple[int, int]]
    level: int
    children: list[int]
    tokens_before: int
    tokens_after: int
    status: FoldStatusText
    #: What wrote it: `extractive` or a kind of model; null for a caller's own.
    summarizer: str | None
    model: str | None
    duration_ms: int | None
    #: What made it due.
    moment: str | None
    usage: UsageAnswer | None
    #: How often a model was asked.
    attempts: int | None
    #: Why it is not what the policy asked for.
    fallback_reason: str | None
    sections: list[SectionAnswer]


class SummaryAnswer(CompactionAnswer):
    """A fold of the caller's own."""

    #: It is taken all the same: a summary that is no shorter than what it stands for.
    warnings: list[Warned]


class NothingFolded(BaseModel):
    """Why the last look for something to fold found nothing."""

    reason: str
    detail: str
    job_id: str
    at: datetime


class CompactionsPage(BaseModel):
    """A page of folds."""

    data: list[CompactionAnswer]
    next: str | None
    has_more: bool
    #: Null when the last look found something.
    nothing_folded: NothingFolded | None


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
