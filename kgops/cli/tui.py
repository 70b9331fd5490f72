"""`kgops tui` and `kgops serve`: open the dashboard, here or in a browser. Only this file imports the screens."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgops.errors import Unavailable, Usage

if TYPE_CHECKING:
    from kgops.hosts.registry import Host

TOUR = 100  # the dashboard's result where a person wants to look around with sample data

_SET_BY_SERVE = (
    "COLUMNS",
    "ROWS",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TEXTUAL_COLOR_SYSTEM",
    "TEXTUAL_DRIVER",
    "TEXTUAL_FPS",
)

_READ_AT_IMPORT = {
    # kgops uses only 256-colour codes: shorter to send, and equal on all terminals.
    "TEXTUAL_COLOR_SYSTEM": "256",
    # A key press waits for the next frame. Idle frames are not drawn, so a high rate costs nothing.
    "TEXTUAL_FPS": "240",
}


@click.command(epilog="\b\nExample:  kgops tui")
def command() -> None:
    """Open the dashboard: GPUs, runs, their curves and logs. Runs go on when you close it.

    KGOPS_THEME sets the theme: dark, light or safe (for the colour-blind). NO_COLOR turns colours off,
    KGOPS_ASCII=1 signs that are not ASCII.
    KGOPS_NOTIFY tells of new alerts: bell rings, osc9 asks the terminal for a notification.
    """
    open_screens()


def open_screens(hosts: str | None = None) -> None:
    """`hosts`: names and groups of hosts that are shown at once."""
    shown: list[Host] | None = None
    if hosts is not None:
        from kgops.hosts import registry
        from kgops.settings import find_home

        shown = registry.pick(
            registry.read(find_home()), hosts
        )  # a name that is none is an error, not a screen
    in_browser = os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")
    if not in_browser and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Usage(
            "the dashboard needs a terminal", "`kgops runs` and `kgops show` print to a file or a pipe"
        )
    added = {name: value for name, value in _READ_AT_IMPORT.items() if name not in os.environ}
    os.environ.update(added)
    gc.disable()
    from screens.app import open_screens as show

    gc.freeze()  # imported objects stay: collecting them repeatedly would cost CPU while idle
    gc.enable()
    for name in added:
        del os.environ[name]  # must not be inherited by runs started here
    size = _browser_size() if in_browser else None
    code = show(size, shown)
    if code == TOUR:
        os.environ["KGOPS_HOME"] = str(_tour())  # also for commands that the tour shows or starts
        code = show(size)
    if code:
        raise click.exceptions.Exit(code)


def _tour() -> Path:
    """Return the separate home with sample data, made where there is none."""
    from kgops.cli.output import tell
    from kgops.tour import home as homes
    from kgops.tour.filling import fill

    home = homes.default_home()
    if not homes.is_tour(home):
        tell(f"Making sample data in {home.path}; your own home is not touched.")
        fill(home, tell, ())
    return home.path


def _browser_size() -> tuple[int, int]:
    """Return the browser's size, and remove the variables of `kgops serve`, which runs must not inherit."""
    values = {name: os.environ.pop(name, "") for name in _SET_BY_SERVE}
    columns, lines = values["COLUMNS"], values["ROWS"]
    return int(columns) if columns.isdecimal() else 80, int(lines) if lines.isdecimal() else 24


@click.command(epilog="\b\nExample:  kgops serve --port 8123")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on; default: a free one.")
def serve(port: int | None) -> None:
    """Serve the dashboard to a browser and print its address. Ctrl-C ends it, and runs go on.

    kgops listens on 127.0.0.1 only. Use an SSH tunnel from another machine. Each printed address works once."""
    import importlib.util

    from kgops.settings import find_home, make_home

    if importlib.util.find_spec("textual_serve") is None:
        raise Unavailable("textual-serve is not installed", "install it: pip install 'kgops[serve]'")
    from kgops.cli.browser import AddressPrinter
    from kgops.cli.browser import serve as serve_browser
    from kgops.cli.output import tell

    home = find_home()
    make_home(home)
    log = home.path / "serve.log"
    log.write_text("")
    serve_browser(port, log, AddressPrinter())
    tell("The dashboard is no longer served; runs go on.")
