"""The demo: the whole service as its own process, asked over HTTP."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from app.cli.service_process import ServiceFailedError, running_service


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli", "demo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_demo_plays_the_sample_and_leaves_nothing_running() -> None:
    played = run_demo()
    assert played.returncode == 0, played.stdout + played.stderr
    for told in (
        "24 events",
        "the prefix holds",
        "the prefix broke: compaction",
        "Nothing was lost",
        "again",
    ):
        assert told in played.stdout
    assert "Traceback" not in played.stderr
    port = re.search(r"http://127\.0\.0\.1:(\d+)", played.stdout)
    assert port is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port[1])))


def test_the_demo_plays_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    messages = [
        {"role": role, "content": f"{role} says {number} \ud83d"}
        for number in range(6)
        for role in ("user", "assistant")
    ]
    path.write_text(json.dumps({"messages": messages}), encoding="utf-8")
    played = run_demo(str(path), "--agent", "helper")
    assert played.returncode == 0, played.stdout + played.stderr
    assert "12 openai_chat items became 12 events" in played.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid JSON"),
        ('{"messages": [{"role": "robot", "content": "hi"}]}', "/messages/0"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_before_anything_starts(
    tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    played = run_demo(str(path))
    assert played.returncode == 2
    assert told in played.stderr
    assert "Traceback" not in played.stderr
    assert played.stdout == ""


def test_a_service_that_does_not_start_says_why() -> None:
    with (
        pytest.raises(ServiceFailedError, match="FOLDLINE_LOG_LEVEL"),
        running_service({"LOG_LEVEL": "shout"}),
    ):
        pass


def test_the_command_and_the_service_give_the_same_request() -> None:
    sample = Path(__file__).parents[2] / "app/cli/sample_session.json"
    offline = subprocess.run(
        [sys.executable, "-m", "app.cli", "compile", sample, "--json", "--agent", "support"],
        capture_output=True,
        text=True,
        check=True,
    )
    body = {"events": json.loads(sample.read_text(encoding="utf-8"))["events"], "agent": "support"}
    with running_service() as url:
        answer = httpx.post(f"{url}/v1/compile", json=body)
    text = answer.text.partition('"request":')[2]
    assert text.startswith(offline.stdout.strip() + ",")
