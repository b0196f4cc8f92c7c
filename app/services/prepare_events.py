"""From what a caller sent to events that can be appended: parsed, measured, hashed and given ids.

Everything that needs no database happens here, before a transaction is open.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Final, TypeAlias
from uuid import UUID

from msgspec import Struct

from app.core.canonical import Json, canonical_json
from app.core.copying import replace
from app.core.errors import InvalidEventError, TooLargeError
from app.core.events import Event
from app.core.json_text import (
    RawItem,
    parse_json,
    parse_object,
    repeated_keys_note,
    without_members,
)
from app.core.session_state import TEMP_PREFIX, has_temp, without_temp
from app.core.tokens import part_tokens
from app.formats.adk import ParsedEvent, parse_event
from app.formats.fields import Notes, pointer_to
from app.formats.sources import Source
from app.ports import BodyAgain, TokenCounter

NATIVE: Final = "native"
ADK: Final = "adk"

#: A format's way from one of its items to native events.
ConvertItem: TypeAlias = Callable[..., list[dict[str, Json]]]

#: Below this parsing, hashing and counting take some 4 ms; above, they run beside the event loop.
MAX_CHARACTERS_ON_LOOP: Final = 16_384

#: What the server adds to an event when it answers it; never part of the body.
SERVER_KEYS: Final = frozenset({"seq", "status", "masked_by", "tokens"})
#: Objects whose keys are the caller's own, and therefore keep their case.
OPAQUE_KEYS: Final = frozenset(
    {
        "agent_state",
        "args",
        "artifact_delta",
        "custom_metadata",
        "output",
        "part_metadata",
        "payload",
        "raw",
        "requested_auth_configs",
        "requested_tool_confirmations",
        "response",
        "set_model_response",
        "state_delta",
    }
)
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBatch:
    """Events or items as they came."""

    items: Sequence[RawItem]
    #: Where they stand in the request: ``/events`` or ``/items``.
    pointer: str = "/events"
    source_format: str = NATIVE
    #: Author of what the model said, in imported items.
    agent: str = ""
    #: Read the markers that only services write.
    allow_markers: bool = False


class PreparedEvent(Struct, frozen=True, kw_only=True):
    """One event, ready for the resolver."""

    event: Event
    raw: str
    source_format: str
    #: Index of its item in the request, and its number among the events of the item.
    item: int
    item_part: int
    pointer: str
    #: The id came with the event; ours need no search for duplicates.
    has_own_id: bool
    #: What it was made of.
    made_of: "_Body"
    is_partial: bool
    body_hash: bytes
    state_delta: Mapping[str, Json]
    #: It says that its invocation ends.
    completes_invocation: bool = False

    @property
    def tokens(self) -> int:
        """Our token count of the whole event."""
        return sum(self.event.part_tokens)

    def pointer_of(self, at: str) -> str:
        """Return where in the request that stands which is at a place of the event."""
        return self.made_of.pointer_of(at)


@dataclass(frozen=True, slots=True)
class Note:
    """What could not be taken as it came."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Sizes above which a batch is refused."""

    max_event_bytes: int = 1024 * 1024
    max_batch_events: int = 500


