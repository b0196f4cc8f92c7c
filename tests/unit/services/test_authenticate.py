"""Keys are compared as hashes, in a time that tells nothing of them."""

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from app.core.errors import UnauthenticatedError
from app.ports import ApiKeys, Database
from app.services.authenticate import Authenticate, hash_key

ADMIN_KEY = "the-key-of-the-settings-0123456789"


class Asked:
    """A store without keys, that remembers what it was asked for; and the database of it."""

    def __init__(self) -> None:
        self.hashes: list[bytes] = []

    async def find(self, connection: object, key_hash: bytes) -> None:
        del connection
        self.hashes.append(key_hash)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[object]:
        yield object()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """What was compared in constant time."""
    found: list[tuple[Any, Any]] = []
    compare = hmac.compare_digest

    def remember(first: Any, second: Any) -> bool:
        found.append((first, second))
        return compare(first, second)

    monkeypatch.setattr(hmac, "compare_digest", remember)
    return found


def authenticate(store: Asked) -> Authenticate:
    return Authenticate(
        database=cast("Database", store),
        keys=cast("ApiKeys", store),
        is_on=True,
        admin_key=ADMIN_KEY,
    )


async def test_the_key_of_the_settings_is_compared_in_constant_time(
    compared: list[tuple[Any, Any]],
) -> None:
    store = Asked()
    caller = await authenticate(store)(ADMIN_KEY)
    assert caller.key_id == "admin"
    for wrong in (ADMIN_KEY[:-1] + "0", ADMIN_KEY[:-1], ADMIN_KEY + "0", "x"):
        with pytest.raises(UnauthenticatedError):
            await authenticate(store)(wrong)

    # Hashes of equal length, the given one always whole: where two keys differ cannot be timed.
    assert len(compared) == 5
    assert {len(value) for pair in compared for value in pair} == {32}


async def test_the_database_is_asked_for_a_hash_and_never_told_a_key() -> None:
    store = Asked()
    with pytest.raises(UnauthenticatedError):
        await authenticate(store)("fl_a-key-of-somebody")
    assert store.hashes == [hash_key("fl_a-key-of-somebody")]
    assert len(store.hashes[0]) == 32
