"""A provider's request checked, and contents counted, on the wire."""

from typing import Any, Literal, Self

from pydantic import model_validator

from app.api.schemas.compile import FormatName
from app.api.schemas.fields import AnswerModel, JsonObject, RequestModel, Word, only_one_of
from app.core.canonical import Json
from app.formats.violations import Violation


class ValidateBody(RequestModel):
    """A provider's request, to be checked."""

    format: FormatName
    """Of the request."""
    model: Word | None = None
    """Some rules are a model's."""
    request: JsonObject
    """The provider's body."""


class ViolationAnswer(AnswerModel):
    """A broken rule, and where."""

    rule: str
    """Which is broken, as a word."""
    path: str
    """JSON pointer into the request."""


class ValidateAnswer(AnswerModel):
    """What a provider would refuse."""

    valid: bool
    """Whether no rule is broken."""
    violations: list[ViolationAnswer]
    """In the order of the request."""


def validate_answer(violations: tuple[Violation, ...]) -> dict[str, Json]:
    """Return violations as they are answered."""
    found: list[Json] = [{"rule": each.rule, "path": each.path} for each in violations]
    return {"valid": not found, "violations": found}


class TokensBody(RequestModel):
    """A text, or contents of a format, to be counted."""

    format: FormatName | Literal["adk"] = "native"
    """Of the contents."""
    model: Word | None = None
    """Count as its rule assumes, media too; null: our own count."""
    contents: list[Any] | None = None
    """Contents, messages or items; these or `text`."""
    text: str | None = None
    """A text."""

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        only_one_of(self, "contents", "text")
        return self


class CountAnswer(AnswerModel):
    """Tokens, and how they were counted."""

    tokens: int
    """Our count."""
    method: str
    """Encoding of the tokenizer that counts."""
