"""Policies on the wire. What is valid in one is the core's to say (``core/policy.py``)."""

from typing import Any

from pydantic import BaseModel

from app.api.schemas.fields import RequestModel, cleaned
from app.core.canonical import Json


class PolicyRequest(RequestModel):
    """A policy; each group is checked as a whole."""

    compaction: Any = None
    summarizer: Any = None
    offload: Any = None
    pins: Any = None

    def to_domain(self) -> dict[str, Json]:
        """Return the groups that were named."""
        value = cleaned({name: getattr(self, name) for name in self.model_fields_set})
        assert isinstance(value, dict)
        return {name: value[name] for name in type(self).model_fields if name in value}


class PolicyAnswer(BaseModel):
    """A policy."""

    compaction: dict[str, Any] | None = None
    summarizer: dict[str, Any] | None = None
    offload: dict[str, Any] | None = None
    pins: dict[str, Any] | None = None
