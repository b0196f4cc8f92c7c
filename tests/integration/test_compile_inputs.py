"""Inputs of compiles by their digest."""

from uuid import uuid4

from app.storage.compile_inputs import PgCompileInputs
from app.storage.database import PgDatabase
from tests.log_driver import SESSIONS, new_session

INPUTS = PgCompileInputs()


async def test_inputs_are_found_by_digest_within_their_tenant(database: PgDatabase) -> None:
    digest = uuid4().hex
    async with database.transaction() as connection:
        await INPUTS.keep(connection, "acme", digest, '{"a":1}', key=None)
        await INPUTS.keep(connection, "acme", digest, '{"a":1}', key=None)

        assert await INPUTS.find(connection, "acme", digest) == '{"a":1}'
        assert await INPUTS.find(connection, "other", digest) is None
        assert await INPUTS.find(connection, "acme", uuid4().hex) is None


async def test_inputs_go_with_their_session_and_stay_for_another(database: PgDatabase) -> None:
    digest, shared = uuid4().hex, uuid4().hex
    erased, kept = await new_session(database), await new_session(database)
    async with database.transaction() as connection:
        await INPUTS.keep(connection, "acme", digest, "1", key=erased)
        await INPUTS.keep(connection, "acme", shared, "2", key=erased)
        await INPUTS.keep(connection, "acme", shared, "2", key=kept)

        await SESSIONS.erase(connection, erased, actor="me", reason="asked")

        assert await INPUTS.find(connection, "acme", digest) is None
        assert await INPUTS.find(connection, "acme", shared) == "2"
