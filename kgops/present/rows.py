"""Rows of pieces with tones: commands print them, screens draw them, pages fold them."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kgops.jobs.text import one_line
from kgops.present.formats import fitted, padded, width_of

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
    by: str | None = None  # the sort key; None: not sortable
    descending: bool = False  # of the first sort


class Columns:
    """The columns that fit: the rightmost are dropped first."""

    def __init__(self, columns: Sequence[Column], width: int) -> None:
        fitting = list(columns)
        while len(fitting) > 1 and _total_width(fitting) > width:
            fitting.pop()
        spare = max(width - _total_width(fitting), 0)
        growing = sum(column.grows for column in fitting) or 1
        shares = iter([spare // growing + spare % growing, *[spare // growing] * growing])
        self.fitting = [c._replace(width=c.width + next(shares)) if c.grows else c for c in fitting]

    def width_of(self, head: str) -> int:
        """Width of the column, 0 if dropped."""
        return next((column.width for column in self.fitting if column.head == head), 0)

    def heading(self) -> Row:
        """Row of column heads; the first is the section's name."""
        first, *rest = self.fitting
        names = [Piece(_cell(first.head, first), "head"), *(Piece(_cell(c.head, c), "dim") for c in rest)]
        return row(names)

    @property
    def sorts(self) -> list[str]:
        """Sort keys, from the left."""
        return [column.by for column in self.fitting if column.by is not None]

    def sort_heading(
        self, sort: str, *, descending: bool, renamed: Mapping[str, tuple[str, str]] | None = None
    ) -> Row:
        """Column heads; ▼ or ▲ marks the sorted one, and a click sorts.

        `renamed`: another head and sort key, by head."""
        pieces: list[Piece] = []
        for column in self.fitting:
            head = column.head.strip()
            name, by = (renamed or {}).get(head, (head, column.by))
            sorted_by = sort == by
            text = f"{name}{('▼' if descending else '▲') if sorted_by else ''}"
            tone = "accent" if sorted_by else "dim" if pieces else "head"
            action = f"screen.sort({by!r})" if by is not None else None
            pieces += [Piece(_GAP)] if pieces else []
            pieces.append(Piece(padded(text, column.width, right=column.right), tone, action))
        return Row(tuple(pieces))

    def row(self, cells: Sequence[Piece | Sequence[Piece]], key: Hashable | None = None) -> Row:
        """One cell per column; a cell of several pieces must have its column's width."""
        out: list[Piece] = []
        for column, cell in zip(self.fitting, cells, strict=False):
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


def stacked(sections: Iterable[Sequence[Row]]) -> list[Row]:
    """The sections that have rows, a blank line between two."""
    out: list[Row] = []
    for section in sections:
        if section:
            out += [BLANK, *section] if out else section
    return out


def title(left: str, right: str, width: int, *between: Piece) -> Row:
    """Title line of a screen: name on the left, counts on the right."""
    pieces = [piece for one in between for piece in (one, Piece(_GAP))]
    gap = max(width - width_of(left) - width_of(right) - sum(width_of(piece.text) for piece in pieces), 1)
    return Row((Piece(left, "strong"), Piece(" " * gap), *pieces, Piece(right, "dim")))


def text_row(text: str, width: int, tone: str = "text", *, key: Hashable | None = None) -> Row:
    """One line of text from any source, cut to `width`."""
    return Row((Piece(fitted(one_line(text), max(width, 1)), tone),), key)


def text_rows(text: str, width: int, tone: str = "text") -> list[Row]:
    """The text on as many rows as it needs."""
    return [text_row(line, width, tone) for line in textwrap.wrap(one_line(text), max(width, 20))]


def _cell(text: str, column: Column) -> str:
    return padded(fitted(one_line(text), column.width), column.width, right=column.right)


def _total_width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)
