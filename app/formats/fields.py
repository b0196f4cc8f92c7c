"""Reading a JSON object field by field, and writing one from texts.

Every key is accepted in both spellings (``function_call``, ``functionCall``). What is wrong is told
with a JSON pointer to the field as the caller spelled it.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import orjson

from app.core.canonical import Json, clean_text, emitted_json
from app.core.errors import InvalidEventError

#: What could not be taken as it came: ``(pointer, text)``.
Notes: TypeAlias = list[tuple[str, str]]

#: Deeper values are refused: every step that follows may recurse.
MAX_DEPTH: Final = 100
#: The largest position that a bigint column holds with room to count on.
MAX_SEQ: Final = 2**62


class Fields:
    """The known fields of one JSON object; a null field counts as absent."""

    __slots__ = ("_spellings", "_values", "notes", "pointer", "unknown")

    def __init__(
        self,
        pointer: str,
        notes: Notes,
        *,
        values: dict[str, Json],
        spellings: dict[str, str],
        unknown: list[str],
    ) -> None:
        self.pointer = pointer
        self.notes = notes
        #: Keys that the shape does not know, as sent.
        self.unknown = unknown
        self._values = values
        self._spellings = spellings

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def at(self, key: str) -> str:
        """Return the pointer of a field."""
        return f"{self.pointer}/{self._spellings.get(key, key)}"

    def wrong(self, key: str, detail: str) -> InvalidEventError:
        """Return the error that names a field."""
        return InvalidEventError(detail, pointer=self.at(key))

    def note(self, key: str, text: str) -> None:
        """Tell the caller of something that was not taken as it came."""
        self.notes.append((self.at(key), text))

    def value(self, key: str) -> Json:
        """Return a field of any type; None when absent."""
        return self._values.get(key)

    def text(self, key: str) -> str | None:
        """Return a string, cleaned."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(key, "must be a string")
        cleaned = clean_text(value)
        if cleaned is not value:
            self.note(key, "characters that cannot be emitted are read as U+FFFD")
        return cleaned

    def identifier(self, key: str, *, max_bytes: int) -> str | None:
        """Return a string that is compared and indexed: never altered, never long."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(key, "must be a string")
        if clean_text(value) is not value:
            raise self.wrong(key, "must not hold NUL characters or lone surrogates")
        if len(value) * 4 > max_bytes and len(value.encode()) > max_bytes:
            raise self.wrong(key, f"must not be longer than {max_bytes} bytes")
        return value

    def flag(self, key: str) -> bool:
        """Return a boolean; False when absent."""
        value = self._values.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
        return value

    def seq(self, key: str, *, least: int = 1) -> int | None:
        """Return a position in the log."""
        value = self._values.get(key)
        return None if value is None else read_seq(value, self.at(key), least=least)

    def array(self, key: str) -> list[Json]:
        """Return a list; an empty one when absent."""
        value = self._values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, "must be a list")
        return value

    def mapping(self, key: str) -> dict[str, Json]:
        """Return an object with keys of the caller's own; an empty one when absent."""
        value = self._values.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(key, "must be an object")
        return value

    def canonical(self, key: str, value: Json) -> str:
        """Return the canonical text of a value of this field, noting what it could not say."""
        text, is_clean = emitted_json(value)
        if not is_clean:
            self.note(key, "values that cannot be emitted are replaced")
        return text


class Shape:
    """The keys of one kind of object."""

    def __init__(self, kind: str, *keys: str) -> None:
        self._kind = kind
        self._keys = {spelling: key for key in keys for spelling in (key, camel(key))}

    @property
    def keys(self) -> frozenset[str]:
        """The keys that it knows, in snake_case."""
        return frozenset(self._keys.values())

    def read(self, value: Json, pointer: str, notes: Notes) -> Fields:
        """Open an object; keys that it does not know are in ``unknown``."""
        if not isinstance(value, dict):
            raise InvalidEventError(f"{self._kind} must be an object", pointer=pointer)
        values: dict[str, Json] = {}
        spellings: dict[str, str] = {}
        unknown: list[str] = []
        for spelling, item in value.items():
            key = self._keys.get(spelling)
            if key is None:
                unknown.append(spelling)
            else:
                if item is None:
                    if spelling != key and key not in values:
                        spellings[key] = spelling
                    continue
                if key in values:
                    at = pointer_to(pointer, spelling)
                    raise InvalidEventError("given in two spellings", pointer=at)
                values[key] = item
                if spelling != key:
                    spellings[key] = spelling
                elif key in spellings:
                    del spellings[key]
        return Fields(pointer, notes, values=values, spellings=spellings, unknown=unknown)

    def read_strictly(self, value: Json, pointer: str, notes: Notes) -> Fields:
        """Open an object that may hold nothing else."""
        fields = self.read(value, pointer, notes)
        if fields.unknown:
            raise InvalidEventError(
                f"unknown key in {self._kind}", pointer=pointer_to(pointer, fields.unknown[0])
            )
        return fields


