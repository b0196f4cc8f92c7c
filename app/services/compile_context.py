"""Compile: gather what the reader sees, run the pipeline, and say how it went.

What is fetched beside the log (state that instructions name, what is known of the model) is
answered with a digest under which it is kept, so that the same compile can be asked for again.
Compile itself appends nothing; events that came with the request are appended before, by the
service that appends.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import structlog
from msgspec import Struct

from app.core.canonical import Json
from app.core.compile.adk.opening import find_opening_args
from app.core.compile.breaks import (
    change_before,
    changed_reply,
    compiled_at,
    find_break,
    gone_reply,
    newest_reply,
)
from app.core.compile.explicit_cache import Lifecycle, cache_segment, request_after
from app.core.compile.inputs import BudgetAction, CompileInput, CompileOptions, CompileResult
from app.core.compile.instruction import system_text
from app.core.compile.projection import Counted, Projection, scaled
from app.core.compile.render import is_turn_grown, request_fields, tools_text
from app.core.compile.settle import can_settle, given_after, settle
from app.core.compile.staged import activating, saved_by, staged_folds
from app.core.compile.standing import (
    NOTHING_STANDS,
    Standing,
    broken_reply,
    broken_standing,
    whole_standing,
)
from app.core.compile.trace import EventTrace, PassTrace, explain
from app.core.compile.verify import verify
from app.core.copying import replace
from app.core.errors import (
    BudgetExceededError,
    InvariantViolatedError,
    StorageError,
    StorageUnavailableError,
)
from app.core.events import Events, markers_of
from app.core.index import resolve
from app.core.resolve import Log
from app.observability.failures import step_failed
from app.ports import Connection, Database, EventLog, LogRead, Meter, ReadBefore, SessionKey
from app.services.append_events import Append, AppendEvents
from app.services.compile_given import Given, GivenInputs
from app.services.compiled import Compiled, CompileRequest, Tokens
from app.services.explicit_caches import ExplicitCaches
from app.services.read_for_compile import (
    ReadForCompile,
    beyond_head,
    expanded,
    position_of,
    up_to,
)
from app.services.remember_compiles import RememberCompiles
from app.services.run_compile import (
    CompileObserver,
    RunCompile,
    base_count_of,
    limit_of,
    tightened,
    window_of,
)
from app.services.settled_compiles import SettledCompile, SettledCompiles
from app.services.share_runs import ShareRuns

log = structlog.get_logger(__name__)


class _Run(Struct, frozen=True, kw_only=True):
    """One run of the pipeline, and what is known of its result."""

    read: LogRead
    given: Given
    inputs: CompileInput
    result: CompileResult
    counted: Counted
    projection: Projection
    standing: Standing
    lifecycle: Lifecycle | None = None
    #: What was not read, for an explanation.
    unread: Sequence[EventTrace] = ()


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
        read: ReadForCompile,
        run: RunCompile,
        token_method: str,
        meter: Meter,
        verify_compile: bool = False,
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
        self._read = read
        self._run = run
        self._token_method = token_method
        self._meter = meter
        self._verify = verify_compile
        self._shared: ShareRuns[Compiled] = ShareRuns()

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
        observer = CompileObserver(PassTrace() if request.wants_explain else None)
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
            unread=run.unread,
        )
        beside = run.read.beside
        return replace(
            compiled,
            head_seq=run.read.head_seq,
            compaction=beside.standing if beside else None,
        )

    async def stateless(
        self, events: Log, request: CompileRequest, state: Mapping[str, Json]
    ) -> Compiled:
        """Compile a log that is stored nowhere.

        Raises:
            InvalidInputError: a position or an instruction cannot be used.
        """
        head_seq = len(events.events)
        if request.as_of_seq is not None:
            if request.as_of_seq > head_seq:
                raise beyond_head(head_seq)
            events = up_to(events, request.as_of_seq)
        index = expanded(events.index, markers_of(events.events), request)
        observer = CompileObserver(PassTrace() if request.wants_explain else None)
        given = self._given.of_model(request.options.model, state)
        records = self._caches.find_among(events.events, request.options)
        given = self._caches.dated(given, records)
        inputs = CompileInput(
            options=self._run.options(request),
            format=request.format,
            index=index,
            compiled_seq=len(events.events),
            state=given.state,
            opening_args=find_opening_args(events.events, request.options.reader.isolation_scope),
            rule=given.rule,
            calibration=given.calibration,
        )
        inputs = await self._run.counted(inputs, request)
        result = await self._run(events.events, inputs, observer)
        observer.lap("render")
        counted, projection = self._run.project(inputs, result, events.events)
        standing = await self._stateless_standing(events, request, inputs, result)
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
        self, key: SessionKey, request: CompileRequest, observer: CompileObserver
    ) -> _Run:
        async with self._database.connection() as connection:
            run = await self._go_on(connection, key, request, observer)
            if run is None:
                run = await self._run_whole(connection, key, request, observer)
            await self._given.keep(connection, run.read, run.given)
        return run

    async def _run_on_replica(
        self, key: SessionKey, request: CompileRequest, observer: CompileObserver
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
        except StorageUnavailableError as error:
            # Away, or the read stood in the way of what the primary sent.
            step_failed(log, "replica_unavailable", error)
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
        observer: CompileObserver,
    ) -> _Run:
        """Run the pipeline over everything that the reader sees."""
        read = await self._read(connection, key, request)
        given = await self._fetch(connection, request, read)
        records = await self._caches.find(
            connection, key, request.options, up_to_seq=position_of(request, read)
        )
        given = self._caches.dated(given, records)
        observer.lap("load")
        inputs = await self._run.inputs(request, read, given)
        result = await self._run(read.events, inputs, observer)
        if result.budget_actions:
            read, inputs, result = await self._with_staged(
                connection, request, read, inputs=inputs, result=result, observer=observer
            )
        observer.lap("render")
        counted, projection = self._run.project(inputs, result, read.events)
        standing = await self._standing(connection, request, read, inputs=inputs, result=result)
        lifecycle = self._caches.plan(
            inputs, result, counted, read.events, records=records, given=given
        )
        unread: Sequence[EventTrace] = ()
        if request.wants_explain and len(read.events) < inputs.compiled_seq:
            unread = await self._log.read_unread(
                connection, key, request.options.reader, read, up_to_seq=inputs.compiled_seq
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
            unread=unread,
        )

    async def _go_on(
        self,
        connection: Connection,
        key: SessionKey,
        request: CompileRequest,
        observer: CompileObserver,
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
        inputs = await self._run.inputs(request, read, given)
        if not read.is_rest or inputs.rule is not known.rule:
            return None
        settled = known.settled
        tools = tools_text(request.format, inputs.options.tools)
        if (settled.system, settled.tools) != (system_text(inputs.options, inputs.state), tools):
            return None
        inputs = replace(inputs, settled=settled)
        events = given_after(read.events, settled, inputs)
        if events is None:
            return None
        read = replace(read, events=events)
        try:
            result = await self._run.once(events, inputs, observer)
        except BudgetExceededError:
            return None
        observer.lap("render")
        counted, projection = self._run.project(inputs, result, events)
        if result.budget_actions or tightened(inputs, projection) is not None:
            return None
        reader = inputs.options.reader
        reply = newest_reply(events, result, reader)
        gone = read.gone_reply or changed_reply(reply, events, inputs.index, reader)
        base_count = base_count_of(result, request)
        is_behind = base_count is not None and base_count < settled.part_count
        if is_behind or broken_reply(reply, result, gone=gone) is not None:
            return None
        standing = whole_standing(
            reply, result, gone=gone, base_fingerprint=request.base_fingerprint
        )
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

    async def _with_staged(
        self,
        connection: Connection,
        request: CompileRequest,
        read: LogRead,
        *,
        inputs: CompileInput,
        result: CompileResult,
        observer: CompileObserver,
    ) -> tuple[LogRead, CompileInput, CompileResult]:
        """Use staged folds, in this answer alone, before anything is cut."""
        markers = await self._log.markers(connection, read.key, inputs.compiled_seq)
        staged = staged_folds(markers)
        if not staged:
            return read, inputs, result
        reader = inputs.options.reader
        full = await self._log.read_all(connection, read.key, inputs.compiled_seq, reader=reader)
        if full is None:
            return read, inputs, result
        activated = activating(staged, markers)
        index = expanded(resolve(activated), activated, request)
        saved = saved_by(staged, full.events, reader, before=inputs.index, after=index)
        used = tuple(BudgetAction("staged_fold", seq, saved[seq]) for seq in staged)
        read = replace(full, index=index, head_seq=read.head_seq)
        inputs = replace(inputs, index=index)
        folded = await self._run(read.events, inputs, observer)
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
        gone = read.gone_reply or changed_reply(reply, read.events, inputs.index, reader)
        broken = broken_reply(reply, result, gone=gone)
        if broken is None:
            return whole_standing(
                reply, result, gone=gone, base_fingerprint=request.base_fingerprint
            )
        markers = await self._log.markers(connection, read.key, position_of(request, read))
        if not broken.compiled_fingerprint:
            return Standing(None, found_break=change_before(broken, markers))
        # Only now is it worth to read what the reply was compiled from.
        then = await self._log.read_at(connection, read.key, reader, compiled_at(broken))
        if then is None:
            return NOTHING_STANDS
        then_inputs = replace(
            inputs,
            index=then.index,
            compiled_seq=compiled_at(broken),
            opening_args=then.opening_args,
        )
        then_result = await self._run.then(then.events, then_inputs)
        found = find_break(broken, result, then_result, index=read.index, markers=markers)
        return broken_standing(broken, result, then_result, found)

    async def _stateless_standing(
        self, events: Log, request: CompileRequest, inputs: CompileInput, result: CompileResult
    ) -> Standing:
        reader = inputs.options.reader
        reply = newest_reply(events.events, result, reader)
        gone = gone_reply(events.events, inputs.index, reader)
        gone = gone or changed_reply(reply, events.events, inputs.index, reader)
        broken = broken_reply(reply, result, gone=gone)
        if broken is None:
            return whole_standing(
                reply, result, gone=gone, base_fingerprint=request.base_fingerprint
            )
        markers = markers_of(events.events)
        if not broken.compiled_fingerprint:
            return Standing(None, found_break=change_before(broken, markers))
        then = up_to(events, compiled_at(broken))
        then_inputs = replace(inputs, index=then.index, compiled_seq=compiled_at(broken))
        then_result = await self._run.then(then.events, then_inputs)
        found = find_break(broken, result, then_result, index=inputs.index, markers=markers)
        return broken_standing(broken, result, then_result, found)

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
        observer: CompileObserver,
        events: Events,
        given: Given,
        counted: Counted,
        projection: Projection,
        standing: Standing,
        lifecycle: Lifecycle | None,
        unread: Sequence[EventTrace] = (),
    ) -> Compiled:
        base_count = base_count_of(result, request)
        explained = None
        if observer.trace is not None:
            explained = explain(events, inputs, observer.trace, result, unread=unread)
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
            continues_turn=base_count is not None and is_turn_grown(result, base_count),
            tokens=Tokens(
                by_segment=by_segment,
                method=self._method(inputs, projection),
                error_bound=projection.error_bound,
            ),
            budget_tokens=limit_of(request, inputs),
            window_tokens=window_of(request, inputs),
            model=request.options.model,
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


def _settled_key(key: SessionKey, request: CompileRequest) -> tuple[UUID, CompileOptions, str]:
    return (key.uid, request.options, request.format.name)
