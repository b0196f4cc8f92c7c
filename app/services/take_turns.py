"""Turns of those who write to one session at the same time; who waits is taken along.

    A writes ─────────────┐
       B, C, D come       └── B, C and D, as one ──┐
          E, which goes alone                      └── E ──┐

Turns are given in the order in which they were asked for. Who comes alone pays nothing for it.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from app.core.errors import LockTimeoutError

Key = TypeVar("Key", bound=Hashable)
Work = TypeVar("Work")
Done = TypeVar("Done")

#: How long a writer waits for its turn: as long as for the lock of the session's row.
TURN_TIMEOUT_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Turn(Generic[Done]):
    """Somebody's turn has come, or is over."""

    waited_s: float
    #: What became of the work, where another writer's turn took it along.
    done: Done | None = None


@dataclass(eq=False, slots=True)
class _Writer(Generic[Work, Done]):
    """One that waits."""

    #: None: it goes alone.
    work: Work | None
    #: Where its log lines and spans belong.
    context: Context
    #: Done: its turn has come, or with a result, it is over.
    place: asyncio.Future[Done | None]
    #: It is part of what is being done together; nobody can leave that.
    is_taken: bool = False
    #: It has given up nevertheless.
    is_gone: bool = False


class TakeTurns(Generic[Key, Work, Done]):
    """The turns of each session."""

    def __init__(
        self,
        do_together: Callable[[Key, Sequence[Work]], Awaitable[Sequence[Done] | None]],
        *,
        fit_together: Callable[[Sequence[Work]], bool],
    ) -> None:
        """Take how works are done as one.

        Args:
            do_together: does them all and returns what became of each; or returns None where they
                cannot be one, and has done nothing then: each has a turn of its own.
            fit_together: tells whether it is worth a try.
        """
        self._do_together = do_together
        self._fit_together = fit_together
        #: Who waits, by session; a session where nobody writes has no entry.
        self._lines: dict[Key, deque[_Writer[Work, Done]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def turn(self, key: Key, work: Work | None) -> AsyncIterator[Turn[Done]]:
        """Wait for a turn, which lasts as long as the block, or until another's has done the work.

        Raises:
            LockTimeoutError: others took too long; the work was not done.
            Exception: what was raised as it was done together with others'.
        """
        line = self._lines.get(key)
        done: Done | None = None
        waited_s = 0.0
        if line is None:
            self._lines[key] = deque()
        else:
            started_s = time.perf_counter()
            done = await self._wait(key, line, work)
            waited_s = time.perf_counter() - started_s
        try:
            yield Turn(waited_s, done)
        finally:
            if done is None:
                self._pass_on(key)

    async def _wait(
        self, key: Key, line: deque[_Writer[Work, Done]], work: Work | None
    ) -> Done | None:
        place: asyncio.Future[Done | None] = asyncio.get_running_loop().create_future()
        writer = _Writer(work, copy_context(), place)
        line.append(writer)
        try:
            await asyncio.wait((place,), timeout=TURN_TIMEOUT_S)
            if not place.done() and not writer.is_taken:
                line.remove(writer)
                raise LockTimeoutError
            return await asyncio.shield(place)
        except asyncio.CancelledError:
            if writer.is_taken:
                writer.is_gone = True
                place.add_done_callback(_take_notice)
            elif place.done():
                self._pass_on(key)
            else:
                line.remove(writer)
            raise

    def _pass_on(self, key: Key) -> None:
        """End a turn, and begin the next."""
        line = self._lines[key]
        if not line:
            del self._lines[key]
            return
        group = self._next(line)
        if len(group) == 1:
            group[0].place.set_result(None)
            return
        for writer in group:
            writer.is_taken = True
        task = asyncio.create_task(self._together(key, line, group), context=group[0].context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _next(self, line: deque[_Writer[Work, Done]]) -> list[_Writer[Work, Done]]:
        """Take from the line whose turn it is."""
        group = [line.popleft()]
        if group[0].work is None:
            return group
        works = [group[0].work]
        while line and line[0].work is not None:
            works.append(line[0].work)
            if not self._fit_together(works):
                break
            group.append(line.popleft())
        return group

    async def _together(
        self,
        key: Key,
        line: deque[_Writer[Work, Done]],
        group: Sequence[_Writer[Work, Done]],
    ) -> None:
        works = [writer.work for writer in group if writer.work is not None]
        try:
            done = await self._do_together(key, works)
        except asyncio.CancelledError:
            for writer in group:
                writer.place.cancel()
            raise
        except Exception as error:  # noqa: BLE001  everyone is told
            for writer in group:
                writer.place.set_exception(error)
        else:
            if done is None:
                for writer in group:
                    writer.work, writer.is_taken = None, False
                line.extendleft(writer for writer in reversed(group) if not writer.is_gone)
            else:
                for writer, result in zip(group, done, strict=True):
                    writer.place.set_result(result)
        finally:
            self._pass_on(key)


def _take_notice(place: asyncio.Future[Any]) -> None:
    if not place.cancelled():
        place.exception()
