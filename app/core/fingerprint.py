"""The fingerprint chain: which requests begin with the same bytes.

    h0 = H(format, model, tools, system)        h_i = H(h_{i-1}, role of part i, canonical bytes of
    part i)

A fingerprint is 64 hexadecimal digits: eight each of the hashes of format and model, of the tools
and of the system text, and forty of the chain. So two fingerprints tell, without anything stored,
whether tools or system changed or only what follows. Equal bytes have equal fingerprints, whatever
options made them.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, Literal, TypeAlias

_HEAD_DIGITS: Final = 8
_CHAIN_DIGITS: Final = 40

HeadPart: TypeAlias = Literal["model", "tools", "system"]


def head_of(*, format_name: str, model: str, tools: str, system: str) -> str:
    """Return the digits that every fingerprint of a request with this head starts with."""
    pieces = (f"{format_name}\0{model}", tools, system)
    return "".join(_digest(piece.encode())[:_HEAD_DIGITS] for piece in pieces)


def chain_of(head: str, parts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the fingerprint before the first part, after it, and so on to the last.

    Args:
        head: from :func:`head_of`.
        parts: ``(role, canonical text)`` of each part, in order.
    """
    chain = Chain(head)
    values = [chain.value]
    for role, text in parts:
        chain.add(role, text)
        values.append(chain.value)
    return tuple(values)


class Chain:
    """A chain as it is made, for whoever decides on the way what comes next."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._link = sha256(head.encode()).digest()

    @property
    def value(self) -> str:
        """The fingerprint of what was added so far."""
        return self._head + self._link.hex()[:_CHAIN_DIGITS]

    def add(self, role: str, text: str) -> None:
        """Add a part."""
        self._link = sha256(self._link + role.encode() + b"\0" + text.encode()).digest()


def extend(fingerprint: str, parts: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of these parts after a fingerprint. Without parts: itself."""
    head = fingerprint[: 3 * _HEAD_DIGITS]
    for role, text in parts:
        fingerprint = head + _digest(f"{fingerprint}\0{role}\0{text}".encode())[:_CHAIN_DIGITS]
    return fingerprint


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
