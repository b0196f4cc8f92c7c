"""One way to read a log, and the contents that google-adk and we make of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.adk.events.event import Event as AdkEvent
from google.adk.flows.llm_flows.context import _contents as adk
from google.genai import types

from app.core.canonical import Json
from app.core.compile.adk.opening import find_opening_args
from app.core.compile.inputs import CompileInput, CompileOptions, IncludeContents
from app.core.compile.pipeline import run_pipeline
from app.core.contents import Text
from app.core.copying import replace
from app.core.events import Event
from app.core.index import Index
from app.core.lanes import Reader
from app.core.resolve import Facts, Log, Resolver
from app.formats import FORMATS
from app.formats.adk import parse_event

EventJson = dict[str, Json]
#: Contents as plain JSON values, without the fields that are absent.
Values = list[Any]

AGENT: Final = "a"


@dataclass(frozen=True)
class Reading:
    """For whom and how a log is read."""

    agent: str = AGENT
    branch: str = ""
    scope: str | None = None
    node_path: str = ""
    single_turn: bool = False
    include_contents: IncludeContents = "default"
    foreign_thoughts: bool = False
    keeps_ids: bool = False
    user_content: str | None = None

    @property
    def reader(self) -> Reader:
        """The reader in our words."""
        return Reader(
            agent=self.agent,
            branch=self.branch,
            isolation_scope=self.scope,
            node_path=self.node_path,
        )


def adk_contents(events: Sequence[EventJson], reading: Reading = Reading()) -> Values:
    """Return what google-adk makes of the events."""
    build = (
        adk._get_contents  # noqa: SLF001
        if reading.include_contents == "default"
        else adk._get_current_turn_contents  # noqa: SLF001
    )
    user_content = reading.user_content and types.UserContent(reading.user_content)
    contents = build(
        reading.branch or None,
        [AdkEvent.model_validate(event) for event in events],
        reading.agent,
        preserve_function_call_ids=reading.keeps_ids,
        isolation_scope=reading.scope,
        node_path=reading.node_path or None,
        is_single_turn=reading.single_turn,
        user_content=user_content or None,
        include_thoughts_from_other_agents=(
            reading.foreign_thoughts and reading.include_contents == "default"
        ),
    )
    return [content.model_dump(mode="json", exclude_none=True) for content in contents]


def append(events: Sequence[Mapping[str, Json]]) -> Log:
    """Append the events to an empty log in memory."""
    resolver = Resolver(Facts())
    resolved = tuple(resolver.add(parsed(event)) for event in events)
    return Log(resolved, resolver.facts.index)


def parsed(event: Mapping[str, Json]) -> Event:
    """Read an event; each part counts as one token."""
    read = parse_event(dict(event)).event
    return replace(read, part_tokens=(1,) * len(read.parts))


def our_contents(
    log: Log, reading: Reading = Reading(), *, events: tuple[Event, ...] | None = None
) -> Values:
    """Return what we make of the log under preset adk.

    Args:
        log: the log.
        reading: for whom.
        events: what was read of the log; all of it when not given.
    """
    return contents_of(log.events if events is None else events, log.index, log, reading)


def contents_of(events: tuple[Event, ...], index: Index, log: Log, reading: Reading) -> Values:
    """Return the Gemini contents of the events as google-adk's own types read them."""
    options = CompileOptions(
        reader=reading.reader,
        preset="adk",
        include_contents=reading.include_contents,
        unanswered_calls="drop",
        foreign_thoughts=reading.foreign_thoughts,
        single_turn=reading.single_turn,
        ids="keep" if reading.keeps_ids else "auto",
        user_content=(Text(text=reading.user_content),) if reading.user_content else (),
    )
    wire = FORMATS["gemini"]
    inputs = CompileInput(
        options=options,
        format=wire,
        index=index,
        compiled_seq=len(log.events),
        opening_args=find_opening_args(log.events, reading.scope),
    )
    result = run_pipeline(events, inputs)
    body = wire.render_request(result.rendered, system="", tools="", model="")
    return [
        types.Content.model_validate(content).model_dump(mode="json", exclude_none=True)
        for content in json.loads(body["contents"])
    ]


def live_part(log: Log, reading: Reading) -> tuple[Event, ...]:
    """Return what one statement reads: live events, active folds, and what live results need."""
    reader, index = reading.reader, log.index
    folds = {section.fold_seq for section in index.sections}
    live = [
        event
        for event in log.events
        if event.marker is None and index.is_live(event.seq) and reader.sees(event.lane)
    ]
    owners = {owner.seq for event in live for owner in event.owners if owner is not None}
    wanted = {event.seq for event in live} | folds
    return tuple(
        event
        for event in log.events
        if event.seq in wanted
        or (
            index.fold_of(event.seq) is not None
            and (
                event.seq in owners
                or any(owner is not None and owner.seq in owners for owner in event.owners)
            )
        )
    )
