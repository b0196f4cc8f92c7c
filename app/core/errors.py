"""The error tree.

    FoldlineError
      InvalidInputError             MalformedBodyError, InvalidEventError, RewindTargetError,
                                    CompactionRangeError, PinLimitError
      NotFoundError                 SessionNotFoundError, EventNotFoundError, JobNotFoundError,
                                    KeyNotFoundError, TenantNotFoundError, ReportNotFoundError
      ConflictError                 ConcurrentAppendError, SessionExistsError, EventIdReusedError,
                                    TenantExistsError, KeyEndedError,
                                    IdempotencyMismatchError, IdempotencyInProgressError,
                                    NotYetVisibleError, CompactionUnderWayError
      AccessError                   UnauthenticatedError, ForbiddenError, TenantDisabledError
      QuotaExceededError, RateLimitedError, StreamLimitError, OverloadedError
      TooLargeError, BodyTimeoutError
      BudgetExceededError
      PipelineError                 InvariantViolatedError
      StorageError                  StorageUnavailableError
      ProviderError                 ProviderTimeoutError, ProviderUnavailableError,
                                    ProviderRateLimitedError, ProviderRejectedError,
                                    SpendLimitError
      SummaryRefusedError, PlanOvertakenError, LeaseLostError

Errors carry typed fields, never HTTP statuses: jobs and the command line raise the same ones.
``code`` is the stable slug that clients match on; a class's docstring is its default message.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar


class FoldlineError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip().splitlines()[0]
        super().__init__(self.detail)

    def members(self) -> Mapping[str, object]:
        """Typed members of the problem body, besides the standard ones."""
        return {}


class InvalidInputError(FoldlineError):
    """The request is not valid."""

    code = "invalid_request"

    def __init__(self, detail: str | None = None, *, pointer: str = "") -> None:
        super().__init__(detail)
        #: JSON pointer (RFC 6901) into the request body; empty for the whole body.
        self.pointer = pointer


class MalformedBodyError(InvalidInputError):
    """The body cannot be read."""


class InvalidEventError(InvalidInputError):
    """An event is not valid."""

    def __init__(
        self, detail: str | None = None, *, pointer: str = "", seq: int | None = None
    ) -> None:
        super().__init__(detail, pointer=pointer)
        #: Of the event that is named and cannot be meant, where a marker names several.
        self.seq = seq


class RewindTargetError(InvalidInputError):
    """A rewind names an invocation or a position that does not come before it in the log."""

    code = "rewind_target"


class CompactionRangeError(InvalidInputError):
    """A summary covers nothing that can be folded."""


class PinLimitError(InvalidInputError):
    """The pinned events would exceed the policy's cap."""


class NotFoundError(FoldlineError):
    """No such thing."""

    code = "not_found"


class SessionNotFoundError(NotFoundError):
    """No such session."""


class EventNotFoundError(NotFoundError):
    """No such event."""


class JobNotFoundError(NotFoundError):
    """No such job."""


class KeyNotFoundError(NotFoundError):
    """No such key."""


class TenantNotFoundError(NotFoundError):
    """No such tenant."""


class ReportNotFoundError(NotFoundError):
    """No such report."""


class ConflictError(FoldlineError):
    """The request conflicts with the current state."""

    code = "conflict"


class ConcurrentAppendError(ConflictError):
    """The session's head is not where the writer believes it is."""

    code = "head_moved"

    def __init__(self, *, expected_seq: int, actual_seq: int) -> None:
        super().__init__(f"expected the head at {expected_seq}, it is at {actual_seq}")
        self.expected_seq = expected_seq
        self.actual_seq = actual_seq

    def members(self) -> Mapping[str, object]:
        return {"head_seq": self.actual_seq}


class SessionExistsError(ConflictError):
    """The session exists already."""

    code = "session_exists"

    def __init__(self, detail: str | None = None, *, pointer: str = "") -> None:
        super().__init__(detail)
        #: JSON pointer to what the session has otherwise; empty where it had to be new.
        self.pointer = pointer


class TenantExistsError(ConflictError):
    """The tenant exists already."""


class KeyEndedError(ConflictError):
    """The key was revoked, or is no longer valid."""


class EventIdReusedError(ConflictError):
    """The event id belongs to another event of this session."""

    code = "event_id_reused"

    def __init__(self, *, event_id: str, seq: int | None = None, pointer: str = "") -> None:
        place = f"taken by seq {seq}" if seq is not None else "given twice in the batch"
        super().__init__(f"event id {event_id!r} is {place} with another body")
        self.event_id = event_id
        self.seq = seq
        self.pointer = pointer

    def members(self) -> Mapping[str, object]:
        return {"event_id": self.event_id} | ({} if self.seq is None else {"seq": self.seq})


