"""The fingerprint chain: which requests begin with the same bytes.

    h0 = H(format, model, tools, system)    h_i = H(h_{i-1}, role of part i, canonical bytes of it)

A fingerprint is 64 hexadecimal digits: eight each of the hashes of format and model, of the tools
and of the system text, and forty of the chain. So two fingerprints tell, without anything stored,
whether tools or system changed or only what follows, and a chain goes on from any of them. Equal
bytes have equal fingerprints, whatever options made them.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, Literal, TypeAlias

_HEAD_DIGITS: Final = 8
_CHAIN_DIGITS: Final = 40

HeadPart: TypeAlias = Literal["model", "tools", "system"]


def head_of(*, format_name: str, model: str, tools: str, system: str) -> str:
    """Return the fingerprint of a request with this head and no parts."""
    pieces = (f"{format_name}\0{model}", tools, system)
    head = "".join(_digest(piece.encode())[:_HEAD_DIGITS] for piece in pieces)
    return head + _digest(head.encode())[:_CHAIN_DIGITS]


def chain_of(start: str, parts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the fingerprint before the first part, after it, and so on to the last.

    Args:
        start: of the request without these parts: from :func:`head_of`, or the end of a chain.
        parts: ``(role, canonical text)`` of each part, in order.
    """
    head, value = start[: 3 * _HEAD_DIGITS], start
    values = [value]
    for role, text in parts:
        value = _next(head, value, role, text)
        values.append(value)
    return tuple(values)


class Chain:
    """A chain as it is made, for whoever decides on the way what comes next."""

    def __init__(self, start: str) -> None:
        #: The fingerprint of what was added so far.
        self.value = start
        self._head = start[: 3 * _HEAD_DIGITS]

    def add(self, role: str, text: str) -> None:
        """Add a part."""
        self.value = _next(self._head, self.value, role, text)


def _next(head: str, value: str, role: str, text: str) -> str:
    link = sha256(f"{value}\0{role}\0{text}".encode()).hexdigest()
    return head + link[:_CHAIN_DIGITS]


def start_of(fingerprint: str) -> str:
    """Return the fingerprint before the first part of the request that a fingerprint is of."""
    head = fingerprint[: 3 * _HEAD_DIGITS]
    return head + _digest(head.encode())[:_CHAIN_DIGITS]


def head_difference(first: str, second: str) -> HeadPart | None:
    """Return what differs before the first part: ``model``, ``tools``, ``system``, or None."""
    names: tuple[HeadPart, ...] = ("model", "tools", "system")
    for number, name in enumerate(names):
        span = slice(number * _HEAD_DIGITS, (number + 1) * _HEAD_DIGITS)
        if first[span] != second[span]:
            return name
    return None


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
