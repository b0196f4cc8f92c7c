"""Append what follows from where the log stands, in one round trip to the database.

Most batches hold no markers, change no state and make no work due. What such a batch is resolved
against is small, and the writer that appended last knows it. So it is resolved before anything is
locked, and one statement locks the session, compares what the batch was resolved against, and
inserts. Where the comparison fails, or the batch asks for more, nothing is done here, and the batch
takes the long way: lock, load, resolve, insert. Both ways resolve with the same code.

    where the log stands is known                      1 round trip
    a response answers no call that is known to wait   2 more: calls, and lanes
    nothing is known, or another process appended      1 or 2 more: the head is read
    the batch asks for more                            the long way

Writers of one session in one process take turns. They would wait for each other in the database
otherwise, each with a connection of the pool. Those who wait are appended together, as one batch:
the log is the same, and only the first of them pays for the round trip.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias
from uuid import UUID

from app.core.compaction.due import Counters
from app.core.copying import replace
from app.core.errors import InvalidInputError
from app.core.events import Event
from app.core.invocations import InvocationFacts, advance, concerned
from app.core.limits import Stored
from app.core.resolve import CallFacts, CallsUnknownError, Facts, LaneFacts, Needs, needs_of
from app.core.tokens import CountTokens
from app.ports import Database, EventLog, LogHead, NewEvent, SessionKey
from app.services.enforce_quotas import EnforceQuotas
from app.services.prepare_events import PreparedEvent
from app.services.resolve_batch import resolve_beside_loop
from app.services.schedule_compaction import ScheduleCompaction, has_nameless_answer
from app.services.take_turns import TakeTurns, Turn

#: Events that are appended together; more would gain nothing.
MAX_TOGETHER: Final = 100
#: Sessions of which it is remembered where they stand, at some 3 KB each, and how many lanes,
#: summaries and open calls one may have for that.
MAX_HEADS: Final = 4_096
MAX_KEPT: Final = 32


@dataclass(frozen=True, slots=True)
class Followed:
    """What was appended."""

    rows: Sequence[NewEvent]
    head_seq: int


#: Events that are not known to be stored.
Fresh: TypeAlias = Sequence[PreparedEvent]


class FollowHead:
    """Remembers where logs stand, and appends to them as long as that is enough."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        schedule: ScheduleCompaction,
        quotas: EnforceQuotas,
        count: CountTokens,
    ) -> None:
        self._database = database
        self._log = log
        self._schedule = schedule
        self._quotas = quotas
        self._count = count
        self._heads: OrderedDict[UUID, LogHead] = OrderedDict()
        self._turns = TakeTurns[SessionKey, Fresh, Followed](
            self._together, fit_together=_fit_together
        )

    def turn(
        self, key: SessionKey, fresh: Fresh | None
    ) -> AbstractAsyncContextManager[Turn[Followed]]:
        """Wait until no other append of this process to the session is under way, or until another
        has appended these events with its own.

        Args:
            key: the session's.
            fresh: what is not known to be stored, and whatever the head is may follow it; None:
                nobody else may append it.

        Raises:
            LockTimeoutError: others took too long.
        """
        return self._turns.turn(key, fresh)

    def forget(self, key: SessionKey) -> None:
        """Forget where a log stood: something was appended in another way."""
        self._heads.pop(key.uid, None)

    async def __call__(
        self, key: SessionKey, fresh: Fresh, *, expected_seq: int | None
    ) -> Followed | None:
        """Append, if these events look no further back than the head.

        Args:
            key: the session's; it is this writer's turn.
            fresh: what is not known to be stored.
            expected_seq: where the writer believes the head to be.

        Returns:
            None where the long way is to be taken; nothing was done then.
        """
        if not is_ordinary(fresh):
            return None
        needs = needs_of(each.event for each in fresh)
        known = self._heads.pop(key.uid, None)
        if known is not None and _may_follow(known, needs, expected_seq):
            batch = await self._resolve(key, fresh, needs, known)
            if batch is not None and await self._store(key, batch):
                return Followed(batch.rows, batch.then.head_seq)
        async with self._database.connection() as connection:
            head = await self._log.read_head(connection, key, needs.standings)
        if head is None or not _may_follow(head, needs, expected_seq):
            return None
        # Where it stands where it was thought to, something else speaks against it. Which calls
        # wait is not read.
        if known is not None and head == replace(known, waiting=()):
            return None
        batch = await self._resolve(key, fresh, needs, head)
        if batch is not None and await self._store(key, batch):
            return Followed(batch.rows, batch.then.head_seq)
        return None

    async def _together(
        self, key: SessionKey, batches: Sequence[Fresh]
    ) -> Sequence[Followed] | None:
        union = [each for fresh in batches for each in fresh]
        followed = await self(key, union, expected_seq=None)
        if followed is None:
            return None
        rows = iter(followed.rows)
        own = [list(islice(rows, len(fresh))) for fresh in batches]
        return [Followed(each, each[-1].event.seq) for each in own]

    async def _resolve(
        self, key: SessionKey, fresh: Fresh, needs: Needs, head: LogHead
    ) -> "_Batch | None":
        """Return the batch as it follows from where the log stands; None if it asks for more."""
        try:
            facts, rows = await self._rows(key, fresh, needs, head)
        except InvalidInputError:
            # Of what was appended meanwhile it may be right: under the lock it will be seen.
            return None
        then = self._then(head, facts, rows, fresh)
        stored = Stored(events=len(rows), bytes=sum(row.size_bytes for row in rows))
        if then is None or not self._quotas.has_room(key.tenant_id, stored):
            return None
        then = replace(then, standings=needs.standings)
        own_ids = [each.event.id for each in fresh if each.has_own_id]
        return _Batch(head, facts, rows, then, own_ids, stored)

    async def _store(self, key: SessionKey, batch: "_Batch") -> bool:
        """Insert a batch, if the log stands where it is thought to."""
        async with self._database.connection() as connection:
            is_done = await self._log.append_at(
                connection,
                key,
                batch.rows,
                batch.facts,
                head=batch.head,
                then=batch.then,
                ids=batch.own_ids,
            )
        if is_done:
            self._quotas.count(key.tenant_id, batch.stored)
            self._remember(key, batch.then)
        return is_done

    async def _rows(
        self, key: SessionKey, fresh: Fresh, needs: Needs, head: LogHead
    ) -> tuple[Facts, list[NewEvent]]:
        """Return the rows of the batch, and what the log says after it."""
        if _may_know_calls(head, fresh, needs):
            facts = _own_facts(head)
            with suppress(CallsUnknownError):
                return facts, await resolve_beside_loop(facts, fresh, self._count)
        async with self._database.connection() as connection:
            facts = await self._log.load_facts(connection, key, head, needs)
        return facts, await resolve_beside_loop(facts, fresh, self._count)

    def _then(
        self,
        head: LogHead,
        facts: Facts,
        rows: Sequence[NewEvent],
        fresh: Sequence[PreparedEvent],
    ) -> LogHead | None:
        """Return where the log stands after the batch; None if work may be due then."""
        events = [row.event for row in rows]
        ending = frozenset(each.event.id for each in fresh if each.completes_invocation)
        ended = frozenset(event.invocation_id for event in events if event.id in ending)
        open_calls = _open_calls(head, events, facts)
        begun = _invocations(head, events, open_calls)
        wanted = concerned(head.newest, events, ended)
        newest = advance(
            head.newest,
            events,
            {invocation_id: begun[invocation_id] for invocation_id in wanted},
            ends=lambda event: event.id in ending,
        )
        before = head.standing.counters
        counters = Counters(
            live_events=before.live_events + len(events),
            tokens_live=before.tokens_live + sum(each.tokens for each in fresh),
            invocations_new=before.invocations_new + newest.completed,
            tokens_tried=before.tokens_tried,
        )
        standing = replace(head.standing, counters=counters)
        is_moment = newest.completed or has_nameless_answer(events)
        if is_moment and self._schedule.is_worth_a_look(standing):
            return None
        return replace(
            head,
            head_seq=facts.head_seq,
            lanes=facts.lanes,
            lane_count=facts.lane_count,
            newest=replace(newest, completed=0),
            begun=begun.get(newest.invocation_id),
            open_calls=open_calls[newest.invocation_id] if newest.invocation_id else frozenset(),
            waiting=_waiting(head, events, facts),
            standing=standing,
        )

    def _remember(self, key: SessionKey, head: LogHead) -> None:
        if max(len(head.lanes), len(head.index.sections), len(head.open_calls)) > MAX_KEPT:
            return
        if len(head.waiting) > MAX_KEPT:
            head = replace(head, waiting=())
        self._heads[key.uid] = head
        if len(self._heads) > MAX_HEADS:
            self._heads.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is to be inserted, and what it was resolved against."""

    head: LogHead
    #: After the batch.
    facts: Facts
    rows: Sequence[NewEvent]
    then: LogHead
    own_ids: Sequence[str]
    stored: Stored


def is_ordinary(fresh: Fresh) -> bool:
    """Tell whether events do nothing but follow the head: there are some, and none changes state or
    asks for a marker."""
    return bool(fresh) and not any(each.state_delta or each.event.request for each in fresh)


def _fit_together(batches: Sequence[Fresh]) -> bool:
    """Tell whether batches may be one: with an id twice, the later is to be told that it repeats
    the earlier."""
    ids = {each.event.id for fresh in batches for each in fresh}
    return len(ids) == sum(map(len, batches)) <= MAX_TOGETHER


def _may_follow(head: LogHead, needs: Needs, expected_seq: int | None) -> bool:
    return (
        needs.standings <= head.standings
        and not head.index.staged
        and expected_seq in (None, head.head_seq)
    )


def _may_know_calls(head: LogHead, fresh: Fresh, needs: Needs) -> bool:
    """Tell whether the calls that the events name may be among those that are known."""
    if needs.is_light:
        return True
    known = {call.id for call in head.waiting}
    known.update(call.id for each in fresh for call in each.event.calls)
    return not needs.call_names and needs.call_ids <= known


def _own_facts(head: LogHead) -> Facts:
    """Return facts of one's own: the resolver changes them."""
    lanes = {
        lane: LaneFacts(known.number, known.last_seq, dict(known.replies))
        for lane, known in head.lanes.items()
    }
    calls_by_id: dict[str, list[CallFacts]] = {}
    for call in head.waiting:
        calls_by_id.setdefault(call.id or "", []).append(replace(call, answers=[]))
    return Facts(
        head_seq=head.head_seq,
        calls_by_id=calls_by_id,
        knows_older_calls=False,
        lanes=lanes,
        lane_count=head.lane_count,
        index=head.index,
        last_rewind_seq=head.last_rewind_seq,
    )


