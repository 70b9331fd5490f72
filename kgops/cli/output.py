"""Output of commands: results, messages, JSON, and lines drawn over one another."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable
from kgops.jobs.numbers import finite_json
from kgops.views.formats import fitted

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_TO_THE_END, _TO_THE_BOTTOM = "\x1b[K", "\x1b[J"


class Redraw:
    """Draws lines and leaves the cursor at the start of the line below them."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._size = shutil.get_terminal_size()

    def show(self, lines: Sequence[str]) -> None:
        size = shutil.get_terminal_size()
        # A line that wraps or scrolls away cannot be redrawn.
        wanted = [fitted(line, size.columns - 1) for line in lines][: size.lines - 1]
        if size != self._size:
            self._size, self._shown = size, []
            sys.stdout.write("\x1b[H\x1b[2J")
        if wanted != self._shown:
            sys.stdout.write(self._changes(wanted))
            sys.stdout.flush()
            self._shown = wanted

    def _changes(self, wanted: list[str]) -> str:
        out = f"\x1b[{len(self._shown)}A" if self._shown else ""
        for i, line in enumerate(wanted):
            same = i < len(self._shown) and self._shown[i] == line
            out += "\n" if same else f"\r{line}{_TO_THE_END}\n"
        return out + (_TO_THE_BOTTOM if len(wanted) < len(self._shown) else "")


@contextmanager
def redrawing() -> Iterator[Redraw]:
    """Hide the cursor while redrawing, and always restore it."""
    sys.stdout.write(_HIDE_CURSOR)
    try:
        yield Redraw()
    finally:
        sys.stdout.write(_SHOW_CURSOR)
        sys.stdout.flush()


def print_json(value: Any) -> None:
    """Print JSON in ASCII: raw C1 control characters would act on a terminal.

    A list has one element per line, which is easy to read and uses json's fast encoder.
    Infinite values are written as exports write them.
    """
    try:
        text = _as_json(value)
    except ValueError:  # JSON has no infinity, and few values are infinite: convert only if it fails
        text = _as_json(finite_json(value))
    sys.stdout.write(text + "\n")


def _as_json(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",\n ".join(json.dumps(element, allow_nan=False) for element in value) + "]"
    return json.dumps(value, indent=1, allow_nan=False)


def say(text: str = "") -> None:
    """Print a result to stdout."""
    print(text)


def tell(text: str) -> None:
    """Print a message to stderr."""
    print(text, file=sys.stderr)


def write_page(page: str, target: Path, *, force: bool) -> None:
    """Write a page whole or not at all, and print where."""
    from kgops.jobs.cluster import must_be_free, written  # seldom needed

    try:
        must_be_free(target, force=force)
        with written(target) as file:
            file.write(page.encode())
    except OSError as error:
        raise Unavailable(f"cannot write {target}: {os.strerror(error.errno or 0)}") from error
    say(str(target))
