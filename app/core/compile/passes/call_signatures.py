"""Give unsigned calls the signature that stands for none, where the model refuses them without.

    [u] [m: call, call] [u: results] [m: signed call] [u: result]             contents
    [u] [m: call signed, call] [u: results] [m: signed call] [u: result]      after the pass

Gemini 3 signs the first call of each step, and refuses a request whose current turn has a step
without. Calls that it never made, imported or of another model, have no signature of its own; for
those Google documents one that is not checked (``spec/PROVIDERS.md`` §4). The setting
``FOLDLINE_CALL_SIGNATURE_SENTINEL`` leaves it out: some routes refuse it.

Only the steps of the current turn are looked at by the provider, but every step gets it: were it
taken away when the next turn begins, each new question would change the prefix. Runs on merged
turns, which are the steps, and before ``reasoning``, which compares what is sent. Under ``adk``
calls are sent as google-adk sends them.
"""

from typing import Final

from app.core.compile.inputs import CompileInput, Report
from app.core.contents import Content, Contents, FunctionCall
from app.core.copying import replace

#: https://ai.google.dev/gemini-api/docs/thought-signatures, checked 2026-11-29. Base64 as it is.
SENTINEL: Final = "skip_thought_signature_validator"
_PROVIDER: Final = "gemini"


def call_signatures(contents: Contents, inputs: CompileInput, report: Report) -> Contents:
    """Return the contents with a signature at the first call of each step."""
    if not _is_needed(inputs):
        return contents
    return tuple(
        _signed(content, report) if content.role == "model" else content for content in contents
    )


def _is_needed(inputs: CompileInput) -> bool:
    options, rule = inputs.options, inputs.rule
    return (
        options.call_signature_sentinel
        and options.preset == "stable"
        and inputs.format.name == _PROVIDER
        and rule is not None
        and rule.needs_call_signatures
    )


def _signed(step: Content, report: Report) -> Content:
    for index, placed in enumerate(step.parts):
        call = placed.part
        if not isinstance(call, FunctionCall):
            continue
        if call.signature and call.signed_by == _PROVIDER:
            return step
        signed = replace(placed, part=replace(call, signature=SENTINEL, signed_by=_PROVIDER))
        report.repair("unsigned_call", placed.seq, "sent with the signature that stands for none")
        return replace(step, parts=(*step.parts[:index], signed, *step.parts[index + 1 :]))
    return step
