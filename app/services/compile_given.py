"""What a compile is given beside the log, and the digest under which it can be given again."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Final

import structlog

from app.core.calibration import UNCALIBRATED, Calibration, calibration_of
from app.core.canonical import Json, canonical_json
from app.core.errors import InvalidInputError, StorageError
from app.core.model_rules import ModelRule, ModelRules, rule_of
from app.observability.failures import step_failed
from app.ports import CompileInputs, Connection, LogRead, ReadBeside, SessionKey, TokenReports

#: Digests that this process has kept already, so that not every compile writes.
MAX_KNOWN_DIGESTS: Final = 10_000

log = structlog.get_logger(__name__)


class UsedState(Mapping[str, Json]):
    """A state that remembers which of its keys were asked for."""

    def __init__(self, state: Mapping[str, Json]) -> None:
        self._state = state
        self.used: dict[str, Json] = {}

    def __getitem__(self, key: str) -> Json:
        value = self._state[key]
        self.used[key] = value
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._state

    def __iter__(self) -> Iterator[str]:
        self.used.update(self._state)
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)


@dataclass(frozen=True, kw_only=True)
class Given:
    """What is fetched beside the log."""

    state: UsedState
    #: Of the model that the request names, if any is known.
    rule: ModelRule | None = None
    calibration: Calibration = UNCALIBRATED
    #: Whether the recorded explicit cache lives no longer; None: there is none.
    is_cache_expired: bool | None = None

    @property
    def text(self) -> str:
        """What was used, as the text that a digest stands for."""
        used: dict[str, Json] = {"state": dict(sorted(self.state.used.items()))}
        if self.rule is not None:
            used["rule"] = _parsed(self.rule.text)
        if self.calibration != UNCALIBRATED:
            used["calibration"] = asdict(self.calibration)
        if self.is_cache_expired is not None:
            used["is_cache_expired"] = self.is_cache_expired
        return canonical_json(used)

    @cached_property
    def digest(self) -> str:
        """Names what was used. Asked for when everything that will be used has been."""
        return digest_of(self.text)

    @classmethod
    def of(cls, text: str) -> "Given":
        """Return what a text stands for."""
        used = json.loads(text)
        rule, calibration = used.get("rule"), used.get("calibration")
        return cls(
            state=UsedState(used["state"]),
            rule=None if rule is None else rule_of(rule),
            calibration=UNCALIBRATED if calibration is None else Calibration(**calibration),
            is_cache_expired=used.get("is_cache_expired"),
        )


@lru_cache(64)
def _parsed(text: str) -> Json:
    """Return the value of a rule's text, of which there are few."""
    value: Json = json.loads(text)
    return value


def digest_of(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


class GivenInputs:
    """Fetches what a compile is given, and keeps what it used."""

    def __init__(self, *, inputs: CompileInputs, reports: TokenReports, rules: ModelRules) -> None:
        self._inputs = inputs
        self._reports = reports
        self._rules = rules
        self._nothing_used = Given(state=UsedState({})).digest
        self._known_digests: set[tuple[object, str]] = set()

    async def fetch(
        self,
        connection: Connection,
        tenant_id: str,
        *,
        model: str,
        digest: str | None,
        state: Mapping[str, Json],
        beside: ReadBeside | None = None,
    ) -> Given:
        """Return what is known now, or what the compile of a digest used.

        Args:
            connection: any.
            tenant_id: whose session it is.
            model: that the request names.
            digest: of an earlier compile.
            state: of the session.
            beside: what was read with the log, if it was.

        Raises:
            InvalidInputError: the digest is not known.
        """
        if digest == self._nothing_used:
            return Given(state=UsedState(state))
        if digest is not None:
            body = await self._inputs.find(connection, tenant_id, digest)
            if body is None:
                raise InvalidInputError("unknown inputs", pointer="/inputs")
            return Given.of(body)
        if not model:
            return Given(state=UsedState(state))
        rule = self._rules.find(model)
        if beside is not None:
            learnt = beside.learnt
        else:
            learnt = await self._reports.learnt(connection, tenant_id, model)
        return Given(state=UsedState(state), rule=rule, calibration=calibration_of(learnt, rule))

    def of_model(self, model: str, state: Mapping[str, Json]) -> Given:
        """Return what is known without asking anything: of no tenant."""
        rule = self._rules.find(model)
        return Given(state=UsedState(state), rule=rule, calibration=calibration_of(None, rule))

    def is_kept(self, read: LogRead, given: Given) -> bool:
        """Tell whether there is nothing left to keep."""
        return given.digest == self._nothing_used or _kept_as(read, given)[1] in self._known_digests

    async def keep(self, connection: Connection, read: LogRead, given: Given) -> None:
        """Keep what was used, once per process and session; without it the answer is as good."""
        if self.is_kept(read, given):
            return
        key, known = _kept_as(read, given)
        try:
            await self._inputs.keep(
                connection, read.key.tenant_id, given.digest, given.text, key=key
            )
        except StorageError as error:
            step_failed(log, "inputs_not_kept", error, digest=given.digest)
            return
        if len(self._known_digests) >= MAX_KNOWN_DIGESTS:
            self._known_digests.clear()
        self._known_digests.add(known)


def _kept_as(read: LogRead, given: Given) -> tuple[SessionKey | None, tuple[object, str]]:
    # Only state is the session's own; what is known of a model is its tenant's.
    key = read.key if given.state.used else None
    return key, (read.incarnation if key else read.key.tenant_id, given.digest)
