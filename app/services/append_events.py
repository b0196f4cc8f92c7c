"""Append a batch of events: all of it or nothing, in one transaction under the session's lock.

What looks no further back than the head is one statement (`follow_head.py`); here is the rest.

Repeats are recognised by event id and answered with their seq. A batch of nothing but repeats wins
over a stale expectation of the head, so that a lost answer can always be asked for again.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.core.canonical import Json
from app.core.copying import replace
from app.core.errors import (
    ConcurrentAppendError,
    EventIdReusedError,
    FoldlineError,
    SessionExistsError,
    SessionNotFoundError,
)
from app.core.events import Rewind, Undo
from app.core.limits import Stored
from app.core.resolve import Facts, needs_of
from app.ports import (
    Clock,
    Connection,
    Database,
    EventLog,
    IdempotencyKeys,
    LockedSession,
    Meter,
    NewEvent,
    NewSession,
    SessionKey,
    SessionRow,
    Sessions,
    TokenCounter,
)
from app.services import idempotency
from app.services.activate_staged import ActivateStaged
from app.services.enforce_quotas import EnforceQuotas
from app.services.follow_head import FollowHead, is_ordinary
from app.services.idempotency import IdempotentRequest
from app.services.prepare_events import NATIVE, EventPreparer, Note, PreparedEvent, SentBatch
from app.services.resolve_batch import resolve_beside_loop
from app.services.schedule_compaction import NOT_DUE, ScheduleCompaction, Scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """What to append, and under which conditions."""

    key: SessionKey
    batch: SentBatch
    #: Where the writer believes the head to be.
    expected_seq: int | None = None
    #: Make the session with this, if there is none.
    create: NewSession | None = None
    idempotent: IdempotentRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedEvent:
    """What became of one event of the batch."""

    id: str
    #: None for a partial event, which is never stored.
    seq: int | None
    tokens: int
    #: Index of the item in the request.
    item: int
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    """What an append did."""

    appended: tuple[AppendedEvent, ...]
    head_seq: int
    notes: tuple[Note, ...] = ()
    compaction: Scheduled = NOT_DUE
    is_replayed: bool = False


@dataclass(slots=True)
class AppendStep:
    """An append while its transaction is open."""

    connection: Connection
    session: LockedSession
    facts: Facts
    rows: list[NewEvent] = field(default_factory=list)
    appended: list[AppendedEvent] = field(default_factory=list)
    compaction: Scheduled = NOT_DUE


class AppendEvents:
    """The one way into the log: markers made by other services come through here too."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        sessions: Sessions,
        keys: IdempotencyKeys,
        preparer: EventPreparer,
        tokens: TokenCounter,
        schedule: ScheduleCompaction,
        activate_staged: ActivateStaged,
        quotas: EnforceQuotas,
        follow: FollowHead,
        clock: Clock,
        meter: Meter,
    ) -> None:
        self._database = database
        self._log = log
        self._sessions = sessions
        self._keys = keys
        self._preparer = preparer
        self._tokens = tokens
        self._schedule = schedule
        self._activate_staged = activate_staged
        self._quotas = quotas
        self._follow = follow
        self._clock = clock
        self._meter = meter

    async def __call__(self, append: Append) -> AppendResult:
        """Append.

        Raises:
            SessionNotFoundError: there is none, and none is to be made.
            ConcurrentAppendError: the head is not where it is expected.
            EventIdReusedError: an id belongs to another event.
            InvalidInputError: an event is refused; nothing of the batch is stored.
            QuotaExceededError: the tenant may not store so much.
        """
        try:
            return await self._stored(append)
        except FoldlineError as error:
            self._meter.append_refused(error)
            raise

    async def _stored(self, append: Append) -> AppendResult:
        await self._quotas.refresh(append.key.tenant_id)
        append = await self._with_agent(append)
        prepared, notes = await self._preparer.prepare(append.batch, now=self._clock.now())
        # Whose the session is, which `create` names, is only looked at under the lock.
        is_plain = append.idempotent is None and append.create is None
        if not is_plain or append.batch.allow_markers:
            async with self._follow.turn(append.key, None):
                return await self._locked(append, prepared, notes)
        fresh = fresh_events(prepared, {})
        is_anywhere = append.expected_seq is None and is_ordinary(fresh)
        async with self._follow.turn(append.key, fresh if is_anywhere else None) as turn:
            followed = turn.done
            if followed is None:
                followed = await self._follow(append.key, fresh, expected_seq=append.expected_seq)
            if followed is None:
                return await self._locked(append, prepared, notes)
        self._meter.lock_waited("append", turn.waited_s)
        appended = _answers(prepared, fresh, {}, followed.rows)
        self._count(followed.rows, appended, source=_source(append))
        return AppendResult(
            appended=tuple(appended), head_seq=followed.head_seq, notes=tuple(notes)
        )

    async def _locked(
        self, append: Append, prepared: Sequence[PreparedEvent], notes: Sequence[Note]
    ) -> AppendResult:
        """Append in a transaction that locks the session first."""
        self._follow.forget(append.key)
        async with self._database.transaction() as connection:
            kept = await idempotency.claim(self._keys, connection, append.idempotent)
            if kept is not None:
                self._meter.request_repeated()
                return restored(kept)
            session = await self.lock(connection, append.key, append.create)
            step = await self.insert(connection, append, session, prepared)
            result = AppendResult(
                appended=tuple(step.appended),
                head_seq=step.facts.head_seq,
                notes=tuple(notes),
                compaction=step.compaction,
            )
            await idempotency.keep(
                self._keys, connection, append.idempotent, asdict(result), key=append.key
            )
        self.count(step, source=_source(append))
        if result.compaction.is_due:
            self._schedule.wake()
        return result

    def count(self, step: AppendStep, *, source: str) -> None:
        """Count what a step has stored; to be called when its transaction has committed."""
        self._count(step.rows, step.appended, source=source)

    def _count(
        self, rows: Sequence[NewEvent], appended: Sequence[AppendedEvent], *, source: str
    ) -> None:
        repeated = sum(each.is_duplicate for each in appended)
        kinds: Counter[str] = Counter(row.event.kind for row in rows)
        self._meter.appended(kinds, source=source, repeated=repeated)

    async def lock(
        self,
        connection: Connection,
        key: SessionKey,
        create: NewSession | None = None,
        *,
        op: str = "append",
    ) -> LockedSession:
        """Lock the session until the transaction ends, making it first if asked to."""
        started_s = time.perf_counter()
        session = await self._log.lock_session(connection, key)
        self._meter.lock_waited(op, time.perf_counter() - started_s)
        if session is None and create is not None:
            # Another writer may have made it meanwhile: then it is theirs that is locked.
            if await self._sessions.create(connection, key, create):
                self._quotas.take(key.tenant_id, Stored(sessions=1))
            session = await self._log.lock_session(connection, key)
        if session is None:
            raise SessionNotFoundError
        if create is not None:
            check_owner(session, create, pointer="/create")
        return session

    async def prepare(self, append: Append) -> Sequence[PreparedEvent]:
        """Return the events of an append, ready to insert."""
        return (await self._preparer.prepare(append.batch, now=self._clock.now()))[0]

    async def insert(
        self,
        connection: Connection,
        append: Append,
        session: LockedSession,
        prepared: Sequence[PreparedEvent],
        facts: Facts | None = None,
    ) -> AppendStep:
        """Insert what is new of the prepared events, and apply what they change.

        Args:
            connection: of a transaction in which the session is locked.
            append: as asked for.
            session: as it was locked.
            prepared: its events.
            facts: of the batch, as they were before the lock; None: they are loaded.
        """
        known = await self._known(connection, append.key, prepared)
        fresh = fresh_events(prepared, known)
        is_all_repeats = not fresh and any(not each.is_partial for each in prepared)
        if not is_all_repeats:
            await self._check_head(connection, append, session)
        fresh += await self._activate_staged(connection, append.key, session, fresh)
        if facts is not None:
            await self._log.refresh_facts(connection, append.key, session, facts)
        elif fresh:
            needs = needs_of(each.event for each in fresh)
            facts = await self._log.load_facts(connection, append.key, session, needs)
        else:
            facts = Facts(head_seq=session.head_seq, index=session.index)
        step = AppendStep(connection, session, facts)
        step.rows = await resolve_beside_loop(facts, fresh, self._tokens.count)
        # What the service appends itself, a fold or a pin, is counted by the next count, and never
        # refused: it is what makes a session smaller.
        if not append.batch.allow_markers:
            size_bytes = sum(row.size_bytes for row in step.rows)
            self._quotas.take(append.key.tenant_id, Stored(events=len(step.rows), bytes=size_bytes))
        step.appended = _answers(prepared, fresh, known, step.rows)
        if step.rows:
            await self._log.append(connection, append.key, step.rows, facts)
            await self._apply_state(append.key, step)
            step.compaction = await self._schedule.after_append(
                connection,
                append.key,
                session,
                [row.event for row in step.rows],
                ending=frozenset(each.event.id for each in fresh if each.completes_invocation),
            )
        return step

    async def _check_head(
        self, connection: Connection, append: Append, session: LockedSession
    ) -> None:
        """Refuse an append that expects another head.

        Folds are passed over by what callers append: they come in the background, and what a reply
        was made from still stands. A marker that a caller expects to follow a seq must follow it.
        """
        expected, head_seq = append.expected_seq, session.head_seq
        if expected is None or expected == head_seq:
            return
        may_pass = expected < head_seq and not append.batch.allow_markers
        if may_pass and await self._log.has_only_folds_after(connection, append.key, expected):
            return
        raise ConcurrentAppendError(expected_seq=expected, actual_seq=head_seq)

    async def _with_agent(self, append: Append) -> Append:
        """Name the author of imported model messages, where the request does not."""
        batch = append.batch
        if batch.agent or batch.source_format in ("native", "adk"):
            return append
        agent = append.create.app_name if append.create is not None else ""
        if not agent:
            async with self._database.connection() as connection:
                session = await self._log.find_session(connection, append.key)
            if session is None:
                raise SessionNotFoundError
            agent = session.app_name
        return replace(append, batch=replace(batch, agent=agent))

    async def _known(
        self, connection: Connection, key: SessionKey, prepared: Sequence[PreparedEvent]
    ) -> Mapping[str, tuple[int, bytes, int]]:
        """Return what the log holds under the ids that callers chose; another body raises."""
        ids = [each.event.id for each in prepared if each.has_own_id and not each.is_partial]
        found = await self._log.find_events(connection, key, ids) if ids else {}
        for each in prepared:
            if each.is_partial or each.event.id not in found:
                continue
            seq, body_hash, _ = found[each.event.id]
            if body_hash != each.body_hash:
                raise EventIdReusedError(event_id=each.event.id, seq=seq, pointer=each.pointer)
        return found

    async def _apply_state(self, key: SessionKey, step: AppendStep) -> None:
        delta: dict[str, Json] = {}
        for row in step.rows:
            delta.update(row.state_delta)
        if delta:
            await self._sessions.apply_state(step.connection, key, step.session, delta)
        # A rewind, or the undo of one, changes which deltas stand.
        if any(isinstance(row.event.marker, Rewind | Undo) for row in step.rows):
            await self._sessions.rewind_state(step.connection, key, step.facts.index)


