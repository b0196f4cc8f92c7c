"""Compile: gather what the reader sees, run the pipeline, and say how it went.

What is fetched beside the log (state that instructions name) is answered with a digest under which
it is kept, so that the same compile can be asked for again. Compile itself appends nothing; events
that came with the request are appended before, by the service that appends.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final
from uuid import UUID

import structlog

from app.core.canonical import Json, canonical_json
from app.core.compile.adk.opening import find_opening_args
from app.core.compile.breaks import Break, find_break, fingerprint_before, newest_reply
from app.core.compile.inputs import (
    BudgetAction,
    CompileInput,
    CompileOptions,
    CompileResult,
    Format,
)
from app.core.compile.instruction import system_text
from app.core.compile.pipeline import run_pipeline
from app.core.compile.render import after
from app.core.compile.trace import EventTrace, PassTrace, explain
from app.core.compile.verify import verify
from app.core.contents import Contents, Segment
from app.core.errors import (
    InvalidInputError,
    InvariantViolatedError,
    NotYetVisibleError,
    SessionNotFoundError,
    StorageError,
)
from app.core.events import Activation, Elision, Events, Fold, Marker, Undo
from app.core.index import Index, fold_statuses, resolve
from app.core.ranges import FOREVER
from app.core.resolve import Log
from app.core.tokens import part_tokens
from app.ports import (
    CompileInputs,
    Connection,
    Database,
    EventLog,
    LogRead,
    SessionKey,
    TokenCounter,
)
from app.services.append_events import Append, AppendEvents, AppendResult

#: How often a wait for a seq looks again.
POLL_S: Final = 0.02
#: Digests that this process has kept already, so that not every compile writes.
MAX_KNOWN_DIGESTS: Final = 10_000
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Our count of the request."""

    by_segment: Mapping[str, int]
    method: str

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
    timing_ms: Mapping[str, float]
    explained: tuple[EventTrace, ...] | None = None
    appended: AppendResult | None = None


@dataclass(slots=True)
class _Observer:
    """Times the passes, and remembers what they gave when an explanation is wanted."""

    trace: PassTrace | None
    timing_ms: dict[str, float] = field(default_factory=dict)
    last_s: float = field(default_factory=time.perf_counter)

    def passed(self, name: str, items: Events | Contents) -> None:
        """Take what a pass gave."""
        self.lap(name)
        if self.trace is not None:
            self.trace.passed(name, items)

    def lap(self, name: str) -> None:
        """Note the time since the last lap under a name."""
        now_s = time.perf_counter()
        self.timing_ms[name] = round((now_s - self.last_s) * 1000, 3)
        self.last_s = now_s


class _UsedState(Mapping[str, Json]):
    """A state that remembers which of its keys were asked for."""

    def __init__(self, state: Mapping[str, Json]) -> None:
        self._state = state
        self.used: dict[str, Json] = {}

    def __getitem__(self, key: str) -> Json:
        value = self._state[key]
        self.used[key] = value
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._state

    def __iter__(self) -> Iterator[str]:
        self.used.update(self._state)
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)

    @property
    def text(self) -> str:
        """What was used, as the text that a digest stands for."""
        return canonical_json({"state": dict(sorted(self.used.items()))})


