"""Resolve prepared events against what the log says, to rows that can be inserted."""

import asyncio
from collections.abc import Sequence
from typing import Final

from app.core.copying import replace
from app.core.errors import InvalidInputError
from app.core.events import Event, Fold
from app.core.resolve import Facts, Resolver
from app.core.tokens import CountTokens, part_tokens
from app.ports import NewEvent
from app.services.prepare_events import PreparedEvent

#: An event takes 15 microseconds.
MAX_EVENTS_ON_LOOP: Final = 100


def resolve_batch(
    facts: Facts, fresh: Sequence[PreparedEvent], count: CountTokens
) -> list[NewEvent]:
    """Return the rows of events that are new to the log, in order; the facts stand after them.

    Raises:
        InvalidInputError: an event is refused, with its pointer.
    """
    resolver = Resolver(facts)
    rows: list[NewEvent] = []
    for each in fresh:
        try:
            event = resolver.add(each.event)
        except InvalidInputError as error:
            error.pointer = each.pointer_of(error.pointer)
            raise
        rows.append(
            NewEvent(
                event=_with_section_tokens(event, count),
                raw=each.raw,
                source_format=each.source_format,
                item_part=each.item_part,
                body_hash=each.body_hash,
                state_delta=each.state_delta,
            )
        )
    return rows


async def resolve_beside_loop(
    facts: Facts, fresh: Sequence[PreparedEvent], count: CountTokens
) -> list[NewEvent]:
    """As :func:`resolve_batch`; many events are resolved beside the event loop."""
    if len(fresh) <= MAX_EVENTS_ON_LOOP:
        return resolve_batch(facts, fresh, count)
    return await asyncio.to_thread(resolve_batch, facts, fresh, count)


def _with_section_tokens(event: Event, count: CountTokens) -> Event:
    if not isinstance(event.marker, Fold):
        return event
    sections = tuple(
        replace(section, tokens=sum(part_tokens(part, count) for part in section.parts))
        for section in event.marker.sections
    )
    return replace(event, marker=replace(event.marker, sections=sections))
