"""What the environment may say, and what it may not."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.core.limits import RateLimit
from app.settings import (
    Settings,
    SettingsError,
    default_data_dir,
    is_loopback,
    load_settings,
    masked,
)

KEY = "0123456789abcdef"


def _problems(environ: dict[str, str]) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ)
    return caught.value.problems


def test_without_an_environment_everything_has_a_default() -> None:
    settings = load_settings({})

    assert settings.database_url is None
    assert (settings.host, settings.port, settings.auth) == ("127.0.0.1", 8080, "on")
    assert settings.max_event_bytes == 1024 * 1024
    assert settings.max_batch_events == 500


def test_values_are_read_from_names_with_our_prefix() -> None:
    settings = load_settings({"FOLDLINE_PORT": "9000", "FOLDLINE_LOG_LEVEL": "DEBUG", "PORT": "1"})

    assert settings.port == 9000
    assert settings.log_level == "debug"


def test_an_unknown_name_with_our_prefix_is_refused_by_name() -> None:
    assert _problems({"FOLDLINE_PROT": "9000"}) == {"FOLDLINE_PROT": "unknown setting"}


def test_a_file_variant_of_a_setting_that_is_no_secret_is_unknown() -> None:
    assert _problems({"FOLDLINE_PORT_FILE": "/port"}) == {"FOLDLINE_PORT_FILE": "unknown setting"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FOLDLINE_PORT", "http"),
        ("FOLDLINE_PORT", "65536"),
        ("FOLDLINE_DB_POOL_SIZE", "0"),
        ("FOLDLINE_AUTH", "maybe"),
        ("FOLDLINE_LOG_LEVEL", "loud"),
        ("FOLDLINE_VERIFY_COMPILE", "perhaps"),
        ("FOLDLINE_MAX_BATCH_EVENTS", "-1"),
        ("FOLDLINE_MIN_SEQ_WAIT_MS", "-1"),
        ("FOLDLINE_SHUTDOWN_GRACE_S", "nan"),
        ("FOLDLINE_HOST", ""),
        ("FOLDLINE_HOST", "256.1.1.1"),
        ("FOLDLINE_HOST", "1.2.3.4.5"),
        ("FOLDLINE_HOST", "127.0.0.1:8080"),
        ("FOLDLINE_HOST", "http://localhost"),
        ("FOLDLINE_HOST", "two words"),
        ("FOLDLINE_HOST", "::g"),
        ("FOLDLINE_SUMMARIZER_URL", "http://host:abc/v1"),
        ("FOLDLINE_OTLP_ENDPOINT", "http://host:99999"),
        ("FOLDLINE_DATABASE_URL", "mysql://localhost/x"),
        ("FOLDLINE_ADMIN_KEY", "short"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str) -> None:
    assert set(_problems({name: value})) == {name}


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "0", "127.1", "::", "::1", "fe80::1%eth0", "localhost", "a-b.example."]
)
def test_an_address_or_a_name_is_listened_on(host: str) -> None:
    assert load_settings({"FOLDLINE_HOST": host}).host == host


def test_metrics_do_not_have_the_port_of_the_api() -> None:
    problems = _problems({"FOLDLINE_PORT": "9000", "FOLDLINE_METRICS_PORT": "9000"})

    assert set(problems) == {"FOLDLINE_METRICS_PORT"}
    assert load_settings({"FOLDLINE_PORT": "0", "FOLDLINE_METRICS_PORT": "0"}).metrics_port == 0


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("FOLDLINE_DATABASE_URL", url)
        for url in (
            "postgresql://u:hunter2@127.0.0.1:99999/d",
            "postgresql://u:hunter2@127.0.0.1:0/d",
            "postgresql://u:hunter2@host:port/d",
            "postgresql://u:hunter2@one:5432,two:x/d",
            "postgresql://u:hunter2@one,,two/d",
            "postgresql://u:hunter2@[::1/d",
            "postgresql://u:hunter2@::1/d",
            # The password has a character that should have been encoded.
            "postgresql://u:/hunter2@host/d",
            "postgresql://u:hunter2/x@host/d",
            "postgresql://u:hunter2#x@host/d",
            "postgresql://u:hunter2?x@host/d",
            "postgresql://u:hunter2@x@host/d",
            "postgresql:///d?host=/run&port=hunter2",
            "postgresql://u:hunter2@host/d?sslmode=perhaps",
            "postgresql://u:hunter2@host/d?sslmode",
        )
    ]
    + [
        ("FOLDLINE_REDIS_URL", url)
        for url in (
            "redis://:hunter2@x:abc/0",
            "redis://:hunter2@x:0/0",
            "redis://:hunter2@x:99999/0",
            "redis://:hunter2@x/first",
            "redis://:hunter2@x/0?db=first",
            "redis://:hunter2/x@host/0",
            "unix:///run/redis.sock?db=hunter2",
        )
    ],
)
def test_a_malformed_url_is_refused_by_name_and_nothing_of_it_is_shown(name: str, url: str) -> None:
    problems = _problems({name: url})

    assert set(problems) == {name}
    assert "hunter2" not in str(problems)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("FOLDLINE_DATABASE_URL", url)
        for url in (
            "postgresql://",
            "postgresql:///d",
            "postgresql://u:p@host:/d",
            "postgresql+asyncpg://u:p@host:5432/d",
            "postgresql://u:p%40%2F%23@host/d",
            "postgresql://u:p@one:5432,two:5433,[::1]:5434/d?target_session_attrs=read-write",
            "postgresql://u:p@/d?host=/run/postgresql&port=5433",
            "postgresql://u:p@%2Frun%2Fpostgresql/d",
            "postgres://u:p@host/d?sslmode=verify-full&sslrootcert=/ca.pem",
        )
    ]
    + [
        ("FOLDLINE_REDIS_URL", url)
        for url in (
            "redis://host",
            "redis://",
            "redis://:p@x@host/0",
            "redis://:p@host:6379/",
            "rediss://u:p%40@[::1]:6380/15?socket_timeout=1",
            "unix:///run/redis.sock?db=1",
            "unix://u:p@/run/redis.sock",
        )
    ],
)
def test_a_url_that_its_client_understands_is_taken(name: str, url: str) -> None:
    taken = getattr(load_settings({name: url}), name.removeprefix("FOLDLINE_").lower())

    assert taken.get_secret_value() == url


def test_all_problems_are_told_at_once() -> None:
    problems = _problems({"FOLDLINE_PORT": "x", "FOLDLINE_DB_POOL_SIZE": "y"})

    assert set(problems) == {"FOLDLINE_PORT", "FOLDLINE_DB_POOL_SIZE"}


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")

    settings = load_settings({"FOLDLINE_ADMIN_KEY_FILE": str(tmp_path / "key")})

    assert settings.admin_key is not None
    assert settings.admin_key.get_secret_value() == KEY


def test_a_secret_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    assert set(_problems({"FOLDLINE_ADMIN_KEY_FILE": str(tmp_path / "none")})) == {
        "FOLDLINE_ADMIN_KEY_FILE"
    }


@pytest.mark.parametrize("first", ["FOLDLINE_ADMIN_KEY", "FOLDLINE_ADMIN_KEY_FILE"])
def test_a_secret_given_twice_is_refused(tmp_path: Path, first: str) -> None:
    (tmp_path / "key").write_text(KEY)
    both = {"FOLDLINE_ADMIN_KEY": KEY, "FOLDLINE_ADMIN_KEY_FILE": str(tmp_path / "key")}
    ordered = {first: both.pop(first)} | both

    assert len(_problems(ordered)) == 1


@pytest.mark.parametrize(
    "environ",
    [
        {"FOLDLINE_DATABASE_URL": "mysql://user:hunter2hunter2@host/x"},
        {"FOLDLINE_DATABASE_URL": "hunter2hunter2"},
        {"FOLDLINE_ADMIN_KEY": "hunter2"},
        {"FOLDLINE_ADMIN_KEY": KEY + "hunter2", "FOLDLINE_PORT": "x"},
    ],
)
def test_no_message_repeats_a_secret(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(environ)

    assert "hunter2" not in str(caught.value)


def test_neither_the_text_nor_the_masked_form_shows_a_secret() -> None:
    settings = load_settings(
        {"FOLDLINE_DATABASE_URL": "postgresql://u:hunter2@h/x", "FOLDLINE_ADMIN_KEY": KEY}
    )

    shown = repr(settings) + str(masked(settings))
    assert "hunter2" not in shown
    assert KEY not in shown


def test_the_masked_form_names_every_variable() -> None:
    names = {f"FOLDLINE_{field.upper()}" for field in Settings.model_fields}

    assert set(masked(load_settings({}))) == names


@pytest.mark.parametrize(
    "host",
    # The last two are other spellings of every address.
    ["0.0.0.0", "::", "10.1.2.3", "foldline.example", "localhost.example", "0", "::ffff:0:0"],
)
def test_auth_off_is_refused_off_loopback(host: str) -> None:
    assert set(_problems({"FOLDLINE_AUTH": "off", "FOLDLINE_HOST": host})) == {"FOLDLINE_AUTH"}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_auth_off_is_allowed_on_loopback(host: str) -> None:
    assert is_loopback(host)
    assert load_settings({"FOLDLINE_AUTH": "off", "FOLDLINE_HOST": host}).auth == "off"


def test_an_event_may_not_be_larger_than_its_batch() -> None:
    problems = _problems({"FOLDLINE_MAX_EVENT_BYTES": "11", "FOLDLINE_MAX_BATCH_BYTES": "10"})

    assert set(problems) == {"FOLDLINE_MAX_EVENT_BYTES"}


@pytest.mark.parametrize(
    ("environ", "migrates"),
    [
        ({}, True),
        ({"FOLDLINE_DATABASE_URL": "postgresql://h/x"}, False),
        ({"FOLDLINE_DATABASE_URL": "postgresql://h/x", "FOLDLINE_MIGRATE_ON_START": "true"}, True),
        ({"FOLDLINE_MIGRATE_ON_START": "false"}, False),
    ],
)
def test_migrating_on_start_depends_on_whose_server_it_is(
    environ: dict[str, str], *, migrates: bool
) -> None:
    assert load_settings(environ).migrates_on_start is migrates


def test_migrating_on_start_through_pgbouncer_is_refused() -> None:
    problems = _problems({"FOLDLINE_DB_POOLER": "pgbouncer", "FOLDLINE_MIGRATE_ON_START": "true"})

    assert set(problems) == {"FOLDLINE_MIGRATE_ON_START"}


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load_settings({}).port = 1  # type: ignore[misc]


def test_settings_made_in_code_see_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDLINE_PORT", "9000")

    assert Settings().port == 8080
    assert load_settings().port == 9000


@pytest.mark.parametrize(
    ("environ", "is_root", "expected"),
    [
        ({}, True, "/var/lib/foldline"),
        ({"XDG_DATA_HOME": "/home/a/data"}, False, "/home/a/data/foldline"),
    ],
)
def test_the_data_directory_follows_the_systems_habits(
    environ: dict[str, str], *, is_root: bool, expected: str
) -> None:
    assert default_data_dir(environ, is_root=is_root) == Path(expected)


def test_a_summarizing_model_needs_its_name_and_a_key_or_an_address() -> None:
    assert _problems({"FOLDLINE_SUMMARIZER": "openai"}) == {
        "FOLDLINE_SUMMARIZER_MODEL": "is needed with SUMMARIZER=openai"
    }
    assert _problems({"FOLDLINE_SUMMARIZER": "gemini", "FOLDLINE_SUMMARIZER_MODEL": "m"}) == {
        "FOLDLINE_SUMMARIZER_API_KEY": "is needed without SUMMARIZER_URL"
    }
    local = {
        "FOLDLINE_SUMMARIZER": "openai",
        "FOLDLINE_SUMMARIZER_MODEL": "m",
        "FOLDLINE_SUMMARIZER_URL": "http://127.0.0.1:8000/v1",
    }
    assert load_settings(local).summarizer == "openai"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://", "https://u:p@host/v1", "https://host/v1?key=k", "//h"]
)
def test_the_summarizers_address_is_a_plain_http_url(url: str) -> None:
    assert set(_problems({"FOLDLINE_SUMMARIZER_URL": url})) == {"FOLDLINE_SUMMARIZER_URL"}


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "cache", "postgresql://x"])
def test_the_url_of_redis_is_one(url: str) -> None:
    with pytest.raises(SettingsError, match="FOLDLINE_REDIS_URL") as caught:
        load_settings({"FOLDLINE_REDIS_URL": url})
    assert url not in str(caught.value)


def test_a_redis_that_is_required_must_be_named() -> None:
    with pytest.raises(SettingsError, match="FOLDLINE_REDIS_URL"):
        load_settings({"FOLDLINE_REDIS_REQUIRED": "true"})
    given = {"FOLDLINE_REDIS_REQUIRED": "true", "FOLDLINE_REDIS_URL": "redis://localhost/0"}
    assert load_settings(given).redis_required


@pytest.mark.parametrize(("text", "limit"), [("off", None), ("7/min", RateLimit(7, 60))])
def test_a_rate_limit_is_read(text: str, limit: RateLimit | None) -> None:
    assert load_settings({"FOLDLINE_RATE_LIMIT": text}).default_rate_limit == limit


def test_a_bad_rate_limit_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="FOLDLINE_RATE_LIMIT"):
        load_settings({"FOLDLINE_RATE_LIMIT": "many"})
