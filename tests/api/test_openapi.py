"""The OpenAPI document holds what the contract says, and nothing else."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.formats.adk import _ACTIONS, _CONFIRMATION, _EVENT, _PASSED_THROUGH
from app.formats.markers import _COMPACTION, _EXCLUDED
from app.formats.parts import (
    _CODE_RESULT,
    _CONTENT,
    _EXECUTABLE_CODE,
    _FILE_DATA,
    _FUNCTION_CALL,
    _FUNCTION_RESPONSE,
    _INLINE_DATA,
    _OPAQUE,
    _PART,
)
from app.main import create_app
from app.settings import Settings

S = "/v1/sessions/{}"

#: Method and path, and the members of the request body.
CONTRACT: dict[str, set[str]] = {
    "get /livez": set(),
    "get /readyz": set(),
    "get /startupz": set(),
    "get /metrics": set(),
    "get /v1/info": set(),
    "get /v1/sessions": set(),
    f"put {S}": {"app_name", "user_id", "state", "policy", "metadata", "ttl_s"},
    f"get {S}": set(),
    f"patch {S}": {"policy", "metadata", "ttl_s"},
    f"delete {S}": set(),
    f"post {S}/fork": {"at_seq", "new_id", "metadata"},
    "get /v1/apps/{}/policy": set(),
    "put /v1/apps/{}/policy": {"compaction", "summarizer", "offload", "pins"},
    f"get {S}/state": set(),
    "get /v1/apps/{}/state": set(),
    "get /v1/apps/{}/users/{}/state": set(),
    "delete /v1/apps/{}/users/{}/state": set(),
    f"post {S}/events": {"events", "format", "items", "agent", "expected_seq", "create"},
    f"get {S}/events": set(),
    f"get {S}/events/{{}}": set(),
    f"get {S}/events/stream": set(),
    f"get {S}/invocations/{{}}": set(),
    f"post {S}/rewind": {"before_invocation_id", "to_seq", "expected_seq"},
    f"get {S}/pins": set(),
    f"post {S}/pins": {"seqs", "last_turn", "first", "expected_seq"},
    f"delete {S}/pins": {"seqs", "last_turn", "first", "expected_seq"},
    f"post {S}/summaries": {
        "covers",
        "seqs",
        "content",
        "level",
        "branch",
        "isolation_scope",
        "activation",
        "expected_seq",
    },
    f"get {S}/compactions": set(),
    f"post {S}/compactions": {
        "mode",
        "from_seq",
        "to_seq",
        "keep_last",
        "branch",
        "summarizer",
        "wait_ms",
    },
    "get /v1/jobs/{}": set(),
    "post /v1/jobs/{}/cancel": set(),
    "get /v1/admin/tenants": set(),
    "post /v1/admin/tenants": {"id", "rate_limit", "quotas"},
    "get /v1/admin/tenants/{}": set(),
    "patch /v1/admin/tenants/{}": {"rate_limit", "quotas", "disabled"},
    "get /v1/admin/keys": set(),
    "post /v1/admin/keys": {"tenant_id", "name", "scopes", "rate_limit", "ttl_s"},
    "get /v1/admin/keys/{}": set(),
    "delete /v1/admin/keys/{}": set(),
    "post /v1/admin/keys/{}/rotate": {"overlap_s"},
    "get /v1/admin/audit": set(),
    "delete /v1/admin/calibrations/{}": set(),
    "get /v1/admin/sessions/{}/verify": set(),
    "post /v1/admin/sessions/{}/verify": set(),
    f"get {S}/compactions/{{}}": set(),
    f"post {S}/compactions/{{}}/activate": set(),
    f"post {S}/compactions/{{}}/undo": set(),
    f"post {S}/elisions": {"seqs", "keep_chars", "expected_seq"},
    f"post {S}/elisions/{{}}/undo": set(),
    f"post {S}/recall": {"query", "mode", "scope", "limit", "before_seq", "reader"},
    f"post {S}/expand": {
        "summary_seqs",
        "from_seq",
        "to_seq",
        "max_tokens",
        "query",
        "reader",
    },
    f"post {S}/usage": {"fingerprint", "usage", "error"},
    f"post {S}/compile": {
        "compaction_wait_ms",
        "agent",
        "branch",
        "isolation_scope",
        "node_path",
        "format",
        "model",
        "preset",
        "include_contents",
        "thinking",
        "narration",
        "ids",
        "unanswered_calls",
        "foreign_thoughts",
        "single_turn",
        "user_content",
        "instruction",
        "system",
        "tools",
        "base_fingerprint",
        "as_of_seq",
        "budget",
        "cache",
        "min_seq",
        "expand",
        "append",
        "inputs",
        "explain",
    },
    "post /v1/compile": {
        "agent",
        "branch",
        "isolation_scope",
        "node_path",
        "format",
        "model",
        "preset",
        "include_contents",
        "thinking",
        "narration",
        "ids",
        "unanswered_calls",
        "foreign_thoughts",
        "single_turn",
        "user_content",
        "instruction",
        "system",
        "tools",
        "base_fingerprint",
        "as_of_seq",
        "budget",
        "cache",
        "expand",
        "events",
        "explain",
    },
    f"post {S}/compile:diff": {"a", "b"},
    "post /v1/tokens": {"format", "model", "contents", "text"},
    "post /v1/validate": {"format", "model", "request"},
}

QUERIES = {
    f"get {S}/events": {
        "after_seq",
        "before_seq",
        "after_time",
        "last",
        "author",
        "branch",
        "invocation_id",
        "kind",
        "status",
        "as_of_seq",
        "limit",
        "order",
        "after",
        "before",
        "reader.agent",
        "reader.branch",
        "reader.isolation_scope",
    },
    f"get {S}/events/stream": {
        "after_seq",
        "reader.agent",
        "reader.branch",
        "reader.isolation_scope",
    },
    "get /v1/sessions": {"app_name", "user_id", "updated_after", "limit", "order", "after"},
}

#: What the answers have, at least.
ANSWERS = {
    "SessionAnswer": {
        "id",
        "app_name",
        "user_id",
        "head_seq",
        "state",
        "policy",
        "metadata",
        "created_at",
        "updated_at",
        "stats",
    },
    "SessionStats": {"events", "live_events", "tokens_raw", "tokens_live", "compactions"},
    "Appended": {"id", "seq", "tokens", "duplicate"},
    "PinsAnswer": {"pins", "tokens"},
    "CompactionAnswer": {
        "seq",
        "covers",
        "holes",
        "level",
        "children",
        "tokens_before",
        "tokens_after",
        "status",
        "sections",
    },
    "CompileAnswer": {
        "request",
        "head_seq",
        "compiled_seq",
        "fingerprint",
        "prefix_fingerprint",
        "sent_fingerprint",
        "prefix_count",
        "base_count",
        "continues_turn",
        "pending",
        "cache",
        "tokens",
        "repairs",
        "warnings",
        "inputs",
        "pipeline_version",
        "timing_ms",
        "events",
    },
    "DiffAnswer": {"same", "first_block", "cause", "text", "tokens"},
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document of an application that was never started."""
    return create_app(Settings()).openapi()


