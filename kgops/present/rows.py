"""Rows of pieces with tones: commands print them, screens draw them, pages fold them."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from kgops.jobs.text import one_line
from kgops.present.formats import columns, fitted, padded, table, width_of, wrapped

_GAP = "  "


class Piece(NamedTuple):
    """Text in one tone: the smallest unit that is repainted."""

    text: str
    tone: str = "text"
    action: str | None = None  # Textual action of a click


def beside(lines: Iterable[Sequence[Piece]]) -> Row:
    """Lines of charts next to one another, as one row."""
    pieces: list[Piece] = []
    for line in lines:
        pieces += [Piece("   "), *line] if pieces else line
    return Row(tuple(pieces))


def joined(cells: Iterable[tuple[str, str]]) -> list[Piece]:
    """Characters with their tones, as one piece for each stretch of a tone."""
    groups = groupby(cells, key=lambda cell: cell[1])
    return [Piece("".join(char for char, _ in group), tone) for tone, group in groups]


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


_BETWEEN = Piece(_GAP)


class Columns:
    """The columns that fit: the rightmost are dropped first, with `keeps_last` those before the last one."""

    def __init__(self, columns: Sequence[Column], width: int, *, keeps_last: bool = False) -> None:
        fitting, kept = list(columns), list(range(len(columns)))
        while len(fitting) > 1 and _total_width(fitting) > width:
            dropped = -2 if keeps_last and len(fitting) > 2 else -1
            del fitting[dropped], kept[dropped]
        self._kept = kept
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
        for column, cell in zip(self.fitting, (cells[i] for i in self._kept if i < len(cells)), strict=False):
            if out:
                out.append(_BETWEEN)
            if isinstance(cell, Piece):
                out.append(Piece(_cell(cell.text, column), cell.tone, cell.action))
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


class Fact(NamedTuple):
    """One thing that is known, with its name: `profile` `t4`."""

    name: str
    text: str
    tone: str = "text"


class Line(NamedTuple):
    """A cell for each column. A `marked` line stands out: its last cell is shown in full."""

    cells: tuple[Piece, ...]
    is_marked: bool = False


class Section(NamedTuple):
    """A table with sentences below it. Its first column's head names it, and its last column is always shown."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    below: tuple[str, ...] = ()

    @property
    def right(self) -> list[int]:
        """Places of the columns with numbers."""
        return [i for i, column in enumerate(self.columns) if column.right]


def section(
    fields: Iterable[Column], rows: Iterable[Sequence[Piece | str]], below: Iterable[str] = ()
) -> Section:
    """Without marked lines."""
    lines = (Line(tuple(Piece(one) if isinstance(one, str) else one for one in row)) for row in rows)
    return Section(tuple(fields), tuple(lines), tuple(below))


# --- in commands ---


def printed_facts(facts: Iterable[Fact], indent: str = "  ") -> list[str]:
    """A line for each fact, its name first."""
    return [f"{indent}{padded(one.name, 9)}  {one_line(one.text, 4000)}".rstrip() for one in facts]


def printed(shown: Section) -> list[str]:
    """An empty line, the table, and what is below it; nothing without lines."""
    if not shown.lines:
        return []
    heads = [column.head.upper() for column in shown.columns]
    rows = [[piece.text for piece in line.cells] for line in shown.lines]
    right = frozenset(heads[i] for i in shown.right)
    whole = {i for i, line in enumerate(shown.lines) if line.is_marked}
    below = (line for one in shown.below for line in wrapped(one, columns()))
    return ["", *table(heads, rows, right=right, whole=whole), *below]


# --- on screens ---


def drawn(shown: Section, width: int) -> list[Row]:
    """The heading, the lines and what is below them; nothing without lines."""
    if not shown.lines:
        return []
    fitting = Columns(shown.columns, width, keeps_last=True)
    rows = [row for line in shown.lines for row in _drawn_line(line, fitting)]
    return [fitting.heading(), *rows, *(text_row(one, width, "dim") for one in shown.below)]


def _drawn_line(line: Line, fitting: Columns) -> Iterator[Row]:
    last, room = line.cells[-1], fitting.fitting[-1].width
    if not line.is_marked or width_of(last.text) <= room:
        yield fitting.row(line.cells)
        return
    first, *more = textwrap.wrap(one_line(last.text), room) or [""]
    yield fitting.row((*line.cells[:-1], last._replace(text=first)))
    for text in more:
        yield fitting.row((*(Piece("") for _ in line.cells[:-1]), last._replace(text=text)))


def drawn_facts(facts: Iterable[Fact], width: int) -> list[Row]:
    """Facts joined by `·`, on as many lines as needed."""
    rows: list[list[Piece]] = []
    used = 0
    for one in facts:
        room = max(width - width_of(one.name) - 1, 1)
        pieces = [Piece(f"{one.name} ", "dim"), Piece(fitted(one_line(one.text), room), one.tone)]
        taken = sum(width_of(piece.text) for piece in pieces)
        if rows and used + taken + 3 <= width:
            rows[-1] += [Piece(" · ", "dim"), *pieces]
            used += taken + 3
        else:
            rows.append(pieces)
            used = taken
    return [Row(tuple(pieces)) for pieces in rows]
