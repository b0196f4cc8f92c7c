"""What a tenant may spend on summaries, over HTTP, with a model on this machine."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, cast
from uuid import uuid4

import asyncpg
import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from app.core.errors import LeaseLostError
from app.ports import Job, JobQueue, SessionKey, SummaryPrompt, SummaryProvider
from app.services.bounded_spend import KEEP_DAYS, BoundedSpend
from app.settings import Settings
from app.storage.connection import fetch
from app.storage.database import PgDatabase
from app.storage.pool import create_engine
from app.storage.summary_spend import PgSummarySpend
from tests.api.conftest import Api, client_of, settings_for
from tests.api.test_compactions import WAIT_MS, compactions, filled
from tests.fakes.model_server import HANGS, ModelServer, Step, fails, says

pytestmark = pytest.mark.commits

SUMMARY: Final = says("## Facts\n- Orders go to Oslo before Friday. [1]\n## Story\n- Told. [1]")
#: By the answers of the model server: what one summary takes.
TOKENS_OF_ONE: Final = 120
LIMIT: Final = 100_000
#: An answer alone may be longer.
LESS_THAN_ONE: Final = 2_000
POLICY: Final = {
    "compaction": {"strategy": "none"},
    "summarizer": {"kind": "openai", "timeout_s": 2},
}


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.script(SUMMARY)
        yield server


def settings_with(url: str, server: ModelServer, **changes: Any) -> Settings:
    return settings_for(
        url,
        worker="embedded",
        summarizer="openai",
        summarizer_url=server.url("openai"),
        summarizer_model="model-1",
        **changes,
    )


@asynccontextmanager
async def spending(url: str, server: ModelServer, tokens: int) -> AsyncIterator[Api]:
    async with client_of(settings_with(url, server, tenant_summary_tokens=tokens)) as client:
        yield Api(client)


async def folded(api: Api) -> dict[str, Any]:
    """Fold a session of its own and return the fold as it is listed."""
    path = await filled(api, 2, policy=POLICY)
    body = {"mode": "range", "from_seq": 1, "to_seq": 4, "wait_ms": WAIT_MS}
    assert (await api.post(f"{path}/compactions", body)).status_code == 201
    (fold,) = await compactions(api, path)
    return fold


async def counted(url: str) -> list[tuple[int, int]]:
    """Return the requests and tokens of every day that is counted."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT requests, tokens FROM summary_spend ORDER BY day")
        return [(row["requests"], row["tokens"]) for row in rows]
    finally:
        await connection.close()


async def execute(url: str, statement: str, *values: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement, *values)
    finally:
        await connection.close()


async def test_beyond_the_limit_code_makes_the_summaries_of_the_day_and_says_why(
    own_database_url: str, model_server: ModelServer
) -> None:
    async with spending(own_database_url, model_server, LIMIT) as api:
        within = await folded(api)
        assert await counted(own_database_url) == [(1, TOKENS_OF_ONE)]
        # What is left is less than the next one might take.
        await execute(
            own_database_url, "UPDATE summary_spend SET tokens = $1", LIMIT - LESS_THAN_ONE
        )
        beyond = await folded(api)
        assert await counted(own_database_url) == [(1, LIMIT - LESS_THAN_ONE)]
        await execute(own_database_url, "UPDATE summary_spend SET day = day - 1")
        next_day = await folded(api)

    folds = (within, beyond, next_day)
    told = [(fold["summarizer"], fold["attempts"], fold["fallback_reason"]) for fold in folds]
    assert told == [("openai", 1, None), ("extractive", 0, "spend_limit"), ("openai", 1, None)]
    assert len(model_server.requests) == 2
    assert (await counted(own_database_url))[1] == (1, TOKENS_OF_ONE)


async def test_without_any_allowance_no_model_is_asked(
    own_database_url: str, model_server: ModelServer
) -> None:
    async with spending(own_database_url, model_server, 0) as api:
        fold = await folded(api)

    assert (fold["summarizer"], fold["fallback_reason"]) == ("extractive", "spend_limit")
    assert model_server.requests == []
    assert await counted(own_database_url) == []


