"""Every setting of the service, read once from the environment and frozen.

    FOLDLINE_PORT=9000                        the field `port`
    FOLDLINE_ADMIN_KEY_FILE=/run/secrets/key  the secret field `admin_key`, read from a file

A name with our prefix that no setting has stops the start: a misspelt setting is worse than none.
"""

import json
import os
import re
import socket
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import SplitResult, parse_qs, urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.core.canonical import Json
from app.core.errors import InvalidInputError
from app.core.limits import RateLimit, parse_rate_limit
from app.core.policy import validate_policy

PREFIX: Final = "FOLDLINE_"
FILE_SUFFIX: Final = "_FILE"
SECRET_FIELDS: Final = (
    "database_url",
    "database_ro_url",
    "redis_url",
    "admin_key",
    "summarizer_api_key",
)
DATABASE_SCHEMES: Final = ("postgresql", "postgres", "postgresql+asyncpg")
REDIS_SCHEMES: Final = ("redis", "rediss", "unix")
#: As libpq has them.
SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
MAX_PORT: Final = 65_535
ENCODED: Final = "/, ?, #, @ and : in a name or a password must be percent-encoded"
_HOST_AND_PORT: Final = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)(?::([^:]*))?")
_NUMBERS_AND_DOTS: Final = re.compile(r"[0-9.]+")
_HOST_NAME: Final = re.compile(r"\w([\w.-]*\w)?\.?", re.ASCII)
OFF: Final = "off"
# Short keys can be guessed; 16 characters of hex are 64 bits.
MIN_ADMIN_KEY_CHARACTERS: Final = 16


