"""A command that draws the whole terminal: it sends what changed, and gives the terminal back however it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import click

from kgops.present.formats import fitted, width_of
from kgops.present.terminals import colours_of_terminal, in_ascii, signs_of_terminal, without_braille

Line = Sequence[tuple[str, str]]  # texts and their tones
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[0m\x1b[?1049l\x1b[?25h"
_CLEAR, _TO_THE_END = "\x1b[H\x1b[2J", "\x1b[K"
_PAINT = {"dim": "2", "head": "1", "accent": "36", "other": "35", "warn": "33", "bad": "1;31"}
_UNCOLOURED = {"dim": "2", "head": "1", "warn": "4", "bad": "1"}


def terminal_size() -> os.terminal_size:
    """Of the terminal as it is now; COLUMNS and LINES count where it does not know."""
    import shutil  # seldom needed

    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        size = os.terminal_size((0, 0))
    return size if size.columns and size.lines else shutil.get_terminal_size()


class FullScreen:
    """Draws pages from the upper left corner. What does not fit is counted in the last line."""

    def __init__(self) -> None:
        self._shown: list[Line] = []
        self._size: os.terminal_size | None = None
        self._paint = _UNCOLOURED if colours_of_terminal() == "none" else _PAINT
        self._signs = signs_of_terminal(sys.stdout.encoding)

    def show(self, page: Sequence[Line], size: os.terminal_size) -> None:
        wanted = [_cut(line, size.columns - 1) for line in page[: size.lines]]
        if len(page) > size.lines > 1:
            left = len(page) - size.lines + 1
            wanted[-1] = _cut([(f"and {left:,} more lines", "dim")], size.columns - 1)
        out = ""
        if size != self._size:
            self._size, self._shown, out = size, [], _CLEAR
        for y, line in enumerate(wanted):
            out += self._changed(y, line, self._shown[y] if y < len(self._shown) else [])
        out += "".join(f"\x1b[{y + 1};1H{_TO_THE_END}" for y in range(len(wanted), len(self._shown)))
        self._shown = wanted
        if out:
            shown = {"ascii": in_ascii, "no braille": without_braille}.get(self._signs, str)(out)
            sys.stdout.write(shown)
            sys.stdout.flush()

    def _changed(self, y: int, line: Line, before: Line) -> str:
        """From the first text that differs to the end of the line."""
        if list(line) == list(before):
            return ""
        same = 0
        while same < min(len(line), len(before)) and line[same] == before[same]:
            same += 1
        x = sum(width_of(text) for text, _ in line[:same])
        texts = "".join(self._painted(text, tone) for text, tone in line[same:])
        return f"\x1b[{y + 1};{x + 1}H{texts}{_TO_THE_END}"

    def _painted(self, text: str, tone: str) -> str:
        paint = self._paint.get(tone) if text else None
        return f"\x1b[{paint}m{text}\x1b[0m" if paint else text


def _cut(line: Line, columns: int) -> Line:
    """The texts that fit, the last of them cut."""
    out = []
    for text, tone in line:
        shown = fitted(text, columns) if columns > 0 else ""
        out.append((shown, tone))
        columns -= width_of(shown)
    return out


@contextmanager
def full_screen() -> Iterator[FullScreen]:
    """Show an empty screen next to the terminal's own; at the end, at Ctrl-C and at SIGTERM show that one again."""
    before = signal.signal(signal.SIGTERM, _end)
    sys.stdout.write(_ENTER)
    try:
        yield FullScreen()
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _: FrameType | None) -> None:
    raise click.exceptions.Exit(128 + number)
