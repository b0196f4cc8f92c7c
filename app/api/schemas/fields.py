"""Kinds of fields that requests share."""

import json
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import Header, Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from app.core.canonical import Json, canonical_json, clean_text, is_clean
from app.core.ranges import FOREVER

#: Fits a Postgres bigint with room to count on.
MAX_SEQ: Final = FOREVER - 1
MAX_PAGE: Final = 1000
SESSION_ID_PATTERN: Final = r"^[A-Za-z0-9._:@~-]{1,128}$"


class FieldRuleError(ValueError):
    """Fields do not go together; the named one is told as wrong."""

    def __init__(self, detail: str, field: str) -> None:
        super().__init__(detail)
        self.field = field


def only_one_of(model: BaseModel, first: str, second: str) -> None:
    """Refuse a model that has both fields or neither."""
    are_given = [getattr(model, name) is not None for name in (first, second)]
    if all(are_given):
        raise FieldRuleError(f"goes with no {first}: exactly one of them is needed", second)
    if not any(are_given):
        raise ValueError(f"exactly one of {first} and {second} is needed")


def _without_unemittable(text: str) -> str:
    if clean_text(text) != text:
        raise ValueError("must not hold NUL characters or lone surrogates")
    return text


def cleaned(value: Json) -> Json:
    """Return a value that Postgres can store as JSON: the value itself, or cleaned."""
    cleaned_value: Json = value if is_clean(value) else json.loads(canonical_json(value))
    return cleaned_value


class RequestModel(BaseModel):
    """A request body: no conversions, no unknown members."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )


class QueryModel(BaseModel):
    """Query parameters: text is converted, unknown ones are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )


class AnswerModel(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Warned(AnswerModel):
    """What could not be taken as it came."""

    pointer: str
    """JSON pointer into the request (RFC 6901); empty for all of it."""
    detail: str
    """What was done instead, in words."""


#: A name that is compared and indexed.
Word: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=512), AfterValidator(_without_unemittable)
]
#: What is looked for.
QueryText: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_without_unemittable)
]
#: The call id that a scope is named by.
ScopeName: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_without_unemittable)
]
#: A branch; the empty one is the root.
BranchPath: TypeAlias = Annotated[
    str, StringConstraints(max_length=1024), AfterValidator(_without_unemittable)
]
Seq: TypeAlias = Annotated[int, Field(ge=1, le=MAX_SEQ)]
Position: TypeAlias = Annotated[int, Field(ge=0, le=MAX_SEQ)]
#: How long an answer may wait for something.
WaitMs: TypeAlias = Annotated[int, Field(ge=0, le=60_000)]
Order: TypeAlias = Literal["asc", "desc"]
SessionIdText: TypeAlias = Annotated[str, StringConstraints(pattern=SESSION_ID_PATTERN)]
JsonObject: TypeAlias = dict[str, Any]

SessionId: TypeAlias = Annotated[
    str,
    Path(alias="sid", pattern=SESSION_ID_PATTERN, description="Of the session, as it was made."),
]
SeqInPath: TypeAlias = Annotated[
    int, Path(ge=1, le=MAX_SEQ, description="Of the event: a place in the log, from 1.")
]
Authorization: TypeAlias = Annotated[
    str | None, Header(description="A key, as in `Bearer fl_...`; with auth off none is needed.")
]
