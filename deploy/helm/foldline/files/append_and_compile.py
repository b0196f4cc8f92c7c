"""Append to a session of its own, compile it, and erase it; fails where an answer is not right.

What `helm test` runs, with the address of the service and a key in the environment.
"""

import json
import os
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4


def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Return the answer to a request, whose status is one of success."""
    request = Request(os.environ["SERVICE_URL"] + path, method=method)
    request.add_header("Authorization", "Bearer " + os.environ["SERVICE_KEY"])
    request.add_header("Content-Type", "application/json")
    data = None if body is None else json.dumps(body).encode()
    with urlopen(request, data, timeout=30) as answer:
        return json.loads(answer.read() or "null")


session = f"/v1/sessions/helm-test-{uuid4().hex}"
ask("PUT", session, {"app_name": "helm-test", "user_id": "helm-test"})
try:
    ask("POST", session + "/events", {"events": [{"author": "user", "content": "Is it on?"}]})
    compiled = ask("POST", session + "/compile", {"format": "gemini"})
    expected = [{"role": "user", "parts": [{"text": "Is it on?"}]}]
    if compiled["request"]["contents"] != expected:
        raise SystemExit(f"compiled {compiled}")
finally:
    ask("DELETE", session)
print("appended, compiled and erased")
