"""From event JSON to a request, all in memory: an append and a compile without a service."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from app.core.canonical import Json
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.copying import replace
from app.core.lanes import Reader
from app.core.resolve import Log, replay
from app.formats import CONVERTERS, FORMATS, VALIDATORS
from app.formats.adk import ParsedEvent, parse_event
from app.formats.violations import Violation
from app.providers.model_rules import load_model_rules
from tests.requests import request_of

#: One current model per format: they refuse the most.
MODELS: Final = {
    "anthropic": "claude-opus-5",
    "bedrock": "anthropic.claude-opus-5-v1:0",
    "gemini": "gemini-3-pro",
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-5.6",
}
#: The field of each provider's request that holds the history.
HISTORIES: Final = {
    "anthropic": "messages",
    "bedrock": "messages",
    "gemini": "contents",
    "openai_chat": "messages",
    "openai_responses": "input",
}
AGENT: Final = "agent"
RULES: Final = load_model_rules()


def parse_items(source: str, items: Iterable[Json], *, agent: str = AGENT) -> list[ParsedEvent]:
    """Return the events that the items of a format give."""
    convert = CONVERTERS[source]
    return [parse_event(event) for item in items for event in convert(item, agent=agent)]


def append(parsed: Sequence[ParsedEvent]) -> Log:
    """Append what is stored to an empty log; each part counts as one token."""
    events = (one.event for one in parsed if not one.is_partial)
    return replay(replace(event, part_tokens=(1,) * len(event.parts)) for event in events)


def append_items(source: str, items: Iterable[Json]) -> Log:
    """Append the items of a format to an empty log."""
    return append(parse_items(source, items))


def compile_for(log: Log, name: str, *, agent: str = "", **options: Any) -> CompileResult:
    """Compile a log for a format."""
    model = MODELS.get(name, "")
    inputs = CompileInput(
        options=CompileOptions(reader=Reader(agent=agent), model=model, **options),
        format=FORMATS[name],
        index=log.index,
        compiled_seq=len(log.events),
        rule=RULES.find(model),
    )
    return run_pipeline(log.events, inputs)


def body_of(result: CompileResult, name: str) -> dict[str, Any]:
    """Return the request body."""
    return request_of(result, FORMATS[name], model=MODELS.get(name, ""))


def violations_of(result: CompileResult, name: str) -> tuple[Violation, ...]:
    """Return the provider's rules that the request breaks."""
    return VALIDATORS[name](body_of(result, name), model=MODELS.get(name, ""))
