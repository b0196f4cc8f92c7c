"""Strict JSON in: values, and the exact text of each element of the lists that the log keeps.

    {"events": [{"id": "a", "n": 123456789012345678901234567890}], "expected_seq": 3}

    members["expected_seq"] -> 3
    members["events"][0].raw -> '{"id": "a", "n": 123456789012345678901234567890}'

The text is kept because a value forgets: big numbers, number forms, escapes, repeated keys. Refused
is what JSON has no place for (NaN, trailing text, control characters in strings) and what is nested
so deep that a later reader would fail on it.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NoReturn

from msgspec import Struct

from app.core.canonical import Json
from app.core.errors import MalformedBodyError

#: Deeper than any tool result that was seen, and far from Python's own limit.
MAX_NESTING: Final = 200
#: A longer text is read in steps.
MAX_CHARACTERS_AT_ONCE: Final = 131_072

_BLANKS: Final = re.compile(r"[ \t\n\r]*")


class RawItem(Struct, frozen=True):
    """One element of a list, as value and as text."""

    value: Json
    raw: str
    #: Keys that stand twice in one of its objects; the value has the last of each.
    repeated_keys: tuple[str, ...] = ()
    #: The element has an integer that no number type holds; the value has it as text.
    has_huge_integer: bool = False


def parse_json(text: str) -> Json:
    """Return the value of a JSON text.

    Raises:
        MalformedBodyError: it is not JSON.
    """
    reader = _Reader(text)
    value = reader.value(reader.blank(0), "")
    reader.finish()
    return value


def parse_object(text: str, *, kept: Collection[str] = ()) -> dict[str, Any]:
    """Return the members of a JSON object.

    Args:
        text: the whole object.
        kept: members that, where they are lists, are returned as lists of :class:`RawItem`.

    Raises:
        MalformedBodyError: it is not JSON, or not an object.
    """
    reader = _Reader(text)
    members: dict[str, Any] = {}
    for key, start in reader.members():
        if key in members:
            raise MalformedBodyError("the member stands twice", pointer=pointer_to(key))
        if key in kept and text[start : start + 1] == "[":
            members[key] = reader.items(start, pointer_to(key))
        else:
            members[key] = reader.value(start, pointer_to(key))
    reader.finish()
    return members


def split_members(text: str) -> list[tuple[str, str]]:
    """Return the members of a JSON object as key and text, in order, repeated keys included.

    Args:
        text: a text that was accepted before.
    """
    reader = _Reader(text)
    parts: list[tuple[str, str]] = []
    for key, start in reader.members():
        reader.value(start, "")
        parts.append((key, text[start : reader.position]))
    return parts


def without_members(
    text: str, path: Sequence[Collection[str]], is_unwanted: Callable[[str], bool]
) -> str:
    """Return the text of an object without some members of an object within; all else is kept to
    the letter, but for blanks around the members on the way.

    Args:
        text: a text that was accepted before.
        path: the keys that lead to the object, each in all its spellings.
        is_unwanted: tells by its key whether a member goes.
    """
    members = split_members(text)
    if not path:
        kept = [(key, value) for key, value in members if not is_unwanted(key)]
    else:
        kept = [
            (key, without_members(value, path[1:], is_unwanted))
            if key in path[0] and value.startswith("{")
            else (key, value)
            for key, value in members
        ]
    return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in kept) + "}"


def pointer_to(*tokens: str | int) -> str:
    """Return the JSON pointer (RFC 6901) of a path."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