def _operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method} {re.sub(r'{[^}]*}', '{}', path)}": operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


def test_the_paths_are_those_of_the_contract(document: dict[str, Any]) -> None:
    assert set(_operations(document)) == set(CONTRACT)


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_the_fields_of_a_request_are_those_of_the_contract(
    document: dict[str, Any], name: str
) -> None:
    body = _operations(document)[name].get("requestBody")
    if body is None:
        assert CONTRACT[name] == set()
        return
    reference = body["content"]["application/json"]["schema"]["$ref"]
    schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    assert set(schema["properties"]) == CONTRACT[name]
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_the_parameters_of_a_list_are_those_of_the_contract(
    document: dict[str, Any], name: str
) -> None:
    parameters = _operations(document)[name]["parameters"]
    assert {item["name"] for item in parameters if item["in"] == "query"} == QUERIES[name]


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_answers_have_the_fields_of_the_contract(document: dict[str, Any], name: str) -> None:
    assert set(document["components"]["schemas"][name]["properties"]) >= ANSWERS[name]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    references = set(re.findall(r"'#/components/schemas/([^']*)'", str(document)))
    assert references <= set(schemas)


def test_every_operation_describes_its_errors(document: dict[str, Any]) -> None:
    for operation in _operations(document).values():
        schema = operation["responses"]["default"]["content"]["application/problem+json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Problem"}


