"""What compiles have settled, per process: the next compile of the same reader goes on from there.

Nothing in here is ever wrong, only of no use: each entry says of which incarnation and index it is,
and a read tells whether those are still the session's. So replicas need not know of each other, and
nothing is thrown away but for space.
"""

import sys
from collections import OrderedDict
from typing import Final, TypeAlias
from uuid import UUID

from msgspec import Struct

from app.core.compile.inputs import CompileOptions, Settled
from app.core.model_rules import ModelRule
from app.ports import ReadBefore

#: Memory that an entry, a part and a call take besides their text, about.
ENTRY_BYTES: Final = 4_000
PART_BYTES: Final = 200
CALL_BYTES: Final = 300

#: Session, options and format.
Key: TypeAlias = tuple[UUID, CompileOptions, str]


class SettledCompile(Struct, frozen=True, kw_only=True):
    """What is settled for one reader of one session, and for which log."""

    before: ReadBefore
    #: Parts were counted by it.
    rule: ModelRule | None
    settled: Settled

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        settled = self.settled
        texts = sum(sys.getsizeof(items.text) for items in settled.items)
        parts = PART_BYTES * settled.part_count + CALL_BYTES * len(settled.calls)
        return ENTRY_BYTES + texts + parts


class SettledCompiles:
    """The entries used last, within a bound of memory."""

    def __init__(self, *, max_bytes: int) -> None:
        """Take the memory that entries may take together; 0: nothing is kept."""
        self._max_bytes = max_bytes
        self.is_on: Final = max_bytes > 0
        self._entries: OrderedDict[Key, tuple[SettledCompile, int]] = OrderedDict()
        self.size_bytes = 0

    def find(self, key: Key) -> SettledCompile | None:
        """Return what is settled, if it is kept."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def keep(self, key: Key, compiled: SettledCompile) -> None:
        """Keep what is settled in place of what was."""
        self._drop(key)
        size_bytes = compiled.size_bytes
        if size_bytes > self._max_bytes:
            return
        self._entries[key] = (compiled, size_bytes)
        self.size_bytes += size_bytes
        while self.size_bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: Key) -> None:
        _, size_bytes = self._entries.pop(key, (None, 0))
        self.size_bytes -= size_bytes