class CompileContext:
    """Compiles stored sessions, and logs that are stored nowhere."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        inputs: CompileInputs,
        append_events: AppendEvents,
        tokens: TokenCounter,
        token_method: str,
        tail_nudge: bool = True,
        verify_compile: bool = False,
        min_seq_wait_ms: int = 0,
    ) -> None:
        self._database = database
        self._log = log
        self._inputs = inputs
        self._append_events = append_events
        self._tokens = tokens
        self._token_method = token_method
        self._tail_nudge = tail_nudge
        self._verify = verify_compile
        self._wait_s = min_seq_wait_ms / 1000
        self._known_digests: set[tuple[UUID, str]] = set()
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
        observer = _Observer(PassTrace() if request.wants_explain else None)
        async with self._database.connection() as connection:
            read = await self._read(connection, key, request)
            state = await self._state(connection, key.tenant_id, request, read.state)
            observer.lap("load")
            inputs = self._compile_input(request, read, state)
            result = run_pipeline(read.events, inputs, observer)
            if result.budget_actions:
                read, inputs, result = await self._with_staged(
                    connection, read, inputs=inputs, result=result
                )
            observer.lap("render")
            found_break = await self._break(connection, request, read, inputs=inputs, result=result)
            await self._keep_inputs(connection, read, state)
        self._check(result, request)
        compiled = self._answer(
            request, inputs, result, observer=observer, events=read.events, state=state
        )
        return replace(compiled, head_seq=read.head_seq, found_break=found_break, appended=appended)

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
        used = _UsedState(state)
        inputs = CompileInput(
            options=self._options(request),
            format=request.format,
            index=index,
            compiled_seq=len(events.events),
            state=used,
            opening_args=find_opening_args(events.events, request.options.reader.isolation_scope),
        )
        inputs = self._budgeted(inputs, request)
        result = run_pipeline(events.events, inputs, observer)
        observer.lap("render")
        found_break = self._stateless_break(events, inputs, result)
        self._check(result, request)
        compiled = self._answer(
            request, inputs, result, observer=observer, events=events.events, state=used
        )
        return replace(compiled, head_seq=head_seq, found_break=found_break)

    # Reading

    async def _read(
        self, connection: Connection, key: SessionKey, request: CompileRequest
    ) -> LogRead:
        read = await self._read_once(connection, key, request)
        deadline_s = time.monotonic() + self._wait_s
        while request.min_seq is not None and read.head_seq < request.min_seq:
            if time.monotonic() >= deadline_s:
                raise NotYetVisibleError(min_seq=request.min_seq, head_seq=read.head_seq)
            await asyncio.sleep(POLL_S)
            read = await self._read_once(connection, key, request)
        if request.as_of_seq is not None and request.as_of_seq > read.head_seq:
            raise _beyond_head(read.head_seq)
        return await self._with_expanded(connection, key, request, read)

    async def _read_once(
        self, connection: Connection, key: SessionKey, request: CompileRequest
    ) -> LogRead:
        reader = request.options.reader
        # What an expanded fold masks, and what an explanation tells of, is not among the live.
        if request.wants_explain or request.options.expand:
            read = await self._log.read_all(connection, key, request.as_of_seq, reader=reader)
        elif request.as_of_seq is not None:
            read = await self._log.read_at(connection, key, reader, request.as_of_seq)
        else:
            read = await self._log.read_live(connection, key, reader)
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

    async def _state(
        self,
        connection: Connection,
        tenant_id: str,
        request: CompileRequest,
        state: Mapping[str, Json],
    ) -> _UsedState:
        """Return the state to inject: the session's, or what an earlier compile used."""
        if request.inputs is None or request.inputs == _digest(_UsedState({}).text):
            return _UsedState(state)
        body = await self._inputs.find(connection, tenant_id, request.inputs)
        if body is None:
            raise InvalidInputError("unknown inputs", pointer="/inputs")
        return _UsedState(json.loads(body)["state"])

    # Compiling

    def _options(self, request: CompileRequest) -> CompileOptions:
        return replace(request.options, tail_nudge=self._tail_nudge)

    def _compile_input(
        self, request: CompileRequest, read: LogRead, state: Mapping[str, Json]
    ) -> CompileInput:
        inputs = CompileInput(
            options=self._options(request),
            format=request.format,
            index=read.index,
            compiled_seq=_compiled_seq(request, read),
            state=state,
            opening_args=read.opening_args,
        )
        return self._budgeted(inputs, request)

    def _budgeted(self, inputs: CompileInput, request: CompileRequest) -> CompileInput:
        """Return the inputs with the budget, and what the request takes before any contents."""
        if request.budget_tokens is None:
            return inputs
        system = system_text(inputs.options, inputs.state)
        tools = request.format.render_tools(inputs.options.tools) if inputs.options.tools else ""
        return replace(
            inputs,
            budget_tokens=request.budget_tokens,
            system_tokens=self._count(system) if system else 0,
            tools_tokens=self._count(tools) if tools else 0,
        )

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
        folded = run_pipeline(read.events, inputs)
        used = tuple(BudgetAction("staged_fold", seq, 0) for seq in staged)
        return read, inputs, replace(folded, budget_actions=(*used, *folded.budget_actions))

    async def _break(
        self,
        connection: Connection,
        request: CompileRequest,
        read: LogRead,
        *,
        inputs: CompileInput,
        result: CompileResult,
    ) -> Break | None:
        """Tell why the newest reply no longer stands on what it was compiled for."""
        reader = inputs.options.reader
        reply = newest_reply(read.events, result, reader)
        if reply is None or fingerprint_before(reply, result) == reply.compiled_fingerprint:
            return None
        # Only now is it worth to read what the reply was compiled from.
        compiled_seq = reply.seq - 1 if reply.compiled_seq is None else reply.compiled_seq
        then = await self._log.read_at(connection, read.key, reader, compiled_seq)
        markers = await self._log.markers(connection, read.key, _compiled_seq(request, read))
        if then is None:
            return None
        then_inputs = replace(
            inputs, index=then.index, compiled_seq=compiled_seq, opening_args=then.opening_args
        )
        then_result = run_pipeline(then.events, then_inputs)
        return find_break(reply, result, then_result, index=read.index, markers=markers)

    def _stateless_break(
        self, events: Log, inputs: CompileInput, result: CompileResult
    ) -> Break | None:
        reply = newest_reply(events.events, result, inputs.options.reader)
        if reply is None or fingerprint_before(reply, result) == reply.compiled_fingerprint:
            return None
        compiled_seq = reply.seq - 1 if reply.compiled_seq is None else reply.compiled_seq
        then = _up_to(events, compiled_seq)
        then_inputs = replace(inputs, index=then.index, compiled_seq=compiled_seq)
        then_result = run_pipeline(then.events, then_inputs)
        markers = _markers(events.events)
        return find_break(reply, result, then_result, index=inputs.index, markers=markers)

    def _check(self, result: CompileResult, request: CompileRequest) -> None:
        # Under `adk` the answer is ADK's, valid or not.
        if not self._verify or request.options.preset == "adk":
            return
        for violation in verify(result.rendered, request.format):
            raise InvariantViolatedError(
                invariant=violation.invariant, where=f"content {violation.content_index}"
            )

    async def _keep_inputs(self, connection: Connection, read: LogRead, state: _UsedState) -> None:
        """Keep what was used, once per process and session; without it the answer is as good."""
        if not state.used:
            return
        digest = _digest(state.text)
        known = (read.incarnation, digest)
        if known in self._known_digests:
            return
        try:
            await self._inputs.keep(
                connection, read.key.tenant_id, digest, state.text, key=read.key
            )
        except StorageError:
            log.warning("inputs_not_kept", digest=digest)
            return
        if len(self._known_digests) >= MAX_KNOWN_DIGESTS:
            self._known_digests.clear()
        self._known_digests.add(known)

    # Answering

    def _answer(
        self,
        request: CompileRequest,
        inputs: CompileInput,
        result: CompileResult,
        *,
        observer: _Observer,
        events: Events,
        state: _UsedState,
    ) -> Compiled:
        base_count = _base_count(result, request.base_fingerprint)
        explained = None
        if observer.trace is not None:
            explained = explain(events, inputs.index, observer.trace, result)
        body = _request_body(request, result, base_count)
        tokens = self._token_counts(result)
        observer.lap("answer")
        return Compiled(
            result=result,
            request=body,
            head_seq=inputs.compiled_seq,
            compiled_seq=inputs.compiled_seq,
            base_count=base_count or 0,
            tokens=tokens,
            budget_tokens=request.budget_tokens,
            inputs_digest=_digest(state.text),
            found_break=None,
            timing_ms=observer.timing_ms,
            explained=explained,
        )

    def _token_counts(self, result: CompileResult) -> Tokens:
        by_segment = {"system": 0, "tools": 0, **dict.fromkeys(map(str, Segment), 0)}
        by_segment["system"] = self._count(result.system) if result.system else 0
        by_segment["tools"] = self._count(result.tools) if result.tools else 0
        for content in result.contents:
            for placed in content.parts:
                tokens = placed.tokens or part_tokens(placed.part, self._tokens.count)
                by_segment[placed.segment] += tokens
        return Tokens(by_segment=by_segment, method=self._token_method)


def _compiled_seq(request: CompileRequest, read: LogRead) -> int:
    return read.head_seq if request.as_of_seq is None else request.as_of_seq


def _beyond_head(head_seq: int) -> InvalidInputError:
    return InvalidInputError(f"the head is at {head_seq}", pointer="/as_of_seq")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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


def _request_body(
    request: CompileRequest, result: CompileResult, base_count: int | None
) -> Mapping[str, str]:
    if base_count is None:
        return request.format.render_request(
            result.rendered,
            system=result.system,
            tools=result.tools,
            model=request.options.model,
        )
    rest = after(result.rendered, base_count)
    if not rest:
        return {}
    # Tools and system are a part of the base, so the caller has them.
    return request.format.render_request(rest, system="", tools="", model=request.options.model)
