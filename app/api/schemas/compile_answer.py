"""What a compile answers, on the wire: joined from texts that are JSON already."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from app.api.schemas.events import Appended, append_answer, warning_answer
from app.api.schemas.fields import AnswerModel
from app.core.canonical import Json, canonical_json, json_string
from app.core.compile.explicit_cache import Lifecycle
from app.core.compile.inputs import CompileResult
from app.core.compile.pipeline import PIPELINE_VERSION
from app.core.compile.render import has_ephemeral
from app.core.compile.trace import EventTrace
from app.services.compare_compiles import Comparison
from app.services.compiled import Compiled
from app.services.prepare_events import Note
from app.services.schedule_compaction import Scheduled


class TokensAnswer(AnswerModel):
    """What the request will take."""

    total: int
    """What the provider is expected to count: its last report of a request that still stands, and
    our calibrated count of what follows; without a report all is our count."""
    by_segment: dict[str, int]
    """The total, shared out by what each segment takes."""
    method: str
    """Encoding of the tokenizer that counts, as in `o200k_base`; `o200k_base_calibrated` where its
    count is scaled to the model's, `reported+o200k_base` where it goes on from a provider's report
    of what the request begins with."""
    error_bound: int
    """By how many tokens the total may be off, either way, as far as can be told: what is our count
    is as uncertain as the model's rule assumes, or as reports of it have differed. What the
    provider reported adds nothing."""


class PendingAnswer(AnswerModel):
    """A call that a result may still answer."""

    call_id: str | None
    """As the model gave it; null when it gave none."""
    name: str
    """Of the tool."""
    seq: int
    """Of the call's event."""


class BudgetActionAnswer(AnswerModel):
    """One cut that was made to fit."""

    action: str
    """`staged_fold`, `stubbed` or `dropped`."""
    seq: int | None
    """The event; of dropped invocations the newest; null: not one event's."""
    tokens: int
    """What was saved, by our count."""


class BudgetAnswer(AnswerModel):
    """The limit, what is used of it, and what was cut for it."""

    limit: int | None
    """Tokens that the request may take; null: no limit is known."""
    used: int
    """What it takes of that."""
    actions: list[BudgetActionAnswer]
    """Cuts, in the order in which they were made."""


class RepairAnswer(AnswerModel):
    """What the provider would refuse, and what was done."""

    rule: str
    """Which, as a word."""
    seq: int | None
    """The event; null: not one event's."""
    detail: str
    """What was done, in words."""


class BreakpointAnswer(AnswerModel):
    """A place up to which the provider is asked to cache."""

    block: str | int
    """`tools`, `system`, or index of the content that it ends in."""
    tokens: int
    """Our count of everything up to it."""
    ttl: str
    """How long the provider is to keep it."""


class LifecycleAnswer(AnswerModel):
    """What to do about the explicit cache, and what the reply's `cache_metadata` is to say."""

    action: Literal["none", "create", "use", "replace", "delete"]
    """What to do before the request is sent."""
    reason: str
    """Why, as a word."""
    name: str | None
    """The cache to use or, of `replace` and `delete`, the one to delete."""
    contents_count: int
    """Contents from the start that the cache holds, or would."""
    fingerprint: str
    """Of these, with tools and system text."""
    invocations_used: int | None
    """Invocations that the cache has served with this one; null: there is none."""
    expire_time: float | None
    """When the cache ends, in seconds since 1970; null: there is none."""


class CacheAnswer(AnswerModel):
    """What the provider's cache is asked for, what it has, and why it will miss if it will."""

    breakpoints: list[BreakpointAnswer]
    """Where the provider is asked to cache, in order."""
    shared_prefix_tokens: int
    """What still stands of the request before, by the model's count."""
    break_reason: str | None
    """Why not all of it does; null: all does. Of a past position it is told only until another
    reply of the reader's follows."""
    break_seq: int | None
    """The marker that is why, by seq."""
    prompt_cache_key: str | None
    """Sent along where the provider takes one."""
    lifecycle: LifecycleAnswer | None
    """Of the explicit cache; null: none was asked for."""


class ReasoningAnswer(AnswerModel):
    """What became of thinking, in items."""

    kept: int
    """Sent."""
    stripped: int
    """Left out."""
    invalidated: int
    """Of both, what no longer stands on the prefix that produced it."""


class InputsAnswer(AnswerModel):
    """What was fetched beside the log."""

    digest: str
    """Names what was used; as `inputs` it compiles with the same again."""


