"""From a place in an event back to the place in the item that it was made of.

    {"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}     an item
    /content/parts/0/function_call/name                                   in the event it gives
    /tool_calls/0/function/name                                           what its sender knows

No converter keeps books: the item is converted again with every value in it knowing where it
stands, and most values of an event are values of its item. What is a new value stands in what holds
the values beside it. Asked only when something is wrong, so it may cost a conversion.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

from app.core.canonical import Json
from app.core.copying import replace
from app.core.errors import InvalidEventError
from app.formats.adk import ParsedEvent, parse_event
from app.formats.fields import Notes, camel, pointer_to

#: Makes native events of an item; with ``notes`` it tells what of the item is not read.
Convert: TypeAlias = Callable[..., Sequence[Json]]


class Source:
    """An item, and how its events are made of it."""

    def __init__(self, item: Json, convert: Convert) -> None:
        self._item = item
        self._convert = convert

    def pointer(self, number: int, at: str) -> str:
        """Return where in the item that stands which is at a place of its ``number``-th event.

        The last token may name a member that is not there. What cannot be told more closely is told
        by what it is a part of, at worst the item itself: the empty pointer.
        """
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in at.split("/")[1:]]
        nodes = [self._events[number]]
        for depth, token in enumerate(tokens):
            found = _member(nodes[-1], token)
            if found is None:
                break
            tokens[depth], node = found
            nodes.append(node)
        # Of what is not there at most one name is told: that of the member that is missing.
        known = tokens[: len(nodes) if isinstance(nodes[-1], dict) else len(nodes) - 1]
        for depth in range(len(nodes) - 1, -1, -1):
            place = _place_of(nodes[depth])
            if place is not None:
                return place + "".join(pointer_to("", token) for token in known[depth:])
            holders = [place.rpartition("/")[0] for place in _places_in(nodes[depth])]
            if holders:
                return _common(holders)
        return ""

    @cached_property
    def _events(self) -> Sequence[Json]:
        return self._convert(_placed(self._item, ""))


def parse_item(item: Json, convert: Convert) -> list[ParsedEvent]:
    """Return the events of an item, what is told of them with pointers into the item.

    Raises:
        InvalidEventError: likewise.
    """
    source = Source(item, convert)
    events: list[ParsedEvent] = []
    unread: Notes = []
    for number, body in enumerate(convert(item, notes=unread)):
        try:
            parsed = parse_event(body, allow_markers=True)
        except InvalidEventError as error:
            error.pointer = source.pointer(number, error.pointer)
            raise
        notes = [(source.pointer(number, at), detail) for at, detail in parsed.notes]
        # What is told of the item is told once.
        events.append(replace(parsed, notes=(*unread, *notes)))
        unread = []
    return events


class _PlacedText(str):
    __slots__ = ("place",)
    place: str


class _PlacedInteger(int):
    place: str


class _PlacedNumber(float):
    __slots__ = ("place",)
    place: str


class _PlacedList(list[Json]):
    __slots__ = ("place",)
    place: str


class _PlacedObject(dict[str, Json]):
    __slots__ = ("place",)
    place: str


_Placed: TypeAlias = _PlacedText | _PlacedInteger | _PlacedNumber | _PlacedList | _PlacedObject


def _placed(value: Json, place: str) -> Json:
    """Return a value that knows where it stands, with all in it; true, false and null cannot."""
    made: _Placed
    match value:
        case bool() | None:
            return value
        case str():
            made = _PlacedText(value)
        case int():
            made = _PlacedInteger(value)
        case float():
            made = _PlacedNumber(value)
        case list():
            made = _PlacedList(
                _placed(item, pointer_to(place, number)) for number, item in enumerate(value)
            )
        case dict():
            made = _PlacedObject(
                (key, _placed(item, pointer_to(place, key))) for key, item in value.items()
            )
    made.place = place
    return made


def _place_of(value: Json) -> str | None:
    return value.place if isinstance(value, _Placed) else None


def _member(value: Json, token: str) -> tuple[str, Json] | None:
    """Return a member under the name that it has there, which may be the other spelling."""
    if isinstance(value, dict):
        name = next((name for name in (token, camel(token)) if name in value), None)
        return None if name is None else (name, value[name])
    if isinstance(value, list) and token.isdigit() and int(token) < len(value):
        return token, value[int(token)]
    return None


def _places_in(value: Json) -> Iterator[str]:
    place = _place_of(value)
    if place is not None:
        yield place
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _places_in(item)


def _common(places: Sequence[str]) -> str:
    """Return the smallest place that holds them all."""
    first, *others = [place.split("/") for place in places]
    count = len(first)
    for other in others:
        pairs = zip(first[:count], other, strict=False)
        count = next((n for n, (a, b) in enumerate(pairs) if a != b), min(count, len(other)))
    return "/".join(first[:count])
