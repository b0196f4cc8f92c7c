"""The request bodies that compiles give, as JSON values."""

import json

from app.core.canonical import Json
from app.core.compile.inputs import CompileOptions, CompileResult, Format
from app.core.compile.render import request_fields


def request_of(result: CompileResult, wire: Format, *, model: str = "m") -> dict[str, Json]:
    """Return the provider's body of a compile."""
    fields = request_fields(result, wire, CompileOptions(model=model))
    return {name: json.loads(text) for name, text in fields.items()}
