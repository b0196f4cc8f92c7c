"""Compile: gather what the reader sees, run the pipeline, and say how it went.

What is fetched beside the log (state that instructions name, what is known of the model) is
answered with a digest under which it is kept, so that the same compile can be asked for again.
Compile itself appends nothing; events that came with the request are appended before, by the
service that appends.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final
from uuid import UUID

import structlog

from app.core.calibration import Calibration
from app.core.canonical import Json
from app.core.compile.adk.opening import find_opening_args
from app.core.compile.breaks import Break, find_break, newest_reply
from app.core.compile.explicit_cache import Lifecycle, cache_segment, request_after
from app.core.compile.inputs import (
    BudgetAction,
    CompileInput,
    CompileOptions,
    CompileResult,
    Format,
)
from app.core.compile.instruction import system_text
from app.core.compile.pipeline import PassObserver, run_pipeline
from app.core.compile.projection import Counted, Projection, count_result, project, scaled
from app.core.compile.render import request_fields
from app.core.compile.settle import can_settle, given_after, settle
from app.core.compile.standing import (
    NOTHING_STANDS,
    Standing,
    broken_standing,
    whole_standing,
)
from app.core.compile.trace import EventTrace, PassTrace, explain
from app.core.compile.verify import verify
from app.core.contents import Contents
from app.core.errors import (
    BudgetExceededError,
    InvalidInputError,
    InvariantViolatedError,
    NotYetVisibleError,
    SessionNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from app.core.events import Activation, Elision, Events, Fold, Marker, Undo
from app.core.index import Index, fold_statuses, resolve
from app.core.model_rules import ModelRule
from app.core.ranges import FOREVER
from app.core.resolve import Log
from app.ports import (
    CompactionStanding,
    Connection,
    Database,
    EventLog,
    LogRead,
    Meter,
    ReadBefore,
    SessionKey,
    TokenCounter,
)
from app.services.append_events import Append, AppendEvents, AppendResult
from app.services.compile_given import Given, GivenInputs
from app.services.explicit_caches import ExplicitCaches
from app.services.remember_compiles import RememberCompiles
from app.services.settled_compiles import SettledCompile, SettledCompiles
from app.services.share_runs import ShareRuns

#: How often a wait for a seq looks again.
POLL_S: Final = 0.02
#: A budget that a report shows to be too wide is made tighter by so many parts of it at a time.
TIGHTENING_STEPS: Final = 20
#: System texts and tools repeat from compile to compile, and are long.
CACHED_COUNTS: Final = 256

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """What to compile, from where, and what to say of it."""

    options: CompileOptions
    format: Format
    as_of_seq: int | None = None
    min_seq: int | None = None
    base_fingerprint: str | None = None
    #: Most tokens that the request may take; None: no limit.
    budget_tokens: int | None = None
    #: Digest of the inputs of an earlier compile.
    inputs: str | None = None
    wants_explain: bool = False
    #: It will be sent: what it is expected to take is remembered for its report.
    is_sent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What the request will take."""

    by_segment: Mapping[str, int]
    method: str
    #: By how much the total may be off.
    error_bound: int

    @property
    def total(self) -> int:
        """All segments together."""
        return sum(self.by_segment.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The answer of a compile."""

    result: CompileResult
    #: The provider's body fields as JSON text; with a base that holds, only what follows it.
    request: Mapping[str, str]
    head_seq: int
    compiled_seq: int
    #: Parts of the base that need not be sent again; 0 without one that holds.
    base_count: int
    tokens: Tokens
    #: What the request was allowed to take; None: no limit.
    budget_tokens: int | None
    inputs_digest: str
    found_break: Break | None
    #: Of what the provider should have cached already, in the model's tokens.
    shared_prefix_tokens: int
    rule: ModelRule | None
    calibration: Calibration
    timing_ms: Mapping[str, float]
    explained: tuple[EventTrace, ...] | None = None
    appended: AppendResult | None = None
    #: As it was read with the log; None: it was not.
    compaction: CompactionStanding | None = None
    #: What to do about the explicit cache; None: none was asked for.
    lifecycle: Lifecycle | None = None
    #: Body of the request that makes it; None when none is to be made.
    cache_segment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run of the pipeline, and what is known of its result."""

    read: LogRead
    given: Given
    inputs: CompileInput
    result: CompileResult
    counted: Counted
    projection: Projection
    standing: Standing
    lifecycle: Lifecycle | None = None


@dataclass(slots=True)
class _Observer:
    """Times the passes, and remembers what they gave when an explanation is wanted."""

    trace: PassTrace | None
    timing_ms: dict[str, float] = field(default_factory=dict)
    #: Of going on from what is settled: ``hit``, ``miss`` or ``stale``; None: not tried.
    cache: str | None = None
    #: Events or contents that each pass gave.
    sizes: dict[str, int] = field(default_factory=dict)
    last_s: float = field(default_factory=time.perf_counter)

    def passed(self, name: str, items: Events | Contents) -> None:
        """Take what a pass gave."""
        self.lap(name)
        self.sizes[name] = len(items)
        if self.trace is not None:
            self.trace.passed(name, items)

    @property
    def hidden(self) -> int:
        """Events that the reader may not see, of those that were read."""
        return self.sizes.get("reply_order", 0) - self.sizes.get("visibility", 0)

    def lap(self, name: str) -> None:
        """Note the time since the last lap under a name."""
        now_s = time.perf_counter()
        self.timing_ms[name] = round((now_s - self.last_s) * 1000, 3)
        self.last_s = now_s


class CompileContext:
    """Compiles stored sessions, and logs that are stored nowhere."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        given: GivenInputs,
        compiles: RememberCompiles,
        settled: SettledCompiles,
        caches: ExplicitCaches,
        append_events: AppendEvents,
        tokens: TokenCounter,
        token_method: str,
        meter: Meter,
        tail_nudge: bool = True,
        call_signature_sentinel: bool = True,
        verify_compile: bool = False,
        min_seq_wait_ms: int = 0,
        replica: Database | None = None,
    ) -> None:
        self._database = database
        self._replica = replica
        self._log = log
        self._given = given
        self._compiles = compiles
        self._settled = settled
        self._caches = caches
        self._append_events = append_events
        self._tokens = tokens
        self._token_method = token_method
        self._meter = meter
        self._tail_nudge = tail_nudge
        self._call_signature_sentinel = call_signature_sentinel
        self._verify = verify_compile
        self._wait_s = min_seq_wait_ms / 1000
        self._shared: ShareRuns[Compiled] = ShareRuns()
        self._count = lru_cache(CACHED_COUNTS)(tokens.count)

    async def __call__(
        self, key: SessionKey, request: CompileRequest, *, append: Append | None = None
    ) -> Compiled:
        """Compile a session, after appending what came with the request.

        Raises:
            SessionNotFoundError: there is no such session.
            NotYetVisibleError: the log does not reach ``min_seq`` in time.
            InvalidInputError: a position, a digest or an instruction cannot be used.
        """
        appended = None
        if append is not None:
            appended = await self._append_events(append)
            if appended.is_replayed:
                # Compiled again as it was then, whatever came since.
                request = replace(request, as_of_seq=appended.head_seq)
        compiled = await self._shared((key.uid, request), lambda: self._stored(key, request))
        return replace(compiled, appended=appended)

    async def _stored(self, key: SessionKey, request: CompileRequest) -> Compiled:
        """Compile a session as it stands."""
        observer = _Observer(PassTrace() if request.wants_explain else None)
        run = await self._run_on_replica(key, request, observer)
        if run is None:
            run = await self._run_on_primary(key, request, observer)
        if request.is_sent:
            self._compiles.remember(
                run.read,
                run.inputs,
                run.result,
                counted=run.counted,
                standing=run.standing,
                lifecycle=run.lifecycle,
            )
            await self._compiles.learn(run.read, request.options.model, run.projection.reported)
        self._settle(key, request, run)
        self._check(run.result, request)
        compiled = self._answer(
            request,
            run.inputs,
            run.result,
            observer=observer,
            events=run.read.events,
            given=run.given,
            counted=run.counted,
            projection=run.projection,
            standing=run.standing,
            lifecycle=run.lifecycle,
        )
        beside = run.read.beside
        return replace(
            compiled,
            head_seq=run.read.head_seq,
            compaction=beside.standing if beside else None,
        )

    def stateless(
        self, events: Log, request: CompileRequest, state: Mapping[str, Json]
    ) -> Compiled:
        """Compile a log that is stored nowhere.

        Raises:
            InvalidInputError: a position or an instruction cannot be used.
        """
        head_seq = len(events.events)
        if request.as_of_seq is not None:
            if request.as_of_seq > head_seq:
                raise _beyond_head(head_seq)
            events = _up_to(events, request.as_of_seq)
        index = self._expanded(events.index, _markers(events.events), request)
        observer = _Observer(PassTrace() if request.wants_explain else None)
        given = self._given.of_model(request.options.model, state)
        records = self._caches.find_among(events.events, request.options)
        given = self._caches.dated(given, records)
        inputs = CompileInput(
            options=self._options(request),
            format=request.format,
            index=index,
            compiled_seq=len(events.events),
            state=given.state,
            opening_args=find_opening_args(events.events, request.options.reader.isolation_scope),
            rule=given.rule,
            calibration=given.calibration,
        )
        inputs = self._counted(inputs, request)
        result = self._run(events.events, inputs, observer)
        observer.lap("render")
        counted, projection = self._project(inputs, result, events.events)
        standing = self._stateless_standing(events, request, inputs, result)
        lifecycle = self._caches.plan(
            inputs, result, counted, events.events, records=records, given=given
        )
        self._check(result, request)
        compiled = self._answer(
            request,
            inputs,
            result,
            observer=observer,
            events=events.events,
            given=given,
            counted=counted,
            projection=projection,
            standing=standing,
            lifecycle=lifecycle,
        )
        return replace(compiled, head_seq=head_seq)

    # Running

    async def _run_on_primary(
        self, key: SessionKey, request: CompileRequest, observer: _Observer
    ) -> _Run:
        async with self._database.connection() as connection:
            run = await self._go_on(connection, key, request, observer)
            if run is None:
                run = await self._run_whole(connection, key, request, observer)
            await self._given.keep(connection, run.read, run.given)
        return run

    async def _run_on_replica(
        self, key: SessionKey, request: CompileRequest, observer: _Observer
    ) -> _Run | None:
        """Run on the replica, when it has come as far as the request says; None when it has not.

        A request that names no position wants the newest, which only the primary is sure to have.
        Nothing that was settled is gone on from: it may have come from further on.
        """
        position = max(request.min_seq or 0, request.as_of_seq or 0)
        # The inputs of an earlier compile may still be on their way.
        if self._replica is None or not position or request.inputs is not None:
            return None
        try:
            async with self._replica.connection() as connection:
                session = await self._log.find_session(connection, key)
                if session is None or session.head_seq < position:
                    return None
                run = await self._run_whole(connection, key, request, observer)
        except StorageUnavailableError:
            # Away, or the read stood in the way of what the primary sent.
            log.warning("replica_unavailable")
            return None
        if not self._given.is_kept(run.read, run.given):
            # Without the primary the answer is as good.
            with suppress(StorageError):
                async with self._database.connection() as connection:
                    await self._given.keep(connection, run.read, run.given)
        return run

    async def _run_whole(
        self,
        connection: Connection,
        key: SessionKey,
        request: CompileRequest,
        observer: _Observer,
    ) -> _Run:
        """Run the pipeline over everything that the reader sees."""
        read = await self._read(connection, key, request)
        given = await self._fetch(connection, request, read)
        records = await self._caches.find(
            connection, key, request.options, up_to_seq=_compiled_seq(request, read)
        )
        given = self._caches.dated(given, records)
        observer.lap("load")
        inputs = self._compile_input(request, read, given)
        result = self._run(read.events, inputs, observer)
        if result.budget_actions:
            read, inputs, result = await self._with_staged(
                connection, read, inputs=inputs, result=result
            )
        observer.lap("render")
        counted, projection = self._project(inputs, result, read.events)
        standing = await self._standing(connection, request, read, inputs=inputs, result=result)
        lifecycle = self._caches.plan(
            inputs, result, counted, read.events, records=records, given=given
        )
        return _Run(
            read=read,
            given=given,
            inputs=inputs,
            result=result,
            counted=counted,
            projection=projection,
            standing=standing,
            lifecycle=lifecycle,
        )

    async def _go_on(
        self,
        connection: Connection,
        key: SessionKey,
        request: CompileRequest,
        observer: _Observer,
    ) -> _Run | None:
        """Run it over what follows the settled; None where more must be known than that."""
        known = self._settled.find(_settled_key(key, request)) if self._settles(request) else None
        if known is None:
            observer.cache = "miss" if self._settles(request) else None
            return None
        observer.cache = "stale"
        read = await self._read(connection, key, request, before=known.before)
        given = await self._fetch(connection, request, read)
        observer.lap("load")
        inputs = self._compile_input(request, read, given)
        if not read.is_rest or inputs.rule is not known.rule:
            return None
        settled = known.settled
        tools = request.format.render_tools(inputs.options.tools) if inputs.options.tools else ""
        if (settled.system, settled.tools) != (system_text(inputs.options, inputs.state), tools):
            return None
        inputs = replace(inputs, settled=settled)
        events = given_after(read.events, settled, inputs)
        if events is None:
            return None
        read = replace(read, events=events)
        try:
            result = run_pipeline(events, inputs, observer)
        except BudgetExceededError:
            return None
        observer.lap("render")
        counted, projection = self._project(inputs, result, events)
        if result.budget_actions or _tightened(inputs, projection) is not None:
            return None
        reply = newest_reply(events, result, inputs.options.reader)
        standing = whole_standing(reply, result, base_fingerprint=request.base_fingerprint)
        base_count = _base_count(result, request.base_fingerprint)
        if standing is None or (base_count is not None and base_count < settled.part_count):
            return None
        observer.cache = "hit"
        return _Run(
            read=read,
            given=given,
            inputs=inputs,
            result=result,
            counted=counted,
            projection=projection,
            standing=standing,
        )

    def _settles(self, request: CompileRequest) -> bool:
        """Tell whether compiles like this one go on from one another."""
        return (
            self._settled.is_on
            and can_settle(request.options)
            and request.as_of_seq is None
            and not request.wants_explain
            # These look at everything.
            and request.options.cache.explicit is None
            and request.is_sent
            and not self._verify
        )

    def _settle(self, key: SessionKey, request: CompileRequest, run: _Run) -> None:
        read = run.read
        if not self._settles(request):
            return
        before = run.inputs.settled
        settled = settle(read.events, run.inputs, run.result, run.counted)
        if settled.until is None or settled is before:
            return
        self._settled.keep(
            _settled_key(key, request),
            SettledCompile(
                before=ReadBefore(
                    incarnation=read.incarnation,
                    index=read.index,
                    index_digest=read.index_digest,
                    # What is read after it has a later place, and so a later seq.
                    after_seq=settled.until[0],
                ),
                rule=run.inputs.rule,
                settled=settled,
            ),
        )

    # Reading

    async def _fetch(self, connection: Connection, request: CompileRequest, read: LogRead) -> Given:
        return await self._given.fetch(
            connection,
            read.key.tenant_id,
            model=request.options.model,
            digest=request.inputs,
            state=read.state,
            beside=read.beside,
        )

    async def _read(
        self,
        connection: Connection,
        key: SessionKey,
        request: CompileRequest,
        before: ReadBefore | None = None,
    ) -> LogRead:
        read = await self._read_once(connection, key, request, before)
        deadline_s = time.monotonic() + self._wait_s
        while request.min_seq is not None and read.head_seq < request.min_seq:
            if time.monotonic() >= deadline_s:
                raise NotYetVisibleError(min_seq=request.min_seq, head_seq=read.head_seq)
            await asyncio.sleep(POLL_S)
            read = await self._read_once(connection, key, request, before)
        if request.as_of_seq is not None and request.as_of_seq > read.head_seq:
            raise _beyond_head(read.head_seq)
        return await self._with_expanded(connection, key, request, read)

    async def _read_once(
        self,
        connection: Connection,
        key: SessionKey,
        request: CompileRequest,
        before: ReadBefore | None,
    ) -> LogRead:
        reader = request.options.reader
        # What an expanded fold masks, and what an explanation tells of, is not among the live.
        if request.wants_explain or request.options.expand:
            read = await self._log.read_all(connection, key, request.as_of_seq, reader=reader)
        elif request.as_of_seq is not None:
            read = await self._log.read_at(connection, key, reader, request.as_of_seq)
        else:
            read = await self._log.read_live(
                connection, key, reader, model=request.options.model, before=before
            )
        if read is None:
            raise SessionNotFoundError
        return read

    async def _with_expanded(
        self, connection: Connection, key: SessionKey, request: CompileRequest, read: LogRead
    ) -> LogRead:
        if not request.options.expand:
            return read
        markers = await self._log.markers(connection, key, _compiled_seq(request, read))
        return replace(read, index=self._expanded(read.index, markers, request))

    def _expanded(
        self, index: Index, markers: Sequence[tuple[int, Marker]], request: CompileRequest
    ) -> Index:
        """Return the index as if the folds and elisions to expand were undone."""
        folds = {seq for seq, marker in markers if isinstance(marker, Fold | Elision)}
        for number, seq in enumerate(request.options.expand):
            if seq not in folds:
                detail = f"there is no compaction at seq {seq}"
                raise InvalidInputError(detail, pointer=f"/expand/{number}")
        if not request.options.expand:
            return index
        undone = [
            (FOREVER + number, Undo(seq)) for number, seq in enumerate(request.options.expand)
        ]
        return resolve([*markers, *undone])

    # Compiling

    def _options(self, request: CompileRequest) -> CompileOptions:
        return replace(
            request.options,
            tail_nudge=self._tail_nudge,
            call_signature_sentinel=self._call_signature_sentinel,
        )

    def _compile_input(self, request: CompileRequest, read: LogRead, given: Given) -> CompileInput:
        inputs = CompileInput(
            options=self._options(request),
            format=request.format,
            index=read.index,
            compiled_seq=_compiled_seq(request, read),
            state=given.state,
            opening_args=read.opening_args,
            rule=given.rule,
            calibration=given.calibration,
            cache_scope=(read.key.tenant_id, read.key.session_id),
        )
        return self._counted(inputs, request)

    def _counted(self, inputs: CompileInput, request: CompileRequest) -> CompileInput:
        """Return the inputs with the budget, and what the request takes before any contents."""
        system = system_text(inputs.options, inputs.state)
        tools = request.format.render_tools(inputs.options.tools) if inputs.options.tools else ""
        limit = _limit(request, inputs)
        return replace(
            inputs,
            budget_tokens=None if limit is None else inputs.calibration.budget(limit),
            system_tokens=self._count(system) if system else 0,
            tools_tokens=self._count(tools) if tools else 0,
        )

    def _run(
        self, events: Events, inputs: CompileInput, observer: PassObserver | None = None
    ) -> CompileResult:
        """Run the pipeline; a second time where a report says that more must be cut.

        Raises:
            BudgetExceededError: in the model's tokens.
        """
        try:
            result = run_pipeline(events, inputs, observer)
            if inputs.budget_tokens is None:
                return result
            _, projection = self._project(inputs, result, events)
            tightened = _tightened(inputs, projection)
            if tightened is None:
                return result
            return run_pipeline(events, replace(inputs, budget_tokens=tightened), observer)
        except BudgetExceededError as error:
            raise error.converted(inputs.calibration.tokens) from None

    def _project(
        self, inputs: CompileInput, result: CompileResult, events: Events
    ) -> tuple[Counted, Projection]:
        counted = count_result(
            result,
            self._tokens.count,
            system_tokens=inputs.system_tokens,
            tools_tokens=inputs.tools_tokens,
        )
        reader = inputs.options.reader
        calibration = inputs.calibration
        return counted, project(counted, result, events, reader, calibration=calibration)

    async def _with_staged(
        self,
        connection: Connection,
        read: LogRead,
        *,
        inputs: CompileInput,
        result: CompileResult,
    ) -> tuple[LogRead, CompileInput, CompileResult]:
        """Use staged folds, in this answer alone, before anything is cut."""
        markers = await self._log.markers(connection, read.key, inputs.compiled_seq)
        statuses = fold_statuses(markers)
        staged = [seq for seq, status in statuses.items() if status == "staged"]
        if not staged:
            return read, inputs, result
        activations = [(FOREVER + number, Activation(seq)) for number, seq in enumerate(staged)]
        reader = inputs.options.reader
        full = await self._log.read_all(connection, read.key, inputs.compiled_seq, reader=reader)
        if full is None:
            return read, inputs, result
        read = replace(full, index=resolve([*markers, *activations]), head_seq=read.head_seq)
        inputs = replace(inputs, index=read.index)
        folded = self._run(read.events, inputs)
        used = tuple(BudgetAction("staged_fold", seq, 0) for seq in staged)
        return read, inputs, replace(folded, budget_actions=(*used, *folded.budget_actions))

    async def _standing(
        self,
        connection: Connection,
        request: CompileRequest,
        read: LogRead,
        *,
        inputs: CompileInput,
        result: CompileResult,
    ) -> Standing:
        """Tell how much of what the newest reply was compiled for still stands, and why not all."""
        reader = inputs.options.reader
        reply = newest_reply(read.events, result, reader)
        whole = whole_standing(reply, result, base_fingerprint=request.base_fingerprint)
        if whole is not None or reply is None:
            return whole or NOTHING_STANDS
        # Only now is it worth to read what the reply was compiled from.
        compiled_seq = reply.seq - 1 if reply.compiled_seq is None else reply.compiled_seq
        then = await self._log.read_at(connection, read.key, reader, compiled_seq)
        markers = await self._log.markers(connection, read.key, _compiled_seq(request, read))
        if then is None:
            return NOTHING_STANDS
        then_inputs = replace(
            inputs, index=then.index, compiled_seq=compiled_seq, opening_args=then.opening_args
        )
        then_result = _run_then(then.events, then_inputs)
        found = find_break(reply, result, then_result, index=read.index, markers=markers)
        return broken_standing(reply, result, then_result, found)

    def _stateless_standing(
        self, events: Log, request: CompileRequest, inputs: CompileInput, result: CompileResult
    ) -> Standing:
        reply = newest_reply(events.events, result, inputs.options.reader)
        whole = whole_standing(reply, result, base_fingerprint=request.base_fingerprint)
        if whole is not None or reply is None:
            return whole or NOTHING_STANDS
        compiled_seq = reply.seq - 1 if reply.compiled_seq is None else reply.compiled_seq
        then = _up_to(events, compiled_seq)
        then_inputs = replace(inputs, index=then.index, compiled_seq=compiled_seq)
        then_result = _run_then(then.events, then_inputs)
        markers = _markers(events.events)
        found = find_break(reply, result, then_result, index=inputs.index, markers=markers)
        return broken_standing(reply, result, then_result, found)

    def _check(self, result: CompileResult, request: CompileRequest) -> None:
        # Under `adk` the answer is ADK's, valid or not.
        if not self._verify or request.options.preset == "adk":
            return
        for violation in verify(result.rendered, request.format):
            raise InvariantViolatedError(
                invariant=violation.invariant, where=f"content {violation.content_index}"
            )

    # Answering

    def _answer(
        self,
        request: CompileRequest,
        inputs: CompileInput,
        result: CompileResult,
        *,
        observer: _Observer,
        events: Events,
        given: Given,
        counted: Counted,
        projection: Projection,
        standing: Standing,
        lifecycle: Lifecycle | None,
    ) -> Compiled:
        base_count = _base_count(result, request.base_fingerprint)
        explained = None
        if observer.trace is not None:
            explained = explain(events, inputs.index, observer.trace, result)
        segment: Mapping[str, str] | None = None
        if lifecycle is not None and lifecycle.is_split:
            body = request_after(result, request.format, request.options, lifecycle)
            if lifecycle.action != "use":
                segment = cache_segment(result, request.format, request.options, lifecycle)
        else:
            body = request_fields(result, request.format, request.options, base_count=base_count)
        observer.lap("answer")
        by_segment = scaled(counted.by_segment, projection.total)
        shared_tokens = inputs.calibration.tokens(standing.tokens(counted))
        if request.is_sent:
            self._meter.compiled(
                result,
                wire_format=request.format.name,
                cache=observer.cache,
                timing_ms=observer.timing_ms,
                scanned=len(events),
                hidden=observer.hidden,
                index=inputs.index,
                tokens_by_segment=by_segment,
                shared_tokens=None if standing.fingerprint is None else shared_tokens,
                found_break=standing.found_break,
                is_unchanged=base_count is not None and base_count == len(result.chain) - 1,
            )
        return Compiled(
            result=result,
            request=body,
            head_seq=inputs.compiled_seq,
            compiled_seq=inputs.compiled_seq,
            base_count=base_count or 0,
            tokens=Tokens(
                by_segment=by_segment,
                method=self._method(inputs, projection),
                error_bound=projection.error_bound,
            ),
            budget_tokens=_limit(request, inputs),
            inputs_digest=given.digest,
            found_break=standing.found_break,
            shared_prefix_tokens=shared_tokens,
            rule=inputs.rule,
            calibration=inputs.calibration,
            timing_ms=observer.timing_ms,
            explained=explained,
            lifecycle=lifecycle,
            cache_segment=segment,
        )

    def _method(self, inputs: CompileInput, projection: Projection) -> str:
        """Say how the tokens were counted."""
        if projection.reported is not None:
            return f"reported+{self._token_method}"
        is_plain = inputs.calibration.percent == 100  # noqa: PLR2004
        return self._token_method if is_plain else f"{self._token_method}_calibrated"


def _limit(request: CompileRequest, inputs: CompileInput) -> int | None:
    """Return what the request may take: as asked for or as the model does, never more than it
    turned out to take."""
    rule, learnt = inputs.rule, inputs.calibration.limit_tokens
    asked = request.budget_tokens
    if asked is None and rule is not None:
        asked = rule.default_budget_tokens
    limits = [limit for limit in (asked, learnt) if limit is not None]
    return min(limits, default=None)


def _tightened(inputs: CompileInput, projection: Projection) -> int | None:
    """Return a tighter budget where the provider counts more than we are calibrated for, else None.

    In steps, so that the cut stays.
    """
    budget = inputs.budget_tokens
    if budget is None or projection.reported is None:
        return None
    limit = inputs.calibration.tokens(budget)
    if projection.total <= limit:
        return None
    steps = -(-projection.total * TIGHTENING_STEPS // limit)
    return budget * TIGHTENING_STEPS // steps


def _settled_key(key: SessionKey, request: CompileRequest) -> tuple[UUID, CompileOptions, str]:
    return (key.uid, request.options, request.format.name)


def _run_then(events: Events, inputs: CompileInput) -> CompileResult:
    """Compile an earlier position, for comparison only."""
    try:
        return run_pipeline(events, inputs)
    except BudgetExceededError:
        return run_pipeline(events, replace(inputs, budget_tokens=None))


def _compiled_seq(request: CompileRequest, read: LogRead) -> int:
    return read.head_seq if request.as_of_seq is None else request.as_of_seq


def _beyond_head(head_seq: int) -> InvalidInputError:
    return InvalidInputError(f"the head is at {head_seq}", pointer="/as_of_seq")


def _markers(events: Events) -> list[tuple[int, Marker]]:
    return [(event.seq, event.marker) for event in events if event.marker is not None]


def _up_to(events: Log, as_of_seq: int) -> Log:
    kept = events.events[:as_of_seq]
    return Log(kept, resolve(_markers(kept)))


def _base_count(result: CompileResult, base_fingerprint: str | None) -> int | None:
    """Return how many parts the caller's base has, None when it is no prefix of the answer."""
    if base_fingerprint is None:
        return None
    try:
        return result.chain.index(base_fingerprint)
    except ValueError:
        return None
