"""Requests that were compiled lately, and what reports of them taught: once, never overwritten."""

import asyncio
from uuid import UUID, uuid4

import pytest

from app.core.calibration import Learnt
from app.core.copying import replace
from app.ports import CompiledRequest, SessionKey
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.token_reports import PgTokenReports
from tests.log_driver import LOG, SESSIONS, new_session

REPORTS = PgTokenReports()
REQUEST = CompiledRequest(
    fingerprint="f1",
    model="m",
    tokens=1_000,
    cached_tokens=600,
    base_fingerprint=None,
    is_broken=False,
    ttl_s=300,
)


async def incarnation_of(database: PgDatabase, key: SessionKey) -> UUID:
    async with database.transaction() as connection:
        session = await LOG.lock_session(connection, key)
    assert session is not None
    return session.incarnation


async def remember(database: PgDatabase, key: SessionKey, request: CompiledRequest) -> None:
    incarnation = await incarnation_of(database, key)
    async with database.transaction() as connection:
        await REPORTS.remember(connection, key, incarnation, request)


async def found(
    database: PgDatabase, key: SessionKey, fingerprint: str = "f1"
) -> CompiledRequest | None:
    async with database.transaction() as connection:
        return await REPORTS.find(connection, key, fingerprint)


async def test_a_request_is_found_as_it_was_remembered_in_its_session(
    database: PgDatabase,
) -> None:
    key, other = await new_session(database), await new_session(database)
    await remember(database, key, REQUEST)
    assert await found(database, key) == REQUEST
    assert await found(database, other) is None
    assert await found(database, key, "f2") is None


async def test_a_request_knows_how_long_after_its_base_it_came(database: PgDatabase) -> None:
    key = await new_session(database)
    await remember(database, key, REQUEST)
    async with database.transaction() as connection:
        await fetch(
            connection,
            "UPDATE compiled_requests SET compiled_at = compiled_at - interval '90 s'"
            " WHERE session_uid = $1",
            key.uid,
        )
    await remember(database, key, replace(REQUEST, fingerprint="f2", base_fingerprint="f1"))
    later = await found(database, key, "f2")
    assert later is not None
    assert later.since_base_s == pytest.approx(90, abs=20)


async def test_requests_of_yesterday_are_forgotten_when_another_comes(
    database: PgDatabase,
) -> None:
    key = await new_session(database)
    await remember(database, key, REQUEST)
    async with database.transaction() as connection:
        await fetch(
            connection,
            "UPDATE compiled_requests SET compiled_at = compiled_at - interval '25 hours'"
            " WHERE session_uid = $1",
            key.uid,
        )
    await remember(database, key, replace(REQUEST, fingerprint="f2"))
    assert await found(database, key) is None
    assert await found(database, key, "f2") is not None


async def test_nothing_is_remembered_of_a_session_that_was_erased_meanwhile(
    database: PgDatabase,
) -> None:
    key = await new_session(database)
    incarnation = await incarnation_of(database, key)
    async with database.transaction() as connection:
        await SESSIONS.erase(connection, key, actor="me", reason="asked")
    async with database.transaction() as connection:
        await REPORTS.remember(connection, key, incarnation, REQUEST)
        assert await REPORTS.find(connection, key, "f1") is None


async def test_a_report_is_claimed_once(database: PgDatabase) -> None:
    key = await new_session(database)
    await remember(database, key, REQUEST)
    async with database.transaction() as connection:
        assert await REPORTS.claim(connection, key, "f1")
        assert not await REPORTS.claim(connection, key, "f1")
        assert not await REPORTS.claim(connection, key, "f2")
    # Compiled again, the request is the same, and so is its report.
    await remember(database, key, REQUEST)
    async with database.transaction() as connection:
        assert not await REPORTS.claim(connection, key, "f1")


async def test_what_was_learnt_is_of_a_tenant_and_model(database: PgDatabase) -> None:
    tenant, model = uuid4().hex, uuid4().hex
    learnt = Learnt(reports=3, ratio=1.25, deviation=0.01, percent=126, limit_tokens=900)
    async with database.transaction() as connection:
        assert await REPORTS.learnt(connection, tenant, model) is None
        assert await REPORTS.lock_learnt(connection, tenant, model) == Learnt()
        await REPORTS.keep_learnt(connection, tenant, model, learnt)
        assert await REPORTS.learnt(connection, tenant, model) == learnt
        assert await REPORTS.lock_learnt(connection, tenant, model) == learnt
        assert await REPORTS.learnt(connection, uuid4().hex, model) is None
        assert await REPORTS.learnt(connection, tenant, uuid4().hex) is None


@pytest.mark.commits
async def test_reports_that_come_at_once_are_all_learnt_from(database: PgDatabase) -> None:
    tenant, model = uuid4().hex, uuid4().hex

    async def report() -> None:
        async with database.transaction() as connection:
            learnt = await REPORTS.lock_learnt(connection, tenant, model)
            await asyncio.sleep(0.01)
            learnt = learnt.report(ours=1_000, theirs=1_300)
            await REPORTS.keep_learnt(connection, tenant, model, learnt)

    await asyncio.gather(*(report() for _ in range(4)))
    async with database.transaction() as connection:
        learnt = await REPORTS.learnt(connection, tenant, model)
    assert learnt is not None
    assert (learnt.reports, learnt.percent) == (4, 130)