def camel(key: str) -> str:
    """Return the camelCase spelling of a snake_case key."""
    first, *rest = key.split("_")
    return first + "".join(word.capitalize() for word in rest)


def pointer_to(pointer: str, key: str | int) -> str:
    """Return the pointer of a member, its name escaped (RFC 6901)."""
    name = clean_text(str(key)).replace("~", "~0").replace("/", "~1")
    return f"{pointer}/{name}"


def read_seq(value: Json, pointer: str, *, least: int = 1) -> int:
    """Return a position in the log."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidEventError("must be an integer", pointer=pointer)
    if not least <= value <= MAX_SEQ:
        raise InvalidEventError(f"must lie between {least} and {MAX_SEQ}", pointer=pointer)
    return value


def refuse_deep(value: Json, pointer: str = "") -> None:
    """Refuse a value that is nested deeper than anything here is prepared to follow.

    Raises:
        InvalidEventError: it is; the pointer names the first part that is too deep.
    """
    if not is_deep(value):
        return
    stack: list[tuple[Json, str, int]] = [(value, pointer, 0)]
    while stack:
        item, at, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise InvalidEventError(f"nested deeper than {MAX_DEPTH} levels", pointer=at)
        stack.extend((child, pointer_to(at, key), depth + 1) for key, child in _containers(item))


def is_deep(value: Json) -> bool:
    """Tell whether a value is nested deeper than :data:`MAX_DEPTH`."""
    # Every event that is read comes through here. Brackets are counted faster than levels; those
    # within strings only make the levels be counted.
    try:
        text = orjson.dumps(value)
    except TypeError:
        pass
    else:
        if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
            return False
    level: list[list[Json] | dict[str, Json]]
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return False
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
    return bool(level)


def _containers(value: Json) -> Iterator[tuple[str | int, Json]]:
    members: Iterable[tuple[str | int, Json]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    return ((key, child) for key, child in members if isinstance(child, dict | list))


def json_object(fields: Iterable[tuple[str, str]]) -> str:
    """Return the JSON text of an object whose values are JSON texts already."""
    return "{" + ",".join(f'"{key}":{text}' for key, text in fields) + "}"


def json_array(texts: Iterable[str]) -> str:
    """Return the JSON text of a list whose items are JSON texts already."""
    return "[" + ",".join(texts) + "]"


def refuse_members(value: Mapping[str, Json], names: Collection[str], owner: str) -> None:
    """Refuse members by which other formats carry content: unread, it would be lost unseen.

    Raises:
        InvalidEventError: the value has one of them.
    """
    for name in names:
        if value.get(name):
            detail = f"{owner} has no {name}: is it another format's?"
            raise InvalidEventError(detail, pointer=f"/{name}")


def read_object(value: Json, pointer: str) -> dict[str, Json]:
    """Return an object.

    Raises:
        InvalidEventError: it is none.
    """
    if not isinstance(value, dict):
        raise InvalidEventError("an object is needed", pointer=pointer)
    return value


def read_string(value: Json, pointer: str) -> str:
    """Return a string.

    Raises:
        InvalidEventError: it is none.
    """
    if not isinstance(value, str):
        raise InvalidEventError("a string is needed", pointer=pointer)
    return value


def read_extra(extra: str | None, name: str) -> dict[str, Json]:
    """Return one provider's fields of a part's extra ones; an empty object when there are none."""
    value = json.loads(extra).get(name) if extra else None
    return value if isinstance(value, dict) else {}


def lines_of(texts: Sequence[str]) -> str:
    """Return texts as lines; of a single one itself, which knows where it was read."""
    return texts[0] if len(texts) == 1 else "\n".join(texts)


def string_or_empty(value: Json) -> str:
    """Return a string, and of anything else the empty one."""
    return value if isinstance(value, str) else ""
