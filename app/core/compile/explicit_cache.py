"""What to do about the explicit cache that a session's requests go on from: use it, make one, end
one.

    [u] [m] [u] [m] | [u]      what stands in front of the last run of the user's turns is cached

Gemini keeps such a cache under a name, made by a request of its own. The life cycle is google-adk's
(``spec/ADK.md`` D): the first request only says what it would cache; the second makes a cache of
it, grown by what has come since; later ones use that, until it has expired, has served so many
invocations, or the beginning has changed. All that is known of a cache is what the replies say that
were made with it (``cache_metadata``), which the caller posts back as this answers it.

A cache is of the reader's own lane: google-adk takes the newest of the agent wherever it stands, so
that two branches end each other's caches. The fingerprint is the chain's up to what is cached, and
so stands for the model, the tools and the system text too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.core.compile.inputs import (
    CompileOptions,
    CompileResult,
    ExplicitCache,
    Format,
    HeadMarks,
    RenderedContent,
)
from app.core.compile.projection import Counted
from app.core.copying import replace
from app.core.errors import InvalidInputError
from app.core.events import USER, CacheMetadata, Event
from app.core.index import Index
from app.core.lanes import Reader
from app.core.model_rules import ModelRule

Action: TypeAlias = Literal["none", "create", "use", "replace", "delete"]
Reason: TypeAlias = Literal[
    "first_request",
    "stands",
    "expired",
    "used_up",
    "prefix_changed",
    "no_token_count",
    "below_min_tokens",
    "below_model_minimum",
]


#: So many of the newest replies are asked how many tokens their request had.
MAX_RECORDS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRecord:
    """A reply in the reader's lane that says what it had cached."""

    seq: int
    invocation_id: str
    metadata: CacheMetadata
    #: Tokens of its request, as the provider counted; None: not said.
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long a cache lives and serves; nothing is left open here."""

    ttl_s: int
    cache_intervals: int
    min_tokens: int
    #: A shorter prefix is refused by the provider; 0: not known.
    model_min_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """What is to be done, and what the reply is to say of it."""

    action: Action
    reason: Reason
    #: Of the first so many contents.
    contents_count: int
    fingerprint: str
    #: The cache to use, or to delete.
    name: str | None = None
    #: By how many invocations the cache has been used, this one included; None without a cache.
    invocations_used: int | None = None
    #: Seconds since the epoch; None: known when the cache is made, or there is none.
    expire_time: float | None = None
    #: How long a cache lives; None without one.
    ttl_s: int | None = None
    #: Our count of what is cached; 0 without a cache.
    tokens: int = 0

    @property
    def is_split(self) -> bool:
        """Tell whether the request goes on from a cache."""
        return self.action in ("use", "create", "replace")


def terms_of(wanted: ExplicitCache, rule: ModelRule | None) -> Terms:
    """Return the terms: the caller's, or the model's where it says none.

    Raises:
        InvalidInputError: the model has no explicit caches, or neither knows a term.
    """
    cache = None if rule is None else rule.cache
    if rule is not None and rule.cache.kind != "explicit":
        detail = f"models of {rule.family} have no explicit caches"
        raise InvalidInputError(detail, pointer="/cache/explicit")
    ttl_s = wanted.ttl_s or (cache.explicit_ttl_s if cache else 0)
    intervals = wanted.cache_intervals or (cache.explicit_intervals if cache else 0)
    for name, value in (("ttl_seconds", ttl_s), ("cache_intervals", intervals)):
        if not value:
            detail = "nothing is known of this model's caches: say it"
            raise InvalidInputError(detail, pointer=f"/cache/explicit/{name}")
    return Terms(
        ttl_s=ttl_s,
        cache_intervals=intervals,
        min_tokens=wanted.min_tokens,
        model_min_tokens=cache.min_tokens if cache else 0,
    )


def newest_records(events: Iterable[Event], reader: Reader) -> Sequence[CacheRecord]:
    """Return the newest records among all events of a log, newest first, however they are read."""
    found = [
        CacheRecord(
            seq=event.seq,
            invocation_id=event.invocation_id,
            metadata=event.cache_metadata,
            prompt_tokens=event.prompt_tokens,
        )
        for event in events
        if event.cache_metadata is not None and _is_own(event, reader)
    ]
    return sorted(found, key=lambda record: -record.seq)[:MAX_RECORDS]


def _is_own(event: Event, reader: Reader) -> bool:
    return reader.owns(event.lane) and reader.agent in ("", event.author)


def used_record(
    records: Sequence[CacheRecord], events: Sequence[Event], index: Index, reader: Reader
) -> CacheRecord | None:
    """Return the newest record as the request at hand finds it, None without one.

    A cache that another invocation used has served one more. How many tokens the last request had
    the newest of the records and of the live replies that says it.
    """
    if not records:
        return None
    newest = records[0]
    live = [
        event
        for event in events
        if event.marker is None and index.is_live(event.seq) and reader.sees(event.lane)
    ]
    metadata = newest.metadata
    if metadata.is_active and metadata.invocations_used is not None and _is_next(newest, live):
        metadata = replace(metadata, invocations_used=metadata.invocations_used + 1)
    said = [(event.seq, event.prompt_tokens) for event in live if _is_own(event, reader)]
    said += [(record.seq, record.prompt_tokens) for record in records]
    counts = {seq: tokens for seq, tokens in said if tokens is not None}
    tokens = counts[max(counts)] if counts else None
    return replace(newest, metadata=metadata, prompt_tokens=tokens)


def _is_next(record: CacheRecord, live: Sequence[Event]) -> bool:
    """Tell whether the request belongs to a later invocation; without ids, a question begins it."""
    later = [event for event in live if event.seq > record.seq]
    if record.invocation_id:
        ids = [event.invocation_id for event in later if event.invocation_id]
        return bool(ids) and ids[-1] != record.invocation_id
    return any(event.author == USER and not event.responses for event in later)


def plan_cache(
    result: CompileResult,
    counted: Counted,
    terms: Terms,
    *,
    record: CacheRecord | None,
    is_expired: bool,
) -> Lifecycle:
    """Return what to do.

    Args:
        result: the compile at hand.
        counted: our count of it.
        terms: of its caches.
        record: from :func:`used_record`; None: no reply says anything.
        is_expired: the recorded cache lives no longer.
    """
    plan = _Plan(result, counted)
    if record is None:
        return plan.without_cache("first_request", plan.cacheable)
    before = record.metadata
    name = before.cache_name if before.is_active else None
    stands = plan.fingerprint(before.contents_count) == before.fingerprint
    is_used_up = (before.invocations_used or 0) > terms.cache_intervals
    if name is not None and stands and not is_expired and not is_used_up:
        return Lifecycle(
            action="use",
            reason="stands",
            contents_count=before.contents_count,
            fingerprint=before.fingerprint,
            name=name,
            invocations_used=before.invocations_used,
            expire_time=before.expire_time,
            ttl_s=terms.ttl_s,
            tokens=plan.tokens(before.contents_count),
        )
    if not stands:
        return plan.without_cache("prefix_changed", plan.cacheable, ended=name)
    count = max(before.contents_count, plan.cacheable)
    gate = _gate(plan, terms, count, record.prompt_tokens)
    if gate is not None:
        return plan.without_cache(gate, count, ended=name)
    reason: Reason = "expired" if is_expired else "used_up"
    return Lifecycle(
        action="create" if name is None else "replace",
        reason="stands" if name is None else reason,
        contents_count=count,
        fingerprint=plan.fingerprint(count),
        name=name,
        invocations_used=1,
        ttl_s=terms.ttl_s,
        tokens=plan.tokens(count),
    )


def _gate(plan: "_Plan", terms: Terms, count: int, prompt_tokens: int | None) -> Reason | None:
    """Return why a cache of so many contents is not to be made, None when it is.

    The provider counted the whole request before this one; what part of it would be cached is
    known from our own count of this one.
    """
    if prompt_tokens is None:
        return "no_token_count"
    if prompt_tokens < terms.min_tokens:
        return "below_min_tokens"
    cached = prompt_tokens * plan.tokens(count) // max(1, plan.tokens(len(plan.rendered)))
    if not cached or cached < terms.model_min_tokens:
        return "below_model_minimum"
    return None


class _Plan:
    """What is asked of a compile."""

    def __init__(self, result: CompileResult, counted: Counted) -> None:
        self.rendered = result.rendered
        self._result = result
        self._counted = counted
        #: Contents in front of the last run of the user's.
        self.cacheable = _cacheable_count(result.rendered)

    def fingerprint(self, count: int) -> str:
        """Return the chain's value after so many contents."""
        return self._result.chain[self._parts(count)]

    def tokens(self, count: int) -> int:
        """Return our count of so many contents, of tools and system text too."""
        return self._counted.up_to[self._parts(count)]

    def without_cache(self, reason: Reason, count: int, *, ended: str | None = None) -> Lifecycle:
        """Return that no cache is used, and which one ends, if any."""
        return Lifecycle(
            action="none" if ended is None else "delete",
            reason=reason,
            contents_count=count,
            fingerprint=self.fingerprint(count),
            name=ended,
        )

    def _parts(self, count: int) -> int:
        return sum(
            not part.placed.ephemeral for content in self.rendered[:count] for part in content.parts
        )