class ExplainedEvent(AnswerModel):
    """What became of an event, or of a span of masked, rewound or hidden ones."""

    seq: int | None = None
    """Of a single event."""
    from_seq: int | None = None
    """Of a span."""
    to_seq: int | None = None
    """Its end."""
    id: str | None = None
    """Of a single event."""
    action: str
    """`kept`, `masked`, `rewound`, `hidden`, `merged`, `narrated`, `stubbed`, `dropped`, `repaired`
    or `marker`."""
    pass_: str | None = Field(alias="pass")
    """The pass that took it away or changed it; null: none did."""
    by_seq: int | None
    """The marker that is the reason."""
    block: int | None
    """Index of the content that holds it."""
    tokens: int
    """Our count of it."""


class CompactionDue(AnswerModel):
    """Whether a fold is due, and the job that sees to it or has seen to it."""

    due: bool
    """Whether a fold is due."""
    reason: str | None
    """What made it due or, where nothing was folded, why."""
    job_id: str | None
    """To ask for at `/v1/jobs/{id}`; null: none."""


class CompileAnswer(AnswerModel):
    """A request for the provider, and what there is to say of it."""

    request: dict[str, Any]
    """The provider's own body, ready to send but for the model."""
    cache_segment: dict[str, Any] | None = None
    """Body of the request that makes the explicit cache, but for the model; only where one is made.
    """
    head_seq: int
    """The last seq of the log."""
    compiled_seq: int
    """Up to where the log was read; to be posted back with the reply."""
    fingerprint: str
    """Hash of all parts that stay, chained; to be posted back with the reply."""
    prefix_fingerprint: str
    """The same up to the end of the cacheable prefix."""
    sent_fingerprint: str
    """The same with ephemeral texts hashed last."""
    prefix_count: int
    """Parts of the cacheable prefix."""
    base_count: int
    """Parts that the caller's base has; 0: the request is whole."""
    continues_turn: bool
    """What follows the base goes on with its last turn: the first turn's parts belong there."""
    pending: list[PendingAnswer]
    """Calls without a result that a result may still answer."""
    cache: CacheAnswer
    """What there is to say of the provider's cache."""
    tokens: TokensAnswer
    """What the request will take, in all and by segment."""
    budget: BudgetAnswer
    """What it may take, and what was cut for it."""
    reasoning: ReasoningAnswer
    """What became of the thinking, in items."""
    repairs: list[RepairAnswer]
    """What the provider would have refused."""
    warnings: list[str | dict[str, str]]
    """What could not be taken as it came."""
    inputs: InputsAnswer
    """Names what was fetched beside the log."""
    compaction: CompactionDue | None = None
    """Whether a fold is due."""
    pipeline_version: str
    """Changes when passes give something else."""
    timing_ms: dict[str, float]
    """By step and pass."""
    events: list[ExplainedEvent] | None = None
    """What became of each, with `explain`."""
    appended: list[Appended] | None = None
    """What was appended first, with `append`."""


def compile_text(
    compiled: Compiled, notes: list[Note] | None = None, compaction: Scheduled | None = None
) -> str:
    """Return the answer as JSON text; what the provider gets is not decoded on the way."""
    # Joined once: the request is large.
    pieces = ['{"request":', *_object_pieces(compiled.request)]
    if compiled.cache_segment is not None:
        pieces += [',"cache_segment":', *_object_pieces(compiled.cache_segment)]
    beside = _beside_request(compiled, notes or [])
    if compaction is not None:
        beside["compaction"] = {
            "due": compaction.is_due,
            "reason": compaction.reason,
            "job_id": compaction.job_id,
        }
    return "".join([*pieces, ",", canonical_json(beside)[1:]])


def _object_pieces(texts: Mapping[str, str]) -> list[str]:
    """Return the pieces of an object whose values are JSON texts already."""
    pieces: list[str] = []
    for key, text in texts.items():
        pieces += [",", json_string(key), ":", text]
    return ["{", *pieces[1:], "}"]


