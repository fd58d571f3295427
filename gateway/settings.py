"""The gateway's settings, as options of its command; each can be given by its environment variable."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from schema.database import DatabaseSettings

_Command = TypeVar("_Command", bound=Callable[..., Any])

# HMAC with SHA-256 is no stronger than its key; RFC 7518, 3.2 asks for as many bytes as the hash has.
SECRET_BYTES = 32
_ORIGIN = re.compile(r"https?://[^/?#@\s*]+")


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What the gateway was asked to be. Times in seconds; of `secrets` the first signs and all verify."""

    database: DatabaseSettings
    secrets: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    admin_port: int = 8081
    public_url: str = ""
    origins: frozenset[str] = frozenset()
    grace_s: float = 30
    heartbeat_s: float = 15
    stream_max_age_s: float = 900
    max_streams: int = 20_000
    demo: bool = False


class Secrets(click.ParamType[tuple[str, ...]]):
    """One secret or two, comma separated."""

    name = "secret[,secret]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Refuse what is too short, without repeating it."""
        if isinstance(value, tuple):
            return value
        secrets = tuple(part.strip() for part in str(value).split(","))
        if len(secrets) > 2 or any(len(secret.encode()) < SECRET_BYTES for secret in secrets):
            self.fail(
                f"it takes one secret or two, comma separated, each of at least {SECRET_BYTES} bytes", param, ctx
            )
        return secrets


class PublicUrl(click.ParamType[str]):
    """Where callers reach this gateway."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Cut a slash at the end; refuse what links cannot be put under."""
        url = str(value).rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
            self.fail("it must be like https://ai.example.org or https://example.org/ai", param, ctx)
        return url


class Origins(click.ParamType[frozenset[str]]):
    """Origins of pages that may call from elsewhere."""

    name = "origin[,origin...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        """Refuse what no browser sends as an origin: a path, a pattern, a trailing slash."""
        if isinstance(value, frozenset):
            return value
        origins = [part.strip() for part in str(value).split(",") if part.strip()]
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                self.fail(f"{origin!r} is no origin; write it like https://app.example.org", param, ctx)
        return frozenset(origins)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _option(name: str, variable: str, kind: Any, default: object, text: str) -> Callable[[_Command], _Command]:
    return click.option(
        f"--{name}",
        envvar=variable,
        show_envvar=True,
        type=kind,
        default=default,
        show_default=default is not None,
        help=text,
    )


_OPTIONS = (
    _option("host", "OUTLIVE_HOST", str, "127.0.0.1", "The address to listen at."),
    _option("port", "OUTLIVE_PORT", click.IntRange(0, 65_535), 8080, "0 picks a free one and prints it."),
    _option(
        "admin-port",
        "OUTLIVE_ADMIN_PORT",
        click.IntRange(0, 65_535),
        8081,
        "For /metrics, /livez and /readyz; 0 picks a free one and prints it.",
    ),
    _option(
        "secret",
        "OUTLIVE_SECRET",
        Secrets(),
        None,
        "Signs tokens, at least 32 bytes; of two, comma separated, the first signs and both verify. "
        "Required with DATABASE_URL.",
    ),
    _option("public-url", "OUTLIVE_PUBLIC_URL", PublicUrl(), None, "Makes links in answers absolute."),
    _option("origins", "OUTLIVE_ORIGINS", Origins(), None, "Origins of pages that may call, comma separated."),
    _option("grace-seconds", "OUTLIVE_GRACE_SECONDS", click.FloatRange(2, 3600), 30.0, "The whole time for a stop."),
    _option(
        "heartbeat-seconds",
        "OUTLIVE_HEARTBEAT_SECONDS",
        click.FloatRange(0.05, 300),
        15.0,
        "Silence of a stream before it says that it lives.",
    ),
    _option(
        "stream-max-age-seconds",
        "OUTLIVE_STREAM_MAX_AGE_SECONDS",
        click.FloatRange(1, 86_400),
        900.0,
        "Age at which a stream asks its reader to reconnect.",
    ),
    _option("max-streams", "OUTLIVE_MAX_STREAMS", click.IntRange(1), 20_000, "Streams at once."),
    click.option(
        "--demo/--no-demo",
        envvar="OUTLIVE_DEMO",
        show_envvar=True,
        default=False,
        show_default=True,
        help="Serve the page and give each browser a user of its own; only on a loopback host.",
    ),
    _option(
        "log",
        "OUTLIVE_LOG",
        click.Choice(["text", "json"]),
        None,
        "How the log is written [default: text on a terminal, else json].",
    ),
)


def gateway_options(command: _Command) -> _Command:
    """Add the gateway's own options; the command gets them by the names of GatewaySettings."""
    for option in _OPTIONS:
        command = option(command)
    return command
