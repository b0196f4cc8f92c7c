"""Appending to a stored log in tests, as a service does it: lock, load, resolve, insert."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID, uuid4, uuid5

from app.core.canonical import Json
from app.core.copying import replace
from app.core.errors import SessionNotFoundError
from app.core.events import Event
from app.core.resolve import Facts, Resolver, needs_of
from app.ports import NewEvent, NewSession, SessionKey
from app.storage.database import PgDatabase
from app.storage.event_log import PgEventLog
from app.storage.sessions import PgSessions

NAMESPACE = UUID(int=1)


def no_derive(raw: str, source_format: str, item_part: int) -> Event:
    """Stand for what derives old rows again, where no row is old."""
    raise AssertionError((raw, source_format, item_part))


LOG = PgEventLog(no_derive)
SESSIONS = PgSessions()


def new_key(tenant_id: str = "acme") -> SessionKey:
    """Return the key of a session that does not exist yet."""
    session_id = f"session-{uuid4().hex}"
    return SessionKey(tenant_id, session_id, uuid5(NAMESPACE, f"{tenant_id}/{session_id}"))


async def new_session(database: PgDatabase, **fields: Any) -> SessionKey:
    """Make an empty session, of an app of its own, and return its key."""
    key = new_key()
    fields = {"app_name": f"app of {key.session_id}", "user_id": "user", **fields}
    async with database.transaction() as connection:
        assert await SESSIONS.create(connection, key, NewSession(**fields))
    return key


def new_event(event: Event, *, state_delta: Mapping[str, Json] | None = None) -> NewEvent:
    """Return a resolved event as it is inserted."""
    return NewEvent(
        event=event,
        raw=f'{{"seq": {event.seq}}}',
        source_format="native",
        item_part=0,
        body_hash=event.seq.to_bytes(32, "big"),
        state_delta=state_delta or {},
    )


def _named(event: Event) -> Event:
    return event if event.id else replace(event, id=f"e{event.seq}")


async def append_within(
    connection: Any,
    key: SessionKey,
    events: Iterable[Event],
    state_deltas: Iterable[Mapping[str, Json]] = (),
) -> tuple[Facts, list[Event]]:
    """Append in the caller's transaction; return the facts afterwards and the resolved events."""
    events = list(events)
    session = await LOG.lock_session(connection, key)
    if session is None:
        raise SessionNotFoundError
    facts = await LOG.load_facts(connection, key, session, needs_of(events))
    resolver = Resolver(facts)
    resolved = [_named(resolver.add(event)) for event in events]
    deltas = [*state_deltas, *({},) * len(events)]
    rows = [
        new_event(event, state_delta=delta) for event, delta in zip(resolved, deltas, strict=False)
    ]
    await LOG.append(connection, key, rows, facts)
    for row in rows:
        if row.state_delta:
            await SESSIONS.apply_state(connection, key, session, row.state_delta)
    return facts, resolved


async def append(
    database: PgDatabase,
    key: SessionKey,
    *events: Event,
    state_deltas: Iterable[Mapping[str, Json]] = (),
) -> list[Event]:
    """Append a batch in a transaction of its own and return it, resolved."""
    async with database.transaction() as connection:
        return (await append_within(connection, key, events, state_deltas))[1]