def _beside_request(compiled: Compiled, notes: list[Note]) -> dict[str, Json]:
    result = compiled.result
    appended = append_answer(compiled.appended) if compiled.appended is not None else {}
    warnings: list[Json] = [*result.warnings, *map(_warning, notes)]
    warnings += appended.get("warnings", [])
    has_markers = any(isinstance(each.block, int) for each in result.breakpoints)
    if compiled.base_count and compiled.request and has_markers:
        # What the caller holds has markers of its own, and providers take few.
        warnings.append("markers_move")
    if compiled.base_count and has_ephemeral(result):
        # What the caller holds ends with such a text as well, which is no part of the base.
        warnings.append("ephemeral_moves")
    if compiled.model and compiled.window_tokens is None:
        warnings.append("unknown_window")
    answer: dict[str, Json] = {
        "head_seq": compiled.head_seq,
        "compiled_seq": compiled.compiled_seq,
        "fingerprint": result.fingerprint,
        "prefix_fingerprint": result.prefix_fingerprint,
        "sent_fingerprint": result.sent_fingerprint,
        "prefix_count": result.prefix_count,
        "base_count": compiled.base_count,
        "continues_turn": compiled.continues_turn,
        "pending": _pending(result),
        "cache": _cache(compiled),
        "tokens": {
            "total": compiled.tokens.total,
            "by_segment": dict(compiled.tokens.by_segment),
            "method": compiled.tokens.method,
            "error_bound": compiled.tokens.error_bound,
        },
        "budget": {
            "limit": compiled.budget_tokens,
            "used": compiled.tokens.total,
            "actions": [
                {"action": each.action, "seq": each.seq, "tokens": each.tokens}
                for each in result.budget_actions
            ],
        },
        "reasoning": {
            "kept": result.reasoning.kept,
            "stripped": result.reasoning.stripped,
            "invalidated": result.reasoning.invalidated,
        },
        "repairs": [
            {"rule": repair.rule, "seq": repair.seq, "detail": repair.detail}
            for repair in result.repairs
        ],
        "warnings": warnings,
        "inputs": {"digest": compiled.inputs_digest},
        "pipeline_version": PIPELINE_VERSION,
        "timing_ms": dict(compiled.timing_ms),
    }
    if compiled.explained is not None:
        answer["events"] = [_explained(row) for row in compiled.explained]
    if appended:
        answer["appended"] = appended["appended"]
    return answer


def _warning(note: Note) -> Json:
    return {**warning_answer(note)}


def _pending(result: CompileResult) -> Json:
    return [
        {"call_id": call.call_id, "name": call.name, "seq": call.seq} for call in result.pending
    ]


def _cache(compiled: Compiled) -> Json:
    result, found = compiled.result, compiled.found_break
    tokens = compiled.calibration.tokens
    return {
        "breakpoints": [
            {"block": each.block, "tokens": tokens(each.tokens), "ttl": each.ttl}
            for each in result.breakpoints
        ],
        "shared_prefix_tokens": compiled.shared_prefix_tokens,
        "break_reason": None if found is None else found.reason,
        "break_seq": None if found is None else found.seq,
        "prompt_cache_key": result.cache_key or None,
        "lifecycle": _lifecycle(compiled.lifecycle),
    }


def _lifecycle(lifecycle: Lifecycle | None) -> Json:
    if lifecycle is None:
        return None
    return {
        "action": lifecycle.action,
        "reason": lifecycle.reason,
        "name": lifecycle.name,
        "contents_count": lifecycle.contents_count,
        "fingerprint": lifecycle.fingerprint,
        "invocations_used": lifecycle.invocations_used,
        "expire_time": lifecycle.expire_time,
    }


def _explained(row: EventTrace) -> Json:
    place: dict[str, Json] = {"seq": row.from_seq, "id": row.id}
    if row.to_seq > row.from_seq:
        place = {"from_seq": row.from_seq, "to_seq": row.to_seq}
    return {
        **place,
        "action": row.action,
        "pass": row.pass_name,
        "by_seq": row.by_seq,
        "block": row.block,
        "tokens": row.tokens,
    }


class CauseAnswer(AnswerModel):
    """Why two compiles differ."""

    reason: str
    """As `break_reason` has it, or `append`, `overlap` or `option`."""
    seq: int | None
    """The event that is the cause; null: none is."""


class TokenPairAnswer(AnswerModel):
    """Tokens of two compiles."""

    a: int
    """Of the first, by its model's count."""
    b: int
    """Of the second."""


class PricePairAnswer(AnswerModel):
    """What the input of two compiles costs; null where the model has no known price."""

    a: float | None
    """Of the input of the first, with what should be cached; null: no price is known."""
    b: float | None
    """Of the second."""
    currency: str
    """As in `USD`."""


class DiffAnswer(AnswerModel):
    """Where two compiles part."""

    same: bool
    """Whether both are the same request."""
    first_block: int | None
    """Index of the first content that differs; null: none, or what stands before."""
    cause: CauseAnswer | None
    """Why they differ; null: they do not."""
    text: str
    """All of it in sentences."""
    tokens: TokenPairAnswer
    """What each takes."""
    price: PricePairAnswer
    """What each costs."""


def diff_answer(comparison: Comparison) -> dict[str, Json]:
    """Return a comparison as it is answered."""
    cause = comparison.cause
    return {
        "same": comparison.is_same,
        "first_block": comparison.first_block,
        "cause": None if cause is None else {"reason": cause.reason, "seq": cause.seq},
        "text": comparison.text,
        "tokens": {"a": comparison.tokens_a, "b": comparison.tokens_b},
        "price": {
            "a": comparison.prices.a,
            "b": comparison.prices.b,
            "currency": comparison.prices.currency,
        },
    }
