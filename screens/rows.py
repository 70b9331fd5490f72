"""Rows of text in tones: what every list and panel is made of, and the columns they stand in."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from kgops.cli.output import fitted, padded, width_of
from kgops.jobs.text import one_line

__all__ = ["BLANK", "Column", "Columns", "Piece", "Row", "row", "said", "title"]

_GAP = "  "


class Piece(NamedTuple):
    """Some text in one tone: the smallest thing that is painted again when it changes."""

    text: str
    tone: str = "text"
    action: str | None = None  # what a click on it does


class Row(NamedTuple):
    """`key` says what the row is about; rows without one are not for the cursor."""

    pieces: tuple[Piece, ...]
    key: Hashable | None = None


BLANK = Row(())


class Column(NamedTuple):
    """One that `grows` takes what the others leave, and is never narrower than its width."""

    head: str
    width: int
    right: bool = False
    grows: bool = False


class Columns:
    """The columns that fit: they fall away from the right, and the one that grows gets the rest."""

    def __init__(self, columns: Sequence[Column], width: int) -> None:
        fitting = list(columns)
        while len(fitting) > 1 and _taken(fitting) > width:
            fitting.pop()
        spare = max(width - _taken(fitting), 0)
        self._columns = [c._replace(width=c.width + spare) if c.grows else c for c in fitting]

    def width_of(self, head: str) -> int:
        """0 where it fell away."""
        return next((column.width for column in self._columns if column.head == head), 0)

    def heading(self) -> Row:
        """The first head is the section's name."""
        first, *rest = self._columns
        names = [Piece(_cell(first.head, first), "head"), *(Piece(_cell(c.head, c), "dim") for c in rest)]
        return row(names)

    def row(self, cells: Sequence[Piece | Sequence[Piece]], key: Hashable | None = None) -> Row:
        """One cell for every column there might be; a cell of several pieces is as wide as its column already."""
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
    """A screen's first line: what it is, and at its other end what there is of it."""
    pieces = [piece for one in between for piece in (one, Piece(_GAP))]
    gap = max(width - width_of(left) - width_of(right) - sum(width_of(piece.text) for piece in pieces), 1)
    return Row((Piece(left, "strong"), Piece(" " * gap), *pieces, Piece(right, "dim")))


def said(text: str, width: int, tone: str = "text", *, key: Hashable | None = None) -> Row:
    """One line of text from wherever, cut where the screen ends."""
    return Row((Piece(fitted(one_line(text), max(width, 1)), tone),), key)


def _cell(text: str, column: Column) -> str:
    return padded(fitted(one_line(text), column.width), column.width, right=column.right)


def _taken(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)
