"""Live-audio transcriptions as text (``spec/ADK.md`` B.6), under both presets.

    heard "hel" | heard "lo" | said "hi" | u      events without content, and one with
    u "hello"   |            | m "hi"    | u      after

An event without content that carries a transcription becomes a message: the user's for what was
heard, the model's for what was said. Neighbours of one kind are fragments of one message, which
stands where its last fragment stood. Neighbours can only be told once masked events are gone, so
``narration`` does this first.
"""

from typing import Final

from app.core.compile.estimate import estimate_tokens
from app.core.contents import Role, Text
from app.core.copying import replace
from app.core.events import Event, Events

_ROLES: Final[tuple[Role, ...]] = ("user", "model")


def join_transcriptions(events: Events) -> Events:
    """Return the events with every run of transcriptions as one message."""
    if None not in [event.role for event in events]:
        return events
    joined: list[Event] = []
    fragments: list[str] = []
    for number, event in enumerate(events):
        role, text = _transcription(event)
        if role is None:
            joined.append(event)
            continue
        fragments.append(text)
        following = events[number + 1] if number + 1 < len(events) else None
        if following is not None and _transcription(following)[0] == role:
            continue
        joined.append(_message(event, role, "".join(fragments)))
        fragments = []
    return tuple(joined)


def _transcription(event: Event) -> tuple[Role | None, str]:
    """Return whose words the event transcribes, and the words; what was heard goes first."""
    if event.role is None and event.marker is None:
        for role, text in zip(
            _ROLES, (event.input_transcription, event.output_transcription), strict=True
        ):
            if text:
                return role, text
    return None, ""


def _message(event: Event, role: Role, text: str) -> Event:
    return replace(
        event,
        role=role,
        parts=(Text(text=text),),
        part_tokens=(estimate_tokens(text),),
        input_transcription=None,
        output_transcription=None,
    )