def _source(append: Append) -> str:
    return "api" if append.batch.source_format == NATIVE else "import"


def check_owner(session: LockedSession | SessionRow, new: NewSession, *, pointer: str = "") -> None:
    """Refuse a session that is another app's or user's than the one that was asked for.

    Raises:
        SessionExistsError: it is, with a pointer to which.
    """
    for name in ("app_name", "user_id"):
        if getattr(session, name) != getattr(new, name):
            detail = f"the session exists with another {name}"
            raise SessionExistsError(detail, pointer=f"{pointer}/{name}")


def restored(kept: Mapping[str, Any]) -> AppendResult:
    """Return a result that was kept under an idempotency key."""
    return AppendResult(
        appended=tuple(AppendedEvent(**each) for each in kept["appended"]),
        head_seq=kept["head_seq"],
        notes=tuple(Note(**each) for each in kept["notes"]),
        compaction=Scheduled(**kept["compaction"]),
        is_replayed=True,
    )


def fresh_events(
    prepared: Sequence[PreparedEvent], known: Mapping[str, object]
) -> list[PreparedEvent]:
    """Return the events to insert; of two with one id in the batch only the first."""
    first_by_id: dict[str, PreparedEvent] = {}
    for each in prepared:
        if each.is_partial or each.event.id in known:
            continue
        first = first_by_id.setdefault(each.event.id, each)
        if first is not each and first.body_hash != each.body_hash:
            raise EventIdReusedError(event_id=each.event.id, pointer=each.pointer)
    return list(first_by_id.values())


def _answers(
    prepared: Sequence[PreparedEvent],
    fresh: Sequence[PreparedEvent],
    known: Mapping[str, tuple[int, bytes, int]],
    rows: Sequence[NewEvent],
) -> list[AppendedEvent]:
    """Return what became of each event of the batch, in its order."""
    seqs = {row.event.id: row.event.seq for row in rows}
    inserted = {id(each) for each in fresh}
    return [_answer(each, known, seqs, is_inserted=id(each) in inserted) for each in prepared]


def _answer(
    each: PreparedEvent,
    known: Mapping[str, tuple[int, bytes, int]],
    seqs: dict[str, int],
    *,
    is_inserted: bool,
) -> AppendedEvent:
    event_id = each.event.id
    if each.is_partial:
        return AppendedEvent(id=event_id, seq=None, tokens=each.tokens, item=each.item)
    if event_id in known:
        seq, _, tokens = known[event_id]
        return AppendedEvent(id=event_id, seq=seq, tokens=tokens, item=each.item, is_duplicate=True)
    return AppendedEvent(
        id=event_id,
        seq=seqs[event_id],
        tokens=each.tokens,
        item=each.item,
        is_duplicate=not is_inserted,
    )