@pytest.mark.parametrize(
    ("step", "reason", "is_charged"),
    [
        pytest.param(fails(429, retry_after="3600"), "provider_rate_limited", False, id="429"),
        pytest.param(fails(401), "provider_rejected", False, id="401"),
        pytest.param(HANGS, "provider_timeout", True, id="no answer"),
        pytest.param(Step(body=b"<html>"), "provider_rejected", True, id="garbage"),
    ],
)
async def test_a_request_that_may_have_been_charged_for_stays_counted(
    own_database_url: str, model_server: ModelServer, *, step: Step, reason: str, is_charged: bool
) -> None:
    model_server.script(step)
    async with spending(own_database_url, model_server, LIMIT) as api:
        fold = await folded(api)

    assert (fold["summarizer"], fold["fallback_reason"]) == ("extractive", reason)
    assert fold["attempts"] == 1
    ((requests, tokens),) = await counted(own_database_url)
    assert requests == 1
    assert tokens > TOKENS_OF_ONE if is_charged else tokens == 0


async def test_no_proxy_of_the_environment_sees_what_is_summarized(
    own_database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert httpx.AsyncClient()._mounts  # noqa: SLF001  it would be used by a client of httpx's own
    async with spending(own_database_url, model_server, LIMIT) as api:
        fold = await folded(api)

    assert (fold["summarizer"], fold["fallback_reason"]) == ("openai", None)


# The count


@pytest.fixture
async def engine(own_database_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(own_database_url, size=8)
    yield engine
    await engine.dispose()


async def reserved(database: PgDatabase, tenant_id: str, tokens: int, most: int) -> date | None:
    async with database.transaction() as connection:
        return await PgSummarySpend().reserve(
            connection, tenant_id, tokens=tokens, most_tokens=most
        )


async def test_workers_that_race_never_pass_the_limit_together(engine: AsyncEngine) -> None:
    database = PgDatabase(engine)
    days = await asyncio.gather(*(reserved(database, "a", 30, 200) for _ in range(20)))

    assert [day for day in days if day is not None] == [datetime.now(UTC).date()] * 6
    async with database.connection() as connection:
        assert await PgSummarySpend().spent(connection, "a") == 180
        assert await PgSummarySpend().spent(connection, "b") == 0
    assert await reserved(database, "b", 200, 200) is not None
    assert await reserved(database, "c", 201, 200) is None


async def test_days_long_past_are_forgotten_and_no_others(engine: AsyncEngine) -> None:
    database = PgDatabase(engine)
    today = datetime.now(UTC).date()
    ages = (0, 1, KEEP_DAYS, KEEP_DAYS + 1, KEEP_DAYS + 400)
    async with database.transaction() as connection:
        for age in ages:
            await fetch(
                connection,
                "INSERT INTO summary_spend VALUES ($1, $2, 1, 10) RETURNING day",
                "a",
                today - timedelta(days=age),
            )
    spend = BoundedSpend(
        database=database,
        jobs=cast("JobQueue", _LostJobs()),
        spend=PgSummarySpend(),
        count=len,
        most_tokens=100,
    )

    assert (await spend.forget_old_days(), await spend.forget_old_days()) == (2, 0)
    async with database.connection() as connection:
        rows = await fetch(connection, "SELECT day FROM summary_spend ORDER BY day DESC")
    assert [(today - row["day"]).days for row in rows] == [0, 1, KEEP_DAYS]


class _LostJobs:
    """A queue of which nobody holds a job any more."""

    async def hold(self, connection: object, job: object) -> bool:
        del connection, job
        return False


async def test_a_worker_that_lost_its_job_spends_nothing(engine: AsyncEngine) -> None:
    database = PgDatabase(engine)
    spend = BoundedSpend(
        database=database,
        jobs=cast("JobQueue", _LostJobs()),
        spend=PgSummarySpend(),
        count=len,
        most_tokens=1_000_000,
    )
    now = datetime.now(UTC)
    job = Job(
        id=uuid4(),
        key=SessionKey("a", "s", uuid4()),
        incarnation=uuid4(),
        kind="compact",
        payload={},
        status="running",
        attempts=1,
        fencing_token=1,
        created_at=now,
        run_at=now,
    )
    # What has no methods would fail if it were asked.
    model = spend.of(cast("SummaryProvider", object()), job)
    assert model is not None

    with pytest.raises(LeaseLostError):
        await model.complete(SummaryPrompt(system="s", user="u", max_output_tokens=10))

    async with database.connection() as connection:
        assert await PgSummarySpend().spent(connection, "a") == 0
