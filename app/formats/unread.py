"""What an item says that none of its events will: noted, so that nothing is lost unseen.

    {"role": "user", "content": "hi", "mood": "glad"}      an item
    ("/mood", "not read: ...")                             the note

Each format says once what it reads of which object; the walk here compares. What says nothing
(null, false, an empty text or list) is not missed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from app.core.canonical import Json
from app.formats.fields import pointer_to

NOT_READ: Final = "not read: it is kept in the log and never sent"


@dataclass(frozen=True, slots=True)
class Members:
    """What is read of an object: its members, and how to look into each; None: not at all."""

    known: Mapping[str, "Look"]
    #: An object with other members is kept as it is.
    keeps_others: bool = False


@dataclass(frozen=True, slots=True)
class Kinds:
    """Objects that are told apart by a member."""

    by_kind: Mapping[str, Members]
    tag: str = "type"
    #: What an object without the member is; None: it is kept as it is.
    untagged: Members | None = None
    #: Objects of other kinds are kept as they are.
    keeps_others: bool = True


Look: TypeAlias = Members | Kinds | None


def members(*names: str, **looked_into: Look) -> Members:
    """Return what is read of an object."""
    return Members({**dict.fromkeys(names), **looked_into})


def unread(value: Json, look: Look, pointer: str = "") -> Iterator[tuple[str, str]]:
    """Yield pointer and text for each thing in a value that is not read; of a list in each item."""
    if look is None:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unread(item, look, f"{pointer}/{index}")
    elif isinstance(value, dict):
        if isinstance(look, Kinds):
            yield from _of_kind(value, look, pointer)
        else:
            yield from _of_members(value, look, pointer)


def _of_kind(value: dict[str, Json], look: Kinds, pointer: str) -> Iterator[tuple[str, str]]:
    kind = value.get(look.tag)
    known = look.by_kind.get(kind) if isinstance(kind, str) else look.untagged
    if known is not None:
        yield from unread(value, known, pointer)
    elif not look.keeps_others:
        yield pointer, NOT_READ


def _of_members(value: dict[str, Json], look: Members, pointer: str) -> Iterator[tuple[str, str]]:
    for name, inner in value.items():
        at = pointer_to(pointer, name)
        if name in look.known:
            yield from unread(inner, look.known[name], at)
        elif not look.keeps_others and inner not in (None, False, "", [], {}):
            yield at, NOT_READ
