"""`foldline compile`: what it reads, what it prints, and how it refuses."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.__main__ import main
from app.cli.session_file import read_session
from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.formats import VALIDATORS

USER = {"role": "user", "content": "hi"}
CHAT: list[Json] = [
    {"role": "user", "content": "find it"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
    {"role": "assistant", "content": "here it is"},
    {"role": "user", "content": "thanks"},
]


@pytest.fixture
def session_file(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(json.dumps({"messages": CHAT}), encoding="utf-8")
    return path


def test_the_request_alone_is_printed_as_json(
    session_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(session_file), "--to", "anthropic", "--json"]) == 0
    request = json.loads(capsys.readouterr().out)
    assert [message["role"] for message in request["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert VALIDATORS["anthropic"](request, model="") == ()


def test_the_answer_of_the_same_file_is_the_same_bytes(
    session_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = set()
    for _ in range(2):
        main(["compile", str(session_file), "--json"])
        outputs.add(capsys.readouterr().out)
    assert len(outputs) == 1


def test_an_earlier_position_is_compiled_as_it_was(
    session_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(session_file), "--as-of", "2", "--json"]) == 0
    contents = json.loads(capsys.readouterr().out)["contents"]
    assert "no result was recorded" in json.dumps(contents[-1])


def test_explain_names_every_event(session_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(session_file), "--explain"]) == 0
    table = capsys.readouterr().out.partition("\nseq")[2].splitlines()[1:]
    assert [row.split()[0] for row in table] == ["1", "2", "3", "4", "5"]


def test_passes_are_printed_in_their_order(
    session_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(session_file), "--passes"]) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("after")]
    assert [line.split()[1].rstrip(":") for line in printed][:3] == [
        "read",
        "rewind",
        "reply_order",
    ]


def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "\n".join(json.dumps(message) for message in CHAT).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["compile", "-"]) == 0
    assert "5 openai_chat items, 5 events" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        ("{", "not valid JSON"),
        ("[]", "no items"),
        ('{"a": 1}', "no supported format is recognised"),
        ('[{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}]', "(at /1/role)"),
        ('{"events": [{"author": "user", "content": {"parts": [7]}}]}', "(at /events/0/content/"),
        ('{"role": "user", "content": "a"}\n{"role"', "at line 2,"),
        ('[{"messages": []}, {"messages": []}]', "several sessions"),
        ("[" * 100_000, "nested deeper than 200 levels"),
    ],
)
def test_what_cannot_be_read_is_told_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    path = tmp_path / "session.json"
    path.write_text(text, encoding="utf-8")
    assert main(["compile", str(path)]) == 2
    printed = capsys.readouterr()
    assert told in printed.err
    assert str(path) in printed.err
    assert printed.out == ""


def test_a_missing_file_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "no-such-file"]) == 2
    assert "no-such-file: cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "format_name"),
    [
        ({"events": [{"author": "user", "content": "hi"}]}, "adk"),
        ([{"author": "user", "content": {"parts": [{"text": "hi"}]}}], "adk"),
        ([{"query": "q", "reference": "a"}], "adk"),
        ({"eval_set_id": "s", "eval_cases": []}, "adk"),
        ({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}, "gemini"),
        ([{"role": "user", "parts": [{"text": "hi"}]}], "gemini"),
        ({"messages": CHAT}, "openai_chat"),
        ([USER], "openai_chat"),
        ([{"role": "system", "content": "be kind"}, USER], "openai_chat"),
        ({"system": "be kind", "messages": [USER]}, "anthropic"),
        ([USER, {"role": "assistant", "content": [{"type": "tool_use"}]}], "anthropic"),
        ({"messages": [{"role": "user", "content": [{"text": "hi"}]}]}, "bedrock"),
        ({"messages": [USER], "system": [{"text": "be kind"}]}, "bedrock"),
        ({"messages": [USER], "toolConfig": {"tools": []}}, "bedrock"),
        ([{"role": "assistant", "content": [{"toolUse": {"name": "f"}}]}], "bedrock"),
        ({"output": {"message": {}}, "stopReason": "end_turn"}, "bedrock"),
        ({"input": [USER], "instructions": "be kind"}, "openai_responses"),
        ([USER, {"type": "function_call_output", "call_id": "a"}], "openai_responses"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], "openai_responses"),
        ({"object": "response", "output": []}, "openai_responses"),
        ([{"type": "session_meta", "payload": {}}], "openai_responses"),
    ],
)
def test_the_format_is_told_by_the_keys(document: Any, format_name: str) -> None:
    assert read_session(json.dumps(document)).format_name == format_name


def test_system_tools_and_state_beside_the_items_are_kept() -> None:
    document = {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "systemInstruction": {"parts": [{"text": "be"}, {"text": "kind"}]},
        "tools": [{"functionDeclarations": []}],
        "state": {"name": "Ada"},
    }
    session = read_session(json.dumps(document))
    assert (session.system, session.tools) == ("be\n\nkind", ('{"functionDeclarations":[]}',))
    assert session.state == {"name": "Ada"}


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="unknown format"):
        read_session("[]", format_name="morse")


def test_what_is_known_of_the_model_is_gone_by(
    session_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signatures = []
    for model in ("gemini-2.5-pro", "gemini-3.1-pro"):
        assert main(["compile", str(session_file), "--json", "--model", model]) == 0
        request = json.loads(capsys.readouterr().out)
        assert VALIDATORS["gemini"](request, model=model) == ()
        signatures.append(request["contents"][1]["parts"][0].get("thoughtSignature"))
    assert signatures == [None, "skip_thought_signature_validator"]


def test_rules_of_the_operator_s_own_count_as_in_a_service(
    session_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    narrow: Json = {
        "family": "narrow",
        "provider": "p",
        "match": ["narrow"],
        "window_tokens": [12, "ours"],
    }
    rules = {"rules_date": "2026-01-01", "families": [narrow]}
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rules), encoding="utf-8")
    monkeypatch.setenv("FOLDLINE_MODEL_RULES", str(path))
    assert main(["compile", str(session_file), "--to", "anthropic", "--model", "narrow"]) == 2
    assert "tokens are needed, 12 allowed" in capsys.readouterr().err