def _described(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the members of a schema, at every depth, that nothing is said of."""
    for member, inner in schema.get("properties", {}).items():
        if len(inner.get("description", "")) < len("Why."):
            yield f"{name}.{member}"
        yield from _described(f"{name}.{member}", inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _described(name, schema[key])


def test_every_member_of_every_schema_is_described(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert [at for name, schema in schemas.items() for at in _described(name, schema)] == []
    assert [name for name, schema in schemas.items() if not schema.get("description")] == []


def test_every_parameter_is_described(document: dict[str, Any]) -> None:
    silent = {
        (path, each["name"])
        for path, operations in document["paths"].items()
        for operation in operations.values()
        for each in operation.get("parameters", ())
        if not each.get("description") and not each["schema"].get("description")
    }
    assert silent == set()


def test_a_reason_has_the_words_of_its_field(document: dict[str, Any]) -> None:
    """Descriptions are those of the fields, not of what they refer to."""
    fields = document["components"]["schemas"]["TokensAnswer"]["properties"]
    assert "off" in fields["error_bound"]["description"]
    assert "tokenizer" in fields["method"]["description"]
    for method in ("o200k_base", "o200k_base_calibrated", "reported+o200k_base"):
        assert f"`{method}`" in fields["method"]["description"]


def test_a_policy_says_what_is_in_its_groups(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    whole = schemas["PolicyRequest"]["properties"]
    (made, _) = schemas["NewSessionRequest"]["properties"]["policy"]["anyOf"]
    for groups in (whole, made["properties"]):
        assert groups["compaction"]["properties"]["trigger_ratio"]["default"] == 0.85
        assert "none" in groups["summarizer"]["properties"]["kind"]["enum"]
        assert groups["pins"]["properties"]["max_tokens"]["minimum"] == 0
        assert groups["offload"]["type"] == "null"


#: How the reader names what it knows, beside what it only keeps.
SHAPES = {
    "EventShape": _EVENT.keys - set(_PASSED_THROUGH),
    "ActionsShape": _ACTIONS.keys,
    "ContentShape": _CONTENT.keys,
    "PartShape": _PART.keys,
    "FunctionCallShape": _FUNCTION_CALL.keys,
    "FunctionResponseShape": _FUNCTION_RESPONSE.keys,
    "Blob": _INLINE_DATA.keys,
    "FileReference": _FILE_DATA.keys,
    "ExecutableCodeShape": _EXECUTABLE_CODE.keys,
    "CodeResultShape": _CODE_RESULT.keys,
    "OpaqueShape": _OPAQUE.keys,
    "ConfirmationShape": _CONFIRMATION.keys,
    "RecordedCompaction": _COMPACTION.keys,
    "ExcludedEvent": _EXCLUDED.keys,
}


@pytest.mark.parametrize("name", SHAPES)
def test_an_event_is_told_by_the_keys_that_are_read(document: dict[str, Any], name: str) -> None:
    schema = document["components"]["schemas"][name]
    assert schema["properties"].keys() == SHAPES[name]
    assert all("description" in told or "$ref" in told for told in schema["properties"].values())