class IdempotencyMismatchError(ConflictError):
    """The idempotency key was used with another body."""

    code = "idempotency_mismatch"


class IdempotencyInProgressError(ConflictError):
    """A request with this idempotency key is still running."""

    code = "idempotency_in_progress"
    retryable = True


class NotYetVisibleError(ConflictError):
    """The log has not reached the wanted position."""

    code = "not_yet_visible"
    retryable = True

    def __init__(self, *, min_seq: int, head_seq: int) -> None:
        super().__init__(f"the log is at {head_seq}, {min_seq} is wanted")
        self.min_seq = min_seq
        self.head_seq = head_seq

    def members(self) -> Mapping[str, object]:
        return {"head_seq": self.head_seq}


class CompactionUnderWayError(ConflictError):
    """Another compaction was asked for and is still under way."""

    retryable = True

    def __init__(self, *, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id

    def members(self) -> Mapping[str, object]:
        return {"job_id": self.job_id}


class AccessError(FoldlineError):
    """The caller may not do this."""


class UnauthenticatedError(AccessError):
    """A valid bearer key is needed."""

    code = "unauthenticated"


class ForbiddenError(AccessError):
    """The key lacks the scope that this needs."""

    code = "forbidden"

    def __init__(self, *, scope: str) -> None:
        super().__init__(f"the key lacks the scope {scope}")
        self.scope = scope


class TenantDisabledError(AccessError):
    """The tenant is disabled."""

    code = "tenant_disabled"


class QuotaExceededError(FoldlineError):
    """The tenant's quota does not allow this."""

    code = "quota_exceeded"

    def __init__(self, *, quota: str, limit: int, used: int) -> None:
        super().__init__(f"the tenant may store {limit} {quota}, and stores {used}")
        #: ``sessions``, ``events`` or ``bytes``.
        self.quota = quota
        self.limit = limit
        self.used = used

    def members(self) -> Mapping[str, object]:
        return {"quota": self.quota, "limit": self.limit, "used": self.used}


class RateLimitedError(FoldlineError):
    """Too many requests."""

    code = "rate_limited"
    retryable = True

    def __init__(self, *, limit: str, requests: int, retry_after_s: int) -> None:
        super().__init__(f"more than {limit}: try again in {retry_after_s} s")
        self.limit = limit
        #: That the bucket holds at most.
        self.requests = requests
        self.retry_after_s = retry_after_s

    def members(self) -> Mapping[str, object]:
        return {"limit": self.limit, "retry_after_s": self.retry_after_s}


class StreamLimitError(FoldlineError):
    """Too many event streams are open."""

    code = "too_many_streams"
    retryable = True

    def __init__(self, *, limit_name: str, limit: int) -> None:
        super().__init__(f"{limit_name} = {limit} streams are open already")
        self.limit_name = limit_name
        self.limit = limit
        #: Streams end with their clients; when, nobody knows.
        self.retry_after_s = 5

    def members(self) -> Mapping[str, object]:
        return {
            "limit_name": self.limit_name,
            "limit": self.limit,
            "retry_after_s": self.retry_after_s,
        }


class OverloadedError(FoldlineError):
    """As many requests as may be are answered already."""

    code = "overloaded"
    retryable = True

    def __init__(self, *, limit: int) -> None:
        super().__init__(f"{limit} requests are being answered already; nothing of this one was")
        self.limit = limit

    def members(self) -> Mapping[str, object]:
        return {"limit_name": "max_requests", "limit": self.limit}


class TooLargeError(FoldlineError):
    """The request is larger than a limit allows."""

    code = "too_large"

    def __init__(self, *, limit_name: str, limit: int, pointer: str = "") -> None:
        super().__init__(f"larger than {limit_name} = {limit}")
        self.limit_name = limit_name
        self.limit = limit
        self.pointer = pointer

    def members(self) -> Mapping[str, object]:
        return {"limit_name": self.limit_name, "limit": self.limit}


class BodyTimeoutError(FoldlineError):
    """The request's body did not arrive in time."""

    code = "body_timeout"
    retryable = True

    def __init__(self, *, limit_s: float) -> None:
        super().__init__(f"the body did not arrive within body_timeout_s = {limit_s:g}")
        self.limit_s = limit_s

    def members(self) -> Mapping[str, object]:
        return {"limit_name": "body_timeout_s", "limit": self.limit_s}


class BudgetExceededError(FoldlineError):
    """What may not be cut exceeds the token budget."""

    code = "over_budget"

    def __init__(
        self,
        *,
        budget_tokens: int,
        required_tokens: int,
        segment: str,
        by_segment: Mapping[str, int],
    ) -> None:
        tokens = by_segment.get(segment, 0)
        most = f"{segment} alone takes {tokens}" if tokens > budget_tokens else f"most by {segment}"
        super().__init__(f"{required_tokens} tokens are needed, {budget_tokens} allowed: {most}")
        self.budget_tokens = budget_tokens
        self.required_tokens = required_tokens
        #: The largest segment.
        self.segment = segment
        self.by_segment = by_segment

    def converted(self, tokens: Callable[[int], int]) -> "BudgetExceededError":
        """Return the error in another count of tokens."""
        by_segment = {name: tokens(count) for name, count in self.by_segment.items()}
        return BudgetExceededError(
            budget_tokens=tokens(self.budget_tokens),
            required_tokens=sum(by_segment.values()),
            segment=self.segment,
            by_segment=by_segment,
        )

    def members(self) -> Mapping[str, object]:
        return {
            "required_tokens": self.required_tokens,
            "budget_tokens": self.budget_tokens,
            "segment": self.segment,
            "by_segment": dict(self.by_segment),
        }


class PipelineError(FoldlineError):
    """The pipeline broke one of its own rules."""

    code = "unrepairable"


class InvariantViolatedError(PipelineError):
    """The compiled output breaks an invariant."""

    def __init__(self, *, invariant: str, where: str) -> None:
        super().__init__(f"{invariant} at {where}")
        self.invariant = invariant
        self.where = where


class StorageError(FoldlineError):
    """The database refused."""

    code = "storage"

    def __init__(self, detail: str | None = None, *, cause: str = "") -> None:
        super().__init__(detail)
        #: What the database or its driver said, for whoever runs the service: never in an answer.
        self.cause = cause


class StorageUnavailableError(StorageError):
    """The database cannot be reached or did not answer in time; nothing is known to be stored."""

    code = "unavailable"
    retryable = True


class StorageForbiddenError(StorageUnavailableError):
    """The database refuses what is asked of it; somebody has to allow that."""


class LockTimeoutError(StorageUnavailableError):
    """Another writer holds what this one has to lock, and did not let go in time."""


class ProviderError(FoldlineError):
    """A model provider gave no usable answer."""

    code = "provider"

    #: The provider may have charged for the request all the same.
    may_have_cost: bool = True


class ProviderTimeoutError(ProviderError):
    """The model provider did not answer in time."""

    code = "provider_timeout"
    retryable = True


class ProviderUnavailableError(ProviderError):
    """The model provider cannot be reached, broke off, or failed on its side."""

    code = "provider_unavailable"
    retryable = True

    def __init__(self, detail: str | None = None, *, may_have_cost: bool = True) -> None:
        super().__init__(detail)
        self.may_have_cost = may_have_cost


class ProviderRateLimitedError(ProviderError):
    """The model provider wants fewer requests."""

    code = "provider_rate_limited"
    retryable = True
    may_have_cost = False

    def __init__(self, detail: str | None = None, *, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        #: As the provider asked; None when it did not say.
        self.retry_after_s = retry_after_s

    def members(self) -> Mapping[str, object]:
        return {} if self.retry_after_s is None else {"retry_after_s": self.retry_after_s}


class ProviderRejectedError(ProviderError):
    """The model provider refused the request, or answered what it never should."""

    code = "provider_rejected"

    def __init__(self, detail: str | None = None, *, status: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        # An error is not charged for; an answer that nobody can read may be.
        self.may_have_cost = status is None


class SpendLimitError(ProviderError):
    """The tenant has spent on summaries what it may in a day."""

    code = "spend_limit"
    may_have_cost = False


class SummaryRefusedError(FoldlineError):
    """No summary of these events can stand for them."""

    code = "summary_refused"

    def __init__(self, detail: str | None = None, *, reason: str) -> None:
        super().__init__(detail)
        #: A slug: ``rules_over_cap``, ``not_smaller``, ``no_room`` or ``nothing_to_summarize``.
        self.reason = reason

    def members(self) -> Mapping[str, object]:
        return {"reason": self.reason}


class LeaseLostError(FoldlineError):
    """The job belongs to someone else now, or was cancelled."""

    code = "lease_lost"


class PlanOvertakenError(FoldlineError):
    """What was planned does not stand any more."""

    code = "plan_overtaken"
    retryable = True
