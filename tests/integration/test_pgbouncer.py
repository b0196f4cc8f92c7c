"""The whole service through PgBouncer in transaction mode, with the configuration that is deployed.

Two connections to Postgres for many requests at once: every transaction may meet another server.
"""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx
import pytest

from app.storage.migrate import migrate
from tests.faults.processes import ADMIN_KEY, fleet
from tests.programs import free_ports, program, running, wait_until
from tests.servers import ACCOUNT, folder_of_account, give_to_account

pytestmark = pytest.mark.commits

CONFIGURATION: Final = Path(__file__).parents[2] / "deploy" / "pgbouncer" / "pgbouncer.ini"
SERVER_CONNECTIONS: Final = 2
SESSIONS: Final = 12
TURNS: Final = 4
POLICY: Final = {
    "compaction": {
        "strategy": "interval",
        "compaction_interval": 2,
        "overlap_size": 0,
        "worth_check": False,
    }
}


@pytest.fixture
def pooled_url(empty_database_url: str, tmp_path: Path) -> Iterator[str]:
    """URL of a migrated database, through PgBouncer."""
    asyncio.run(migrate(empty_database_url))
    parts = urlsplit(empty_database_url)
    (port,) = free_ports(1)
    command = [program("pgbouncer", package="pgbouncer")]
    # It does not run as root; the account that Debian's packages bring has no rights here.
    if os.geteuid() == 0:
        command += ["-u", ACCOUNT]
    with folder_of_account() as folder:
        users, configuration = folder / "userlist.txt", folder / "pgbouncer.ini"
        users.write_text(f'"{parts.username}" "{parts.password}"\n')
        text = CONFIGURATION.read_text(encoding="utf-8")
        for old, new in {
            "host=postgres port=5432": f"host={parts.hostname} port={parts.port}",
            "listen_addr = 0.0.0.0": "listen_addr = 127.0.0.1",
            "listen_port = 6432": f"listen_port = {port}",
            "/etc/pgbouncer/userlist.txt": str(users),
            "default_pool_size = 20": f"default_pool_size = {SERVER_CONNECTIONS}",
        }.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        configuration.write_text(text)
        give_to_account(users)
        give_to_account(configuration)
        with running([*command, str(configuration)], port=port, folder=tmp_path):
            login = f"{parts.username}:{parts.password}"
            yield urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}"))


def _use(url: str, name: str) -> None:
    """Do in a session of its own what there is to do."""
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=60
    ) as client:

        def ask(method: str, path: str, body: Any = None) -> Any:
            answer = client.request(method, f"/v1/sessions/{path}", json=body)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

        ask("PUT", name, {"app_name": "a", "user_id": "u", "policy": POLICY})
        for turn in range(TURNS):
            said = {"author": "user", "content": f"turn {turn} of {name} " * 20}
            events = [
                {"invocation_id": f"i{turn}", **said},
                {"invocation_id": f"i{turn}", "author": "a",
                 "content": {"role": "model", "parts": [{"text": "so it is " * 20}]}},
            ]  # fmt: skip
            ask("POST", f"{name}/events", {"events": events})
            compiled = ask("POST", f"{name}/compile", {"agent": "a", "format": "anthropic"})
            assert f"turn {turn} of {name}" in str(compiled["request"])
        wait_until(lambda: ask("GET", f"{name}/compactions")["data"] != [], patience_s=60)
        assert ask("POST", f"{name}/recall", {"query": "turn 0"})["hits"]
        assert ask("POST", f"{name}/rewind", {"to_seq": 2})["seq"]
        assert ask("POST", f"{name}/fork", {"at_seq": 2, "new_id": f"{name}-2"})["head_seq"] == 2
        events = ask("GET", f"{name}/events?limit=1000")["data"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        ask("DELETE", f"{name}-2")


def test_everything_works_through_pgbouncer(pooled_url: str, tmp_path: Path) -> None:
    with fleet(pooled_url, tmp_path, DB_POOLER="pgbouncer") as processes:
        worker = processes.worker()
        service, client = processes.service()
        assert client.get("/readyz").is_success
        with ThreadPoolExecutor(SESSIONS) as threads:
            list(threads.map(lambda n: _use(str(client.base_url), f"s{n}"), range(SESSIONS)))
        assert service.terminate() == 0
        assert worker.terminate() == 0
        for process in (service, worker):
            assert [line for line in process.lines if line["level"] == "error"] == []
