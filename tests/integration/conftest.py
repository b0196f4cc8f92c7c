"""The stores' database, migrated; every test makes sessions of its own and leaves them."""

from collections.abc import AsyncIterator

import pytest_asyncio

from app.storage.database import PgDatabase
from app.storage.pool import create_engine


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[PgDatabase]:
    """The database of the stores, with few connections."""
    engine = create_engine(database_url, size=4)
    yield PgDatabase(engine)
    await engine.dispose()
