"""Whether an event ends its invocation: ADK's rule (``spec/ADK.md`` A.1)."""

from app.core.contents import CodeExecutionResult
from app.core.events import USER, Event


def is_final_response(event: Event) -> bool:
    """Tell whether an agent's event is a final response; the user's and markers never are."""
    if event.request is not None or event.marker is not None or event.author == USER:
        return False
    if event.skips_summarization or event.long_running_ids:
        return True
    if event.error_code and not event.calls:
        return True
    is_code_result = bool(event.parts) and isinstance(event.parts[-1], CodeExecutionResult)
    return not (event.calls or event.responses or is_code_result)
