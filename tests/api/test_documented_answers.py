"""Generated requests to a running service: no 500, and every answer is as /openapi.json says."""

from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.cli.service_process import running_service
from app.main import ROUTERS

pytestmark = pytest.mark.commits

CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
#: For each operation.
EXAMPLES: Final = 15
EXAMPLES_OF_THE_SLOW_LANE: Final = 500
OPERATIONS: Final = sorted(
    {
        (str(getattr(route, "path_format", "")), method)
        for router in ROUTERS
        for route in router.routes
        for method in getattr(route, "methods", ())
        if getattr(route, "include_in_schema", True)
    }
)
#: They go on until the client has heard enough.
ENDLESS: Final = {("/v1/sessions/{sid}/events/stream", "GET")}
ENDING: Final = [operation for operation in OPERATIONS if operation not in ENDLESS]
NAMES: Final = [f"{method} {path}" for path, method in ENDING]
EVENTS: Final = [
    {"id": "e1", "invocation_id": "i1", "author": "user", "content": "Where is it?"},
    {"id": "e2", "invocation_id": "i1", "author": "a", "content": {"role": "model", "parts": [
        {"function_call": {"id": "c1", "name": "track", "args": {}}}]}},
    {"id": "e3", "invocation_id": "i1", "author": "a", "content": {"role": "user", "parts": [
        {"function_response": {"id": "c1", "name": "track", "response": {"at": "hub " * 20}}}]}},
    {"id": "e4", "invocation_id": "i1", "author": "a", "content": {"role": "model", "parts": [
        {"text": "It is held."}]}},
    {"id": "e5", "invocation_id": "i2", "author": "user", "content": "Send it on."},
]  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """A service with a session `s` that has a fold, a pin, an elision and a job that ended."""
    with running_service() as url:
        with httpx.Client(base_url=url) as client:
            _fill(client)
        yield url


def _fill(client: httpx.Client) -> None:
    session = "/v1/sessions/s"
    client.put(session, json={"app_name": "app", "user_id": "u"}).raise_for_status()
    for path, body in {
        "events": {"events": EVENTS},
        "pins": {"seqs": [5]},
        "elisions": {"seqs": [3]},
        "summaries": {"covers": {"from_seq": 1, "to_seq": 4}, "content": "It is held."},
    }.items():
        client.post(f"{session}/{path}", json=body).raise_for_status()


@pytest.fixture(scope="module")
def document(service: str) -> Any:
    return schemathesis.openapi.from_url(f"{service}/openapi.json")


#: What a place in a path is called, to what there is of it in the session.
KNOWN: Final[dict[str, list[Any]]] = {
    "sid": ["s"],
    "app": ["app"],
    "user": ["u"],
    "seq": [1, 6, 7, 8],
    "seq_or_id": ["e1", "2", "8"],
    "id": ["i1"],
}


def check_operation(document: Any, path: str, method: str, *, examples: int) -> None:
    """Send generated requests, most of them to what exists, and check each answer."""
    operation = document[path][method]
    is_erasing = (path, method) == ("/v1/sessions/{sid}", "DELETE")

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy())
        for name in case.path_parameters:
            known = KNOWN.get(name)
            if known and not is_erasing and data.draw(st.integers(0, 4)):
                case.path_parameters[name] = data.draw(st.sampled_from(known))
        case.call_and_validate(checks=CHECKS)

    check()


def test_the_document_has_every_route(document: Any) -> None:
    documented = {
        (path, method.upper())
        for path in document.raw_schema["paths"]
        for method in document.raw_schema["paths"][path]
    }
    assert set(OPERATIONS) == documented


@pytest.mark.parametrize(("path", "method"), ENDING, ids=NAMES)
def test_every_answer_is_as_documented(document: Any, path: str, method: str) -> None:
    check_operation(document, path, method, examples=EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), ENDING, ids=NAMES)
def test_many_answers_are_as_documented(document: Any, path: str, method: str) -> None:
    check_operation(document, path, method, examples=EXAMPLES_OF_THE_SLOW_LANE)
