"""The OpenAPI document, with the request bodies that dependencies read."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api.bodies import REQUEST_MODELS
from app.api.schemas.event_shape import describe_events

_REF: Final = "#/components/schemas/{model}"
PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "title": "Problem",
    "description": "An error (RFC 9457); some codes have further members.",
    "required": ["type", "title", "status", "code", "detail", "instance", "errors"],
    "properties": {
        "type": {"type": "string", "description": "Always `about:blank`: `code` says which."},
        "title": {"type": "string", "description": "The status in words."},
        "status": {"type": "integer", "description": "HTTP status."},
        "code": {"type": "string", "description": "Which error; stable, to be matched on."},
        "detail": {"type": "string", "description": "What is wrong, in words."},
        "instance": {"type": "string", "description": "Path of the request."},
        "errors": {
            "type": "array",
            "description": "Each field that is wrong.",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": "JSON pointer into the body; `/query`, `/path` and `/header`"
                        " lead into the rest of the request.",
                    },
                    "detail": {"type": "string", "description": "What is wrong there."},
                },
            },
        },
    },
}
_METHODS: Final = frozenset({"get", "put", "post", "patch", "delete"})


def use_own_document(app: FastAPI) -> None:
    """Make the application answer our document at ``/openapi.json``."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in REQUEST_MODELS.values():
        schema = model.model_json_schema(ref_template=_REF)
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    describe_events(schemas, ref=_REF)
    schemas["Problem"] = PROBLEM
    # FastAPI describes its own error body, which nothing here ever answers.
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    for path in document["paths"].values():
        for method, operation in path.items():
            if method in _METHODS:
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = _problem_response()
    return document


def _problem_response() -> dict[str, Any]:
    schema = {"$ref": _REF.format(model="Problem")}
    return {
        "description": "An error",
        "content": {"application/problem+json": {"schema": schema}},
    }
