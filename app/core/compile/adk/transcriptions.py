"""Live-audio transcriptions as text (``spec/ADK.md`` B.6), under both presets.

    heard "hel" | heard "lo" | said "hi" | u      events without content, and one with
    u "hello"   |            | m "hi"    | u      after

An event without content that carries a transcription becomes a message: the user's for what was
heard, the model's for what was said. Neighbours of one kind are fragments of one message, which
stands where its last fragment stood. Neighbours can only be told once masked events are gone, so
``narration`` does this first.
"""

from typing import Final

from app.core.contents import Role, Text
from app.core.copying import replace
from app.core.events import Event, Events
from app.core.tokens import CountTokens, part_tokens

_ROLES: Final[tuple[Role, ...]] = ("user", "model")


def join_transcriptions(events: Events, count: CountTokens) -> Events:
    """Return the events with every run of transcriptions as one message, counted."""
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
        joined.append(_message(event, role, "".join(fragments), count))
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


def _message(event: Event, role: Role, text: str, count: CountTokens) -> Event:
    part = Text(text=text)
    return replace(
        event,
        role=role,
        parts=(part,),
        part_tokens=(part_tokens(part, count),),
        input_transcription=None,
        output_transcription=None,
    )
