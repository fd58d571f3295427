"""`python -m gateway`: the server."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import click

from gateway.listening import CannotListen
from gateway.server import serve
from gateway.settings import GatewaySettings, gateway_options, is_loopback
from schema.faults import explained
from schema.logs import LogFormat, configure_logs
from schema.settings import database_options, database_settings

_OWN = ("host", "port", "admin_port", "origins", "public_url", "max_streams", "demo")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@gateway_options
@database_options
def main(log: LogFormat | None, secret: tuple[str, ...] | None, **options: Any) -> None:
    """Take jobs over HTTP and stream what comes of them."""
    configure_logs(log)
    own = {name: options.pop(name) for name in _OWN}
    times = {f"{name}_s": options.pop(f"{name}_seconds") for name in ("grace", "heartbeat", "stream_max_age")}
    if own["demo"] and not is_loopback(own["host"]):
        raise click.UsageError("OUTLIVE_DEMO gives everybody a user, so OUTLIVE_HOST must be a loopback address then")
    given = {name: value for name, value in {**own, **times}.items() if value is not None}
    secrets = secret or _kept_secrets(options["database_url"], options["embedded_dir"])
    with explained(CannotListen), database_settings(**options) as database:
        settings = replace(GatewaySettings(database, secrets), **given)
        anyio.run(serve, settings, backend_options={"use_uvloop": True})


def _kept_secrets(database_url: str | None, embedded_dir: Path) -> tuple[str, ...]:
    if database_url is not None:
        raise click.UsageError(
            "OUTLIVE_SECRET is required with DATABASE_URL: at least 32 bytes, such as `openssl rand -hex 32` prints"
        )
    from schema.embedded import kept_secret  # an extra: not there beside a team's own PostgreSQL

    return (kept_secret(embedded_dir),)


if __name__ == "__main__":
    main(prog_name="python -m gateway")