class _Reader:
    """One walk over a text; ``position`` is behind what was read last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.watch = _Watch(in_steps=len(text) > MAX_CHARACTERS_AT_ONCE)

    def blank(self, position: int) -> int:
        match = _BLANKS.match(self.text, position)
        return match.end() if match else position

    def members(self) -> Iterator[tuple[str, int]]:
        """Yield each key with the start of its value; the caller reads the value."""
        if not self._take("{", ""):
            self.fail("an object is expected")
        is_first = True
        while not self._take("}", ""):
            if not is_first:
                self._expect(",")
            is_first = False
            start = self.blank(self.position)
            if self.text[start : start + 1] != '"':
                self.fail("a key in quotes is expected", start)
            key = self.value(start, "")
            self._expect(":")
            yield str(key), self.blank(self.position)

    def items(self, start: int, pointer: str) -> list[RawItem]:
        self.position = start + 1
        items: list[RawItem] = []
        while not self._take("]", ""):
            if items:
                self._expect(",")
            items.append(self._item(self.blank(self.position), f"{pointer}/{len(items)}"))
        return items

    def value(self, start: int, pointer: str) -> Json:
        value, end = self._decode(_DECODER, start, pointer)
        _check_nesting(value, self.text, start, end, pointer)
        self.position = end
        return value

    def finish(self) -> None:
        if self.blank(self.position) != len(self.text):
            self.fail("nothing may follow the value", self.blank(self.position))

    def fail(self, what: str, position: int | None = None, pointer: str = "") -> NoReturn:
        at = self.position if position is None else position
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        detail = f"not valid JSON: {what}, at line {line}, column {column}"
        raise MalformedBodyError(detail, pointer=pointer)

    def _item(self, start: int, pointer: str) -> RawItem:
        watch = self.watch
        watch.repeated, watch.has_huge = [], False
        value, end = self._decode(watch.decoder, start, pointer, huge=watch.huge_decoder)
        _check_nesting(value, self.text, start, end, pointer)
        self.position = end
        return RawItem(
            value, self.text[start:end], tuple(dict.fromkeys(watch.repeated)), watch.has_huge
        )

    def _decode(
        self,
        decoder: json.JSONDecoder,
        start: int,
        pointer: str,
        *,
        huge: json.JSONDecoder | None = None,
    ) -> tuple[Json, int]:
        try:
            value, end = decoder.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            self.fail(error.msg[:1].lower() + error.msg[1:], error.pos, pointer)
        except RecursionError:
            raise _too_deep(pointer) from None
        except _NotANumberError as error:
            raise MalformedBodyError(f"{error} is not JSON", pointer=pointer) from None
        except ValueError:
            # Python refuses to convert integers of thousands of digits, and asking every integer
            # for its length would slow all others down.
            return self._decode(huge or _HUGE_DECODER, start, pointer)
        return value, end

    def _take(self, character: str, pointer: str) -> bool:
        start = self.blank(self.position)
        if start >= len(self.text):
            self.fail("it ends too early", len(self.text), pointer)
        if self.text[start] != character:
            return False
        self.position = start + 1
        return True

    def _expect(self, character: str) -> None:
        if not self._take(character, ""):
            self.fail(f"{character!r} is expected", self.blank(self.position))


class _NotANumberError(Exception):
    """NaN or an infinity, spelt as a bare word."""


def _refuse_constant(word: str) -> NoReturn:
    raise _NotANumberError(word)


def _integer_or_text(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


def _integer(digits: str) -> int:
    return int(digits)


def _float(digits: str) -> float:
    return float(digits)


class _Watch:
    """Decoders that notice what the value forgets."""

    def __init__(self, *, in_steps: bool) -> None:
        """Take whether other threads are to run meanwhile: between two calls of ours they may, and
        then every number is one."""
        self.repeated: list[str] = []
        self.has_huge = False
        self.decoder = (
            _decoder(self._pairs, _integer, _float) if in_steps else _decoder(self._pairs)
        )
        self.huge_decoder = _decoder(self._pairs, self._integer)

    def _pairs(self, pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        value = dict(pairs)
        if len(value) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self.repeated.append(key)
                seen.add(key)
        return value

    def _integer(self, digits: str) -> int | str:
        number = _integer_or_text(digits)
        self.has_huge = self.has_huge or isinstance(number, str)
        return number


def _decoder(
    pairs: Callable[[list[tuple[str, Json]]], dict[str, Json]] | None = None,
    parse_int: Callable[[str], int | str] | None = None,
    parse_float: Callable[[str], float] | None = None,
) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=pairs,
        parse_int=parse_int,
        parse_float=parse_float,
        parse_constant=_refuse_constant,
    )


_DECODER: Final = _decoder()
_HUGE_DECODER: Final = _decoder(parse_int=_integer_or_text)


def _check_nesting(value: Json, text: str, start: int, end: int, pointer: str) -> None:
    # Counting brackets is fast and mostly answers the question; those inside strings only make the
    # slow answer be asked for.
    if text.count("{", start, end) + text.count("[", start, end) <= MAX_NESTING:
        return
    level: list[Json] = [value]
    for _ in range(MAX_NESTING + 1):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise _too_deep(pointer)


def _too_deep(pointer: str) -> MalformedBodyError:
    return MalformedBodyError(f"nested deeper than {MAX_NESTING} levels", pointer=pointer)


def repeated_keys_note(item: RawItem) -> str | None:
    """Return what to tell the caller of an element's repeated keys, None without any."""
    if not item.repeated_keys:
        return None
    names = ", ".join(item.repeated_keys[:5])
    return f"keys stand twice, the last of each counts: {names}"
