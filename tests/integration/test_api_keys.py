"""Bearer keys by their hash."""

from uuid import uuid4

import pytest

from app.ports import Principal
from app.storage.api_keys import PgApiKeys
from app.storage.database import PgDatabase, fetch
from app.storage.errors import ConstraintViolatedError

KEYS = PgApiKeys()


async def _create(database: PgDatabase, tenant_id: str, key_hash: bytes) -> str:
    async with database.transaction() as connection:
        return await KEYS.create(
            connection, tenant_id=tenant_id, name="ci", key_hash=key_hash, scopes=["compile"]
        )


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
