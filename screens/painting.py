"""What the terminal shows, so that only what differs from it is sent.

Textual 8.2 sends all of a screen whenever it is laid out, every piece with all its colours, and blanks as spaces.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual._styles_cache import StylesCache
from textual.geometry import Size
from textual.strip import Strip


def drop_style_caches() -> None:
    """Called when a screen closes: Textual 8.2 keeps the painted lines of its last thousand widgets.

    Its cache of border styles has the widget's cache in the key: 160 KiB and more for each opened screen.
    """
    cached = getattr(StylesCache.get_inner_outer, "cache_clear", None)
    if cached is not None:
        cached()


class _Look(NamedTuple):
    """Parameters of SGR, the sequence that sets attributes and colours."""

    attributes: tuple[str, ...] = ()
    fore: str = "39"
    back: str = "49"


class _Cell(NamedTuple):
    text: str  # empty for the right half of a wide character
    look: _Look


_Line = list[_Cell | None]  # None: unknown
_PLAIN = _Look()
_UNKNOWN = None
_MOST_CHARACTERS = 1024  # of a look, whose cells are kept
_UNSEEN_ON_BLANKS = {"1", "2", "3"}  # bold, dim and italic
_BRIDGE = 4  # as many bytes as moving the cursor takes: so many unchanged cells are sent again instead
# These erase in the current background colour. GNU screen, for one, does not.
_ERASE_IN_COLOUR = (
    "xterm",
    "tmux",
    "linux",
    "rxvt",
    "alacritty",
    "foot",
    "konsole",
    "putty",
    "vte",
    "wezterm",
)


class Terminal:
    """Cells of the terminal as far as they are known, and how to change them with few bytes."""

    def __init__(self) -> None:
        name = os.environ.get("TERM", "")
        self._erases = name.startswith(_ERASE_IN_COLOUR) or "TMUX" in os.environ
        self._size = Size(0, 0)
        self._lines: list[_Line] = []
        self._out: list[str] = []
        self._look = _PLAIN
        self._at: tuple[int, int] | None = None

    def forget(self) -> None:
        """Somebody else has written to it, or its size has changed."""
        self._lines = []

    def paint(self, update: CompositorUpdate, size: Size, console: Console) -> str:
        """What to send. Nothing, where it shows that already."""
        colours = console._color_system or ColorSystem.TRUECOLOR
        self._out, self._look, self._at = [], _PLAIN, None
        if size != self._size or not self._lines:
            self._size = size
            self._lines = [[_UNKNOWN] * size.width for _ in range(size.height)]
            if isinstance(update, LayoutUpdate):
                self._clear(_blank(update, colours))
        for y, x, strip in _patches(update):
            if y < size.height:
                self._change(y, x, _cells(strip, colours)[: size.width - x])
        if self._look != _PLAIN:
            self._out.append("\x1b[m")
        return "".join(self._out)

    def _clear(self, blank: _Cell) -> None:
        if self._erases:
            self._wear(blank.look)
            self._out.append("\x1b[2J")
            self._lines = [[blank] * self._size.width for _ in range(self._size.height)]

    def _change(self, y: int, x: int, new: Sequence[_Cell]) -> None:
        line = self._lines[y]
        end = x + len(new)
        old = line[x:end]
        if old == new:
            return
        line[x:end] = new
        # Terminals disagree about the width of some characters: never start or stop beside one.
        is_sure = _all_single(old) and _all_single(new)
        spans = list(_spans(old, new)) if is_sure else [(0, len(new))]
        tail = len(new)
        if self._erases and end == self._size.width and new[-1].text == " ":
            while tail and new[tail - 1] == new[-1]:
                tail -= 1
        for start, stop in spans:
            if stop - max(start, tail) > _BRIDGE:
                self._write(y, x + start, new[start:tail])
                self._erase_from(y, x + max(start, tail), new[-1])
                return
            self._write(y, x + start, new[start:stop])

    def _write(self, y: int, x: int, cells: Sequence[_Cell]) -> None:
        if not cells:
            return
        self._move(y, x)
        for cell in cells:
            if cell.text != " " or not self._shows_blank(cell.look):
                self._wear(cell.look)
            self._out.append(cell.text)
        at = x + len(cells)
        # In the last column a terminal has its own idea of where the cursor is.
        self._at = (y, at) if at < self._size.width and _all_single(cells) else None

    def _erase_from(self, y: int, x: int, blank: _Cell) -> None:
        self._move(y, x)
        if not self._shows_blank(blank.look):
            self._wear(blank.look)
        self._out.append("\x1b[K")

    def _move(self, y: int, x: int) -> None:
        if self._at == (y, x):
            return
        if self._at is not None and self._at[0] == y and x > self._at[1]:
            self._out.append(f"\x1b[{x - self._at[1]}C")
        elif self._at is not None and (self._at[0] + 1, 0) == (y, x):
            self._out.append("\r\n")
        else:
            self._out.append(f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H")
        self._at = (y, x)

    def _shows_blank(self, look: _Look) -> bool:
        """Whether a space written now looks so."""
        return self._look.back == look.back and look == _on_blanks(self._look)

    def _wear(self, look: _Look) -> None:
        if look != self._look:
            self._out.append(_change_of_look(self._look, look))
            self._look = look


class Painted(CompositorUpdate):
    """An update of Textual's, sent as what `terminal` does not show yet."""

    def __init__(self, update: CompositorUpdate, terminal: Terminal, size: Size) -> None:
        self._update, self._terminal, self._size = update, terminal, size

    def render_segments(self, console: Console) -> str:
        return self._terminal.paint(self._update, self._size, console)


