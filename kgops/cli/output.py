"""Output of commands: tables, JSON, and lines drawn over one another."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kgops.jobs.numbers import finite_json
from kgops.jobs.text import clock, one_line

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


UNKNOWN = "n/a"
_LONGEST_DAYS = 9999
_GROUPED = 1e15  # larger numbers are printed without thousands separators
_MAX_RATIO = 1e4  # beyond it a percentage of the prediction is not printed


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


def width_of(text: str) -> int:
    """Return the number of terminal columns of the text."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def fitted(text: str, columns: int) -> str:
    """Cut the text to at most `columns` columns, with an ellipsis."""
    if width_of(text) <= columns:
        return text
    kept = ""
    for char in text:
        if width_of(kept + char) > columns - 1:
            break
        kept += char
    return kept + "…"


def padded(text: str, columns: int, *, right: bool = False) -> str:
    gap = " " * (columns - width_of(text))
    return gap + text if right else text + gap


def columns() -> int:
    """Return the width of the terminal, or 120 for a file or a pipe."""
    if not sys.stdout.isatty():
        return 120
    import shutil

    return shutil.get_terminal_size().columns


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap the text into lines that start with `indent`."""
    import textwrap

    return textwrap.wrap(
        one_line(text, 4000),
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[str] = frozenset()
) -> list[str]:
    """Return aligned lines. The last column is cut to fit the terminal."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max([width_of(head), *(width_of(row[i]) for row in cells)]) for i, head in enumerate(heads)]
    if sys.stdout.isatty():
        before = sum(widths[:-1]) + 2 * (len(widths) - 1)
        widths[-1] = max(min(widths[-1], columns() - before), 8)
    out = []
    for row in [list(heads), *cells]:
        fields = [
            padded(fitted(cell, w), w, right=head in right)
            for cell, w, head in zip(row, widths, heads, strict=True)
        ]
        out.append("  ".join(fields).rstrip())
    return out


def duration(seconds: float | None) -> str:
    """`0:41`, `1:02:09`, `3d 4:05:06`; `>9999d` for longer times."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    if seconds >= (_LONGEST_DAYS + 1) * 86400:
        return f">{_LONGEST_DAYS}d"
    whole = int(max(seconds, 0))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour}:{minute:02d}:{second:02d}"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def local_time(at: float | None) -> str:
    """Format a time in the local time zone; without the date if it is today."""
    if at is None:
        return UNKNOWN
    day = "%Y-%m-%d"
    return clock(at, "%H:%M:%S" if clock(at, day) == clock(time.time(), day) else f"{day} %H:%M")


def amount(value: float | None, unit: str = "") -> str:
    """Four significant digits, thousands grouped; `n/a` if unknown."""
    if value is None:
        return UNKNOWN
    shown = f"{value:,.0f}" if 1000 <= abs(value) < _GROUPED else f"{value:.4g}"
    return f"{shown} {unit}".rstrip()


def off_by(measured: float, predicted: float) -> str | None:
    """Return the relative error of a prediction, as in `+3.2%`; None if it is too large to be useful."""
    times = measured / predicted if predicted else math.inf
    return f"{times - 1:+.1%}" if abs(times) < _MAX_RATIO else None
