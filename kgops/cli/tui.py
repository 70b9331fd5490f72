"""`kgops tui`: the screens. Only this command imports them."""

from __future__ import annotations

import gc
import os
import sys

import click

from kgops.errors import Usage

_TOLD_BY_SERVE = (
    "COLUMNS",
    "ROWS",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TEXTUAL_COLOR_SYSTEM",
    "TEXTUAL_DRIVER",
    "TEXTUAL_FPS",
)

_READ_AT_IMPORT = {
    # Our colours are among the 256 that have numbers: shorter to send, and the same everywhere.
    "TEXTUAL_COLOR_SYSTEM": "256",
    # What a key changes waits for the next frame, and nothing else makes one: more of them cost nothing.
    "TEXTUAL_FPS": "240",
}


@click.command(epilog="\b\nExample:  kgops tui")
def command() -> None:
    """Open the screens: GPUs, runs, their curves and logs. Leaving them does not touch a run.

    KGOPS_THEME is dark, light or safe (for the colour-blind); NO_COLOR is honoured.
    """
    open_screens()


def open_screens() -> None:
    in_browser = os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")
    if not in_browser and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Usage("the screens need a terminal", "`kgops runs` and `kgops show` print to a file or a pipe")
    ours = {name: value for name, value in _READ_AT_IMPORT.items() if name not in os.environ}
    os.environ.update(ours)
    gc.disable()
    from screens.app import open_screens as show

    gc.freeze()  # what was imported stays: looking through it again and again is what idling would cost
    gc.enable()
    for name in ours:
        del os.environ[name]  # no run started from here shall have it
    if code := show(_browser_size() if in_browser else None):
        raise click.exceptions.Exit(code)


def _browser_size() -> tuple[int, int]:
    """What `kgops serve` says by variables, which no run started from here shall have."""
    told = {name: os.environ.pop(name, "") for name in _TOLD_BY_SERVE}
    columns, lines = told["COLUMNS"], told["ROWS"]
    return int(columns) if columns.isdecimal() else 80, int(lines) if lines.isdecimal() else 24
