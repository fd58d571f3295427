"""Every setting is checked at the start, by a sentence that names it and never repeats a secret."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gateway.__main__ import main
from gateway.settings import is_loopback

GOOD = {"DATABASE_URL": "postgresql://nowhere.invalid/x", "OUTLIVE_SECRET": "s" * 32}


def refusal(**environment: str) -> str:
    result = CliRunner().invoke(main, [], env={**GOOD, **environment}, prog_name="gateway")
    assert result.exit_code == 2, result.output
    return " ".join(result.output.replace("\u2502", " ").split())


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("OUTLIVE_PORT", "http", "OUTLIVE_PORT"),
        ("OUTLIVE_PORT", "65536", "OUTLIVE_PORT"),
        ("OUTLIVE_PUBLIC_URL", "example.org", "it must be like https://ai.example.org"),
        ("OUTLIVE_PUBLIC_URL", "https://example.org/?a=1", "it must be like https://ai.example.org"),
        ("OUTLIVE_ORIGINS", "*", "is no origin"),
        ("OUTLIVE_ORIGINS", "https://a.example/", "is no origin"),
        ("OUTLIVE_ORIGINS", "https://a.example, b.example", "is no origin"),
        ("OUTLIVE_GRACE_SECONDS", "0", "OUTLIVE_GRACE_SECONDS"),
        ("OUTLIVE_HEARTBEAT_SECONDS", "soon", "OUTLIVE_HEARTBEAT_SECONDS"),
        ("OUTLIVE_STREAM_MAX_AGE_SECONDS", "0", "OUTLIVE_STREAM_MAX_AGE_SECONDS"),
        ("OUTLIVE_MAX_STREAMS", "0", "OUTLIVE_MAX_STREAMS"),
        ("OUTLIVE_DEMO", "maybe", "OUTLIVE_DEMO"),
        ("OUTLIVE_LOG", "xml", "OUTLIVE_LOG"),
        ("OUTLIVE_SECRET", "", "OUTLIVE_SECRET is required with DATABASE_URL"),
        ("DATABASE_URL", "mysql://x", "it must start with postgresql://"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: str, sentence: str) -> None:
    said = refusal(**{name: value})
    assert sentence in said
    assert name in said


@pytest.mark.parametrize("secret", ["short-but-secret", "short-but-secret," + "s" * 32, ",".join(["s" * 32] * 3)])
def test_a_secret_that_will_not_do_is_not_repeated(secret: str) -> None:
    said = refusal(OUTLIVE_SECRET=secret)
    assert "OUTLIVE_SECRET" in said
    assert "32 bytes" in said
    assert "short-but-secret" not in said
    assert "ssss" not in said


def test_help_lists_every_variable() -> None:
    said = CliRunner().invoke(main, ["--help"], prog_name="gateway").output
    for name in (
        *("DATABASE_URL", "OUTLIVE_DIRECT_URL", "OUTLIVE_EMBEDDED_DIR", "OUTLIVE_POOL_SIZE", "OUTLIVE_SECRET"),
        *(
            "OUTLIVE_HOST",
            "OUTLIVE_PORT",
            "OUTLIVE_ADMIN_PORT",
            "OUTLIVE_PUBLIC_URL",
            "OUTLIVE_ORIGINS",
            "OUTLIVE_GRACE_SECONDS",
        ),
        *("OUTLIVE_HEARTBEAT_SECONDS", "OUTLIVE_STREAM_MAX_AGE_SECONDS", "OUTLIVE_MAX_STREAMS", "OUTLIVE_LOG"),
        "OUTLIVE_DEMO",
    ):
        assert name in said


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "LOCALHOST"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example"])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
