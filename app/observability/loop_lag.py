"""How late the event loop is: whoever blocks it makes everyone wait."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

#: Between two looks. A block that is shorter shows as late by its rest.
INTERVAL_S: Final = 0.25


class LoopLag:
    """Wakes up at intervals and sees how late it is."""

    def __init__(self, report: Callable[[float], None]) -> None:
        """Take what every measured lag, in seconds, is given to."""
        self._report = report
        self._due_s: float | None = None
        self._last_s = 0.0

    @property
    def seconds(self) -> float:
        """The lag now: of the last look, or of the one that is overdue."""
        overdue_s = 0.0 if self._due_s is None else time.monotonic() - self._due_s
        return max(self._last_s, overdue_s, 0.0)

    @asynccontextmanager
    async def measuring(self) -> AsyncIterator[None]:
        """Measure while the block runs."""
        task = asyncio.create_task(self._measure())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._due_s = None

    async def _measure(self) -> None:
        while True:
            self._due_s = time.monotonic() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self._last_s = max(0.0, time.monotonic() - self._due_s)
            self._report(self._last_s)
