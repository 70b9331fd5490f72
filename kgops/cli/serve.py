"""`kgops serve`: the screens in a browser, on this machine's loopback alone."""

from __future__ import annotations

import importlib.util
import socket

import click

from kgops.cli.output import tell
from kgops.errors import Unavailable
from kgops.jobs.text import one_line
from kgops.settings import find_home, make_home


@click.command(epilog="\b\nExample:  kgops serve --port 8123")
@click.option("--port", type=click.IntRange(1, 65535), help="Of this machine; default: a free one.")
def command(port: int | None) -> None:
    """Open the screens in a browser, through the address that is printed; Ctrl+C ends it, and runs go on.

    It listens on 127.0.0.1 alone, and each printed address works once: from another machine, tunnel over SSH."""
    if importlib.util.find_spec("textual_serve") is None:
        raise Unavailable(
            "a browser needs textual-serve, which is not installed", "pip install 'kgops[serve]' brings it"
        )
    from kgops.cli.browser import serve

    home = find_home()
    make_home(home)
    log = home.path / "serve.log"
    log.write_text("")
    serve(port, log, _Told())
    tell("The screens are no longer served; runs go on.")


class _Told:
    """The address on stdout; how to come to it, and what a later one is for, beside it."""

    def __init__(self) -> None:
        self._before = False

    def __call__(self, address: str) -> None:
        if self._before:
            tell("Opened. This one works once too, for another browser:")
        click.echo(address)
        if not self._before:
            port = address.partition(":")[2].partition(":")[2].partition("/")[0]
            tell(
                f"From another machine: ssh -N -L {port}:127.0.0.1:{port} {one_line(socket.gethostname())}"
                " — and open it there."
            )
            tell("It works once. Ctrl+C ends this; runs go on.")
        self._before = True