def _answered(events: Sequence[Event]) -> set[tuple[int, int]]:
    """Return seq and part of the calls that the events answer."""
    return {(o.seq, o.part_index) for event in events for o in event.owners if o is not None}


def _waiting(head: LogHead, events: Sequence[Event], facts: Facts) -> tuple[CallFacts, ...]:
    """Return the newest calls that nothing answers after the batch."""
    called = [call for event in events if event.calls for call in facts.calls_by_seq[event.seq]]
    answered = _answered(events)
    if not (called or answered):
        return head.waiting
    return tuple(
        call for call in (*head.waiting, *called) if (call.seq, call.part_index) not in answered
    )


def _open_calls(
    head: LogHead, events: Sequence[Event], facts: Facts
) -> Mapping[str, frozenset[tuple[int, int]]]:
    """Return the calls that are open after the batch, of the newest invocation and the batch's."""
    opened: dict[str, set[tuple[int, int]]] = {
        head.newest.invocation_id: set(head.open_calls) - _answered(events)
    }
    for event in events:
        if event.calls:
            opened.setdefault(event.invocation_id, set()).update(
                (call.seq, call.part_index)
                for call in facts.calls_by_seq[event.seq]
                if not call.answers
            )
    return {
        invocation_id: frozenset(opened.get(invocation_id, ()))
        for invocation_id in {*opened, *(event.invocation_id for event in events)}
    }


def _invocations(
    head: LogHead, events: Sequence[Event], open_calls: Mapping[str, frozenset[tuple[int, int]]]
) -> dict[str, InvocationFacts]:
    """Return what the log says after the batch of the newest invocation and of those that begin.

    That they begin, the statement compares.
    """
    known: dict[str, InvocationFacts] = {}
    if head.begun is not None:
        known[head.newest.invocation_id] = head.begun
    for event in events:
        if event.invocation_id and event.invocation_id not in known:
            known[event.invocation_id] = InvocationFacts(
                first_seq=event.seq,
                isolation_scope=event.lane.isolation_scope,
                branch=event.lane.branch,
                has_open_calls=False,
            )
    return {
        invocation_id: replace(facts, has_open_calls=bool(open_calls[invocation_id]))
        for invocation_id, facts in known.items()
    }
