"""The result of a call that has none."""

from typing import Final

from app.core.contents import NO_RESULT_TEXT, FunctionCall, FunctionResponse

#: ``{"error":"no result was recorded"}`` with what a part takes besides.
NO_RESULT_TOKENS: Final = 14


def no_result(call: FunctionCall) -> FunctionResponse:
    """Return the synthetic result of a call that has none."""
    return FunctionResponse(
        id=call.id,
        name=call.name,
        response=f'{{"error":"{NO_RESULT_TEXT}"}}',
        response_text=NO_RESULT_TEXT,
        is_error=True,
    )
