"""A second database to compare with."""

from collections.abc import Iterator

import pytest

from tests.conftest import _database


@pytest.fixture
def another_empty_database_url(server_url: str) -> Iterator[str]:
    """URL of one more database of the test's own, without a schema."""
    with _database(server_url) as url:
        yield url