class EventPreparer:
    """Makes events out of what callers send."""

    def __init__(
        self,
        *,
        converters: Mapping[str, ConvertItem],
        tokens: TokenCounter,
        limits: BatchLimits | None = None,
    ) -> None:
        self._converters = converters
        self._tokens = tokens
        self._limits = limits or BatchLimits()

    async def prepare(
        self, batch: SentBatch, *, now: datetime
    ) -> tuple[list[PreparedEvent], list[Note]]:
        """Return the events of a batch in order, partial ones included, and what to tell.

        Raises:
            InvalidEventError: with a pointer into the request.
            TooLargeError: an event or the batch is over its limit.
        """
        characters = sum(len(item.raw) for item in batch.items)
        if characters <= MAX_CHARACTERS_ON_LOOP:
            return self._prepare(batch, now)
        return await asyncio.to_thread(self._prepare, batch, now)

    def _prepare(self, batch: SentBatch, now: datetime) -> tuple[list[PreparedEvent], list[Note]]:
        notes: list[Note] = []
        bodies = list(self._bodies(batch, notes))
        if len(bodies) > self._limits.max_batch_events:
            raise TooLargeError(
                limit_name="max_batch_events",
                limit=self._limits.max_batch_events,
                pointer=batch.pointer,
            )
        return [self._event(batch, body, now, notes) for body in bodies], notes

    def source_event(
        self, *, raw: Json, source_format: str, item_part: int, author: str
    ) -> dict[str, Json]:
        """Return a stored event's native body again, from its item as it was sent."""
        if source_format == NATIVE:
            assert isinstance(raw, dict)
            return raw
        return self._converters[source_format](raw, agent=author)[item_part]

    def read_again(self, raw: str, source_format: str, item_part: int, author: str) -> BodyAgain:
        """Return what a stored event's body says, from its text.

        Args:
            raw: the text.
            source_format: of the text.
            item_part: its number within its item.
            author: as it is stored; what a model said in an imported item tells nobody's name.
        """
        body = self.source_event(
            raw=parse_json(raw), source_format=source_format, item_part=item_part, author=author
        )
        parsed = parse_event(body, allow_markers=True)
        return BodyAgain(
            event=self._with_tokens(parsed.event),
            body_hash=body_hash(body),
            state_delta=without_temp(parsed.state_delta),
            has_timestamp=parsed.has_timestamp,
        )

    def derive(self, raw: str, source_format: str, item_part: int) -> Event:
        """Return a stored event from its text again, with tokens but without its place in the log.

        For rows that an older version derived.
        """
        body = self.source_event(
            raw=parse_json(raw), source_format=source_format, item_part=item_part, author=""
        )
        return self._with_tokens(parse_event(body, allow_markers=True).event)

    def _with_tokens(self, event: Event) -> Event:
        count = self._tokens.count
        return replace(event, part_tokens=tuple([part_tokens(part, count) for part in event.parts]))

    def _bodies(self, batch: SentBatch, notes: list[Note]) -> Iterator["_Body"]:
        for number, item in enumerate(batch.items):
            pointer = f"{batch.pointer}/{number}"
            if repeated := repeated_keys_note(item):
                notes.append(Note(pointer, repeated))
            if item.has_huge_integer:
                notes.append(Note(pointer, "an integer of thousands of digits is read as text"))
            for body in self._native(batch, number, item, pointer, notes):
                self._check_size(body)
                yield body

    def _check_size(self, body: "_Body") -> None:
        limit = self._limits.max_event_bytes
        if len(body.raw) * 4 > limit and len(body.raw.encode(errors="surrogatepass")) > limit:
            raise TooLargeError(limit_name="max_event_bytes", limit=limit, pointer=body.pointer)

    def _native(
        self, batch: SentBatch, number: int, item: RawItem, pointer: str, notes: list[Note]
    ) -> Iterator["_Body"]:
        source_format = batch.source_format
        if source_format == NATIVE:
            source = Source(item.value, lambda value: [value])
            yield _Body(number, 0, pointer, item.raw, NATIVE, item.value, source, 0)
            return
        if source_format == ADK and isinstance(item.value, dict) and "events" in item.value:
            # A whole session is one item: each event keeps its own text, not the session's.
            yield from self._events_of_session(number, item, pointer)
            return
        convert = partial(self._converters[source_format], agent=batch.agent)
        unread: Notes = []
        try:
            bodies = convert(item.value, notes=unread)
        except InvalidEventError as error:
            error.pointer = pointer + error.pointer
            raise
        notes.extend(Note(pointer + at, detail) for at, detail in unread)
        source = Source(item.value, convert)
        for part, value in enumerate(bodies):
            if source_format == ADK:
                raw = item.raw if value is item.value else canonical_json(value)
                yield _Body(number, 0, pointer, raw, NATIVE, value, source, part)
            else:
                yield _Body(number, part, pointer, item.raw, source_format, value, source, part)

    def _events_of_session(self, number: int, item: RawItem, pointer: str) -> Iterator["_Body"]:
        events = parse_object(item.raw, kept=("events",))["events"]
        if not isinstance(events, list):
            raise InvalidEventError("must be a list", pointer=f"{pointer}/events")
        for index, event in enumerate(events):
            at = f"{pointer}/events/{index}"
            source = Source(event.value, lambda value: [value])
            yield _Body(number, 0, at, event.raw, NATIVE, event.value, source, 0)

    def _event(
        self, batch: SentBatch, body: "_Body", now: datetime, notes: list[Note]
    ) -> PreparedEvent:
        try:
            parsed = parse_event(body.value, allow_markers=batch.allow_markers)
        except InvalidEventError as error:
            error.pointer = body.pointer_of(error.pointer)
            raise
        if parsed.notes:
            notes.extend(Note(body.pointer_of(at), detail) for at, detail in parsed.notes)
        if has_temp(parsed.state_delta):
            notes.extend(_temp_notes(parsed, body))
            body = _without_temp(body)
        if body.source_format not in (NATIVE, ADK):
            notes.extend(_prompt_notes(body))
        return PreparedEvent(
            event=self._finished(parsed, now),
            raw=body.raw,
            source_format=body.source_format,
            item=body.item,
            item_part=body.item_part,
            pointer=body.pointer,
            has_own_id=bool(parsed.event.id),
            made_of=body,
            is_partial=parsed.is_partial,
            body_hash=body_hash(body.value),
            state_delta=without_temp(parsed.state_delta),
            completes_invocation=parsed.completes_invocation,
        )

    def _finished(self, parsed: ParsedEvent, now: datetime) -> Event:
        """Return the event with an id, a time, and its tokens."""
        event = parsed.event
        count = self._tokens.count
        return replace(
            event,
            id=event.id or str(uuid7(now)),
            timestamp=event.timestamp if parsed.has_timestamp else now.timestamp(),
            part_tokens=tuple([part_tokens(part, count) for part in event.parts]),
        )


