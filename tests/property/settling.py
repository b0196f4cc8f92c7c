"""Compiling a log at every position, whole and from what the compiles before had settled."""

from collections.abc import Iterator
from typing import Final

from app.core.compile.breaks import fingerprint_before, newest_reply
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.order import is_reply
from app.core.compile.pipeline import run_pipeline
from app.core.compile.projection import Counted, count_result, newest_report
from app.core.compile.render import request_fields
from app.core.compile.settle import given_after, settle
from app.core.copying import replace
from app.core.events import Event, Events
from app.core.lanes import Reader
from app.core.model_rules import ModelRule
from app.core.resolve import Log
from app.formats import FORMATS
from app.providers.model_rules import load_model_rules
from tests.compiling import MODELS
from tests.property.compiling import at

RULES: Final = load_model_rules()


def rule_of(format_name: str) -> ModelRule | None:
    """Return the rule of a model of the format, markers worth it at any size."""
    rule = RULES.find(MODELS.get(format_name, ""))
    if rule is None:
        return None
    return replace(rule, cache=replace(rule.cache, min_tokens=0, lookback_blocks=3))


def inputs_of(
    log: Log, head: int, reader: Reader, format_name: str, **options: object
) -> CompileInput:
    """Return the inputs of a compile at a position."""
    model = MODELS.get(format_name, "")
    return CompileInput(
        options=replace(
            CompileOptions(reader=reader, model=model),
            **options,
        ),
        format=FORMATS[format_name],
        index=at(log, head)[1],
        compiled_seq=head,
        rule=rule_of(format_name),
        system_tokens=7,
    )


def count(result: CompileResult) -> Counted:
    """Count one token a part where nobody counted."""
    return count_result(result, lambda _: 1, system_tokens=7, tools_tokens=0)


def answer(events: Events, inputs: CompileInput) -> tuple[CompileResult, dict[str, object]]:
    """Compile, and return everything that a caller would be told."""
    result = run_pipeline(events, inputs)
    reader = inputs.options.reader
    reply = newest_reply(events, result, reader)
    report = newest_report(result, events, reader)
    told: dict[str, object] = {
        # In the order of its fields: equal bytes, not only equal values.
        "request": list(request_fields(result, inputs.format, inputs.options).items()),
        "chain": result.chain,
        "fingerprints": (result.prefix_fingerprint, result.sent_fingerprint, result.prefix_count),
        "repairs": result.repairs,
        "pending": result.pending,
        "warnings": result.warnings,
        "breakpoints": result.breakpoints,
        "reasoning": result.reasoning,
        "counted": count(result),
        "reply": reply and (reply.seq, fingerprint_before(reply, result)),
        "report": report and (report[0].seq, report[1]),
        "cache_key": result.cache_key,
    }
    return result, told


def with_replies(log: Log, reader: Reader, format_name: str, **options: object) -> Log:
    """Return the log with replies that say what they were compiled for, and a report."""
    events: list[Event] = list(log.events)
    for number, event in enumerate(events):
        if not is_reply(event, reader) or event.compiled_seq is None:
            continue
        so_far = Log(tuple(events), log.index)
        inputs = inputs_of(so_far, event.compiled_seq, reader, format_name, **options)
        sent = run_pipeline(at(so_far, event.compiled_seq)[0], inputs)
        events[number] = replace(
            event, compiled_fingerprint=sent.fingerprint, prompt_tokens=10 + number
        )
    return Log(tuple(events), log.index)


def differences(log: Log, reader: Reader, format_name: str, **options: object) -> Iterator[str]:
    """Yield what differs, at which head."""
    log = with_replies(log, reader, format_name, **options)
    settled = None
    index = None
    for head in range(1, len(log.events) + 1):
        inputs = inputs_of(log, head, reader, format_name, **options)
        events = at(log, head)[0]
        whole, told = answer(events, inputs)
        if index != inputs.index or settled is None:
            settled, index = settle(events, inputs, whole, count(whole)), inputs.index
            continue
        inputs = replace(inputs, settled=settled)
        given_events = given_after(events, settled, inputs)
        if given_events is None:
            settled = None
            continue
        rest, told_again = answer(given_events, inputs)
        for name, value in told.items():
            if told_again[name] != value:
                yield f"{name} at {head}: {value} is not {told_again[name]}"
        if rest.budgeted_tokens != whole.budgeted_tokens:
            yield f"budgeted at {head}: {whole.budgeted_tokens}, not {rest.budgeted_tokens}"
        settled = settle(given_events, inputs, rest, count(rest))
