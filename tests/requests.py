"""The request bodies that compiles give, as JSON values."""

import json

from app.core.canonical import Json
from app.core.compile.inputs import CompileResult, Format


def request_of(result: CompileResult, wire: Format, *, model: str = "m") -> dict[str, Json]:
    """Return the provider's body of a compile."""
    fields = wire.render_request(
        result.rendered, system=result.system, tools=result.tools, model=model
    )
    return {name: json.loads(text) for name, text in fields.items()}
