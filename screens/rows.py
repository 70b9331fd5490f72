"""Rows of cells, and how they are painted."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor
from textual._styles_cache import StylesCache

from kgops.jobs.text import one_line
from kgops.views.formats import fitted, padded, width_of

__all__ = [
    "BLANK",
    "ChangedColumnsCompositor",
    "Column",
    "Columns",
    "Piece",
    "Row",
    "drop_style_caches",
    "row",
    "text_row",
    "title",
]


def drop_style_caches() -> None:
    """Called when a screen closes: Textual 8.2 keeps the painted lines of its last thousand widgets.

    Its cache of border styles has the widget's cache in the key: 160 KiB and more for each opened screen.
    """
    cached = getattr(StylesCache.get_inner_outer, "cache_clear", None)
    if cached is not None:
        cached()


class ChangedColumnsCompositor(Compositor):
    """Replaces a screen's compositor. If Textual stops using partial updates, more is sent and nothing breaks."""

    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        if type(update) is not ChopsUpdate:
            return update
        return _ChangedColumns(update.chops, update.spans, update.chop_ends)


class _ChangedColumns(ChopsUpdate):
    def render_segments(self, console: Console) -> str:
        out: list[str] = []
        for y, left, right in self.spans:
            for end, (start, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or start >= right or end <= left:
                    continue
                first = max(start, left)
                changed = strip.crop(first - start, min(end, right) - start).simplify()
                out += [Control.move_to(first, y).segment.text, changed.render(console)]
        return "".join(out)


_GAP = "  "


class Piece(NamedTuple):
    """Text in one tone: the smallest unit that is repainted."""

    text: str
    tone: str = "text"
    action: str | None = None  # Textual action of a click


class Row(NamedTuple):
    """`key` identifies the row; the cursor skips rows without one."""

    pieces: tuple[Piece, ...]
    key: Hashable | None = None


BLANK = Row(())


class Column(NamedTuple):
    """A column that `grows` takes the remaining width; `width` is its minimum."""

    head: str
    width: int
    right: bool = False
    grows: bool = False


class Columns:
    """The columns that fit: the rightmost are dropped first."""

    def __init__(self, columns: Sequence[Column], width: int) -> None:
        fitting = list(columns)
        while len(fitting) > 1 and _total_width(fitting) > width:
            fitting.pop()
        spare = max(width - _total_width(fitting), 0)
        self._columns = [c._replace(width=c.width + spare) if c.grows else c for c in fitting]

    def width_of(self, head: str) -> int:
        """Width of the column, 0 if dropped."""
        return next((column.width for column in self._columns if column.head == head), 0)

    def heading(self) -> Row:
        """Row of column heads; the first is the section's name."""
        first, *rest = self._columns
        names = [Piece(_cell(first.head, first), "head"), *(Piece(_cell(c.head, c), "dim") for c in rest)]
        return row(names)

    def row(self, cells: Sequence[Piece | Sequence[Piece]], key: Hashable | None = None) -> Row:
        """One cell per column; a cell of several pieces must have its column's width."""
        out: list[Piece] = []
        for column, cell in zip(self._columns, cells, strict=False):
            if out:
                out.append(Piece(_GAP))
            if isinstance(cell, Piece):
                out.append(cell._replace(text=_cell(cell.text, column)))
            else:
                out += cell
        return Row(tuple(out), key)


def row(pieces: Iterable[Piece], key: Hashable | None = None) -> Row:
    """Pieces with gaps between them."""
    out: list[Piece] = []
    for piece in pieces:
        if out:
            out.append(Piece(_GAP))
        out.append(piece)
    return Row(tuple(out), key)


def title(left: str, right: str, width: int, *between: Piece) -> Row:
    """Title line of a screen: name on the left, counts on the right."""
    pieces = [piece for one in between for piece in (one, Piece(_GAP))]
    gap = max(width - width_of(left) - width_of(right) - sum(width_of(piece.text) for piece in pieces), 1)
    return Row((Piece(left, "strong"), Piece(" " * gap), *pieces, Piece(right, "dim")))


def text_row(text: str, width: int, tone: str = "text", *, key: Hashable | None = None) -> Row:
    """One line of text from any source, cut to `width`."""
    return Row((Piece(fitted(one_line(text), max(width, 1)), tone),), key)


def _cell(text: str, column: Column) -> str:
    return padded(fitted(one_line(text), column.width), column.width, right=column.right)


def _total_width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)
