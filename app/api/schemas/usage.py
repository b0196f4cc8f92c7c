"""Reports of usage on the wire."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from app.api.schemas.compile_answer import CompactionDue
from app.api.schemas.fields import AnswerModel, JsonObject, RequestModel, Word, only_one_of
from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.core.usage import Usage, has_counts, read_usage, wrong_counts
from app.services.report_usage import UsageReport
from app.services.schedule_compaction import Scheduled


class ProviderErrorField(RequestModel):
    """An answer that a provider gave in place of a reply."""

    status: Annotated[int, Field(ge=100, le=599)]
    """HTTP status of the provider's answer."""
    body: Any = None
    """As an object or as text; nothing, where there was none."""


class UsageBody(RequestModel):
    """What a provider reported of a request."""

    fingerprint: Word
    """Of the request, as its compile answered it."""
    usage: JsonObject | None = None
    """The provider's own usage object, or ours: `input_tokens`, `output_tokens`, `cached_tokens`,
    `cache_write_tokens`; counts from 0."""
    error: ProviderErrorField | None = None
    """What it answered in place of a reply; this or `usage`."""

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        only_one_of(self, "usage", "error")
        return self

    def counts(self) -> Usage:
        """Return what the usage object counts.

        Raises:
            InvalidInputError: a count is none, or nothing is counted.
        """
        sent = self.usage or {}
        for pointer, detail in wrong_counts(sent):
            raise InvalidInputError(detail, pointer=f"/usage{pointer}")
        if not has_counts(sent):
            raise InvalidInputError("names no count of a provider's or of ours", pointer="/usage")
        return read_usage(sent)


class OverflowAnswer(AnswerModel):
    """Whether the request was too long, and what it may take from now on."""

    detected: bool
    """Whether the request was too long."""
    limit: int | None
    """Tokens that the provider takes, as it says."""
    actual: int | None
    """Tokens that the request had, as it says."""
    budget_tokens: int | None
    """What input may take from now on, in its tokens; null: nothing was learnt."""


class UsageAnswer(AnswerModel):
    """What the report comes to."""

    expected_cached_tokens: int
    """What the provider should have had in its cache, by the model's count."""
    hit_ratio: float | None
    """Of that, what it had, from 0 to 1; null: not known."""
    verdict: str
    """`hit`, `ttl_expired`, `prefix_changed` or `unknown`."""
    overflow: OverflowAnswer
    """Whether the request was too long, and what follows."""
    error_kind: str | None
    """`overflow`, `malformed_history` or `other`; null without an error."""
    compaction: CompactionDue
    """Whether a fold became due."""


def usage_answer(report: UsageReport) -> dict[str, Json]:
    """Return a report as it is answered."""
    overflow = report.overflow
    return {
        "expected_cached_tokens": report.expected_cached_tokens,
        "hit_ratio": report.hit_ratio,
        "verdict": report.verdict,
        "overflow": {
            "detected": overflow.is_detected,
            "limit": overflow.limit_tokens,
            "actual": overflow.actual_tokens,
            "budget_tokens": overflow.budget_tokens,
        },
        "error_kind": report.error_kind,
        "compaction": _compaction(report.compaction),
    }


def _compaction(scheduled: Scheduled) -> dict[str, Json]:
    return {
        "due": scheduled.is_due,
        "reason": scheduled.reason,
        "job_id": scheduled.job_id,
    }
