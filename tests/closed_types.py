"""Check a JSON value against an SDK's request types, closed: an unknown key is an error.

The SDKs describe requests as TypedDicts, which their own clients never check. Validators that do
check them accept unknown keys and read lazily what is declared as an Iterable; neither would catch
an emitter that misspells a field.
"""

import types
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typing_extensions


def mismatches(value: object, wanted: Any, path: str = "") -> list[str]:
    """Return what keeps the value from being of the type; empty when it is."""
    return list(_mismatches(value, wanted, path))


def _mismatches(value: object, wanted: Any, path: str) -> Iterator[str]:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in _WRAPPERS:
        yield from _mismatches(value, arguments[0], path)
    elif wanted is Any or wanted is object:
        return
    elif origin in (Union, types.UnionType):
        yield from _closest(value, arguments, path)
    elif origin in _LITERALS:
        if value not in arguments:
            yield f"{path}: {value!r} is none of {arguments}"
    elif typing_extensions.is_typeddict(wanted):
        yield from _members(value, wanted, path)
    elif origin is dict or wanted is dict:
        if not isinstance(value, dict):
            yield f"{path}: an object is wanted"
    elif isinstance(origin, type) and issubclass(origin, Iterable):
        if not isinstance(value, list):
            yield f"{path}: a list is wanted"
            return
        for index, item in enumerate(value):
            yield from _mismatches(item, arguments[0], f"{path}/{index}")
    elif not _is_plain(value, wanted):
        yield f"{path}: {type(value).__name__} is no {wanted}"


_WRAPPERS = (
    Annotated,
    NotRequired,
    Required,
    typing_extensions.NotRequired,
    typing_extensions.Required,
)
_LITERALS = (Literal, typing_extensions.Literal)


def _closest(value: object, choices: tuple[Any, ...], path: str) -> Iterator[str]:
    """Of a union, report the choice that comes closest."""
    found = [mismatches(value, choice, path) for choice in choices]
    yield from min(found, key=lambda one: (len(one), -sum(text.count("/") for text in one)))


def _members(value: object, wanted: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: an object is wanted"
        return
    hints = _hints_of(wanted)
    required = {
        key
        for key, hint in hints.items()
        if get_origin(hint) in (Required, typing_extensions.Required)
        or (key in wanted.__required_keys__ and get_origin(hint) not in _NOT_REQUIRED)
    }
    yield from (f"{path}: {key} lacks" for key in required - value.keys())
    for key, item in value.items():
        if key in hints:
            yield from _mismatches(item, hints[key], f"{path}/{key}")
        else:
            yield f"{path}/{key}: unknown key"


@cache
def _hints_of(wanted: Any) -> Mapping[str, Any]:
    return get_type_hints(wanted, include_extras=True)


_NOT_REQUIRED = (NotRequired, typing_extensions.NotRequired)


def _is_plain(value: object, wanted: Any) -> bool:
    if wanted is type(None):
        return value is None
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(wanted, type) and wanted in (str, bool) and isinstance(value, wanted)
