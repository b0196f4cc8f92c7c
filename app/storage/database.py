"""Where the stores' connections come from."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from app.storage.connection import PgConnection
from app.storage.transaction import single_statement, snapshot, transaction


class PgDatabase:
    """The connections of an engine; the engine stays the caller's to dispose of."""

    def __init__(
        self, engine: AsyncEngine, *, appended: Callable[[str], None] | None = None
    ) -> None:
        """Take, beside the engine, what is told each session that was appended to, by its uid in
        hexadecimal digits, once that is committed."""
        self.engine: Final = engine
        self._appended = appended

    def transaction(self) -> AbstractAsyncContextManager[PgConnection]:
        """One transaction: committed when the block is left, rolled back on an error."""
        return self._telling(transaction(self.engine))

    def snapshot(self) -> AbstractAsyncContextManager[PgConnection]:
        """A transaction for reading, whose statements all see the same moment."""
        return snapshot(self.engine)

    def connection(self) -> AbstractAsyncContextManager[PgConnection]:
        """A connection on which every statement stands for itself."""
        return self._telling(single_statement(self.engine))

    @asynccontextmanager
    async def _telling(
        self, connected: AbstractAsyncContextManager[PgConnection]
    ) -> AsyncIterator[PgConnection]:
        """Tell what was appended once the block is left without an error."""
        async with connected as connection:
            yield connection
        if self._appended is not None:
            for uid in connection.appended:
                self._appended(uid.hex)