def _cacheable_count(rendered: Sequence[RenderedContent]) -> int:
    count = len(rendered)
    while count and rendered[count - 1].role == "user":
        count -= 1
    # What changes with every request is in no cache, wherever google-adk puts it.
    for number, content in enumerate(rendered[:count]):
        if any(part.placed.ephemeral for part in content.parts):
            return number
    return count


def request_after(
    result: CompileResult, wire: Format, options: CompileOptions, lifecycle: Lifecycle
) -> Mapping[str, str]:
    """Return the body fields of a request that goes on from a cache, each as JSON text.

    The last content is always sent, cached or not: a request needs one. The name of a cache that is
    still to be made is the caller's to add.
    """
    name = lifecycle.name if lifecycle.action == "use" else None
    first = min(lifecycle.contents_count, max(0, len(result.rendered) - 1))
    return wire.render_request(
        result.rendered[first:],
        system="",
        tools="",
        model=options.model,
        marks=HeadMarks(has_sent_tools=bool(result.tools), cached_content=name or ""),
    )


def cache_segment(
    result: CompileResult, wire: Format, options: CompileOptions, lifecycle: Lifecycle
) -> Mapping[str, str]:
    """Return the body fields of the request that makes the cache, each as JSON text."""
    fields = wire.render_request(
        result.rendered[: lifecycle.contents_count],
        system=result.system,
        tools=result.tools,
        model=options.model,
    )
    kept = {key: text for key, text in fields.items() if text != "[]"}
    return {**kept, "ttl": f'"{lifecycle.ttl_s}s"'}
