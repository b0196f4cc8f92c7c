"""Compute once for all who ask the same at the same time.

    A asks ──────run──────┐
       B asks, C asks     └──run──┐  one run for both: it began after both had asked
                                  └─ B and C have their answer

Nobody is given what was begun before they asked: in between, something may have been appended that
they know of.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class ShareRuns(Generic[T]):
    """Runs by key: at most one at a time, and one that waits for it to end."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[T]] = {}
        self._waiting: dict[Hashable, asyncio.Task[T]] = {}

    async def __call__(self, key: Hashable, run: Callable[[], Awaitable[T]]) -> T:
        """Return what a run gives that begins now or later; raise what it raises."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            return await asyncio.shield(waiting)
        running = self._running.get(key)
        if running is None:
            task = self._running[key] = asyncio.create_task(self._run(key, run))
        else:
            task = self._waiting[key] = asyncio.create_task(self._run_after(running, key, run))
        # Who gives up leaves the others their answer.
        return await asyncio.shield(task)

    async def _run(self, key: Hashable, run: Callable[[], Awaitable[T]]) -> T:
        try:
            return await run()
        finally:
            if self._running.get(key) is asyncio.current_task():
                del self._running[key]

    async def _run_after(
        self, before: asyncio.Task[T], key: Hashable, run: Callable[[], Awaitable[T]]
    ) -> T:
        await asyncio.wait([before])
        task = self._waiting.pop(key)
        self._running[key] = task
        return await self._run(key, run)
