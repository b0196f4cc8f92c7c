"""The session that is measured: 25 invocations of 8 events, 200 in all, about 100 KB as JSON.

One invocation is a question, two calls with their results, an answer, and a short exchange. Events
are in ADK's own shape, so that both sides are given the same.
"""

from collections.abc import Iterator
from typing import Any, Final

AGENT: Final = "bot"
EVENTS_PER_INVOCATION: Final = 8
LIVE_EVENTS: Final = 200
#: Second of the first event. Whole seconds, one an event.
START_S: Final = 1_700_000_000

_WORDS: Final = (
    "the order was sent on Monday and is held at the hub in Malmo because its label cannot be read "
    "so a new one is printed and the parcel goes on within two working days "
)


def events(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield events number ``first`` to ``first + count - 1``, counted from 0."""
    for number in range(first, first + count):
        yield event(number)


def event(number: int) -> dict[str, Any]:
    """Return one event; its place in the invocation follows from its number."""
    invocation, step = divmod(number, EVENTS_PER_INVOCATION)
    author, role, part = _STEPS[step](number)
    return {
        "id": f"e{number}",
        "invocation_id": f"i{invocation}",
        "author": author,
        "timestamp": float(START_S + number),
        "content": {"role": role, "parts": [part]},
    }


def _text(number: int, length: int) -> dict[str, Any]:
    return {"text": f"{number}: {(_WORDS * (1 + length // len(_WORDS)))[:length]}"}


def _call(number: int) -> dict[str, Any]:
    args = {"order": f"58-{number}", "fields": ["state", "place", "since"]}
    return {"function_call": {"id": f"call_{number}", "name": "track_parcel", "args": args}}


def _result(number: int) -> dict[str, Any]:
    rows = [{"at": index, "state": "held", "place": f"hub {index}"} for index in range(16)]
    response = {"id": f"call_{number - 1}", "name": "track_parcel", "response": {"rows": rows}}
    return {"function_response": response}


_STEPS: Final = (
    lambda number: ("user", "user", _text(number, 240)),
    lambda number: (AGENT, "model", _call(number)),
    lambda number: (AGENT, "user", _result(number)),
    lambda number: (AGENT, "model", _call(number)),
    lambda number: (AGENT, "user", _result(number)),
    lambda number: (AGENT, "model", _text(number, 700)),
    lambda number: ("user", "user", _text(number, 60)),
    lambda number: (AGENT, "model", _text(number, 120)),
)
