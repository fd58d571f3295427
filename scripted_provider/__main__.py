"""`python -m scripted_provider --port 0` serves on loopback and prints the address."""

import asyncio
import contextlib

import click

from scripted_provider.provider import until_ended


@click.command()
@click.option("--port", default=0, show_default=True, help="0 takes a free one.", type=click.IntRange(0, 65_535))
def main(port: int) -> None:
    """A model provider that follows a script, for tests and demos. It listens on 127.0.0.1 and asks for no key."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(until_ended(port))


if __name__ == "__main__":
    main()