class _Body(Struct, frozen=True):
    item: int
    #: Number among the events of the item, as reading back counts them.
    item_part: int
    pointer: str
    raw: str
    source_format: str
    value: Json
    source: Source
    #: Its number among the events of the source.
    source_number: int

    def pointer_of(self, at: str) -> str:
        return self.pointer + self.source.pointer(self.source_number, at)


#: Where an event says how the state changes.
_STATE_DELTA: Final = (("actions",), ("state_delta", "stateDelta"))


def _without_temp(body: _Body) -> _Body:
    """Return an event without what is never stored, in its text as well: it may be a secret."""
    raw = without_members(body.raw, _STATE_DELTA, lambda key: key.startswith(TEMP_PREFIX))
    return replace(body, raw=raw, value=parse_json(raw))


def _temp_notes(parsed: ParsedEvent, body: _Body) -> Iterator[Note]:
    for key in parsed.state_delta:
        if key.startswith(TEMP_PREFIX):
            at = body.pointer_of(pointer_to("/actions/state_delta", key))
            yield Note(at, f"{key} is never stored")


def _prompt_notes(body: _Body) -> Iterator[Note]:
    metadata = body.value.get("custom_metadata") if isinstance(body.value, dict) else None
    role = metadata.get("source_role") if isinstance(metadata, dict) else None
    if isinstance(role, str):
        detail = f"a {role} prompt in a log is read as the user's; compile takes it as `system`"
        yield Note(body.pointer, detail)


def body_hash(body: Json) -> bytes:
    """Return the hash by which two bodies of one event id are the same, in either spelling."""
    members = _one_case(body)
    if isinstance(members, dict):
        members = {key: value for key, value in members.items() if key not in SERVER_KEYS}
    return hashlib.sha256(canonical_json(members).encode()).digest()


def _one_case(value: Json) -> Json:
    if isinstance(value, list):
        return [_one_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    members: dict[str, Json] = {}
    for spelling in sorted(value):
        item = value[spelling]
        if item is None:
            continue
        key = _snake_case(spelling)
        has_keys = isinstance(item, (dict, list)) and key not in OPAQUE_KEYS
        members[key] = _one_case(item) if has_keys else item
    return members


# The keys of events are few, and the caller's own are not asked for here.
@lru_cache(maxsize=1024)
def _snake_case(spelling: str) -> str:
    return _CAPITAL.sub(lambda match: "_" + match[1].lower(), spelling)


def uuid7(now: datetime) -> UUID:
    """Return a UUID that sorts by time (RFC 9562, version 7)."""
    milliseconds = int(now.timestamp() * 1000)
    random = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (2**48 - 1)) << 80 | 0x7 << 76 | (random >> 68) << 64
    return UUID(int=value | 0b10 << 62 | random & (2**62 - 1))
