"""`kgops serve`: serve the dashboard to a browser, on loopback only."""

from __future__ import annotations

import importlib.util
import socket

import click

from kgops.cli.output import tell
from kgops.errors import Unavailable
from kgops.jobs.text import one_line
from kgops.settings import find_home, make_home


@click.command(epilog="\b\nExample:  kgops serve --port 8123")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on; default: a free one.")
def command(port: int | None) -> None:
    """Serve the dashboard to a browser and print its address. Ctrl-C ends it, and runs go on.

    kgops listens on 127.0.0.1 only. Use an SSH tunnel from another machine. Each printed address works once."""
    if importlib.util.find_spec("textual_serve") is None:
        raise Unavailable("textual-serve is not installed", "install it: pip install 'kgops[serve]'")
    from kgops.cli.browser import serve

    home = find_home()
    make_home(home)
    log = home.path / "serve.log"
    log.write_text("")
    serve(port, log, _AddressPrinter())
    tell("The dashboard is no longer served; runs go on.")


class _AddressPrinter:
    """Prints each address to stdout, and how to use it to stderr."""

    def __init__(self) -> None:
        self._before = False

    def __call__(self, address: str) -> None:
        if self._before:
            tell("Opened. The next address, for another browser, works once too:")
        click.echo(address)
        if not self._before:
            port = address.partition(":")[2].partition(":")[2].partition("/")[0]
            tell(
                f"From another machine: ssh -N -L {port}:127.0.0.1:{port} {one_line(socket.gethostname())}"
                " — then open the address there."
            )
            tell("The address works once. Ctrl-C ends the server; runs go on.")
        self._before = True
