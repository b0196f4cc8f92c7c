"""A model provider on this machine, in all four dialects, that does as it is told.

    with ModelServer() as server:
        server.script(says("## Facts\\n- x [1]"), fails(429, retry_after="0"), Behaviour.SLOW)
        ... POST server.url("openai") + "/chat/completions"

Each request takes the next step of the script; the last step stays. A real socket: timeouts, broken
connections and half answers are what they are for a client in production.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self, TypeAlias

#: By kind of summarizer: the path under which its adapter expects its API.
PREFIXES: Final = {
    "openai": "/v1",
    "openai_responses": "/v1",
    "anthropic": "/v1",
    "gemini": "/v1beta",
}


@dataclass(frozen=True, slots=True)
class Step:
    """What the server does with one request."""

    text: str = ""
    status: int = 200
    #: Of the neutral ones: ``stop``, ``length`` or ``filtered``.
    finish_reason: str = "stop"
    headers: tuple[tuple[str, str], ...] = ()
    #: Sent as it is, instead of an answer in the provider's dialect.
    body: bytes | None = None
    #: Answers only after the test is over.
    hangs: bool = False
    #: Sends this part of the body, then breaks the connection.
    breaks_after: float | None = None


Writer: TypeAlias = Callable[["Request"], str]


def says(text: str, finish_reason: str = "stop") -> Step:
    """Answer this text."""
    return Step(text, finish_reason=finish_reason)


def fails(status: int, *, retry_after: str | None = None) -> Step:
    """Answer an error."""
    headers = (("Retry-After", retry_after),) if retry_after is not None else ()
    return Step(status=status, headers=headers, body=b'{"error":{"message":"no"}}')


HANGS: Final = Step(hangs=True)
GARBAGE: Final = Step(body=b"<html><body>502 Bad Gateway</body></html>")
HALF: Final = Step("## Facts\n- half of an answer that goes on and on", breaks_after=0.5)
EMPTY: Final = says("")
TRUNCATED: Final = says("## Rules\n- Never push to", "length")
FILTERED: Final = says("", "filtered")
APOLOGY: Final = says("I'm sorry, but I can't help with summarizing this conversation.")
ERROR_TEXT: Final = says("Error: upstream connect error or disconnect/reset before headers")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def texts(self) -> tuple[str, str]:
        """System and user text, in any dialect."""
        body = self.body
        if "messages" in body:
            system = body.get("system") or body["messages"][0]["content"]
            return system, body["messages"][-1]["content"]
        if "contents" in body:
            parts = body["contents"][-1]["parts"]
            return body["systemInstruction"]["parts"][0]["text"], parts[0]["text"]
        return body["instructions"], body["input"]


@dataclass
class ModelServer:
    """The server; use it in a ``with``."""

    requests: list[Request] = field(default_factory=list)
    #: Writes the text of every answer that the script does not give.
    writer: Writer | None = None

    def __post_init__(self) -> None:
        self._steps: list[Step] = [EMPTY]
        self._lock = threading.Lock()
        self._over = threading.Event()

    def script(self, *steps: Step) -> None:
        """Set what the next requests get; the last step is for all that follow."""
        self._steps = list(steps)

    def url(self, kind: str) -> str:
        """Return the setting ``SUMMARIZER_URL`` for a kind of summarizer."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{PREFIXES[kind]}"

    def take(self, request: Request) -> Step:
        """Note a request and return what it gets."""
        with self._lock:
            self.requests.append(request)
            step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return step if self.writer is None else Step(self.writer(request))

    def wait_until_over(self) -> None:
        """Block until the server closes."""
        self._over.wait()

    def __enter__(self) -> Self:
        self._server = _QuietServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that give up are part of the tests."""


def _handler(model: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.path, headers, json.loads(self.rfile.read(length)))
            self._answer(model.take(request))

        def _answer(self, step: Step) -> None:
            if step.hangs:
                model.wait_until_over()
                self.close_connection = True
                return
            body = step.body if step.body is not None else _dialect(self.path, step)
            self.send_response(step.status)
            for name, value in step.headers:
                self.send_header(name, value)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if step.breaks_after is not None:
                body = body[: int(len(body) * step.breaks_after)]
                self.close_connection = True
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


def _dialect(path: str, step: Step) -> bytes:
    if path.endswith("/chat/completions"):
        answer = _openai(step)
    elif path.endswith("/responses"):
        answer = _openai_responses(step)
    elif path.endswith("/messages"):
        answer = _anthropic(step)
    else:
        answer = _gemini(step)
    return json.dumps(answer).encode()


def _openai(step: Step) -> dict[str, Any]:
    reason = {"filtered": "content_filter"}.get(step.finish_reason, step.finish_reason)
    message = {"role": "assistant", "content": step.text}
    return {
        "model": "model-1",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def _openai_responses(step: Step) -> dict[str, Any]:
    content = [{"type": "output_text", "text": step.text, "annotations": []}]
    reasons = {"length": "max_output_tokens", "filtered": "content_filter"}
    reason = reasons.get(step.finish_reason)
    return {
        "model": "model-1",
        "status": "completed" if reason is None else "incomplete",
        "incomplete_details": None if reason is None else {"reason": reason},
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": content},
        ],
        "usage": {"input_tokens": 100, "output_tokens": 20},
    }


def _anthropic(step: Step) -> dict[str, Any]:
    reasons = {"stop": "end_turn", "length": "max_tokens", "filtered": "refusal"}
    return {
        "model": "model-1",
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": step.text},
        ],
        "stop_reason": reasons[step.finish_reason],
        "usage": {"input_tokens": 60, "cache_read_input_tokens": 40, "output_tokens": 20},
    }


def _gemini(step: Step) -> dict[str, Any]:
    reasons = {"stop": "STOP", "length": "MAX_TOKENS", "filtered": "SAFETY"}
    parts = [{"text": "hm", "thought": True}, {"text": step.text}]
    return {
        "modelVersion": "model-1",
        "candidates": [
            {
                "content": {"role": "model", "parts": parts},
                "finishReason": reasons[step.finish_reason],
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 100,
            "candidatesTokenCount": 15,
            "thoughtsTokenCount": 5,
        },
    }
