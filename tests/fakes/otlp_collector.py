"""An OpenTelemetry collector on this machine, that keeps the spans that it is sent.

with OtlpCollector() as collector:
    ... FOLDLINE_OTLP_ENDPOINT=collector.url ...
    spans = collector.spans
"""

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came, with its resource's attributes."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    is_error: bool


class OtlpCollector:
    """Listens while it is entered."""

    def __init__(self, status: int = 200) -> None:
        self.spans: list[ReceivedSpan] = []
        self.requests = 0
        self.status = status

    def __enter__(self) -> Self:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests += 1
                is_right = self.path == "/v1/traces"
                is_right = is_right and self.headers["Content-Type"] == "application/json"
                if is_right and collector.status == 200:
                    collector.spans += _spans(json.loads(body))
                self.send_response(collector.status if is_right else 404)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"


def _spans(body: dict[str, Any]) -> list[ReceivedSpan]:
    return [
        ReceivedSpan(
            name=span["name"],
            trace_id=_hex(span["traceId"], 32),
            span_id=_hex(span["spanId"], 16),
            parent_id=span.get("parentSpanId", ""),
            kind=span["kind"],
            start_ns=int(span["startTimeUnixNano"]),
            end_ns=int(span["endTimeUnixNano"]),
            attributes=_attributes(span["attributes"]),
            resource=_attributes(resource["resource"]["attributes"]),
            is_error=span.get("status", {}).get("code") == 2,
        )
        for resource in body["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def _hex(value: str, length: int) -> str:
    assert len(bytes.fromhex(value)) * 2 == length
    assert int(value, 16)
    return value


def _attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs:
        [(kind, value)] = pair["value"].items()
        # Of OTLP's JSON, 64 bits are text.
        values[pair["key"]] = int(value) if kind == "intValue" and isinstance(value, str) else value
        assert kind in ("stringValue", "intValue", "doubleValue", "boolValue")
    return values