def _patches(update: CompositorUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Row, column and content of what has changed."""
    if isinstance(update, LayoutUpdate):
        for y, strips in enumerate(update.strips, update.region.y):
            yield y, update.region.x, Strip.join(list(strips))
    elif isinstance(update, ChopsUpdate):
        for y, left, right in update.spans:
            for end, (start, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if strip is not None and start < right and end > left:
                    first = max(start, left)
                    yield y, first, strip.crop(first - start, min(end, right) - start)


class _CellsOfLook(dict[str, _Cell]):
    """Cells of one look by their character, each made once: equal lines then have the same ones, and are compared in
    no time. A space is without what cannot be seen on it."""

    def __init__(self, look: _Look) -> None:
        super().__init__({" ": _Cell(" ", _on_blanks(look))})
        self._look = look

    def __missing__(self, char: str) -> _Cell:
        cell = _Cell(char, self._look)
        if len(self) < _MOST_CHARACTERS:
            self[char] = cell
        return cell


def _cells(strip: Strip, colours: ColorSystem) -> list[_Cell]:
    cells: list[_Cell] = []
    for text, style, _ in strip:
        known = _cells_of(style, colours)
        if _all_narrow(text):
            cells += map(known.__getitem__, text)
            continue
        for char in text:
            width = cell_len(char)
            if width:
                cells += [known[char], *[known[""]] * (width - 1)]
            elif cells:  # what joins the character before it
                before = next(i for i in range(len(cells) - 1, -1, -1) if cells[i].text)
                cells[before] = cells[before]._replace(text=cells[before].text + char)
    return cells


def _blank(update: LayoutUpdate, colours: ColorSystem) -> _Cell:
    """What most of a screen is filled with, by its last cell."""
    last = next((cells[-1] for *_, strip in _patches(update) if (cells := _cells(strip, colours))), None)
    return _Cell(" ", _on_blanks(last.look)) if last is not None else _Cell(" ", _PLAIN)


def _spans(old: Sequence[_Cell | None], new: Sequence[_Cell]) -> Iterator[tuple[int, int]]:
    """Changed columns, in as few stretches as are worth it."""
    start = stop = None
    for i, (before, after) in enumerate(zip(old, new, strict=True)):
        if before is after or before == after:
            continue
        if start is None or stop is None:
            start = i
        elif i - stop > _BRIDGE:
            yield start, stop
            start = i
        stop = i + 1
    if start is not None and stop is not None:
        yield start, stop


def _all_single(cells: Sequence[_Cell | None]) -> bool:
    """Whether each has one character of one column, as far as it is known."""
    return {len(cell.text) for cell in cells if cell is not None} <= {1}


@lru_cache(2048)
def _all_narrow(text: str) -> bool:
    return text.isascii() or all(cell_len(char) == 1 for char in text)


@lru_cache(1024)
def _cells_of(style: Style | None, colours: ColorSystem) -> _CellsOfLook:
    if style is None:
        return _CellsOfLook(_PLAIN)
    fore, back = (
        ";".join(colour.downgrade(colours).get_ansi_codes(foreground=front)) if colour is not None else ""
        for colour, front in ((style.color, True), (style.bgcolor, False))
    )
    attributes = style.without_color._make_ansi_codes(colours)
    return _CellsOfLook(_Look(tuple(attributes.split(";")) if attributes else (), fore or "39", back or "49"))


def _on_blanks(look: _Look) -> _Look:
    return _Look(back=look.back) if _UNSEEN_ON_BLANKS.issuperset(look.attributes) else look


@lru_cache(1024)
def _change_of_look(before: _Look, after: _Look) -> str:
    parts: list[str] = []
    if before.attributes != after.attributes:
        if before.attributes:
            parts.append("0")
            before = _PLAIN
        parts += after.attributes
    if before.fore != after.fore:
        parts.append(after.fore)
    if before.back != after.back:
        parts.append(after.back)
    return f"\x1b[{';'.join(parts)}m"
