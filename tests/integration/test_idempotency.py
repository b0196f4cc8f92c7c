"""Idempotency keys: one at a time, and an answer exactly when the work stands."""

from uuid import uuid4

import pytest

from app.core.errors import IdempotencyInProgressError
from app.ports import KeptAnswer
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.idempotency import PgIdempotencyKeys

KEYS = PgIdempotencyKeys()
ANSWER = KeptAnswer(b"hash", 201, '{"head_seq": 1}')


def _new_key() -> str:
    return uuid4().hex


async def _keep(database: PgDatabase, idempotency_key: str, answer: KeptAnswer = ANSWER) -> None:
    async with database.transaction() as connection:
        assert await KEYS.claim(connection, "acme", "append", idempotency_key) is None
        await KEYS.keep(connection, "acme", "append", idempotency_key, answer, key=None)


async def test_a_kept_answer_is_given_again(database: PgDatabase) -> None:
    key = _new_key()
    await _keep(database, key)

    async with database.transaction() as connection:
        assert await KEYS.claim(connection, "acme", "append", key) == ANSWER


async def test_an_answer_belongs_to_its_tenant_and_route(database: PgDatabase) -> None:
    key = _new_key()
    await _keep(database, key)

    async with database.transaction() as connection:
        assert await KEYS.claim(connection, "other", "append", key) is None
        assert await KEYS.claim(connection, "acme", "rewind", key) is None


async def test_a_key_that_is_being_worked_on_is_refused(database: PgDatabase) -> None:
    key = _new_key()
    async with database.transaction() as worker:
        await KEYS.claim(worker, "acme", "append", key)
        with pytest.raises(IdempotencyInProgressError):
            async with database.transaction() as other:
                await KEYS.claim(other, "acme", "append", key)
        await KEYS.keep(worker, "acme", "append", key, ANSWER, key=None)

    async with database.transaction() as connection:
        assert await KEYS.claim(connection, "acme", "append", key) == ANSWER


async def test_work_that_failed_leaves_the_key_free(database: PgDatabase) -> None:
    key = _new_key()
    with pytest.raises(LookupError):
        async with database.transaction() as connection:
            await KEYS.claim(connection, "acme", "append", key)
            await KEYS.keep(connection, "acme", "append", key, ANSWER, key=None)
            raise LookupError

    async with database.transaction() as connection:
        assert await KEYS.claim(connection, "acme", "append", key) is None


async def test_an_expired_answer_is_forgotten_and_replaced(database: PgDatabase) -> None:
    key = _new_key()
    await _keep(database, key)
    async with database.connection() as connection:
        await fetch(
            connection,
            """
            UPDATE idempotency_keys
            SET expires_at = now() - interval '1 second'
            WHERE idempotency_key = $1
            """,
            key,
        )
    newer = KeptAnswer(b"other", 200, "{}")

    await _keep(database, key, newer)

    async with database.transaction() as connection:
        assert await KEYS.claim(connection, "acme", "append", key) == newer