def _from_json(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError("must be JSON") from error


SummarizerKind = Literal["extractive", "openai", "openai_responses", "anthropic", "gemini", "none"]
# From the environment it comes as text.
JsonObject = Annotated[dict[str, Any], BeforeValidator(_from_json)]
Positive = Annotated[int, Field(gt=0)]


class SettingsError(Exception):
    """A setting is unknown or has a bad value; every line names its variable."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        super().__init__("\n".join(f"{name}: {problem}" for name, problem in problems.items()))


# Messages about a URL must not repeat it, nor any piece of it: it holds a password, and where that
# has characters that should have been encoded, some of it stands where a host or a port should.


def _split(url: SecretStr) -> SplitResult:
    """Return the parts of a URL, without any where it is none."""
    try:
        return urlsplit(url.get_secret_value())
    except ValueError:
        return urlsplit("")


def _query(parts: SplitResult) -> dict[str, str]:
    if not parts.query:
        return {}
    try:
        values = parse_qs(parts.query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise ValueError("its query must be of the form name=value&name=value") from None
    return {name: value[-1] for name, value in values.items()}


def _check_port(port: str) -> None:
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= MAX_PORT):
        raise ValueError(f"a port must be a number from 1 to {MAX_PORT}; {ENCODED}")


def _check_hosts(hosts: str) -> None:
    """Refuse hosts, each perhaps with a port and separated by commas, that nobody could ask."""
    for host in hosts.split(","):
        found = _HOST_AND_PORT.fullmatch(host)
        if found is None:
            raise ValueError("its hosts must be of the form host or host:port")
        if found[2]:
            _check_port(found[2])


class Settings(BaseSettings):
    """The settings. Secrets are `SecretStr`; nothing here is changed after the start."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    database_url: SecretStr | None = Field(
        default=None,
        description="Postgres to use; without it a private embedded server is started.",
    )
    database_ro_url: SecretStr | None = Field(
        default=None,
        description="A read replica: compiles that name `min_seq` or `as_of_seq` are read there "
        "once it has come so far.",
    )
    db_pool_size: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=10, description="Connections that this process keeps to Postgres at most."
    )
    db_pooler: Literal["none", "pgbouncer"] = Field(
        default="none",
        description="`pgbouncer` when the URL leads to PgBouncer in transaction mode.",
    )
    migrate_on_start: bool | None = Field(
        default=None,
        description="Migrate before serving. Not set: on for the embedded server, else off.",
    )
    redis_url: SecretStr | None = Field(
        default=None,
        description="Redis for shared rate limits and quick wake-ups; all works without it.",
    )
    redis_required: bool = Field(
        default=False, description="Not ready while Redis does not answer."
    )
    data_dir: Path = Field(
        default_factory=lambda: default_data_dir(os.environ, is_root=_is_root()),
        description="Where the embedded server keeps its data.",
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8080, description="Port to listen on; 0 takes a free one."
    )
    metrics_port: Annotated[int | None, Field(ge=0, le=65535)] = Field(
        default=None,
        description="Port for `/metrics` alone, without a key; 0 takes a free one. Not set: on the "
        "API's, with one.",
    )
    auth: Literal["on", "off"] = Field(
        default="on", description="`off` needs no key, and is refused off loopback."
    )
    admin_key: SecretStr | None = Field(
        default=None, description="A key with every scope, for making the first keys."
    )
    rate_limit: str = Field(
        default=OFF,
        description="Requests of one key, as in `100/s`, `600/min` or `5000/h`; over all replicas "
        "with Redis, else for each.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level that is logged."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto` is columns on a terminal, JSON elsewhere."
    )
    otlp_endpoint: str | None = Field(
        default=None,
        description="OpenTelemetry collector that takes traces by OTLP over HTTP, as in "
        "`http://collector:4318`. Not set: nothing is traced.",
    )
    verify_compile: bool = Field(
        default=False, description="Check every compiled answer against all invariants."
    )
    tail_nudge: bool = Field(
        default=True,
        description="Add a user text where a provider refuses a request that ends in a reply.",
    )
    call_signature_sentinel: bool = Field(
        default=True,
        description="Send unsigned calls to Gemini 3 with the sentinel that Google documents; some "
        "routes refuse it.",
    )
    model_rules: Path | None = Field(
        default=None,
        description="File of model rules that is laid over ours: windows, caches, prices.",
    )
    worker: Literal["embedded", "off"] = Field(
        default="embedded",
        description="Whether `serve` does background jobs too; `foldline worker` does them apart.",
    )
    worker_jobs: Annotated[int, Field(ge=1, le=100)] = Field(
        default=4, description="Background jobs that a worker does at a time."
    )
    tenant_jobs: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=8, description="Background jobs at a time for one tenant, over all workers."
    )
    job_lease_s: Annotated[float, Field(ge=1, le=3600)] = Field(
        default=30.0,
        description="After so long without a sign of its worker, a job is given to another.",
    )
    default_policy: JsonObject | None = Field(
        default=None,
        description="Policy of sessions and apps without one, as JSON. Not set: `auto`, by the "
        "summarizer of the settings.",
    )
    summarizer: SummarizerKind = Field(
        default="extractive",
        description="What makes summaries where no policy says otherwise; `extractive` needs no "
        "model.",
    )
    summarizer_url: str | None = Field(
        default=None,
        description="Where the model is, with its `/v1`. Not set: the provider's own address.",
    )
    summarizer_model: str | None = Field(
        default=None, min_length=1, description="The model, where no policy names one."
    )
    summarizer_api_key: SecretStr | None = Field(
        default=None, description="The provider's key. A local server often needs none."
    )
    summarizer_timeout_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=120.0, description="How long one summary may take, retries included."
    )
    tenant_summary_tokens: Annotated[int, Field(ge=0)] = Field(
        default=10_000_000,
        description="What models may read and write for one tenant's summaries in a day (UTC), in "
        "tokens; beyond it code makes them.",
    )
    max_event_bytes: Positive = Field(
        default=1024 * 1024, description="Largest body of one event, in bytes."
    )
    max_batch_bytes: Positive = Field(
        default=10 * 1024 * 1024, description="Largest decoded request body, in bytes."
    )
    max_batch_events: Positive = Field(default=500, description="Most events of one append.")
    compile_cache_bytes: Annotated[int, Field(ge=0)] = Field(
        default=64 * 1024 * 1024,
        description="Memory for what compiles keep to go on from; 0 keeps nothing.",
    )
    max_requests: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=256,
        description="Requests that this process answers at a time; beyond, it answers 503, first "
        "to those whose bodies are still on their way.",
    )
    body_timeout_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=30.0,
        description="How long a request's body may take to arrive; beyond, it is answered 408.",
    )
    max_streams: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=1000, description="Event streams that this process keeps open at most."
    )
    tenant_streams: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=100, description="Of these, event streams of one tenant."
    )
    min_seq_wait_ms: Annotated[int, Field(ge=0, le=60_000)] = Field(
        default=0, description="How long a read waits for a `min_seq` above the head."
    )
    shutdown_grace_s: Annotated[float, Field(ge=0, le=600)] = Field(
        default=25.0, description="How long requests in flight may take after SIGTERM."
    )

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("database_url", "database_ro_url")
    @classmethod
    def _is_postgres_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        parts = _split(value)
        if parts.scheme not in DATABASE_SCHEMES:
            raise ValueError("must be a URL that starts with postgresql://")
        # The driver takes the first @ for the end of the password, and the first / for that of the
        # hosts.
        is_cut = "@" in parts.path and "@" not in parts.netloc
        if is_cut or parts.netloc.count("@") > 1 or parts.fragment:
            raise ValueError(ENCODED)
        query = _query(parts)
        hosts = parts.netloc.rpartition("@")[2]
        if hosts:
            _check_hosts(hosts)
        if "port" in query:
            for port in query["port"].split(","):
                _check_port(port)
        if query.get("sslmode", SSL_MODES[0]) not in SSL_MODES:
            raise ValueError(f"its sslmode must be one of {', '.join(SSL_MODES)}")
        return value

    @field_validator("redis_url")
    @classmethod
    def _is_redis_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        parts = _split(value)
        if parts.scheme not in REDIS_SCHEMES:
            raise ValueError("must be a URL that starts with redis:// or rediss://")
        database = _query(parts).get("db")
        if parts.scheme != "unix":
            hosts = parts.netloc.rpartition("@")[2]
            if hosts:
                _check_hosts(hosts)
            database = database or parts.path.removeprefix("/")
        if database and not (database.isascii() and database.isdigit()):
            raise ValueError("its database must be a number, as in redis://host:6379/0")
        return value

    @field_validator("host")
    @classmethod
    def _is_address(cls, value: str) -> str:
        try:
            # Numbers alone are never the name of a machine.
            if _NUMBERS_AND_DOTS.fullmatch(value):
                socket.inet_aton(value)
            elif _HOST_NAME.fullmatch(value) is None:
                ip_address(value)
        except (OSError, ValueError):
            raise ValueError("must be an address or a name, without a port") from None
        return value

    @field_validator("rate_limit")
    @classmethod
    def _is_rate_limit(cls, value: str) -> str:
        try:
            if value != OFF:
                parse_rate_limit(value)
        except InvalidInputError as error:
            raise ValueError(f"{error.detail}, or `{OFF}`") from error
        return value

    @field_validator("admin_key")
    @classmethod
    def _is_long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < MIN_ADMIN_KEY_CHARACTERS:
            raise ValueError(f"must have at least {MIN_ADMIN_KEY_CHARACTERS} characters")
        return value

    @field_validator("summarizer_url", "otlp_endpoint")
    @classmethod
    def _is_http_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            is_port = parts.port != 0
        except ValueError:
            parts, is_port = urlsplit(""), False
        if not is_port or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be a URL that starts with http:// or https://")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "must hold neither credentials nor a query; a summarizer's key is a setting of its "
                "own"
            )
        return value

    @model_validator(mode="after")
    def _a_model_needs_its_settings(self) -> Self:
        if self.summarizer in ("extractive", "none"):
            return self
        if self.summarizer_model is None:
            raise ValueError(f"SUMMARIZER_MODEL: is needed with SUMMARIZER={self.summarizer}")
        if self.summarizer_url is None and self.summarizer_api_key is None:
            raise ValueError("SUMMARIZER_API_KEY: is needed without SUMMARIZER_URL")
        return self

    @field_validator("default_policy")
    @classmethod
    def _is_policy(cls, value: dict[str, Json] | None) -> dict[str, Json] | None:
        try:
            if value is not None:
                validate_policy(value)
        except InvalidInputError as error:
            raise ValueError(f"{error.pointer}: {error.detail}") from error
        return value

    @model_validator(mode="after")
    def _auth_is_on_off_loopback(self) -> Self:
        if self.auth == "off" and not is_loopback(self.host):
            raise ValueError("AUTH: off is allowed only when HOST is a loopback address")
        return self

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        if self.port and self.port == self.metrics_port:
            raise ValueError("METRICS_PORT: must not be PORT; not set, it is on the API's")
        return self

    @model_validator(mode="after")
    def _what_is_required_is_named(self) -> Self:
        if self.redis_required and self.redis_url is None:
            raise ValueError("REDIS_URL: is needed with REDIS_REQUIRED")
        return self

    @model_validator(mode="after")
    def _a_replica_needs_its_primary(self) -> Self:
        if self.database_ro_url is not None and self.database_url is None:
            raise ValueError("DATABASE_RO_URL: the embedded server has no replica")
        return self

    @model_validator(mode="after")
    def _migrations_need_a_direct_connection(self) -> Self:
        if self.migrate_on_start and self.db_pooler == "pgbouncer":
            raise ValueError(
                "MIGRATE_ON_START: not through PgBouncer; run `foldline migrate` with a direct URL"
            )
        return self

    @model_validator(mode="after")
    def _an_event_fits_its_batch(self) -> Self:
        if self.max_event_bytes > self.max_batch_bytes:
            raise ValueError("MAX_EVENT_BYTES: must not be above MAX_BATCH_BYTES")
        return self

    @property
    def migrates_on_start(self) -> bool:
        """Whether `serve` migrates first: as set, else only on the embedded server."""
        return self.database_url is None if self.migrate_on_start is None else self.migrate_on_start

    @property
    def default_rate_limit(self) -> RateLimit | None:
        """The limit of keys that have none of their own; None: no limit."""
        return None if self.rate_limit == OFF else parse_rate_limit(self.rate_limit)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load_settings` reads the environment itself, because the `_FILE` variants and the unknown
        # names need it; a Settings made in a test sees no environment at all.
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment.

    Args:
        environ: instead of the process's own environment.

    Raises:
        SettingsError: an unknown name with our prefix, a bad value, or an unreadable secret file.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, str] = {}
    problems: dict[str, str] = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX):
            continue
        try:
            field, resolved = _field_value(name, value)
        except ValueError as error:
            problems[name] = str(error)
            continue
        if field in values:
            problems[name] = f"set both directly and as {FILE_SUFFIX}"
        values[field] = resolved
    if problems:
        raise SettingsError(problems)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_problems(error)) from None


def masked(settings: Settings) -> dict[str, str]:
    """Return every variable with its resolved value as text, secrets masked, in field order."""
    return {
        PREFIX + field.upper(): _shown(getattr(settings, field)) for field in Settings.model_fields
    }


def default_data_dir(environ: Mapping[str, str], *, is_root: bool) -> Path:
    """Return where data goes when nothing is set: the system's place as root, else the user's."""
    if is_root:
        return Path("/var/lib/foldline")
    data_home = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data_home).expanduser() / "foldline"


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _field_value(name: str, value: str) -> tuple[str, str]:
    field = name.removeprefix(PREFIX).lower()
    if field in Settings.model_fields:
        return field, value
    secret = field.removesuffix(FILE_SUFFIX.lower())
    if secret == field or secret not in SECRET_FIELDS:
        raise ValueError("unknown setting")
    try:
        # A trailing newline is the editor's, not the secret's.
        return secret, Path(value).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ValueError(f"cannot read {value}: {reason}") from error


def _problems(error: ValidationError) -> dict[str, str]:
    problems: dict[str, str] = {}
    # The input is left out on purpose: it may be a secret.
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        message = item["msg"].removeprefix("Value error, ")
        if item["loc"]:
            name = str(item["loc"][0]).upper()
        else:
            name, _, message = message.partition(": ")
        problems[PREFIX + name] = message
    return problems


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value)


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
