"""The same work by google-adk, in this process: load the session from Postgres, build the contents.

Its tables are filled by COPY, since appending one by one through its service takes hours at the
large sizes; the rows are what its own service would have written.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg
from google.adk.flows.llm_flows.context import _contents
from google.adk.sessions.database_session_service import DatabaseSessionService

from tests.benchmarks.measuring import Stopwatch
from tests.benchmarks.workload import AGENT

_APP: Final = "bench"
_USER: Final = "user"
_COLUMNS: Final = (
    "id", "app_name", "user_id", "session_id", "invocation_id", "timestamp", "event_data",
)  # fmt: skip


class GoogleAdk:
    """google-adk's session service on a database of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._service = DatabaseSessionService(
            url.replace("postgresql://", "postgresql+asyncpg://")
        )

    async def fill(self, session_id: str, events: Iterable[dict[str, Any]]) -> None:
        """Make a session of these events."""
        await self._service.create_session(app_name=_APP, user_id=_USER, session_id=session_id)
        connection = await asyncpg.connect(self._url)
        try:
            await connection.copy_records_to_table(
                "events", records=_rows(session_id, events), columns=_COLUMNS
            )
            await connection.execute("ANALYZE events")
        finally:
            await connection.close()

    async def compile(self, session_id: str, watch: Stopwatch) -> int:
        """Load and build once, timed; return how many contents there are."""
        with watch:
            session = await self._service.get_session(
                app_name=_APP, user_id=_USER, session_id=session_id
            )
            assert session is not None
            contents = _contents._get_contents(None, session.events, AGENT)  # noqa: SLF001
        return len(contents)

    async def close(self) -> None:
        """Close its connections."""
        await self._service.close()


def compaction(number: int, *, first_s: float, last_s: float, summary: str) -> dict[str, Any]:
    """Return google-adk's event that folds what lies between two seconds, both included."""
    return {
        "id": f"compaction{number}",
        "invocation_id": f"compaction{number}",
        "author": "user",
        "timestamp": last_s + 0.5,
        "actions": {
            "compaction": {
                "start_timestamp": first_s,
                "end_timestamp": last_s,
                "compacted_content": {"role": "model", "parts": [{"text": summary}]},
            }
        },
    }


def _rows(session_id: str, events: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for value in events:
        at = datetime.fromtimestamp(value["timestamp"], UTC).replace(tzinfo=None)
        body = json.dumps(value)
        yield (value["id"], _APP, _USER, session_id, value["invocation_id"], at, body)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's warnings about its own experimental parts out of the table."""
    import warnings  # noqa: PLC0415  only here

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
