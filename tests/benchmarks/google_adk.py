"""The same work by google-adk, in this process: load the session from Postgres, build the contents.

Its tables are filled by COPY, since appending one by one through its service takes hours at the
large sizes; the rows are what its own service would have written.
"""

import json
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, cast

import asyncpg
from google.adk.agents.base_agent import BaseAgent
from google.adk.apps import compaction as engine
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.flows.llm_flows.context import _contents
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.session import Session
from google.genai import types

from tests.benchmarks.measuring import Stopwatch
from tests.benchmarks.workload import AGENT

_APP: Final = "bench"
_USER: Final = "user"
#: What a summary says, whatever it is of.
_SAID: Final = "The user asked for the state of many orders; every one is held at a hub. " * 6
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


class _Summarizer(BaseEventsSummarizer):
    """Says always the same."""

    async def maybe_summarize_events(self, *, events: list[AdkEvent]) -> AdkEvent | None:
        said = types.Content(role="model", parts=[types.Part(text=_SAID)])
        made = EventCompaction(
            start_timestamp=events[0].timestamp,
            end_timestamp=events[-1].timestamp,
            compacted_content=said,
        )
        at = events[-1].timestamp + 0.5
        return AdkEvent(author=_USER, timestamp=at, actions=EventActions(compaction=made))


class _Appends:
    """A session service that only appends."""

    async def append_event(self, session: Session, event: AdkEvent) -> AdkEvent:
        session.events.append(event)
        return event


async def folded(
    events: Iterable[dict[str, Any]], per_invocation: int, settings: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return the events with what google-adk's own engine makes of them as they come.

    Args:
        events: in order.
        per_invocation: how many events an invocation has; the engine runs after each.
        settings: of its ``EventsCompactionConfig``; empty: it folds nothing.
    """
    session = Session(id="s", app_name=_APP, user_id=_USER)
    service = cast("BaseSessionService", _Appends())
    app = App(name=_APP, root_agent=BaseAgent(name=AGENT))
    if settings:
        config = EventsCompactionConfig(summarizer=_Summarizer(), **settings)
        app = app.model_copy(update={"events_compaction_config": config})
    for number, event in enumerate(events, 1):
        session.events.append(AdkEvent.model_validate(event))
        if not settings or number % per_invocation:
            continue
        if "token_threshold" in settings:
            await engine._run_compaction_for_token_threshold(app, session, service)  # noqa: SLF001
        else:
            async for made in engine._run_compaction_for_sliding_window(  # noqa: SLF001
                app, session, service
            ):
                session.events.append(made)
    return [event.model_dump(mode="json", exclude_none=True) for event in session.events]


def _rows(session_id: str, events: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for value in events:
        at = datetime.fromtimestamp(value["timestamp"], UTC).replace(tzinfo=None)
        body = json.dumps(value)
        yield (value["id"], _APP, _USER, session_id, value["invocation_id"], at, body)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what the library says of its own experimental parts and of what it drops out of the
    table."""
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
