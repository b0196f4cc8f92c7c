"""A real Postgres for the tests that need one, and the recorded sessions.

FOLDLINE_TEST_DATABASE_URL   a server to use instead of an embedded one; its role may create
                             databases and roles
FOLDLINE_SHARED_DIR          folder that holds `data/`, the recorded sessions
CI=true                      what is missing fails the test instead of skipping it, and properties
                             draw the same examples every time: whether a change passes is not to
                             hang on luck; other runs, and the slow lane, draw anew
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import settings

from app.settings import PREFIX
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import migrate
from tests.redis_server import RedisServer, running_redis

REPOSITORY: Final = Path(__file__).parent.parent
TEST_DATABASE_URL: Final = os.environ.get("FOLDLINE_TEST_DATABASE_URL")
SHARED_DIR: Final = Path(os.environ.get("FOLDLINE_SHARED_DIR", REPOSITORY.parent / "shared"))
IS_CI: Final = os.environ.get("CI") == "true"

# How long an example takes tells of the machine, not of the law.
settings.register_profile("foldline", deadline=None, derandomize=IS_CI)
settings.load_profile("foldline")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what golden cases need."""
    parser.addoption(
        "--update-golden", action="store_true", help="write what the golden cases give now"
    )


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    """Keep the developer's settings, and the names above, out of the code and its processes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(PREFIX):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Postgres server, as a role that may create databases and roles."""
    if TEST_DATABASE_URL is not None:
        yield TEST_DATABASE_URL
        return
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"))
    server.start()
    yield server.superuser_url
    server.stop()


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """URL of a database of the test's own, without a schema."""
    with _database(server_url) as url:
        yield url


@pytest.fixture
def own_database_url(empty_database_url: str) -> str:
    """URL of a migrated database of the test's own: what a worker does there, and asks a model, is
    for the test's own sessions."""
    asyncio.run(migrate(empty_database_url))
    return empty_database_url


@pytest.fixture(scope="session")
def database_url(server_url: str) -> Iterator[str]:
    """URL of the migrated database that the tests of this process share."""
    with _database(server_url) as url:
        asyncio.run(migrate(url))
        yield url


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own."""
    with running_redis(tmp_path) as server:
        yield server


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the recorded sessions, which are not part of this repository."""
    data = SHARED_DIR / "data"
    if not data.is_dir():
        reason = f"no recorded sessions: {data} is missing; set FOLDLINE_SHARED_DIR"
        if IS_CI:
            pytest.fail(reason)
        pytest.skip(reason)
    return data


@contextmanager
def _database(server_url: str) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    asyncio.run(_execute(server_url, f'CREATE DATABASE "{name}"'))
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        asyncio.run(_execute(server_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
