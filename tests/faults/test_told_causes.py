"""Why the database is not there can be learnt: from the log, once, and from the probe."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from app.storage.migrate import migrate
from tests.faults.processes import fleet
from tests.programs import free_ports, wait_until

pytestmark = pytest.mark.commits

PASSWORD: Final = "hunter2hunter2"
ASKED: Final = 5


@dataclass(frozen=True)
class Refusal:
    """Something that keeps the service from its database."""

    #: What is told of it.
    error: str
    sqlstate: str
    cause: str
    #: With `{database}`: what brings it about.
    statement: str = ""
    password: str = PASSWORD
    is_listening: bool = True


REFUSALS: Final = {
    "nobody listens": Refusal(
        "ConnectionRefusedError", "", "Connection refused", is_listening=False
    ),
    "login": Refusal(
        "InvalidPasswordError", "28P01", "password authentication failed", password="hunter3hunter3"
    ),
    "no connections": Refusal(
        "TooManyConnectionsError",
        "53300",
        "too many connections",
        'ALTER DATABASE "{database}" CONNECTION LIMIT 0',
    ),
    "read-only": Refusal(
        "TargetServerAttributeNotMatched",
        "",
        "it takes no writes",
        'ALTER DATABASE "{database}" SET default_transaction_read_only = on',
    ),
    "no rights": Refusal(
        "InsufficientPrivilegeError",
        "42501",
        "permission denied",
        'REVOKE CONNECT ON DATABASE "{database}" FROM PUBLIC',
    ),
}


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def role(server_url: str, own_database_url: str) -> Iterator[str]:
    """A role that is no superuser and may do all that the service does."""
    name = f"role_{uuid4().hex}"
    asyncio.run(
        _execute(
            own_database_url,
            f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'",
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}",
        )
    )
    yield name
    may_write = "SET default_transaction_read_only = off"
    asyncio.run(_execute(own_database_url, may_write, f"DROP OWNED BY {name}"))
    asyncio.run(_execute(server_url, f"DROP ROLE {name}"))


def told(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    """Return the lines of a name."""
    return [line for line in lines if line.get("event") == event]


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_told_once_with_its_cause_and_no_secret(
    name: str, own_database_url: str, role: str, server_url: str, tmp_path: Path
) -> None:
    refusal, parts = REFUSALS[name], urlsplit(own_database_url)
    if refusal.statement:
        statement = refusal.statement.format(database=parts.path[1:])
        asyncio.run(_execute(server_url, statement))
    port = parts.port if refusal.is_listening else free_ports(1)[0]
    netloc = f"{role}:{refusal.password}@127.0.0.1:{port}"
    with fleet(parts._replace(netloc=netloc).geturl(), tmp_path) as processes:
        process, client = processes.service()
        with closing(client):
            statuses = {client.get("/v1/sessions").status_code for _ in range(ASKED)}
            ready = client.get("/readyz", params={"verbose": "1"})
            quiet = client.get("/readyz")
        assert statuses == {503}
        (line,) = told(process.lines, "database_unavailable")
        (not_ready,) = told(process.lines, "not_ready")
        log = process.log
    assert (line["error"], line["sqlstate"]) == (refusal.error, refusal.sqlstate)
    assert refusal.cause in line["cause"]
    assert line["level"] == "warning"
    assert not_ready["checks"] == {"database": "does not answer"}
    assert "hunter" not in log
    assert "Traceback" not in log
    assert ready.status_code == 503
    assert refusal.cause in ready.json()["details"]["database_error"]
    # Without a key nothing is told.
    assert refusal.cause not in quiet.text


def test_a_right_that_a_release_needs_and_nobody_gave_is_told(
    own_database_url: str, role: str, tmp_path: Path
) -> None:
    asyncio.run(_execute(own_database_url, f"REVOKE ALL ON TABLE sessions FROM {role}"))
    parts = urlsplit(own_database_url)
    netloc = f"{role}:{PASSWORD}@127.0.0.1:{parts.port}"
    with fleet(parts._replace(netloc=netloc).geturl(), tmp_path) as processes:
        process, client = processes.service()
        with closing(client):
            answers = [client.get("/v1/sessions") for _ in range(ASKED)]
        (line,) = told(process.lines, "database_unavailable")
        log = process.log
    assert {answer.status_code for answer in answers} == {503}
    assert answers[0].headers["Retry-After"]
    assert (line["sqlstate"], line["cause"]) == ("42501", "permission denied for table sessions")
    assert "Traceback" not in log


def test_what_a_process_waits_for_is_told_and_when_it_is_there(
    empty_database_url: str, tmp_path: Path
) -> None:
    with fleet(empty_database_url, tmp_path) as processes:
        process, client = processes.service()
        with closing(client):
            assert client.get("/readyz").status_code == 503
            assert client.get("/v1/sessions").status_code == 503
            asyncio.run(migrate(empty_database_url))
            wait_until(lambda: client.get("/readyz").is_success)
        (line,) = told(process.lines, "not_ready")
        assert "foldline migrate" in line["checks"]["schema"]
        assert len(told(process.lines, "ready_again")) == 1
        (line,) = told(process.lines, "database_unavailable")
        assert line["sqlstate"] == "42P01"


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_who_works_without_a_database_says_so_once(command: str, tmp_path: Path) -> None:
    with fleet(f"postgresql://u@127.0.0.1:{free_ports(1)[0]}/x", tmp_path) as processes:
        if command == "serve":
            process, client = processes.service(WORKER="embedded")
            client.close()
        else:
            process = processes.worker()
        process.logged("database_unavailable")
        # Long enough for several looks of each of its tasks.
        time.sleep(8)
        assert len(told(process.lines, "database_unavailable")) == 1
        assert "Traceback" not in process.log
        assert len(process.log.splitlines()) < 8
        assert process.terminate() == 0
