"""Bearer keys by their hash."""

from uuid import UUID, uuid4

import pytest

from app.ports import NewApiKey, Principal
from app.storage.api_keys import PgApiKeys
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.errors import ConstraintViolatedError

KEYS = PgApiKeys()


async def _create(
    database: PgDatabase, tenant_id: str, key_hash: bytes, ttl_s: float | None = None
) -> str:
    new = NewApiKey(
        tenant_id=tenant_id, name="ci", key_hash=key_hash, scopes=["compile"], ttl_s=ttl_s
    )
    async with database.transaction() as connection:
        return str((await KEYS.create(connection, new)).id)


async def test_a_key_stands_for_its_tenant_and_scopes(database: PgDatabase) -> None:
    tenant_id, key_hash = uuid4().hex, uuid4().bytes
    key_id = await _create(database, tenant_id, key_hash)

    async with database.connection() as connection:
        found = await KEYS.find(connection, key_hash)
        nobody = await KEYS.find(connection, uuid4().bytes)

    assert found == Principal(tenant_id, key_id, frozenset({"compile"}))
    assert nobody is None


async def test_a_tenant_may_have_several_keys(database: PgDatabase) -> None:
    tenant_id = uuid4().hex

    ids = {await _create(database, tenant_id, uuid4().bytes) for _ in range(2)}

    assert len(ids) == 2


async def test_a_revoked_key_stands_for_nobody(database: PgDatabase) -> None:
    key_hash = uuid4().bytes
    await _create(database, uuid4().hex, key_hash)
    async with database.connection() as connection:
        await fetch(
            connection, "UPDATE api_keys SET revoked_at = now() WHERE key_hash = $1", key_hash
        )
        assert await KEYS.find(connection, key_hash) is None


async def test_two_keys_never_have_one_hash(database: PgDatabase) -> None:
    key_hash = uuid4().bytes
    await _create(database, uuid4().hex, key_hash)

    with pytest.raises(ConstraintViolatedError) as error:
        await _create(database, uuid4().hex, key_hash)

    assert error.value.constraint == "api_keys_key_hash_key"


async def test_a_key_that_has_ended_stands_for_nobody(database: PgDatabase) -> None:
    over, lasting = uuid4().bytes, uuid4().bytes
    await _create(database, uuid4().hex, over, ttl_s=0.0)
    await _create(database, uuid4().hex, lasting, ttl_s=60.0)

    async with database.connection() as connection:
        found = await KEYS.find(connection, lasting)
        assert await KEYS.find(connection, over) is None

    assert found is not None
    assert found.valid_s == pytest.approx(60, abs=5)


async def test_a_key_is_never_given_more_time_than_it_had(database: PgDatabase) -> None:
    key_hash = uuid4().bytes
    key_id = UUID(await _create(database, uuid4().hex, key_hash, ttl_s=60.0))
    async with database.connection() as connection:
        await KEYS.expire(connection, key_id, 3600.0)
        found = await KEYS.find(connection, key_hash)

    assert found is not None
    assert found.valid_s == pytest.approx(60, abs=5)
